"""Operator schedules of a best design's layers: solved, confirmed by an independent ILP solver,
kept as records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from Estimator.plans.groups import layer_groups
from Estimator.plans.layer_costs import layer_names, moded_layers
from Estimator.plans.results import Status
from GraphExtractor.graph import OperatorGraph, Recompute
from phaze_common.array_types import FloatArray
from phaze_common.progress import Advance
from Solver.designs.joint import Choice
from Solver.designs.network_times import core_type
from Solver.designs.schedule_records import KeptSchedule, ScheduledOperator
from Solver.designs.search_context import SearchContext
from Solver.hardware import DesignedChips
from Solver.results import ScheduleConfirmation
from Solver.schedule import confirm_with_ilp
from Solver.schedule.problem import CoreType, Mode, Schedule, ScheduleProblem

SCHEDULE_TIME_LIMIT_S = 60.0
CONFIRMATION_TOLERANCE = 1e-6  # relative, between the native makespan and the ILP's


@dataclass(frozen=True, eq=False)
class LayerSchedule:
    """The schedule of one pass of one distinct layer, ``repeats`` times per micro-batch; it is that
    of ``layers``, by name.

    ``exposed_s`` (operators,) are the seconds that operators hold their cores and wait for what
    they stream."""

    model: str
    layer: str
    graph: str
    operators: OperatorGraph
    problem: ScheduleProblem
    schedule: Schedule
    repeats: int
    layers: tuple[str, ...]
    exposed_s: FloatArray

    def busy(self, cores: CoreType) -> float:
        """Fraction of the core-seconds of a type in which its cores compute."""
        schedule = self.schedule
        count = self.problem.num_tc if cores is CoreType.TC else self.problem.num_vc
        waiting_s = sum(
            float(self.exposed_s[each.operator]) * (1 if each.mode is Mode.ALL else 1 / count)
            for each in schedule.assignments
            if cores in self.problem.structure.core_types[each.operator].split("+")
        )
        occupied = schedule.tc_utilization if cores is CoreType.TC else schedule.vc_utilization
        return occupied - (waiting_s / schedule.makespan_s if waiting_s else 0.0)


def schedule_layers(context: SearchContext, choice: Choice) -> list[LayerSchedule]:
    """Schedules of each distinct layer and pass of the chosen plan on its chip; none on devices."""
    hardware = context.hardware
    if not isinstance(hardware, DesignedChips):
        return []
    row, shape = choice.group.locate(choice.point)
    plan, graph = choice.group.plan(choice.point), shape.graph
    scheduled = hardware.scheduled(graph, layer_groups(plan, hardware.cluster))
    distinct, sequence = moded_layers(graph, plan.recompute)
    names, model = layer_names(graph), graph.key.model
    schedules = []
    for place, each in enumerate(distinct):
        layer = graph.layers[each.index]
        mine = tuple(name for name, kind in zip(names, sequence, strict=True) if kind == place)
        backward = "backward_selective" if each.mode is Recompute.SELECTIVE else "backward"
        passes = (
            ("forward", layer.forward, 2 if each.mode is Recompute.FULL else 1),
            (backward, layer.backward_graph(each.mode), 1),
        )
        for name, operators, runs in passes:
            if not operators.operators:
                continue
            problem = scheduled.problem(operators, row)
            schedule = hardware.solver.solve(problem, time_limit_s=SCHEDULE_TIME_LIMIT_S)
            solved = operators, problem, schedule, runs * len(mine), mine
            exposed_s = scheduled.exposed_s(operators, row, schedule)
            schedules.append(LayerSchedule(model, layer.name, name, *solved, exposed_s))
    return schedules


def confirm_schedules(
    schedules: Sequence[LayerSchedule], advance: Advance
) -> list[ScheduleConfirmation]:
    """Solve every schedule again as an ILP by a solver that shares no code with the native one."""
    confirmations = []
    for item in schedules:
        ilp, found_s = confirm_with_ilp(item.problem, item.schedule), item.schedule.makespan_s
        close = abs(ilp.makespan_s - found_s) <= CONFIRMATION_TOLERANCE * found_s
        confirmations.append(
            ScheduleConfirmation(
                model=item.model,
                layer=item.layer,
                graph=item.graph,
                native_makespan_s=found_s,
                ilp_makespan_s=ilp.makespan_s,
                ilp_gap=ilp.gap,
                ilp_solver=ilp.solver,
                agrees=close and ilp.status is Status.OPTIMAL,
            )
        )
        advance(1)
    return confirmations


def kept_schedules(hbm_bytes: int, schedules: Iterable[LayerSchedule]) -> list[KeptSchedule]:
    """Schedules of one HBM size's best design as records."""
    return [_kept(hbm_bytes, item) for item in schedules]


def _kept(hbm_bytes: int, item: LayerSchedule) -> KeptSchedule:
    operators, schedule = item.operators.operators, item.schedule
    return KeptSchedule(
        hbm_bytes=hbm_bytes,
        model=item.model,
        layer=item.layer,
        graph=item.graph,
        repeats=item.repeats,
        makespan_s=schedule.makespan_s,
        bound_s=schedule.bound_s,
        solver=schedule.solver,
        operators=tuple(
            ScheduledOperator(
                name=operators[each.operator].name,
                kind=operators[each.operator].kind.value,
                cores=core_type(operators[each.operator]).value,
                mode=each.mode.value,
                tc=each.tc,
                vc=each.vc,
                start_s=each.start_s,
                end_s=each.end_s,
                exposed_s=float(item.exposed_s[each.operator]),
            )
            for each in schedule.assignments
        ),
    )
