"""Seconds and joules that no plan of a shape is below on each of many chips, from their work and
the lines of its plans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import numpy as np

from Estimator.chips.latency_table import LatencyTable, populate_estimates
from Estimator.chips.least_prices import least_table
from Estimator.network.cluster import Cluster
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import LayerGroups
from Estimator.plans.layer_costs import GraphNetwork, LayerSizes, layer_sizes
from Estimator.plans.offload import NOTHING
from Estimator.plans.rates import Machine
from GraphExtractor.graph import Collective, GraphKey, ModelGraph, Recompute
from phaze_common.array_types import FloatArray
from Solver.chip_metrics import ChipMetrics
from Solver.designs.least_work import CoreWork, LeastWork, core_work, least_work, most_frequent
from Solver.designs.network_times import PassNetwork
from Solver.designs.search_context import SearchContext
from Solver.hardware import DesignedChips
from Solver.paths.stage_graph import StageGraph
from Solver.plans.least_iterations import LeastIterations, LikeLayers, least_iterations, least_of
from Solver.plans.shape_bounds import most_groups
from Solver.plans.shape_plans import ShapePlans
from Solver.plans.space import PlanSpace
from Solver.problem import ModelProblem

MakeTable = Callable[[ModelGraph, DesignedChips], LatencyTable]  # prices, or what bounds them


def at_peak_rates(graph: ModelGraph, hardware: DesignedChips) -> LatencyTable:
    """What operators take at peak rates and with compulsory traffic."""
    return least_table(graph, hardware.accelerators, hardware.platform)


def priced(graph: ModelGraph, hardware: DesignedChips) -> LatencyTable:
    """What they take."""
    return populate_estimates((graph,), hardware.accelerators, hardware.platform, hardware.on_chip)


@dataclass(frozen=True, eq=False)
class ShapeBound:
    """Of shape ``number`` on chips: seconds that no plan with ``memory_bytes`` is below, joules of
    a sample; (chips,) each.

    They are infinite on chips that do not have as much."""

    number: int
    memory_bytes: int
    seconds: FloatArray
    joules: FloatArray


class ShapeBounds:
    """Bounds of the plans of ``shapes`` of a model on chips of the hardware of ``context``, by
    number of the shape.

    What is exchanged within layers takes as long as where the groups lie best of all plans of a
    shape."""

    def __init__(
        self,
        context: SearchContext,
        model: ModelProblem,
        graphs: Mapping[GraphKey, ModelGraph],
        shapes: Sequence[UniformPlan],
    ) -> None:
        self.model, self.shapes = model, shapes
        self._graphs, self._clusters = graphs, context.clusters
        self._sizes = context.problem.memory_bytes
        self._machine = _fastest(context.machines)
        self._lines: dict[int, dict[int, LeastIterations]] = {}
        self._groups: dict[UniformPlan, tuple[LayerGroups, ...]] = {}
        self._stages: dict[LayerSizes, StageGraph] = {}
        self._layer_sizes: dict[tuple[object, ...], LayerSizes] = {}

    def on(
        self,
        hardware: DesignedChips,
        numbers: Sequence[int],
        make_table: MakeTable,
        *,
        listed: bool = True,
    ) -> Iterator[ShapeBound]:
        """Of every shape of ``numbers`` the bounds with each memory, on all chips of ``hardware``.

        ``make_table`` says what their operators take at least. Unless plans are ``listed`` for
        their lines, which takes its time once for each shape, work is shared out evenly among all
        devices."""
        by_graph: dict[GraphKey, list[int]] = defaultdict(list)
        for number in numbers:
            if self._placements(number):
                by_graph[self.model.graph_key(self.shapes[number])].append(number)
        for key, mine in by_graph.items():
            graph, works = self._graphs[key], dict[tuple[LayerGroups, ...], LeastWork]()
            table = make_table(graph, hardware)
            for number in mine:
                groups = self._placements(number)
                if groups not in works:
                    works[groups] = least_work(graph, table, _network(graph, groups, hardware))
                lines = self.lines(number) if listed else self._shared_out(number)
                yield from self._bounds(number, lines, works[groups], hardware.metrics)

    def by_placement(
        self, hardware: DesignedChips, number: int, make_table: MakeTable
    ) -> Iterator[tuple[tuple[LayerGroups, ...], ShapeBound]]:
        """As ``on`` of one shape, for each kind of placement that costs the same, and memory."""
        shape = self.shapes[number]
        graph = self._graphs[self.model.graph_key(shape)]
        alike = defaultdict[tuple[float, ...], list[LayerGroups]](list)
        table = make_table(graph, hardware)
        collectives = list(dict.fromkeys(_collectives(graph)))
        for groups in self._placements(number):
            network = _network(graph, (groups,), hardware)
            networks = network.seconds, *network.others
            costs = tuple(each(sent) for each in networks for sent in collectives)
            alike[costs].append(groups)
        for placements in alike.values():
            work = least_work(graph, table, _network(graph, placements[:1], hardware))
            for bound in self._bounds(number, self.lines(number), work, hardware.metrics):
                yield tuple(placements), bound

    def _bounds(
        self,
        number: int,
        lines: Mapping[int, LeastIterations],
        work: LeastWork,
        metrics: ChipMetrics,
    ) -> Iterator[ShapeBound]:
        """With each memory, on the chips that have as much; elsewhere infinite."""
        shape = self.shapes[number]
        of_micro_batch = work.of_micro_batch(shape.recompute)
        joules = work.joules(shape.recompute) * (shape.inner_devices / shape.micro_batch_size)
        for size, least in lines.items():
            held, seconds = metrics.holding(size), np.full(len(metrics), np.inf)
            seconds[held] = least.seconds(of_micro_batch.some(held))
            yield ShapeBound(number, size, seconds, joules)

    def of_cores(self, hardware: DesignedChips, make_table: MakeTable) -> CoreWork | None:
        """What a sample takes at least of the cores of all devices that work on it, under any
        shape; None where none has plans.

        Nothing is exchanged."""
        least: CoreWork | None = None
        shapes = {
            (self.model.graph_key(shape), shape.panels): shape
            for number, shape in enumerate(self.shapes)
            if self._placements(number)
        }
        tables: dict[GraphKey, LatencyTable] = {}
        for (key, panels), shape in shapes.items():
            if key not in tables:
                tables = {key: make_table(self._graphs[key], hardware)}
            of_sample = shape.inner_devices / shape.micro_batch_size
            work = core_work(self._graphs[key], tables[key], panels).times(of_sample)
            least = work if least is None else least.or_less(work)
        return least

    def of_samples(self) -> dict[int, LeastIterations]:
        """By memory the least of the lines of all shapes, per sample and device at work on it."""
        found: dict[int, list[LeastIterations]] = defaultdict(list)
        for number, shape in enumerate(self.shapes):
            part = shape.micro_batch_size / shape.inner_devices
            for size, least in self.lines(number).items() if self._placements(number) else ():
                found[size].append(least.of_parts(part))
        return {size: least_of(lines) for size, lines in found.items()}

    def lines(self, number: int) -> dict[int, LeastIterations]:
        """By memory the lines of the plans of a shape; memories in which none fits are left out."""
        if number not in self._lines:
            self._lines[number] = self._found_lines(number)
        return self._lines[number]

    def _shared_out(self, number: int) -> dict[int, LeastIterations]:
        shape, space = self.shapes[number], self.model.space
        groups = min(space.devices // shape.inner_devices, most_groups(space, shape))
        part = shape.global_batch_size / (shape.micro_batch_size * groups)
        return dict.fromkeys(self._sizes, LeastIterations.shared_out(part))

    def _placements(self, number: int) -> tuple[LayerGroups, ...]:
        """Where groups within a layer may lie; nowhere where a shape has no plans."""
        shape = self.shapes[number]
        same = replace(
            shape,
            recompute=Recompute.NONE,
            sequence_parallel=False,
            overlap_tensor=None,
            offload=NOTHING,
        )
        if same not in self._groups:
            layers = len(self._graphs[self.model.graph_key(shape)].sequence)
            self._groups[same] = _placements_of_shape(
                self.model.space, shape, layers, tuple(self._clusters)
            )
        return self._groups[same]

    def _found_lines(self, number: int) -> dict[int, LeastIterations]:
        shape = self.shapes[number]
        graph = self._graphs[self.model.graph_key(shape)]
        plans = self.model.space.plans(shape, len(graph.sequence), *self._clusters)
        what = graph.key, shape.recompute, shape.panels
        if what not in self._layer_sizes:
            self._layer_sizes[what] = layer_sizes(graph, shape.recompute, shape.panels)
        sizes = self._layer_sizes[what]
        listed = ShapePlans(graph, sizes, plans, self._machine, self._stages.get(sizes))
        self._stages[sizes] = listed.stages_on_device
        alike = like_layers(graph, sizes)
        lines = {size: least_iterations(listed, size, alike) for size in self._sizes}
        return {size: least for size, least in lines.items() if len(least)}


def _fastest(machines: Sequence[Machine]) -> Machine:
    """A machine that none of ``machines`` takes less on for whatever plans add to their layers: as
    fast as any everywhere.

    Where nothing is hidden beside work, nothing takes longer for more bandwidth."""
    first = max(machines, key=lambda machine: machine.stream_bytes_per_s)
    alike = zip(*(machine.cluster.tiers for machine in machines), strict=True)
    tiers = tuple(max(each, key=lambda tier: tier.bandwidth_bytes_per_s) for each in alike)
    return replace(first, cluster=replace(first.cluster, tiers=tiers))


@lru_cache(maxsize=1024)  # what limits a design asks for them again and again
def _placements_of_shape(
    space: PlanSpace, shape: UniformPlan, layers: int, clusters: tuple[Cluster, ...]
) -> tuple[LayerGroups, ...]:
    return tuple(space.plans(shape, layers, *clusters).by_groups(clusters[0]))


def like_layers(graph: ModelGraph, sizes: LayerSizes) -> LikeLayers:
    """The most frequent layer of ``graph``, as a shape of plans divides it."""
    frequent = most_frequent(graph)
    places = tuple(
        place for place in range(1, len(graph.sequence) - 1) if graph.sequence[place] == frequent
    )
    if not places:
        return LikeLayers((), 0.0, 0.0)
    kind = sizes.sequence[places[0]]
    return LikeLayers(places, float(sizes.parameters[kind]), float(sizes.expert_parameters[kind]))


def _collectives(graph: ModelGraph) -> Iterator[Collective]:
    for layer in graph.layers:
        for operators in (layer.forward, layer.backward, layer.backward_selective):
            yield from (
                each.collective for each in operators.operators if each.collective is not None
            )


def _network(
    graph: ModelGraph, groups: Sequence[LayerGroups], hardware: DesignedChips
) -> PassNetwork:

    def of_cluster(cluster: Cluster) -> Callable[[Collective], float]:
        networks = [GraphNetwork(graph, cluster, each) for each in groups]

        @cache
        def seconds(collective: Collective) -> float:
            return min(network.seconds(collective) for network in networks)

        return seconds

    return hardware.pass_network(of_cluster, groups[0].panels)
