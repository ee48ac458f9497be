"""Placement on one accelerator, by the solver that the layers call for."""

from __future__ import annotations

from Solver.placement.chain import place_chain
from Solver.placement.dag import place_dag
from Solver.placement.lattice import lattice_of
from Solver.placement.layer_graph import branches
from Solver.placement.problem import LayerTimes, Placement, PlacementProblem
from Solver.placement.stage_arrays import check


def place(problem: PlacementProblem, times: LayerTimes) -> Placement:
    """The fastest plan of ``problem``: proved, or status INFEASIBLE with the reason.

    Where ``what_is_lost`` is not empty the plan has status FEASIBLE and ``bound_s`` is what no plan beats.

    Raises:
        InputError: the arrays do not fit together or hold negative or infinite numbers.
        SolverError: the evaluator disagrees with the search, which is a defect.
    """
    check(problem)
    edges = branches(problem)
    return place_chain(problem, times) if edges is None else place_dag(problem, times, edges)


def what_is_lost(problem: PlacementProblem) -> str:
    """Which plans are not considered because the layers of ``problem`` branch too much; empty where none is left out.

    Raises:
        InputError: the arrays of the variants do not fit together.
    """
    layers, edges = check(problem), branches(problem)
    return "" if edges is None else lattice_of(layers, edges).lost
