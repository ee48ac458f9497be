"""Design points of one model, micro-batch size and HBM size: evaluated, pruned by a bound, or infeasible.

A point is pruned only when an evaluated point is at least as good as its *bound* in throughput, area and energy together, so
neither the Pareto front nor the optimum of any objective that is monotone in them can be lost. Where layers branch so much that
``lost`` names plans that are not considered, all of this holds among the others; ``throughput_ceiling`` bounds every plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from Solver.placement import lower_bounds_s, place, place_batch, relaxed_bounds_s, what_is_lost
from Solver.placement.problem import BatchTimes, FloatArray, LayerTimes, Placement, PlacementProblem
from Solver.results import Objective
from Solver.search.pareto import Values, better_is_larger, dominated_by, nondominated
from Solver.search.point_store import PointStore, StoredPoints

ROUND_LIMIT = 4096  # points evaluated between two prunings, which is also what a killed run can lose
ROUNDING = 1e-12  # relative: a bound this close to a value may belong to an equally good point


class PointStatus(IntEnum):
    """State of a design point."""

    OPEN = 0
    EVALUATED = 1
    INFEASIBLE = 2
    PRUNED = 3


@dataclass(frozen=True)
class PointKey:
    """What all points of a group share."""

    model: str
    micro_batch_size: int
    hbm_bytes: int


class PointGroup:
    """The points of one ``PointKey``: every accelerator under every plan variant (tp x recomputation).

    Arrays have shape (variants * accelerators,); point ``v * accelerators + a`` is accelerator ``a`` under variant ``v``.
    """

    def __init__(
        self,
        key: PointKey,
        problem: PlacementProblem,
        times: BatchTimes,
        area_mm2: FloatArray,
        variant_energy_j: FloatArray,
        batch_samples: int,
        store: PointStore,
    ) -> None:
        """``variant_energy_j`` is joules per sample, shape (accelerators, variants); ``batch_samples`` the global batch size."""
        self.key = key
        self.problem = problem
        self.times = times
        self.accelerators = len(area_mm2)
        self.batch_samples = batch_samples
        self.area_mm2 = np.tile(area_mm2, len(problem.variants))
        self.energy_j = variant_energy_j.T.ravel()
        self._single = [single_variant(problem, times, index) for index in range(len(problem.variants))]
        self.lost = what_is_lost(problem)
        self._store = store
        count = self.accelerators * len(problem.variants)
        self.bound_s = store.bounds(lambda: np.concatenate([lower_bounds_s(*single) for single in self._single]))
        self.status = np.where(np.isfinite(self.bound_s), PointStatus.OPEN, PointStatus.INFEASIBLE).astype(np.int8)
        self.iteration_s = np.full(count, np.inf)
        self.dp = np.zeros(count, dtype=np.int64)
        self.pp = np.zeros(count, dtype=np.int64)
        for stored in store.load():
            self._fill(stored)

    @property
    def throughput_bound(self) -> FloatArray:
        """Upper bound on samples per second: exact where evaluated, 0 where infeasible."""
        known = self.status == PointStatus.EVALUATED
        bound_s = np.where(known, self.iteration_s, np.where(self.status == PointStatus.INFEASIBLE, np.inf, self.bound_s))
        bound: FloatArray = self.batch_samples / bound_s
        return bound

    @property
    def throughput_ceiling(self) -> FloatArray:
        """Samples per second that no plan of a point exceeds, also none of those that ``lost`` names."""
        return self._ceiling_of_all_plans if self.lost else self.throughput_bound

    @cached_property
    def _ceiling_of_all_plans(self) -> FloatArray:
        ceiling: FloatArray = self.batch_samples / np.concatenate([relaxed_bounds_s(*single) for single in self._single])
        return ceiling

    def rows(self, points: NDArray[np.int64]) -> NDArray[np.int64]:
        """Accelerators of ``points``."""
        return points % self.accelerators

    def variant(self, points: NDArray[np.int64]) -> NDArray[np.int64]:
        """Index of the plan variant of ``points``."""
        return points // self.accelerators

    def locate(self, point: int) -> tuple[int, int]:
        """Accelerator and plan variant of one point."""
        variant, row = divmod(point, self.accelerators)
        return row, variant

    def evaluate(self, points: NDArray[np.int64]) -> None:
        """Place the model exactly on those of ``points`` that are not evaluated yet, and store the result."""
        unknown = points[(self.status[points] == PointStatus.OPEN) | (self.status[points] == PointStatus.PRUNED)]
        for index, (problem, times) in enumerate(self._single):
            mine = unknown[self.variant(unknown) == index]
            if len(mine):
                placed = place_batch(problem, times, self.rows(mine))
                batch = StoredPoints(mine, placed.iteration_s, placed.dp, placed.pp)
                self._store.append(batch)
                self._fill(batch)

    def explore(self, on_progress: Callable[[int], None]) -> None:
        """Evaluate or prune every open point; ``on_progress`` gets the number of points closed since the last call."""
        still_open = np.flatnonzero(self.status == PointStatus.OPEN)
        while len(still_open):
            before = len(still_open)
            self._prune()  # by what an earlier run evaluated, or the round before
            still_open = np.flatnonzero(self.status == PointStatus.OPEN)
            if len(still_open):
                self.evaluate(still_open[nondominated(self._values(still_open))][:ROUND_LIMIT])
                still_open = np.flatnonzero(self.status == PointStatus.OPEN)
            on_progress(before - len(still_open))

    def objective(self, objective: Objective) -> FloatArray:
        """Value of every evaluated point under ``objective``; -inf elsewhere."""
        return np.where(self.status == PointStatus.EVALUATED, self.objective_bound(objective), -np.inf)

    def objective_bound(self, objective: Objective) -> FloatArray:
        """Upper bound under ``objective``, exact where evaluated; -inf where infeasible."""
        value = objective_value(objective, self.throughput_bound, self.area_mm2, self.energy_j)
        return np.where(self.status == PointStatus.INFEASIBLE, -np.inf, value)

    def objective_ceiling(self, objective: Objective) -> FloatArray:
        """What no plan of a point exceeds under ``objective``; -inf where nothing fits."""
        value = objective_value(objective, self.throughput_ceiling, self.area_mm2, self.energy_j)
        return np.where(self.throughput_ceiling > 0.0, value, -np.inf)

    def best(self, objective: Objective) -> int | None:
        """The best point, of equally good ones that of the smallest area, least energy and lowest index; None: none is feasible.

        Whatever might be as good is evaluated first: which points a search had evaluated, or an earlier run, does not matter.
        """
        while True:
            values = self.objective(objective)
            if not np.isfinite(values.max()):
                return None
            unknown = (self.status == PointStatus.OPEN) | (self.status == PointStatus.PRUNED)
            rivals = np.flatnonzero(unknown & (self.objective_bound(objective) >= values.max() * (1.0 - ROUNDING)))
            if not len(rivals):
                return int(np.lexsort((self.energy_j, self.area_mm2, -values))[0])
            self.evaluate(rivals)

    def why_infeasible(self) -> str:
        """Say what keeps the model from fitting, which does not depend on the accelerator."""
        placement: Placement = place(self.problem, row_times(self.times, 0))
        return placement.reason

    def _values(self, points: NDArray[np.int64]) -> Values:
        return better_is_larger(self.throughput_bound[points], self.area_mm2[points], self.energy_j[points])

    def _prune(self) -> None:
        evaluated = self._values(np.flatnonzero(self.status == PointStatus.EVALUATED))
        if not len(evaluated):
            return
        still_open = np.flatnonzero(self.status == PointStatus.OPEN)
        closed = dominated_by(self._values(still_open), evaluated[nondominated(evaluated)])
        self.status[still_open[closed]] = PointStatus.PRUNED

    def _fill(self, batch: StoredPoints) -> None:
        feasible = np.isfinite(batch.iteration_s)
        self.status[batch.points] = np.where(feasible, PointStatus.EVALUATED, PointStatus.INFEASIBLE)
        self.iteration_s[batch.points] = batch.iteration_s
        self.dp[batch.points], self.pp[batch.points] = batch.dp, batch.pp


def single_variant(problem: PlacementProblem, times: BatchTimes, index: int) -> tuple[PlacementProblem, BatchTimes]:
    """The same problem with plan variant ``index`` alone."""
    part = slice(index, index + 1)
    return (
        replace(problem, variants=problem.variants[part]),
        BatchTimes(
            np.ascontiguousarray(times.forward_s[:, part]),
            np.ascontiguousarray(times.backward_s[:, part]),
            np.ascontiguousarray(times.recompute_s[:, part]),
            times.sequence,
        ),
    )


def row_times(times: BatchTimes, row: int) -> LayerTimes:
    """Times of every layer, in execution order, on one accelerator."""
    sequence = list(times.sequence)
    return LayerTimes(times.forward_s[row][:, sequence], times.backward_s[row][:, sequence], times.recompute_s[row][:, sequence])


def objective_value(objective: Objective, throughput: FloatArray, area_mm2: FloatArray, energy_j: FloatArray) -> FloatArray:
    """Value to maximise; monotone in throughput up, area down, energy down, which pruning relies on."""
    if objective is Objective.THROUGHPUT:
        return throughput
    if objective is Objective.THROUGHPUT_PER_AREA:
        return throughput / area_mm2
    return 1.0 / energy_j
