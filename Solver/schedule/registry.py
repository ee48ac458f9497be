"""The schedule solvers by name."""

from phaze_common.errors import InputError
from Solver.schedule.gurobi import GurobiSolver
from Solver.schedule.highs import HighsSolver
from Solver.schedule.native import NativeSolver
from Solver.schedule.solver import ScheduleSolver

SOLVERS: dict[str, ScheduleSolver] = {
    solver.name: solver for solver in (NativeSolver(), GurobiSolver(), HighsSolver())
}


def solver_named(name: str) -> ScheduleSolver:
    """The solver called ``name``. Raises InputError listing the names where there is none."""
    if name not in SOLVERS:
        raise InputError(f"unknown schedule solver {name!r}; use one of {', '.join(SOLVERS)}")
    return SOLVERS[name]
