"""Placement of one model on many accelerators: best plans and admissible lower bounds."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from Common.errors import InputError
from Common.threads import threads
from Solver.placement.cases import Cases
from Solver.placement.dag import relaxed_bounds_of_graph_s
from Solver.placement.layer_graph import branches
from Solver.placement.problem import BatchPlacements, BatchTimes, FloatArray, IntArray, PlacementProblem
from Solver.placement.search_kernels import solve_rows
from Solver.placement.set_arrays import prepare_sets, repeats_of
from Solver.placement.set_search import solve_rows_of_sets
from Solver.placement.stage_arrays import check, prepare

MOST_THREADS = 2
ROWS_PER_TASK = 64

NOTHING_FITS, NOT_BETTER = -1, -2  # in ``BatchPlacements.variant``


def place_batch(
    problem: PlacementProblem, times: BatchTimes, rows: IntArray, incumbent_s: FloatArray | float = np.inf
) -> BatchPlacements:
    """The fastest plan of every accelerator in ``rows``; arrays have shape (len(rows),). Exact but for ``what_is_lost``.

    ``incumbent_s`` (a number or one per row) stops the search of a row once no plan below it is left.

    Raises:
        InputError: arrays do not fit together, or times are negative or not finite.
    """
    incumbents = np.broadcast_to(np.asarray(incumbent_s, dtype=float), (len(rows),)).copy()
    solved = _solve(problem, times, np.asarray(rows, dtype=np.int64), incumbents, bound_only=False)
    found, cases = solved.line >= 0, solved.cases
    variant = np.full(len(rows), NOT_BETTER if len(cases.variant) else NOTHING_FITS)
    variant[found] = cases.variant[solved.case[found]]
    dp, pp = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    dp[found], pp[found] = cases.dp[solved.line[found]], cases.stages[solved.case[found]]
    return BatchPlacements(np.where(found, solved.seconds, np.inf), variant, dp, pp)


def lower_bounds_s(problem: PlacementProblem, times: BatchTimes) -> FloatArray:
    """Seconds that no plan of ``place_batch`` can beat on each accelerator, shape (accelerators,); inf where nothing fits.

    Per stage count: the exact least possible largest load under the memory limit, together with the least possible largest
    parameter sum and the cheapest cuts, at the best data-parallel degree. Only their trade against each other is relaxed, and
    where layers branch, links and memory are the most lenient of all degrees that keep as many micro-batches in flight.

    Raises:
        InputError: as ``place_batch``.
    """
    rows = np.arange(len(times.forward_s))
    return _solve(problem, times, rows, np.full(len(rows), np.inf), bound_only=True).seconds


def relaxed_bounds_s(problem: PlacementProblem, times: BatchTimes) -> FloatArray:
    """Seconds that no plan at all can beat, also none of those lost, shape (accelerators,); weaker than ``lower_bounds_s``.

    Raises:
        InputError: as ``place_batch``, or the layers form a chain, of which no plan is lost.
    """
    edges = branches(problem)
    if edges is None:
        raise InputError("the layers form a chain, of which no plan is lost; take lower_bounds_s")
    return relaxed_bounds_of_graph_s(problem, edges, _seconds(problem, times), times.sequence)


@dataclass(frozen=True, eq=False)
class _Solved:
    """Seconds of every row, and the line and case (of ``cases``) of its plan, -1 without one."""

    cases: Cases
    seconds: FloatArray
    line: IntArray
    case: IntArray


def _solve(problem: PlacementProblem, times: BatchTimes, rows: IntArray, incumbent_s: FloatArray, *, bound_only: bool) -> _Solved:
    seconds, sequence = _seconds(problem, times), np.array(times.sequence, dtype=np.int64)
    edges = branches(problem)
    solve: Callable[..., None]
    if edges is None:
        chain = prepare(problem)
        cases, solve = chain.cases, partial(solve_rows, chain.cases, chain.chains, seconds, sequence)
    else:
        graph = prepare_sets(problem, edges)
        repeats = repeats_of(graph.lattice, times.sequence, seconds.shape[2])
        cases, solve = graph.cases, partial(solve_rows_of_sets, graph.cases, graph.sets, seconds, sequence, repeats)
    solved = _Solved(cases, np.empty(len(rows)), np.empty(len(rows), np.int64), np.empty(len(rows), np.int64))

    def part(first: int) -> None:
        chosen = slice(first, first + ROWS_PER_TASK)
        found = solved.seconds[chosen], solved.line[chosen], solved.case[chosen]
        solve(rows[chosen], incumbent_s[chosen], bound_only, *found)

    with ThreadPoolExecutor(min(threads(), MOST_THREADS)) as pool:
        list(pool.map(part, range(0, len(rows), ROWS_PER_TASK)))
    return solved


def _seconds(problem: PlacementProblem, times: BatchTimes) -> FloatArray:
    """Seconds that each distinct layer computes, shape (accelerators, variants, distinct layers)."""
    seconds: FloatArray = times.forward_s + times.backward_s + times.recompute_s
    variants, layers = len(problem.variants), check(problem)
    if (
        seconds.ndim != 3
        or seconds.shape[1] != variants
        or len(times.sequence) != layers
        or max(times.sequence) >= seconds.shape[2]
    ):
        raise InputError(
            f"batch times must be (accelerators, {variants} variants, distinct layers) with a sequence of {layers} layers; "
            f"given shape {seconds.shape} and a sequence of {len(times.sequence)}"
        )
    if not np.all(np.isfinite(seconds)) or np.any(seconds < 0.0):
        raise InputError("batch times must be finite seconds of at least 0; some are not, check the latency table")
    return seconds
