"""HiGHS as schedule solver, through scipy: free, no licence, slower than Gurobi."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import numpy as np

from Estimator.plans.results import Status
from phaze_common.array_types import FloatArray
from phaze_common.errors import SolverError
from Solver.schedule.ilp import IlpSolver, MilpResult
from Solver.schedule.milp import Milp
from Solver.schedule.solver import LicenseStatus

_FAILED = 4  # status of scipy's result that is neither an answer nor a limit


class HighsSolver(IlpSolver):
    """scipy.optimize.milp. HiGHS's tolerances stay at their defaults: tightened, it has returned
    false optima."""

    name = "highs"

    def is_available(self) -> bool:
        """Whether scipy is installed."""
        return find_spec("scipy") is not None

    def license_status(self) -> LicenseStatus:
        """None is needed."""
        if not self.is_available():
            return LicenseStatus(False, "scipy is not installed; run pip install scipy")
        return LicenseStatus(True, "HiGHS in scipy, free of charge")

    def optimize(self, milp: Milp, hint: FloatArray | None, time_limit_s: float) -> MilpResult:
        """See IlpSolver. scipy passes no starting point on, so ``hint`` only serves through the
        horizon."""
        from scipy.optimize import Bounds, LinearConstraint
        from scipy.optimize import milp as optimize
        from scipy.sparse import csr_array

        columns = [column for row in milp.rows for column, _ in row.terms]
        values = [coefficient for row in milp.rows for _, coefficient in row.terms]
        offsets = np.cumsum([0, *(len(row.terms) for row in milp.rows)])
        matrix = csr_array((values, columns, offsets), shape=(len(milp.rows), len(milp.lower)))
        objective = np.zeros(len(milp.lower))
        objective[0] = 1.0
        rows = LinearConstraint(
            matrix, [row.lower for row in milp.rows], [row.upper for row in milp.rows]
        )
        for presolve in (True, False):  # which loses some small models ("Solve error")
            with _stdout_kept_clean():
                result = optimize(
                    objective,
                    integrality=np.array(milp.integer, int),
                    bounds=Bounds(milp.lower, milp.upper),
                    constraints=rows,
                    options={
                        "time_limit": time_limit_s,
                        "mip_rel_gap": 0.0,
                        "presolve": presolve,
                    },
                )
            if result.status != _FAILED or "limit reached" in result.message:
                break
        bound = 0.0 if result.mip_dual_bound is None else max(0.0, float(result.mip_dual_bound))
        if result.status == 0:
            return MilpResult(Status.OPTIMAL, result.x, bound)
        if result.status == 2:
            return MilpResult(Status.INFEASIBLE, None, 0.0)
        if result.status == 1 or "limit reached" in result.message:
            return MilpResult(
                Status.TIMED_OUT if result.x is None else Status.FEASIBLE, result.x, bound
            )
        raise SolverError(f"HiGHS failed: {result.message}; use --solver native or gurobi")


@contextmanager
def _stdout_kept_clean() -> Iterator[None]:
    """Send what HiGHS's machine code prints, whatever its options, to stderr: stdout is for
    results."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
