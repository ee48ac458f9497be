"""The best plan of a design point: one configuration under one shape of plans, with so much
memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from Estimator.plans.degrees import UniformPlan
from phaze_common.array_types import FloatArray, IntArray
from Solver.chip_metrics import ChipMetrics
from Solver.designs.costs import Part, Shape
from Solver.plans.best_plan import BestPlan, ConfigurationPlans, FastestPlan
from Solver.plans.cut_levels import Hint
from Solver.plans.row_loads import RowLoads, parts_of
from Solver.plans.shape_plans import ShapePlans
from Solver.problem import Objective


@dataclass(frozen=True)
class Evaluated:
    """The best plan of a point: seconds, their bound, bytes of its fullest stage, degrees."""

    iteration_s: float
    least_s: float
    memory_bytes: float
    dp: int
    pp: int


NOTHING_FITS = Evaluated(np.inf, np.inf, 0.0, 0, 0)


class PointPlans:
    """The plans of the points of a group: point ``s * configurations + c`` is configuration ``c``
    under ``shapes[s]``.

    ``metrics`` are those of every point; what devices that are bought count depends on the
    ``objective``."""

    def __init__(
        self,
        shapes: Sequence[Shape],
        metrics: ChipMetrics,
        objective: Objective,
        memory_bytes: int,
        most_steps: int | None,
    ) -> None:
        """``most_steps`` as of ``ConfigurationPlans.best``."""
        self._shapes, self._metrics, self._objective = shapes, metrics, objective
        self._memory_bytes, self._most_steps = float(memory_bytes), most_steps
        self._configurations = len(metrics) // max(len(shapes), 1)
        self._hints: dict[tuple[int, int], Hint] = {}

    def locate(self, point: int) -> tuple[int, Shape]:
        """Configuration and shape of one point."""
        shape, row = divmod(point, self._configurations)
        return row, self._shapes[shape]

    def weight(self, point: int, devices: int) -> float:
        """What the seconds of a plan of one point with so many devices count."""
        found = self._metrics.weights(self._objective, point, np.array([devices]))
        return 1.0 if found is None else float(found[0])

    def best(self, points: IntArray) -> list[tuple[Evaluated, UniformPlan | None]]:
        """The best plan of each of ``points`` and what it reaches; None where none fits."""
        found: dict[int, tuple[Evaluated, UniformPlan | None]] = {}
        of_shapes, rows = np.divmod(points, self._configurations)
        for number in np.unique(of_shapes).tolist():
            here, parts = np.flatnonzero(of_shapes == number), self._shapes[number].parts
            for some in parts_of(len(here), [part.plans for part in parts]):
                of_parts = [self._on_rows(part, rows[here[some]]) for part in parts]
                for place, plans in zip(
                    here[some].tolist(), zip(*of_parts, strict=True), strict=True
                ):
                    found[place] = self._best(int(points[place]), plans)
        return [found[place] for place in range(len(points))]

    def _best(
        self, point: int, of_parts: Sequence[ConfigurationPlans]
    ) -> tuple[Evaluated, UniformPlan | None]:
        row, shape = self.locate(point)
        best: FastestPlan | None = None
        least_s = np.inf
        for place, plans in enumerate(of_parts):
            of_shape = point // self._configurations, place
            incumbent_s = np.inf if best is None else best.iteration_s
            hint = self._hints.get(of_shape)
            found = plans.fastest(incumbent_s, hint, self._most_steps)
            least_s = min(least_s, found.bound_s)
            if found.hint is not None:
                best = found
                self._hints[of_shape] = found.hint
        if best is None or best.plan is None:
            return NOTHING_FITS, None
        iteration_s = best.iteration_s / self.weight(point, best.plan.devices)
        least_s /= float(shape.excess[row])
        return Evaluated(
            iteration_s, least_s, best.memory_bytes, best.plan.dp, best.plan.pp
        ), best.plan

    def _on_rows(self, part: Part, rows: IntArray) -> list[ConfigurationPlans]:
        """The plans of a part on each of ``rows``."""
        found: dict[int, ConfigurationPlans] = {}
        for plans, places in part.by_machine(rows):
            loads = RowLoads.of(plans, part.costs, rows[places], self._memory_bytes)
            for place, row in zip(places.tolist(), rows[places].tolist(), strict=True):
                which = part.costs, row, self._memory_bytes, self._weights_of(part, row)
                found[place] = ConfigurationPlans(plans, *which, loads=loads)
        return [found[place] for place in range(len(rows))]

    def least_seconds(self, points: IntArray) -> FloatArray:
        """Seconds that no plan of each of ``points`` is below, (points,); infinite where none
        fits."""
        least_s = np.full(len(points), np.inf)
        of_shapes, rows = np.divmod(points, self._configurations)
        for number in np.unique(of_shapes).tolist():
            here = np.flatnonzero(of_shapes == number)
            for part in self._shapes[number].parts:
                least_s[here] = np.minimum(least_s[here], self._least_of(part, rows[here]))
        return least_s

    def _least_of(self, part: Part, rows: IntArray) -> FloatArray:
        """The same of the plans of a part on configurations ``rows``."""
        least_s, held = np.full(len(rows), np.inf), self._memory_bytes
        for plans, places in part.by_machine(rows):
            found = RowLoads.in_parts(plans, part.least, rows[places], held)
            of_rows = [each.least_s(self._weights_on(part, each.rows), held) for each in found]
            least_s[places] = np.concatenate(of_rows)
        return least_s

    def solved(self, point: int) -> list[tuple[ShapePlans, BestPlan]]:
        """What became of every plan of a point, part by part of its shape."""
        row, shape = self.locate(point)
        solved = []
        for part in shape.parts:
            (plans,), weights = self._on_rows(part, np.array([row])), self._weights_of(part, row)
            found = plans.best()
            if weights is not None:
                counted = np.where(np.isinf(weights), 1.0, weights)
                plan_s, bounds_s = found.plan_s / counted, found.plan_bounds_s / counted
                found = replace(found, plan_s=plan_s, plan_bounds_s=bounds_s)
            solved.append((part.plans_on(row), found))
        return solved

    def _weights_of(self, part: Part, row: int) -> FloatArray | None:
        """What the seconds of the plans of a part count; None where all count alike."""
        return self._metrics.weights(self._objective, row, part.plans.plans.devices)

    def _weights_on(self, part: Part, rows: IntArray) -> FloatArray:
        """The same on each of ``rows``, (rows, plans); (1, plans) where all count alike."""
        weights = [self._weights_of(part, row) for row in rows.tolist()]
        return np.array(
            [each for each in weights if each is not None] or [np.ones(len(part.plans))]
        )
