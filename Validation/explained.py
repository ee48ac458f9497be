"""Where errors of predictions come from: what runs that are off have in common, which part would explain it, contradictions."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from Common.records import read_yaml, to_record
from Validation.records import RunPlan, RunResult

FloatArray = NDArray[np.float64]

PARTS = Path(__file__).with_name("parts.yaml")
FACTORS = np.geomspace(0.2, 5.0, 401)  # tried of each part
CONTRADICTION = 0.05  # relative: measured times of one plan that differ by more contradict each other
FEWEST_ALIKE = 2  # runs that have something in common
LARGE_SHARE = 0.2  # of an iteration: runs in which a part is as large are told apart from others
SETTINGS: dict[str, Callable[[RunPlan], object]] = {
    "device": lambda plan: plan.device,
    "software": lambda plan: plan.software,
    "cluster": lambda plan: plan.cluster,
    "attention": lambda plan: plan.attention,
    "precision": lambda plan: plan.precision,
    "recompute": lambda plan: plan.recompute,
    "tp": lambda plan: plan.tp,
    "pp": lambda plan: plan.pp,
    "zero_stage": lambda plan: plan.zero_stage,
    "micro_batch_size": lambda plan: plan.micro_batch_size,
}


@dataclass(frozen=True)
class Part:
    """A part of an iteration, made of these seconds of a breakdown, and the ``constant`` that it is inversely proportional to.

    ``low`` and ``high`` are factors of the part's time within which the constant is not known better.
    """

    name: str
    seconds: tuple[str, ...]
    constant: str
    low: float
    high: float


@dataclass(frozen=True)
class ErrorGroup:
    """Runs with one ``value`` of a ``setting``: how many, and the mean of predicted over measured, less one."""

    setting: str
    value: str
    runs: int
    bias: float
    mape: float


@dataclass(frozen=True)
class PartMove:
    """What would be left of the errors if ``part`` took ``factor`` times as long, alone; and at most within its range."""

    part: Part
    factor: float
    mape: float
    within: float
    within_mape: float


@dataclass(frozen=True)
class Contradiction:
    """Lines of the file with the same plan on the same hardware whose measured times differ: from ``low_s`` to ``high_s``."""

    lines: tuple[int, ...]
    model: str
    low_s: float
    high_s: float


@dataclass(frozen=True)
class ErrorExplanation:
    """Errors by setting, the largest spread first, by part, what explains most first, and contradictions in what was measured."""

    mape: float
    groups: tuple[ErrorGroup, ...]
    moves: tuple[PartMove, ...]
    contradictions: tuple[Contradiction, ...]


@cache
def load_parts() -> tuple[Part, ...]:
    """The parts of ``parts.yaml``."""

    @dataclass(frozen=True)
    class File:
        parts: tuple[Part, ...]

    return to_record(File, read_yaml(PARTS), str(PARTS)).parts


def explain_errors(runs: Sequence[RunResult]) -> ErrorExplanation:
    """What the errors of ``runs`` that were predicted from plans come from."""
    known = [run for run in runs if run.plan and run.breakdown_s and run.measured_s and run.predicted_s]
    errors = np.array([_error(run) for run in known])
    mape = float(np.abs(errors).mean()) if known else 0.0
    moves = sorted((_move(part, known) for part in load_parts()), key=lambda move: move.mape) if known else []
    return ErrorExplanation(mape, _groups(known, errors), tuple(moves), _contradictions(known))


def part_seconds(part: Part, runs: Sequence[RunResult]) -> FloatArray:
    """Seconds of a part of each run, shape (runs,)."""
    return np.array([sum(float(getattr(run.breakdown_s, name)) for name in part.seconds) for run in runs])


def times(runs: Sequence[RunResult]) -> tuple[FloatArray, FloatArray]:
    """Measured and predicted seconds, shapes (runs,)."""
    measured = np.array([run.measured_s for run in runs], dtype=np.float64)
    return measured, np.array([run.predicted_s for run in runs], dtype=np.float64)


def _error(run: RunResult) -> float:
    assert run.predicted_s is not None and run.measured_s is not None
    return run.predicted_s / run.measured_s - 1.0


def _groups(runs: Sequence[RunResult], errors: FloatArray) -> tuple[ErrorGroup, ...]:
    found = list[ErrorGroup]()
    for setting, of in SETTINGS.items():
        places = defaultdict[str, list[int]](list)
        for place, run in enumerate(runs):
            assert run.plan is not None
            places[str(of(run.plan))].append(place)
        groups = [
            ErrorGroup(setting, value, len(mine), float(errors[mine].mean()), float(np.abs(errors[mine]).mean()))
            for value, mine in places.items()
            if len(mine) >= FEWEST_ALIKE
        ]
        found += groups if len(groups) > 1 else []
    for part in load_parts() if len(runs) else ():
        shares = part_seconds(part, runs) / times(runs)[1]
        for value, mine in (("large", shares >= LARGE_SHARE), ("small", shares < LARGE_SHARE)):
            if mine.any() and not mine.all():
                bias, mape = float(errors[mine].mean()), float(np.abs(errors[mine]).mean())
                found.append(ErrorGroup(f"share of {part.name}", value, int(mine.sum()), bias, mape))
    spread = defaultdict[str, list[float]](list)
    for each in found:
        spread[each.setting].append(each.bias)
    return tuple(sorted(found, key=lambda each: (min(spread[each.setting]) - max(spread[each.setting]), each.setting, each.bias)))


def _move(part: Part, runs: Sequence[RunResult]) -> PartMove:
    """The factor of a part that leaves the least mean error, and the one within its range."""
    measured, predicted = (
        np.array([getattr(run, name) for run in runs], dtype=np.float64) for name in ("measured_s", "predicted_s")
    )
    moved = predicted + (FACTORS[:, None] - 1.0) * part_seconds(part, runs)
    left: FloatArray = np.abs(moved / measured - 1.0).mean(axis=1)
    best, allowed = int(left.argmin()), np.flatnonzero((part.low <= FACTORS) & (part.high >= FACTORS))
    within = int(allowed[left[allowed].argmin()])
    return PartMove(part, float(FACTORS[best]), float(left[best]), float(FACTORS[within]), float(left[within]))


def _contradictions(runs: Sequence[RunResult]) -> tuple[Contradiction, ...]:
    alike = defaultdict[tuple[object, ...], list[RunResult]](list)
    for run in runs:
        alike[run.plan, run.devices].append(run)
    found = []
    for same in alike.values():
        times = [float(run.measured_s or math.nan) for run in same]
        if max(times) > min(times) * (1.0 + CONTRADICTION):
            found.append(Contradiction(tuple(run.line for run in same), same[0].model, min(times), max(times)))
    return tuple(found)
