"""What every schedule solver offers, and the registry of those that exist."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from Estimator.plans.results import Status
from phaze_common.array_types import FloatArray, IntArray
from phaze_common.errors import InputError, SolverError
from Solver.schedule.problem import (
    BatchMakespans,
    Mode,
    Schedule,
    ScheduleProblem,
    ScheduleStructure,
)
from Solver.schedule.structure import TYPE_BITS, closure

DEFAULT_TIME_LIMIT_S = 60.0


@dataclass(frozen=True)
class LicenseStatus:
    """Whether a solver may be used now, and on what terms or why not."""

    ok: bool
    message: str


class NodeLimit(IntEnum):
    """How many nodes of its tree a solver may visit for each schedule of a batch, where a solver
    can be limited so."""

    FIRST = 0  # most schedules need no more to be told from better ones
    SHORT = 1
    QUICK = 2
    THOROUGH = 3


class ScheduleSolver(ABC):
    """Solves operator schedules. Instances hold no state that changes an answer; every method may
    be called from several threads.

    ``license_status`` asks the solver each time it is called, since a licence can come and go.
    """

    name: str

    @abstractmethod
    def is_available(self) -> bool:
        """Whether the software it needs is installed."""

    @abstractmethod
    def license_status(self) -> LicenseStatus:
        """Whether it may be used, on this machine and now."""

    @abstractmethod
    def solve(
        self, problem: ScheduleProblem, time_limit_s: float = DEFAULT_TIME_LIMIT_S
    ) -> Schedule:
        """Schedule ``problem``.

        The status is OPTIMAL (proven to a relative 1e-9 or the solver's own tolerance), FEASIBLE
        (stopped by the limit, with a schedule and a bound), TIMED_OUT (stopped without one) or
        INFEASIBLE (an operator needs a core type that is lacking).

        Raises:
            InputError: the problem is malformed.
            SolverError: the solver is missing, unlicensed or failed; the message says what to do.
        """

    def solve_batch(
        self,
        structure: ScheduleStructure,
        single_s: FloatArray,
        all_s: FloatArray,
        num_tc: IntArray,
        num_vc: IntArray,
        node_limit: NodeLimit = NodeLimit.THOROUGH,
    ) -> BatchMakespans:
        """Optimal makespans on N accelerators: latencies (N, operators) in seconds, core counts
        (N,).

        ``bound_s`` is below ``makespan_s`` where ``node_limit`` was too low for the proof.

        Raises: InputError: malformed arrays, or an accelerator without cores of a type that some
            operator needs. SolverError: the solver failed, or found no schedule within its default
            limit.
        """
        count = len(single_s)
        batch = BatchMakespans(np.zeros(count), np.zeros(single_s.shape, np.bool_), np.zeros(count))
        for case in range(count):
            problem = ScheduleProblem(
                structure, single_s[case], all_s[case], int(num_tc[case]), int(num_vc[case])
            )
            schedule = self.solve(problem)
            if schedule.status not in (Status.OPTIMAL, Status.FEASIBLE):
                raise SolverError(
                    f"{self.name} ended {schedule.status} on accelerator {case} of a batch; use "
                    "--solver native"
                )
            batch.makespan_s[case] = schedule.makespan_s
            batch.bound_s[case] = schedule.bound_s
            for assignment in schedule.assignments:
                batch.all_mode[case, assignment.operator] = assignment.mode is Mode.ALL
        return batch


def check_arrays(structure: ScheduleStructure, single_s: FloatArray, all_s: FloatArray) -> None:
    """Raise InputError unless both are finite, non-negative, and (..., operators) for an acyclic
    structure."""
    count = len(closure(structure))
    if single_s.shape != all_s.shape or single_s.shape[-1] != count:
        raise InputError(
            f"latencies have shapes {single_s.shape} and {all_s.shape}; both must be equal and "
            f"end in the {count} operators"
        )
    for latencies in (single_s, all_s):
        if not (np.isfinite(latencies).all() and (latencies >= 0).all()):
            raise InputError(
                "operator latencies must be finite and not negative; check the latency table"
            )


def lacks_cores(structure: ScheduleStructure, num_tc: int, num_vc: int) -> bool:
    """Whether some operator needs a core type of which there are none."""
    needed = 0
    for core_type in structure.core_types:
        needed |= TYPE_BITS[core_type]
    return bool((needed & 1 and num_tc < 1) or (needed & 2 and num_vc < 1))
