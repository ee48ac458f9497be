"""Published training runs against what is predicted of them."""

from Solver.validation.measured_runs import read_runs
from Solver.validation.records import RunResult, Statistics, ValidationReport
from Solver.validation.run import validate

__all__ = ["RunResult", "Statistics", "ValidationReport", "read_runs", "validate"]
