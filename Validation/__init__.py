"""Published training runs against what is predicted of them."""

from Validation.measured_runs import read_runs
from Validation.records import RunResult, Statistics, ValidationReport
from Validation.run import validate

__all__ = ["RunResult", "Statistics", "ValidationReport", "read_runs", "validate"]
