"""The training plan of a published run; several plans where it does not say which, for the fastest to be chosen."""

import math
import re
from dataclasses import dataclass, replace

from Common.errors import InputError
from Estimator.devices.device import Device
from GraphExtractor.graph import Attention, Recompute
from Plans.plan import Precision, UniformPlan
from Validation.assumptions import Assumptions, Framework, Notes
from Validation.published_numbers import number_in
from Validation.records import Assumption, MeasuredRun

MEBI = 2**20 / 1e6
NEARLY = 0.1
UNSAID = frozenset({"", "nan", "-", "?", "n/a", "unknown"})
NO = frozenset({"no", "none", "false", "off", "0"})
_CHUNKS = re.compile(r"\bv\s?=?\s?(\d+)", re.IGNORECASE)
_SHARDED = re.compile(r"fsdp|fully|full_shard|hsdp|stage[- ]?3|zero[- ]?3", re.IGNORECASE)
_OPTIMIZER_SHARDED = re.compile(r"distributed|dist\w*[ -]opt|yes|true|stage[- ]?1|zero[- ]?1", re.IGNORECASE)
_EAGER = re.compile(r"(no|without|w/o|not?n?)[- ]?flash|unfused attention|eager", re.IGNORECASE)
_PRECISIONS = {
    Precision.FP8: re.compile(r"fp8|float8|e4m3"),
    Precision.BF16: re.compile(r"bf16|bfloat"),
    Precision.FP16: re.compile(r"fp16|float16|half|mixed"),
}


@dataclass(frozen=True)
class PossiblePlan:
    """A plan that the run may have had, and what rules chose for it among several values, to be noted if it is taken."""

    plan: UniformPlan
    choices: tuple[Assumption, ...]


@dataclass(frozen=True)
class Degrees:
    """Parallel degrees of a run on ``devices`` devices."""

    devices: int
    tp: int
    pp: int
    dp: int
    cp: int


def possible_plans(
    run: MeasuredRun,
    degrees: Degrees,
    samples: int,
    layers: int,
    device: Device,
    framework: Framework,
    rules: Assumptions,
    notes: Notes,
) -> tuple[PossiblePlan, ...]:
    """All plans that agree with what the run says, smallest micro-batch first.

    Raises:
        InputError: what the run says contradicts itself.
    """
    base = UniformPlan(
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
        batch = _whole_micro_batches(samples, size * degrees.dp)
        sized = replace(base, micro_batch_size=size, global_batch_size=batch)
        sized = replace(sized, interleave=_interleave(run, sized, layers))
        for recompute in _recomputations(run):
            plan, equal = _with_equal_stages(replace(sized, recompute=recompute), layers)
            choices = [
                (batch != samples, Assumption("batch", f"{batch}, of whole micro-batches")),
                (run.micro_batch_size is None, Assumption("micro_batch", str(size))),
                (_stated_chunks(run.interleave) is None, Assumption("interleave", str(plan.interleave))),
                (recompute_of(run) is None, Assumption("recompute", recompute.value)),
                (equal, Assumption("stages", f"{(layers + 2) // plan.chunks} layers per chunk")),
            ]
            plans.append(PossiblePlan(plan, tuple(choice for made, choice in choices if made)))
    return tuple(plans)


def degrees_of(run: MeasuredRun, framework: Framework, notes: Notes) -> Degrees:
    """Parallel degrees that multiply to the number of devices; at most one of tp, pp and dp is filled in, as what is left.

    Raises:
        InputError: they are not known, or they do not.
    """
    known = {"tp": run.tp, "pp": run.pp, "dp": run.dp, "cp": run.cp}
    found = {name: value or 1 for name, value in known.items()}
    missing = [name for name in ("tp", "pp", "dp") if known[name] is None]
    devices = run.devices or (None if missing else math.prod(found.values()))
    if devices is None:
        raise InputError("it does not say on how many devices it ran")
    shards_weights = framework.zero_stage == 3 or _stated_zero(run) == 3
    if len(missing) > 1 and "dp" in missing and shards_weights:
        missing = ["dp"]
    if len(missing) == 1:
        found[missing[0]] = max(devices // math.prod(value for name, value in found.items() if name != missing[0]), 1)
    elif missing and found["dp"] != devices:
        raise InputError(f"it does not say {' and '.join(missing)}")
    if math.prod(found.values()) != devices:
        stated = " x ".join(f"{name} {value}" for name, value in found.items())
        raise InputError(f"{stated} are not the {devices} devices that it ran on")
    filled = [f"{name} {found[name]}" for name in ("tp", "pp", "dp") if known[name] is None]
    if filled:
        notes.assume("degrees", ", ".join(filled))
    return Degrees(devices, **found)


def samples_of(run: MeasuredRun, sequence_length: int, notes: Notes) -> int:
    """Sequences of the global batch.

    Raises:
        InputError: the run does not say its batch.
    """
    if run.global_batch is None:
        raise InputError("it does not say its global batch")
    samples = run.global_batch
    if run.global_batch_in_tokens:
        samples /= sequence_length
        if samples != round(samples) and (samples * MEBI).is_integer():  # 4M tokens are 2^22
            samples *= MEBI
    if samples != round(samples) or run.global_batch_in_tokens:
        notes.assume("batch", str(round(samples)))
    return max(round(samples), 1)


def _whole_micro_batches(samples: int, together: int) -> int:
    """The batch nearest to ``samples`` in which every replica has whole micro-batches, ``together`` sequences at a time.

    Where that is further off than a tenth, ``samples``: the last micro-batches are smaller then.
    """
    nearest = max(round(samples / together), 1) * together
    return nearest if abs(nearest - samples) <= NEARLY * samples else samples


def recompute_of(run: MeasuredRun) -> Recompute | None:
    """What the run says of recomputation; None where it says nothing that can be used."""
    words = run.recompute
    if words in NO:
        return Recompute.NONE
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
        else next((each for each in (Precision.FP16, Precision.BF16) if each.matrix_format in device.matrix.peak), Precision.FP32)
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
    return 0 if run.zero in NO else None


def _sequence_parallel(run: MeasuredRun, framework: Framework) -> bool:
    if run.sequence_parallel in UNSAID:
        return framework.sequence_parallel
    return run.sequence_parallel not in NO


def _micro_batch_sizes(run: MeasuredRun, degrees: Degrees, samples: int, rules: Assumptions) -> tuple[int, ...]:
    if run.micro_batch_size is not None:
        return (run.micro_batch_size,)
    share = samples / degrees.dp
    return tuple(size for size in rules.micro_batch_sizes if share % size == 0) or (1,)


def _stated_chunks(interleave: str) -> int | None:
    """Chunks per stage; None where the run is interleaved without saying how."""
    if interleave.lower() in UNSAID | NO:
        return 1
    named = _CHUNKS.search(interleave)
    number = float(named[1]) if named is not None else number_in(interleave)
    return None if number is None or not math.isfinite(number) else max(int(number), 1)


def _interleave(run: MeasuredRun, plan: UniformPlan, layers: int) -> int:
    """Chunks per stage: as the run says, or the fewest that make an interleaved schedule of equal chunks."""
    if plan.pp == 1:
        return 1
    stated = _stated_chunks(run.interleave)
    if stated is not None:
        return stated
    if plan.micro_batches % plan.pp:  # the schedule does not exist
        return 1
    counts = [(blocks, chunks) for blocks in (layers, layers + 2) for chunks in range(2, layers // plan.pp + 1)]
    return next((chunks for blocks, chunks in counts if blocks % (plan.pp * chunks) == 0), 1)


def _recomputations(run: MeasuredRun) -> tuple[Recompute, ...]:
    stated = recompute_of(run)
    return tuple(Recompute) if stated is None else (stated,)


def _with_equal_stages(plan: UniformPlan, layers: int) -> tuple[UniformPlan, bool]:
    """The plan with embedding and head counted as blocks where the blocks alone do not make equal chunks."""
    each, rest = divmod(layers + 2, plan.chunks)
    if plan.pp == 1 or layers % plan.chunks == 0 or rest or each < 2:
        return plan, False
    return replace(plan, stage_layers=(each,) * plan.chunks), True
