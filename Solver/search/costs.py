"""The shapes of a model's plans with what their layers cost on every configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from Estimator.coverage import check_functions
from GraphExtractor import load_or_extract
from GraphExtractor.graph import GraphKey, ModelGraph
from Plans.groups import ALONE, DeviceGroups
from Plans.layer_costs import LayerCosts
from Plans.plan import TrainingPlan
from Plans.rates import experts_of
from Solver.hardware import PricedGraph
from Solver.plan_search.shape_plans import ShapePlans
from Solver.plan_search.space import PlanArrays
from Solver.problem import ModelProblem
from Solver.search.run import Run

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Part:
    """Plans of a shape whose expert groups lie alike on the cluster, and what its layers cost."""

    plans: ShapePlans
    costs: LayerCosts
    experts: DeviceGroups


@dataclass(frozen=True, eq=False)
class Shape:
    """What decides the seconds of a layer: tp, cp, ep, micro-batch, recomputation, sequence parallelism.

    ``excess`` (configurations,) is by what factor the seconds of a configuration can at most be too long.
    """

    plan: TrainingPlan
    graph: ModelGraph
    parts: tuple[Part, ...]
    excess: FloatArray

    def with_costs(self, priced: dict[DeviceGroups, PricedGraph]) -> Shape:
        """The same with layers priced anew."""
        parts = tuple(replace(part, costs=priced[part.experts].costs[self.plan.recompute]) for part in self.parts)
        return replace(self, parts=parts, excess=_excess(priced[part.experts] for part in self.parts))


@dataclass(frozen=True, eq=False)
class ModelShapes:
    """All shapes of one model with one micro-batch size.

    ``doubtful`` configurations have layer times that are not proven shortest, although shorter ones might make them the best.
    """

    model: ModelProblem
    micro_batch_size: int
    shapes: tuple[Shape, ...]
    doubtful: int = 0

    @property
    def excess(self) -> FloatArray:
        """By what factor the seconds of each configuration can be too long, shape (configurations,)."""
        worst: FloatArray = np.max([shape.excess for shape in self.shapes], axis=0)
        return worst


def _excess(priced: Iterable[PricedGraph]) -> FloatArray:
    worst: FloatArray = np.max([one.excess for one in priced], axis=0)
    return worst


def model_shapes(run: Run, model: ModelProblem) -> list[ModelShapes]:
    """The shapes of ``model`` by micro-batch size, their graphs extracted where they are not on disk, layers priced.

    None where its space holds no plan.

    Raises:
        InputError: the model cannot be traced, or has operators without a price and the problem is strict.
    """
    shapes = list(model.space.shapes())
    keys = list(dict.fromkeys(model.graph_key(shape) for shape in shapes))
    graphs = {}
    with run.progress.phase(f"training graphs of {model.name}", len(keys)) as advance:
        for key in keys:
            graphs[key] = load_or_extract(key, run.stores.graphs, force=run.problem.force_reextract)
            advance(1)
    if run.first:
        check_functions(graphs.values(), run.hardware.known_functions, strict=run.problem.strict)
    modes = tuple(dict.fromkeys(shape.recompute for shape in shapes))
    by_size: dict[int, list[Shape]] = {}
    with run.progress.phase(f"layer times of {model.name}", len(keys)) as advance:
        priced: dict[tuple[GraphKey, DeviceGroups], PricedGraph] = {}
        for shape in shapes:
            graph = graphs[model.graph_key(shape)]
            plans = model.space.plans(shape, len(graph.sequence), run.hardware.cluster)
            parts = []
            for experts, some in _by_experts(run, plans):
                what = graph.key, experts
                if what not in priced:
                    priced[what] = run.hardware.price(graph, modes, experts, run.stores.estimates, advance)
                costs = priced[what].costs[shape.recompute]
                parts.append(Part(ShapePlans(graph, costs.sizes, some, run.machine), costs, experts))
            if parts:
                excess = _excess([priced[graph.key, part.experts] for part in parts])
                by_size.setdefault(shape.micro_batch_size, []).append(Shape(shape, graph, tuple(parts), excess))
    return [ModelShapes(model, size, tuple(found)) for size, found in by_size.items()]


def _by_experts(run: Run, plans: PlanArrays) -> list[tuple[DeviceGroups, PlanArrays]]:
    """Plans by where the groups that divide the experts lie."""
    if not len(plans):
        return []
    if plans.shape.ep == 1:
        return [(ALONE, plans)]
    where: dict[DeviceGroups, list[int]] = {}
    for index in range(len(plans)):
        where.setdefault(experts_of(plans.plan(index), run.hardware.cluster), []).append(index)
    arrays = [field.name for field in fields(PlanArrays) if field.name not in ("space", "shape")]
    return [
        (experts, replace(plans, **{name: getattr(plans, name)[indices] for name in arrays}))
        for experts, indices in where.items()
    ]
