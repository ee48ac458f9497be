"""Seconds and joules of every layer of a model graph on every accelerator, from exact operator schedules."""

from __future__ import annotations

import logging
from collections.abc import Sequence
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
from Solver.placement.problem import FloatArray
from Solver.schedule.problem import CoreType, ScheduleProblem, ScheduleStructure
from Solver.schedule.solver import ScheduleSolver

logger = logging.getLogger(__name__)
PROVEN_GAP = 1e-8  # relative; solvers prove to 1e-9 and better
ROWS_AT_ONCE = 8192  # accelerators priced together, which bounds memory


@dataclass(frozen=True, eq=False)
class GraphTimes:
    """Optimal makespans and their energy per device and micro-batch: arrays (accelerators, distinct layers).

    ``unproven`` (shape (1,)) counts the schedules whose optimality the solver could not prove within its limit.
    """

    forward_s: FloatArray
    backward_s: FloatArray
    backward_selective_s: FloatArray
    forward_j: FloatArray
    backward_j: FloatArray
    backward_selective_j: FloatArray
    unproven: NDArray[np.int64]


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
    passes = (
        [layer.forward for layer in graph.layers],
        [layer.backward for layer in graph.layers],
        [layer.backward_selective for layer in graph.layers],
    )
    forward, backward, selective = (
        _stacked([_pass_times(operators, table, accelerators, solver, advance) for operators in one]) for one in passes
    )
    times = GraphTimes(
        forward_s=forward.seconds,
        backward_s=backward.seconds,
        backward_selective_s=selective.seconds,
        forward_j=forward.joules,
        backward_j=backward.joules,
        backward_selective_j=selective.joules,
        unproven=np.array([forward.unproven + backward.unproven + selective.unproven]),
    )
    if times.unproven[0]:
        logger.warning("%d layer schedules of %s are not proven optimal", times.unproven[0], graph.key.model)
    store_arrays(store, times)
    return times


@dataclass(frozen=True, eq=False)
class _PassTimes:
    """One pass on every accelerator: arrays (accelerators,) of one layer, (accelerators, layers) of several."""

    seconds: FloatArray
    joules: FloatArray
    unproven: int


def _pass_times(
    graph: OperatorGraph, table: LatencyTable, accelerators: AcceleratorSet, solver: ScheduleSolver, advance: Advance
) -> _PassTimes:
    count = len(accelerators)
    seconds, joules, unproven = np.zeros(count), np.zeros(count), 0
    if graph.operators:
        structure = schedule_structure(graph)
        for first in range(0, count, ROWS_AT_ONCE):
            rows = np.arange(first, min(first + ROWS_AT_ONCE, count))
            times = table.times(graph, rows)
            cores = accelerators.num_tc[rows], accelerators.num_vc[rows]
            solved = solver.solve_batch(structure, times.single_s, times.all_s, *cores)
            seconds[rows] = solved.makespan_s
            joules[rows] = _energy_j(times, solved.all_mode)
            unproven += int(np.count_nonzero(solved.bound_s < solved.makespan_s * (1.0 - PROVEN_GAP)))
    advance(1)
    return _PassTimes(seconds, joules, unproven)


def _stacked(layers: Sequence[_PassTimes]) -> _PassTimes:
    seconds = np.stack([layer.seconds for layer in layers], axis=1)
    return _PassTimes(seconds, np.stack([layer.joules for layer in layers], axis=1), sum(layer.unproven for layer in layers))


def _energy_j(times: OperatorTimes, all_mode: NDArray[np.bool_]) -> FloatArray:
    energy: FloatArray = np.where(all_mode, times.all_j, times.single_j).sum(axis=1)
    return energy


def _core_type(operator: Operator) -> CoreType:
    uses = occupies(operator)
    if uses.tensor_core and uses.vector_core:
        return CoreType.TC_AND_VC
    return CoreType.TC if uses.tensor_core else CoreType.VC
