"""Exact schedules of one layer's operators on the cores of one accelerator."""

from Solver.schedule.registry import SOLVERS, solver_named

__all__ = ["SOLVERS", "solver_named"]
