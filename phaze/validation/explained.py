"""Where errors of predictions come from: what runs that are off have in common, which constant is
the cause, contradictions.

A constant is called the cause of the errors of some runs only where their times say so: where one
factor of its part's time leaves far less of the errors than no factor and than one of the whole
time, which stands for all that slows everything alike, where no other part does as well, and where
runs that the factor was not fitted to gain too. Else no single constant helps.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from phaze.validation.records import RunResult
from phaze_common.records import read_yaml, to_record

FloatArray = NDArray[np.float64]

PARTS = Path(__file__).with_name("parts.yaml")
FACTORS = np.geomspace(0.2, 5.0, 401)  # tried of each part
CONTRADICTION = (
    0.05  # relative: measured times of one plan that differ by more contradict each other
)
FEWEST_ALIKE = 2  # runs that have something in common
FEWEST_FITTED = 4  # runs that a factor is fitted to
EVIDENCE = (
    10.0  # twice the logarithm of a likelihood ratio: 148 to 1 (Kass and Raftery 1995: very strong)
)
APART = 6.0  # of a part against the next best one: 20 to 1 (strong)
BEYOND_ALL = 8.0  # of a part against the whole time: 55 to 1
FINEST = 0.003  # of a time, as a standard deviation: differences below it are no evidence
GAIN = 1.0 / 3.0  # of the mean error, which runs that were left out must lose
NOTHING = 5e-4  # a mean error below it has no cause
LARGE_SHARE = 0.2  # of an iteration: runs in which a part is as large are told apart from others
HARDWARE = ("device", "software", "cluster")
SETTINGS = (  # of the plans of runs, whose errors are compared
    *(*HARDWARE, "attention", "precision", "recompute"),
    *("tp", "pp", "zero_stage", "micro_batch_size"),
)
SCOPES = ("software", "source", "tp", "device")


@dataclass(frozen=True)
class Part:
    """A part of an iteration, made of these seconds of a breakdown, and the ``constant`` that it is
    inversely proportional to.

    ``low`` and ``high`` are factors of the part's time within which the constant is not known
    better.
    """

    name: str
    seconds: tuple[str, ...]
    constant: str
    low: float
    high: float


@dataclass(frozen=True)
class ErrorGroup:
    """Runs with one ``value`` of a ``setting``: how many, and the mean of predicted over measured,
    less one."""

    setting: str
    value: str
    runs: int
    bias: float
    mape: float


@dataclass(frozen=True)
class PartMove:
    """What would be left of the errors if ``part`` took ``factor`` times as long, alone; and at
    most within its range."""

    part: Part
    factor: float
    mape: float
    within: float
    within_mape: float


@dataclass(frozen=True)
class ErrorCause:
    """What one constant does for the errors of the runs with one ``value`` of a ``setting`` (all
    runs: ``overall``).

    ``move`` is that of the best part, ``held_out`` the mean error that is left where each run, or
    source, is predicted by a factor fitted to the others. ``is_cause`` says whether the runs tell
    that it is the cause; else no single constant helps.
    """

    setting: str
    value: str
    runs: int
    mape: float
    move: PartMove
    held_out: float
    is_cause: bool


@dataclass(frozen=True)
class Contradiction:
    """Lines of the file with the same plan on the same hardware whose measured times differ: from
    ``low_s`` to ``high_s``."""

    lines: tuple[int, ...]
    model: str
    low_s: float
    high_s: float


@dataclass(frozen=True)
class ErrorExplanation:
    """Errors of ``runs`` by setting, the largest spread first, by part, what explains most first,
    and contradictions.

    ``causes`` are what one constant does for all runs, and for those of one software, source,
    device or width.
    """

    runs: int
    mape: float
    groups: tuple[ErrorGroup, ...]
    moves: tuple[PartMove, ...]
    causes: tuple[ErrorCause, ...]
    contradictions: tuple[Contradiction, ...]

    @property
    def found(self) -> tuple[ErrorCause, ...]:
        """The constants that are a cause."""
        return tuple(each for each in self.causes if each.is_cause)


@cache
def load_parts() -> tuple[Part, ...]:
    """The parts of ``parts.yaml``."""

    @dataclass(frozen=True)
    class File:
        parts: tuple[Part, ...]

    return to_record(File, read_yaml(PARTS), str(PARTS)).parts


def explain_errors(runs: Sequence[RunResult]) -> ErrorExplanation:
    """What the errors of ``runs`` that were predicted come from."""
    known = [run for run in runs if run.breakdown_s and run.measured_s and run.predicted_s]
    planned = [run for run in known if run.plan]
    errors = np.array([_error(run) for run in planned])
    mape = float(np.mean([abs(_error(run)) for run in known])) if known else 0.0
    moves = (
        sorted((_move(part, known) for part in load_parts()), key=lambda move: move.mape)
        if known
        else []
    )
    return ErrorExplanation(
        len(known),
        mape,
        _groups(planned, errors),
        tuple(moves),
        tuple(_causes(known)),
        _contradictions(planned),
    )


def _causes(runs: Sequence[RunResult]) -> Iterator[ErrorCause]:
    """What one constant does for all runs and for those that have one thing in common; the same
    runs once."""
    scopes: dict[tuple[int, ...], tuple[str, str]] = {tuple(range(len(runs))): ("overall", "")}
    for setting in SCOPES:
        for value, mine in _places(runs, setting).items():
            scopes.setdefault(tuple(mine), (setting, value))
    for members, (setting, value) in scopes.items():
        chosen = [runs[place] for place in members]
        mape = float(np.mean([abs(_error(run)) for run in chosen])) if chosen else 0.0
        if len(chosen) >= FEWEST_FITTED and mape > NOTHING:
            yield _cause(setting, value, chosen, mape)


def _places(runs: Sequence[RunResult], setting: str) -> dict[str, list[int]]:
    """Places of the runs with each value of a setting; of none those that have no plan, or no
    source."""
    places = defaultdict[str, list[int]](list)
    for place, run in enumerate(runs):
        if setting == "source" and run.source:
            places[run.source].append(place)
        elif setting != "source" and run.plan:
            holder = run.plan if setting in HARDWARE else run.plan.degrees
            places[str(getattr(holder, setting))].append(place)
    return places


def _cause(setting: str, value: str, runs: Sequence[RunResult], mape: float) -> ErrorCause:
    """The best part of some runs, and whether it is the cause."""
    measured, predicted = times(runs)
    every = {part: part_seconds(part, runs) for part in load_parts()}
    evidence = {part: _evidence(seconds, predicted, measured) for part, seconds in every.items()}
    first, second = sorted(evidence, key=lambda part: -evidence[part])[:2]
    nothing = _evidence(np.zeros(len(runs)), predicted, measured)
    alike = _evidence(predicted, predicted, measured)
    held_out = _held_out(every[first], predicted, measured, [run.source for run in runs])
    is_cause = (
        evidence[first] - nothing >= EVIDENCE + math.log(len(runs))
        and evidence[first] - alike >= BEYOND_ALL
        and evidence[first] - evidence[second] >= APART
        and held_out <= (1.0 - GAIN) * mape
    )
    return ErrorCause(setting, value, len(runs), mape, _move(first, runs), held_out, is_cause)


def _evidence(seconds: FloatArray, predicted: FloatArray, measured: FloatArray) -> float:
    """Twice the logarithm of the likelihood of times if a part's are moved by the best factor
    (errors are log-normal)."""
    left = _left(seconds, predicted, measured)
    variance = float((left**2).mean(axis=1).min()) + FINEST**2
    return -len(measured) * math.log(variance)


def _left(seconds: FloatArray, predicted: FloatArray, measured: FloatArray) -> FloatArray:
    """Logarithms of predicted over measured times, shape (factors, runs), by the factor of a part's
    time."""
    moved = predicted + (FACTORS[:, None] - 1.0) * seconds
    left: FloatArray = np.log(np.maximum(moved, 1e-12) / measured)
    return left


def _held_out(
    seconds: FloatArray, predicted: FloatArray, measured: FloatArray, sources: Sequence[str]
) -> float:
    """Mean error of runs by factors fitted to the runs of other sources, or, of few sources, to the
    other runs."""
    several = len(set(sources)) >= FEWEST_FITTED
    folds = np.array(sources) if several else np.arange(len(measured))
    left = _left(seconds, predicted, measured)
    errors = list[float]()
    for fold in dict.fromkeys(folds.tolist()):
        mine = folds == fold
        best = int((left[:, ~mine] ** 2).mean(axis=1).argmin())
        errors += np.abs(np.expm1(left[best, mine])).tolist()
    return float(np.mean(errors))


def part_seconds(part: Part, runs: Sequence[RunResult]) -> FloatArray:
    """Seconds of a part of each run, shape (runs,)."""
    return np.array(
        [sum(float(getattr(run.breakdown_s, name)) for name in part.seconds) for run in runs]
    )


def times(runs: Sequence[RunResult]) -> tuple[FloatArray, FloatArray]:
    """Measured and predicted seconds, shapes (runs,)."""
    measured = np.array([run.measured_s for run in runs], dtype=np.float64)
    return measured, np.array([run.predicted_s for run in runs], dtype=np.float64)


def _error(run: RunResult) -> float:
    assert run.predicted_s is not None and run.measured_s is not None
    return run.predicted_s / run.measured_s - 1.0


def _groups(runs: Sequence[RunResult], errors: FloatArray) -> tuple[ErrorGroup, ...]:
    found = list[ErrorGroup]()
    for setting in SETTINGS:
        places = _places(runs, setting)
        groups = [
            ErrorGroup(
                setting,
                value,
                len(mine),
                float(errors[mine].mean()),
                float(np.abs(errors[mine]).mean()),
            )
            for value, mine in places.items()
            if len(mine) >= FEWEST_ALIKE
        ]
        found += groups if len(groups) > 1 else []
    for part in load_parts() if len(runs) else ():
        shares = part_seconds(part, runs) / times(runs)[1]
        for value, mine in (("large", shares >= LARGE_SHARE), ("small", shares < LARGE_SHARE)):
            if mine.any() and not mine.all():
                bias, mape = float(errors[mine].mean()), float(np.abs(errors[mine]).mean())
                found.append(
                    ErrorGroup(f"share of {part.name}", value, int(mine.sum()), bias, mape)
                )
    spread = defaultdict[str, list[float]](list)
    for each in found:
        spread[each.setting].append(each.bias)
    return tuple(
        sorted(
            found,
            key=lambda each: (
                min(spread[each.setting]) - max(spread[each.setting]),
                each.setting,
                each.bias,
            ),
        )
    )


def _move(part: Part, runs: Sequence[RunResult]) -> PartMove:
    """The factor of a part that leaves the least mean error, and the one within its range."""
    measured, predicted = (
        np.array([getattr(run, name) for run in runs], dtype=np.float64)
        for name in ("measured_s", "predicted_s")
    )
    moved = predicted + (FACTORS[:, None] - 1.0) * part_seconds(part, runs)
    left: FloatArray = np.abs(moved / measured - 1.0).mean(axis=1)
    best, allowed = (
        int(left.argmin()),
        np.flatnonzero((part.low <= FACTORS) & (part.high >= FACTORS)),
    )
    within = int(allowed[left[allowed].argmin()])
    return PartMove(
        part, float(FACTORS[best]), float(left[best]), float(FACTORS[within]), float(left[within])
    )


def _contradictions(runs: Sequence[RunResult]) -> tuple[Contradiction, ...]:
    alike = defaultdict[tuple[object, ...], list[RunResult]](list)
    for run in runs:
        alike[run.plan, run.devices].append(run)
    found = []
    for same in alike.values():
        times = [float(run.measured_s or math.nan) for run in same]
        if max(times) > min(times) * (1.0 + CONTRADICTION):
            found.append(
                Contradiction(
                    tuple(run.line for run in same), same[0].model, min(times), max(times)
                )
            )
    return tuple(found)
