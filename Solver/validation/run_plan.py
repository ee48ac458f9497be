"""The training plan of a published run; several plans where it does not say which, for the fastest to be chosen."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from Common.errors import InputError
from Estimator.devices.device import Device
from GraphExtractor.graph import Attention, Recompute
from Solver.training.plan import Precision, TrainingPlan
from Solver.validation.assumptions import Assumptions, Framework, Notes
from Solver.validation.published_numbers import number_in
from Solver.validation.records import MeasuredRun

YES = ("yes", "true", "on")
NO = ("", "no", "none", "false", "off", "nan", "-")
_SHARDED = re.compile(r"fsdp|fully|full_shard|hsdp|stage[- ]?3|zero[- ]?3", re.IGNORECASE)
_OPTIMIZER_SHARDED = re.compile(r"distributed|dist\w*[ -]opt|yes|true|stage[- ]?1|zero[- ]?1", re.IGNORECASE)
_EAGER = re.compile(r"(no|without|w/o|not?n?)[- ]?flash|unfused attention|eager", re.IGNORECASE)
_PRECISIONS = {
    Precision.FP8: re.compile(r"fp8|float8|e4m3"),
    Precision.BF16: re.compile(r"bf16|bfloat"),
    Precision.FP16: re.compile(r"fp16|float16|half|mixed"),
}


@dataclass(frozen=True)
class Choice:
    """What a rule chose among several values, to be noted for the plan that is taken."""

    rule: str
    value: str


@dataclass(frozen=True)
class CandidatePlan:
    """A plan that the run may have had, and the choices it stands for."""

    plan: TrainingPlan
    choices: tuple[Choice, ...]


@dataclass(frozen=True)
class Degrees:
    """Parallel degrees of a run on ``devices`` devices."""

    devices: int
    tp: int
    pp: int
    dp: int
    cp: int


def candidate_plans(
    run: MeasuredRun,
    degrees: Degrees,
    samples: int,
    layers: int,
    device: Device,
    framework: Framework,
    rules: Assumptions,
    notes: Notes,
) -> tuple[CandidatePlan, ...]:
    """All plans that agree with what the run says, smallest micro-batch first.

    Raises:
        InputError: what the run says contradicts itself.
    """
    base = TrainingPlan(
        global_batch_size=samples,
        tp=degrees.tp,
        pp=degrees.pp,
        dp=degrees.dp,
        cp=degrees.cp,
        sequence_parallel=_sequence_parallel(run, framework) and degrees.tp > 1,
        zero_stage=zero_stage(run, degrees.pp, framework, notes),
        precision=precision_of(run, device, framework),
        attention=attention_of(run, framework),
    )
    plans = []
    for size in _micro_batch_sizes(run, degrees, samples, rules):
        sized = replace(base, micro_batch_size=size)
        sized = replace(sized, interleave=_interleave(run, sized, layers))
        for recompute in _recomputations(run):
            plan, equal = _with_equal_stages(replace(sized, recompute=recompute), layers)
            choices = [
                (run.micro_batch_size is None, Choice("micro_batch", str(size))),
                (_is_open(run.interleave), Choice("interleave", str(plan.interleave))),
                (recompute_of(run) is None, Choice("recompute", recompute.value)),
                (equal, Choice("stages", f"{(layers + 2) // plan.chunks} layers per chunk")),
            ]
            plans.append(CandidatePlan(plan, tuple(choice for made, choice in choices if made)))
    return tuple(plans)


def degrees_of(run: MeasuredRun, framework: Framework, notes: Notes) -> Degrees:
    """Parallel degrees that multiply to the number of devices.

    Raises:
        InputError: they are not known, or they do not.
    """
    known = {"tp": run.tp, "pp": run.pp, "dp": run.dp, "cp": run.cp}
    stated = math.prod(value for value in known.values() if value is not None)
    devices = run.devices
    if devices is None:
        if run.dp is None or run.tp is None or run.pp is None:
            raise InputError("it does not say on how many devices it ran")
        devices = stated
    if devices % stated:
        raise InputError(f"{_spelled(known)} do not divide its {devices} devices")
    open_degrees = [name for name, value in known.items() if value is None]
    alone = (run.tp is None and run.pp is None) and (run.dp == devices or _stated_zero(run) == 3 or framework.zero_stage == 3)
    if alone or (stated == devices):
        found = {name: value or 1 for name, value in known.items()}
        found["dp"] = devices // math.prod(value for name, value in found.items() if name != "dp")
    elif run.tp is not None and run.pp is not None and (run.dp is None or run.cp is None):
        left = "dp" if run.dp is None else "cp"
        found = {name: value or 1 for name, value in known.items()}
        found[left] = devices // math.prod(value for name, value in found.items() if name != left)
    elif len([name for name in open_degrees if name != "cp"]) == 1:  # tp or pp is what is left
        left = next(name for name in open_degrees if name != "cp")
        found = {name: value or 1 for name, value in known.items()}
        found[left] = devices // math.prod(value for name, value in found.items() if name != left)
    else:
        raise InputError(
            f"it does not say {' and '.join(name for name in open_degrees if name in {'tp', 'pp'}) or 'its degrees'}"
        )
    degrees = Degrees(devices, **found)
    if degrees.tp * degrees.pp * degrees.dp * degrees.cp != devices:
        raise InputError(f"{_spelled(known)} multiply to {stated}, but it ran on {devices} devices")
    filled = [f"{name} {found[name]}" for name in open_degrees if name != "cp" or found[name] > 1]
    if filled:
        notes.assume("degrees", ", ".join(filled))
    return degrees


def samples_of(run: MeasuredRun, sequence_length: int, notes: Notes) -> int:
    """Sequences of the global batch.

    Raises:
        InputError: the run does not say its batch.
    """
    if run.global_batch is None:
        raise InputError("it does not say its global batch")
    samples = run.global_batch / sequence_length if run.global_batch_in_tokens else run.global_batch
    if samples != round(samples) or run.global_batch_in_tokens:
        notes.assume("batch", str(round(samples)))
    return max(round(samples), 1)


def recompute_of(run: MeasuredRun) -> Recompute | None:
    """What the run says of recomputation; None where it says nothing that can be used."""
    words = run.recompute
    if words in NO[1:]:
        return None if words in {"nan", "-"} else Recompute.NONE
    for mode, names in (
        (Recompute.SELECTIVE, ("selective", "partial", "attention", "core")),
        (Recompute.FULL, ("full", "yes", "true", "all", "uniform", "block", "checkpoint")),
    ):
        if any(name in words for name in names):
            return mode
    return None


def precision_of(run: MeasuredRun, device: Device, framework: Framework) -> Precision:
    """Number format of the run: its own, else the framework's, else what the device has."""
    for precision, pattern in _PRECISIONS.items():
        if pattern.search(run.precision):
            return precision
    usual = Precision(framework.precision)
    return (
        usual
        if usual.matrix_format in device.matrix.peak
        else next(each for each in (Precision.FP16, Precision.BF16) if each is not usual)
    )


def attention_of(run: MeasuredRun, framework: Framework) -> Attention:
    """Fused attention where the run names it, else as the framework does it."""
    words = f"{run.framework} {run.notes}"
    if _EAGER.search(words):
        return Attention.EAGER
    return Attention.FLASH if "flash" in words.lower() else Attention(framework.attention)


def zero_stage(run: MeasuredRun, pp: int, framework: Framework, notes: Notes) -> int:
    """ZeRO stage."""
    stated = _stated_zero(run)
    stage = framework.zero_stage if stated is None else stated
    if stage == 3 and pp > 1:
        notes.assume("zero", "1")
        return 1
    return stage


def _stated_zero(run: MeasuredRun) -> int | None:
    number = number_in(run.zero)
    if number is not None and number in {0, 1, 2, 3}:
        return int(number)
    found = re.search(r"(?:zero|stage)[- ]?([0-3])", run.zero)
    if found is not None:
        return int(found[1])
    if _SHARDED.search(run.zero):
        return 3
    if _OPTIMIZER_SHARDED.search(run.zero):
        return 1
    return 0 if run.zero in NO[1:-2] else None


def _sequence_parallel(run: MeasuredRun, framework: Framework) -> bool:
    if run.sequence_parallel in {"", "nan", "-", "?", "unknown"}:
        return framework.sequence_parallel
    return run.sequence_parallel not in NO and run.sequence_parallel != "0"


def _micro_batch_sizes(run: MeasuredRun, degrees: Degrees, samples: int, rules: Assumptions) -> tuple[int, ...]:
    if run.micro_batch_size is not None:
        return (run.micro_batch_size,)
    share = samples / degrees.dp
    return tuple(size for size in rules.micro_batch_sizes if share % size == 0) or (1,)


def _is_open(interleave: str) -> bool:
    """Interleaved, without how many chunks."""
    return number_in(interleave) is None and interleave.lower() not in NO


def _interleave(run: MeasuredRun, plan: TrainingPlan, layers: int) -> int:
    """Chunks per stage: as the run says, or the fewest that make an interleaved schedule of equal chunks."""
    if plan.pp == 1:
        return 1
    if not _is_open(run.interleave):
        return max(int(number_in(run.interleave) or 1), 1)
    if plan.micro_batches % plan.pp:  # the schedule does not exist
        return 1
    counts = range(2, layers // plan.pp + 1)
    return next((chunks for chunks in counts if _equal(layers, plan.pp * chunks) or _equal(layers + 2, plan.pp * chunks)), 1)


def _equal(layers: int, chunks: int) -> bool:
    return layers % chunks == 0


def _recomputations(run: MeasuredRun) -> tuple[Recompute, ...]:
    stated = recompute_of(run)
    return tuple(Recompute) if stated is None else (stated,)


def _with_equal_stages(plan: TrainingPlan, layers: int) -> tuple[TrainingPlan, bool]:
    """The plan with embedding and head counted as blocks where the blocks alone do not make equal chunks."""
    if plan.pp == 1 or _equal(layers, plan.chunks) or not _equal(layers + 2, plan.chunks) or layers + 2 < 2 * plan.chunks:
        return plan, False
    return replace(plan, stage_layers=((layers + 2) // plan.chunks,) * plan.chunks), True


def _spelled(known: dict[str, int | None]) -> str:
    return " x ".join(f"{name} {value}" for name, value in known.items() if value is not None)
