"""Of thousands of shapes those that might have the best plan, found without listing the plans of
the others.

Every shape has a bound that is known as soon as its layers are priced (``shape_bounds``). Shapes
are looked at in its order until no other can have a plan as fast as the fastest found, with each
micro-batch size. Some more are looked at for every other thing that shapes choose, so that what
each value of it allows can be told, proven or not; where none of many fits, nothing is told."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from Estimator.network.cluster import Cluster
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import LayerGroups, layer_groups
from Estimator.plans.uniform_plans import have_like_groups
from phaze_common.array_types import FloatArray, IntArray
from phaze_common.arrays import load_arrays, store_arrays
from phaze_common.choices import GroupOrder, Recompute
from phaze_common.files import content_key
from phaze_common.user_cache import ESTIMATES, keep, load_or_bring
from Solver.best_first import ROUNDING, Once, best_first
from Solver.designs.costs import PricedShapes, Shape
from Solver.plans.axes import AXES
from Solver.plans.best_plan import FIRST_STEPS, ConfigurationPlans
from Solver.plans.shape_bounds import PrunedShapes, least_iteration_s

MOST_OF_VALUE = 16  # shapes with plans that are looked at for what one value of an axis allows
MOST_WITHOUT = 32  # of them, where no plan of any fits


def remaining_shapes(priced: PricedShapes) -> tuple[list[Shape], PrunedShapes] | None:
    """Shapes to look at and pruned ones; None where bounds are as much work as prices."""
    least_s = least_seconds(priced)
    if least_s is None:
        return None
    axes = [each.axis for each in AXES if each.of_shapes]
    columns = [np.array([axis.of(plan) for plan in priced.plans]) for axis in axes]
    values = [np.flatnonzero(column == value) for column in columns for value in np.unique(column)]
    sizes = np.array([plan.micro_batch_size for plan in priced.plans])
    search = _ShapeSearch(priced, least_s)
    asked: list[tuple[IntArray, int | None]]
    asked = [(np.flatnonzero(sizes == size), None) for size in np.unique(sizes)]
    asked += [(numbers, MOST_OF_VALUE) for numbers in values]
    name = f"shapes of plans of {priced.model.name}"
    with priced.context.progress.phase(name, len(asked)) as advance:
        for numbers, most in asked:
            search.look_at(numbers, most)
            advance(1)
    left = [number for number in range(len(priced)) if number not in search.shapes]
    shapes = [search.shapes[number] for number in sorted(search.shapes)]
    pruned = PrunedShapes(tuple(priced.plans[number] for number in left), least_s[left])
    return [shape for shape in shapes if shape is not None], pruned


@dataclass(frozen=True, eq=False)
class StoredLeast:
    """Seconds that no plan of a shape is below, (shapes,)."""

    least_s: FloatArray


def least_seconds(priced: PricedShapes) -> FloatArray | None:
    """Seconds that no plan is below, (shapes,), which an earlier run may have stored, there or for
    other runs of the user; None where the hardware gives no quick bound."""
    folder, graphs = priced.context.stores.estimates, priced.graphs
    if folder is None or not graphs:
        return _least_seconds(priced)
    key = content_key(priced.context.pricing, priced.model.space, priced.graph_contents)
    path = folder / next(iter(graphs)).label / f"shape_bounds-{key}.npz"
    stored = load_or_bring(path, ESTIMATES, path.stem, lambda file: load_arrays(StoredLeast, file))
    if stored is not None and len(stored.least_s) == len(priced):
        return stored.least_s
    least_s = _least_seconds(priced)
    if least_s is not None:
        store_arrays(path, StoredLeast(least_s))
        keep(path, ESTIMATES, path.stem)
    return least_s


def _least_seconds(priced: PricedShapes) -> FloatArray | None:
    context, plans = priced.context, priced.plans
    least_s = np.zeros(len(plans))
    devices, cluster = priced.model.space.devices, context.hardware.cluster
    groups_of: dict[UniformPlan, LayerGroups | None] = {}
    alike: dict[UniformPlan, list[int]] = defaultdict(list)  # but for where their groups lie
    # groups are the same whatever the rows and what is recomputed
    keys = [replace(each, micro_batch_size=1, recompute=Recompute.NONE) for each in plans]
    for number, plan in enumerate(plans):
        alike[replace(plan, group_order=GroupOrder.DATA_INNER)].append(number)
        if keys[number] not in groups_of:
            groups_of[keys[number]] = _groups_of(plan, devices, cluster)
    with context.progress.phase(f"layer times of {priced.model.name}", len(alike)) as advance:
        for numbers in alike.values():
            first, graph = plans[numbers[0]], priced.graph(numbers[0])
            every = {number: groups_of[keys[number]] for number in numbers}
            known = {number: groups for number, groups in every.items() if groups is not None}
            if known:
                times = context.hardware.model_times(graph, first.recompute, list(known.values()))
                if times is None:
                    return None
                machine = context.hardware.machine(0, 0.0)
                least = least_iteration_s(priced.model.space, first, times, machine)
                least_s[list(known)] = least
            advance(1)
    return least_s


def _groups_of(plan: UniformPlan, devices: int, cluster: Cluster) -> LayerGroups | None:
    """Where the groups of a shape lie that communicate within a layer; None: that depends on the
    plan."""
    if not have_like_groups(plan, cluster):
        return None
    return layer_groups(replace(plan, dp=devices // plan.inner_devices), cluster)


class _ShapeSearch:
    """The shapes that were looked at, by number; None where they have no plan."""

    def __init__(self, priced: PricedShapes, least_s: FloatArray) -> None:
        self._priced, self._least_s = priced, least_s
        self._sizes = sorted(priced.context.problem.memory_bytes)
        # Seconds of the best plan, of a shape with so much memory
        self._found: dict[tuple[int, int], float] = {}
        self._beyond: dict[tuple[int, int], float] = {}  # seconds that none is below
        self.shapes: dict[int, Shape | None] = {}

    def look_at(self, numbers: IntArray, most: int | None) -> None:
        """Look at those of ``numbers`` that might have the fastest plan of them with some memory.

        At ``most`` so many that have plans, and more only as long as none of them fits."""
        best_s, with_plans = dict.fromkeys(self._sizes, math.inf), 0

        def evaluate(number: IntArray) -> None:
            nonlocal with_plans
            for size in self._sizes:
                best_s[size] = min(best_s[size], self._seconds(int(number[0]), size, best_s[size]))
            with_plans += self.shapes[int(number[0])] is not None

        def incumbent() -> float:
            fits = min(best_s.values()) < math.inf
            if most is not None and with_plans >= (most if fits else max(most, MOST_WITHOUT)):
                return math.inf
            return -max(best_s.values()) * (1.0 + ROUNDING)

        best_first(numbers, [Once(-self._least_s, evaluate)], incumbent)

    def _seconds(self, number: int, memory_bytes: int, incumbent_s: float) -> float:
        """Seconds of a good plan of a shape; infinite where none is below ``incumbent_s``."""
        what = number, memory_bytes
        if what in self._found or self._beyond.get(what, -math.inf) >= incumbent_s:
            return self._found.get(what, math.inf)
        if number not in self.shapes:
            self.shapes[number] = self._priced.shape(number)
        shape, best_s = self.shapes[number], incumbent_s
        for part in shape.parts if shape is not None else ():
            plans = ConfigurationPlans(part.plans_on(0), part.costs, 0, float(memory_bytes))
            best_s = min(best_s, plans.best(best_s, most_steps=FIRST_STEPS).iteration_s)
            part.forget()
        self._beyond[what] = incumbent_s
        if best_s < incumbent_s:
            self._found[what] = best_s
        return best_s
