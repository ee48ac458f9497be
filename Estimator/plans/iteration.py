"""One training iteration of a plan: its time, its memory, and where both go."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from Estimator.pass_parts import PassParts
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.layer_costs import LayerCosts
from Estimator.plans.pricing import PricedPipeline, PricedPlan
from Estimator.plans.rates import Machine
from Estimator.plans.results import Breakdown, Iteration, PipelineReport, StageReport, Status
from Estimator.plans.stage_price import StagePrice
from phaze_common.numbers import size_text


def price_iteration(
    plan: UniformPlan, costs: LayerCosts, machine: Machine, configuration: int = 0
) -> Iteration:
    """Price ``plan`` on one configuration of ``costs``, those of a graph made for the plan
    (``plan.graph_key``).

    Raises:
        InputError: the plan contradicts itself, the model or the cluster.
    """
    return iteration_of(PricedPlan(plan, costs, machine, configuration))


def iteration_of(priced: PricedPipeline) -> Iteration:
    """What an iteration of a priced plan takes."""
    machine = priced.machine
    sites = priced.first_stage.sites
    samples = sites * priced.first_stage.global_batch_size
    iteration_s = priced.iteration_s
    work = [_work(priced, stage) for stage in range(priced.pp)]
    stages, devices = _stages(priced, work), sum(priced.devices)
    reason = _misfit(stages, machine)
    return Iteration(
        status=Status.INFEASIBLE if reason else Status.FEASIBLE,
        reason=reason,
        iteration_s=iteration_s,
        samples_per_s=samples / iteration_s,
        tokens_per_s=samples * priced.costs.graph.key.sequence_length / iteration_s,
        **vars(priced.flops.rates(iteration_s * devices, machine.peak_flops)),
        energy_per_sample_j=priced.sample_joules,
        devices=sites * devices,
        micro_batches_per_pipeline=priced.micro_batches,
        stages=stages,
        breakdown=_breakdown(priced, work[priced.busiest_stage]),
        pipeline=_pipeline_report(priced),
    )


def breakdown_of(priced: PricedPipeline, stage: int) -> Breakdown:
    """Where the iteration goes on ``stage``, counted from 0."""
    return _breakdown(priced, _work(priced, stage))


@dataclass(frozen=True)
class StageWork:
    """Work per micro-batch by cause; ``once_s`` shows after the last one."""

    forward: PassParts
    recompute: PassParts
    backward: PassParts
    accumulated_s: float
    price: StagePrice[float]
    once_s: float

    @property
    def forward_communication_s(self) -> float:
        """Seconds of a forward pass in which the stage does nothing but communicate."""
        hidden_s = self.price.forward_hidden_expert_s
        return self.forward.communication_s * self._shown - hidden_s + self.price.forward_data_s

    @property
    def backward_communication_s(self) -> float:
        """Those of a backward pass, with what is recomputed."""
        collectives_s = self.recompute.communication_s + self.backward.communication_s
        hidden_s = self.price.hidden_expert_s - self.price.forward_hidden_expert_s
        exposed_s = self.price.exposed_data_s - self.price.forward_data_s
        return collectives_s * self._shown - hidden_s + exposed_s

    @property
    def _shown(self) -> float:
        passes = self.forward, self.recompute, self.backward
        whole_s = sum(each.communication_s for each in passes)
        return 1.0 - self.price.hidden_tensor_s / whole_s if whole_s else 1.0


def _breakdown(priced: PricedPipeline, work: StageWork) -> Breakdown:
    """Where the iteration goes on a stage; what its work does not explain is waiting."""
    forward, recompute, backward, price = work.forward, work.recompute, work.backward, work.price
    many, hidden_s, between_s = priced.micro_batches, price.hidden_tensor_s, priced.between_s
    exchange_s = sum(each.expert_s for each in (forward, recompute, backward))
    passes = forward, recompute, backward
    tensor_s = sum(each.tensor_s for each in passes)
    sequence_s = sum(each.sequence_s for each in passes)
    shown = 1 - hidden_s / (tensor_s + sequence_s) if hidden_s else 1.0
    free_s = float(priced.finished_s(free_transfers=True).max()) + priced.step_s
    known = Breakdown(
        arithmetic_s=many * (forward.arithmetic_s + backward.arithmetic_s),
        memory_bound_s=many * (forward.memory_s + backward.memory_s + work.accumulated_s),
        launch_s=many * (forward.launch_s + backward.launch_s + price.launch_s) + between_s,
        recompute_s=many * recompute.work_s,
        tensor_communication_s=many * tensor_s * shown,
        sequence_communication_s=many * sequence_s * shown,
        context_communication_s=many * sum(each.context_s for each in passes),
        expert_communication_s=many * (exchange_s - price.hidden_expert_s),
        pipeline_communication_s=max(priced.iteration_s - free_s, 0.0),
        data_communication_s=many * price.exposed_data_s + work.once_s,
        bubble_s=0.0,
        optimizer_s=priced.step_s - priced.step_waiting_s - between_s - priced.outer_s,
        site_communication_s=priced.outer_s,
        hidden_tensor_communication_s=many * hidden_s,
        hidden_data_communication_s=many * price.hidden_data_s + price.hidden_once_s,
        host_communication_s=many * price.exposed_host_s + priced.step_waiting_s,
        hidden_host_communication_s=many * price.hidden_host_s + price.hidden_step_host_s,
        hidden_expert_communication_s=many * price.hidden_expert_s,
    )
    return replace(known, bubble_s=max(priced.iteration_s - known.total_s, 0.0))


def _work(priced: PricedPipeline, stage: int) -> StageWork:
    accumulated_s = np.concatenate([stages.accumulated_s for stages in priced.alike])[stage]
    once_s = float(priced.after_s[stage])
    price = priced.stage_price(stage)
    return StageWork(*priced.passes_of(stage), float(accumulated_s), price, once_s)


def _stages(priced: PricedPipeline, work: Sequence[StageWork]) -> tuple[StageReport, ...]:
    names, memory = priced.costs.sizes.names, priced.memory_bytes.T.tolist()
    parameters = np.concatenate([stages.parameters for stages in priced.alike]).tolist()
    reports = []
    for stage, of_stage in enumerate(work):
        state, activations, workspace, reserved, cached = memory[stage]
        price = of_stage.price
        report = StageReport(
            layers=tuple(names[layer] for layer in priced.layers_of(stage)),
            devices=priced.devices[stage],
            load_s=price.forward_s + price.backward_s,
            forward_s=price.forward_s,
            backward_s=price.backward_s,
            after_s=of_stage.once_s,
            forward_communication_s=of_stage.forward_communication_s,
            backward_communication_s=of_stage.backward_communication_s,
            parameters=round(parameters[stage]),
            memory_bytes=state + activations + workspace + reserved,
            parameter_state_bytes=state,
            activation_bytes=activations,
            workspace_bytes=workspace,
            reserved_bytes=reserved,
            cached_bytes=cached,
            allocated_bytes=state + activations + workspace,
            host_bytes=float(priced.host_bytes[stage]),
        )
        reports.append(report)
    return tuple(reports)


def _pipeline_report(priced: PricedPipeline) -> PipelineReport:
    costs = priced.pipeline_costs()
    saved = np.concatenate([stages.allocated_sizes.saved_bytes for stages in priced.alike])
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
        optimizer_s=priced.step_s - priced.between_s,
        saved_bytes=tuple(saved.tolist()),
        between_s=priced.between_s,
        whole_warm_up=costs.whole_warm_up,
    )


def _misfit(stages: Sequence[StageReport], machine: Machine) -> str:
    """Why the stages do not fit in device or, where that is known, in host memory; empty if they
    do."""
    device_bytes = [stage.memory_bytes for stage in stages]
    host_bytes = [stage.host_bytes for stage in stages]
    most_bytes, most_host_bytes = max(device_bytes), max(host_bytes)
    if most_bytes > machine.memory_bytes:
        return (
            f"stage {device_bytes.index(most_bytes) + 1} of {len(stages)} needs "
            f"{size_text(most_bytes)} per device, {machine.title} has "
            f"{size_text(machine.memory_bytes)}"
        )
    if most_host_bytes > machine.host_bytes:
        return (
            f"stage {host_bytes.index(most_host_bytes) + 1} of {len(stages)} keeps "
            f"{size_text(most_host_bytes)} per device in host memory, a host of "
            f"{machine.cluster.name} has {size_text(machine.host_bytes)} for each"
        )
    return ""
