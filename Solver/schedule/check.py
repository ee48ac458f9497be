"""Independent verification of a schedule against its problem: shares no code with the solvers.

A fused operator takes any one free TC and any one free VC (*pool* semantics). Phaze's own model
pairs the core with index k of one type with index k of the other, but only when both core counts
happen to bind, so its value can depend on which optimum its solver meets first (1 of 400 random
instances); the pool rule is the part of it that is well defined, and the cores of a chip share a
buffer.
"""

from collections.abc import Iterator
from itertools import combinations

from phaze_common.errors import SolverError
from Solver.schedule.problem import Assignment, CoreType, Mode, Schedule, ScheduleProblem

TOLERANCE = 1e-6  # relative to the makespan, as the ILP solvers' feasibility tolerances allow


def check_schedule(problem: ScheduleProblem, schedule: Schedule) -> None:
    """Raise SolverError, naming each violation, unless ``schedule`` is feasible and its makespan,
    bound and utilisations true."""
    violations = list(_violations(problem, schedule))
    if violations:
        raise SolverError(
            f"{schedule.solver} returned a wrong schedule: {'; '.join(violations)}; use another "
            "--solver and report this"
        )


def _violations(problem: ScheduleProblem, schedule: Schedule) -> Iterator[str]:
    types = problem.structure.core_types
    by_operator = {one.operator: one for one in schedule.assignments}
    if len(schedule.assignments) != len(types) or set(by_operator) != set(range(len(types))):
        yield "not every operator is scheduled exactly once"
        return
    slack_s = TOLERANCE * max(schedule.makespan_s, 0.0)
    last_end_s = max((one.end_s for one in schedule.assignments), default=0.0)
    if abs(last_end_s - schedule.makespan_s) > slack_s:
        yield f"makespan {schedule.makespan_s} but the last operator ends at {last_end_s}"
    if schedule.bound_s > schedule.makespan_s + slack_s:
        yield f"bound {schedule.bound_s} above the makespan {schedule.makespan_s}"
    for one in schedule.assignments:
        yield from _operator_violations(problem, one, slack_s)
    for source, target in problem.structure.edges:
        if by_operator[source].end_s > by_operator[target].start_s + slack_s:
            yield f"operator {target} starts before {source} ends"
    for one, other in combinations(schedule.assignments, 2):
        if min(one.end_s, other.end_s) - max(one.start_s, other.start_s) > slack_s:
            if Mode.ALL in (one.mode, other.mode):
                yield (
                    f"operators {one.operator} and {other.operator} overlap though one takes "
                    "all cores"
                )
            if one.tc is not None and one.tc == other.tc:
                yield f"operators {one.operator} and {other.operator} share TC {one.tc}"
            if one.vc is not None and one.vc == other.vc:
                yield f"operators {one.operator} and {other.operator} share VC {one.vc}"
    for name, uses, count, claimed in (
        ("TC", (CoreType.TC, CoreType.TC_AND_VC), problem.num_tc, schedule.tc_utilization),
        ("VC", (CoreType.VC, CoreType.TC_AND_VC), problem.num_vc, schedule.vc_utilization),
    ):
        core_seconds = sum(
            (one.end_s - one.start_s) * (count if one.mode is Mode.ALL else 1)
            for one in schedule.assignments
            if types[one.operator] in uses
        )
        available = count * schedule.makespan_s
        if abs(core_seconds - claimed * available) > TOLERANCE * max(available, 0.0):
            yield (
                f"{name} utilisation {claimed} but {core_seconds} of {available} core-seconds "
                "are busy"
            )


def _operator_violations(
    problem: ScheduleProblem, one: Assignment, slack_s: float
) -> Iterator[str]:
    latency_s = float(
        (problem.all_latency_s if one.mode is Mode.ALL else problem.single_latency_s)[one.operator]
    )
    if one.start_s < -slack_s or abs(one.end_s - one.start_s - latency_s) > slack_s:
        yield f"operator {one.operator} runs from {one.start_s} to {one.end_s}, not for {latency_s}"
    core_type = problem.structure.core_types[one.operator]
    occupies = one.mode is Mode.SINGLE and latency_s > 0
    for name, core, count, needed in (
        ("TC", one.tc, problem.num_tc, core_type is not CoreType.VC),
        ("VC", one.vc, problem.num_vc, core_type is not CoreType.TC),
    ):
        if (core is not None) != (occupies and needed) or (
            core is not None and not 0 <= core < count
        ):
            yield f"operator {one.operator} has {name} {core} of {count}"
