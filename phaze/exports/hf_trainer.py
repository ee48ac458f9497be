"""Plans as ``TrainingArguments`` of Hugging Face's Trainer (transformers 5), with the file of what
shares out the model.

ZeRO without tensor or context parallelism is DeepSpeed's, whose stages are the plan's exactly;
tensor and context parallelism are accelerate's (``ParallelismConfig`` and FSDP2), which Trainer
takes from ``accelerate launch``; without either, replicas are DistributedDataParallel's. What those
cannot be told is refused as they refuse it. Stricter here: SGD with momentum outside DeepSpeed
(Trainer's ``sgd`` has none) and activations in host memory (Trainer recomputes by torch's
checkpoints, which stay).

DeepSpeed's file and the arguments say some things twice; Trainer refuses where they differ
(``HfTrainerDeepSpeedConfig``), so both are written from the same values.
"""

from __future__ import annotations

from dataclasses import dataclass

from phaze.exports.accelerate import EXPORTER as ACCELERATE
from phaze.exports.accelerate import configuration, script, sharded
from phaze.exports.deepspeed import EXPORTER as DEEPSPEED
from phaze.exports.deepspeed import LEARNING_RATE
from phaze.exports.deepspeed import configuration as deepspeed_configuration
from phaze.exports.launch import ExportedFile, Inexpressible, Launch
from phaze.exports.refusals import NO_OFFLOAD
from phaze_common.choices import Attention, Precision, Recompute


def by_deepspeed(launch: Launch) -> bool:
    """Whether DeepSpeed shares out the model; else accelerate does, or nothing."""
    degrees = launch.degrees
    return degrees.tp * degrees.cp == 1 and degrees.zero_stage > 0 and degrees.dp > 1


@dataclass(frozen=True)
class HfTrainer:
    """Hugging Face's Trainer: ``arguments.py``, a file of accelerate or of DeepSpeed, and
    ``run.sh``."""

    name: str = "hf_trainer"
    title: str = "Hugging Face Trainer"

    def inexpressible(self, launch: Launch) -> Inexpressible | None:
        """See ``Exporter``; the docstring of this module lists where it asks for more than its
        libraries do."""
        below = (DEEPSPEED if by_deepspeed(launch) else ACCELERATE).inexpressible(launch)
        if below is not None:
            return below
        degrees = launch.degrees
        if degrees.optimizer == "sgd_momentum" and not by_deepspeed(launch):
            return Inexpressible("its SGD has no momentum", (("optimizer", "sgd"),))
        if degrees.offload.activations and not sharded(launch):
            return Inexpressible("it keeps activations on the device", (("offload", NO_OFFLOAD),))
        if degrees.offload.activations and by_deepspeed(launch):
            return Inexpressible(
                "it keeps activations on the device", (("offload", _without_activations(launch)),)
            )
        return None

    def files(self, launch: Launch) -> tuple[ExportedFile, ...]:
        """See ``Exporter``."""
        found = [ExportedFile("arguments.py", _arguments(launch))]
        if by_deepspeed(launch):
            found += [ExportedFile("ds_config.json", deepspeed_configuration(launch))]
            run = _torchrun(launch)
        else:
            found += [ExportedFile("accelerate.yaml", configuration(launch))]
            run = script(
                launch,
                "train.py",
                "your training script, which gives arguments.arguments(...) to Trainer",
            )
        return (*found, ExportedFile("run.sh", run, executable=True))


def _without_activations(launch: Launch) -> tuple[str, ...]:
    terms = (term for term in launch.degrees.offload.terms if not term.startswith("activations"))
    return tuple(terms) or NO_OFFLOAD


def _arguments(launch: Launch) -> str:
    degrees = launch.degrees
    deep = by_deepspeed(launch)
    recomputed = degrees.recompute is Recompute.FULL
    own = recomputed and (deep or not sharded(launch))
    product = (
        f"{degrees.micro_batches} x {degrees.micro_batch_size} x {degrees.dp} replicas = "
        f"{degrees.global_batch_size}"
    )
    optimizer = "adamw_torch" if degrees.optimizer == "adam" else "sgd"
    attention = "sdpa" if degrees.attention is Attention.FLASH else "eager"
    lines = [
        "output_dir=output_dir,",
        f"per_device_train_batch_size={degrees.micro_batch_size},  # samples of a micro-batch of "
        "one replica",
        f"gradient_accumulation_steps={degrees.micro_batches},  # {product}",
        f"bf16={degrees.precision is Precision.BF16},  # products; optimizer and master weights "
        "are fp32",
        f"fp16={degrees.precision is Precision.FP16},",
        f"gradient_checkpointing={own},  # {_why_recomputed(recomputed, own)}",
        f'optim="{optimizer}",',
        f"learning_rate={LEARNING_RATE!r},  # this and what follows is yours to give, the same in "
        "ds_config.json if there is one",
        *(
            "adam_beta1=0.9,",
            "adam_beta2=0.95,",
            "adam_epsilon=1e-8,",
            "weight_decay=0.1,",
            "max_grad_norm=1.0,",
        ),
    ]
    if deep:
        lines.append(f'deepspeed=str(HERE / "ds_config.json"),  # ZeRO {degrees.zero_stage}')
    else:
        each = degrees.zero_stage >= 2 and sharded(launch)
        lines.append(
            "# accelerate.yaml shares out the model; run.sh hands it to Trainer through "
            "accelerate launch"
        )
        how = "after every micro-batch, as ZeRO 2 and 3 do" if each else "once, as ZeRO 0 and 1 do"
        lines.append(f"# gradients are reduced {how}")
        lines.append(
            f'accelerator_config={{"gradient_accumulation_kwargs": {{"sync_each_batch": {each}}}}},'
        )
    body = "\n".join(" " * 8 + line for line in lines)
    plan = f', tp_plan="auto"  # of {degrees.tp} devices' if degrees.tp > 1 else ""
    return f'''\
"""A plan by phaze for Hugging Face's Trainer: arguments for Trainer(args=...) in train.py, which run.sh starts."""

from pathlib import Path

from transformers import TrainingArguments

HERE = Path(__file__).parent
MODEL = {launch.plan.model!r}  # as phaze calls it
SEQUENCE_LENGTH = {launch.plan.sequence_length}  # tokens of every sample
# load the model with attn_implementation="{attention}"{plan}
ATTENTION = "{attention}"


def arguments(output_dir: str) -> TrainingArguments:
    """The plan of {degrees.devices} devices."""
    return TrainingArguments(
{body}
    )
'''


def _why_recomputed(recomputed: bool, own: bool) -> str:
    if own:
        return "each block is computed again in the backward pass"
    return (
        "FSDP recomputes blocks itself, in accelerate.yaml"
        if recomputed
        else "nothing is computed twice"
    )


def _torchrun(launch: Launch) -> str:
    lines = ["#!/usr/bin/env bash", "set -euo pipefail", 'cd "$(dirname "$0")"']
    where = "--standalone"
    if launch.nodes > 1:
        lines += [
            f"# start it on each of {launch.nodes} nodes with NODE_RANK 0 to {launch.nodes - 1} "
            "and the same MASTER_ADDR",
            ': "${NODE_RANK:?number of this node}" "${MASTER_ADDR:?address of node 0}"',
        ]
        where = (
            '--node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port '
            '"${MASTER_PORT:-29500}"'
        )
    lines.append(
        "# train.py: your training script, which gives arguments.arguments(...) to Trainer"
    )
    start = f"--nnodes {launch.nodes} --nproc-per-node {launch.processes_per_node}"
    lines.append(f'exec torchrun {start} {where} train.py "$@"')
    return "\n".join(lines) + "\n"


EXPORTER = HfTrainer()
