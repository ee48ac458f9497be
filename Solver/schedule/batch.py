"""Exact schedules of one structure on many accelerators at once: certificate, then branch and
bound, per series component."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache

import numpy as np

from phaze_common.array_types import FloatArray, IntArray
from phaze_common.arrays import unique_rows
from phaze_common.bounded_memo import BoundedMemo
from phaze_common.errors import InputError
from phaze_common.sealed import digest
from phaze_common.threads import threads
from Solver.schedule.bounds import TOLERANCE, WEIGHTINGS, BoundScratch, bound_many
from Solver.schedule.problem import ScheduleStructure
from Solver.schedule.search import Exhausted, SearchScratch, search_many
from Solver.schedule.solver import check_arrays, lacks_cores
from Solver.schedule.structure import Component, series_components
from Solver.schedule.tables import (
    WORD,
    Cases,
    Tables,
    Timings,
    empty_timings,
    tables,
)

ROWS_PER_TASK = 256


def schedule_many(
    structure: ScheduleStructure,
    single_s: FloatArray,
    all_s: FloatArray,
    num_tc: IntArray,
    num_vc: IntArray,
    node_limit: int,
    solved: BoundedMemo[Timings] | None = None,
) -> Timings:
    """Schedules of ``structure`` on many accelerators; latencies (N, operators) in seconds, core
    counts (N,).

    Where ``lower`` is below ``makespan``, ``node_limit`` search nodes per component did not suffice
    for the proof; without any, the bounds are the certificate's and the schedules serial. Operators
    of zero latency get the start of the schedule. What is ``solved`` already is not solved again.

    Raises: InputError: a cyclic structure, malformed arrays, or an accelerator without cores of a
        type that some operator needs.
    """
    check_arrays(structure, single_s, all_s)
    if single_s.ndim != 2 or num_tc.shape != num_vc.shape or num_tc.shape != single_s.shape[:1]:
        raise InputError(
            f"latencies {single_s.shape} and core counts {num_tc.shape}, {num_vc.shape} must be "
            "(N, operators), (N,), (N,)"
        )
    if len(num_tc) and lacks_cores(structure, int(num_tc.min()), int(num_vc.min())):
        raise InputError(
            "an accelerator has no core of a type that an operator needs; give each at least one "
            "of both types"
        )
    cores = np.stack([num_tc, num_vc], axis=1).astype(np.int64)
    total = empty_timings(*single_s.shape)
    occupies = single_s > 0
    firsts, pattern_of = unique_rows(occupies.astype(np.float64))
    # operators of zero latency occupy nothing: they are contracted
    for number, first in enumerate(firsts):
        rows = np.flatnonzero(pattern_of == number)
        kept = sum(1 << int(i) for i in np.flatnonzero(occupies[first]))
        for component in series_components(structure, kept):
            cells = np.ix_(rows, np.array(component.operators))
            single, shortest = single_s[cells], np.minimum(single_s[cells], all_s[cells])
            cases = Cases(single, shortest, cores[rows])
            part = _component_timings(component, cases, node_limit, solved)
            total.start[cells] = part.start + total.makespan[rows, None]
            total.all_mode[cells] = part.all_mode
            total.makespan[rows] += part.makespan
            total.lower[rows] += part.lower
    return total


def _component_timings(
    component: Component,
    cases: Cases,
    node_limit: int,
    solved: BoundedMemo[Timings] | None,
) -> Timings:
    topological = component.order.topological()
    ends = np.cumsum(cases.shortest[:, topological], axis=1)
    if len(topological) == 1:
        start, all_mode = np.zeros_like(ends), cases.shortest < cases.single
        return Timings(ends[:, -1], ends[:, -1], start, all_mode)
    serial_s = ends[:, -1]
    scale = np.where(serial_s > 0, serial_s, 1.0)
    cases = Cases(
        cases.single / scale[:, None],
        cases.shortest / scale[:, None],
        np.clip(cases.cores, 1, len(topological)),
    )
    # many accelerators differ in nothing that this structure feels (in buffer size, say): solve
    # each distinct case once
    first, same = unique_rows(np.concatenate(cases, axis=1))
    distinct = cases.some(first)
    if solved is None:
        found = _solved(component, distinct, node_limit)
    else:
        alike = replace(component, operators=())  # wherever in its layer it is
        key = alike, digest(*(each.tobytes() for each in distinct)), node_limit
        found = solved.value(key, lambda: _solved(component, distinct, node_limit))
    return Timings(
        found.makespan[same] * serial_s,
        found.lower[same] * serial_s,
        found.start[same] * serial_s[:, None],
        found.all_mode[same],
    )


def _solved(component: Component, cases: Cases, node_limit: int) -> Timings:
    """Schedules of cases that take 1 one operator after another, or 0."""
    topological = component.order.topological()
    ends = np.cumsum(cases.shortest[:, topological], axis=1)
    timings = empty_timings(*ends.shape)
    timings.start[:, topological[1:]] = ends[:, :-1]
    timings.makespan[:] = timings.lower[:] = 1.0
    timings.all_mode[:] = cases.shortest < cases.single
    t, searched = _tables(component), node_limit > 0 and len(topological) <= WORD

    def solve(part: slice) -> None:
        some, bound, count = cases.some(part), np.zeros(part.stop - part.start), len(topological)
        weights = np.zeros((len(bound) if searched else 0, WEIGHTINGS, count))
        bound_many(t, some, bound, weights, BoundScratch.of(count))
        left = np.flatnonzero((bound < 1.0 - TOLERANCE) & (ends[part, -1] > 0))
        timings.lower[part][left] = bound[left]
        if searched and len(left):
            found = empty_timings(len(left), count)
            found.lower[:] = bound[left]
            table, scratch = Exhausted.of(count), SearchScratch.of(WEIGHTINGS, count)
            search_many(t, some.some(left), weights[left], node_limit, found, table, scratch)
            for every, mine in zip(timings, found, strict=True):
                every[part][left] = mine

    _in_threads(len(ends), solve)
    return timings


@lru_cache(maxsize=256)
def _tables(component: Component) -> Tables:
    return tables(component)


def _in_threads(rows: int, work: Callable[[slice], None]) -> None:
    """Call ``work`` on slices of 0..rows, on all processors when they are many."""
    parts = [
        slice(first, min(first + ROWS_PER_TASK, rows)) for first in range(0, rows, ROWS_PER_TASK)
    ]
    if len(parts) == 1:
        work(parts[0])
        return
    with ThreadPoolExecutor(threads()) as pool:
        for done in [pool.submit(work, part) for part in parts]:
            done.result()
