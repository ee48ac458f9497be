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

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from Estimator.plans.offload import NOTHING
from Estimator.plans.state_formats import StateFormats
from phaze.exports.launch import ExportedFile, Inexpressible, Launch
from phaze.exports.refusals import (
    NO_OFFLOAD,
    cut_layers,
    divided_heads,
    experts,
    first_of,
    formats_but,
    more_replicas,
    other_order,
    part_batches,
    part_nodes,
    pipeline,
    sequence_parallel,
    two_axes,
)
from phaze.exports.words import in_code_of_markdown, in_markdown
from phaze_common.choices import Attention, MomentDtype, Precision, Recompute, StateDtype

LEARNING_RATE = 3e-4  # where the user gives none: the schedule is no part of a plan


@dataclass(frozen=True)
class Entry:
    """A key of the file by its path, its value, and why it is so."""

    path: tuple[str, ...]
    value: object
    why: str


def _sequences(launch: Launch) -> Inexpressible | None:
    cp = launch.degrees.cp
    if cp == 1:
        return None
    return Inexpressible(
        f"it cuts sequences in code alone (cp {cp})", (("cp", 1), *more_replicas(launch, cp))
    )


def _numbers(launch: Launch) -> Inexpressible | None:
    degrees = launch.degrees
    if degrees.precision is Precision.FP8:
        return Inexpressible("it has bf16, fp16 and fp32, no fp8", (("precision", "bf16"),))
    if degrees.recompute is Recompute.SELECTIVE:
        return Inexpressible("it recomputes whole blocks or nothing", (("recompute", "full"),))
    if launch.plan.overlap_gradients and degrees.zero_stage == 0 and degrees.dp > 1:
        return Inexpressible(
            "without ZeRO it sums gradients behind the backward pass",
            (("overlap_gradients", False),),
        )
    return None


def _offload(launch: Launch) -> Inexpressible | None:
    degrees = launch.degrees
    offload, stage = degrees.offload, degrees.zero_stage
    if offload == NOTHING:
        return None
    if any(
        0.0 < part < 1.0
        for part in (offload.optimizer, offload.gradients, offload.weights, offload.activations)
    ):
        whole = replace(
            offload, **{name: float(getattr(offload, name) > 0) for name in vars(offload)}
        )
        return Inexpressible(
            "it keeps all or nothing of a kind in host memory", (("offload", whole.terms),)
        )
    if offload.gradients != offload.optimizer:
        both = replace(offload, gradients=1.0, optimizer=1.0)
        return Inexpressible(
            "it keeps gradients in host memory with the optimizer state", (("offload", both.terms),)
        )
    if offload.optimizer and stage == 0:
        return Inexpressible(
            "it keeps optimizer state in host memory only with ZeRO", (("zero_stage", 1),)
        )
    if offload.weights and stage < 3:
        return Inexpressible(
            "it keeps weights in host memory only with ZeRO 3", (("zero_stage", 3),)
        )
    if offload.activations and degrees.recompute is not Recompute.FULL:
        less = replace(offload, activations=0.0)
        return Inexpressible(
            "it keeps in host memory what recomputed blocks begin with",
            (("offload", less.terms or NO_OFFLOAD),),
        )
    return None


def added_in(precision: Precision, zero_stage: int) -> tuple[str, ...]:
    """Formats in which its engine adds up gradients (``_do_optimizer_sanity_check``)."""
    if precision is not Precision.BF16:
        return (precision.value,)
    return (("fp32",), ("bf16", "fp32"), ("bf16",), ("bf16",))[zero_stage]


def _gradient_dtype(launch: Launch) -> str | None:
    """The format in which gradients of a plan are added up: its own, or that of the framework that
    it was priced under."""
    degrees, stated = launch.degrees, launch.degrees.state_formats.gradient_dtype
    if stated is not None or launch.machine is None or degrees.precision is not Precision.BF16:
        return None if stated is None else stated.value
    return (
        "bf16"
        if launch.machine.software.gradient_bytes_in(degrees.precision) == BYTES_OF_BF16
        else "fp32"
    )


def _gradients(launch: Launch) -> Inexpressible | None:
    degrees, added = launch.degrees, _gradient_dtype(launch)
    known = added_in(degrees.precision, degrees.zero_stage)
    if added is None or added in known:
        return None
    return Inexpressible(
        f"in {degrees.precision} with ZeRO {degrees.zero_stage} it adds up gradients in "
        f"{' or '.join(known)}, not in {added}",
        (("gradient_dtype", known[0]),),
    )


def _state(launch: Launch) -> Inexpressible | None:
    own = StateFormats(
        launch.degrees.state_formats.gradient_dtype, MomentDtype.FP32, StateDtype.FP32
    )
    return formats_but("its optimizer", own)(launch)


REFUSALS = (
    *(
        two_axes,
        pipeline("DeepSpeed's file"),
        cut_layers,
        _sequences,
        experts("its file"),
        sequence_parallel("it"),
    ),
    *(divided_heads, _numbers, _gradients, _state, _offload, part_batches, other_order, part_nodes),
)


@dataclass(frozen=True)
class DeepSpeed:
    """DeepSpeed 0.19.8: ``ds_config.json``, ``README.md`` with every key of it, and ``run.sh``."""

    name: str = "deepspeed"
    title: str = "DeepSpeed"

    def inexpressible(self, launch: Launch) -> Inexpressible | None:
        """See ``Exporter``; the docstring of this module lists where it asks for more than
        DeepSpeed does."""
        return first_of(REFUSALS, launch)

    def files(self, launch: Launch) -> tuple[ExportedFile, ...]:
        """See ``Exporter``."""
        return (
            ExportedFile("ds_config.json", configuration(launch)),
            ExportedFile("README.md", _readme(launch)),
            ExportedFile("run.sh", _script(launch), executable=True),
        )


def configuration(launch: Launch) -> str:
    """``ds_config.json``."""
    nested: dict[str, object] = {}
    for entry in entries(launch):
        place: dict[str, object] = nested
        for name in entry.path[:-1]:
            inner = place.setdefault(name, {})
            assert isinstance(inner, dict)
            place = inner
        place[entry.path[-1]] = entry.value
    return json.dumps(nested, indent=2) + "\n"


def entries(launch: Launch) -> tuple[Entry, ...]:
    """Every key of the file with its reason."""
    return (*_batches(launch), *_formats(launch), *_zero(launch), *_rest(launch), *_own(launch))


def _batches(launch: Launch) -> list[Entry]:
    degrees = launch.degrees
    product = (
        f"{degrees.micro_batch_size} x {degrees.micro_batches} x {degrees.dp} replicas = "
        f"{degrees.global_batch_size}"
    )
    found = [
        Entry(
            ("train_micro_batch_size_per_gpu",),
            degrees.micro_batch_size,
            "samples of a micro-batch of one replica",
        ),
        Entry(
            ("gradient_accumulation_steps",),
            degrees.micro_batches,
            f"micro-batches of an iteration: {product}",
        ),
    ]
    if degrees.tp == 1:
        found.insert(
            0,
            Entry(
                ("train_batch_size",),
                degrees.global_batch_size,
                f"samples of an iteration: {product}",
            ),
        )
    return found


def _formats(launch: Launch) -> list[Entry]:
    precision = launch.degrees.precision
    gradients = _gradient_dtype(launch)
    if precision is Precision.FP32:
        return []
    why = "products and weights; the optimizer's state and master weights are fp32"
    found = [Entry((precision.value, "enabled"), True, why)]
    if precision is Precision.FP16:
        found.append(
            Entry(("fp16", "loss_scale"), 0, "losses are scaled as large as gradients allow")
        )
    if gradients is not None:
        found.append(
            Entry(
                ("data_types", "grad_accum_dtype"), gradients, "in which the plan adds up gradients"
            )
        )
        found.append(
            Entry(("communication_data_type",), gradients, "in which replicas reduce them")
        )
    return found


BYTES_OF_BF16 = 2
STAGES = (
    "replicas hold everything",
    "replicas share out the optimizer's state",
    "and gradients, which are reduced and scattered after every micro-batch",
    "and weights, which are gathered for each forward and each backward pass",
)


def _zero(launch: Launch) -> list[Entry]:
    degrees = launch.degrees
    offload = degrees.offload
    found = [Entry(("zero_optimization", "stage"), degrees.zero_stage, STAGES[degrees.zero_stage])]
    if degrees.zero_stage:
        why = "gradients are reduced while the backward pass runs, if so"
        found.append(Entry(("zero_optimization", "overlap_comm"), launch.overlap_gradients, why))
    if offload.optimizer:
        why = (
            "optimizer state and gradients in host memory, where the step runs too (phaze "
            "predicts it on the device)"
        )
        found.append(Entry(("zero_optimization", "offload_optimizer", "device"), "cpu", why))
        found.append(
            Entry(
                ("zero_optimization", "offload_optimizer", "pin_memory"),
                True,
                "copies at the full speed of the link",
            )
        )
    if offload.weights:
        found.append(
            Entry(("zero_optimization", "offload_param", "device"), "cpu", "weights in host memory")
        )
        found.append(
            Entry(
                ("zero_optimization", "offload_param", "pin_memory"),
                True,
                "copies at the full speed of the link",
            )
        )
    return found


def _rest(launch: Launch) -> list[Entry]:
    degrees = launch.degrees
    found = list[Entry]()
    if degrees.tp > 1:
        why = "tensor-parallel devices; the loader must give all of a group the same samples"
        found.append(Entry(("tensor_parallel", "autotp_size"), degrees.tp, why))
        why = "all-reduces overlap products, if so"
        found.append(Entry(("tensor_parallel", "tp_overlap_comm"), launch.overlap_tensor, why))
    if degrees.recompute is Recompute.FULL:
        why = (
            "each block is computed again; a model asks for it, one of Hugging Face by "
            "model.gradient_checkpointing_enable()"
        )
        found.append(Entry(("activation_checkpointing", "partition_activations"), False, why))
        why = (
            "of recomputed blocks the inputs are in host memory, if so (blocks run by "
            "deepspeed.checkpointing alone)"
        )
        found.append(
            Entry(
                ("activation_checkpointing", "cpu_checkpointing"),
                degrees.offload.activations > 0,
                why,
            )
        )
    adam = degrees.optimizer == "adam"
    parameters: Mapping[str, object] = (
        {"lr": LEARNING_RATE, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
        if adam
        else {"lr": LEARNING_RATE, "momentum": 0.9 if degrees.optimizer == "sgd_momentum" else 0.0}
    )
    why = "the plan's optimizer; its rates are yours to give"
    found.append(Entry(("optimizer", "type"), "AdamW" if adam else "SGD", why))
    found += [
        Entry(("optimizer", "params", name), value, "yours to give")
        for name, value in parameters.items()
    ]
    if not adam:
        found.append(Entry(("zero_allow_untested_optimizer",), True, "SGD is torch's own"))
        found.append(Entry(("zero_force_ds_cpu_optimizer",), False, "SGD is torch's own"))
    found.append(Entry(("gradient_clipping",), 1.0, "the norm of gradients; yours to give"))
    return found


def _own(launch: Launch) -> list[Entry]:
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
    return [Entry(("phaze", name), value, why) for name, value in given.items()]


def _readme(launch: Launch) -> str:
    degrees, (model, device, cluster) = (
        launch.degrees,
        map(in_markdown, (launch.plan.model, launch.device, launch.cluster)),
    )
    rows = [
        f"| `{'.'.join(entry.path)}` | `{in_code_of_markdown(json.dumps(entry.value))}` | "
        f"{entry.why} |"
        for entry in entries(launch)
    ]
    batch = ""
    if degrees.tp > 1:
        batch = (
            f"`train_batch_size` is left out: DeepSpeed counts all {degrees.devices} processes in "
            "the product while it reads the "
            f"file, but only {degrees.dp} replicas have samples of their own, "
            f"{degrees.global_batch_size} per iteration.\n\n"
        )
    return (
        f"# {model} with DeepSpeed 0.19.8\n\n"
        f"A plan by phaze for {degrees.devices} x {device} ({cluster}). `run.sh` starts "
        "`train.py`, your script, "
        f"which passes `ds_config.json` to `deepspeed.initialize`.\n\n{batch}"
        "| key | value | why |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"
    )


def _script(launch: Launch) -> str:
    hosts = ""
    lines = ["#!/usr/bin/env bash", "set -euo pipefail", 'cd "$(dirname "$0")"']
    if launch.nodes > 1:
        lines.append(
            f"# hostfile: {launch.nodes} lines such as node1 slots={launch.processes_per_node}, "
            "the first of them this node"
        )
        hosts = f" --hostfile hostfile --num_nodes {launch.nodes}"
    lines.append(
        f"exec deepspeed{hosts} --num_gpus {launch.processes_per_node} train.py "
        '--deepspeed_config ds_config.json "$@"'
    )
    return "\n".join(lines) + "\n"


EXPORTER = DeepSpeed()
