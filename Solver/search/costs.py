"""The shapes of a model's plans with what their layers cost on every configuration."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from Estimator.coverage import check_functions
from GraphExtractor.graph import GraphKey, ModelGraph
from GraphExtractor.storage import load_or_extract
from Plans.groups import LayerGroups
from Plans.layer_costs import LayerCosts, LayerSizes
from Plans.plan import UniformPlan
from Solver.cuts.stage_graph import StageGraph
from Solver.hardware import Hardware, PricedGraph
from Solver.plan_search.shape_plans import ShapePlans
from Solver.problem import ModelProblem
from Solver.schedule.solver import Effort
from Solver.search.run import Run

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Part:
    """Plans of a shape whose groups within a layer lie alike, what its layers cost, and what they cost at ``least``."""

    plans: ShapePlans
    costs: LayerCosts
    least: LayerCosts
    groups: LayerGroups


@dataclass(frozen=True, eq=False)
class Shape:
    """What decides the seconds of a layer: tp, cp, ep and where they lie, micro-batch, recomputation, sequence parallelism."""

    plan: UniformPlan
    graph: ModelGraph
    parts: tuple[Part, ...]

    @cached_property
    def excess(self) -> FloatArray:
        """By what factor the seconds of each configuration can at most be too long, shape (configurations,)."""
        worst: FloatArray = np.max([_excess(part) for part in self.parts], axis=0)
        return worst

    @property
    def times_key(self) -> str:
        """Content key of what the layers cost."""
        digest = hashlib.blake2b(digest_size=8)
        for part in self.parts:
            digest.update(pass_seconds(part.costs).tobytes())
        return digest.hexdigest()

    def fits(self, memory_bytes: float) -> bool:
        """Whether a plan has a cut that fits."""
        return any(part.plans.fit(memory_bytes) for part in self.parts)

    def proven_at(self, hardware: Hardware, row: int) -> Shape:
        """The same with configuration ``row`` priced with the most effort."""
        keys = [(self.graph.key, part.groups) for part in self.parts]
        modes, rows = (self.plan.recompute,), np.array([row])
        return self.with_costs(
            {(key, groups): hardware.refined(modes, self.graph, groups, rows, Effort.THOROUGH) for key, groups in keys}
        )

    def with_costs(self, priced: Mapping[tuple[GraphKey, LayerGroups], PricedGraph]) -> Shape:
        """The same with what is ``priced`` anew."""
        mode, parts = self.plan.recompute, []
        for part in self.parts:
            found = priced.get((self.graph.key, part.groups))
            parts.append(part if found is None else replace(part, costs=found.costs[mode], least=found.least[mode]))
        return replace(self, parts=tuple(parts))


def pass_seconds(costs: LayerCosts, rows: NDArray[np.int64] | slice = slice(None)) -> FloatArray:
    """Forward and whole backward seconds of every distinct layer, shape (configurations ``rows``, 2 * distinct layers)."""
    backward = costs.backward.arithmetic_s[rows] + costs.recompute.arithmetic_s[rows]
    return np.hstack([costs.forward.arithmetic_s[rows], backward])


def _excess(part: Part) -> FloatArray:
    found_s, least_s = pass_seconds(part.costs), pass_seconds(part.least)
    excess: FloatArray = np.divide(found_s, least_s, out=np.ones_like(found_s), where=least_s > 0.0).max(axis=1)
    return excess


@dataclass(frozen=True, eq=False)
class ModelShapes:
    """All shapes of one model with one micro-batch size."""

    model: ModelProblem
    micro_batch_size: int
    shapes: tuple[Shape, ...]


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
            graphs[key] = load_or_extract(key, run.stores.graphs, run.problem.force_reextract, run.problem.code)
            advance(1)
    if run.first:
        check_functions(graphs.values(), run.hardware.known_functions, strict=run.problem.strict)
    modes = tuple(dict.fromkeys(shape.recompute for shape in shapes))
    by_size: dict[int, list[Shape]] = {}
    with run.progress.phase(f"layer times of {model.name}, by shape of plans", len(shapes)) as advance:
        priced: dict[tuple[GraphKey, LayerGroups], PricedGraph] = {}
        stages: dict[LayerSizes, StageGraph] = {}  # which lie the same wherever groups do
        for shape in shapes:
            graph = graphs[model.graph_key(shape)]
            plans = model.space.plans(shape, len(graph.sequence), run.hardware.cluster)
            parts = []
            for groups, rows in plans.by_groups(run.hardware.cluster).items():
                what = graph.key, groups
                if what not in priced:
                    priced[what] = run.hardware.price(graph, modes, groups, run.stores.estimates)
                costs, least = priced[what].costs[shape.recompute], priced[what].least[shape.recompute]
                of_part = ShapePlans(graph, costs.sizes, plans.some(rows), run.machine, stages.get(costs.sizes))
                stages[costs.sizes] = of_part.stages
                parts.append(Part(of_part, costs, least, groups))
            if parts:
                by_size.setdefault(shape.micro_batch_size, []).append(Shape(shape, graph, tuple(parts)))
            advance(1)
    return [ModelShapes(model, size, tuple(found)) for size, found in by_size.items()]
