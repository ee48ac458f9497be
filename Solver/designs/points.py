"""Design points of one model, micro-batch size and memory size: evaluated, dominated, pruned by a
bound, or infeasible.

A point is one configuration under one shape of plans (tp, cp, ep, sequence parallelism,
recomputation), with the best of all plans and cuts there are. It is pruned only by an evaluated
point at least as good as its *bound* in all axes of the front that is asked for and, unless the
objective is monotone in these, under the objective; or by a configuration that dominates it under
the same shape in whatever these depend on (``SearchCriteria``). So neither the front nor the
optimum can be lost. Where layers branch so much that ``omitted`` names plans that are not
considered, all of this holds among the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np

from Estimator.plans.degrees import UniformPlan
from phaze_common.array_types import BoolArray, FloatArray, IntArray
from Solver.chip_figures import ChipFigures
from Solver.designs.costs import MANY_SHAPES, ModelShapes, Shape
from Solver.designs.dominance import dominators
from Solver.designs.point_plans import NOTHING_FITS, Evaluated, PointPlans
from Solver.designs.point_store import PointStore, StoredPoints
from Solver.designs.search_criteria import USUAL, SearchCriteria
from Solver.designs.shape_dominance import plan_columns, sample_joules_of, shape_dominators
from Solver.pareto import Values, dominated_by, nondominated
from Solver.plans.best_plan import BestPlan
from Solver.plans.pruned_shapes import NONE_PRUNED, PrunedShapes
from Solver.plans.shape_plans import ShapePlans
from Solver.problem import Objective

# Points evaluated at once because of what they may reach under the objective alone
OF_OBJECTIVE = 4
ROUND_LIMIT = 512  # points evaluated between two prunings, which is also what a killed run can lose
PROVEN = 1e-9  # relative gap below which a value is said to be proven
ROUNDING = 1e-12  # relative: a bound this close to a value may belong to an equally good point


class PointStatus(IntEnum):
    """State of a design point."""

    OPEN = 0
    EVALUATED = 1
    INFEASIBLE = 2
    PRUNED = 3
    DOMINATED = 4


@dataclass(frozen=True)
class PointKey:
    """What all points of a group share."""

    model: str
    micro_batch_size: int
    memory_bytes: int


class PointGroup:
    """The points of one ``PointKey``: every configuration under every shape.

    Arrays have shape (shapes * configurations,); point ``s * configurations + c`` is configuration
    ``c`` under shape ``s``. Configurations with other memory are ``absent``: there is no such
    point, and none is counted. ``larger_memory`` is the same group with more memory, whose results
    hold here wherever they fit. What is in ``pruned_shapes`` has no points: none of it is as good
    as the best of these on the one configuration that there is then.

    The best plan of a point is the fastest or, where the devices of plans are bought, the one whose
    seconds are the least by what its devices count under the ``objective``
    (``ChipFigures.weights``): so count ``bound_s``, ``least_s`` and throughputs that bounds and
    values are made of. ``iteration_s`` are the seconds of the plan itself, ``weights`` what they
    count."""

    def __init__(
        self,
        key: PointKey,
        shapes: Sequence[Shape],
        figures: ChipFigures,
        batch_samples: int,
        store: PointStore,
        larger_memory: PointGroup | None = None,
        most_steps: int | None = None,
        pruned_shapes: PrunedShapes = NONE_PRUNED,
        sample_tokens: int = 1,
        criteria: SearchCriteria = USUAL,
    ) -> None:
        """``batch_samples`` is the global batch size, ``most_steps`` as of
        ``ConfigurationPlans.best``."""
        self.criteria, self._chips = criteria, figures
        self.key = key
        self.shapes = tuple(shapes)
        self.pruned_shapes = pruned_shapes
        self.batch_samples = batch_samples
        self.configurations, self.sample_tokens = len(figures), sample_tokens
        self.figures = figures.some(np.tile(np.arange(len(figures)), len(self.shapes)))
        self.area_mm2, self.held = self.figures.area_mm2, figures.holding(key.memory_bytes)
        if not self.held.all() or (larger_memory is not None and not larger_memory.held.all()):
            larger_memory = None  # others hold as much
        found, least = (
            [sample_joules_of(shape, self.configurations, least=each) for shape in self.shapes]
            for each in (False, True)
        )
        self.energy_j, self.least_j = np.concatenate(found), np.concatenate(least)
        self.omitted = next(
            (part.plans.stages.lattice.omitted for shape in self.shapes for part in shape.parts), ""
        )
        self._store, self._roomier = store, larger_memory
        count = self.configurations * len(self.shapes)
        self.dominator = np.full(count, -1, dtype=np.int64)
        self.status = np.full(count, PointStatus.OPEN, dtype=np.int8)
        self.iteration_s, self.least_s = np.full(count, np.inf), np.full(count, np.inf)
        self._own_bound_s = np.zeros(count)  # of what is dominated, as far as it was asked
        self.weights = np.ones(count)
        self.memory_bytes = np.zeros(count)
        self.dp, self.pp = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        self._plans: dict[int, UniformPlan] = {}
        self._point_plans = PointPlans(
            self.shapes, self.figures, criteria.objective, key.memory_bytes, most_steps
        )
        self._inner_devices = np.array(
            [shape.plan.inner_devices for shape in self.shapes], dtype=np.int64
        )
        self._fits = [shape.fits(key.memory_bytes) for shape in self.shapes]
        if larger_memory is None:
            self._close_dominated(figures)
            asked = (
                (self.dominator < 0)
                & np.repeat(self._fits, self.configurations)
                & np.tile(self.held, len(self.shapes))
            )
            self.bound_s = store.bounds(asked, self._bounds)
        else:
            self.dominator, self.bound_s = larger_memory.dominator, larger_memory.bound_s.copy()
        self.status[self.dominator >= 0] = PointStatus.DOMINATED
        self.absent = np.tile(~self.held, len(self.shapes))
        self.status[~np.repeat(self._fits, self.configurations) | self.absent] = (
            PointStatus.INFEASIBLE
        )
        if figures.caps is not None:
            self.status[
                np.concatenate([shape.least_devices > figures.caps for shape in self.shapes])
            ] = PointStatus.INFEASIBLE
        for stored in store.load():
            self._fill(stored)

    @classmethod
    def of(
        cls,
        shapes: ModelShapes,
        memory_bytes: int,
        figures: ChipFigures,
        store: PointStore,
        criteria: SearchCriteria,
        larger_memory: PointGroup | None = None,
        most_steps: int | None = None,
    ) -> PointGroup:
        """The points of all shapes of a model with one micro-batch size and ``memory_bytes``."""
        key = PointKey(shapes.model.name, shapes.micro_batch_size, memory_bytes)
        space = shapes.model.space
        samples, tokens = space.base.global_batch_size, space.sequence_length
        return cls(
            key,
            shapes.shapes,
            figures,
            samples,
            store,
            larger_memory,
            most_steps,
            shapes.pruned_shapes,
            tokens,
            criteria,
        )

    @property
    def throughput_bound(self) -> FloatArray:
        """Upper bound on samples per second: exact where evaluated and proven, 0 where infeasible;
        (points,)."""
        known = self.status == PointStatus.EVALUATED
        bound_s = np.where(
            known,
            self.least_s,
            np.where(self.status == PointStatus.INFEASIBLE, np.inf, self.bound_s),
        )
        followers = np.flatnonzero(self.status == PointStatus.DOMINATED)
        bound_s[followers] = np.maximum(
            bound_s[self.dominator[followers]], self._own_bound_s[followers]
        )
        bound: FloatArray = self.batch_samples / bound_s
        return bound

    @property
    def owned_devices(self) -> IntArray:
        """Devices of the cluster or, where they are bought, of the best plan of each point as far
        as it is known; (points,)."""
        if self.figures.purchase is None:
            return np.full(len(self.status), self.figures.devices)
        return (
            self._inner_devices[np.arange(len(self.status)) // self.configurations]
            * self.dp
            * self.pp
        )

    @property
    def fastest_bound(self) -> FloatArray:
        """Upper bound on samples per second that no plan of a point exceeds, whatever it counts;
        (points,)."""
        bound = self.throughput_bound
        if self.figures.caps is None:
            return bound
        # No plan counts more
        most = self.figures.weights(
            self.criteria.objective, np.arange(len(bound)), self.figures.caps
        )
        assert most is not None  # as there are caps
        return bound * most

    @property
    def stored_as(self) -> str:
        """Content key of everything that decides what its points are; empty where nothing is
        kept."""
        return self._store.name

    def rows(self, points: IntArray) -> IntArray:
        """Configurations of ``points``."""
        return points % self.configurations

    def locate(self, point: int) -> tuple[int, Shape]:
        """Configuration and shape of one point."""
        return self._point_plans.locate(point)

    def least_seconds(self, point: int) -> float:
        """Seconds that no plan of one point is below; infinite where none fits."""
        return self._point_plans.least_seconds(point)

    def solved(self, point: int) -> list[tuple[ShapePlans, BestPlan]]:
        """What became of every plan of a point, part by part of its shape."""
        return self._point_plans.solved(point)

    def evaluated(self, point: int) -> Evaluated:
        """The best plan of one point, whatever its status, which stays as it is."""
        larger_memory = self._roomier
        if larger_memory is not None and larger_memory.status[point] in (
            PointStatus.EVALUATED,
            PointStatus.INFEASIBLE,
        ):
            if larger_memory.status[point] == PointStatus.INFEASIBLE:
                return NOTHING_FITS
            if larger_memory.memory_bytes[point] <= self.key.memory_bytes:
                self._plans[point] = larger_memory.plan(point)
                return Evaluated(
                    float(larger_memory.iteration_s[point]),
                    float(larger_memory.least_s[point]),
                    float(larger_memory.memory_bytes[point]),
                    int(larger_memory.dp[point]),
                    int(larger_memory.pp[point]),
                )
        found, plan = self._point_plans.best(point)
        if plan is not None:
            self._plans[point] = plan
        return found

    def evaluate(self, points: IntArray) -> None:
        """Find the best plan of those of ``points`` that are neither evaluated nor infeasible, and
        store the result."""
        unknown = points[
            (self.status[points] != PointStatus.EVALUATED)
            & (self.status[points] != PointStatus.INFEASIBLE)
        ]
        if not len(unknown):
            return
        results = [self.evaluated(int(point)) for point in unknown]
        columns = {
            field.name: np.array([getattr(each, field.name) for each in results])
            for field in fields(Evaluated)
        }
        batch = StoredPoints(points=unknown, **columns)
        self._store.append(batch)
        self._fill(batch)

    def explore(self, on_progress: Callable[[int], None]) -> None:
        """Evaluate or prune every open point; ``on_progress`` gets the number of points pruned
        since the last call."""
        still_open = np.flatnonzero(self.status == PointStatus.OPEN)
        while len(still_open):
            before = len(still_open)
            self._prune()  # by what an earlier run evaluated, or the round before
            still_open = np.flatnonzero(self.status == PointStatus.OPEN)
            if len(still_open):
                self.evaluate(self._promising(still_open))
                still_open = np.flatnonzero(self.status == PointStatus.OPEN)
            on_progress(before - len(still_open))

    def prune_below(self, objective: Objective, value: float) -> None:
        """Close the open points that do not reach ``value``."""
        low = self.objective_bound(objective) < value * (1.0 - ROUNDING)
        self.status[low & (self.status == PointStatus.OPEN)] = PointStatus.PRUNED

    def best_evaluated(self, objective: Objective) -> int | None:
        """The best of the points that were evaluated, of equally good ones as ``best``; None: none
        is feasible."""
        values = self.objective(objective)
        return (
            int(np.lexsort((self.energy_j, self.area_mm2, -values))[0])
            if np.isfinite(values.max())
            else None
        )

    def objective(self, objective: Objective) -> FloatArray:
        """Value of every evaluated point under ``objective``, that of the search where devices are
        bought; -inf elsewhere."""
        throughput = self.batch_samples / (self.iteration_s * self.weights)
        value = self.figures.value(objective, throughput, self.energy_j, self.sample_tokens)
        return np.where(self.status == PointStatus.EVALUATED, value, -np.inf)

    def objective_bound(self, objective: Objective) -> FloatArray:
        """Upper bound under ``objective``, exact where evaluated and proven; -inf where
        infeasible."""
        throughput = self.throughput_bound
        value = self.figures.value(objective, throughput, self.least_j, self.sample_tokens)
        return np.where(throughput > 0.0, value, -np.inf)

    @property
    def bought_values(self) -> tuple[FloatArray, ...]:
        """The objective of the search and its bounds where devices are bought, 0 where there is
        none: shapes (points,)."""
        if self.figures.purchase is None:
            return ()
        every = (
            self.objective(self.criteria.objective),
            self.objective_bound(self.criteria.objective),
        )
        return tuple(np.where(np.isfinite(each), each, 0.0) for each in every)

    def best(self, objective: Objective) -> int | None:
        """The best point, of equally good ones that of the smallest area, least energy and lowest
        index; None: none is feasible.

        Whatever might be as good is evaluated first: which points a search had evaluated, or an
        earlier run, does not matter."""
        while True:
            values = self.objective(objective)
            unknown = (self.status == PointStatus.OPEN) | (self.status == PointStatus.PRUNED)
            if not self.criteria.decides(objective):
                unknown |= self.status == PointStatus.DOMINATED
            bounds = self.objective_bound(objective)
            rivals = np.flatnonzero(
                unknown & np.isfinite(bounds) & (bounds >= values.max() * (1.0 - ROUNDING))
            )
            if not len(rivals):
                best = self.best_evaluated(objective)
                if best is None:
                    return None
                enough = float(values[best]) * (1.0 - ROUNDING)
                if not self.evaluate_smaller(
                    objective, enough, float(self.area_mm2[best]), float(self.energy_j[best])
                ):
                    return best
                continue
            self.evaluate(rivals[np.argsort(-bounds[rivals], kind="stable")][:ROUND_LIMIT])

    def evaluate_smaller(
        self, objective: Objective, enough: float, area_mm2: float, energy_j: float
    ) -> bool:
        """Evaluate what is dominated and might reach ``enough`` on a smaller chip, or with less
        energy, until a point does.

        Dominance asks for what is pursued alone: what it pruned may be as good where what it is
        slower in does not matter. Returns whether a point reaches it, which is not always the
        smallest that does."""
        if self.criteria.breaks_ties:
            return False
        preferred = (self.area_mm2 < area_mm2) | (
            (self.area_mm2 == area_mm2) & (self.energy_j < energy_j)
        )
        while True:
            pruned = preferred & (self.status == PointStatus.DOMINATED)
            points = np.flatnonzero(pruned & (self.objective_bound(objective) >= enough))
            if not len(points):
                return False
            of_shape = points // self.configurations
            if self._any_reaches(points[of_shape == of_shape[0]], objective, enough):
                return True

    def undominated_bound(self, objective: Objective) -> FloatArray:
        """``objective_bound`` without what is dominated under its shape, which is never better than
        what dominates it."""
        bound = self.objective_bound(objective)
        return (
            np.where(self.status == PointStatus.DOMINATED, -np.inf, bound)
            if self.criteria.decides(objective)
            else bound
        )

    def is_best(self, point: int, objective: Objective) -> bool:
        """Whether no plan on any configuration can be better than that of ``point``."""
        bound = self.undominated_bound(objective).max()
        return bool(self.objective(objective)[point] >= bound * (1.0 - PROVEN))

    def plan(self, point: int) -> UniformPlan:
        """The best plan of an evaluated point, with its stages."""
        if point not in self._plans:
            self.evaluated(point)
        return self._plans[point]

    def counted_s(self, point: int, found: Evaluated) -> float:
        """What the seconds of the best plan of one point count."""
        _, shape = self.locate(point)
        return found.iteration_s * self._point_plans.weight(
            point, shape.plan.inner_devices * found.dp * found.pp
        )

    def _close_dominated(self, figures: ChipFigures) -> None:
        """Close what another configuration dominates under the same shape."""
        if self.configurations == 1:
            return
        for place, shape in enumerate(self.shapes):
            if not self._fits[place]:
                continue
            found = shape_dominators(shape, figures, self.held, self.criteria)
            first = place * self.configurations
            self.dominator[first : first + self.configurations] = np.where(
                found < 0, -1, found + first
            )

    def _bounds(self, asked: BoolArray) -> FloatArray:
        """Least seconds of every point that is ``asked``, shape (points,); infinite elsewhere."""
        bounds = np.full(len(self.status), np.inf)
        for place in range(len(self.shapes)):
            first = place * self.configurations
            for row in np.flatnonzero(asked[first : first + self.configurations]).tolist():
                bounds[first + row] = self.least_seconds(first + row)
            for part in self.shapes[place].parts if len(self.shapes) > MANY_SHAPES else ():
                part.forget()
        return bounds

    def _any_reaches(self, points: IntArray, objective: Objective, enough: float) -> bool:
        """Whether one of ``points``, dominated ones of one shape that none of them is faster than,
        reaches ``enough``.

        Those that do not bound the slower ones among ``points``."""
        columns = plan_columns(self.locate(int(points[0]))[1], self._chips, self.rows(points))
        for place in np.flatnonzero(dominators(columns) < 0).tolist():
            alike = points[(columns == columns[place]).all(axis=1)]
            # The smallest, and so an array
            point = alike[np.lexsort((self.energy_j[alike], self.area_mm2[alike]))[:1]]
            slower = points[(columns >= columns[place]).all(axis=1)]
            self._bound_by_themselves(slower, self.least_seconds(int(point[0])))
            if self.objective_bound(objective)[point[0]] < enough:
                continue
            self.evaluate(point)
            if self.objective(objective)[point[0]] >= enough:
                return True
            self._bound_by_themselves(slower, float(self.least_s[point[0]]))
        return False

    def _bound_by_themselves(self, points: IntArray, least_s: float) -> None:
        self._own_bound_s[points] = np.maximum(self._own_bound_s[points], least_s)

    def _promising(self, still_open: IntArray) -> IntArray:
        """What to evaluate next: what might be on the front and, unless the best is there too, what
        might be it."""
        front = (
            still_open[nondominated(self._values(still_open))]
            if self.criteria.front
            else still_open[:0]
        )
        chosen = front[np.argsort(self.bound_s[front], kind="stable")][:ROUND_LIMIT]
        if self.criteria.front_decides:
            return chosen
        bound = self.objective_bound(self.criteria.objective)[still_open]
        return np.union1d(chosen, still_open[np.argsort(-bound, kind="stable")[:OF_OBJECTIVE]])

    def _values(self, points: IntArray) -> Values:
        return self.criteria.values(
            self.figures.some(points), self.least_j[points], self.throughput_bound[points]
        )

    def _prune(self) -> None:
        known = np.flatnonzero(self.status == PointStatus.EVALUATED)
        if not len(known):
            return
        still_open = np.flatnonzero(self.status == PointStatus.OPEN)
        pruned = np.ones(len(still_open), dtype=np.bool_)
        if self.criteria.front:
            counted_s = self.iteration_s[known] * self.weights[known]
            # Found, which an unproven point's bound may be above
            throughput = self.batch_samples / counted_s
            evaluated = self.criteria.values(
                self.figures.some(known), self.energy_j[known], throughput
            )
            pruned &= dominated_by(self._values(still_open), evaluated[nondominated(evaluated)])
        if not self.criteria.front_decides:
            objective = self.criteria.objective
            pruned &= self.objective_bound(objective)[still_open] <= self.objective(objective).max()
        self.status[still_open[pruned]] = PointStatus.PRUNED

    def _fill(self, batch: StoredPoints) -> None:
        feasible = np.isfinite(batch.iteration_s)
        self.status[batch.points] = np.where(
            feasible, PointStatus.EVALUATED, PointStatus.INFEASIBLE
        )
        self.iteration_s[batch.points] = batch.iteration_s
        self.least_s[batch.points] = batch.least_s
        self.memory_bytes[batch.points] = batch.memory_bytes
        self.dp[batch.points], self.pp[batch.points] = batch.dp, batch.pp
        inner = self._inner_devices[batch.points // self.configurations]
        weights = self.figures.weights(
            self.criteria.objective, batch.points, inner * batch.dp * batch.pp
        )
        if weights is not None:
            self.weights[batch.points] = weights
