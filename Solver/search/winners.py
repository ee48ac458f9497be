"""Everything a reader needs to believe a winner: its plans, where time and memory go, the expert's plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from Common.errors import SolverError
from GraphExtractor.graph import ModelGraph, Recompute
from Plans.pipeline.schedule import PipelineSchedule
from Solver.placement import balanced_cuts, evaluate_plan, place, stage_memory, stage_times
from Solver.placement.layer_graph import edges_between, is_chain
from Solver.placement.problem import LayerTimes, Placement, PlacementProblem
from Solver.results import ExpertReport, ModelPlan, PipelineReport, StageReport, Status, TimeBreakdown
from Solver.search.baselines import ExpertPlan, expert_plans
from Solver.search.inputs import ModelInputs, placement_problem
from Solver.search.joint import Choice
from Solver.search.points import row_times, single_variant
from Solver.search.run import Run
from Solver.search.variants import batch_times
from Solver.search.winner_schedules import LayerSchedule


@dataclass(frozen=True, eq=False)
class PlacedPoint:
    """The placement of a model on one accelerator, with the problem and the layer times it answers."""

    problem: PlacementProblem
    times: LayerTimes
    placement: Placement


def place_point(choice: Choice) -> PlacedPoint:
    """Place the model on the chosen accelerator, which ``place`` checks with the independent evaluator.

    Raises:
        SolverError: that placement disagrees with the batch solver's, which is a defect.
    """
    group, point = choice.group, choice.point
    row, variant = group.locate(point)
    problem, batch = single_variant(group.problem, group.times, variant)
    times = row_times(batch, row)
    placement = place(problem, times)
    answers = (float(group.iteration_s[point]), placement.iteration_s)
    if max(answers) - min(answers) > 1e-9 * max(answers):
        raise SolverError(f"placement solvers disagree on {group.key}: {answers} s; please report this with study.yaml")
    return PlacedPoint(problem, times, placement)


def model_plan(run: Run, choice: Choice, inputs: ModelInputs, schedules: Sequence[LayerSchedule]) -> ModelPlan:
    """The plan of one model on the chosen accelerator, without its expert baseline."""
    group = choice.group
    row, _ = group.locate(choice.point)
    placed = place_point(choice)
    problem, placement = placed.problem, placed.placement
    graph = inputs.graph_of(placement.tp)
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
        pipeline=_pipeline_report(placed),
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
        breakdown_s=best.breakdown,
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


def _pipeline_report(placed: PlacedPoint) -> PipelineReport:
    """Half of a stage's gathered weights are for its forward, half for its backward pass."""
    placement = placed.placement
    stages = stage_times(placed.problem, placed.times, placement)
    receive_forward = [stage.activation_transfer_s + stage.gather_s / 2 for stage in stages]
    receive_backward = [stage.gradient_transfer_s + stage.gather_s / 2 for stage in stages]
    if placement.breakdown is None:
        raise SolverError("the placement of a feasible plan has no breakdown; please report this with study.yaml")
    slowest = max(stages, key=lambda stage: stage.load_s)
    sync_s = placement.breakdown.gradient_sync_s - placement.micro_batches_per_pipeline * slowest.gather_s
    return PipelineReport(
        schedule=PipelineSchedule.ONE_F_ONE_B.value,
        pp=placement.pp,
        micro_batches=placement.micro_batches_per_pipeline,
        forward_s=tuple(stage.forward_s + receive for stage, receive in zip(stages, receive_forward, strict=True)),
        backward_s=tuple(
            stage.recompute_s + stage.backward_s + receive for stage, receive in zip(stages, receive_backward, strict=True)
        ),
        receive_forward_s=tuple(receive_forward),
        receive_backward_s=tuple(receive_backward),
        transfer_s=(0.0,) * (placement.pp - 1),
        backward_transfer_s=(0.0,) * (placement.pp - 1),
        overlap_transfers=False,
        sync_s=(max(sync_s, 0.0),) * placement.pp,
        optimizer_s=placement.breakdown.optimizer_s,
    )


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


def _utilization(schedules: Sequence[LayerSchedule], name: str) -> float:
    """Busy fraction over one micro-batch's forward and backward of the whole model, weighted by time."""
    total_s = sum(item.schedule.makespan_s * item.repeats for item in schedules)
    busy_s = sum(getattr(item.schedule, name) * item.schedule.makespan_s * item.repeats for item in schedules)
    return busy_s / total_s if total_s else 0.0
