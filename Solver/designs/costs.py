"""The shapes of a model's plans with what their layers cost on every configuration."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import LayerGroups
from Estimator.plans.layer_costs import LayerCosts, LayerSizes
from GraphExtractor.graph import GraphKey, ModelGraph
from phaze_common.array_types import FloatArray, IntArray
from Solver.chip_metrics import ChipMetrics
from Solver.designs.search_context import Placements, SearchContext
from Solver.designs.search_criteria import SearchCriteria
from Solver.hardware import Hardware, PricedGraph, graph_content
from Solver.paths.stage_graph import StageGraph
from Solver.plans.shape_bounds import NONE_PRUNED, PrunedShapes
from Solver.plans.shape_plans import ShapePlans
from Solver.problem import ModelProblem
from Solver.schedule.solver import NodeLimit

MANY_SHAPES = 256  # whose plans together hold gigabytes of prices


@dataclass(frozen=True, eq=False)
class Part:
    """Plans of a shape whose groups within a layer lie alike, what its layers cost, and what they
    cost at ``least``.

    Where memories or links differ the plans are those on each machine, ``machine_of`` the place of
    every configuration's."""

    plans: ShapePlans
    costs: LayerCosts
    least: LayerCosts
    groups: LayerGroups
    others: tuple[ShapePlans, ...] = ()  # the same plans on machines with other memory or links
    machine_of: IntArray | None = None

    def plans_on(self, row: int) -> ShapePlans:
        """The plans on the machine of configuration ``row``."""
        machine = 0 if self.machine_of is None else self.machine_of[row]
        return (self.plans, *self.others)[machine]

    def by_machine(self, rows: IntArray) -> Iterator[tuple[ShapePlans, IntArray]]:
        """The plans on each machine of configurations ``rows``, and the places of those there."""
        machines = (
            np.zeros(len(rows), np.int64) if self.machine_of is None else self.machine_of[rows]
        )
        for machine in np.unique(machines).tolist():
            yield (self.plans, *self.others)[machine], np.flatnonzero(machines == machine)

    def forget(self) -> None:
        """Let go of what can be computed again."""
        for plans in (self.plans, *self.others):
            plans.forget()


@dataclass(frozen=True, eq=False)
class Dominators:
    """For every configuration with ``metrics`` one that dominates it, or -1; (configurations,)."""

    metrics: ChipMetrics
    rows: IntArray


@dataclass(frozen=True, eq=False)
class Shape:
    """What decides the seconds of a layer: tp, cp, ep and places, micro-batch, recomputation.

    ``dominators`` are those found so far, by criteria and by the configurations they are among."""

    plan: UniformPlan
    graph: ModelGraph
    parts: tuple[Part, ...]
    dominators: dict[tuple[SearchCriteria, bytes], Dominators] = field(default_factory=dict)

    @cached_property
    def excess(self) -> FloatArray:
        """By what factor seconds can at most be too long, shape (configurations,)."""
        worst = []
        for part in self.parts:
            found_s, least_s = pass_seconds(part.costs), pass_seconds(part.least)
            at_least = np.ones_like(found_s)
            worst.append(np.divide(found_s, least_s, out=at_least, where=least_s > 0.0).max(axis=1))
        return np.asarray(np.max(worst, axis=0))

    @cached_property
    def least_devices(self) -> int:
        """Those of the plan that needs fewest."""
        return min(int(part.plans.plans.devices.min()) for part in self.parts)

    @property
    def times_key(self) -> str:
        """Content key of what the layers cost, and of what they cost at least."""
        digest = hashlib.blake2b(digest_size=8)
        for part in self.parts:
            for costs in (part.costs, part.least):
                digest.update(pass_seconds(costs).tobytes())
        return digest.hexdigest()

    def fits(self, memory_bytes: float) -> bool:
        """Whether a plan has a cut that fits."""
        return any(part.plans.fit(memory_bytes) for part in self.parts)

    def proven_at(self, hardware: Hardware, row: int) -> Shape:
        """The same with configuration ``row`` priced up to the largest node limit."""
        graph, modes, rows = self.graph, (self.plan.recompute,), np.array([row])
        priced = {
            (graph.key, part.groups): hardware.refined(
                modes, graph, part.groups, rows, NodeLimit.THOROUGH
            )
            for part in self.parts
        }
        return self.with_costs(priced)

    def with_costs(self, priced: Mapping[tuple[GraphKey, LayerGroups], PricedGraph]) -> Shape:
        """The same with what is ``priced`` anew; itself where nothing changes."""
        mode, parts, changes = self.plan.recompute, [], False
        for part in self.parts:
            found = priced.get((self.graph.key, part.groups))
            if found is not None:
                costs, least = found.costs[mode], found.least[mode]
                changes |= costs is not part.costs or least is not part.least
                part = replace(part, costs=costs, least=least)
            parts.append(part)
        return replace(self, parts=tuple(parts), dominators={}) if changes else self


def pass_seconds(costs: LayerCosts, rows: IntArray | slice = slice(None)) -> FloatArray:
    """Forward and whole backward seconds of distinct layers, shape (``rows``, 2 * layers)."""
    backward = costs.backward.arithmetic_s[rows] + costs.recompute.arithmetic_s[rows]
    return np.hstack([costs.forward.arithmetic_s[rows], backward])


@dataclass(frozen=True, eq=False)
class ModelShapes:
    """All shapes of one model with one micro-batch size; ``pruned_shapes`` are those whose plans
    were not even listed."""

    model: ModelProblem
    micro_batch_size: int
    shapes: tuple[Shape, ...]
    pruned_shapes: PrunedShapes = NONE_PRUNED


class PricedShapes:
    """The shapes of ``model`` by number, their layers priced and their plans listed when they are
    asked for.

    Of those that are ``placements`` only plans are listed whose groups within a layer lie as one of
    these."""

    def __init__(
        self,
        context: SearchContext,
        model: ModelProblem,
        graphs: Mapping[GraphKey, ModelGraph],
        plans: Sequence[UniformPlan],
        placements: Placements | None = None,
    ) -> None:
        self.context, self.model, self.plans = context, model, plans
        self._placements = placements or {}
        self.graphs, self._modes = graphs, tuple(dict.fromkeys(shape.recompute for shape in plans))
        self._priced: dict[tuple[GraphKey, LayerGroups], PricedGraph] = {}
        self._stages: dict[LayerSizes, StageGraph] = {}  # which lie the same wherever groups do

    def __len__(self) -> int:
        return len(self.plans)

    @cached_property
    def graph_contents(self) -> list[str]:
        """Content keys of the graphs."""
        return [graph_content(graph) for graph in self.graphs.values()]

    def graph(self, number: int) -> ModelGraph:
        """The graph of a shape."""
        return self.graphs[self.model.graph_key(self.plans[number])]

    def shape(self, number: int) -> Shape | None:
        """A shape, None where it has no plan."""
        context, shape, graph = self.context, self.plans[number], self.graph(number)
        plans = self.model.space.plans(shape, len(graph.sequence), *context.clusters)
        parts = []
        chosen_groups = self._placements.get(shape)
        for groups, rows in plans.by_groups(context.hardware.cluster).items():
            what = graph.key, groups
            if chosen_groups is not None and groups not in chosen_groups:
                continue
            if what not in self._priced:
                self._priced[what] = context.hardware.price(
                    graph, self._modes, groups, context.stores.estimates
                )
            costs = self._priced[what].costs[shape.recompute]
            least = self._priced[what].least[shape.recompute]
            chosen, of_machines = plans.some(rows), []
            for machine in context.machines:
                of_machines.append(
                    ShapePlans(graph, costs.sizes, chosen, machine, self._stages.get(costs.sizes))
                )
                self._stages[costs.sizes] = of_machines[-1].stages_on_device
            machine_of = context.hardware.metrics.machine_of if len(of_machines) > 1 else None
            parts.append(
                Part(of_machines[0], costs, least, groups, tuple(of_machines[1:]), machine_of)
            )
        return Shape(shape, graph, tuple(parts)) if parts else None
