"""Seconds and joules that no plan of a shape is below on each of many chips, from their work and the lines of its plans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from Estimator.chips.latency_table import LatencyTable
from GraphExtractor.graph import GraphKey, ModelGraph
from Plans.groups import LayerGroups
from Plans.layer_costs import GraphNetwork, LayerSizes, layer_sizes
from Plans.plan import UniformPlan
from Plans.rates import Machine
from Solver.cuts.stage_graph import StageGraph
from Solver.hardware import DesignedChips
from Solver.plan_search.least_iterations import LeastIterations, least_iterations
from Solver.plan_search.shape_bounds import most_groups
from Solver.plan_search.shape_plans import ShapePlans
from Solver.problem import ModelProblem
from Solver.search.least_work import LeastWork, least_work
from Solver.search.network_times import PassNetwork
from Solver.search.run import Run

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
MakeTable = Callable[[ModelGraph, DesignedChips], LatencyTable]  # prices, or what bounds them


@dataclass(frozen=True, eq=False)
class ShapeBound:
    """Of shape ``number`` on chips: seconds that no plan with ``memory_bytes`` is below, joules of a sample; (chips,) each."""

    number: int
    memory_bytes: int
    seconds: FloatArray
    joules: FloatArray


class ShapeBounds:
    """Bounds of the plans of ``shapes`` of a model on chips of the hardware of ``run``, by number of the shape."""

    def __init__(
        self, run: Run, model: ModelProblem, graphs: Mapping[GraphKey, ModelGraph], shapes: Sequence[UniformPlan]
    ) -> None:
        self.model, self.shapes = model, shapes
        self._graphs, self._cluster, self._sizes = graphs, run.hardware.cluster, run.problem.memory_bytes
        self._machine: Machine = max(run.machines, key=lambda machine: machine.stream_bytes_per_s)  # no other takes less
        self._lines: dict[int, list[tuple[LayerGroups, dict[int, LeastIterations]]]] = {}
        self._lying: dict[int, list[tuple[LayerGroups, IntArray]]] = {}
        self._stages: dict[LayerSizes, StageGraph] = {}
        self._layer_sizes: dict[tuple[object, ...], LayerSizes] = {}

    def on(
        self, hardware: DesignedChips, numbers: Sequence[int], make_table: MakeTable, *, of_plans: bool
    ) -> Iterator[ShapeBound]:
        """Of every shape of ``numbers`` the bounds with each memory, on all chips of ``hardware``.

        ``make_table`` says what their operators take at least. ``of_plans``, the plans of shapes are listed for their lines; else
        work is shared out evenly among all devices.
        """
        by_graph: dict[GraphKey, list[int]] = defaultdict(list)
        for number in numbers:
            by_graph[self.model.graph_key(self.shapes[number])].append(number)
        for key, mine in by_graph.items():
            works = _Works(self._graphs[key], hardware, make_table)
            for number in mine:
                yield from self._of_shape(number, works, of_plans=of_plans)

    def _of_shape(self, number: int, works: _Works, *, of_plans: bool) -> list[ShapeBound]:
        shape, found_s, joules = self.shapes[number], dict[int, FloatArray](), None
        for groups, lines in self.lines(number) if of_plans else self._shared_out(number):
            work = works.of(groups)
            work_s, sample_j = work.seconds(shape.recompute), work.joules(shape.recompute) / shape.micro_batch_size
            sample_j *= shape.tp * shape.sequence_devices
            joules = sample_j if joules is None else np.minimum(joules, sample_j)
            for size, least in lines.items():
                seconds = least.seconds(work_s)
                found_s[size] = np.minimum(found_s[size], seconds) if size in found_s else seconds
        if joules is None:
            return []
        return [ShapeBound(number, size, seconds, joules) for size, seconds in found_s.items()]

    def lines(self, number: int) -> list[tuple[LayerGroups, dict[int, LeastIterations]]]:
        """By where groups lie, and by memory, the lines of the plans of a shape; memories in which none fits are left out."""
        if number not in self._lines:
            self._lines[number] = list(self._found_lines(number))
        return self._lines[number]

    def _shared_out(self, number: int) -> Iterator[tuple[LayerGroups, dict[int, LeastIterations]]]:
        shape, space = self.shapes[number], self.model.space
        groups = min(space.devices // shape.inner_devices, most_groups(space, shape))
        part = np.array([shape.global_batch_size / (shape.micro_batch_size * groups)])
        line = LeastIterations(part, np.zeros(1))
        yield from ((lying, dict.fromkeys(self._sizes, line)) for lying, _ in self._groups(number))

    def _groups(self, number: int) -> list[tuple[LayerGroups, IntArray]]:
        """Where the groups lie that communicate within a layer, and the places of the plans in which they lie so."""
        if number not in self._lying:
            shape = self.shapes[number]
            layers = len(self._graphs[self.model.graph_key(shape)].sequence)
            self._lying[number] = list(self.model.space.plans(shape, layers, self._cluster).by_groups(self._cluster).items())
        return self._lying[number]

    def _found_lines(self, number: int) -> Iterator[tuple[LayerGroups, dict[int, LeastIterations]]]:
        shape = self.shapes[number]
        graph = self._graphs[self.model.graph_key(shape)]
        plans = self.model.space.plans(shape, len(graph.sequence), self._cluster)
        for groups, rows in self._groups(number):
            what = (graph.key, shape.recompute, groups.panels)
            if what not in self._layer_sizes:
                self._layer_sizes[what] = layer_sizes(graph, shape.recompute, groups.panels)
            sizes = self._layer_sizes[what]
            listed = ShapePlans(graph, sizes, plans.some(rows), self._machine, self._stages.get(sizes))
            self._stages[sizes] = listed.stages_on_device
            lines = {size: least_iterations(listed, size) for size in self._sizes}
            yield groups, {size: least for size, least in lines.items() if len(least.slope)}


class _Works:
    """The least work of a graph on chips, by where the groups lie that communicate within its layers."""

    def __init__(self, graph: ModelGraph, hardware: DesignedChips, make_table: MakeTable) -> None:
        self._graph, self._hardware, self._make_table = graph, hardware, make_table
        self._table: LatencyTable | None = None
        self._known: dict[LayerGroups, LeastWork] = {}

    def of(self, groups: LayerGroups) -> LeastWork:
        """That with ``groups``."""
        if groups not in self._known:
            if self._table is None:
                self._table = self._make_table(self._graph, self._hardware)
            network = PassNetwork(GraphNetwork(self._graph, self._hardware.cluster, groups).seconds, groups.panels)
            self._known[groups] = least_work(self._graph, self._table, network)
        return self._known[groups]
