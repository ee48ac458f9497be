"""Seconds and joules of every layer of a model graph on every accelerator, from exact operator schedules."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from Common.arrays import load_arrays, store_arrays
from Common.files import load_or_set_aside
from Common.progress import Advance
from Estimator.accelerator import AcceleratorSet
from Estimator.latency_table import LatencyTable, OperatorTimes, occupies
from GraphExtractor.graph import ModelGraph, Operator, OperatorGraph
from Solver.schedule.problem import CoreType, ScheduleProblem, ScheduleStructure
from Solver.schedule.solver import ScheduleSolver

FloatArray = NDArray[np.float64]
ROWS_AT_ONCE = 8192  # accelerators priced together, which bounds memory


@dataclass(frozen=True, eq=False)
class GraphTimes:
    """Optimal makespans and their energy per device and micro-batch: arrays (accelerators, distinct layers)."""

    forward_s: FloatArray
    backward_s: FloatArray
    backward_selective_s: FloatArray
    forward_j: FloatArray
    backward_j: FloatArray
    backward_selective_j: FloatArray


def schedule_structure(graph: OperatorGraph) -> ScheduleStructure:
    """Core types and precedence of a layer's operators, by position in ``graph.operators``."""
    position = {operator.id: index for index, operator in enumerate(graph.operators)}
    edges = tuple((position[before], position[after]) for before, after in graph.edges)
    return ScheduleStructure(tuple(_core_type(operator) for operator in graph.operators), edges)


def schedule_problem(graph: OperatorGraph, table: LatencyTable, accelerators: AcceleratorSet, row: int) -> ScheduleProblem:
    """The scheduling problem of one layer pass on accelerator ``row``."""
    times = table.times(graph, np.array([row]))
    return ScheduleProblem(
        schedule_structure(graph),
        times.single_s[0],
        times.all_s[0],
        int(accelerators.num_tc[row]),
        int(accelerators.num_vc[row]),
    )


def layer_times(
    graph: ModelGraph,
    table: LatencyTable,
    accelerators: AcceleratorSet,
    solver: ScheduleSolver,
    store: Path,
    advance: Advance,
) -> GraphTimes:
    """Schedule every distinct layer and pass on every accelerator, or load what an earlier run stored in ``store``."""
    stored = load_or_set_aside(store, lambda path: load_arrays(GraphTimes, path))
    if stored is not None and len(stored.forward_s) == len(accelerators):
        advance(3 * len(graph.layers))
        return stored
    passes = [
        [_pass_times(operators, table, accelerators, solver, advance) for operators in operator_graphs]
        for operator_graphs in (
            [layer.forward for layer in graph.layers],
            [layer.backward for layer in graph.layers],
            [layer.backward_selective for layer in graph.layers],
        )
    ]
    seconds = [np.stack([layer[0] for layer in layers], axis=1) for layers in passes]
    joules = [np.stack([layer[1] for layer in layers], axis=1) for layers in passes]
    times = GraphTimes(*seconds, *joules)
    store_arrays(store, times)
    return times


def _pass_times(
    graph: OperatorGraph, table: LatencyTable, accelerators: AcceleratorSet, solver: ScheduleSolver, advance: Advance
) -> tuple[FloatArray, FloatArray]:
    count = len(accelerators)
    makespan_s, energy_j = np.zeros(count), np.zeros(count)
    if graph.operators:
        structure = schedule_structure(graph)
        for first in range(0, count, ROWS_AT_ONCE):
            rows = np.arange(first, min(first + ROWS_AT_ONCE, count))
            times = table.times(graph, rows)
            solved = solver.solve_batch(
                structure, times.single_s, times.all_s, accelerators.num_tc[rows], accelerators.num_vc[rows]
            )
            makespan_s[rows] = solved.makespan_s
            energy_j[rows] = _energy_j(times, solved.all_mode)
    advance(1)
    return makespan_s, energy_j


def _energy_j(times: OperatorTimes, all_mode: NDArray[np.bool_]) -> FloatArray:
    energy: FloatArray = np.where(all_mode, times.all_j, times.single_j).sum(axis=1)
    return energy


def _core_type(operator: Operator) -> CoreType:
    uses = occupies(operator)
    if uses.tensor_core and uses.vector_core:
        return CoreType.TC_AND_VC
    return CoreType.TC if uses.tensor_core else CoreType.VC
