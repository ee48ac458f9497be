"""From start times and modes to a complete schedule: who runs on which core, and how busy the cores
are."""

import math
from dataclasses import dataclass

import numpy as np

from Estimator.plans.results import Status
from phaze_common.array_types import BoolArray, FloatArray
from Solver.schedule.problem import Assignment, Mode, Schedule, ScheduleProblem
from Solver.schedule.structure import TYPE_BITS, closure, members

# relative to the makespan: an operator starting this little before another's end follows it
SIMULTANEOUS = 1e-9


@dataclass(frozen=True, eq=False)
class Timing:
    """When each operator starts and whether it runs in ALL mode; arrays (operators,)."""

    start_s: FloatArray
    all_mode: BoolArray


def without_schedule(status: Status, solver: str, bound_s: float = math.nan) -> Schedule:
    """The answer of a solver that found no schedule: times are not-a-number."""
    return Schedule(status, solver, math.nan, bound_s, (), math.nan, math.nan)


def complete(
    problem: ScheduleProblem, timing: Timing, status: Status, solver: str, bound_s: float
) -> Schedule:
    """Name the cores of every operator: tensor and vector cores are two pools, the lowest free
    index of each is taken.

    Operators of zero latency occupy no core; they are placed where their predecessors end.
    """
    single, all_cores = problem.single_latency_s, problem.all_latency_s
    order = closure(problem.structure)
    bits = [TYPE_BITS[core_type] for core_type in problem.structure.core_types]
    start_s = timing.start_s.copy()
    end_s = start_s + np.where(timing.all_mode, all_cores, single)
    for i in order.topological():
        if single[i] == 0:
            start_s[i] = end_s[i] = end_s[list(members(order.before[i]))].max(initial=0.0)
    makespan_s = float(end_s.max(initial=0.0))
    slack_s = SIMULTANEOUS * makespan_s
    counts = {1: problem.num_tc, 2: problem.num_vc}
    free_from_s = {pool: [0.0] * min(count, len(bits)) for pool, count in counts.items()}
    cores: dict[int, dict[int, int]] = {}
    for i in sorted(range(len(bits)), key=lambda i: (float(start_s[i]), float(end_s[i]))):
        cores[i] = {}
        if not timing.all_mode[i] and single[i] > 0:
            for pool, free in free_from_s.items():
                if bits[i] & pool:
                    since_s = start_s[i] + slack_s
                    core = next(core for core, from_s in enumerate(free) if from_s <= since_s)
                    cores[i][pool], free[core] = core, float(end_s[i])
    assignments = tuple(
        Assignment(
            operator=i,
            mode=Mode.ALL if timing.all_mode[i] else Mode.SINGLE,
            tc=cores[i].get(1),
            vc=cores[i].get(2),
            start_s=float(start_s[i]),
            end_s=float(end_s[i]),
        )
        for i in range(len(bits))
    )
    tc, vc = (_utilization(*pool, bits, assignments, makespan_s) for pool in counts.items())
    return Schedule(status, solver, makespan_s, min(bound_s, makespan_s), assignments, tc, vc)


def _utilization(
    pool: int, count: int, bits: list[int], assignments: tuple[Assignment, ...], makespan_s: float
) -> float:
    if count == 0 or makespan_s == 0:
        return 0.0
    busy_s = sum(
        (one.end_s - one.start_s) * (count if one.mode is Mode.ALL else 1)
        for one in assignments
        if bits[one.operator] & pool
    )
    return min(1.0, busy_s / (count * makespan_s))
