"""Every plan of a few stages that may differ, priced one by one: what a search must agree with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import LayerGroups, as_at_the_start, layer_groups
from Estimator.plans.heterogeneous.mixed_layers import RecomputableLayers
from Estimator.plans.heterogeneous.placed_stage import PlacedStage
from Estimator.plans.heterogeneous.pricing import PricedStages
from Estimator.plans.rates import Machine
from GraphExtractor.graph import GraphKey, Recompute
from Solver.paths.lattice import Lattice
from Solver.paths.spaces import PlanLimits
from Solver.paths.stage_options import StageOption
from tests.builders.random_searches import Case


@dataclass(eq=False)
class CaseLayers:
    """What the layers of a random case's graphs cost, each once."""

    case: Case
    known: dict[tuple[GraphKey, LayerGroups, Recompute], RecomputableLayers] = field(
        default_factory=dict
    )

    def of(self, degrees: UniformPlan) -> RecomputableLayers:
        model = self.case.problem.models[0]
        key = degrees.graph_key(model.name, model.space.sequence_length)
        groups, mode = layer_groups(degrees, self.case.hardware.cluster), degrees.recompute
        if (key, groups, mode) not in self.known:
            graph = self.case.graph(key)
            stored = self.case.hardware.costs(graph, Recompute.NONE, groups)
            again = (
                stored if mode is Recompute.NONE else self.case.hardware.costs(graph, mode, groups)
            )
            self.known[key, groups, mode] = RecomputableLayers(stored, again)
        return self.known[key, groups, mode]


def every_way(
    options: Sequence[StageOption], lattice: Lattice, limits: PlanLimits, case: Case
) -> Iterator[list[tuple[int, PlacedStage]]]:
    """Every sequence of stages, by definition: each cut, option, number of recomputed layers and
    number of devices."""
    cluster = case.hardware.cluster

    def rest(
        node: int, device: int, placed: list[tuple[int, PlacedStage]]
    ) -> Iterator[list[tuple[int, PlacedStage]]]:
        if node == 0:
            counted = limits.stage_counts is None or len(placed) in limits.stage_counts
            if counted and (device == limits.devices or not limits.all_devices):
                yield placed
            return
        if len(placed) == limits.most:
            return
        for part in lattice.part[lattice.first[node] : lattice.first[node + 1]].tolist():
            layers = tuple(np.flatnonzero(lattice.members[node] & ~lattice.members[part]).tolist())
            for number, option in enumerate(options):
                end = device + option.devices
                if end > limits.devices or not as_at_the_start(device, option.devices, cluster):
                    continue
                for count in range(len(layers) + 1) if option.partly else [None]:
                    yield from rest(
                        part,
                        end,
                        [*placed, (number, PlacedStage(option.degrees, device, layers, count))],
                    )

    return rest(len(lattice.members) - 1, 0, [])


def least_s(
    options: Sequence[StageOption],
    layers: CaseLayers,
    lattice: Lattice,
    limits: PlanLimits,
    machine: Machine,
) -> float:
    """Seconds of the fastest of them that fits in memory; infinite where none does."""
    best_s = math.inf
    for placed in every_way(options, lattice, limits, layers.case):
        priced = PricedStages(
            [stage for _, stage in placed],
            [layers.of(stage.degrees) for _, stage in placed],
            machine,
        )
        if float(priced.memory_bytes.sum(axis=0).max()) <= machine.memory_bytes * (1 + 1e-12):
            best_s = min(best_s, priced.iteration_s)
    return best_s
