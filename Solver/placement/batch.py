"""Placement of one model on many accelerators: exact plans and admissible lower bounds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from Common.errors import InputError
from Solver.placement.problem import BatchPlacements, BatchTimes, FloatArray, IntArray, PlacementProblem
from Solver.placement.search_kernels import solve_rows
from Solver.placement.stage_arrays import Prepared, prepare

THREADS = 2
ROWS_PER_TASK = 512

NOTHING_FITS, NOT_BETTER = -1, -2  # in ``BatchPlacements.variant``


def place_batch(
    problem: PlacementProblem, times: BatchTimes, rows: IntArray, incumbent_s: FloatArray | float = np.inf
) -> BatchPlacements:
    """The fastest plan of every accelerator in ``rows``, exact; arrays have shape (len(rows),).

    ``incumbent_s`` (a number or one per row) stops the search of a row once no plan below it is left.

    Raises:
        InputError: arrays do not fit together, or times are negative or not finite.
    """
    prepared = prepare(problem)
    incumbents = np.broadcast_to(np.asarray(incumbent_s, dtype=float), (len(rows),)).copy()
    seconds, line, case = _solve(prepared, times, np.asarray(rows, dtype=np.int64), incumbents, bound_only=False)
    found = line >= 0
    cases = prepared.cases
    variant = np.full(len(rows), NOT_BETTER if len(cases.variant) else NOTHING_FITS)
    variant[found] = cases.variant[case[found]]
    dp, pp = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    dp[found], pp[found] = cases.dp[line[found]], cases.stages[case[found]]
    return BatchPlacements(np.where(found, seconds, np.inf), variant, dp, pp)


def lower_bounds_s(problem: PlacementProblem, times: BatchTimes) -> FloatArray:
    """Seconds that no plan of each accelerator can beat, shape (accelerators,); inf where nothing fits.

    Per stage count: the exact least possible largest load under the memory limit, together with the least possible largest
    parameter sum and the cheapest cuts, at the best data-parallel degree. Only their trade against each other is relaxed.

    Raises:
        InputError: as ``place_batch``.
    """
    rows = np.arange(len(times.forward_s))
    return _solve(prepare(problem), times, rows, np.full(len(rows), np.inf), bound_only=True)[0]


def _solve(
    prepared: Prepared, times: BatchTimes, rows: IntArray, incumbent_s: FloatArray, *, bound_only: bool
) -> tuple[FloatArray, IntArray, IntArray]:
    seconds = times.forward_s + times.backward_s + times.recompute_s
    variants, layers = prepared.chains.workspace.shape
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
    sequence = np.array(times.sequence, dtype=np.int64)
    bound_s, line, case = np.empty(len(rows)), np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)

    def part(first: int) -> None:
        chosen = slice(first, first + ROWS_PER_TASK)
        solve_rows(
            prepared.cases,
            prepared.chains,
            seconds,
            sequence,
            rows[chosen],
            incumbent_s[chosen],
            bound_only,
            bound_s[chosen],
            line[chosen],
            case[chosen],
        )

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(part, range(0, len(rows), ROWS_PER_TASK)))
    return bound_s, line, case
