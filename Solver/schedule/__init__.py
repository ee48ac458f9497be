"""Exact schedules of one layer's operators on the cores of one accelerator."""

from Solver.schedule.check import check_schedule
from Solver.schedule.confirm import confirm_with_ilp
from Solver.schedule.registry import SOLVERS, solver_named

__all__ = ["SOLVERS", "check_schedule", "confirm_with_ilp", "solver_named"]
