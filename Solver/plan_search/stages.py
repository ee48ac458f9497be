"""The best cut of a model into unequal pipeline stages for one plan, enumerated under an admissible bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

import numpy as np
from numpy.typing import NDArray

from Solver.pipeline.schedule import FloatArray, PipelineCosts
from Solver.pipeline.simulation import makespans_s
from Solver.plan_search.bounds import iteration_bound_s
from Solver.results import Status
from Solver.training.iteration import chunk_bounds, predict_cut
from Solver.training.pricing import PlanPricer
from Solver.training.results import Prediction

IntArray = NDArray[np.int64]
MOST_CUTS = 2048  # enumerated for one plan


@dataclass(frozen=True)
class StagedPlan:
    """The best prediction of a plan, None where no cut fits in memory. No cut of the plan takes less than ``bound_s``."""

    prediction: Prediction | None
    stage_layers: tuple[int, ...]
    bound_s: float
    reason: str = ""


@dataclass(frozen=True, eq=False)
class _StageTable:
    """Passes of every stage by its number of blocks, shape (pp, blocks + 1): embedding and head belong to the end stages.

    ``fits`` says where the stage's memory suffices. The passes of what does not fit, or of no layer at all, mean nothing.
    """

    forward_s: FloatArray
    backward_s: FloatArray
    fits: NDArray[np.bool_]
    after_s: float  # at least what follows the last backward pass of the first stage


def best_stages(pricer: PlanPricer, incumbent_s: float) -> StagedPlan:
    """Cut the plan's layers for the shortest iteration.

    Interleaved plans have equal chunks. The others are enumerated by the blocks of their fullest stage, fewest first, until no
    fuller stage can help (``iteration_bound_s``); where there are more than ``MOST_CUTS`` such cuts the balanced one is improved
    by moving single blocks, and the bound stays below the answer.
    """
    plan, layers, capacity = pricer.plan, len(pricer.costs), pricer.model.device.memory.capacity.value
    if pricer.least_bytes > capacity:
        needed = f"its parameters alone need {pricer.least_bytes / 1e9:.1f} GB per device"
        return StagedPlan(None, (), np.inf, f"{needed}, {pricer.model.device.title} has {capacity / 1e9:.1f} GB")
    balanced = tuple(int(each) for each in np.diff(chunk_bounds(layers, plan)))
    first = _priced(pricer, balanced)
    if plan.pp > 1 and plan.interleave == 1:
        return _searched(pricer, balanced, first, incumbent_s)
    if first.status is Status.INFEASIBLE:
        return StagedPlan(None, (), np.inf, first.reason)
    return StagedPlan(first, balanced, first.iteration_s)


def _searched(pricer: PlanPricer, balanced: tuple[int, ...], first: Prediction, incumbent_s: float) -> StagedPlan:
    plan, blocks = pricer.plan, len(pricer.costs) - 2
    table = _stage_table(pricer)
    best, chosen = (None, ()) if first.status is Status.INFEASIBLE else (first, balanced)
    limit_s = min(incumbent_s, first.iteration_s) if best else incumbent_s
    for fullest in range(-(-blocks // plan.pp), blocks + 1):
        least_s = iteration_bound_s(plan, pricer.costs, pricer.overlap, fullest)
        if least_s >= limit_s:
            return StagedPlan(best, chosen, limit_s, first.reason)
        cuts = list(islice(_compositions(blocks, _allowed(table, fullest)), MOST_CUTS + 1))
        complete = len(cuts) <= MOST_CUTS
        if not complete:
            cuts = _improved(pricer, table, np.array(balanced) - _ends(plan.pp))
        for cut, time_s in _by_time(pricer, table, np.array(cuts, dtype=np.int64).reshape(-1, plan.pp)):
            if time_s >= limit_s:
                break
            stage_layers = tuple(int(each) for each in cut + _ends(plan.pp))
            prediction = _priced(pricer, stage_layers)
            if prediction.status is not Status.INFEASIBLE and prediction.iteration_s < limit_s:
                best, chosen, limit_s = prediction, stage_layers, prediction.iteration_s
        if not complete:
            return StagedPlan(best, chosen, min(limit_s, least_s), first.reason)
    return StagedPlan(best, chosen, limit_s, first.reason)


def _ends(pp: int) -> IntArray:
    """Layers of each stage besides blocks."""
    ends = np.zeros(pp, dtype=np.int64)
    ends[0] += 1
    ends[-1] += 1
    return ends


def _priced(pricer: PlanPricer, stage_layers: tuple[int, ...]) -> Prediction:
    return predict_cut(pricer, [0, *accumulate(stage_layers)])


def _stage_table(pricer: PlanPricer) -> _StageTable:
    """Price the first, the last and one inner stage with every number of blocks; inner stages differ in memory alone."""
    plan, blocks, pp = pricer.plan, len(pricer.costs) - 2, pricer.plan.pp
    capacity = pricer.model.device.memory.capacity.value
    forward_s, backward_s = np.zeros((pp, blocks + 1)), np.zeros((pp, blocks + 1))
    fits = np.zeros((pp, blocks + 1), dtype=bool)
    after_s = np.inf
    for kind, stages in (("first", [0]), ("inner", list(range(1, pp - 1))), ("last", [pp - 1])):
        for count in range(0 if kind != "inner" else 1, blocks + 1):
            span = {"first": (0, 1 + count), "inner": (1, 1 + count), "last": (blocks + 1 - count, blocks + 2)}[kind]
            stage = pricer.stage((span,))
            chunk = stage.chunks[0]
            for index in stages:
                forward_s[index, count], backward_s[index, count] = chunk.forward.total_s, chunk.whole_backward_s
                held = min(pp - index, plan.micro_batches) * chunk.saved_bytes
                fits[index, count] = stage.fixed_bytes + held <= capacity
            if kind == "first":
                after_s = min(after_s, stage.once.exposed_s)
    return _StageTable(forward_s, backward_s, fits, after_s)


def _allowed(table: _StageTable, fullest: int) -> list[range]:
    """Numbers of blocks each stage may have: what fits, at most ``fullest``; more blocks never need less memory."""
    allowed = []
    for fits in table.fits:
        possible = np.flatnonzero(fits[: fullest + 1])
        allowed.append(range(int(possible[0]), int(possible[-1]) + 1) if len(possible) else range(0))
    return allowed


def _compositions(blocks: int, allowed: Sequence[range]) -> Iterator[tuple[int, ...]]:
    """Every way to give ``blocks`` to stages within what each is ``allowed``."""
    least = [0, *accumulate(each.start for each in reversed(allowed))][::-1]
    most = [0, *accumulate(each.stop - 1 for each in reversed(allowed))][::-1]

    def rest(stage: int, left: int) -> Iterator[tuple[int, ...]]:
        if stage == len(allowed):
            yield ()
            return
        for count in range(max(allowed[stage].start, left - most[stage + 1]), allowed[stage].stop):
            if left - count < least[stage + 1]:
                break
            for tail in rest(stage + 1, left - count):
                yield (count, *tail)

    if all(len(each) for each in allowed) and least[0] <= blocks <= most[0]:
        yield from rest(0, blocks)


def _times_s(pricer: PlanPricer, table: _StageTable, cuts: IntArray) -> FloatArray:
    """Seconds of the pipeline of each cut (cuts, pp) and what at least follows it: nearly the iteration, and never more."""
    stages = np.arange(pricer.plan.pp)
    transfers = pricer.transfers([0, *range(1, pricer.plan.pp), len(pricer.costs)])
    forward = np.tile([each.forward_s for each in transfers], (len(cuts), 1))
    backward = np.tile([each.backward_s for each in transfers], (len(cuts), 1))
    costs = PipelineCosts(
        pricer.plan.pp,
        table.forward_s[stages, cuts],
        table.backward_s[stages, cuts],
        forward,
        backward,
        overlap_transfers=False,
    )
    return makespans_s(costs, pricer.plan.schedule, pricer.plan.micro_batches) + table.after_s


def _by_time(pricer: PlanPricer, table: _StageTable, cuts: IntArray) -> Iterator[tuple[IntArray, float]]:
    """Cuts and their bounds, fastest first."""
    if len(cuts):
        times = _times_s(pricer, table, cuts)
        for index in np.argsort(times, kind="stable"):
            yield cuts[index], float(times[index])


def _improved(pricer: PlanPricer, table: _StageTable, cut: IntArray) -> list[tuple[int, ...]]:
    """Cuts met while moving one block at a time from stage to stage as long as that helps, from ``cut``."""
    pp = pricer.plan.pp
    stages = np.arange(pp)
    moves = np.eye(pp, dtype=np.int64)[:, None, :] - np.eye(pp, dtype=np.int64)[None, :, :]
    seen: list[tuple[int, ...]] = []
    best_s = np.inf
    while True:
        nearby = np.unique((cut + moves).reshape(-1, pp), axis=0)
        nearby = nearby[(nearby >= 0).all(axis=1) & (nearby < table.fits.shape[1]).all(axis=1)]
        nearby = nearby[table.fits[stages, nearby].all(axis=1)]
        if not len(nearby):
            return seen
        times = _times_s(pricer, table, nearby)
        seen.append(tuple(int(each) for each in nearby[times.argmin()]))
        if times.min() >= best_s:
            return seen
        best_s, cut = float(times.min()), nearby[times.argmin()]
