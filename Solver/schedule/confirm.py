"""Independent confirmation of a schedule: the same problem solved as an ILP by Gurobi, or by HiGHS
where Gurobi cannot."""

import logging

from phaze_common.errors import SolverError
from Solver.schedule.gurobi import GurobiSolver
from Solver.schedule.highs import HighsSolver
from Solver.schedule.problem import Schedule, ScheduleProblem
from Solver.schedule.solver import DEFAULT_TIME_LIMIT_S

logger = logging.getLogger(__name__)


def confirm_with_ilp(problem: ScheduleProblem, native: Schedule) -> Schedule:
    """Solve ``problem`` as an ILP, started from ``native``; equal makespans to a relative 1e-6 and
    status OPTIMAL confirm it.

    ``native`` only bounds the search from just above, so a shorter schedule, if there is one, is
    found.

    Raises:
        SolverError: no ILP solver could treat the problem.
    """
    gurobi = GurobiSolver()
    if gurobi.is_available():
        try:
            return gurobi.improve(problem, native, DEFAULT_TIME_LIMIT_S)
        except SolverError as error:
            logger.info("confirming with HiGHS instead: %s", error)
    return HighsSolver().improve(problem, native, DEFAULT_TIME_LIMIT_S)
