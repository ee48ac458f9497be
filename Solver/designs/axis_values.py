"""The best design that has each value of each axis of the accelerator, everything else chosen anew,
exactly.

The search does not say it: a design that is the best with its value may be dominated by one with
another value. So dominance is asked again among the designs with each value, in what the objective
depends on, and what it leaves is evaluated best first, under the bounds that the search has and
tighter ones where these do not suffice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from Estimator.chips.accelerator import Accelerator
from Estimator.chips.own_links import own_links
from Estimator.plans.results import Status
from phaze_common.array_types import BoolArray, FloatArray, IntArray
from Solver.best_first import PROVEN, ROUNDING, Once, best_first
from Solver.designs.chip_axes import AXES, axis_column
from Solver.designs.evaluated_points import ModelPoints, PointsOfModels, undominated_rows
from Solver.designs.joint import Choice, JointOptimum
from Solver.designs.points import PointGroup
from Solver.designs.re_solve import priced
from Solver.designs.search_context import RemainingSpace, SearchContext
from Solver.hardware import DesignedChips
from Solver.plan_report import PlanSummary
from Solver.results import AxisScope, AxisValue, AxisValues, DesignPoint

MOST_EVALUATED = 256  # points of one value: so many are asked only where schedules resist a proof
# Accelerators of one value whose schedules get a larger node limit at once, and how often
PRICED_AGAIN, MOST_ROUNDS = 64, 4
MEMORY = "hbm_bytes"


def accelerator_axes(
    context: SearchContext, groups: Sequence[PointGroup], per_memory: Sequence[DesignPoint]
) -> tuple[AxisValues, ...]:
    """Every axis of the accelerator that has several values, and the memory if it has, with the
    best design of each value.

    ``groups`` are those of the search, whose points stay as they are, ``per_memory`` its best
    designs, one of which is the best of all. None where the hardware is a device that exists."""
    hardware, sizes = context.hardware, context.problem.memory_bytes
    if not isinstance(hardware, DesignedChips) or not per_memory:
        return ()
    best = max(per_memory, key=lambda point: point.value)
    designs = Designs.of(context, groups)
    if context.remaining is not None:
        return tuple(_axes_of_remaining(context, context.remaining, best, designs))
    columns = {axis: np.array(axis_column(hardware, axis)) for axis in axes_of(hardware)}
    distinct = {
        axis: _in_order(axis, np.unique(column).tolist()) for axis, column in columns.items()
    }
    found: list[AxisValues] = []
    label = "best design of every value of the axes"
    with context.progress.phase(label, sum(map(len, distinct.values()))) as advance:
        for axis, column in columns.items():
            values, chosen = [], _chosen(hardware, best, axis)
            for value in distinct[axis]:
                if value == chosen:
                    values.append(_of_design(str(value), best))
                else:
                    values.append(designs.best(str(value), np.flatnonzero(column == value)))
                advance(1)
            found.append(_axis_values(axis, chosen, values))
    if len(sizes) > 1 and hardware.metrics.memory_bytes is None:
        points = {point.hbm_bytes: point for point in per_memory}
        values = [
            _of_design(str(size), points[size]) if size in points else nothing_fits(str(size), size)
            for size in sorted(sizes)
        ]
        found.append(_axis_values(MEMORY, best.hbm_bytes, values))
    return tuple(found)


def _axis_values(
    axis: str, chosen: int | str, values: Sequence[AxisValue], there_are: int | None = None
) -> AxisValues:
    count = len(values) if there_are is None else there_are
    return AxisValues(axis, None, str(chosen), count, tuple(values), AxisScope.DESIGNS)


def nothing_fits(value: str, hbm_bytes: int) -> AxisValue:
    """What is said of a ``value`` with which no plan fits in memory."""
    return AxisValue(value, Status.INFEASIBLE, 0.0, 0.0, None, hbm_bytes, {})


def _axes_of_remaining(
    context: SearchContext, remaining: RemainingSpace, best: DesignPoint, designs: Designs
) -> Iterator[AxisValues]:
    """The same where bounds pruned most of the space: values that are left, with the best design
    known of each.

    What none with a value exceeds is told by the bounds of all chips of the space; nothing where a
    part of it is not known."""
    hardware, bounds = context.hardware, remaining.axis_bounds
    assert isinstance(hardware, DesignedChips)
    for axis in bounds.several if remaining.pruned_bound < np.inf else ():
        column, chosen = np.array(axis_column(hardware, axis)), _chosen(hardware, best, axis)
        values = []
        for value in np.unique(column).tolist():
            rows = np.flatnonzero(column == value)
            upper = bounds.most[axis][str(value)]
            if value == chosen:
                values.append(_of_design(str(value), best))
            elif (known := designs.evaluated(str(value), rows, upper)) is not None:
                values.append(known)
        yield _axis_values(axis, chosen, values, len(bounds.most[axis]))


def axes_of(hardware: DesignedChips) -> tuple[str, ...]:
    """Fields with several values; vector cores as wide as tensor cores are no axis of their own."""
    chips = hardware.accelerators
    tied = bool(np.array_equal(chips.width, chips.width_vc))
    several = (name for name in AXES if len(set(axis_column(hardware, name))) > 1)
    return tuple(name for name in several if not (tied and name == "width_vc"))


def _chosen(hardware: DesignedChips, best: DesignPoint, axis: str) -> int | str:
    assert best.accelerator is not None
    return axis_column(hardware.only([best.accelerator]), axis)[0]


def _in_order(axis: str, values: list[int | str]) -> list[int | str]:
    bandwidth = {
        each: own_links(str(each)).bandwidth_bytes_per_s if each != "None" else 0.0
        for each in (values if axis == "links" else ())
    }
    return sorted(values, key=bandwidth.__getitem__) if bandwidth else values


def _of_design(value: str, point: DesignPoint) -> AxisValue:
    open_bound = point.certificate.best_open_bound if point.certificate is not None else None
    bound = point.value if point.optimal else max(point.value, open_bound or 0.0)
    plans = {
        name: PlanSummary.of(plan, plan.throughput_samples_per_s)
        for name, plan in point.models.items()
    }
    return AxisValue(
        value, point.status, point.value, bound, point.accelerator, point.hbm_bytes, plans
    )


@dataclass(eq=False)
class _PricedAgain:
    """What is known once some chips were priced again: the best optimum that was better than what
    was known and its chip, and what none of the chips exceeds."""

    optimum: JointOptimum | None = None
    chip: Accelerator | None = None
    ceiling: float = -np.inf

    def reached(self, before: float) -> float:
        """What the best design reaches, where it reached ``before``."""
        return before if self.optimum is None else self.optimum.value


@dataclass(frozen=True, eq=False)
class Designs:
    """All designs of the search of ``context`` with as much memory as they may have."""

    context: SearchContext
    models: Sequence[ModelPoints]

    @classmethod
    def of(cls, context: SearchContext, groups: Sequence[PointGroup]) -> Designs:
        """Those that ``groups`` are about."""
        problem, own = context.problem, context.hardware.metrics.memory_bytes is not None
        largest = max(problem.memory_bytes)
        mine = [group for group in groups if own or group.key.memory_bytes == largest]
        by_model = (
            [group for group in mine if group.key.model == model.name] for model in problem.models
        )
        return cls(context, [ModelPoints(each, problem.objective) for each in by_model])

    def best(self, value: str, rows: IntArray) -> AxisValue:
        """The best design on the configurations ``rows``, which are those with ``value``."""
        points = self._points(rows)

        def incumbent() -> float:
            return float(np.nextafter(points.found.max() * (1.0 + ROUNDING), np.inf))

        places = np.arange(len(rows))
        best_first(places, [points], incumbent, most_evaluations=MOST_EVALUATED)
        upper = points.upper
        reached, ceiling = float(points.found.max()), float(upper.max())
        if ceiling > reached * (1.0 + PROVEN):
            again = self._priced_again(rows, upper, reached)
            ceiling = max(again.ceiling, reached)
            if again.optimum is not None:
                best = again.optimum.value
                choices = [again.optimum.choices[model.name] for model in self.models]
                return self._value(value, again.chip, choices, best, max(best, ceiling))
        if np.isinf(reached):
            return nothing_fits(value, max(self.context.problem.memory_bytes))
        row, choices = self._smallest(points, reached)
        return self._value(value, self.context.hardware.accelerator(row), choices, reached, ceiling)

    def evaluated(self, value: str, rows: IntArray, upper: float) -> AxisValue | None:
        """The best design found on ``rows``, where none exceeds ``upper``; None: none found."""
        masks = [np.ones((len(model.upper), len(rows)), np.bool_) for model in self.models]
        points = PointsOfModels(self.models, rows, masks, self.context.problem.combination)
        found = points.found
        place = int(found.argmax())
        if np.isneginf(found[place]):
            return None
        chip = self.context.hardware.accelerator(int(rows[place]))
        return self._value(value, chip, points.choices(place), float(found[place]), upper)

    def _points(self, rows: IntArray) -> PointsOfModels:
        masks = self._candidates(rows)
        return PointsOfModels(self.models, rows, masks, self.context.problem.combination)

    def _smallest(self, points: PointsOfModels, reached: float) -> tuple[int, list[Choice]]:
        """The smallest of the configurations of ``points`` that reach ``reached``, with its points.

        What reaches it was looked for among those that none is faster than, of whatever size: so it
        is looked for again among the smaller ones, until none of them can."""
        area_mm2 = self.context.hardware.metrics.area_mm2
        threshold = reached * (1.0 - ROUNDING)
        while True:
            ties = np.flatnonzero(points.found >= threshold)
            areas = area_mm2[points.rows[ties]]
            place = int(ties[np.lexsort((points.energy_j(ties), areas))[0]])
            row, choices = int(points.rows[place]), points.choices(place)
            rows = points.rows[area_mm2[points.rows] < area_mm2[row]]
            if not len(rows):
                return row, choices
            points = self._points(rows)
            if not self._reaches(points, threshold):
                return row, choices

    def _reaches(self, points: PointsOfModels, threshold: float) -> bool:
        """Whether a configuration does, evaluating points best first until one does or none can."""

        def incumbent() -> float:
            return np.inf if (points.found >= threshold).any() else threshold

        every = np.arange(len(points.rows))
        best_first(every, [points], incumbent, most_evaluations=MOST_EVALUATED)
        return bool((points.found >= threshold).any())

    def _candidates(self, rows: IntArray) -> list[BoolArray]:
        """Per model, which points could matter: shape (shapes, rows). What nothing fits never does.

        Of one model those that no other with the same shape dominates; of several the
        configurations that none dominates under all shapes, since what one model's best dominates
        may be the best for all."""
        masks = [np.zeros((len(model.upper), len(rows)), np.bool_) for model in self.models]
        for size in self.models[0].sizes:
            fitting = [model.fitting_in(size) for model in self.models]
            mine = np.flatnonzero(self.models[0].held(size)[rows])
            if len(self.models) == 1:
                for shape in fitting[0]:
                    masks[0][shape, mine] = undominated_rows([(self.models[0], shape)], rows[mine])
                continue
            models = zip(self.models, fitting, strict=True)
            every = [(model, shape) for model, shapes in models for shape in shapes]
            if every:
                undominated = undominated_rows(every, rows[mine])
                for mask, shapes in zip(masks, fitting, strict=True):
                    mask[np.ix_(np.array(shapes, dtype=np.int64), mine)] = undominated
        return masks

    def _priced_again(self, rows: IntArray, upper: FloatArray, reached: float) -> _PricedAgain:
        """Look for chips of ``rows`` better than ``reached``, with schedules as good as a search's.

        ``upper`` (rows,) is what none of them exceeds; the nearest are priced first."""
        context, hardware, found = self.context, self.context.hardware, _PricedAgain()
        alone = self.models[0] if len(self.models) == 1 else None
        if not isinstance(hardware, DesignedChips):
            return _PricedAgain(ceiling=float(upper.max()))

        def price(places: IntArray) -> None:
            few = rows[places]
            shapes = None if alone is None else alone.exceeding(found.reached(reached), few)
            chips = priced(context, hardware.some_as_priced(few), chosen=shapes)
            optimum = chips.best_optimum()
            if optimum is None:
                return
            bound = optimum.value if optimum.proven else optimum.best_open_bound or np.inf
            found.ceiling = max(found.ceiling, bound)
            if optimum.value > found.reached(reached) * (1.0 + ROUNDING):
                chip = chips.context.hardware.accelerator(optimum.row)
                found.optimum, found.chip = optimum, chip

        certificate = best_first(
            np.arange(len(rows)),
            [Once(upper, price)],
            lambda: np.nextafter(found.reached(reached) * (1.0 + PROVEN), np.inf),
            at_once=PRICED_AGAIN,
            most_evaluations=MOST_ROUNDS,
        )
        if not certificate.complete:
            found.ceiling = max(found.ceiling, certificate.open_bound)
        return found

    def _value(
        self,
        value: str,
        chip: Accelerator | None,
        choices: Sequence[Choice],
        reached: float,
        bound: float,
    ) -> AxisValue:
        plans, held = {}, 0.0
        for choice in choices:
            (best,) = choice.group.evaluated(np.array([choice.point]))
            throughput = choice.group.batch_samples / best.iteration_s
            plan = choice.group.plan(choice.point)
            plans[choice.group.key.model] = PlanSummary.of(plan, throughput)
            held = max(held, best.memory_bytes)
        omitted = any(model.omitted for model in self.models)
        proven = bound <= reached * (1.0 + PROVEN) and not omitted
        sizes = sorted(self.context.problem.memory_bytes)
        memory_bytes = next((size for size in sizes if held <= size), sizes[-1])
        if self.context.hardware.metrics.memory_bytes is not None:
            memory_bytes = choices[0].group.key.memory_bytes
        status = Status.OPTIMAL if proven else Status.FEASIBLE
        return AxisValue(value, status, reached, max(bound, reached), chip, memory_bytes, plans)
