"""Controlled pairs: runs of one source that differ in one axis of their plans, and what that is
worth as measured and as predicted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from operator import attrgetter

from Estimator.plans.axes import PLAN_AXES, plan_axis
from phaze.validation.records import RunPlan, RunResult

FOLLOWS = frozenset({"dp"})  # from the other degrees, on as many devices
NO_EFFECT = 0.02  # a ratio nearer to 1 has no sign: runs of one plan differ as much
POINTS = 0.10


@dataclass(frozen=True)
class ControlledPair:
    """Two runs of ``source``, at ``lines`` of its file, which differ in the axis ``key`` alone: the
    slower one has the first of ``values``.

    ``measured`` and ``predicted`` are how many times as long the first takes as the second.
    """

    source: str
    model: str
    key: str
    values: tuple[str, str]
    lines: tuple[int, int]
    measured: float
    predicted: float

    @property
    def sign_right(self) -> bool:
        """Whether the effect has the predicted direction, or is measured and predicted as none."""
        if abs(self.measured - 1.0) < NO_EFFECT:
            return abs(self.predicted - 1.0) < NO_EFFECT
        return self.predicted > 1.0

    @property
    def close(self) -> bool:
        """Whether the predicted ratio is within ten points of the measured one."""
        return abs(self.predicted - self.measured) <= POINTS


@dataclass(frozen=True)
class AxisEffects:
    """What predictions of the pairs of an axis are worth; ``title`` is that of the axis."""

    key: str
    title: str
    pairs: int
    right: int
    close: int


def controlled_pairs(runs: Sequence[RunResult]) -> tuple[ControlledPair, ...]:
    """Every pair among ``runs`` that were predicted, in the order of the file; of runs that repeat
    a plan the one in the middle counts."""
    known = [run for run in runs if run.predicted_s and run.measured_s and run.plan]
    found = []
    for _, same in groupby(sorted(known, key=_circumstances), key=_circumstances):
        for one, other in combinations(_once_each(same), 2):
            pair = _pair(one, other)
            found += [] if pair is None else [pair]
    return tuple(sorted(found, key=attrgetter("lines")))


def effects(pairs: Iterable[ControlledPair]) -> tuple[AxisEffects, ...]:
    """The pairs by their axis."""
    by_key = dict[str, list[ControlledPair]]()
    for pair in pairs:
        by_key.setdefault(pair.key, []).append(pair)
    return tuple(
        AxisEffects(
            key,
            plan_axis(key).label,
            len(some),
            sum(each.sign_right for each in some),
            sum(each.close for each in some),
        )
        for key, some in by_key.items()
    )


def off_first(pairs: Iterable[ControlledPair]) -> list[ControlledPair]:
    """The pairs whose effect is predicted worst first: of the wrong direction, then far off."""
    return sorted(pairs, key=lambda each: (each.sign_right, -abs(each.predicted - each.measured)))


def _once_each(runs: Iterable[RunResult]) -> list[RunResult]:
    """One run of each plan: the middle one of its times."""
    by_plan = dict[tuple[str, ...], list[RunResult]]()
    for run in runs:
        values = tuple(str(axis.of(_plan(run).degrees)) for axis in PLAN_AXES)
        by_plan.setdefault(values, []).append(run)
    ordered = (sorted(same, key=lambda run: run.measured_s or 0.0) for same in by_plan.values())
    return [same[(len(same) - 1) // 2] for same in ordered]


def _circumstances(run: RunResult) -> tuple[object, ...]:
    """What both runs of a pair have."""
    plan = _plan(run)
    where = plan.model, plan.sequence_length, plan.device, plan.software, plan.cluster
    return run.source, *where, plan.degrees.devices, plan.degrees.global_batch_size


def _plan(run: RunResult) -> RunPlan:
    assert run.plan is not None
    return run.plan


def _pair(one: RunResult, other: RunResult) -> ControlledPair | None:
    """The pair, if one axis alone differs; nothing is learned of one that was chosen."""
    first, second = _plan(one).degrees, _plan(other).degrees
    differing = [
        axis for axis in PLAN_AXES if axis.key not in FOLLOWS and axis.of(first) != axis.of(second)
    ]
    chosen = {each for run in (one, other) if run.unstated for each in run.unstated.settings}
    if len(differing) != 1 or any(differing[0].key.startswith(each) for each in chosen):
        return None
    axis = differing[0]
    slow, fast = sorted((one, other), key=lambda run: -(run.measured_s or 0.0))
    assert slow.measured_s and fast.measured_s and slow.predicted_s and fast.predicted_s
    values = [str(axis.of(_plan(run).degrees)) for run in (slow, fast)]
    return ControlledPair(
        one.source,
        one.model,
        axis.key,
        (values[0], values[1]),
        (slow.line, fast.line),
        slow.measured_s / fast.measured_s,
        slow.predicted_s / fast.predicted_s,
    )
