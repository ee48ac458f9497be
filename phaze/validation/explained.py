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
CONTRADICTION = 0.05  # relative, of measured times of one plan that contradict each other
FEWEST_ALIKE = 2  # runs that have something in common
FEWEST_FITTED = 4  # runs that a factor is fitted to
# twice the logarithm of a likelihood ratio: 148 to 1 (Kass and Raftery 1995: very strong)
EVIDENCE = 10.0
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
    moves = [_move(part, known) for part in load_parts()] if known else []
    return ErrorExplanation(
        len(known),
        _mape(known),
        _groups(planned) if planned else (),
        tuple(sorted(moves, key=lambda move: move.mape)),
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
        mape = _mape(chosen)
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


def _errors(runs: Sequence[RunResult]) -> FloatArray:
    measured, predicted = times(runs)
    errors: FloatArray = predicted / measured - 1.0
    return errors


def _mape(runs: Sequence[RunResult]) -> float:
    return float(np.abs(_errors(runs)).mean()) if runs else 0.0


def _groups(runs: Sequence[RunResult]) -> tuple[ErrorGroup, ...]:
    errors, predicted = _errors(runs), times(runs)[1]

    def group(setting: str, value: str, mine: Sequence[int]) -> ErrorGroup:
        own = errors[list(mine)]
        return ErrorGroup(setting, value, len(mine), float(own.mean()), float(np.abs(own).mean()))

    found = list[list[ErrorGroup]]()  # of each setting
    for setting in SETTINGS:
        alike = _places(runs, setting)
        groups = [
            group(setting, value, mine)
            for value, mine in alike.items()
            if len(mine) >= FEWEST_ALIKE
        ]
        found.append(groups if len(groups) > 1 else [])
    for part in load_parts():
        large = part_seconds(part, runs) / predicted >= LARGE_SHARE
        if large.any() and not large.all():
            setting, both = f"share of {part.name}", (("large", large), ("small", ~large))
            found.append(
                [group(setting, value, np.flatnonzero(mine).tolist()) for value, mine in both]
            )

    def spread(groups: Sequence[ErrorGroup]) -> float:
        biases = [each.bias for each in groups]
        return max(biases) - min(biases)

    ordered = sorted(filter(None, found), key=lambda groups: (-spread(groups), groups[0].setting))
    return tuple(each for groups in ordered for each in sorted(groups, key=lambda one: one.bias))


def _move(part: Part, runs: Sequence[RunResult]) -> PartMove:
    """The factor of a part that leaves the least mean error, and the one within its range."""
    measured, predicted = times(runs)
    moved = predicted + (FACTORS[:, None] - 1.0) * part_seconds(part, runs)
    left: FloatArray = np.abs(moved / measured - 1.0).mean(axis=1)
    best = int(left.argmin())
    allowed = np.flatnonzero((part.low <= FACTORS) & (part.high >= FACTORS))
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
        measured = times(same)[0].tolist()
        low, high, lines = min(measured), max(measured), tuple(run.line for run in same)
        if high > low * (1.0 + CONTRADICTION):
            found.append(Contradiction(lines, same[0].model, low, high))
    return tuple(found)
