"""The fastest plan that has each value of each axis of plans, everything else chosen anew, on one
configuration of hardware."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from Estimator.plans.results import Status
from Estimator.plans.uniform_plans import ORDERS, UniformPlans
from phaze_common.array_types import IntArray
from phaze_common.choices import GroupOrder, Objective, Recompute
from phaze_common.progress import Advance
from Solver.best_first import PROVEN
from Solver.designs.axis_values import nothing_fits
from Solver.designs.costs import Part, Shape
from Solver.designs.points import PointGroup
from Solver.designs.search_context import SearchContext
from Solver.plan_report import PlanReport, PlanSummary
from Solver.plans.axes import AXES, ChosenAxis, Value
from Solver.plans.best_plan import ConfigurationPlans
from Solver.plans.fastest_plans import EVERY, NONE, Fastest, FastestPlans, PlansWithValues
from Solver.plans.shape_plans import ShapePlans
from Solver.results import AxisScope, AxisValue, AxisValues, DesignPoint

MOST_VALUES = 48  # of an axis: of more, powers of two, both ends and what the optimum has


def plan_axes(
    context: SearchContext, groups: Sequence[PointGroup], best: DesignPoint, row: int
) -> tuple[AxisValues, ...]:
    """Every axis of which plans of a model have several values on the best hardware, configuration
    ``row``, by model.

    Memory may be as large as the problem allows. ``groups`` are those of the search, whose points
    stay as they are. Of equally fast plans that of ``best`` is named, else the one found first."""
    found: list[AxisValues] = []
    for model, plan in best.models.items():
        wanted = model, max(context.problem.memory_bytes)
        mine = [group for group in groups if (group.key.model, group.key.memory_bytes) == wanted]
        found += _Model(context, mine, row, plan).axes()
    return tuple(found)


@dataclass(frozen=True, eq=False)
class _Listed:
    """Plans of one part of a shape."""

    shape: Shape
    part: Part
    plans: ShapePlans


@dataclass(frozen=True)
class _Wanted:
    """An axis with the values shown of so many ``there_are``; the optimum has ``chosen``."""

    axis: ChosenAxis
    shown: Sequence[Value]
    chosen: Value
    there_are: int


class _Model:
    """The plans of one model on one configuration."""

    def __init__(
        self, context: SearchContext, groups: Sequence[PointGroup], row: int, chosen: PlanReport
    ) -> None:
        self._context, self._groups, self._row, self._chosen = context, groups, row, chosen
        self._name, self._memory_bytes = groups[0].key.model, float(groups[0].key.memory_bytes)
        self._cluster = context.hardware.cluster
        caps = context.hardware.metrics.caps
        space = next(model.space for model in context.problem.models if model.name == self._name)
        self._space = space.within(None if caps is None else int(caps[row]))
        places = [(group, place) for group in groups for place in range(len(group.shapes))]
        places.sort(key=lambda each: _as_known(each[0], each[1], row))
        self._take([group.shapes[place] for group, place in places])

    def axes(self) -> list[AxisValues]:
        """What every value of every axis allows, with proven schedules where that matters."""
        found = self._axes()
        unproven = any(value.status is Status.FEASIBLE for axis in found for value in axis.values)
        if not unproven or all(shape.excess[self._row] <= 1.0 for shape in self._shapes):
            return found
        hardware, row = self._context.hardware, self._row
        more = [shape.excess[row] > 1.0 for shape in self._shapes]
        shapes = zip(self._shapes, more, strict=True)
        self._take([each.proven_at(hardware, row) if open_ else each for each, open_ in shapes])
        return self._axes()

    def _take(self, shapes: Sequence[Shape]) -> None:
        self._shapes = shapes
        parts = ((shape, part) for shape in shapes for part in shape.parts)
        self._searched = [_Listed(*each, each[1].plans_on(self._row)) for each in parts]

    def _axes(self) -> list[AxisValues]:
        wanted = {axis: each for axis in AXES if (each := self._wanted(axis)).there_are > 1}
        every = [axis for axis in wanted if axis.every_plan and self._space.thinned]
        searched = [axis for axis in wanted if axis not in every]
        found: dict[ChosenAxis, AxisValues] = {}
        parts = len(self._searched)
        label = f"fastest plan of {self._name} with every value of the axes"
        with self._context.progress.phase(label, parts * (bool(searched) + len(every))) as advance:
            if searched:
                found |= self._fastest([wanted[axis] for axis in searched], self._searched, advance)
            for axis in every:
                listed = self._every_plan(wanted[axis].shown)
                found |= self._fastest([wanted[axis]], listed, advance)
        return [found[axis] for axis in wanted]

    def _wanted(self, axis: ChosenAxis) -> _Wanted:
        every, chosen = self._values(axis), self._chosen_value(axis)
        return _Wanted(axis, _shown(every, chosen), chosen, len(every))

    def _values(self, axis: ChosenAxis) -> list[Value]:
        if axis.of_shapes:
            values = {axis.axis.of(each.shape.plan) for each in self._searched}
        elif axis.every_plan:
            values = set[Value]().union(
                *(self._unthinned(each).dp.tolist() for each in self._shapes)
            )
        else:
            columns = [axis.of_plans(each.plans.plans) for each in self._searched]
            values = {
                _named(axis, value) for column in columns for value in np.unique(column).tolist()
            }
        modes = [mode.value for mode in Recompute]
        return sorted(
            values,
            key=lambda value: (modes.index(value), "") if value in modes else (len(modes), value),
        )

    def _chosen_value(self, axis: ChosenAxis) -> Value:
        value: Value = axis.axis.of(self._chosen)
        names = {order.value for order in ORDERS}
        return (
            GroupOrder.TIERS.value if axis.name == "group_order" and value not in names else value
        )

    def _unthinned(self, shape: Shape) -> UniformPlans:
        return self._space.every_plan(shape.plan, len(shape.graph.sequence), self._cluster)

    def _every_plan(self, degrees: Sequence[Value]) -> Iterator[_Listed]:
        for shape in self._shapes:
            plans = self._unthinned(shape)
            plans = plans.some(np.flatnonzero(np.isin(plans.dp, degrees)))
            for groups, rows in plans.by_groups(self._cluster).items():
                part = next(each for each in shape.parts if each.groups == groups)
                mine, machine = plans.some(rows), part.plans_on(self._row).machine
                listed = ShapePlans(shape.graph, part.costs.sizes, mine, machine)
                yield _Listed(shape, part, listed)

    def _fastest(
        self, wanted: Sequence[_Wanted], listed: Iterable[_Listed], advance: Advance
    ) -> dict[ChosenAxis, AxisValues]:
        fastest, chosen = FastestPlans([len(each.shown) for each in wanted]), self._chosen
        codes = [each.shown.index(each.chosen) for each in wanted]
        fastest.offer(codes, self._chosen, chosen.time_per_batch_s, chosen.memory_bytes)
        parts = (
            self._with_values(each, [self._codes(one, each) for one in wanted]) for each in listed
        )
        fastest.search(parts, advance)
        return {
            one.axis: self._axis_values(one, fastest.of_axis(place))
            for place, one in enumerate(wanted)
        }

    def _with_values(self, each: _Listed, codes: Sequence[IntArray]) -> PlansWithValues:
        # The fastest plans are told, of those that can be bought
        metrics = self._context.hardware.metrics
        had = metrics.weights(Objective.THROUGHPUT, self._row, each.plans.plans.devices)
        priced = partial(
            ConfigurationPlans, each.plans, each.part.costs, self._row, self._memory_bytes, had
        )
        return PlansWithValues(priced, np.array(codes), float(each.shape.excess[self._row]))

    def _codes(self, wanted: _Wanted, each: _Listed) -> IntArray:
        """Which of the values shown the plans have, shape (plans,)."""
        axis, plans = wanted.axis, each.plans.plans
        place = {value: place for place, value in enumerate(wanted.shown)}
        if axis.of_shapes:
            return np.full(len(plans), place.get(axis.axis.of(each.shape.plan), NONE))
        values, which = np.unique(axis.of_plans(plans), return_inverse=True)
        codes = np.array(
            [place.get(_named(axis, value), NONE) for value in values.tolist()], np.int64
        )[which.reshape(-1)]
        alike = axis.alike
        return codes if alike is None else np.where(alike(plans, self._cluster), EVERY, codes)

    def _axis_values(self, wanted: _Wanted, found: Sequence[Fastest]) -> AxisValues:
        values = []
        for value, each in zip(wanted.shown, found, strict=True):
            least_s = self._pruned_s(wanted.axis, value)
            if each.plan or np.isinf(least_s):  # of others it is not known whether any plan fits
                values.append(self._value(str(value).lower(), each, least_s))
        designed = self._context.hardware.accelerator(self._row) is not None
        scope = AxisScope.PLANS_ON_THE_CHIP if designed else AxisScope.PLANS_ON_THE_DEVICE
        name, chosen = wanted.axis.name, str(wanted.chosen).lower()
        return AxisValues(name, self._name, chosen, wanted.there_are, tuple(values), scope)

    def _pruned_s(self, axis: ChosenAxis, value: Value) -> float:
        """Seconds that no plan with ``value`` of pruned shapes is below; infinite: none has it."""
        every = [group.pruned_shapes for group in self._groups]
        if not axis.of_shapes:
            return min(float(pruned.least_s.min(initial=np.inf)) for pruned in every)
        having = (zip(pruned.plans, pruned.least_s.tolist(), strict=True) for pruned in every)
        return min(
            (least_s for each in having for plan, least_s in each if axis.axis.of(plan) == value),
            default=np.inf,
        )

    def _value(self, value: str, found: Fastest, pruned_s: float) -> AxisValue:
        if found.plan is None:
            return nothing_fits(value, int(self._memory_bytes))
        samples = self._groups[0].batch_samples
        omitted = any(group.omitted for group in self._groups)
        reached = samples / found.iteration_s
        bound = samples / min(found.bound_s, found.iteration_s, pruned_s)
        proven = bound <= reached * (1.0 + PROVEN) and not omitted
        status = Status.OPTIMAL if proven else Status.FEASIBLE
        sizes = sorted(self._context.problem.memory_bytes)
        memory_bytes = next((size for size in sizes if found.memory_bytes <= size), sizes[-1])
        chip = self._context.hardware.accelerator(self._row)
        plans = {self._name: PlanSummary.of(found.plan, reached)}
        return AxisValue(value, status, reached, bound, chip, memory_bytes, plans)


def _as_known(group: PointGroup, place: int, row: int) -> float:
    """About how long the best plan of a shape takes, as far as is known; only for the order."""
    point = place * group.configurations + row
    known: float = min(group.iteration_s[point], group.bound_s[point])
    return known


def _named(axis: ChosenAxis, value: Value) -> Value:
    return ORDERS[int(value)].value if axis.name == "group_order" else value


def _shown(values: Sequence[Value], chosen: Value) -> list[Value]:
    if len(values) <= MOST_VALUES:
        return list(values)
    wanted = {values[0], values[-1], chosen, *(2**power for power in range(31))}
    return [value for value in values if value in wanted]
