"""Seconds and joules of every layer of a model graph on every accelerator, from exact operator schedules."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from Common.arrays import load_arrays, store_arrays
from Common.files import load_or_set_aside
from Common.progress import Advance
from Estimator.chips.accelerator import AcceleratorSet
from Estimator.chips.latency_table import LatencyTable, OperatorTimes, occupies
from GraphExtractor.graph import ModelGraph, Operator, OperatorGraph
from Solver.placement.problem import FloatArray
from Solver.schedule.problem import CoreType, ScheduleProblem, ScheduleStructure
from Solver.schedule.solver import Effort, ScheduleSolver

PROVEN_GAP = 1e-8  # relative; solvers prove to 1e-9 and better
FEW_ROWS = 1024  # accelerators that are all worth a thorough search
CollectiveSeconds = Callable[[OperatorGraph], FloatArray]  # of a graph's collectives, in its order
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


def schedule_structure(graph: OperatorGraph) -> ScheduleStructure:
    """Core types and precedence of a layer's operators, by position in ``graph.operators``."""
    position = {operator.id: index for index, operator in enumerate(graph.operators)}
    edges = tuple((position[before], position[after]) for before, after in graph.edges)
    return ScheduleStructure(tuple(core_type(operator) for operator in graph.operators), edges)


def schedule_problem(
    graph: OperatorGraph, table: LatencyTable, accelerators: AcceleratorSet, row: int, collective_s: FloatArray
) -> ScheduleProblem:
    """The scheduling problem of one layer pass on accelerator ``row``, whose collectives take ``collective_s`` seconds."""
    times = table.times(graph, np.array([row]), collective_s)
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
    network: CollectiveSeconds,
    solver: ScheduleSolver,
    store: Path | None,
    advance: Advance,
) -> GraphTimes:
    """Schedule every distinct layer and pass on every accelerator, or load what an earlier run stored in ``store``, if anywhere.

    ``network`` prices collectives; what is stored was priced by the same one.
    Where many accelerators are left without a proof they keep what was found (``refined`` goes on with some of them).
    """
    stored = None if store is None else load_or_set_aside(store, lambda path: load_arrays(GraphTimes, path))
    if stored is not None and len(stored.forward_s) == len(accelerators):
        advance(3 * len(graph.layers))
        return stored
    times = _scheduled(graph, table, accelerators, network, solver, np.arange(len(accelerators)), Effort.QUICK, advance)
    unproven = np.flatnonzero(times.excess > 1.0)
    if 0 < len(unproven) <= FEW_ROWS:
        times = refined(graph, table, accelerators, network, solver, times, unproven)
    if store is not None:
        store_arrays(store, times)
    return times


def refined(
    graph: ModelGraph,
    table: LatencyTable,
    accelerators: AcceleratorSet,
    network: CollectiveSeconds,
    solver: ScheduleSolver,
    times: GraphTimes,
    rows: NDArray[np.int64],
) -> GraphTimes:
    """``times`` with the accelerators ``rows`` scheduled again, with more effort."""
    better = _scheduled(graph, table, accelerators, network, solver, rows, Effort.THOROUGH, lambda _: None)
    merged = {}
    for field in fields(GraphTimes):
        merged[field.name] = getattr(times, field.name).copy()
        merged[field.name][rows] = getattr(better, field.name)
    return GraphTimes(**merged)


def _scheduled(
    graph: ModelGraph,
    table: LatencyTable,
    accelerators: AcceleratorSet,
    network: CollectiveSeconds,
    solver: ScheduleSolver,
    rows: NDArray[np.int64],
    effort: Effort,
    advance: Advance,
) -> GraphTimes:
    """Times of the accelerators ``rows`` alone."""
    passes = (
        [layer.forward for layer in graph.layers],
        [layer.backward for layer in graph.layers],
        [layer.backward_selective for layer in graph.layers],
    )
    forward, backward, selective = (
        _stacked([_pass_times(each, table, accelerators, network, solver, rows, effort, advance) for each in one])
        for one in passes
    )
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
    accelerators: AcceleratorSet,
    network: CollectiveSeconds,
    solver: ScheduleSolver,
    rows: NDArray[np.int64],
    effort: Effort,
    advance: Advance,
) -> _PassTimes:
    seconds, joules, excess = np.zeros(len(rows)), np.zeros(len(rows)), np.ones(len(rows))
    if graph.operators:
        structure, collective_s = schedule_structure(graph), network(graph)
        for first in range(0, len(rows), ROWS_AT_ONCE):
            part = slice(first, first + ROWS_AT_ONCE)
            times = table.times(graph, rows[part], collective_s)
            cores = accelerators.num_tc[rows[part]], accelerators.num_vc[rows[part]]
            solved = solver.solve_batch(structure, times.single_s, times.all_s, *cores, effort)
            seconds[part] = solved.makespan_s
            joules[part] = _energy_j(times, solved.all_mode)
            unproven = solved.bound_s < solved.makespan_s * (1.0 - PROVEN_GAP)
            excess[part][unproven] = solved.makespan_s[unproven] / solved.bound_s[unproven]
    advance(1)
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
