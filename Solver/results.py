"""Records of what the solvers answer."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """How a solve ended. Infeasible, timed out and failed are three different things."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    TIMED_OUT = "timed_out"
    FAILED = "failed"
