"""The best design that has each value of each axis of the accelerator, everything else chosen anew,
exactly.

The search does not say it: a design that is the best with its value may be dominated by one with
another value. So dominance is asked again among the designs with each value, in what the objective
depends on, and what it leaves is evaluated best first, under the bounds that the search has and
tighter ones where these do not suffice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from Estimator.chips.accelerator import Accelerator
from Estimator.chips.own_links import own_links
from Estimator.plans.results import Status
from phaze_common.array_types import BoolArray, FloatArray, IntArray
from Solver.designs.chip_axes import AXES, axis_column
from Solver.designs.evaluated_points import ModelPoints, PointsOfRows, undominated_rows
from Solver.designs.joint import Choice
from Solver.designs.points import PROVEN, ROUNDING, PointGroup
from Solver.designs.re_solve import priced
from Solver.designs.search_context import RemainingSpace, SearchContext
from Solver.hardware import DesignedChips
from Solver.results import AxisScope, AxisValue, AxisValues, DesignPoint, ModelPlan, PlanSummary

MOST_EVALUATED = 256  # points of one value: so many are asked only where schedules resist a proof
# Accelerators of one value whose schedules are given more effort at once, and how often
PRICED_AGAIN, MOST_ROUNDS = (64, 4)
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
    with context.progress.phase(
        "best design of every value of the axes", sum(map(len, distinct.values()))
    ) as advance:
        for axis, column in columns.items():
            values = []
            chosen = _chosen(hardware, best, axis)
            for value in distinct[axis]:
                rows = np.flatnonzero(column == value)
                values.append(
                    _of_design(str(value), best)
                    if value == chosen
                    else designs.best(str(value), rows)
                )
                advance(1)
            found.append(
                AxisValues(axis, None, str(chosen), len(values), tuple(values), AxisScope.DESIGNS)
            )
    if len(sizes) > 1 and hardware.figures.memory_bytes is None:
        found.append(
            _memory_axis(sorted(sizes), best, {point.hbm_bytes: point for point in per_memory})
        )
    return tuple(found)


def _axes_of_remaining(
    context: SearchContext, remaining: RemainingSpace, best: DesignPoint, designs: Designs
) -> Iterator[AxisValues]:
    """The same where bounds pruned most of the space: values that are left, with the best design
    known of each.

    What none with a value exceeds is told by the bounds of all chips of the space; nothing where a
    part of it is not known."""
    assert isinstance(context.hardware, DesignedChips)
    for axis in remaining.axis_bounds.several if remaining.pruned_bound < np.inf else ():
        column, bounds = (
            np.array(axis_column(context.hardware, axis)),
            remaining.axis_bounds.most[axis],
        )
        chosen, values = _chosen(context.hardware, best, axis), []
        for value in np.unique(column).tolist():
            if value == chosen:
                values.append(_of_design(str(value), best))
                continue
            known = designs.known(str(value), np.flatnonzero(column == value), bounds[str(value)])
            values += [] if known is None else [known]
        yield AxisValues(axis, None, str(chosen), len(bounds), tuple(values), AxisScope.DESIGNS)


def axes_of(hardware: DesignedChips) -> tuple[str, ...]:
    """Fields of the accelerators that have several values; vector cores as wide as tensor cores
    have no axis of their own."""
    chips = hardware.accelerators
    tied = bool(np.array_equal(chips.width, chips.width_vc))
    several = (name for name in AXES if len(set(axis_column(hardware, name))) > 1)
    return tuple(name for name in several if not (tied and name == "width_vc"))


def _chosen(hardware: DesignedChips, best: DesignPoint, axis: str) -> int | str:
    """The value that the best design has."""
    assert best.accelerator is not None
    return axis_column(hardware.only([best.accelerator]), axis)[0]


def _in_order(axis: str, values: list[int | str]) -> list[int | str]:
    """Distinct sorted ``values``, links by their bandwidth."""
    if axis != "links":
        return values
    return sorted(
        values,
        key=lambda each: own_links(str(each)).bandwidth_bytes_per_s if each != "None" else 0.0,
    )


def _memory_axis(
    sizes: Sequence[int], best: DesignPoint, points: dict[int, DesignPoint]
) -> AxisValues:
    """What the search found for every size of the memory."""
    values = []
    for size in sizes:
        point = points.get(size)
        nothing = AxisValue(str(size), Status.INFEASIBLE, 0.0, 0.0, None, size, {})
        values.append(nothing if point is None else _of_design(str(size), point))
    return AxisValues(
        MEMORY, None, str(best.hbm_bytes), len(values), tuple(values), AxisScope.DESIGNS
    )


def _of_design(value: str, point: DesignPoint) -> AxisValue:
    """A best design of the search as that of a value which it has."""
    open_bound = point.certificate.best_open_bound if point.certificate is not None else None
    bound = point.value if point.optimal else max(point.value, open_bound or 0.0)
    plans = {name: _summary_of(plan) for name, plan in point.models.items()}
    return AxisValue(
        value, point.status, point.value, bound, point.accelerator, point.hbm_bytes, plans
    )


def _summary_of(plan: ModelPlan) -> PlanSummary:
    return PlanSummary(**{each.name: getattr(plan, each.name) for each in fields(PlanSummary)})


@dataclass(frozen=True)
class _Again:
    """What is known once some accelerators were priced again: the best design if it is one of them,
    and what none exceeds."""

    best: AxisValue | None
    ceiling: float


@dataclass(frozen=True, eq=False)
class Designs:
    """All designs of the search of ``context`` with as much memory as they may have."""

    context: SearchContext
    models: Sequence[ModelPoints]

    @classmethod
    def of(cls, context: SearchContext, groups: Sequence[PointGroup]) -> Designs:
        """Those that ``groups`` are about."""
        most, own = (
            max(context.problem.memory_bytes),
            context.hardware.figures.memory_bytes is not None,
        )
        largest = [group for group in groups if own or group.key.memory_bytes == most]
        by_model = (
            (model, [group for group in largest if group.key.model == model.name])
            for model in context.problem.models
        )
        return cls(context, [ModelPoints(mine, context.problem.objective) for _, mine in by_model])

    def best(self, value: str, rows: IntArray) -> AxisValue:
        """The best design on the configurations ``rows``, which are those with ``value``."""
        known = [
            PointsOfRows(model, rows, mask)
            for model, mask in zip(self.models, self._candidates(rows), strict=True)
        ]
        self._search(known)
        bound = self._together([each.bound for each in known])
        found = self._together([each.found for each in known])
        most, ceiling = float(found.max()), float(bound.max())
        if np.isinf(most):
            return AxisValue(
                value, Status.INFEASIBLE, 0.0, 0.0, None, max(self.context.problem.memory_bytes), {}
            )
        if ceiling > most * (1.0 + PROVEN):
            again = self._with_more_effort(value, rows, bound, most)
            if again.best is not None:
                return again.best
            ceiling = max(most, again.ceiling)
        row, choices = self._smallest(known, rows, most)
        return self._value(value, self.context.hardware.accelerator(row), choices, most, ceiling)

    def known(self, value: str, rows: IntArray, most: float) -> AxisValue | None:
        """The best design that was found on ``rows``, none of which exceeds ``most``; None where
        none was."""
        masks = [np.ones((len(model.upper), len(rows)), np.bool_) for model in self.models]
        known = [
            PointsOfRows(model, rows, mask) for model, mask in zip(self.models, masks, strict=True)
        ]
        found = self._together([each.found for each in known])
        place = int(found.argmax())
        if np.isneginf(found[place]):
            return None
        choices = [each.best(place) for each in known]
        return self._value(
            value,
            self.context.hardware.accelerator(int(rows[place])),
            choices,
            float(found[place]),
            most,
        )

    def _smallest(
        self, known: Sequence[PointsOfRows], rows: IntArray, most: float
    ) -> tuple[int, list[Choice]]:
        """The smallest of the configurations ``rows`` that reach ``most``, with its points.

        What reaches it was looked for among those that none is faster than, of whatever size: so it
        is looked for again among the smaller ones, until none of them can."""
        area_mm2 = self.context.hardware.figures.area_mm2
        enough = most * (1.0 - ROUNDING)
        while True:
            ties = np.flatnonzero(self._together([each.found for each in known]) >= enough)
            energy_j = self._energy_j(known, ties)
            place = int(ties[np.lexsort((energy_j, area_mm2[rows[ties]]))[0]])
            row, choices = int(rows[place]), [each.best(place) for each in known]
            rows = rows[area_mm2[rows] < area_mm2[row]]
            known = [
                PointsOfRows(model, rows, mask)
                for model, mask in zip(self.models, self._candidates(rows), strict=True)
            ]
            if not len(rows) or not self._reaches(known, enough):
                return row, choices

    def _reaches(self, known: Sequence[PointsOfRows], enough: float) -> bool:
        """Whether one of the configurations does, evaluating points best first until one does or
        none can."""
        for _ in range(MOST_EVALUATED):
            if (self._together([each.found for each in known]) >= enough).any():
                return True
            potential = self._together([each.potential for each in known])
            place = int(potential.argmax())
            if potential[place] < enough:
                return False
            for each in known:
                each.refine(place)
        return False

    def _candidates(self, rows: IntArray) -> list[BoolArray]:
        """Per model, which points could matter: shape (shapes, rows). What nothing fits never does.

        Of one model those that no other with the same shape dominates; of several the
        configurations that none dominates under all shapes, since what one model's best dominates
        may be the best for all."""
        masks = [np.zeros((len(model.upper), len(rows)), np.bool_) for model in self.models]
        for size in self.models[0].sizes:
            fitting = [model.fitting_in(size) for model in self.models]
            every = [
                (model, shape)
                for model, shapes in zip(self.models, fitting, strict=True)
                for shape in shapes
            ]
            mine = np.flatnonzero(self.models[0].held(size)[rows])
            if len(self.models) == 1:
                for shape in fitting[0]:
                    masks[0][shape, mine] = undominated_rows([(self.models[0], shape)], rows[mine])
            elif every:
                undominated = undominated_rows(every, rows[mine])
                for mask, shapes in zip(masks, fitting, strict=True):
                    mask[np.ix_(np.array(shapes, dtype=np.int64), mine)] = undominated
        return masks

    def _search(self, known: Sequence[PointsOfRows]) -> None:
        """Evaluate points best first, until no other can beat the best of them."""
        looked_for = 0
        while looked_for < MOST_EVALUATED:
            potential = self._together([each.potential for each in known])
            found = self._together([each.found for each in known])
            place = int(potential.argmax())
            if np.isinf(potential[place]) or potential[place] <= found.max() * (1.0 + ROUNDING):
                return
            looked_for += sum(each.refine(place) for each in known)

    def _together(self, values: Sequence[FloatArray]) -> FloatArray:
        names = (model.name for model in self.context.problem.models)
        return self.context.problem.combination.of(dict(zip(names, values, strict=True)))

    def _energy_j(self, known: Sequence[PointsOfRows], places: IntArray) -> FloatArray:
        """Joules per sample of the best points found, the mean of the models; shape (places,)."""
        joules = {
            model.name: each.energy_j(places)
            for model, each in zip(self.context.problem.models, known, strict=True)
        }
        return self.context.problem.combination.mean(joules)

    def _with_more_effort(
        self, value: str, rows: IntArray, bound: FloatArray, most: float
    ) -> _Again:
        """The best design on ``rows`` if it is better than ``most``, scheduled with as much effort
        as a search spends.

        ``bound`` (rows,) is what none of them exceeds; those that might exceed ``most`` are priced
        again, the nearest first."""
        hardware, best, ceiling = self.context.hardware, None, -np.inf
        open_ = rows[np.argsort(-bound, kind="stable")][
            : int((bound > most * (1.0 + PROVEN)).sum())
        ]
        bounds = -np.sort(-bound)[: len(open_)]
        if isinstance(hardware, DesignedChips):
            for _ in range(MOST_ROUNDS):
                if not len(open_):
                    break
                few = open_[:PRICED_AGAIN]
                open_ = open_[PRICED_AGAIN:]
                bounds = bounds[PRICED_AGAIN:]
                chips = priced(
                    self.context,
                    hardware.only([hardware.accelerators.accelerator(row) for row in few.tolist()]),
                )
                optimum = chips.best_optimum()
                if optimum is None:
                    continue
                ceiling = max(
                    ceiling, optimum.value if optimum.proven else optimum.best_open_bound or np.inf
                )
                if optimum.value > most * (1.0 + ROUNDING):
                    choices = [optimum.choices[model.name] for model in self.context.problem.models]
                    most = optimum.value
                    best = (chips.context.hardware.accelerator(optimum.row), choices)
                left = bounds > most * (1.0 + PROVEN)
                open_, bounds = open_[left], bounds[left]
        ceiling = max(ceiling, float(bounds.max(initial=-np.inf)))
        return _Again(
            None if best is None else self._value(value, *best, most, max(most, ceiling)), ceiling
        )

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
            best = choice.group.evaluated(choice.point)
            throughput = choice.group.batch_samples / best.iteration_s
            plans[choice.group.key.model] = PlanSummary.of(
                choice.group.plan(choice.point), throughput
            )
            held = max(held, best.memory_bytes)
        proven = bound <= reached * (1.0 + PROVEN) and not any(
            model.omitted for model in self.models
        )
        sizes, own = (
            sorted(self.context.problem.memory_bytes),
            self.context.hardware.figures.memory_bytes,
        )
        memory_bytes = next((size for size in sizes if held <= size), sizes[-1])
        if own is not None:
            memory_bytes = choices[0].group.key.memory_bytes
        return AxisValue(
            value,
            Status.OPTIMAL if proven else Status.FEASIBLE,
            reached,
            max(bound, reached),
            chip,
            memory_bytes,
            plans,
        )
