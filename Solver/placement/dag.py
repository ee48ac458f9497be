"""Placement of a branching layer graph on one accelerator: exact, or over the sets of layers that are dealt with."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from Common.errors import SolverError
from Solver.placement.chain import AGREEMENT, infeasible, prefix_work, why_nothing_fits
from Solver.placement.evaluate import evaluate_plan
from Solver.placement.layer_graph import Edge, in_order
from Solver.placement.problem import FloatArray, GroupOrder, IntArray, LayerTimes, Placement, PlacementProblem
from Solver.placement.relaxation import least_largest_loads, relaxed_rows
from Solver.placement.search_kernels import Found
from Solver.placement.set_arrays import PreparedSets, prepare_relaxation, prepare_sets
from Solver.placement.set_kernels import least_transfers_of_sets, open_stages
from Solver.placement.set_search import set_costs, solve_sets
from Solver.results import Status


def place_dag(problem: PlacementProblem, times: LayerTimes, edges: tuple[Edge, ...]) -> Placement:
    """The fastest plan for layers joined by ``edges``, or status INFEASIBLE with the reason.

    Status OPTIMAL is proved. Where the lattice leaves sets out the status is FEASIBLE and ``bound_s`` is what no plan beats.

    Raises:
        InputError: the arrays do not fit together or hold negative or infinite numbers.
        SolverError: the evaluator disagrees with the search, which is a defect.
    """
    prepared = prepare_sets(problem, edges)
    lattice, cases = prepared.lattice, prepared.cases
    seconds = np.diff(prefix_work(problem, times), axis=1)
    work = seconds @ lattice.members.T.astype(float)
    most = int(cases.stages.max(initial=1))
    floors = np.array([least_largest_loads(each, most) for each in seconds])
    found, _ = solve_sets(cases, prepared.sets, work, floors, np.inf, False)
    if found.line < 0:
        reason = why_nothing_fits(problem, prepared.smallest_bytes)
        return infeasible(problem, f"{reason} ({lattice.lost})" if lattice.lost else reason)
    variant, dp = int(cases.variant[found.case]), int(cases.dp[found.line])
    stages = _stages(prepared, found, work[variant])
    order = np.concatenate(stages).tolist()
    cuts = np.cumsum([len(stage) for stage in stages])[:-1].tolist()
    chain, chain_times = in_order(problem, times, order)
    placement = evaluate_plan(chain, chain_times, variant, dp, cuts, tuple(GroupOrder)[cases.order[found.case]])
    if placement.status is not Status.FEASIBLE or abs(placement.iteration_s - found.seconds) > AGREEMENT * found.seconds:
        raise SolverError(
            f"the layer graph solver found {found.seconds} s, the evaluator {placement.iteration_s} s "
            f"({placement.reason or 'feasible'}); please report this problem"
        )
    placement = replace(placement, order=tuple(order))
    if lattice.lost:
        return replace(placement, bound_s=float(relaxed_bounds_of_graph_s(problem, edges, seconds[None], range(len(order)))[0]))
    return replace(placement, status=Status.OPTIMAL, bound_s=placement.iteration_s)


def relaxed_bounds_of_graph_s(
    problem: PlacementProblem, edges: tuple[Edge, ...], seconds: FloatArray, sequence: Sequence[int]
) -> FloatArray:
    """Seconds that no plan can beat, whatever the sets of layers, shape (accelerators,); inf where nothing fits.

    ``seconds`` (accelerators, variants, distinct layers) are of forward, backward and recomputation; layer i is ``sequence[i]``.
    """
    prepared = prepare_relaxation(problem, edges)
    bound_s = np.empty(len(seconds))
    relaxed_rows(prepared.cases, prepared.relaxation, seconds, np.array(sequence, dtype=np.int64), bound_s)
    return bound_s


def _stages(prepared: PreparedSets, found: Found, work: FloatArray) -> list[IntArray]:
    """Layers of each stage of the plan with the found load and parameter sum that transfers least."""
    members = prepared.lattice.members
    stages = int(prepared.cases.stages[found.case])
    if stages == 1:
        return [np.arange(members.shape[1])]
    costs = set_costs(prepared.cases, prepared.sets, found.case, stages, work)
    candidates = open_stages(costs, stages, found.load, found.held)
    _, _, _, sets = least_transfers_of_sets(costs, candidates, stages, found.load, found.held)
    return [np.flatnonzero(members[whole] & ~members[rest]) for whole, rest in itertools.pairwise(sets)]
