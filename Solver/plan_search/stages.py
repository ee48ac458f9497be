"""The best cut of a model into unequal pipeline stages for one plan, enumerated under an admissible bound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, islice

import numpy as np
from numpy.typing import NDArray

from Plans.iteration import chunk_bounds, predict_cut
from Plans.pipeline.schedule import FloatArray, PipelineCosts
from Plans.pipeline.simulation import makespans_s
from Plans.pricing import PlanPricer
from Plans.results import Prediction
from Solver.plan_search.blocks import IntArray, blocks_of
from Solver.plan_search.bounds import iteration_bound_s
from Solver.results import Status

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
    """Passes of stages by their first block and their number of blocks, shape (3, blocks + 1, blocks + 1).

    The first axis tells the first stage, which has the embedding, the inner ones, and the last, which has the head: ``position``
    of shape (pp,). ``fits`` of shape (pp, blocks + 1, blocks + 1) says where a stage's memory suffices. The passes of what does
    not fit, or of no layer at all, mean nothing. ``forward_transfer_s`` and ``backward_transfer_s`` of shape (pp - 1, blocks + 1)
    are those of the boundary behind each stage, by the first block behind it.
    """

    position: IntArray
    forward_s: FloatArray
    backward_s: FloatArray
    fits: NDArray[np.bool_]
    forward_transfer_s: FloatArray
    backward_transfer_s: FloatArray
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
        cuts = list(islice(_compositions(table, fullest), MOST_CUTS + 1))
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
    """Price every stage there can be; those with as many blocks of each kind differ in nothing, inner ones in memory alone."""
    plan, pp = pricer.plan, pricer.plan.pp
    blocks = blocks_of(pricer.costs)
    shape = (3, blocks.count + 1, blocks.count + 1)
    forward_s, backward_s, fixed_bytes, saved_bytes = (np.zeros(shape) for _ in range(4))
    possible = np.zeros(shape, dtype=bool)
    after_s = np.inf
    starts, counts = (each.ravel() for each in np.indices(shape[1:]))
    inside = starts + counts <= blocks.count
    for position, chosen in enumerate((starts == 0, counts > 0, starts + counts == blocks.count)):
        first, number = starts[chosen & inside], counts[chosen & inside]
        kinds, like = np.unique(blocks.before[first + number] - blocks.before[first], axis=0, return_inverse=True)
        examples = [int(np.flatnonzero(like.ravel() == kind)[0]) for kind in range(len(kinds))]
        spans = [(int(first[example]) + (position > 0), int(first[example] + number[example]) + 1) for example in examples]
        stages = [pricer.stage(((start, stop + (position == 2)),)) for start, stop in spans]
        index = (position, first, number)
        possible[index] = True
        forward_s[index] = np.array([stage.chunks[0].forward.total_s for stage in stages])[like.ravel()]
        backward_s[index] = np.array([stage.chunks[0].whole_backward_s for stage in stages])[like.ravel()]
        fixed_bytes[index] = np.array([stage.fixed_bytes for stage in stages])[like.ravel()]
        saved_bytes[index] = np.array([stage.chunks[0].saved_bytes for stage in stages])[like.ravel()]
        if position == 0:
            after_s = min(stage.once.exposed_s for stage in stages)
    positions = np.array([0, *(1 for _ in range(pp - 2)), 2])
    held = np.minimum(pp - np.arange(pp), plan.micro_batches)[:, None, None]
    fits = possible[positions] & (
        fixed_bytes[positions] + held * saved_bytes[positions] <= pricer.model.device.memory.capacity.value
    )
    transfers = [[pricer.transfer(chunk, block + 1) for block in range(blocks.count + 1)] for chunk in range(pp - 1)]
    return _StageTable(
        positions,
        forward_s,
        backward_s,
        fits,
        np.array([[each.forward_s for each in boundary] for boundary in transfers]),
        np.array([[each.backward_s for each in boundary] for boundary in transfers]),
        float(after_s),
    )


def _compositions(table: _StageTable, fullest: int) -> Iterator[tuple[int, ...]]:
    """Every way to give all blocks to the stages, at most ``fullest`` to any and no more than fit in it."""
    pp, size, _ = table.fits.shape
    target = np.minimum(np.add.outer(np.arange(size), np.arange(size)), size - 1)
    open_ends = np.arange(size) == size - 1  # first blocks from which the stages behind can go on to the end
    ways: list[NDArray[np.bool_]] = []
    for fits in table.fits[::-1]:
        way = fits & open_ends[target]
        way[:, fullest + 1 :] = False
        ways.insert(0, way)
        open_ends = way.any(axis=1)
    choices: dict[tuple[int, int], list[int]] = {}

    def rest(stage: int, first: int) -> Iterator[tuple[int, ...]]:
        if stage == pp:
            yield ()
            return
        if (stage, first) not in choices:
            choices[stage, first] = np.flatnonzero(ways[stage][first]).tolist()
        for count in choices[stage, first]:
            for tail in rest(stage + 1, first + count):
                yield (count, *tail)

    yield from rest(0, 0)


def _times_s(pricer: PlanPricer, table: _StageTable, cuts: IntArray) -> FloatArray:
    """Seconds of the pipeline of each cut (cuts, pp) and what at least follows it: nearly the iteration, and never more."""
    ends = np.cumsum(cuts, axis=1)
    boundaries = np.arange(pricer.plan.pp - 1)
    costs = PipelineCosts(
        pricer.plan.pp,
        table.forward_s[table.position, ends - cuts, cuts],
        table.backward_s[table.position, ends - cuts, cuts],
        table.forward_transfer_s[boundaries, ends[:, :-1]],
        table.backward_transfer_s[boundaries, ends[:, :-1]],
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
        nearby = nearby[table.fits[stages, np.cumsum(nearby, axis=1) - nearby, nearby].all(axis=1)]
        if not len(nearby):
            return seen
        times = _times_s(pricer, table, nearby)
        seen.append(tuple(int(each) for each in nearby[times.argmin()]))
        if times.min() >= best_s:
            return seen
        best_s, cut = float(times.min()), nearby[times.argmin()]
