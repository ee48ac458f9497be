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

from dataclasses import replace
from functools import partial

from Estimator.plans.offload import NOTHING
from phaze.exports import refusals
from phaze.exports.launch import ExportedFile, Exporter, Launch, unsupported
from phaze.exports.refusals import NO_OFFLOAD, ON_HOST, Refusals
from phaze.exports.start_scripts import RUN, on_each_node, run_script
from phaze.exports.words import commented
from phaze_common.choices import Attention, KeyExchange, Precision, Recompute
from phaze_common.recompute_modules import of_parts

NAME = "accelerate"
# of shards, in torch's context parallelism
ROTATION = {KeyExchange.GATHER: "allgather", KeyExchange.RING: "alltoall"}
FORMATS = {Precision.BF16: "bf16", Precision.FP16: "fp16", Precision.FP32: "no"}


def _numbers(launch: Launch) -> Refusals:
    if launch.degrees.precision not in FORMATS:
        what = "its fp8 is that of one of three libraries, which the plan does not name"
        yield unsupported(what, precision="bf16")
    if of_parts(launch.degrees.recompute):
        yield unsupported("it recomputes whole blocks or nothing", recompute="full")


def _sharding(launch: Launch) -> Refusals:
    degrees = launch.degrees
    if degrees.zero_stage == 0 and degrees.dp * degrees.cp > 1 and degrees.tp * degrees.cp > 1:
        what = "beside tensor or context parallelism its replicas always share out parameters"
        yield unsupported(what, zero_stage=1)


def _sequences(launch: Launch) -> Refusals:
    degrees, length = launch.degrees, launch.plan.sequence_length
    parts = 2 * degrees.cp
    if degrees.cp == 1:
        return
    if degrees.exchange not in ROTATION:
        what = "its Ulysses exchange is DeepSpeed's, without context parallelism"
        yield unsupported(what, exchange="gather")
    if degrees.attention is not Attention.FLASH:
        yield unsupported("with context parallelism its attention is fused", attention="flash")
    if length % parts:
        what = f"sequences of {length} tokens are no multiple of {parts}"
        longer = -(-length // parts) * parts
        yield unsupported(f"{what}, two parts for each device", sequence_length=longer)


def _offload(launch: Launch) -> Refusals:
    degrees, offload = launch.degrees, launch.degrees.offload
    held = replace(offload, activations=0.0)
    if offload == NOTHING:
        return
    if not degrees.sharding:
        what = "it keeps nothing in host memory where FSDP shards nothing"
        yield unsupported(what, offload=NO_OFFLOAD)
    if held not in (NOTHING, ON_HOST):
        near = replace(ON_HOST, activations=offload.activations)
        yield unsupported(refusals.ALL_OR_NONE, offload=near.terms)
    if held and degrees.zero_stage == 1 and degrees.micro_batches > 1:
        what = "it keeps gradients in host memory only where it shards them"
        yield unsupported(what, zero_stage=2)
    recomputes = degrees.recompute is Recompute.FULL
    if offload.activations not in ((0.0, 1.0) if recomputes else (0.0,)):
        what = "it keeps in host memory what recomputed blocks begin with, all of it"
        yield unsupported(what, offload=held.terms or NO_OFFLOAD)


def files(launch: Launch) -> tuple[ExportedFile, ...]:
    """``accelerate.yaml``, ``settings.py`` with what the training script gives, and ``run.sh``."""
    return (
        ExportedFile("accelerate.yaml", configuration(launch)),
        ExportedFile("settings.py", _settings(launch)),
        script(launch, "your training script, which uses settings.py"),
    )


def configuration(launch: Launch) -> str:
    """``accelerate.yaml``: what ``accelerate launch --config_file`` reads; a comment for every
    choice."""
    degrees = launch.degrees
    replicas = degrees.shard_groups if degrees.sharding else degrees.dp
    why, kind = "nothing is replicated", "MULTI_GPU" if degrees.devices > 1 else "'NO'"
    if degrees.sharding:
        why, kind = f"ZeRO {degrees.zero_stage} is FSDP2", "FSDP"
    elif degrees.dp > 1:
        why = "nothing is sharded: replicas hold everything and sum gradients"
    plan = commented(
        f"{launch.plan.model} on {degrees.devices} x {launch.device} ({launch.cluster})"
    )
    text = f"""\
# {plan}, for accelerate 1.15.0
compute_environment: LOCAL_MACHINE
distributed_type: {kind}  # {why}
num_machines: {launch.nodes}
num_processes: {degrees.devices}  # one per device, over all machines
main_training_function: main
mixed_precision: '{FORMATS[degrees.precision]}'  # of products; optimizer and master weights are fp32
use_cpu: false
"""
    if degrees.sharding:
        text += _fsdp(launch)
    if degrees.tp * degrees.cp > 1 or degrees.sharding:
        text += f"""\
parallelism_config:
  parallelism_config_dp_replicate_size: {replicas}  # replicas that hold everything
  parallelism_config_dp_shard_size: {degrees.dp // replicas}  # those that share out parameters
  parallelism_config_tp_size: {degrees.tp}  # load the model with its tensor-parallel plan, tp_plan='auto'
  parallelism_config_cp_size: {degrees.cp}
"""
    if degrees.cp > 1:
        gathered = degrees.exchange is KeyExchange.GATHER
        ring = "they go around a ring while attention runs"
        how = "keys and values are gathered" if gathered else ring
        way = ROTATION[degrees.exchange]
        text += f"  parallelism_config_cp_comm_strategy: {way}  # {how}\n"
    return text


def _fsdp(launch: Launch) -> str:
    degrees = launch.degrees
    gathers = "kept from forward to backward pass"
    if degrees.zero_stage == 3:
        gathers = "gathered for each forward and each backward pass"
    boolean = {True: "true", False: "false"}
    held = degrees.offload.weights > 0
    return f"""\
fsdp_config:
  fsdp_version: 2  # the only one that ParallelismConfig works with
  fsdp_reshard_after_forward: {boolean[degrees.zero_stage == 3]}  # weights are {gathers}
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP  # a block is what is gathered at a time, as predicted
  # weights, gradients and optimizer state are {"in host memory" if held else "on devices"}
  fsdp_offload_params: {boolean[held]}
  fsdp_activation_checkpointing: {boolean[degrees.recompute is Recompute.FULL]}  # recompute \
{degrees.recompute.value}
  # of recomputed blocks the inputs are in host memory, if so
  fsdp_activation_checkpointing_offload: {boolean[degrees.offload.activations > 0]}
  fsdp_cpu_ram_efficient_loading: true  # one process of a machine reads weights
  fsdp_state_dict_type: SHARDED_STATE_DICT
"""


def implementation(launch: Launch) -> str:
    """``attn_implementation`` of the model; torch's own is FlashAttention-2."""
    if launch.degrees.attention is Attention.EAGER:
        return "eager"
    return {"flash_3": "flash_attention_3"}.get(launch.attention_kernel, "sdpa")


def _settings(launch: Launch) -> str:
    degrees = launch.degrees
    each = degrees.sharding >= 2
    reduced = "after every micro-batch, as ZeRO 2 and 3 do" if each else "once, as ZeRO 0 and 1 do"
    attention = implementation(launch)
    outside = degrees.recompute is Recompute.FULL and not degrees.sharding
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
    """Gradients are reduced {reduced}."""
    plugin = GradientAccumulationPlugin(num_steps=ACCUMULATION_STEPS, sync_each_batch={each})
    return Accelerator(gradient_accumulation_plugin=plugin)
'''


def script(launch: Launch, what: str) -> ExportedFile:
    """``run.sh``: ``accelerate launch`` of ``train.py``, which is ``what``."""
    where = ""
    if launch.nodes > 1:
        where = (
            ' --machine_rank "$NODE_RANK" --main_process_ip "$MASTER_ADDR" '
            '--main_process_port "${MASTER_PORT:-29500}"'
        )
    return run_script(
        *on_each_node(launch),
        f"# train.py: {what}",
        f'exec accelerate launch --config_file accelerate.yaml{where} train.py "$@"',
    )


REFUSALS = (
    refusals.two_axes,
    partial(refusals.pipeline, program=NAME),
    refusals.cut_layers,
    refusals.no_muon,
    partial(refusals.experts, program=NAME),
    partial(refusals.cuda_graphs, program=NAME),
    partial(refusals.sequence_parallel, program=NAME),
    refusals.divided_heads,
    _numbers,
    partial(refusals.formats_but, program=NAME, own=refusals.IN_FP32),
    _sharding,
    _sequences,
    _offload,
    refusals.part_batches,
    refusals.other_order,
    refusals.part_nodes,
    refusals.serial_gradients,
)
EXPORTER = Exporter(NAME, "accelerate", REFUSALS, files, node_script=RUN)
