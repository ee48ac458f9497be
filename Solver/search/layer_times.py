"""Seconds and joules of every layer of a model graph on every accelerator, from exact operator schedules."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from Common.arrays import load_arrays, store_arrays
from Common.files import load_or_set_aside
from Common.progress import Advance
from Estimator.chips.latency_table import LatencyTable, OperatorTimes, occupies
from Estimator.pass_parts import PassParts, operator_parts
from GraphExtractor.graph import ModelGraph, Operator, OperatorGraph, Recompute
from Plans.layer_costs import GraphNetwork, LayerCosts, PassCosts, layer_sizes, moded_layers
from Solver.schedule.attribution import attributed
from Solver.schedule.problem import CoreType, Mode, ScheduleProblem, ScheduleStructure
from Solver.schedule.solver import Effort, ScheduleSolver

FloatArray = NDArray[np.float64]

PROVEN_GAP = 1e-8  # relative; solvers prove to 1e-9 and better
FEW_ROWS = 1024  # accelerators that are all worth a thorough search
ATTRIBUTION_TIME_LIMIT_S = 60.0
ROWS_AT_ONCE = 8192  # accelerators priced together, which bounds memory


@dataclass(frozen=True, eq=False)
class GraphTimes:
    """Makespans and their energy per device and micro-batch: arrays (accelerators, distinct layers).

    ``excess`` (accelerators,) is by what factor the makespans of an accelerator can at most be too long: 1 where all are proven.
    """

    forward_s: FloatArray
    backward_s: FloatArray
    backward_selective_s: FloatArray
    forward_j: FloatArray
    backward_j: FloatArray
    backward_selective_j: FloatArray
    excess: FloatArray

    @property
    def fingerprint(self) -> str:
        """Content key of the times."""
        digest = hashlib.blake2b(digest_size=8)
        for field in fields(self):
            digest.update(getattr(self, field.name).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class ScheduledGraph:
    """The layer times of ``graph`` on the accelerators of ``table``, and what they were made from."""

    graph: ModelGraph
    table: LatencyTable
    network: GraphNetwork
    solver: ScheduleSolver
    times: GraphTimes

    def problem(self, operators: OperatorGraph, row: int) -> ScheduleProblem:
        """The scheduling problem of one layer pass on accelerator ``row``."""
        return schedule_problem(operators, self.table, row, self.network.collectives_s(operators))


def schedule_structure(graph: OperatorGraph) -> ScheduleStructure:
    """Core types and precedence of a layer's operators, by position in ``graph.operators``."""
    position = {operator.id: index for index, operator in enumerate(graph.operators)}
    edges = tuple((position[before], position[after]) for before, after in graph.edges)
    return ScheduleStructure(tuple(core_type(operator) for operator in graph.operators), edges)


def schedule_problem(graph: OperatorGraph, table: LatencyTable, row: int, collective_s: FloatArray) -> ScheduleProblem:
    """The scheduling problem of one layer pass on accelerator ``row``, whose collectives take ``collective_s`` seconds."""
    times = table.times(graph, np.array([row]), collective_s)
    return ScheduleProblem(
        schedule_structure(graph),
        times.single_s[0],
        times.all_s[0],
        int(table.accelerators.num_tc[row]),
        int(table.accelerators.num_vc[row]),
    )


def scheduled_graph(
    graph: ModelGraph, table: LatencyTable, network: GraphNetwork, solver: ScheduleSolver, store: Path | None, advance: Advance
) -> ScheduledGraph:
    """Schedule every distinct layer and pass on every accelerator, or load what an earlier run stored in ``store``, if anywhere.

    ``network`` prices collectives; what is stored was priced by the same one. Where many accelerators are left without a proof
    they keep what was found (``refined`` goes on with some of them).
    """
    stored = None if store is None else load_or_set_aside(store, lambda path: load_arrays(GraphTimes, path))
    if stored is not None and len(stored.forward_s) == len(table.accelerators):
        advance(1)
        return ScheduledGraph(graph, table, network, solver, stored)
    every = np.arange(len(table.accelerators))
    scheduled = ScheduledGraph(graph, table, network, solver, _scheduled(graph, table, network, solver, every, Effort.QUICK))
    unproven = np.flatnonzero(scheduled.times.excess > 1.0)
    if 0 < len(unproven) <= FEW_ROWS:
        scheduled = refined(scheduled, unproven)
    if store is not None:
        store_arrays(store, scheduled.times)
    advance(1)
    return scheduled


def refined(scheduled: ScheduledGraph, rows: NDArray[np.int64]) -> ScheduledGraph:
    """``scheduled`` with the accelerators ``rows`` scheduled again, with more effort."""
    what = scheduled.graph, scheduled.table, scheduled.network, scheduled.solver
    better = _scheduled(*what, rows, Effort.THOROUGH)
    merged = {}
    for field in fields(GraphTimes):
        merged[field.name] = getattr(scheduled.times, field.name).copy()
        merged[field.name][rows] = getattr(better, field.name)
    return replace(scheduled, times=GraphTimes(**merged))


def attributed_layer_costs(scheduled: ScheduledGraph, recompute: Recompute, row: int) -> LayerCosts:
    """Layer costs on accelerator ``row`` alone, each pass attributed to causes along the critical path of its schedule."""
    whole = chip_layer_costs(scheduled, recompute).rows(np.array([row]))
    distinct, _ = moded_layers(scheduled.graph, recompute)
    layers = [(scheduled.graph.layers[each.index], each.mode) for each in distinct]
    forward = [_pass_parts(scheduled, layer.forward, row) for layer, _ in layers]
    backward = [_pass_parts(scheduled, layer.backward_graph(mode), row) for layer, mode in layers]
    again = [parts if mode is Recompute.FULL else NO_PARTS for parts, (_, mode) in zip(forward, layers, strict=True)]
    return replace(
        whole,
        forward=_costs_of(forward, whole.forward.arithmetic_s),
        recompute=_costs_of(again, whole.recompute.arithmetic_s),
        backward=_costs_of(backward, whole.backward.arithmetic_s),
    )


NO_PARTS = PassParts(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def _pass_parts(scheduled: ScheduledGraph, operators: OperatorGraph, row: int) -> PassParts:
    if not operators.operators:
        return NO_PARTS
    problem = scheduled.problem(operators, row)
    schedule = scheduled.solver.solve(problem, time_limit_s=ATTRIBUTION_TIME_LIMIT_S)
    alone = np.zeros(len(operators.operators), dtype=np.bool_)
    for each in schedule.assignments:
        alone[each.operator] = each.mode is Mode.ALL
    priced = scheduled.table.price(operators, np.array([row]))
    parts = operator_parts(operators, priced, 0, alone, scheduled.network.collectives_s(operators))
    return attributed(problem, schedule, parts)


def _costs_of(parts: Sequence[PassParts], total_s: FloatArray) -> PassCosts:
    """Parts of distinct layers as costs of one configuration; ``total_s`` (1, layers) is what the search found for each."""
    nothing = np.zeros((1, len(parts)))
    columns = {field.name: np.array([[getattr(each, field.name) for each in parts]]) for field in fields(PassParts)}
    known_s = np.array([[each.total_s for each in parts]])
    scale = np.divide(total_s, known_s, out=np.ones_like(total_s), where=known_s > 0.0)  # 1 but for rounding
    scaled = {name: column * scale for name, column in columns.items()}
    return PassCosts(host_s=nothing, products_s=nothing, **scaled)


def chip_layer_costs(scheduled: ScheduledGraph, recompute: Recompute) -> LayerCosts:
    """Layer costs under one recomputation mode, makespans whole; selective recomputation is part of the backward schedule."""
    graph, times = scheduled.graph, scheduled.times
    distinct, _ = moded_layers(graph, recompute)
    columns = {
        Recompute.NONE: (times.backward_s, times.backward_j, 0.0),
        Recompute.SELECTIVE: (times.backward_selective_s, times.backward_selective_j, 0.0),
        Recompute.FULL: (times.backward_s, times.backward_j, 1.0),
    }
    index = [each.index for each in distinct]
    backward = np.stack([columns[each.mode][0][:, each.index] for each in distinct], axis=1)
    again = np.array([columns[each.mode][2] for each in distinct])
    joules = np.stack([columns[each.mode][1][:, each.index] for each in distinct], axis=1)
    return LayerCosts(
        graph=graph,
        mode=recompute,
        sizes=layer_sizes(graph, recompute),
        forward=PassCosts.of_total(times.forward_s[:, index]),
        recompute=PassCosts.of_total(times.forward_s[:, index] * again),
        backward=PassCosts.of_total(backward),
        accumulation_s=np.zeros_like(backward),
        joules=joules + times.forward_j[:, index] * (1.0 + again),
    )


def _scheduled(
    graph: ModelGraph,
    table: LatencyTable,
    network: GraphNetwork,
    solver: ScheduleSolver,
    rows: NDArray[np.int64],
    effort: Effort,
) -> GraphTimes:
    """Times of the accelerators ``rows`` alone."""
    passes = (
        [layer.forward for layer in graph.layers],
        [layer.backward for layer in graph.layers],
        [layer.backward_selective for layer in graph.layers],
    )
    known: dict[OperatorGraph, _PassTimes] = {}

    def times_of(operators: OperatorGraph) -> _PassTimes:
        if operators not in known:  # many layers have nothing that selective recomputation runs again
            known[operators] = _pass_times(operators, table, network.collectives_s(operators), solver, rows, effort)
        return known[operators]

    forward, backward, selective = (_stacked([times_of(each) for each in one]) for one in passes)
    return GraphTimes(
        forward_s=forward.seconds,
        backward_s=backward.seconds,
        backward_selective_s=selective.seconds,
        forward_j=forward.joules,
        backward_j=backward.joules,
        backward_selective_j=selective.joules,
        excess=np.max([forward.excess, backward.excess, selective.excess], axis=0),
    )


@dataclass(frozen=True, eq=False)
class _PassTimes:
    """One pass on some accelerators: arrays (accelerators,) of one layer, (accelerators, layers) of several."""

    seconds: FloatArray
    joules: FloatArray
    excess: FloatArray  # (accelerators,) in either case


def _pass_times(
    graph: OperatorGraph,
    table: LatencyTable,
    collective_s: FloatArray,
    solver: ScheduleSolver,
    rows: NDArray[np.int64],
    effort: Effort,
) -> _PassTimes:
    seconds, joules, excess = np.zeros(len(rows)), np.zeros(len(rows)), np.ones(len(rows))
    if graph.operators:
        structure, accelerators = schedule_structure(graph), table.accelerators
        for first in range(0, len(rows), ROWS_AT_ONCE):
            part = slice(first, first + ROWS_AT_ONCE)
            times = table.times(graph, rows[part], collective_s)
            cores = accelerators.num_tc[rows[part]], accelerators.num_vc[rows[part]]
            solved = solver.solve_batch(structure, times.single_s, times.all_s, *cores, effort)
            seconds[part] = solved.makespan_s
            joules[part] = _energy_j(times, solved.all_mode)
            unproven = solved.bound_s < solved.makespan_s * (1.0 - PROVEN_GAP)
            excess[part][unproven] = solved.makespan_s[unproven] / solved.bound_s[unproven]
    return _PassTimes(seconds, joules, excess)


def _stacked(layers: Sequence[_PassTimes]) -> _PassTimes:
    return _PassTimes(
        np.stack([layer.seconds for layer in layers], axis=1),
        np.stack([layer.joules for layer in layers], axis=1),
        np.max([layer.excess for layer in layers], axis=0),
    )


def _energy_j(times: OperatorTimes, all_mode: NDArray[np.bool_]) -> FloatArray:
    energy: FloatArray = np.where(all_mode, times.all_j, times.single_j).sum(axis=1)
    return energy


def core_type(operator: Operator) -> CoreType:
    """What a core of each type it occupies while it runs."""
    uses = occupies(operator)
    if uses.tensor_core and uses.vector_core:
        return CoreType.TC_AND_VC
    return CoreType.TC if uses.tensor_core else CoreType.VC
