"""The operator-scheduling problem and its answer (design: operators of one layer on tensor and
vector cores)."""

from dataclasses import dataclass
from enum import StrEnum

from Estimator.plans.results import Status
from phaze_common.array_types import BoolArray, FloatArray


class CoreType(StrEnum):
    """What an operator occupies while it runs on a single core: a TC, a VC, or one of each
    (fused)."""

    TC = "TC"
    VC = "VC"
    TC_AND_VC = "TC+VC"


class Mode(StrEnum):
    """One core of the operator's type(s), or spread over all of them, in which case nothing else
    runs."""

    SINGLE = "single"
    ALL = "all"


@dataclass(frozen=True)
class ScheduleStructure:
    """What does not depend on the accelerator: core type per operator (position = index) and
    precedence (i, j): i before j."""

    core_types: tuple[CoreType, ...]
    edges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class ScheduleProblem:
    """Schedule ``structure`` on ``num_tc`` + ``num_vc`` cores; latencies in seconds, float64 arrays
    of shape (operators,)."""

    structure: ScheduleStructure
    single_latency_s: FloatArray
    all_latency_s: FloatArray
    num_tc: int
    num_vc: int


@dataclass(frozen=True)
class Assignment:
    """Where and when one operator runs. ``tc``/``vc`` are core indices in SINGLE mode, None where
    unused or in ALL mode."""

    operator: int
    mode: Mode
    tc: int | None
    vc: int | None
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Schedule:
    """The answer, with its certificate: ``bound_s`` <= optimum <= ``makespan_s``; utilisations are
    time-weighted."""

    status: Status
    solver: str
    makespan_s: float
    bound_s: float
    assignments: tuple[Assignment, ...]
    tc_utilization: float
    vc_utilization: float

    @property
    def gap(self) -> float:
        """Relative distance between the makespan and its proven lower bound."""
        return 0.0 if self.makespan_s == 0 else (self.makespan_s - self.bound_s) / self.makespan_s


@dataclass(frozen=True, eq=False)
class BatchMakespans:
    """Makespans of one structure on N accelerators: seconds (N,) and whether each operator runs in
    ALL mode (N, operators).

    ``bound_s`` <= optimum <= ``makespan_s``; they are equal up to a relative 1e-9 where the optimum
    is proven.
    """

    makespan_s: FloatArray
    all_mode: BoolArray
    bound_s: FloatArray
