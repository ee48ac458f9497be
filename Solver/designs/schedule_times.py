"""Makespans and energy of every layer pass of a graph on every accelerator, from schedules proven
as far as it is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from Estimator.chips.latency_table import LatencyTable
from Estimator.plans.layer_costs import LayerCosts
from GraphExtractor.graph import LayerGraph, ModelGraph, OperatorGraph
from phaze_common.array_types import FloatArray, IntArray, fieldwise
from phaze_common.arrays import load_arrays, store_arrays
from phaze_common.recompute_modules import Recomputation
from phaze_common.user_cache import ESTIMATES, keep, load_or_bring
from Solver.designs.network_times import PassNetwork, schedule_structure
from Solver.schedule.native import NativeSolver
from Solver.schedule.problem import Mode, Schedule, ScheduleProblem
from Solver.schedule.solver import NodeLimit, ScheduleSolver

PROVEN_GAP = 1e-8  # relative; solvers prove to 1e-9 and better
ROWS_AT_ONCE = 8192  # accelerators priced together, which bounds memory
PROVEN_FIELDS = ("seconds", "least_s", "joules", "least_joules")  # of ``GraphTimes``
FORWARD, BACKWARD, BACKWARD_SELECTIVE = range(3)  # passes of ``GraphTimes``


@dataclass(frozen=True, eq=False)
class GraphTimes:
    """Schedules found per device and micro-batch: arrays of shape (3 passes, accelerators, distinct
    layers).

    No schedule takes less than ``least_s`` or ``least_joules``; both are those found where the
    schedule is proven shortest. ``node_limit`` (accelerators, 1) is what was spent on each."""

    seconds: FloatArray
    least_s: FloatArray
    joules: FloatArray
    least_joules: FloatArray
    node_limit: NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class ScheduledGraph:
    """The layer times of ``graph`` on the chips of ``table``; kept in ``store``, if any."""

    graph: ModelGraph
    table: LatencyTable
    network: PassNetwork
    solver: ScheduleSolver
    store: Path | None
    times: GraphTimes

    @cached_property
    def known_costs(self) -> dict[tuple[Recomputation, bool], LayerCosts]:
        """Layer costs of these times by recomputation mode, and whether they are the least."""
        return {}

    def problem(self, operators: OperatorGraph, row: int) -> ScheduleProblem:
        """The scheduling problem of one layer pass on accelerator ``row``."""
        return schedule_problem(operators, self.table, row, self.network)

    def exposed_s(self, operators: OperatorGraph, row: int, schedule: Schedule) -> FloatArray:
        """Seconds that operators wait for what they stream, shape (operators,)."""
        alone = np.zeros(len(operators.operators), dtype=np.bool_)
        for each in schedule.assignments:
            alone[each.operator] = each.mode is Mode.ALL
        rows = np.array([row])
        single_s, all_s = (
            self.network.exposed_s(operators, each, rows)[0]
            for each in self.table.piece_times(operators, rows, self.network.panels)
        )
        exposed_s: FloatArray = np.where(alone, all_s, single_s)
        return exposed_s

    def some(self, rows: IntArray) -> ScheduledGraph:
        """The same of the chips ``rows`` alone, kept nowhere."""
        return replace(
            self,
            table=self.table.some(rows),
            network=self.network.some(rows),
            store=None,
            times=fieldwise(lambda times: times[..., rows, :], self.times),
        )

    def refined(self, rows: IntArray, node_limit: NodeLimit) -> ScheduledGraph:
        """The same with unproven schedules of the chips ``rows`` solved up to ``node_limit``."""
        unproven = np.any(self.times.least_s < self.times.seconds, axis=(0, 2))
        rows = rows[unproven[rows] & (self.times.node_limit[rows, 0] < node_limit)]
        if not len(rows):
            return self
        better = replace(self, times=_with_proofs(self, rows, node_limit))
        if self.store is not None:
            _kept(self.store, better.times, self.solver)
        return better


def schedule_problem(
    graph: OperatorGraph, table: LatencyTable, row: int, network: PassNetwork
) -> ScheduleProblem:
    """The scheduling problem of one layer pass on accelerator ``row``."""
    times = network.operator_times(graph, table, np.array([row]))
    cores = int(table.accelerators.num_tc[row]), int(table.accelerators.num_vc[row])
    return ScheduleProblem(schedule_structure(graph), times.single_s[0], times.all_s[0], *cores)


def scheduled_graph(
    graph: ModelGraph,
    table: LatencyTable,
    network: PassNetwork,
    solver: ScheduleSolver,
    store: Path | None,
) -> ScheduledGraph:
    """Schedule every distinct layer and pass on every accelerator, or load what an earlier run
    stored in ``store``, if anywhere.

    ``network`` prices what is sent; what is stored was priced by the same one. All accelerators get
    a first look, and who compares them goes on with those that matter (``ScheduledGraph.refined``).
    """
    count = len(table.accelerators)
    every = np.arange(count)
    stored = None
    if store is not None:
        stored = load_or_bring(
            store, ESTIMATES, store.stem, lambda path: load_arrays(GraphTimes, path)
        )
    if stored is not None and len(stored.node_limit) == count:
        scheduled = ScheduledGraph(graph, table, network, solver, store, stored)
    else:
        nothing = np.zeros((3, count, len(graph.layers)))
        blank = GraphTimes(nothing, nothing, nothing, nothing, np.full((count, 1), -1, np.int8))
        unkept = ScheduledGraph(graph, table, network, solver, None, blank)
        scheduled = replace(unkept, times=_scheduled(unkept, every, NodeLimit.FIRST), store=store)
        if store is not None:
            _kept(store, scheduled.times, solver)
    return scheduled


def _kept(store: Path, times: GraphTimes, solver: ScheduleSolver) -> None:
    """Write ``times``; for other runs of the user too, unless the clock decided when to stop."""
    store_arrays(store, times)
    if isinstance(solver, NativeSolver):
        keep(store, ESTIMATES, store.stem)


def _with_proofs(scheduled: ScheduledGraph, rows: IntArray, node_limit: NodeLimit) -> GraphTimes:
    """The times of ``scheduled`` with what is not proven of ``rows`` scheduled up to
    ``node_limit``."""
    better = fieldwise(np.copy, scheduled.times)
    better.node_limit[rows] = node_limit
    known: dict[tuple[OperatorGraph, bytes], tuple[FloatArray, ...]] = {}
    for place, layer in enumerate(scheduled.graph.layers):
        for which, graph in enumerate(passes_of(layer)):
            times = scheduled.times
            unproven = times.least_s[which, rows, place] < times.seconds[which, rows, place]
            for first in range(0, int(unproven.sum()), ROWS_AT_ONCE):
                part = rows[unproven][first : first + ROWS_AT_ONCE]
                key = graph, part.tobytes()
                if key not in known:
                    known[key] = _pass_times(scheduled, graph, part, node_limit)
                for name, column in zip(PROVEN_FIELDS, known[key], strict=True):
                    getattr(better, name)[which, part, place] = column
    return better


def _scheduled(scheduled: ScheduledGraph, rows: IntArray, node_limit: NodeLimit) -> GraphTimes:
    seconds, least_s, joules, least_j = over_passes(
        scheduled.graph.layers,
        4,
        rows,
        lambda graph, part: _pass_times(scheduled, graph, part, node_limit),
    )
    node_limits = np.full((len(rows), 1), node_limit, np.int8)
    return GraphTimes(seconds, least_s, joules, least_j, node_limits)


def _pass_times(
    scheduled: ScheduledGraph, graph: OperatorGraph, part: IntArray, node_limit: NodeLimit
) -> tuple[FloatArray, ...]:
    """``PROVEN_FIELDS`` of one pass, shape (part,) each."""
    table, network = scheduled.table, scheduled.network
    times, structure = network.operator_times(graph, table, part), schedule_structure(graph)
    cores = table.accelerators.num_tc[part], table.accelerators.num_vc[part]
    what = structure, times.single_s, times.all_s, *cores
    solved = scheduled.solver.solve_batch(*what, node_limit)
    proven = solved.bound_s >= solved.makespan_s * (1.0 - PROVEN_GAP)
    joules = np.where(solved.all_mode, times.all_j, times.single_j).sum(axis=1)
    least_joules = np.minimum(times.all_j, times.single_j).sum(axis=1)
    least_s = np.where(proven, solved.makespan_s, solved.bound_s)
    return solved.makespan_s, least_s, joules, np.where(proven, joules, least_joules)


def passes_of(layer: LayerGraph) -> tuple[OperatorGraph, ...]:
    """The operators of each pass of ``GraphTimes``."""
    return layer.forward, layer.backward, layer.backward_selective


def over_passes(
    layers: Sequence[LayerGraph],
    columns: int,
    rows: IntArray,
    of_pass: Callable[[OperatorGraph, IntArray], tuple[FloatArray, ...]],
) -> FloatArray:
    """What ``of_pass`` gives for the passes of ``layers`` on some of the accelerators ``rows`` at a
    time, shape (columns, 3 passes, rows, layers); 0 for passes without operators."""
    found = np.zeros((columns, 3, len(rows), len(layers)))
    known: dict[OperatorGraph, FloatArray] = {}
    for place, layer in enumerate(layers):
        for which, graph in enumerate(passes_of(layer)):
            # Many layers have nothing that selective recomputation runs again.
            if graph not in known:
                known[graph] = mine = np.zeros((columns, len(rows)))
                for first in range(0, len(rows) if graph.operators else 0, ROWS_AT_ONCE):
                    part = slice(first, first + ROWS_AT_ONCE)
                    mine[:, part] = of_pass(graph, rows[part])
            found[:, which, :, place] = known[graph]
    return found
