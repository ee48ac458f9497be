"""The best plan of one shape on one configuration of hardware: best first under bounds, every plan accounted for."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from Plans.cuts import balanced_cuts, chunk_layers
from Plans.layer_costs import LayerCosts
from Plans.plan import TrainingPlan
from Plans.stage_totals import StageTimes, time_columns, times_of
from Solver.cuts.kernels import (
    Loads,
    Priced,
    Problem,
    bound_cut,
    fill_loads,
    fill_passes,
    fill_prices,
    least_largest,
    search_cuts,
)
from Solver.plan_search.bounds import PlanBounds, plan_bounds_s
from Solver.plan_search.shape_plans import DegreesKey, ShapePlans

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

ROUNDING = 1e-12  # relative: a bound this close to a value cannot beat it
MOST_STEPS = 4_000_000  # stages tried in one search through cuts: some tenths of a second
FIRST_STEPS = 20_000  # for a first incumbent


class PlanStatus(IntEnum):
    """What became of a plan on a configuration."""

    PRUNED = 0  # its bound does not beat a plan that was evaluated
    EVALUATED = 1  # its best cut into stages is known, or the best of those tried
    INFEASIBLE = 2  # no cut of it fits in memory


@dataclass(frozen=True, eq=False)
class BestPlan:
    """The best plan of a shape on one configuration; no plan of the shape takes less than ``bound_s``.

    ``memory_bytes`` are those of its fullest stage. ``plan`` is None where nothing fits (``iteration_s`` infinite) or nothing
    beats what was known before. Arrays have shape (plans,): what became of each, the least it can take, and what its best
    cut takes (infinite where unknown).
    """

    plan: TrainingPlan | None
    iteration_s: float
    memory_bytes: float
    bound_s: float
    status: NDArray[np.int8]
    plan_bounds_s: FloatArray
    plan_s: FloatArray


class ConfigurationPlans:
    """The plans of ``shared`` on configuration ``configuration`` of ``costs``."""

    def __init__(self, shared: ShapePlans, costs: LayerCosts, configuration: int, memory_bytes: float) -> None:
        self.shared, self.costs, self.configuration, self.memory_bytes = shared, costs, configuration, memory_bytes
        graph = shared.stages
        self.times: StageTimes = graph.times(costs, configuration)
        edges = len(graph.stages.whole)
        self.loads = Loads(np.empty(graph.nodes), np.empty(graph.nodes), np.empty(graph.nodes), np.empty(edges))
        self._tables = np.empty((4, shared.most_stages, graph.nodes))
        self._priced: dict[DegreesKey, Priced] = {}
        self._accumulates = bool(costs.accumulation_s[configuration].any())
        self._passes = np.empty((2, edges))
        self._interleaved_s, self._interleaved_bytes = np.full((2, len(shared.interleaved_rows)), np.nan)
        self.bounds_s = np.full(len(shared), np.inf)
        if len(shared):
            rates = shared.degrees(0).rates
            layers = times_of(time_columns(costs, configuration))
            fill_loads(rates, graph.stages, self.times, graph.sizes, layers, graph.lattice.members, self.loads)
            fill_passes(rates, self.times, graph.sizes, *self._passes)
            self._fill_bounds()

    def best(self, incumbent_s: float = np.inf, hints: Sequence[int] = ()) -> BestPlan:
        """The best plan that beats ``incumbent_s``; ``hints`` are plans worth trying first."""
        count = len(self.shared)
        status = np.full(count, PlanStatus.PRUNED, dtype=np.int8)
        status[np.isinf(self.bounds_s)] = PlanStatus.INFEASIBLE
        bounds_s, plan_s = self.bounds_s.copy(), np.full(count, np.inf)
        best_s, best, memory_bytes, winner = incumbent_s, None, 0.0, -1
        order = np.argsort(bounds_s, kind="stable")
        order = order[: int(np.isfinite(bounds_s).sum())]
        for index in dict.fromkeys([*hints, *order[:1].tolist()]):
            if bounds_s[index] < best_s * (1.0 - ROUNDING):
                found = self._searched(index, best_s, FIRST_STEPS)
                if found.plan is not None:
                    best_s, best, memory_bytes, winner = found.seconds, found.plan, found.memory_bytes, index
                    plan_s[index] = found.seconds
                if not found.fits:
                    status[index], bounds_s[index] = PlanStatus.INFEASIBLE, np.inf
                elif found.complete:
                    status[index], bounds_s[index] = PlanStatus.EVALUATED, max(bounds_s[index], min(best_s, found.seconds))
        order = order[status[order] == PlanStatus.PRUNED]
        waiting: list[tuple[float, int]] = []
        place = 0
        while True:
            cheap_s = bounds_s[order[place]] if place < len(order) else np.inf
            tight_s = waiting[0][0] if waiting else np.inf
            if min(cheap_s, tight_s) >= best_s * (1.0 - ROUNDING):
                break
            if cheap_s < tight_s:
                index = int(order[place])
                place += 1
                tight_s = self._bound(index, best_s)
                if np.isinf(tight_s):  # nothing fits, or nothing that fits beats the incumbent
                    status[index] = PlanStatus.INFEASIBLE if np.isinf(best_s) else PlanStatus.PRUNED
                    bounds_s[index] = max(bounds_s[index], best_s)
                else:  # beyond the incumbent it says nothing of the cuts that were closed by it
                    bounds_s[index] = max(bounds_s[index], min(tight_s, best_s))
                    heapq.heappush(waiting, (bounds_s[index], index))
                continue
            bound_s, index = heapq.heappop(waiting)
            found = self._searched(index, best_s, MOST_STEPS)
            if not found.fits:
                status[index], bounds_s[index] = PlanStatus.INFEASIBLE, np.inf
                continue
            status[index] = PlanStatus.EVALUATED
            if found.plan is not None:
                plan_s[index] = found.seconds
                best_s, best, memory_bytes, winner = found.seconds, found.plan, found.memory_bytes, index
            bounds_s[index] = min(best_s, found.seconds) if found.complete else bound_s
        proven_s = min(best_s, float(bounds_s[status == PlanStatus.EVALUATED].min(initial=np.inf)))
        if best is not None:
            plan_s[winner] = best_s
            if status[winner] != PlanStatus.EVALUATED:  # the first search found what no cut beats
                status[winner], bounds_s[winner] = PlanStatus.EVALUATED, best_s
        return BestPlan(best, best_s if best is not None else np.inf, memory_bytes, proven_s, status, bounds_s, plan_s)

    def _fill_bounds(self) -> None:
        shared, graph = self.shared, self.shared.stages
        least = np.empty((shared.most_stages, graph.nodes))
        least_largest(graph.stages, self.loads.stage_s, least)
        sync, (both_ways_s, one_way_s) = shared.sync_bounds, shared.least_messages_s
        plain = PlanBounds(
            shared.plans.pp,
            shared.plans.micro_batches,
            both_ways_s,
            one_way_s,
            shared.least_step_s,
            shared.tied_s,
            sync.fixed_s,
            sync.per_parameter_s,
        )
        dense = graph.sizes.parameters - graph.sizes.expert_parameters
        plan_bounds_s(
            plain, graph.stages, self.loads.stage_s, least, dense, graph.tied_parameters, shared.interleaved, self.bounds_s
        )
        at = shared.interleaved_rows
        if len(at):
            loads_s = self._interleaved_loads_s()
            busy_s = np.maximum(shared.plans.micro_batches[at] * loads_s, self.loads.behind_s[-1])
            self.bounds_s[at] = busy_s + shared.least_step_s[at]
        self.bounds_s[shared.least_bytes > self.memory_bytes] = np.inf

    def _interleaved_loads_s(self) -> FloatArray:
        """Load of the fullest stage of plans with equal chunks, which runs all micro-batches; where layers branch, the mean."""
        shared, graph = self.shared, self.shared.stages
        pp, chunks = (each[shared.interleaved_rows] for each in (shared.plans.pp, shared.plans.interleave))
        if not graph.stages.chain:
            return np.asarray(self.loads.behind_s[-1] / pp)
        layers = graph.nodes - 1
        kinds, place = np.unique(np.stack([pp, chunks], axis=1), axis=0, return_inverse=True)
        loads_s = np.empty(len(kinds))
        for kind, (stages, rounds) in enumerate(kinds.tolist()):
            left = layers - np.array([0, *balanced_cuts(layers, stages * rounds), layers])
            of_chunks = self.loads.stage_s[graph.stages.first[left[:-1]] + left[1:]]
            loads_s[kind] = of_chunks.reshape(rounds, stages).sum(axis=0).max()
        return loads_s[place.reshape(-1)]

    def _stage_prices(self, index: int) -> Priced:
        """All stages priced for the degrees of a plan, which other plans share."""
        shared = self.shared
        key, rates = shared.degrees_key(index), shared.degrees(index).rates
        if rates.overlap_data or rates.zero_stage >= 2 or self._accumulates:
            if key not in self._priced:
                graph = shared.stages
                edges = len(graph.stages.whole)
                priced = Priced(*(np.empty(edges) for _ in range(5)))
                tied = graph.tied_parameters if key.single else 0.0
                fill_prices(rates, self.times, graph.sizes, np.arange(edges), tied, priced)
                self._priced[key] = priced
            return self._priced[key]
        return Priced(self._passes[0], self._passes[1], *shared.after_passes(index))

    def _most_back_s(self, index: int) -> float:
        """Seconds of the longest message back of a plan; infinite where its backward passes hold data-parallel communication."""
        degrees = self.shared.degrees(index)
        if degrees.rates.overlap_data or degrees.rates.zero_stage >= 2 or self._accumulates:
            return np.inf
        return float(degrees.links.seconds[degrees.links.kind_of, 1].max())

    def _problem(self, index: int) -> Problem:
        shared, degrees = self.shared, self.shared.degrees(index)
        graph, links = shared.stages, degrees.links
        stages = graph.stages
        return Problem(
            stages.first,
            stages.whole,
            stages.part,
            stages.to_end,
            stages.depth,
            stages.chain,
            graph.sizes.saved_bytes,
            *self.loads,
            *self._stage_prices(index),
            *links,
            self._most_back_s(index),
            degrees.plan.pp,
            degrees.plan.micro_batches,
            degrees.tied_s,
            float(shared.least_step_s[index]),
            self.memory_bytes * (1.0 + ROUNDING),
        )

    def _bound(self, index: int, incumbent_s: float) -> float:
        """A bound of all cuts of a plan; infinite where none fits, or none beats ``incumbent_s``."""
        if self.shared.interleaved[index]:
            return float(self.bounds_s[index])
        bound_s: float = bound_cut(self._problem(index), incumbent_s, self._tables)
        return bound_s

    def _searched(self, index: int, incumbent_s: float, most_steps: int) -> _Found:
        """The best cut of a plan that beats ``incumbent_s``."""
        if self.shared.interleaved[index]:
            return self._equal_chunks(index, incumbent_s)
        problem = self._problem(index)
        if np.isinf(bound_cut(problem, incumbent_s, self._tables)):
            return _Found(None, np.inf, True, fits=bool(np.isfinite(incumbent_s)))
        nodes = np.zeros(problem.pp + 1, np.int64)
        found = search_cuts(problem, incumbent_s, self._tables, most_steps, nodes)
        if np.isinf(found.seconds):
            return _Found(None, np.inf, found.complete)
        path = nodes.tolist()
        held = _memory_bytes(problem, path)
        return _Found(self._with_stages(index, path), found.seconds, found.complete, memory_bytes=held)

    def _equal_chunks(self, index: int, incumbent_s: float) -> _Found:
        """An interleaved plan; the first that is asked for prices all that may beat ``incumbent_s``."""
        shared = self.shared
        place = int(np.searchsorted(shared.interleaved_rows, index))
        if np.isnan(self._interleaved_s[place]):
            wanted = (self.bounds_s[shared.interleaved_rows] < incumbent_s) & np.isnan(self._interleaved_s)
            wanted[place] = True
            rows = np.flatnonzero(wanted)
            prices = shared.interleaved_plans.priced(self.costs, self.configuration, rows)
            self._interleaved_s[rows], self._interleaved_bytes[rows] = prices.iteration_s, prices.memory_bytes
        seconds, fullest = float(self._interleaved_s[place]), float(self._interleaved_bytes[place])
        if fullest > self.memory_bytes * (1.0 + ROUNDING):
            return _Found(None, np.inf, True, fits=False)
        if seconds >= incumbent_s * (1.0 - ROUNDING):
            return _Found(None, np.inf, True)
        plan = shared.plans.plan(index)
        sizes = tuple(len(chunk) for chunk in chunk_layers(plan, shared.graph))
        return _Found(replace(plan, stage_layers=sizes), seconds, True, memory_bytes=fullest)

    def _with_stages(self, index: int, nodes: Sequence[int]) -> TrainingPlan:
        stages = self.shared.stages.layers_of(nodes)
        order = tuple(layer for stage in stages for layer in stage)
        in_order = order == tuple(range(len(order)))
        plan = self.shared.degrees(index).plan
        return replace(plan, stage_layers=tuple(len(stage) for stage in stages), layer_order=None if in_order else order)


@dataclass(frozen=True)
class _Found:
    """A plan cut into stages that beats what was known, if any; whether all cuts were seen, and whether one fits in memory."""

    plan: TrainingPlan | None
    seconds: float
    complete: bool
    fits: bool = True
    memory_bytes: float = 0.0


def _memory_bytes(problem: Problem, path: Sequence[int]) -> float:
    """Bytes of the fullest stage of the cut along the nodes ``path``."""
    most = 0.0
    for place, (whole, part) in enumerate(itertools.pairwise(path)):
        low, high = int(problem.first[whole]), int(problem.first[whole + 1])
        edge = low + int(np.searchsorted(problem.part[low:high], part))
        held = min(problem.pp - place, problem.micro_batches)
        most = max(most, float(problem.fixed_bytes[edge] + held * problem.saved_bytes[edge]))
    return most
