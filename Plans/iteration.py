"""One training iteration of a plan on a cluster of devices: its time, its memory, and where both go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from Common.errors import InputError
from Estimator.devices.operator_cost import DeviceModel
from Estimator.network.cluster import Cluster
from GraphExtractor.graph import ModelGraph
from Plans.groups import expert_groups
from Plans.layer_costs import layer_costs
from Plans.messages import Transfer
from Plans.pipeline.simulation import held_bytes
from Plans.plan import TrainingPlan, check_plan
from Plans.pricing import PlanPricer, StageCost
from Plans.results import IterationBreakdown, Prediction, StagePrediction
from Solver.placement.evaluate import balanced_cuts
from Solver.results import PipelineReport, Status

TERA = 1e12


def predict(graph: ModelGraph, plan: TrainingPlan, model: DeviceModel, cluster: Cluster) -> Prediction:
    """Price ``plan`` for the model of ``graph``, a graph made for the plan's micro-batch, tp, cp and ep (``plan.graph_key``).

    Raises:
        InputError: the plan contradicts itself, the model or the cluster.
    """
    check_plan(plan)
    costs = layer_costs(graph, plan.recompute, model, cluster, expert_groups(plan))
    return predict_cut(PlanPricer(graph, plan, model, cluster, costs), chunk_bounds(len(costs), plan))


def predict_cut(pricer: PlanPricer, bounds: Sequence[int]) -> Prediction:
    """Time, memory and breakdown of a plan whose chunks start at the layers ``bounds`` (the last entry: number of layers)."""
    stages, transfers = pricer.stages(bounds), pricer.transfers(bounds)
    finished_s = pricer.finished_s(stages, transfers)
    critical = int(finished_s.argmax())
    without_s = pricer.finished_s(stages, [Transfer(0.0, 0.0)] * len(transfers)).max()
    optimizer_s = pricer.optimizer_s(stages)
    iteration_s = float(finished_s[critical]) + optimizer_s
    transfer_s = max(float(finished_s[critical] - without_s), 0.0)
    breakdown = _breakdown(stages[critical], pricer.plan.micro_batches, transfer_s, optimizer_s, iteration_s)
    pipeline = _pipeline_report(pricer, stages, transfers, optimizer_s)
    return _prediction(pricer, _with_memory(pricer, stages), breakdown, iteration_s, pipeline)


def chunk_bounds(layers: int, plan: TrainingPlan) -> list[int]:
    """First layer of every chunk, and the number of layers: as the plan says, or blocks as evenly as possible.

    Raises:
        InputError: the plan's stages do not add up to the model's layers, or there are more of them than blocks.
    """
    if plan.stage_layers is None:
        return [0, *balanced_cuts(layers, plan.chunks), layers]
    if sum(plan.stage_layers) != layers:
        raise InputError(
            f"stage_layers adds up to {sum(plan.stage_layers)} layers, but the model has {layers} (embedding and head included)"
        )
    return [0, *accumulate(plan.stage_layers)]


def _breakdown(
    stage: StageCost, micro_batches: int, transfer_s: float, optimizer_s: float, iteration_s: float
) -> IterationBreakdown:
    """Where the iteration goes on ``stage``; what its own work does not explain is waiting for other stages."""
    kept = [each for chunk in stage.chunks for each in (chunk.forward, chunk.backward)]
    every = [*kept, *(chunk.recompute for chunk in stage.chunks)]
    parts = IterationBreakdown(
        compute_s=micro_batches * sum(each.arithmetic_s for each in kept),
        memory_bound_s=micro_batches * sum(each.memory_s for each in kept),
        launch_s=micro_batches * sum(each.launch_s for each in kept),
        recompute_s=micro_batches * sum(chunk.recompute.device_s for chunk in stage.chunks),
        tensor_communication_s=micro_batches * sum(each.tensor_s for each in every),
        context_communication_s=micro_batches * sum(each.context_s for each in every),
        pipeline_communication_s=transfer_s,
        data_communication_s=micro_batches * sum(each.data_s for each in every) + stage.once.exposed_s,
        expert_communication_s=micro_batches * sum(each.expert_s for each in every),
        bubble_s=0.0,
        optimizer_s=optimizer_s,
        hidden_tensor_communication_s=micro_batches * sum(each.hidden_tensor_s for each in every),
        hidden_data_communication_s=micro_batches * sum(each.hidden_data_s for each in every) + stage.once.hidden_s,
    )
    return replace(parts, bubble_s=max(iteration_s - parts.total_s, 0.0))


def _with_memory(pricer: PlanPricer, stages: Sequence[StageCost]) -> tuple[StagePrediction, ...]:
    plan = pricer.plan
    saved = np.array([stages[chunk % plan.pp].chunks[chunk // plan.pp].saved_bytes for chunk in range(plan.chunks)])
    held = held_bytes(saved, plan.pp, plan.schedule, plan.micro_batches)
    return tuple(
        StagePrediction(
            layers=stage.layers,
            forward_s=sum(chunk.forward.total_s for chunk in stage.chunks),
            backward_s=sum(chunk.whole_backward_s for chunk in stage.chunks),
            parameters=round(stage.parameters),
            parameter_state_bytes=stage.parameter_state_bytes,
            activation_bytes=float(activations),
            workspace_bytes=stage.workspace_bytes,
            reserved_bytes=stage.reserved_bytes,
        )
        for stage, activations in zip(stages, held, strict=True)
    )


def _pipeline_report(
    pricer: PlanPricer, stages: Sequence[StageCost], transfers: Sequence[Transfer], optimizer_s: float
) -> PipelineReport:
    costs = pricer.pipeline_costs(stages, transfers)
    nothing = (0.0,) * pricer.plan.chunks
    return PipelineReport(
        schedule=pricer.plan.schedule.value,
        pp=costs.pp,
        micro_batches=pricer.plan.micro_batches,
        forward_s=tuple(costs.forward_s.tolist()),
        backward_s=tuple(costs.backward_s.tolist()),
        receive_forward_s=nothing,
        receive_backward_s=nothing,
        transfer_s=tuple(costs.transfer_s.tolist()),
        backward_transfer_s=tuple(costs.backward_transfer_s.tolist()),
        overlap_transfers=costs.overlap_transfers,
        sync_s=tuple(float(stage.once.exposed_s) for stage in stages),
        optimizer_s=optimizer_s,
    )


def _prediction(
    pricer: PlanPricer,
    stages: tuple[StagePrediction, ...],
    breakdown: IterationBreakdown,
    iteration_s: float,
    pipeline: PipelineReport,
) -> Prediction:
    plan, model, costs = pricer.plan, pricer.model, pricer.costs
    samples = plan.global_batch_size  # what is run beyond that fills up the last micro-batches
    runs = samples / plan.micro_batch_size * plan.tp * plan.cp
    model_flops = 3.0 * sum(cost.forward_flops for cost in costs) * runs
    hardware_flops = model_flops + float(sum(cost.recomputed_flops for cost in costs)) * runs
    peak = model.device.peak_flops(model.number_format) * plan.devices
    reason = _misfit(stages, model.device.memory.capacity.value, model.device.title)
    return Prediction(
        status=Status.INFEASIBLE if reason else Status.FEASIBLE,
        reason=reason,
        iteration_s=iteration_s,
        samples_per_s=samples / iteration_s,
        tokens_per_s=samples * pricer.graph.key.sequence_length / iteration_s,
        model_tflops_per_device=model_flops / iteration_s / plan.devices / TERA,
        hardware_tflops_per_device=hardware_flops / iteration_s / plan.devices / TERA,
        model_flops_utilization=model_flops / iteration_s / peak,
        hardware_flops_utilization=hardware_flops / iteration_s / peak,
        devices=plan.devices,
        micro_batches_per_pipeline=plan.micro_batches,
        stages=stages,
        breakdown=breakdown,
        pipeline=pipeline,
    )


def _misfit(stages: Sequence[StagePrediction], capacity_bytes: float, device: str) -> str:
    """Why the stages do not fit in memory, empty where they do."""
    fullest = max(range(len(stages)), key=lambda stage: stages[stage].memory_bytes)
    needed = stages[fullest].memory_bytes
    if needed <= capacity_bytes:
        return ""
    stage = f"stage {fullest + 1} of {len(stages)}"
    return f"{stage} needs {needed / 1e9:.1f} GB per device, {device} has {capacity_bytes / 1e9:.1f} GB"
