"""Which operators of a schedule its time is spent on, as seconds and in sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from GraphExtractor.graph import OperatorKind
from GraphExtractor.names import label
from phaze.report.sentences.designs import listed
from phaze_common.numbers import number, percent
from Solver.designs.confirmed_schedules import LayerSchedule
from Solver.designs.schedule_records import KeptSchedule
from Solver.plan_report import PlanReport

FEW = 3  # operators named
SMALL = 0.005  # shares of the time below this are not worth a word
HARDLY = 0.01  # of all that is computed


class Placed(Protocol):
    """Something that runs from one moment to another."""

    @property
    def start_s(self) -> float:
        """When it starts."""

    @property
    def end_s(self) -> float:
        """When it ends."""


def blame_s(operators: Sequence[Placed]) -> NDArray[np.float64]:
    """Seconds of each operator, shape (operators,); operators that run at once share the time.

    They add up to the time in which anything runs.
    """
    start = np.array([each.start_s for each in operators], dtype=np.float64)
    end = np.array([each.end_s for each in operators], dtype=np.float64)
    moments = np.unique(np.concatenate([start, end]))
    running = (start[:, None] <= moments[None, :-1]) & (end[:, None] >= moments[None, 1:])
    seconds: NDArray[np.float64] = (running / np.maximum(running.sum(axis=0), 1)) @ np.diff(moments)
    return seconds


def longest_operators(
    model: str, plan: PlanReport, schedules: Sequence[KeptSchedule]
) -> Iterator[str]:
    """Which layers and operators a micro-batch of ``model`` spends its computation on."""
    total_s = sum(one.makespan_s * one.repeats for one in schedules)
    if not total_s:
        return
    layers, busy = defaultdict[str, float](float), defaultdict[str, float](float)
    waiting = 0.0
    for one in schedules:
        layers[one.layer] += one.makespan_s * one.repeats / total_s
        for operator, seconds in zip(one.operators, blame_s(one.operators).tolist(), strict=True):
            share = seconds * one.repeats / total_s
            busy[f"{operator.name} of {one.layer} {one.graph.replace('_', ' ')}"] += share
            waiting += share * operator.waiting_share
    by_layer = sorted(layers.items(), key=lambda item: -item[1])
    shown = listed([f"{name} {percent(share)}" for name, share in by_layer if share > SMALL])
    yield (
        f"Of what the chips compute for a micro-batch of {label(model)}, the layers take: {shown}."
    )
    longest = sorted(busy.items(), key=lambda item: -item[1])[:FEW]
    names = listed([f"{name} ({percent(share)})" for name, share in longest])
    tensor, vector = percent(plan.tc_utilization or 0.0), percent(plan.vc_utilization or 0.0)
    yield (
        f"The operators that take most of that computation are {names}; on average {tensor} of the "
        f"tensor cores and {vector} of the vector cores are busy meanwhile."
    )
    if waiting > SMALL:
        yield (
            f"Of that computation {percent(waiting)} is waiting for what operators exchange "
            "with other devices while they run."
        )


class Work(StrEnum):
    """What an operator does, in words."""

    MATRIX = "matrix products and attention"
    VECTOR = "vector work"
    COMMUNICATION = "communication of the tensor-parallel devices"


OF_KINDS = {
    OperatorKind.COLLECTIVE: Work.COMMUNICATION,
    OperatorKind.GEMM: Work.MATRIX,
    OperatorKind.CONV: Work.MATRIX,
    OperatorKind.ATTENTION: Work.MATRIX,
}


class OperatorKey(NamedTuple):
    """An operator of a layer's pass."""

    where: str
    name: str
    work: Work


def slower_operators(
    of_model: str, schedules: Sequence[Sequence[LayerSchedule]], micro_batch_sizes: Sequence[int]
) -> Iterator[str]:
    """Which operators take longer in the second of two schedules than in the first.

    Times are per sample and device, so that micro-batches of other sizes compare.
    """
    mine, theirs = map(_operator_seconds, schedules, micro_batch_sizes)
    total_s = sum(mine.values())
    by_kind = []
    for kind in Work:
        before_s = sum(seconds for key, seconds in mine.items() if key.work is kind)
        after_s = sum(seconds for key, seconds in theirs.items() if key.work is kind)
        if before_s and abs(after_s - before_s) > HARDLY * total_s:
            by_kind.append(f"{number(after_s / before_s, 3)} times as long in {kind.value}")
    if by_kind:
        yield f"A sample{of_model} takes {listed(by_kind)} as on the best design."
    changes = {key: theirs[key] - seconds for key, seconds in mine.items() if key in theirs}
    longer = ((seconds, key) for key, seconds in changes.items() if seconds > HARDLY * total_s)
    said = [
        f"{key.name} of {key.where} ({number(theirs[key] / mine[key], 3)} times as long)"
        for _, key in sorted(longer, reverse=True)[:FEW]
    ]
    if said:
        yield f"Most time is lost in {listed(said)}."


def _operator_seconds(
    schedules: Sequence[LayerSchedule], micro_batch_size: int
) -> Mapping[OperatorKey, float]:
    """Seconds per sample that each operator is to blame for."""
    seconds = defaultdict[OperatorKey, float](float)
    for item in schedules:
        where = f"{item.layer} {item.graph.replace('_', ' ')}"
        assignments = item.schedule.assignments
        for assignment, part_s in zip(assignments, blame_s(assignments).tolist(), strict=True):
            operator = item.operators.operators[assignment.operator]
            lasts_s = assignment.end_s - assignment.start_s
            waiting = float(item.exposed_s[assignment.operator]) / lasts_s if lasts_s else 0.0
            sample_s = part_s * item.repeats / micro_batch_size
            work = OF_KINDS.get(operator.kind, Work.VECTOR)
            seconds[OperatorKey(where, operator.name, work)] += sample_s * (1.0 - waiting)
            if waiting:
                what = f"what {operator.name} exchanges"
                seconds[OperatorKey(where, what, Work.COMMUNICATION)] += sample_s * waiting
    return seconds
