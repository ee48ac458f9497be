"""Plans as a configuration of accelerate 1.15.0: ``accelerate.yaml`` for ``accelerate launch``, and
``settings.py`` beside it.

The YAML says how processes share the model: ``ParallelismConfig`` with FSDP2, or
DistributedDataParallel for ZeRO 0. It has no place for the micro-batch, accumulation and sequence
length, which are arguments of a training script's own objects: ``settings.py`` has them for that
script.

What accelerate refuses when it starts is refused here at once: tensor or context parallelism beside
replicas that hold everything (``ParallelismConfig``), a number of processes other than the product
of the sizes, FSDP with nothing to shard over (``_validate_accelerator``), recomputed activations in
host memory without recomputation (``FullyShardedDataParallelPlugin``). Stricter here: nodes that
would run different numbers of processes (it rounds down), fp8 (each of three libraries has its
own), pipelines, experts and sequence parallelism, which it has no words for, gradients in host
memory that FSDP keeps whole on the device while it accumulates them, heads that tensor parallelism
does not divide (met when the model loads), sequences that context parallelism does not divide into
a head and a tail part for each device, eager attention with it.

Source: accelerate 1.15.0, ``parallelism_config.py``, ``commands/launch.py``, ``utils/launch.py``,
``utils/dataclasses.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from Estimator.plans.offload import NOTHING
from phaze.exports.launch import ExportedFile, Inexpressible, Launch
from phaze.exports.refusals import (
    IN_FP32,
    NO_OFFLOAD,
    ON_HOST,
    Settings,
    cut_layers,
    divided_heads,
    experts,
    first_of,
    formats_but,
    other_order,
    part_batches,
    part_nodes,
    pipeline,
    sequence_parallel,
    serial_gradients,
    two_axes,
)
from phaze.exports.words import commented
from phaze_common.choices import Attention, KeyExchange, Precision, Recompute

ROTATION = {
    KeyExchange.GATHER: "allgather",
    KeyExchange.RING: "alltoall",
}  # of shards, in torch's context parallelism
FORMATS = {Precision.BF16: "bf16", Precision.FP16: "fp16", Precision.FP32: "no"}


def sharded(launch: Launch) -> bool:
    """Whether FSDP2 shards parameters, over replicas or over the devices of a sequence."""
    degrees = launch.degrees
    return degrees.cp > 1 or (degrees.dp > 1 and degrees.zero_stage > 0)


def _numbers(launch: Launch) -> Inexpressible | None:
    degrees = launch.degrees
    if degrees.precision not in FORMATS:
        return Inexpressible(
            "its fp8 is that of one of three libraries, which the plan does not name",
            (("precision", "bf16"),),
        )
    if degrees.recompute is Recompute.SELECTIVE:
        return Inexpressible("it recomputes whole blocks or nothing", (("recompute", "full"),))
    return None


def _sharding(launch: Launch) -> Inexpressible | None:
    degrees = launch.degrees
    if degrees.zero_stage > 0 or degrees.dp * degrees.cp == 1 or degrees.tp * degrees.cp == 1:
        return None
    what = "beside tensor or context parallelism its replicas always share out parameters"
    return Inexpressible(what, (("zero_stage", 1),))


def _sequences(launch: Launch) -> Inexpressible | None:
    degrees, length = launch.degrees, launch.plan.sequence_length
    if degrees.cp == 1:
        return None
    if degrees.exchange not in ROTATION:
        return Inexpressible(
            "its Ulysses exchange is DeepSpeed's, without context parallelism",
            (("exchange", "gather"),),
        )
    if degrees.attention is not Attention.FLASH:
        return Inexpressible(
            "with context parallelism its attention is fused", (("attention", "flash"),)
        )
    parts = 2 * degrees.cp
    if length % parts:
        near: Settings = (("sequence_length", -(-length // parts) * parts),)
        return Inexpressible(
            f"sequences of {length} tokens are no multiple of {parts}, two parts for each device",
            near,
        )
    return None


def _offload(launch: Launch) -> Inexpressible | None:
    degrees = launch.degrees
    offload = degrees.offload
    if offload == NOTHING:
        return None
    held = replace(offload, activations=0.0)
    if not sharded(launch):
        return Inexpressible(
            "it keeps nothing in host memory where FSDP shards nothing", (("offload", NO_OFFLOAD),)
        )
    if held not in (NOTHING, ON_HOST):
        return Inexpressible(
            "it keeps weights, gradients and optimizer state in host memory all together or not "
            "at all",
            (("offload", replace(ON_HOST, activations=offload.activations).terms),),
        )
    if held and degrees.zero_stage == 1 and degrees.micro_batches > 1:
        return Inexpressible(
            "it keeps gradients in host memory only where it shards them", (("zero_stage", 2),)
        )
    if offload.activations not in (0.0, 1.0) or (
        offload.activations and degrees.recompute is not Recompute.FULL
    ):
        return Inexpressible(
            "it keeps in host memory what recomputed blocks begin with, all of it",
            (("offload", held.terms or NO_OFFLOAD),),
        )
    return None


REFUSALS = (
    *(
        two_axes,
        pipeline("accelerate"),
        cut_layers,
        experts("accelerate"),
        sequence_parallel("accelerate"),
        divided_heads,
    ),
    *(
        _numbers,
        formats_but("accelerate", IN_FP32),
        _sharding,
        _sequences,
        _offload,
        part_batches,
        other_order,
    ),
    *(part_nodes, serial_gradients),
)


@dataclass(frozen=True)
class Accelerate:
    """accelerate 1.15.0: ``accelerate.yaml``, ``settings.py`` with what the training script gives,
    and ``run.sh``."""

    name: str = "accelerate"
    title: str = "accelerate"

    def inexpressible(self, launch: Launch) -> Inexpressible | None:
        """See ``Exporter``; the docstring of this module lists where it asks for more than
        accelerate does."""
        return first_of(REFUSALS, launch)

    def files(self, launch: Launch) -> tuple[ExportedFile, ...]:
        """See ``Exporter``."""
        return (
            ExportedFile("accelerate.yaml", configuration(launch)),
            ExportedFile("settings.py", _settings(launch)),
            ExportedFile(
                "run.sh",
                script(launch, "train.py", "your training script, which uses settings.py"),
                executable=True,
            ),
        )


def configuration(launch: Launch) -> str:
    """``accelerate.yaml``: what ``accelerate launch --config_file`` reads; a comment for every
    choice."""
    degrees = launch.degrees
    shards = degrees.dp if degrees.zero_stage > 0 else 1
    kind = "FSDP" if sharded(launch) else "MULTI_GPU" if degrees.devices > 1 else "'NO'"
    lines = [
        commented(
            f"# {launch.plan.model} on {degrees.devices} x {launch.device} ({launch.cluster}), "
            "for accelerate 1.15.0"
        ),
        "compute_environment: LOCAL_MACHINE",
        f"distributed_type: {kind}  # {_why_kind(launch)}",
        f"num_machines: {launch.nodes}",
        f"num_processes: {degrees.devices}  # one per device, over all machines",
        "main_training_function: main",
        f"mixed_precision: '{FORMATS[degrees.precision]}'  # of products; optimizer and master "
        "weights are fp32",
        "use_cpu: false",
    ]
    if sharded(launch):
        lines += _fsdp(launch)
    if degrees.tp * degrees.cp > 1 or sharded(launch):
        lines += [
            "parallelism_config:",
            f"  parallelism_config_dp_replicate_size: {degrees.dp // shards}  # replicas that "
            "hold everything",
            f"  parallelism_config_dp_shard_size: {shards}  # those that share out parameters",
            f"  parallelism_config_tp_size: {degrees.tp}  # load the model with its "
            "tensor-parallel plan, tp_plan='auto'",
            f"  parallelism_config_cp_size: {degrees.cp}",
            *(
                [f"  parallelism_config_cp_comm_strategy: {_rotation(launch)}"]
                if degrees.cp > 1
                else []
            ),
        ]
    return "\n".join(lines) + "\n"


def _rotation(launch: Launch) -> str:
    exchange = launch.degrees.exchange
    how = (
        "keys and values are gathered"
        if exchange is KeyExchange.GATHER
        else "they go around a ring while attention runs"
    )
    return f"{ROTATION[exchange]}  # {how}"


def _why_kind(launch: Launch) -> str:
    if sharded(launch):
        return f"ZeRO {launch.degrees.zero_stage} is FSDP2"
    return (
        "nothing is sharded: replicas hold everything and sum gradients"
        if launch.degrees.dp > 1
        else "nothing is replicated"
    )


def _fsdp(launch: Launch) -> list[str]:
    degrees = launch.degrees
    gathers = (
        "gathered for each forward and each backward pass"
        if degrees.zero_stage == 3
        else "kept from forward to backward pass"
    )
    boolean = {True: "true", False: "false"}
    held = degrees.offload.weights > 0
    return [
        "fsdp_config:",
        "  fsdp_version: 2  # the only one that ParallelismConfig works with",
        f"  fsdp_reshard_after_forward: {boolean[degrees.zero_stage == 3]}  # weights are "
        f"{gathers}",
        "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP  # a block is what is gathered at a "
        "time, as predicted",
        "  # weights, gradients and optimizer state are "
        f"{'in host memory' if held else 'on devices'}",
        f"  fsdp_offload_params: {boolean[held]}",
        f"  fsdp_activation_checkpointing: {boolean[degrees.recompute is Recompute.FULL]}  # "
        f"recompute {degrees.recompute.value}",
        "  # of recomputed blocks the inputs are in host memory, if so",
        f"  fsdp_activation_checkpointing_offload: {boolean[degrees.offload.activations > 0]}",
        "  fsdp_cpu_ram_efficient_loading: true  # one process of a machine reads weights",
        "  fsdp_state_dict_type: SHARDED_STATE_DICT",
    ]


def _settings(launch: Launch) -> str:
    degrees = launch.degrees
    each = degrees.zero_stage >= 2
    reduced = (
        "reduced after every micro-batch, as ZeRO 2 and 3 do"
        if each
        else "reduced once, as ZeRO 0 and 1 do"
    )
    attention = "sdpa" if degrees.attention is Attention.FLASH else "eager"
    outside = degrees.recompute is Recompute.FULL and not sharded(launch)
    return f'''\
"""What accelerate.yaml has no place for: give these to your training script."""

from accelerate import Accelerator
from accelerate.utils import GradientAccumulationPlugin

MODEL = {launch.plan.model!r}  # as phaze calls it
SEQUENCE_LENGTH = {launch.plan.sequence_length}
MICRO_BATCH_SIZE = {degrees.micro_batch_size}  # batch_size of the DataLoader, of each of {degrees.dp} replicas
ACCUMULATION_STEPS = {degrees.micro_batches}  # {degrees.micro_batches} x {degrees.micro_batch_size} x {degrees.dp} replicas \
= {degrees.global_batch_size}
ATTENTION = "{attention}"  # attn_implementation of the model
OPTIMIZER = "{degrees.optimizer}"
GRADIENT_CHECKPOINTING = {outside}  # call model.gradient_checkpointing_enable() if so; FSDP's own is in accelerate.yaml


def accelerator() -> Accelerator:
    """Gradients are {reduced}."""
    plugin = GradientAccumulationPlugin(num_steps=ACCUMULATION_STEPS, sync_each_batch={each})
    return Accelerator(gradient_accumulation_plugin=plugin)
'''


def script(launch: Launch, program: str, what: str) -> str:
    """``run.sh``: ``accelerate launch`` of ``program``; several nodes are each given their number
    and the first's address."""
    lines = ["#!/usr/bin/env bash", "set -euo pipefail", 'cd "$(dirname "$0")"']
    where = ""
    if launch.nodes > 1:
        lines += [
            f"# start it on each of {launch.nodes} nodes with NODE_RANK 0 to {launch.nodes - 1} "
            "and the same MASTER_ADDR",
            ': "${NODE_RANK:?number of this node}" "${MASTER_ADDR:?address of node 0}"',
        ]
        where = (
            ' --machine_rank "$NODE_RANK" --main_process_ip "$MASTER_ADDR" '
            '--main_process_port "${MASTER_PORT:-29500}"'
        )
    lines.append(f"# {program}: {what}")
    lines.append(f'exec accelerate launch --config_file accelerate.yaml{where} {program} "$@"')
    return "\n".join(lines) + "\n"


EXPORTER = Accelerate()
