"""Operator schedules of a winner's layers: solved, confirmed by an independent ILP solver, kept as records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from Common.progress import Advance
from GraphExtractor.graph import OperatorGraph, OperatorKind, Recompute
from Solver.results import ScheduleConfirmation, Status
from Solver.schedule import confirm_with_ilp
from Solver.schedule.problem import Schedule, ScheduleProblem
from Solver.search.inputs import ModelInputs
from Solver.search.joint import Choice
from Solver.search.layer_times import core_type, schedule_problem
from Solver.search.run import Run
from Solver.search.schedule_records import KeptSchedule, ScheduledOperator

SCHEDULE_TIME_LIMIT_S = 60.0
CONFIRMATION_TOLERANCE = 1e-6  # relative, between the native makespan and the ILP's


@dataclass(frozen=True, eq=False)
class LayerSchedule:
    """The schedule of one pass of one distinct layer, ``index`` in its graph; its name need not be its own."""

    model: str
    index: int
    layer: str
    graph: str
    operators: OperatorGraph
    schedule: Schedule
    repeats: int
    collective_s: float


def schedule_layers(run: Run, choice: Choice, inputs: ModelInputs) -> list[LayerSchedule]:
    """Schedules of every distinct layer and pass that the chosen plan runs, on its accelerator."""
    row, variant = choice.group.locate(choice.point)
    plan = choice.group.problem.variants[variant]
    graph = inputs.graph_of(plan.tp)
    backward = "backward_selective" if plan.recompute is Recompute.SELECTIVE else "backward"
    forward_runs = 2 if plan.recompute is Recompute.FULL else 1
    schedules = []
    for index, layer in enumerate(graph.layers):
        repeats = graph.sequence.count(index)
        for name, operators, runs in (
            ("forward", layer.forward, forward_runs),
            (backward, layer.backward_graph(plan.recompute), 1),
        ):
            if operators.operators:
                problem = _problem(run, operators, inputs, row)
                schedule = run.solver.solve(problem, time_limit_s=SCHEDULE_TIME_LIMIT_S)
                collective_s = _collective_s(operators, problem)
                schedules.append(
                    LayerSchedule(graph.key.model, index, layer.name, name, operators, schedule, repeats * runs, collective_s)
                )
    return schedules


def confirm_schedules(
    run: Run, schedules: Sequence[LayerSchedule], inputs: ModelInputs, row: int, advance: Advance
) -> list[ScheduleConfirmation]:
    """Solve every schedule again as the ILP with a solver that shares no code with the native one."""
    confirmations = []
    for item in schedules:
        problem = _problem(run, item.operators, inputs, row)
        ilp = confirm_with_ilp(problem, item.schedule)
        difference = abs(ilp.makespan_s - item.schedule.makespan_s)
        confirmations.append(
            ScheduleConfirmation(
                model=item.model,
                layer=item.layer,
                graph=item.graph,
                native_makespan_s=item.schedule.makespan_s,
                ilp_makespan_s=ilp.makespan_s,
                ilp_gap=ilp.gap,
                ilp_solver=ilp.solver,
                agrees=ilp.status is Status.OPTIMAL and difference <= CONFIRMATION_TOLERANCE * item.schedule.makespan_s,
            )
        )
        advance(1)
    return confirmations


def kept_schedules(hbm_bytes: int, schedules: Iterable[LayerSchedule]) -> list[KeptSchedule]:
    """Schedules of one HBM size's winner as records."""
    return [_kept(hbm_bytes, item) for item in schedules]


def _kept(hbm_bytes: int, item: LayerSchedule) -> KeptSchedule:
    operators = item.operators.operators
    return KeptSchedule(
        hbm_bytes=hbm_bytes,
        model=item.model,
        layer=item.layer,
        graph=item.graph,
        repeats=item.repeats,
        makespan_s=item.schedule.makespan_s,
        bound_s=item.schedule.bound_s,
        solver=item.schedule.solver,
        operators=tuple(
            ScheduledOperator(
                name=operators[assignment.operator].name,
                kind=operators[assignment.operator].kind.value,
                cores=core_type(operators[assignment.operator]).value,
                mode=assignment.mode.value,
                tc=assignment.tc,
                vc=assignment.vc,
                start_s=assignment.start_s,
                end_s=assignment.end_s,
            )
            for assignment in item.schedule.assignments
        ),
    )


def _problem(run: Run, operators: OperatorGraph, inputs: ModelInputs, row: int) -> ScheduleProblem:
    return schedule_problem(operators, inputs.table, run.hardware.accelerators, row, run.collective_s(operators))


def _collective_s(operators: OperatorGraph, problem: ScheduleProblem) -> float:
    collective = [operator.kind is OperatorKind.COLLECTIVE for operator in operators.operators]
    return float(problem.single_latency_s[np.array(collective, dtype=bool)].sum())
