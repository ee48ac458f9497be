"""Gurobi as schedule solver, with the size-limited licence its package carries or the user's
own."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from Estimator.plans.results import Status
from phaze_common.array_types import FloatArray
from phaze_common.errors import SolverError
from phaze_common.threads import threads
from Solver.schedule.ilp import IlpSolver, MilpResult
from Solver.schedule.milp import Milp
from Solver.schedule.solver import LicenseStatus

if TYPE_CHECKING:
    import gurobipy

BUNDLED_LIMIT = 2000  # variables, and constraints, of the licence inside the gurobipy package
OPTIMALITY_GAP = 1e-9  # relative
MOST_THREADS = 32  # what Gurobi takes at most, left to itself
PROVE = 2  # MIPFocus: schedules are found easily, proofs are not
INTEGRALITY = 1e-9  # big-M rows multiply what is tolerated here by the horizon


class GurobiSolver(IlpSolver):
    """Gurobi through gurobipy, imported when first used and silent."""

    name = "gurobi"

    def is_available(self) -> bool:
        """Whether gurobipy is installed."""
        return find_spec("gurobipy") is not None

    def license_status(self) -> LicenseStatus:
        """Try a model just above the size of the bundled licence, then the smallest."""
        if not self.is_available():
            return LicenseStatus(False, "gurobipy is not installed; run pip install gurobipy")
        import gurobipy

        for columns, message in (
            (BUNDLED_LIMIT + 1, "full licence"),
            (1, f"licence bundled with gurobipy, up to {BUNDLED_LIMIT} variables"),
        ):
            try:
                with _environment() as environment, gurobipy.Model(env=environment) as model:
                    model.addMVar(columns)
                    model.optimize()
                return LicenseStatus(True, message)
            except gurobipy.GurobiError as error:
                reason = str(error)
        return LicenseStatus(
            False, f"{reason}; obtain a licence from gurobi.com or use --solver native or highs"
        )

    def optimize(self, milp: Milp, hint: FloatArray | None, time_limit_s: float) -> MilpResult:
        """See IlpSolver."""
        if not self.is_available():
            raise SolverError(
                "gurobipy is not installed; run pip install gurobipy, or use --solver native or "
                "highs"
            )
        import gurobipy

        try:
            with _environment() as environment, gurobipy.Model(env=environment) as model:
                return _optimize(model, milp, hint, time_limit_s)
        except gurobipy.GurobiError as error:
            if error.errno == gurobipy.GRB.Error.SIZE_LIMIT_EXCEEDED:
                raise SolverError(
                    f"a schedule with {len(milp.lower)} variables and {len(milp.rows)} constraints "
                    f"exceeds the licence bundled with gurobipy ({BUNDLED_LIMIT} of each); install "
                    "a Gurobi licence or use --solver native or highs"
                ) from error
            raise SolverError(f"Gurobi failed: {error}; use --solver native or highs") from error


def _environment() -> gurobipy.Env:
    import gurobipy

    return gurobipy.Env(params={"OutputFlag": 0})


def _optimize(
    model: gurobipy.Model, milp: Milp, hint: FloatArray | None, time_limit_s: float
) -> MilpResult:
    import gurobipy
    from gurobipy import GRB

    model.Params.TimeLimit = time_limit_s
    model.Params.Threads = min(threads(), MOST_THREADS)
    model.Params.MIPGap = OPTIMALITY_GAP
    model.Params.MIPFocus = PROVE
    model.Params.IntFeasTol = INTEGRALITY
    objective = np.zeros(len(milp.lower))
    objective[0] = 1.0
    kinds = np.where(milp.integer, GRB.BINARY, GRB.CONTINUOUS)
    columns: Any = model.addMVar(
        len(objective), lb=np.array(milp.lower), ub=np.array(milp.upper), obj=objective, vtype=kinds
    )
    variables = columns.tolist()
    for row in milp.rows:
        terms = gurobipy.LinExpr(
            [coefficient for _, coefficient in row.terms],
            [variables[column] for column, _ in row.terms],
        )
        if row.upper < np.inf and row.upper > row.lower:
            model.addLConstr(terms, GRB.LESS_EQUAL, row.upper)
        model.addLConstr(
            terms, GRB.EQUAL if row.upper == row.lower else GRB.GREATER_EQUAL, row.lower
        )
    if hint is not None:
        columns.Start = hint
    model.optimize()
    if model.Status == GRB.OPTIMAL:
        return MilpResult(Status.OPTIMAL, np.asarray(columns.X), float(model.ObjBound))
    if model.Status in (GRB.INFEASIBLE, GRB.INF_OR_UNBD):
        return MilpResult(Status.INFEASIBLE, None, 0.0)
    if model.Status == GRB.TIME_LIMIT:
        if model.SolCount == 0:
            return MilpResult(Status.TIMED_OUT, None, 0.0)
        return MilpResult(Status.FEASIBLE, np.asarray(columns.X), max(0.0, float(model.ObjBound)))
    raise SolverError(f"Gurobi ended with status {model.Status}; use --solver native or highs")
