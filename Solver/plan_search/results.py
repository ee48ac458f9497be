"""Records of what a plan search answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from Solver.results import Counts, Status
from Solver.training.plan import TrainingPlan
from Solver.training.results import Prediction


class PlanOutcome(StrEnum):
    """What became of a plan of the space."""

    EVALUATED = "evaluated"  # its best cut into stages is known, or the best of those tried
    PRUNED = "pruned"  # its bound does not beat a plan that was evaluated
    INFEASIBLE = "infeasible"  # no cut of it fits in memory


@dataclass(frozen=True)
class PlanPoint:
    """A plan and its outcome; no cut of it into stages takes less than ``bound_s``."""

    plan: TrainingPlan
    outcome: PlanOutcome
    bound_s: float
    iteration_s: float | None
    memory_bytes: float | None
    reason: str = ""


@dataclass(frozen=True)
class PlanSearchResult:
    """The fastest plan; ``optimal`` where no plan of the space, however it is cut into stages, is faster.

    Otherwise none takes less than ``bound_s``.
    """

    status: Status
    optimal: bool
    plan: TrainingPlan | None
    prediction: Prediction | None
    bound_s: float | None
    counts: Counts
    points: tuple[PlanPoint, ...]
    reason: str = ""
