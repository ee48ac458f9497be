"""Plans as ``TrainingArguments`` of Hugging Face's Trainer (transformers 5), with the file of what
shares out the model.

ZeRO without tensor or context parallelism is DeepSpeed's, whose stages are the plan's exactly;
tensor and context parallelism and groups of shards are accelerate's (``ParallelismConfig`` and FSDP2), which Trainer
takes from ``accelerate launch``; without either, replicas are DistributedDataParallel's. What those
cannot be told is refused as they refuse it. Stricter here: SGD with momentum outside DeepSpeed
(Trainer's ``sgd`` has none) and activations in host memory (Trainer recomputes by torch's
checkpoints, which stay).

DeepSpeed's file and the arguments say some things twice; Trainer refuses where they differ
(``HfTrainerDeepSpeedConfig``), so both are written from the same values.
"""

from __future__ import annotations

from phaze.exports.accelerate.exporter import EXPORTER as ACCELERATE
from phaze.exports.accelerate.exporter import configuration, implementation, script
from phaze.exports.deepspeed.exporter import EXPORTER as DEEPSPEED
from phaze.exports.deepspeed.exporter import LEARNING_RATE
from phaze.exports.deepspeed.exporter import configuration as deepspeed_configuration
from phaze.exports.launch import ExportedFile, Exporter, Launch, unsupported
from phaze.exports.refusals import NO_OFFLOAD, Refusals
from phaze.exports.start_scripts import RUN, on_each_node, run_script, torchrun
from phaze_common.choices import Precision, Recompute

TRAIN = "your training script, which gives arguments.arguments(...) to Trainer"


def by_deepspeed(launch: Launch) -> bool:
    """Whether DeepSpeed shares out the model; else accelerate does, or nothing."""
    degrees, replicated = launch.degrees, launch.degrees.shard_groups > 1
    return degrees.tp * degrees.cp == 1 and degrees.sharding > 0 and not replicated


def _below(launch: Launch) -> Refusals:
    refused = (DEEPSPEED if by_deepspeed(launch) else ACCELERATE).unsupported(launch)
    if refused is not None:
        yield refused


def _trainer(launch: Launch) -> Refusals:
    offload = launch.degrees.offload
    if launch.degrees.optimizer == "sgd_momentum" and not by_deepspeed(launch):
        yield unsupported("its SGD has no momentum", optimizer="sgd")
    if offload.activations and not launch.degrees.sharding:
        yield unsupported("it keeps activations on the device", offload=NO_OFFLOAD)
    if offload.activations and by_deepspeed(launch):
        others = tuple(term for term in offload.terms if not term.startswith("activations"))
        yield unsupported("it keeps activations on the device", offload=others or NO_OFFLOAD)


def files(launch: Launch) -> tuple[ExportedFile, ...]:
    """``arguments.py``, a file of accelerate or of DeepSpeed, and ``run.sh``."""
    run = script(launch, TRAIN)
    below = ExportedFile("accelerate.yaml", configuration(launch))
    if by_deepspeed(launch):
        start = f'exec {torchrun(launch)} train.py "$@"'
        run = run_script(*on_each_node(launch), f"# train.py: {TRAIN}", start)
        below = ExportedFile("ds_config.json", deepspeed_configuration(launch))
    return (ExportedFile("arguments.py", _arguments(launch)), below, run)


def _arguments(launch: Launch) -> str:
    degrees = launch.degrees
    recomputed, why = degrees.recompute is Recompute.FULL, "nothing is computed twice"
    own = recomputed and (by_deepspeed(launch) or not degrees.sharding)
    if recomputed:
        why = "FSDP recomputes blocks itself, in accelerate.yaml"
        why = "each block is computed again in the backward pass" if own else why
    product = (
        f"{degrees.micro_batches} x {degrees.micro_batch_size} x {degrees.dp} replicas = "
        f"{degrees.global_batch_size}"
    )
    attention = implementation(launch)
    plan = f', tp_plan="auto"  # of {degrees.tp} devices' if degrees.tp > 1 else ""
    each = degrees.sharding >= 2
    how = "after every micro-batch, as ZeRO 2 and 3 do" if each else "once, as ZeRO 0 and 1 do"
    shared = f"""\
        # accelerate.yaml shares out the model; run.sh hands it to Trainer through accelerate launch
        # gradients are reduced {how}
        accelerator_config={{"gradient_accumulation_kwargs": {{"sync_each_batch": {each}}}}},"""
    if by_deepspeed(launch):
        zero = f"# ZeRO {degrees.zero_stage}"
        shared = f'        deepspeed=str(HERE / "ds_config.json"),  {zero}'
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
        output_dir=output_dir,
        per_device_train_batch_size={degrees.micro_batch_size},  # samples of a micro-batch of one replica
        gradient_accumulation_steps={degrees.micro_batches},  # {product}
        bf16={degrees.precision is Precision.BF16},  # products; optimizer and master weights are fp32
        fp16={degrees.precision is Precision.FP16},
        gradient_checkpointing={own},  # {why}
        optim="{"adamw_torch" if degrees.optimizer == "adam" else "sgd"}",
        learning_rate={LEARNING_RATE!r},  # this and what follows is yours to give, the same in ds_config.json if there is one
        adam_beta1=0.9,
        adam_beta2=0.95,
        adam_epsilon=1e-8,
        weight_decay=0.1,
        max_grad_norm=1.0,
{shared}
    )
'''


EXPORTER = Exporter("hf_trainer", "Hugging Face Trainer", (_below, _trainer), files, RUN)
