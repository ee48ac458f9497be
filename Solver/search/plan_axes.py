"""The fastest plan that has each value of each axis of plans, everything else chosen anew, on one configuration of hardware."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from Common.choices import Recompute
from Estimator.network.cluster import Cluster
from Plans.many_rates import UniformPlans
from Plans.plan import GroupOrder, UniformPlan
from Plans.results import Status
from Solver.cuts.cut_bounds import ROUNDING
from Solver.plan_search.best_plan import BestPlan, ConfigurationPlans
from Solver.plan_search.shape_plans import ShapePlans
from Solver.results import AxisValue, AxisValues, DesignPoint, ModelPlan
from Solver.search.axis_values import plan_summary
from Solver.search.costs import Part, Shape
from Solver.search.points import PROVEN, PointGroup
from Solver.search.run import Run

BoolArray = NDArray[np.bool_]
Value = int | str | bool

MOST_VALUES = 48  # of an axis: of more, powers of two, both ends and what the optimum has
KEPT = 16  # plans on the configuration with all that was priced of them


@dataclass(frozen=True)
class PlanAxis:
    """Something that plans choose: ``of_shape`` is its value in all plans of a shape, where that differs ``of_plans`` of each.

    Of plans ``alike`` any value says the same, so that they have all of them.
    """

    name: str
    of_shape: Callable[[UniformPlan], Value] | None = None
    of_plans: Callable[[UniformPlans], NDArray[np.int64] | BoolArray] | None = None
    alike: Callable[[UniformPlans, Cluster], BoolArray] | None = None
    every_plan: bool = False  # those too that a search need not list, because others with another value are no slower


def _one_copy(plans: UniformPlans, _: Cluster) -> BoolArray:
    one: BoolArray = plans.dp * plans.shape.cp == 1
    return one


def _one_order(plans: UniformPlans, cluster: Cluster) -> BoolArray:
    """Where there are no two groups to nest, or the network is flat (``PlanSpace.every_plan`` lists such plans once)."""
    movable = len(cluster.tiers) > 1 or plans.shape.cp > 1
    one: BoolArray = (plans.dp == 1) | (plans.pp == 1) | (not movable)
    return one


AXES = (
    PlanAxis("tp", of_shape=lambda shape: shape.tp),
    PlanAxis("pp", of_plans=lambda plans: plans.pp),
    PlanAxis("dp", of_plans=lambda plans: plans.dp, every_plan=True),
    PlanAxis("cp", of_shape=lambda shape: shape.cp),
    PlanAxis("ep", of_shape=lambda shape: shape.ep),
    PlanAxis("micro_batch_size", of_shape=lambda shape: shape.micro_batch_size),
    PlanAxis("recompute", of_shape=lambda shape: shape.recompute.value),
    PlanAxis("sequence_parallel", of_shape=lambda shape: shape.sequence_parallel),
    PlanAxis("interleave", of_plans=lambda plans: plans.interleave),
    PlanAxis("zero_stage", of_plans=lambda plans: plans.zero_stage, alike=_one_copy),
    PlanAxis("group_order", of_plans=lambda plans: plans.pipeline_inner, alike=_one_order),
    PlanAxis("overlap_gradients", of_plans=lambda plans: plans.overlap_gradients, alike=_one_copy),
)


def plan_axes(run: Run, groups: Sequence[PointGroup], best: DesignPoint, row: int) -> tuple[AxisValues, ...]:
    """Every axis of which plans of a model have several values on the best hardware, configuration ``row``, by model.

    Memory may be as large as the problem allows. ``groups`` are those of the search, whose points stay as they are.
    """
    found: list[AxisValues] = []
    for model, plan in best.models.items():
        wanted = model, max(run.problem.memory_bytes)
        mine = [group for group in groups if (group.key.model, group.key.memory_bytes) == wanted]
        found += _Model(run, mine, row, plan).axes()
    return tuple(found)


@dataclass(frozen=True, eq=False)
class _Listed:
    """Plans of one part of a shape on the configuration; ``bounds_s`` (plans,) is what none of them is below."""

    shape: Shape
    part: Part
    plans: ShapePlans
    bounds_s: NDArray[np.float64]


class _Model:
    """The plans of one model on one configuration."""

    def __init__(self, run: Run, groups: Sequence[PointGroup], row: int, chosen: ModelPlan) -> None:
        self._run, self._groups, self._row, self._chosen = run, groups, row, chosen
        self._memory_bytes = float(groups[0].key.memory_bytes)
        self._priced = lru_cache(maxsize=KEPT)(self._price)
        shapes = [(shape, part) for group in groups for shape in group.shapes for part in shape.parts]
        self._searched = [self._listed(shape, part, part.plans) for shape, part in shapes]

    def axes(self) -> list[AxisValues]:
        """What every value of every axis allows."""
        wanted = {axis: values for axis in AXES if len(values := self._values(axis)) > 1}
        found = []
        label = f"fastest plan of {self._groups[0].key.model} with every value of the axes"
        with self._run.progress.phase(label, sum(map(len, wanted.values()))) as advance:
            for axis, every in wanted.items():
                chosen = self._chosen_value(axis)
                shown = _shown(every, chosen)
                listed = self._every_plan(shown) if axis.every_plan else self._searched
                best = []
                for value in shown:
                    best.append(self._best(axis, value, listed))
                    advance(1)
                advance(len(every) - len(shown))
                found.append(AxisValues(axis.name, self._groups[0].key.model, _text(chosen), len(every), tuple(best)))
        return found

    def _values(self, axis: PlanAxis) -> list[Value]:
        """All values that plans have, in order."""
        if axis.of_shape is not None:
            values = {axis.of_shape(each.shape.plan) for each in self._searched}
        elif axis.every_plan:
            values = {value for shape in self._shapes() for value in np.unique(self._unthinned(shape).dp).tolist()}
        else:
            assert axis.of_plans is not None
            columns = [axis.of_plans(each.plans.plans) for each in self._searched]
            values = {_named(axis, value) for column in columns for value in np.unique(column).tolist()}
        modes = [mode.value for mode in Recompute]
        return sorted(values, key=lambda value: modes.index(value) if value in modes else value)

    def _chosen_value(self, axis: PlanAxis) -> Value:
        whole = self._chosen.plan if axis.name == "overlap_gradients" else self._chosen
        value: Value = getattr(whole, axis.name)
        return value

    def _shapes(self) -> list[Shape]:
        return [shape for group in self._groups for shape in group.shapes]

    def _unthinned(self, shape: Shape) -> UniformPlans:
        space = next(model.space for model in self._run.problem.models if model.name == self._groups[0].key.model)
        return space.every_plan(shape.plan, len(shape.graph.sequence), self._run.hardware.cluster)

    def _every_plan(self, degrees: Sequence[Value]) -> list[_Listed]:
        """All plans that have one of the data parallel ``degrees``."""
        listed = []
        for shape in self._shapes():
            plans = self._unthinned(shape)
            plans = plans.some(np.flatnonzero(np.isin(plans.dp, degrees)))
            for experts, rows in plans.by_experts(self._run.hardware.cluster).items():
                part = next(each for each in shape.parts if each.experts == experts)
                own = ShapePlans(shape.graph, part.costs.sizes, plans.some(rows), part.plans.machine)
                listed.append(self._listed(shape, part, own))
        return listed

    def _listed(self, shape: Shape, part: Part, plans: ShapePlans) -> _Listed:
        return _Listed(shape, part, plans, self._priced(plans, part).bounds_s)

    def _price(self, plans: ShapePlans, part: Part) -> ConfigurationPlans:
        return ConfigurationPlans(plans, part.costs, self._row, self._memory_bytes)

    def _best(self, axis: PlanAxis, value: Value, listed: Sequence[_Listed]) -> AxisValue:
        """The fastest plan that has ``value``."""
        having = [(each, mask, _least(each.bounds_s[mask])) for each in listed if (mask := self._having(axis, value, each)).any()]
        best: BestPlan | None = None
        best_s, least_s = np.inf, np.inf
        for each, mask, bound_s in sorted(having, key=lambda one: one[2]):
            if bound_s < best_s * (1.0 - ROUNDING):
                found = self._priced(each.plans, each.part).best(best_s, among=mask)
                bound_s = found.bound_s
                if found.plan is not None:
                    best, best_s = found, found.iteration_s
            least_s = min(least_s, bound_s / float(each.shape.excess[self._row]))
        if best is None or best.plan is None:
            return AxisValue(_text(value), Status.INFEASIBLE, 0.0, 0.0, None, int(self._memory_bytes), {})
        samples = self._groups[0].batch_samples
        reached, bound = samples / best_s, samples / min(least_s, best_s)
        proven = bound <= reached * (1.0 + PROVEN) and not any(group.omitted for group in self._groups)
        status = Status.OPTIMAL if proven else Status.FEASIBLE
        chip, plans = self._run.hardware.accelerator(self._row), {self._groups[0].key.model: plan_summary(best.plan, reached)}
        sizes = sorted(self._run.problem.memory_bytes)
        memory_bytes = next((size for size in sizes if best.memory_bytes <= size), sizes[-1])
        return AxisValue(_text(value), status, reached, bound, chip, memory_bytes, plans)

    def _having(self, axis: PlanAxis, value: Value, each: _Listed) -> BoolArray:
        """Which plans have ``value``, shape (plans,)."""
        plans = each.plans.plans
        if axis.of_shape is not None:
            return np.full(len(plans), axis.of_shape(each.shape.plan) == value)
        assert axis.of_plans is not None
        column = axis.of_plans(plans)
        having: BoolArray = column == (value == GroupOrder.PIPELINE_INNER.value if axis.name == "group_order" else value)
        return having | axis.alike(plans, self._run.hardware.cluster) if axis.alike is not None else having


def _named(axis: PlanAxis, value: Value) -> Value:
    if axis.name != "group_order":
        return value
    return GroupOrder.PIPELINE_INNER.value if value else GroupOrder.DATA_INNER.value


def _least(bounds_s: NDArray[np.float64]) -> float:
    return float(bounds_s.min(initial=np.inf))


def _text(value: Value) -> str:
    return str(value).lower()


def _shown(values: Sequence[Value], chosen: Value) -> list[Value]:
    """All values, or of many those that people look for."""
    if len(values) <= MOST_VALUES:
        return list(values)
    wanted = {values[0], values[-1], chosen, *(2**power for power in range(31))}
    return [value for value in values if value in wanted]
