"""Everything a reader needs to believe a winner: its plans, where time and memory go, confirmed schedules, the expert's plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from Common.errors import SolverError
from Common.progress import Advance
from GraphExtractor.graph import ModelGraph, OperatorGraph, OperatorKind, Recompute
from Solver.placement import balanced_cuts, evaluate_plan, place, stage_memory
from Solver.placement.layer_graph import edges_between, is_chain
from Solver.placement.problem import Placement, PlacementProblem
from Solver.results import ExpertReport, ModelPlan, ScheduleConfirmation, StageReport, Status, TimeBreakdown
from Solver.schedule import confirm_with_ilp
from Solver.schedule.problem import Schedule, ScheduleProblem
from Solver.search.baselines import ExpertPlan, expert_plans
from Solver.search.inputs import ModelInputs, placement_problem
from Solver.search.joint import Choice
from Solver.search.layer_times import schedule_problem
from Solver.search.points import row_times, single_variant
from Solver.search.run import Run
from Solver.search.variants import batch_times

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


def place_point(choice: Choice) -> tuple[PlacementProblem, Placement]:
    """Place the model on the chosen accelerator, which ``place`` checks with the independent evaluator.

    Raises:
        SolverError: that placement disagrees with the batch solver's, which is a defect.
    """
    group, point = choice.group, choice.point
    row, variant = group.locate(point)
    problem, batch = single_variant(group.problem, group.times, variant)
    placement = place(problem, row_times(batch, row))
    answers = (float(group.iteration_s[point]), placement.iteration_s)
    if max(answers) - min(answers) > 1e-9 * max(answers):
        raise SolverError(f"placement solvers disagree on {group.key}: {answers} s; please report this with study.yaml")
    return problem, placement


def model_plan(run: Run, choice: Choice, inputs: ModelInputs, schedules: Sequence[LayerSchedule]) -> ModelPlan:
    """The plan of one model on the chosen accelerator, without its expert baseline."""
    group = choice.group
    row, _ = group.locate(choice.point)
    problem, placement = place_point(choice)
    plan = problem.variants[0]
    graph = inputs.graph_of(plan.tp)
    devices = placement.pp * placement.dp * placement.tp
    names = layer_names(graph)
    stages = tuple(
        StageReport(
            layers=tuple(names[layer] for layer in placement.order[stage.first_layer : stage.last_layer + 1]),
            devices=stage.devices,
            load_s=stage.load_s,
            memory_bytes=stage.memory_bytes,
            parameter_state_bytes=memory.parameter_state_bytes,
            activation_bytes=memory.activation_bytes,
            workspace_bytes=memory.workspace_bytes,
        )
        for stage, memory in zip(placement.stages, stage_memory(problem, placement), strict=True)
    )
    samples_per_s = group.batch_samples / placement.iteration_s
    chip = run.hardware.accelerators.accelerator(row)
    peak_flops = 2.0 * chip.num_tc * chip.width * chip.depth * run.hardware.platform.frequency_hz
    return ModelPlan(
        throughput_samples_per_s=samples_per_s,
        time_per_batch_s=placement.iteration_s,
        time_per_batch_bound_s=placement.bound_s,
        micro_batch_size=group.key.micro_batch_size,
        hbm_bytes=group.key.hbm_bytes,
        recompute=placement.recompute.value,
        tp=placement.tp,
        pp=placement.pp,
        dp=placement.dp,
        micro_batches_per_pipeline=placement.micro_batches_per_pipeline,
        devices_used=devices,
        stages=stages,
        breakdown_s=_breakdown(placement, graph, schedules),
        model_flops_utilization=float(model_flops_per_sample(graph) * samples_per_s / (devices * peak_flops)),
        energy_per_sample_j=float(group.energy_j[choice.point]),
        tc_utilization=_utilization(schedules, "tc_utilization"),
        vc_utilization=_utilization(schedules, "vc_utilization"),
        expert=None,
        speedup_over_expert=None,
        plans_lost=group.lost,
    )


def with_expert(plan: ModelPlan, expert: ExpertReport | None) -> ModelPlan:
    """``plan`` beside the expert's."""
    if expert is None or expert.status is not Status.FEASIBLE:
        return replace(plan, expert=expert)
    return replace(plan, expert=expert, speedup_over_expert=plan.throughput_samples_per_s / expert.throughput_samples_per_s)


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
                problem = schedule_problem(operators, inputs.table, run.hardware.accelerators, row)
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
        problem = schedule_problem(item.operators, inputs.table, run.hardware.accelerators, row)
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


def expert_report(run: Run, expert: ExpertPlan, inputs: ModelInputs, row: int, hbm_bytes: int) -> ExpertReport:
    """Price the expert's plan on accelerator ``row``, with the recomputation mode that suits it best.

    ``inputs`` must hold the expert's width. A plan that does not fit is reported with its reason and the time it would take,
    one that does not apply with its reason alone.
    """
    graph = inputs.graph_of(expert.tp)
    unsuited = _why_unsuited(graph, expert)
    if unsuited:
        source, degrees = expert_plans().source, (expert.tp, expert.pp, expert.dp)
        return ExpertReport(Status.INFEASIBLE, source, *degrees, Recompute.NONE.value, 0.0, 0.0, unsuited)
    problem = placement_problem(run, inputs, hbm_bytes)
    times = row_times(batch_times(inputs.times, run.study.recompute, graph.sequence), row)
    cuts = balanced_cuts(len(graph.sequence), expert.pp)
    placements = [
        evaluate_plan(problem, times, variant, expert.dp, cuts)
        for variant, plan in enumerate(problem.variants)
        if plan.tp == expert.tp
    ]
    best = min(placements, key=lambda placement: (placement.status is not Status.FEASIBLE, placement.iteration_s))
    return ExpertReport(
        status=best.status,
        source=expert_plans().source,
        tp=expert.tp,
        pp=expert.pp,
        dp=expert.dp,
        recompute=best.recompute.value,
        throughput_samples_per_s=run.study.global_batch_size / best.iteration_s,
        time_per_batch_s=best.iteration_s,
        reason=best.reason,
    )


def _why_unsuited(graph: ModelGraph, expert: ExpertPlan) -> str:
    """Why blocks cannot be balanced over the expert's stages; empty where they can."""
    names = [graph.layers[index].name for index in graph.sequence]
    chain = is_chain(len(names), edges_between(graph.tensors))
    if not chain or (names[0], names[-1], set(names[1:-1])) != ("embedding", "head", {"block"}):
        return "the expert's plan balances the blocks between an embedding and a head, and these layers are no such chain"
    if expert.pp > len(names) - 2:
        return f"the expert's plan has {expert.pp} stages, the model only {len(names) - 2} blocks"
    return ""


def layer_names(graph: ModelGraph) -> tuple[str, ...]:
    """Name of every layer in execution order; those of one name, alike or not, are numbered from 0."""
    names = [graph.layers[index].name for index in graph.sequence]
    often, seen = Counter(names), Counter[str]()
    numbered = []
    for name in names:
        numbered.append(f"{name}.{seen[name]}" if often[name] > 1 else name)
        seen[name] += 1
    return tuple(numbered)


def model_flops_per_sample(graph: ModelGraph) -> float:
    """Matrix-product FLOPs of forward and backward without recomputation: three times the forward (Narayanan et al. 2021)."""
    forward = sum(graph.layers[index].forward.flops for index in graph.sequence)
    return 3.0 * forward * graph.key.tp / graph.key.micro_batch_size


def schedules_record(hbm_bytes: int, schedules: Iterable[LayerSchedule]) -> list[dict[str, object]]:
    """Schedules of one HBM size's winner as JSON: which operator runs where and when."""
    return [
        {
            "hbm_bytes": hbm_bytes,
            "model": item.model,
            "layer": item.layer,
            "graph": item.graph,
            "repeats": item.repeats,
            "makespan_s": item.schedule.makespan_s,
            "solver": item.schedule.solver,
            "operators": [
                {
                    "name": item.operators.operators[assignment.operator].name,
                    "kind": item.operators.operators[assignment.operator].kind.value,
                    "mode": assignment.mode.value,
                    "tc": assignment.tc,
                    "vc": assignment.vc,
                    "start_s": assignment.start_s,
                    "end_s": assignment.end_s,
                }
                for assignment in item.schedule.assignments
            ],
        }
        for item in schedules
    ]


def _breakdown(placement: Placement, graph: ModelGraph, schedules: Sequence[LayerSchedule]) -> TimeBreakdown:
    if placement.breakdown is None:
        raise SolverError(f"the placement of {graph.key.model} has no breakdown; please report this with study.yaml")
    slowest = max(placement.stages, key=lambda stage: stage.load_s)
    stage_layers = placement.order[slowest.first_layer : slowest.last_layer + 1]
    collective_s = [0.0] * len(graph.layers)
    for item in schedules:
        again = 2 if item.graph == "forward" and placement.recompute is Recompute.FULL else 1
        collective_s[item.index] += item.collective_s * again
    tensor_s = sum(collective_s[graph.sequence[layer]] for layer in stage_layers) * placement.micro_batches_per_pipeline
    return TimeBreakdown(**vars(placement.breakdown), tensor_communication_s=tensor_s)


def _collective_s(operators: OperatorGraph, problem: ScheduleProblem) -> float:
    collective = [operator.kind is OperatorKind.COLLECTIVE for operator in operators.operators]
    return float(problem.single_latency_s[np.array(collective, dtype=bool)].sum())


def _utilization(schedules: Sequence[LayerSchedule], name: str) -> float:
    """Busy fraction over one micro-batch's forward and backward of the whole model, weighted by time."""
    total_s = sum(item.schedule.makespan_s * item.repeats for item in schedules)
    busy_s = sum(getattr(item.schedule, name) * item.schedule.makespan_s * item.repeats for item in schedules)
    return busy_s / total_s if total_s else 0.0
