"""The native exact solver, the default: no licence, no external software."""

from functools import cached_property

import numpy as np

from Estimator.plans.results import Status
from phaze_common.array_types import FloatArray, IntArray
from phaze_common.bounded_memo import BoundedMemo
from Solver.schedule.problem import BatchMakespans, Schedule, ScheduleProblem, ScheduleStructure
from Solver.schedule.solver import (
    DEFAULT_TIME_LIMIT_S,
    LicenseStatus,
    NodeLimit,
    ScheduleSolver,
    check_arrays,
    lacks_cores,
)
from Solver.schedule.tables import Timings
from Solver.schedule.timeline import Timing, complete, without_schedule

# search nodes standing for a second: a conservative constant, so that results do not depend on the
# load
NODES_PER_S = 2_000_000
# per component and accelerator; some 0.8 s at most
NODES = {
    NodeLimit.FIRST: 25,
    NodeLimit.SHORT: 2_000,
    NodeLimit.QUICK: 20_000,
    NodeLimit.THOROUGH: 4_000_000,
}
SOLVED_BYTES = 128 * 2**20  # of schedules of components that are held
PROVEN = 2e-9  # relative gap at which a search that ended is told from one that was stopped


class NativeSolver(ScheduleSolver):
    """Certificate, then branch and bound, per series component (see ``bounds`` and ``search``)."""

    name = "native"

    @cached_property
    def _solved(self) -> BoundedMemo[Timings]:
        # layers share what they consist of, and another network changes none of the rest
        return BoundedMemo(SOLVED_BYTES, lambda timings: sum(each.nbytes for each in timings))

    def is_available(self) -> bool:
        """Always."""
        return True

    def license_status(self) -> LicenseStatus:
        """None is needed."""
        return LicenseStatus(True, "part of phaze, needs no licence")

    def solve(
        self, problem: ScheduleProblem, time_limit_s: float = DEFAULT_TIME_LIMIT_S
    ) -> Schedule:
        """See ScheduleSolver. There is always the serial schedule, so the status is never
        TIMED_OUT."""
        from Solver.schedule.batch import schedule_many

        structure = problem.structure
        check_arrays(structure, problem.single_latency_s, problem.all_latency_s)
        if lacks_cores(structure, problem.num_tc, problem.num_vc):
            return without_schedule(Status.INFEASIBLE, self.name)
        timings = schedule_many(
            structure,
            problem.single_latency_s[None, :],
            problem.all_latency_s[None, :],
            np.array([problem.num_tc]),
            np.array([problem.num_vc]),
            int(time_limit_s * NODES_PER_S),
        )
        proven = timings.lower[0] >= timings.makespan[0] * (1.0 - PROVEN)
        status = Status.OPTIMAL if proven else Status.FEASIBLE
        return complete(
            problem,
            Timing(timings.start[0], timings.all_mode[0]),
            status,
            self.name,
            float(timings.lower[0]),
        )

    def solve_batch(
        self,
        structure: ScheduleStructure,
        single_s: FloatArray,
        all_s: FloatArray,
        num_tc: IntArray,
        num_vc: IntArray,
        node_limit: NodeLimit = NodeLimit.THOROUGH,
    ) -> BatchMakespans:
        """See ScheduleSolver; vectorised, on all processors."""
        from Solver.schedule.batch import schedule_many

        timings = schedule_many(
            structure, single_s, all_s, num_tc, num_vc, NODES[node_limit], self._solved
        )
        return BatchMakespans(timings.makespan, timings.all_mode, timings.lower)
