"""Exact placement of a chain of layers on one accelerator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from Common.errors import InputError, SolverError
from Solver.placement.evaluate import evaluate_plan
from Solver.placement.kernels import least_transfers
from Solver.placement.problem import FloatArray, GroupOrder, LayerTimes, Placement, PlacementProblem
from Solver.placement.search_kernels import Found, solve, stage_costs
from Solver.placement.stage_arrays import Prepared, prepare
from Solver.results import Status

AGREEMENT = 1e-9  # relative, between the search's value and the evaluator's


def place_chain(problem: PlacementProblem, times: LayerTimes) -> Placement:
    """The fastest plan of ``problem``, proved (``bound_s`` equals ``iteration_s``), or status INFEASIBLE with the reason.

    Raises:
        InputError: the arrays do not fit together or hold negative or infinite numbers.
        SolverError: the evaluator disagrees with the search, which is a defect.
    """
    prepared = prepare(problem)
    work = prefix_work(problem, times)
    found, _ = solve(prepared.cases, prepared.chains, work, np.inf, False)
    if found.line < 0:
        return infeasible(problem, why_nothing_fits(problem, prepared.smallest_bytes))
    case, dp = found.case, int(prepared.cases.dp[found.line])
    variant = int(prepared.cases.variant[case])
    cuts = _cuts(prepared, found, work[variant])
    placement = evaluate_plan(problem, times, variant, dp, cuts, tuple(GroupOrder)[prepared.cases.order[case]])
    if placement.status is not Status.FEASIBLE or abs(placement.iteration_s - found.seconds) > AGREEMENT * found.seconds:
        raise SolverError(
            f"the chain solver found {found.seconds} s, the evaluator {placement.iteration_s} s "
            f"({placement.reason or 'feasible'}); please report this problem"
        )
    return replace(placement, status=Status.OPTIMAL, bound_s=placement.iteration_s)


def prefix_work(problem: PlacementProblem, times: LayerTimes) -> FloatArray:
    """Prefix sums (variants, layers + 1) of the seconds a micro-batch computes.

    Raises:
        InputError: see ``place_chain``.
    """
    shape = (len(problem.variants), len(problem.variants[0].parameter_count))
    for array in (times.forward_s, times.backward_s, times.recompute_s):
        if array.shape != shape or not np.all(np.isfinite(array)) or np.any(array < 0.0):
            raise InputError(f"layer times must be {shape} finite seconds of at least 0; given an array of shape {array.shape}")
    work = np.zeros((shape[0], shape[1] + 1))
    np.cumsum(times.forward_s + times.backward_s + times.recompute_s, axis=1, out=work[:, 1:])
    return work


def _cuts(prepared: Prepared, found: Found, work: FloatArray) -> tuple[int, ...]:
    """Cuts of the plan with the found load and parameter sum that transfers least."""
    layers = len(work) - 1
    stages = int(prepared.cases.stages[found.case])
    chain = stage_costs(prepared.cases, prepared.chains, found.case, work)
    best: tuple[float, tuple[int, ...]] = (0.0, ()) if stages == 1 else (np.inf, ())
    # Where transfers cost nothing, the found plan may have fewer stages than its case.
    for count in range(stages, 1, -1):
        ends = np.empty((count + 1, layers + 1), np.int64)
        transfers = least_transfers(chain, count, found.load, found.held, ends)
        if transfers < best[0]:
            cuts, start = [], 0
            for position in range(count, 1, -1):
                start = int(ends[position, start])
                cuts.append(start)
            best = (transfers, tuple(cuts))
        if best[0] < np.inf:
            break
    return best[1]


def why_nothing_fits(problem: PlacementProblem, smallest_bytes: float) -> str:
    """The reason in terms of what would fit; ``smallest_bytes`` is inf where not even one device group does.

    It is 0 where something might have fitted if the number of stages had been free.
    """
    devices = problem.cluster.num_devices
    if np.isinf(smallest_bytes) and (problem.pp is not None or problem.dp is not None):
        return _why_no_such_degrees(problem)
    if smallest_bytes == 0.0:
        return f"no cut into {problem.pp} stages fits {problem.hbm_bytes / 2**30:.2f} GiB per device"
    if np.isinf(smallest_bytes):
        widths = sorted({variant.tp for variant in problem.variants})
        return f"tensor parallel widths {widths} need more than the cluster's {devices} devices"
    needed, given = smallest_bytes / 2**30, problem.hbm_bytes / 2**30
    return f"no plan fits {given:.2f} GiB per device on {devices} devices; the leanest needs {needed:.2f} GiB"


def _why_no_such_degrees(problem: PlacementProblem) -> str:
    """Why the cluster or the batch has no room for the given pp and dp."""
    layers, devices = len(problem.variants[0].parameter_count), problem.cluster.num_devices
    if problem.pp is not None and problem.pp > layers:
        return f"{problem.pp} stages were asked for, but there are {layers} layers to share out"
    if problem.dp is not None and problem.dp > problem.micro_batches:
        return f"{problem.dp} replicas were asked for, but there are {problem.micro_batches} micro-batches to share out"
    width = min(variant.tp for variant in problem.variants)
    degrees = f"tp {width} x pp {problem.pp or 1} x dp {problem.dp or 1}"
    return f"{degrees} needs {width * (problem.pp or 1) * (problem.dp or 1):,} devices, the cluster has {devices:,}"


def infeasible(problem: PlacementProblem, reason: str) -> Placement:
    """The answer when nothing fits."""
    return Placement(
        status=Status.INFEASIBLE,
        iteration_s=np.inf,
        bound_s=np.inf,
        tp=0,
        pp=0,
        dp=0,
        recompute=problem.variants[0].recompute,
        micro_batches_per_pipeline=0,
        stages=(),
        order=(),
        breakdown=None,
        reason=reason,
    )
