"""Plans as ``ds_config.json`` of DeepSpeed 0.19.8, with a ``README.md`` that says why of every key,
since JSON has no comments.

DeepSpeed has the product rule: train_batch_size = train_micro_batch_size_per_gpu x
gradient_accumulation_steps x replicas. While it reads the file it takes every process for a
replica, those of tensor parallelism too, unless the script hands it a ``mpu``; so with tensor
parallelism train_batch_size is left out, which DeepSpeed then derives itself
(``_set_batch_related_parameters``).

Its file has no words for pipelines (``PipelineModule`` in code), context parallelism (Ulysses in
code), experts divided over devices (AutoEP is not written here) and sequence parallelism. Stricter
here than its reading of the file: weights in host memory without ZeRO 3 and optimizer state without
ZeRO, which it takes and ignores; heads that tensor parallelism does not divide, which it warns of
and runs with idle devices; fp8, which it has no word for and would train in fp32.

Sources: DeepSpeed 0.19.8, ``runtime/config.py``, ``runtime/zero/config.py``,
``runtime/zero/offload_config.py``, ``runtime/tensor_parallel/config.py``; its page of configuration
keys (deepspeed.ai/docs/config-json).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from Estimator.plans.offload import NOTHING
from Estimator.plans.state_formats import StateFormats
from phaze.exports import refusals
from phaze.exports.launch import ExportedFile, Exporter, Launch, unsupported
from phaze.exports.options import Option, json_text, markdown_rows
from phaze.exports.refusals import NO_OFFLOAD, Refusals, more_replicas
from phaze.exports.start_scripts import run_script
from phaze.exports.words import in_markdown
from phaze_common.choices import Attention, MomentDtype, Precision, Recompute, StateDtype
from phaze_common.recompute_modules import of_parts

LEARNING_RATE = 3e-4  # where the user gives none: the schedule is no part of a plan
BYTES_OF_BF16 = 2
MICS = "zero_optimization.mics_shard_size"
STAGES = (
    "replicas hold everything",
    "replicas share out the optimizer's state",
    "and gradients, which are reduced and scattered after every micro-batch",
    "and weights, which are gathered for each forward and each backward pass",
)


def _sequences(launch: Launch) -> Refusals:
    if (cp := launch.degrees.cp) > 1:
        near = {"cp": 1, **more_replicas(launch, cp)}
        yield unsupported(f"it cuts sequences in code alone (cp {cp})", **near)


def _groups(launch: Launch) -> Refusals:
    degrees = launch.degrees
    if degrees.shard_groups == 1:
        return
    if degrees.zero_stage < 3:
        what = "it divides replicas into groups of shards (MiCS) under ZeRO 3 alone"
        yield unsupported(what, zero_stage=3)
    if degrees.tp > 1:
        what = "its groups of shards (MiCS) count the devices of tensor parallelism too"
        yield unsupported(what, shard_groups=1)


def _numbers(launch: Launch) -> Refusals:
    degrees = launch.degrees
    if degrees.precision.is_reduced:
        what = f"it has bf16, fp16 and fp32, no {degrees.precision}"
        yield unsupported(what, precision="bf16")
    if of_parts(launch.degrees.recompute):
        yield unsupported("it recomputes whole blocks or nothing", recompute="full")
    if launch.plan.overlap_gradients and degrees.zero_stage == 0 and degrees.dp > 1:
        what = "without ZeRO it sums gradients behind the backward pass"
        yield unsupported(what, overlap_gradients=False)


def _offload(launch: Launch) -> Refusals:
    offload, stage = launch.degrees.offload, launch.degrees.zero_stage
    if offload == NOTHING:
        return
    parts = {name: getattr(offload, name) for name in vars(offload)}
    if any(0.0 < part < 1.0 for part in parts.values()):
        whole = replace(offload, **{name: float(part > 0) for name, part in parts.items()})
        what = "it keeps all or nothing of a kind in host memory"
        yield unsupported(what, offload=whole.terms)
    if offload.gradients != offload.optimizer:
        both = replace(offload, gradients=1.0, optimizer=1.0)
        what = "it keeps gradients in host memory with the optimizer state"
        yield unsupported(what, offload=both.terms)
    if offload.optimizer and stage == 0:
        yield unsupported("it keeps optimizer state in host memory only with ZeRO", zero_stage=1)
    if offload.weights and stage < 3:
        yield unsupported("it keeps weights in host memory only with ZeRO 3", zero_stage=3)
    if offload.activations and launch.degrees.recompute is not Recompute.FULL:
        less = replace(offload, activations=0.0)
        what = "it keeps in host memory what recomputed blocks begin with"
        yield unsupported(what, offload=less.terms or NO_OFFLOAD)


def added_in(precision: Precision, zero_stage: int) -> tuple[str, ...]:
    """Formats in which its engine adds up gradients (``_do_optimizer_sanity_check``)."""
    if precision is not Precision.BF16:
        return (precision.value,)
    return (("fp32",), ("bf16", "fp32"), ("bf16",), ("bf16",))[zero_stage]


def _gradient_dtype(launch: Launch) -> str | None:
    """The format in which gradients of a plan are added up: its own, or that of the framework that
    it was priced under."""
    precision, stated = launch.degrees.precision, launch.degrees.state_formats.gradient_dtype
    if stated is not None:
        return stated.value
    if launch.machine is None or precision is not Precision.BF16:
        return None
    narrow = launch.machine.software.gradient_bytes_in(precision) == BYTES_OF_BF16
    return "bf16" if narrow else "fp32"


def _gradients(launch: Launch) -> Refusals:
    degrees, added = launch.degrees, _gradient_dtype(launch)
    known = added_in(degrees.precision, degrees.zero_stage)
    if added is not None and added not in known:
        what = f"in {degrees.precision} with ZeRO {degrees.zero_stage} it adds up gradients in"
        near = known[0]
        yield unsupported(f"{what} {' or '.join(known)}, not in {added}", gradient_dtype=near)


def _state(launch: Launch) -> Refusals:
    gradients = launch.degrees.state_formats.gradient_dtype
    own = StateFormats(gradients, MomentDtype.FP32, StateDtype.FP32)
    return refusals.formats_but(launch, "its optimizer", own)


def files(launch: Launch) -> tuple[ExportedFile, ...]:
    """``ds_config.json``, ``README.md`` with every key of it, and ``run.sh``."""
    return (
        ExportedFile("ds_config.json", configuration(launch)),
        ExportedFile("README.md", _readme(launch)),
        _script(launch),
    )


def configuration(launch: Launch) -> str:
    """``ds_config.json``."""
    return json_text(entries(launch))


def entries(launch: Launch) -> tuple[Option, ...]:
    """Every key of the file with its reason."""
    return (*_batches(launch), *_formats(launch), *_zero(launch), *_rest(launch), *_own(launch))


def _batches(launch: Launch) -> Iterator[Option]:
    degrees = launch.degrees
    size, steps, batch = degrees.micro_batch_size, degrees.micro_batches, degrees.global_batch_size
    product = f"{size} x {steps} x {degrees.dp} replicas = {batch}"
    if degrees.tp == 1:
        yield Option("train_batch_size", batch, f"samples of an iteration: {product}")
    why = "samples of a micro-batch of one replica"
    yield Option("train_micro_batch_size_per_gpu", size, why)
    why = f"micro-batches of an iteration: {product}"
    yield Option("gradient_accumulation_steps", steps, why)


def _formats(launch: Launch) -> Iterator[Option]:
    precision, gradients = launch.degrees.precision, _gradient_dtype(launch)
    if precision is Precision.FP32:
        return
    why = "products and weights; the optimizer's state and master weights are fp32"
    yield Option(f"{precision.value}.enabled", True, why)
    if precision is Precision.FP16:
        yield Option("fp16.loss_scale", 0, "losses are scaled as large as gradients allow")
    if gradients is not None:
        why = "in which the plan adds up gradients"
        yield Option("data_types.grad_accum_dtype", gradients, why)
        yield Option("communication_data_type", gradients, "in which replicas reduce them")


def _zero(launch: Launch) -> Iterator[Option]:
    stage, offload = launch.degrees.zero_stage, launch.degrees.offload
    yield Option("zero_optimization.stage", stage, STAGES[stage])
    if (groups := launch.degrees.shard_groups) > 1:
        why = (
            f"MiCS: {groups} groups share shards each; build the model in deepspeed.zero.MiCS_Init"
        )
        yield Option(MICS, launch.degrees.dp // groups, why)
    if stage:
        why = "gradients are reduced while the backward pass runs, if so"
        yield Option("zero_optimization.overlap_comm", launch.overlap_gradients, why)
    pinned = "copies at the full speed of the link"
    if offload.optimizer:
        why = (
            "optimizer state and gradients in host memory, where the step runs too (phaze "
            "predicts it on the device)"
        )
        yield Option("zero_optimization.offload_optimizer.device", "cpu", why)
        yield Option("zero_optimization.offload_optimizer.pin_memory", True, pinned)
    if offload.weights:
        yield Option("zero_optimization.offload_param.device", "cpu", "weights in host memory")
        yield Option("zero_optimization.offload_param.pin_memory", True, pinned)


def _rest(launch: Launch) -> Iterator[Option]:
    degrees = launch.degrees
    if degrees.tp > 1:
        why = "tensor-parallel devices; the loader must give all of a group the same samples"
        yield Option("tensor_parallel.autotp_size", degrees.tp, why)
        why = "all-reduces overlap products, if so"
        yield Option("tensor_parallel.tp_overlap_comm", launch.overlap_tensor, why)
    if degrees.recompute is Recompute.FULL:
        why = (
            "each block is computed again; a model asks for it, one of Hugging Face by "
            "model.gradient_checkpointing_enable()"
        )
        yield Option("activation_checkpointing.partition_activations", False, why)
        why = (
            "of recomputed blocks the inputs are in host memory, if so (blocks run by "
            "deepspeed.checkpointing alone)"
        )
        held = degrees.offload.activations > 0
        yield Option("activation_checkpointing.cpu_checkpointing", held, why)
    adam = degrees.optimizer == "adam"
    momentum = 0.9 if degrees.optimizer == "sgd_momentum" else 0.0
    parameters: Mapping[str, object] = {"lr": LEARNING_RATE, "momentum": momentum}
    if adam:
        parameters = {"lr": LEARNING_RATE, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
    why = "the plan's optimizer; its rates are yours to give"
    yield Option("optimizer.type", "AdamW" if adam else "SGD", why)
    for name, value in parameters.items():
        yield Option(f"optimizer.params.{name}", value, "yours to give")
    if not adam:
        yield Option("zero_allow_untested_optimizer", True, "SGD is torch's own")
        yield Option("zero_force_ds_cpu_optimizer", False, "SGD is torch's own")
    yield Option("gradient_clipping", 1.0, "the norm of gradients; yours to give")


def _own(launch: Launch) -> Iterator[Option]:
    degrees = launch.degrees
    given = {
        "model": launch.plan.model,
        "sequence_length": launch.plan.sequence_length,
        "dp": degrees.dp,
        "global_batch_size": degrees.global_batch_size,
        "attention": "flash" if degrees.attention is Attention.FLASH else "eager",
        "recompute": degrees.recompute.value,
    }
    why = (
        "not read by DeepSpeed: what of the plan its file has no word for, for your script and "
        "for phaze"
    )
    for name, value in given.items():
        yield Option(f"phaze.{name}", value, why)


def _readme(launch: Launch) -> str:
    degrees = launch.degrees
    model, device, cluster = map(in_markdown, (launch.plan.model, launch.device, launch.cluster))
    rows = markdown_rows(entries(launch))
    batch = ""
    if degrees.tp > 1:
        batch = (
            f"`train_batch_size` is left out: DeepSpeed counts all {degrees.devices} processes in "
            f"the product while it reads the file, but only {degrees.dp} replicas have samples of "
            f"their own, {degrees.global_batch_size} per iteration.\n\n"
        )
    return (
        f"# {model} with DeepSpeed 0.19.8\n\n"
        f"A plan by phaze for {degrees.devices} x {device} ({cluster}). `run.sh` starts "
        "`train.py`, your script, which passes `ds_config.json` to `deepspeed.initialize`.\n\n"
        f"{batch}| key | value | why |\n| --- | --- | --- |\n{rows}"
    )


def _script(launch: Launch) -> ExportedFile:
    each, hosts, lines = launch.processes_per_node, "", list[str]()
    if launch.nodes > 1:
        lines.append(
            f"# hostfile: {launch.nodes} lines such as node1 slots={each}, "
            "the first of them this node"
        )
        hosts = f" --hostfile hostfile --num_nodes {launch.nodes}"
    start = f"exec deepspeed{hosts} --num_gpus {each} train.py"
    return run_script(*lines, f'{start} --deepspeed_config ds_config.json "$@"')


REFUSALS = (
    refusals.two_axes,
    partial(refusals.pipeline, program="DeepSpeed's file"),
    refusals.cut_layers,
    refusals.no_muon,
    _groups,
    _sequences,
    partial(refusals.experts, program="its file"),
    partial(refusals.cuda_graphs, program="its file"),
    partial(refusals.sequence_parallel, program="it"),
    refusals.divided_heads,
    _numbers,
    _gradients,
    _state,
    _offload,
    refusals.part_batches,
    refusals.other_order,
    refusals.part_nodes,
)
EXPORTER = Exporter("deepspeed", "DeepSpeed", REFUSALS, files)
