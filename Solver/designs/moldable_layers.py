"""Layers of a chosen plan with operators on groups of cores: the problem that
``Solver.schedule.moldable`` solves."""

from __future__ import annotations

from Estimator.chips.core_groups import CoreGroups, group_sizes
from GraphExtractor.graph import OperatorGraph
from Solver.designs.schedule_times import ScheduledGraph
from Solver.schedule.moldable import CoreGroup, MoldableProblem, useful_modes
from Solver.schedule.problem import CoreType, ScheduleProblem


def moldable_problem(
    problem: ScheduleProblem,
    operators: OperatorGraph,
    scheduled: ScheduledGraph,
    groups: CoreGroups,
) -> MoldableProblem:
    """``problem``, the scheduling of ``operators``, with groups of cores as further modes.

    One core and all of them cost what they did. An operator of both types has every pair of groups.
    """
    types = problem.structure.core_types
    fused = CoreType.TC_AND_VC in types
    tc_sizes = (
        group_sizes(problem.num_tc) if any(each is not CoreType.VC for each in types) else (1,)
    )
    vc_sizes = (
        group_sizes(problem.num_vc) if any(each is not CoreType.TC for each in types) else (1,)
    )
    modes = [
        [CoreGroup(problem.num_tc, problem.num_vc, float(seconds))]
        for seconds in problem.all_latency_s
    ]
    for tc, vc in ((tc, vc) for tc in tc_sizes for vc in vc_sizes if fused or 1 in (tc, vc)):
        seconds = scheduled.network.operator_times(
            operators, groups.priced(tc, vc), slice(None)
        ).single_s[0]
        for place, core_type in enumerate(types):
            if core_type is CoreType.TC_AND_VC:
                modes[place].append(CoreGroup(tc, vc, float(seconds[place])))
            elif core_type is CoreType.TC and vc == 1:
                modes[place].append(CoreGroup(tc, 0, float(seconds[place])))
            elif core_type is CoreType.VC and tc == 1:
                modes[place].append(CoreGroup(0, vc, float(seconds[place])))
    return MoldableProblem(
        problem.structure,
        tuple(useful_modes(tuple(each)) for each in modes),
        problem.num_tc,
        problem.num_vc,
    )
