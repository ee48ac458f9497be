"""One training iteration of a plan whose stages differ: its time, its memory, and where both go."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from Estimator.plans.flops import TrainedFlops, trained_flops
from Estimator.plans.heterogeneous.mixed_layers import RecomputableLayers
from Estimator.plans.heterogeneous.placed_stage import PlacedStage
from Estimator.plans.heterogeneous.pricing import PricedStage, PricedStages
from Estimator.plans.iteration import StepTime, misfit, stage_breakdown
from Estimator.plans.rates import Machine, between_s
from Estimator.plans.results import Iteration, PipelineReport, StageReport, Status


def iteration_of_stages(
    placed: Sequence[PlacedStage], layers: Sequence[RecomputableLayers], machine: Machine
) -> Iteration:
    """Price ``placed`` stages, whose graphs' ``layers`` are given stage by stage.

    Raises:
        InputError: the stages contradict themselves, the model or the cluster.
    """
    priced = PricedStages(placed, layers, machine)
    finished_s = float(priced.finished_s().max())
    iteration_s = priced.iteration_s
    transfer_s = max(finished_s - float(priced.finished_s(free_transfers=True).max()), 0.0)
    loads_s = np.array([stage.forward_s + stage.backward_s for stage in priced.stages])
    busiest = int((priced.micro_batches * loads_s + priced.after_s).argmax())
    work = priced.stages[busiest].work(float(priced.after_s[busiest]))
    step = StepTime(priced.step_s, priced.step_waiting_s, between_s(machine.software))
    reports = _stages(priced)
    reason = misfit(reports, machine)
    samples, devices = placed[0].degrees.global_batch_size, priced.placed[-1].end_device
    counted = sum((_flops(stage) for stage in priced.stages), TrainedFlops())
    return Iteration(
        status=Status.INFEASIBLE if reason else Status.FEASIBLE,
        reason=reason,
        iteration_s=iteration_s,
        samples_per_s=samples / iteration_s,
        tokens_per_s=samples * layers[0].kept.graph.key.sequence_length / iteration_s,
        **vars(counted.rates(iteration_s * devices, machine.peak_flops)),
        energy_per_sample_j=None,
        devices=devices,
        micro_batches_per_pipeline=priced.micro_batches,
        stages=reports,
        breakdown=stage_breakdown(work, priced.micro_batches, transfer_s, step, iteration_s),
        pipeline=_pipeline_report(priced),
    )


def _flops(stage: PricedStage) -> TrainedFlops:
    """FLOPs of all samples of a batch on a stage."""
    degrees = stage.placed.degrees
    chosen = [stage.layer_sizes.sequence[layer] for layer in stage.placed.layers]
    return trained_flops(
        stage.layer_sizes,
        chosen,
        degrees.global_batch_size / degrees.micro_batch_size * degrees.inner_devices,
    )


def _stages(priced: PricedStages) -> tuple[StageReport, ...]:
    state, activations, workspace, reserved = priced.memory_bytes
    names = priced.stages[0].layers.kept.sizes.names
    work = [
        stage.work(float(once_s))
        for stage, once_s in zip(priced.stages, priced.after_s, strict=True)
    ]
    return tuple(
        StageReport(
            layers=tuple(names[layer] for layer in stage.placed.layers),
            devices=stage.placed.devices,
            load_s=stage.forward_s + stage.backward_s,
            forward_s=stage.forward_s,
            backward_s=stage.backward_s,
            after_s=float(priced.after_s[number]),
            parameters=round(stage.parameters),
            memory_bytes=float(
                state[number] + activations[number] + workspace[number] + reserved[number]
            ),
            parameter_state_bytes=float(state[number]),
            activation_bytes=float(activations[number]),
            workspace_bytes=float(workspace[number]),
            reserved_bytes=float(reserved[number]),
            allocated_bytes=float(state[number] + activations[number] + workspace[number]),
            forward_communication_s=work[number].forward_communication_s,
            backward_communication_s=work[number].backward_communication_s,
            host_bytes=float(priced.host_bytes[number]),
        )
        for number, stage in enumerate(priced.stages)
    )


def _pipeline_report(priced: PricedStages) -> PipelineReport:
    costs = priced.pipeline_costs()
    return PipelineReport(
        schedule=priced.passes.value,
        pp=costs.pp,
        micro_batches=priced.micro_batches,
        forward_s=tuple(costs.forward_s.tolist()),
        backward_s=tuple(costs.backward_s.tolist()),
        transfer_s=tuple(costs.transfer_s.tolist()),
        backward_transfer_s=tuple(costs.backward_transfer_s.tolist()),
        overlap_transfers=costs.overlap_transfers,
        sync_s=tuple(priced.after_s.tolist()),
        optimizer_s=priced.step_s - between_s(priced.machine.software),
        saved_bytes=tuple(float(stage.allocated_sizes.saved_bytes[0]) for stage in priced.stages),
        between_s=between_s(priced.machine.software),
    )
