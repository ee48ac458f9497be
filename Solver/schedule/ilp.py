"""What the ILP solvers share: series components one by one, core-count rows as they are violated,
answers re-simulated."""

import time
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from Estimator.plans.results import Status
from phaze_common.array_types import FloatArray
from phaze_common.errors import SolverError
from Solver.schedule.milp import ComponentModel, ComponentTiming, Milp
from Solver.schedule.problem import Mode, Schedule, ScheduleProblem
from Solver.schedule.solver import DEFAULT_TIME_LIMIT_S, ScheduleSolver, check_arrays, lacks_cores
from Solver.schedule.structure import Component, series_components
from Solver.schedule.timeline import Timing, complete, without_schedule

# relative: the re-simulated makespan may exceed the program's optimum by the solver's tolerances
AGREEMENT = 1e-6
CUTOFF = 1e-6  # relative: a known schedule bounds the makespan sought from just above


@dataclass(frozen=True, eq=False)
class MilpResult:
    """How an optimisation ended: column values (None if none were found) and a lower bound on the
    objective."""

    status: Status
    values: FloatArray | None
    bound: float


@dataclass(frozen=True, eq=False)
class _ComponentResult:
    status: Status
    timing: ComponentTiming | None
    bound_s: float


class IlpSolver(ScheduleSolver):
    """Solves the compact program of ``milp`` with some MILP software."""

    @abstractmethod
    def optimize(self, milp: Milp, hint: FloatArray | None, time_limit_s: float) -> MilpResult:
        """Minimise; ``hint`` is a feasible point to start from. The status is OPTIMAL, FEASIBLE,
        TIMED_OUT or INFEASIBLE.

        Raises:
            SolverError: the software is missing, unlicensed for this size, or failed.
        """

    def solve(
        self, problem: ScheduleProblem, time_limit_s: float = DEFAULT_TIME_LIMIT_S
    ) -> Schedule:
        """See ScheduleSolver."""
        return self.improve(problem, None, time_limit_s)

    def improve(
        self, problem: ScheduleProblem, known: Schedule | None, time_limit_s: float
    ) -> Schedule:
        """Solve starting from the schedule ``known``; the optimum and its proof are the software's
        own."""
        structure, single_s = problem.structure, problem.single_latency_s
        check_arrays(structure, single_s, problem.all_latency_s)
        if lacks_cores(structure, problem.num_tc, problem.num_vc):
            return without_schedule(Status.INFEASIBLE, self.name)
        deadline = time.monotonic() + time_limit_s
        kept = sum(1 << int(i) for i in np.flatnonzero(single_s > 0))
        start_s, all_mode = np.zeros(len(single_s)), np.zeros(len(single_s), np.bool_)
        clock_s = bound_s = 0.0
        status = Status.OPTIMAL
        for component in series_components(structure, kept):
            operators = list(component.operators)
            answer = self._solve_component(problem, component, known, deadline)
            if answer.timing is None:
                return without_schedule(answer.status, self.name)
            start_s[operators] = clock_s + answer.timing.start_s
            all_mode[operators] = answer.timing.all_mode
            clock_s += answer.timing.length_s
            bound_s += answer.bound_s
            if answer.status is not Status.OPTIMAL:
                status = answer.status
        return complete(problem, Timing(start_s, all_mode), status, self.name, bound_s)

    def _solve_component(
        self,
        problem: ScheduleProblem,
        component: Component,
        known: Schedule | None,
        deadline: float,
    ) -> _ComponentResult:
        operators = list(component.operators)
        single_s, all_s = problem.single_latency_s[operators], problem.all_latency_s[operators]
        serial_s = float(np.minimum(single_s, all_s).sum())
        if len(operators) == 1 or serial_s == 0:
            timing = ComponentTiming(np.zeros(len(operators)), all_s < single_s, serial_s)
            return _ComponentResult(Status.OPTIMAL, timing, serial_s)
        start_from = None if known is None else _part_of(known, operators)
        horizon_s = serial_s
        if start_from is not None:
            horizon_s = min(serial_s, start_from.length_s * (1.0 + CUTOFF))
        cores = problem.num_tc, problem.num_vc
        model = ComponentModel(component, single_s, all_s, *cores, horizon_s)
        hint = None if start_from is None else model.solution(start_from)
        while True:
            answer = self.optimize(model.milp, hint, max(0.0, deadline - time.monotonic()))
            if answer.values is None:
                if answer.status is Status.INFEASIBLE:  # the horizon is a feasible length
                    raise SolverError(
                        f"{self.name} found no schedule as short as a known one; use another "
                        "--solver"
                    )
                return _ComponentResult(answer.status, None, 0.0)
            timing = model.timing(answer.values)
            bound_s = answer.bound * model.scale_s
            if model.add_violated(timing) == 0:
                break
            if answer.status is not Status.OPTIMAL:  # no time left to keep the core counts
                status = Status.TIMED_OUT if start_from is None else Status.FEASIBLE
                return _ComponentResult(status, start_from, bound_s)
        if answer.status is Status.OPTIMAL and timing.length_s > bound_s * (1.0 + AGREEMENT):
            raise SolverError(
                f"{self.name} claims an optimum of {bound_s} s but its schedule takes "
                f"{timing.length_s} s; use another --solver"
            )
        return _ComponentResult(answer.status, timing, bound_s)


def _part_of(schedule: Schedule, operators: list[int]) -> ComponentTiming:
    """The stretch of ``schedule`` that runs ``operators``."""
    by_operator = {one.operator: one for one in schedule.assignments}
    parts = [by_operator[i] for i in operators]
    start_s = np.array([one.start_s for one in parts])
    begin_s = float(start_s.min())
    all_mode = np.array([one.mode is Mode.ALL for one in parts], np.bool_)
    return ComponentTiming(start_s - begin_s, all_mode, max(one.end_s for one in parts) - begin_s)
