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

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np

from Estimator.plans.degrees import UniformPlan
from phaze_common.array_types import BoolArray, FloatArray, IntArray
from Solver.best_first import PROVEN, ROUNDING, best_first
from Solver.chip_metrics import ChipMetrics
from Solver.designs.costs import MANY_SHAPES, ModelShapes, Shape
from Solver.designs.dominance import dominators
from Solver.designs.point_plans import NOTHING_FITS, Evaluated, PointPlans
from Solver.designs.point_store import PointStore, StoredPoints
from Solver.designs.search_context import SearchContext
from Solver.designs.search_criteria import USUAL, SearchCriteria
from Solver.designs.shape_dominance import plan_columns, sample_joules_of, shape_dominators
from Solver.pareto import Values, dominated_by, nondominated
from Solver.plans.best_plan import BestPlan
from Solver.plans.shape_plans import ShapePlans
from Solver.problem import Objective

# Points evaluated at once because of what they may reach under the objective alone
OF_OBJECTIVE = 4
ROUND_LIMIT = 512  # points evaluated between two prunings, which is also what a killed run can lose


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
    (``ChipMetrics.weights``): so count ``bound_s``, ``least_s`` and throughputs that bounds and
    values are made of. ``iteration_s`` are the seconds of the plan itself, ``weights`` what they
    count."""

    def __init__(
        self,
        shapes: ModelShapes,
        memory_bytes: int,
        metrics: ChipMetrics,
        store: PointStore,
        larger_memory: PointGroup | None = None,
        most_steps: int | None = None,
        criteria: SearchCriteria = USUAL,
    ) -> None:
        """``most_steps`` as of ``ConfigurationPlans.best``."""
        self.key = PointKey(shapes.model.name, shapes.micro_batch_size, memory_bytes)
        self.shapes, self.pruned_shapes = tuple(shapes.shapes), shapes.pruned_shapes
        self.batch_samples = shapes.model.space.base.global_batch_size
        self.sample_tokens, self.criteria = shapes.model.space.sequence_length, criteria
        self.configurations, self.chips, self._store = len(metrics), metrics, store
        self.metrics = metrics.some(np.tile(np.arange(len(metrics)), len(self.shapes)))
        self.area_mm2, self.held = self.metrics.area_mm2, metrics.holding(memory_bytes)
        if not self.held.all() or (larger_memory is not None and not larger_memory.held.all()):
            larger_memory = None  # others hold as much
        self._larger_memory = larger_memory
        count = self.configurations
        joules, least_j = (
            [sample_joules_of(each, count, least=least) for each in self.shapes]
            for least in (False, True)
        )
        self.energy_j, self.least_j = np.concatenate(joules), np.concatenate(least_j)
        parts = (part for shape in self.shapes for part in shape.parts)
        self.omitted = next((part.plans.stages.lattice.omitted for part in parts), "")
        count = self.configurations * len(self.shapes)
        self.dominator = np.full(count, -1, dtype=np.int64)
        self.status = np.full(count, PointStatus.OPEN, dtype=np.int8)
        self.iteration_s, self.least_s = np.full((2, count), np.inf)
        self._own_bound_s = np.zeros(count)  # of what is dominated, as far as it was asked
        self.weights, self.memory_bytes = np.ones(count), np.zeros(count)
        self.dp, self.pp = np.zeros((2, count), dtype=np.int64)
        self._plans: dict[int, UniformPlan] = {}
        self._point_plans = PointPlans(
            self.shapes, self.metrics, criteria.objective, memory_bytes, most_steps
        )
        inner = [shape.plan.inner_devices for shape in self.shapes]
        self._inner_devices = np.repeat(np.array(inner, np.int64), self.configurations)
        self._fits = [shape.fits(memory_bytes) for shape in self.shapes]
        held = np.tile(self.held, len(self.shapes))
        feasible, self.absent = np.repeat(self._fits, self.configurations) & held, ~held
        if larger_memory is None:
            self._find_dominated()
            self.bound_s = store.bounds((self.dominator < 0) & feasible, self._bounds)
        else:
            self.dominator, self.bound_s = larger_memory.dominator, larger_memory.bound_s.copy()
        self.status[self.dominator >= 0] = PointStatus.DOMINATED
        if metrics.caps is not None:
            needed = [shape.least_devices for shape in self.shapes]
            feasible &= np.concatenate([each <= metrics.caps for each in needed])
        self.status[~feasible] = PointStatus.INFEASIBLE
        for stored in store.load():
            self._fill(stored)

    @classmethod
    def of(
        cls,
        context: SearchContext,
        shapes: ModelShapes,
        memory_bytes: int,
        store: PointStore | None = None,
        larger_memory: PointGroup | None = None,
        most_steps: int | None = None,
    ) -> PointGroup:
        """The points of all shapes of a model with one micro-batch size and ``memory_bytes``."""
        metrics, criteria = context.hardware.metrics, SearchCriteria.of(context.problem)
        store = PointStore(None) if store is None else store
        return cls(shapes, memory_bytes, metrics, store, larger_memory, most_steps, criteria)

    @property
    def throughput_bound(self) -> FloatArray:
        """Upper bound on samples per second, exact where proven, 0 where infeasible; (points,)."""
        evaluated, dominated = (
            self.status == each for each in (PointStatus.EVALUATED, PointStatus.DOMINATED)
        )
        bound_s = np.where(evaluated, self.least_s, self.bound_s)
        bound_s[dominated] = 0.0
        bound_s[self.status == PointStatus.INFEASIBLE] = np.inf
        followers = np.flatnonzero(self.dominator >= 0)
        of_others = np.maximum(bound_s[self.dominator[followers]], self._own_bound_s[followers])
        bound_s[followers] = np.maximum(bound_s[followers], of_others)
        found_s = self.iteration_s[evaluated] * self.weights[evaluated]
        bound_s[evaluated] = np.minimum(bound_s[evaluated], found_s)
        bound: FloatArray = self.batch_samples / bound_s
        return bound

    @property
    def owned_devices(self) -> IntArray:
        """Devices of the cluster or, where they are bought, of the best plans known; (points,)."""
        if self.metrics.purchase is None:
            return np.full(len(self.status), self.metrics.devices)
        return self._inner_devices * self.dp * self.pp

    @property
    def fastest_bound(self) -> FloatArray:
        """Samples per second that no plan of a point exceeds, whatever it counts; (points,)."""
        bound, metrics = self.throughput_bound, self.metrics
        if metrics.caps is None:
            return bound
        # No plan counts more.
        most = metrics.weights(self.criteria.objective, np.arange(len(bound)), metrics.caps)
        assert most is not None  # as there are caps
        return bound * most

    @property
    def stored_as(self) -> str:
        """Content key of everything that decides its points; empty where nothing is stored."""
        return self._store.name

    def rows(self, points: IntArray) -> IntArray:
        """Configurations of ``points``."""
        return points % self.configurations

    def locate(self, point: int) -> tuple[int, Shape]:
        """Configuration and shape of one point."""
        return self._point_plans.locate(point)

    def least_seconds(self, points: IntArray) -> FloatArray:
        """Seconds that no plan of each of ``points`` is below; infinite where none fits."""
        return self._point_plans.least_seconds(points)

    def solved(self, point: int) -> list[tuple[ShapePlans, BestPlan]]:
        """What became of every plan of a point, part by part of its shape."""
        return self._point_plans.solved(point)

    def evaluated(self, points: IntArray) -> list[Evaluated]:
        """The best plan of each of ``points``, whatever its status, which stays as it is."""
        known = [self._with_larger_memory(point) for point in points.tolist()]
        unknown = np.array([each is None for each in known], np.bool_)
        found = iter(
            zip(points[unknown].tolist(), self._point_plans.best(points[unknown]), strict=True)
        )
        every = []
        for each in known:
            if each is None:
                point, (each, plan) = next(found)
                if plan is not None:
                    self._plans[point] = plan
            every.append(each)
        return every

    def _with_larger_memory(self, point: int) -> Evaluated | None:
        """The best plan of a point with more memory, where it is as good here."""
        larger = self._larger_memory
        if larger is None:
            return None
        if larger.status[point] == PointStatus.INFEASIBLE:
            return NOTHING_FITS
        if (
            larger.status[point] != PointStatus.EVALUATED
            or larger.memory_bytes[point] > self.key.memory_bytes
        ):
            return None
        self._plans[point] = larger.plan(point)
        columns = larger.iteration_s, larger.least_s, larger.memory_bytes, larger.dp, larger.pp
        return Evaluated(*(each[point].item() for each in columns))

    def evaluate(self, points: IntArray) -> int:
        """Find and store the best plans of ``points`` that have none yet; how many there were."""
        known = (PointStatus.EVALUATED, PointStatus.INFEASIBLE)
        unknown = points[~np.isin(self.status[points], known)]
        if len(unknown):
            results = self.evaluated(unknown)
            names = [field.name for field in fields(Evaluated)]
            columns = {name: np.array([getattr(each, name) for each in results]) for name in names}
            batch = StoredPoints(points=unknown, **columns)
            self._store.append(batch)
            self._fill(batch)
        return len(unknown)

    def explore(self, on_progress: Callable[[int], None]) -> None:
        """Evaluate or prune every open point; ``on_progress`` gets how many since its last call."""
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
        """Prune the open points that do not reach ``value``."""
        low = self.objective_bound(objective) < value * (1.0 - ROUNDING)
        self.status[low & (self.status == PointStatus.OPEN)] = PointStatus.PRUNED

    def best_evaluated(self, objective: Objective) -> int | None:
        """The best of the evaluated points, ties as of ``best``; None: none is feasible."""
        values = self.objective(objective)
        if not np.isfinite(values.max()):
            return None
        return int(np.lexsort((self.energy_j, self.area_mm2, -values))[0])

    def objective(self, objective: Objective) -> FloatArray:
        """Value of every evaluated point, of the search's objective if bought; -inf elsewhere."""
        throughput = self.batch_samples / (self.iteration_s * self.weights)
        value = self.metrics.value(objective, throughput, self.energy_j, self.sample_tokens)
        return np.where(self.status == PointStatus.EVALUATED, value, -np.inf)

    def objective_bound(self, objective: Objective) -> FloatArray:
        """Upper bound under ``objective``, exact where proven; -inf where infeasible."""
        throughput = self.throughput_bound
        value = self.metrics.value(objective, throughput, self.least_j, self.sample_tokens)
        return np.where(throughput > 0.0, value, -np.inf)

    @property
    def bought_values(self) -> tuple[FloatArray, ...]:
        """The objective and its bounds where devices are bought, 0: there is none; (points,)."""
        if self.metrics.purchase is None:
            return ()
        objective = self.criteria.objective
        every = self.objective(objective), self.objective_bound(objective)
        return tuple(np.where(np.isfinite(each), each, 0.0) for each in every)

    def best(self, objective: Objective) -> int | None:
        """The best point, of equally good ones that of the smallest area, least energy and lowest
        index; None: none is feasible.

        Whatever might be as good is evaluated first: which points a search had evaluated, or an
        earlier run, does not matter."""
        points, level = np.arange(len(self.status)), _Unevaluated(self, objective)
        while True:
            best_first(points, [level], level.incumbent, at_once=ROUND_LIMIT)
            best = self.best_evaluated(objective)
            if best is None:
                return None
            area_mm2, energy_j = float(self.area_mm2[best]), float(self.energy_j[best])
            if not self.evaluate_smaller(objective, level.incumbent(), area_mm2, energy_j):
                return best

    def evaluate_smaller(
        self, objective: Objective, threshold: float, area_mm2: float, energy_j: float
    ) -> bool:
        """Evaluate what is dominated and might reach ``threshold`` on a smaller chip, or with less
        energy, until a point does.

        Dominance asks for the search's criteria alone: what it pruned may be as good where what it
        is slower in does not matter. Returns whether a point reaches it, which is not always the
        smallest that does."""
        if self.criteria.breaks_ties:
            return False
        as_small = (self.area_mm2 == area_mm2) & (self.energy_j < energy_j)
        preferred = (self.area_mm2 < area_mm2) | as_small
        while True:
            pruned = preferred & (self.status == PointStatus.DOMINATED)
            points = np.flatnonzero(pruned & (self.objective_bound(objective) >= threshold))
            if not len(points):
                return False
            of_shape = points // self.configurations
            if self._any_reaches(points[of_shape == of_shape[0]], objective, threshold):
                return True

    def undominated_bound(self, objective: Objective) -> FloatArray:
        """``objective_bound`` without what is dominated, which is never better."""
        bound = self.objective_bound(objective)
        if self.criteria.decides(objective):
            bound[self.status == PointStatus.DOMINATED] = -np.inf
        return bound

    def is_best(self, point: int, objective: Objective) -> bool:
        """Whether no plan on any configuration can be better than that of ``point``."""
        bound = self.undominated_bound(objective).max()
        return bool(self.objective(objective)[point] >= bound * (1.0 - PROVEN))

    def plan(self, point: int) -> UniformPlan:
        """The best plan of an evaluated point, with its stages."""
        if point not in self._plans:
            self.evaluated(np.array([point]))
        return self._plans[point]

    def counted_s(self, point: int, found: Evaluated) -> float:
        """What the seconds of the best plan of one point count."""
        devices = int(self._inner_devices[point]) * found.dp * found.pp
        return found.iteration_s * self._point_plans.weight(point, devices)

    def _find_dominated(self) -> None:
        for place, shape in enumerate(self.shapes if self.configurations > 1 else ()):
            if self._fits[place]:
                found = shape_dominators(shape, self.chips, self.held, self.criteria)
                first = place * self.configurations
                mine = np.where(found < 0, -1, found + first)
                self.dominator[first : first + self.configurations] = mine

    def _bounds(self, asked: BoolArray) -> FloatArray:
        """Least seconds of every point that is ``asked``, shape (points,); infinite elsewhere."""
        bounds = np.full(len(self.status), np.inf)
        for place, shape in enumerate(self.shapes):
            first = place * self.configurations
            here = first + np.flatnonzero(asked[first : first + self.configurations])
            bounds[here] = self.least_seconds(here)
            for part in shape.parts if len(self.shapes) > MANY_SHAPES else ():
                part.forget()
        return bounds

    def _any_reaches(self, points: IntArray, objective: Objective, threshold: float) -> bool:
        """Whether one of ``points``, dominated ones of one shape that none of them is faster than,
        reaches ``threshold``.

        Those that do not bound the slower ones among ``points``."""
        columns = plan_columns(self.locate(int(points[0]))[1], self.chips, self.rows(points))
        for place in np.flatnonzero(dominators(columns) < 0).tolist():
            alike = points[(columns == columns[place]).all(axis=1)]
            # The smallest, and so an array
            point = alike[np.lexsort((self.energy_j[alike], self.area_mm2[alike]))[:1]]
            slower = points[(columns >= columns[place]).all(axis=1)]
            self._bound_by_themselves(slower, self.least_seconds(point).item())
            if self.objective_bound(objective)[point[0]] < threshold:
                continue
            self.evaluate(point)
            if self.objective(objective)[point[0]] >= threshold:
                return True
            self._bound_by_themselves(slower, float(self.least_s[point[0]]))
        return False

    def _bound_by_themselves(self, points: IntArray, least_s: float) -> None:
        self._own_bound_s[points] = np.maximum(self._own_bound_s[points], least_s)

    def _promising(self, still_open: IntArray) -> IntArray:
        """What might be on the front and, unless that holds the best too, what might be it."""
        front = still_open[:0]
        if self.criteria.front:
            front = still_open[nondominated(self._values(still_open))]
        chosen = front[np.argsort(self.bound_s[front], kind="stable")][:ROUND_LIMIT]
        if self.criteria.front_decides:
            return chosen
        bound = self.objective_bound(self.criteria.objective)[still_open]
        return np.union1d(chosen, still_open[np.argsort(-bound, kind="stable")[:OF_OBJECTIVE]])

    def _values(self, points: IntArray) -> Values:
        metrics, throughput = self.metrics.some(points), self.throughput_bound[points]
        return self.criteria.values(metrics, self.least_j[points], throughput)

    def _prune(self) -> None:
        known = np.flatnonzero(self.status == PointStatus.EVALUATED)
        if not len(known):
            return
        still_open = np.flatnonzero(self.status == PointStatus.OPEN)
        pruned, criteria = np.ones(len(still_open), dtype=np.bool_), self.criteria
        if criteria.front:
            # Found, which an unproven point's bound may be above
            throughput = self.batch_samples / (self.iteration_s[known] * self.weights[known])
            evaluated = criteria.values(self.metrics.some(known), self.energy_j[known], throughput)
            pruned &= dominated_by(self._values(still_open), evaluated[nondominated(evaluated)])
        if not criteria.front_decides:
            incumbent = self.objective(criteria.objective).max()
            pruned &= self.objective_bound(criteria.objective)[still_open] <= incumbent
        self.status[still_open[pruned]] = PointStatus.PRUNED

    def _fill(self, batch: StoredPoints) -> None:
        points, feasible = batch.points, np.isfinite(batch.iteration_s)
        self.status[points] = np.where(feasible, PointStatus.EVALUATED, PointStatus.INFEASIBLE)
        for name in (field.name for field in fields(Evaluated)):
            getattr(self, name)[points] = getattr(batch, name)
        devices = self._inner_devices[points] * batch.dp * batch.pp
        weights = self.metrics.weights(self.criteria.objective, points, devices)
        if weights is not None:
            self.weights[points] = weights


@dataclass(frozen=True)
class _Unevaluated:
    """Points that might be the best and are not evaluated: a ``Level`` of ``best_first``."""

    group: PointGroup
    objective: Objective
    deferred = False

    def bound(self, candidates: IntArray) -> FloatArray:
        group = self.group
        waits = (group.status == PointStatus.OPEN) | (group.status == PointStatus.PRUNED)
        if not group.criteria.decides(self.objective):
            waits |= group.status == PointStatus.DOMINATED
        return np.where(waits, group.objective_bound(self.objective), -np.inf)[candidates]

    def incumbent(self) -> float:
        """What a point reaches that might be as good as the best one evaluated."""
        return float(self.group.objective(self.objective).max()) * (1.0 - ROUNDING)

    def refine(self, candidates: IntArray) -> int:
        return self.group.evaluate(candidates)
