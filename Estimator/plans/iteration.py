"""One training iteration of a plan: its time, its memory, and where both go."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from Estimator.pass_parts import PassParts
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.flops import trained_flops
from Estimator.plans.layer_costs import LayerCosts, PassCosts
from Estimator.plans.pricing import PricedPlan, StageParts, layers_of, stage_parts
from Estimator.plans.rates import Machine
from Estimator.plans.results import Breakdown, Iteration, PipelineReport, StageReport, Status
from phaze_common.choices import TensorLayout
from phaze_common.numbers import size_text


def price_iteration(
    plan: UniformPlan, costs: LayerCosts, machine: Machine, configuration: int = 0
) -> Iteration:
    """Price ``plan`` on one configuration of ``costs``, those of a graph made for the plan
    (``plan.graph_key``).

    Raises:
        InputError: the plan contradicts itself, the model or the cluster.
    """
    priced = PricedPlan(plan, costs, machine, configuration)
    transfer_s, iteration_s = _times_s(priced)
    return _iteration(
        priced, _breakdown(priced, busiest_stage(priced), transfer_s, iteration_s), iteration_s
    )


def breakdown_of(priced: PricedPlan, stage: int) -> Breakdown:
    """Where the iteration goes on ``stage``, counted from 0."""
    return _breakdown(priced, stage, *_times_s(priced))


def _times_s(priced: PricedPlan) -> tuple[float, float]:
    """What transfers between stages add to the iteration, and the iteration."""
    finished_s = float(priced.finished_s().max())
    return max(
        finished_s - float(priced.finished_s(free_transfers=True).max()), 0.0
    ), finished_s + priced.step_s


def busiest_stage(priced: PricedPlan) -> int:
    """The stage whose passes and synchronisation take longest, of which a ``Breakdown`` tells."""
    loads_s = priced.chunks_s.reshape(2, -1, priced.plan.pp).sum(axis=(0, 1))
    return int((priced.plan.micro_batches * loads_s + priced.after_s).argmax())


def summed_parts(
    costs: PassCosts, configuration: int, layers: Sequence[int], slower: float
) -> PassParts:
    """Sums over distinct ``layers``, by cause, counted as often as they stand there; arithmetic is
    so much ``slower``."""
    chosen = np.array(layers, dtype=np.int64)
    parts = PassParts(
        *(
            float(getattr(costs, field.name)[configuration][chosen].sum())
            for field in fields(PassParts)
        )
    )
    return replace(parts, arithmetic_s=parts.arithmetic_s * (1.0 + slower))


def as_laid_out(parts: PassParts, plan: UniformPlan) -> PassParts:
    """``parts`` by what its gathers and scatters belong to in the layout of ``plan``."""
    if plan.layout is not TensorLayout.TWO_D:
        return parts
    return replace(parts, tensor_s=parts.tensor_s + parts.sequence_s, sequence_s=0.0)


def passes_of(priced: PricedPlan, stage: int) -> tuple[PassParts, PassParts, PassParts]:
    """Forward, what is run again, and backward, of a micro-batch on ``stage``.

    What gathers and scatters in a 2D layout is no sequence parallelism, but tensor parallelism
    along its two axes.
    """
    costs, layers = (
        priced.costs,
        [priced.costs.sizes.sequence[layer] for layer in layers_of(priced, stage)],
    )

    def parts(passes: PassCosts) -> PassParts:
        return as_laid_out(
            summed_parts(passes, priced.configuration, layers, priced.rates.slower), priced.plan
        )

    return parts(costs.forward), parts(costs.recompute), parts(costs.backward)


@dataclass(frozen=True)
class StageWork:
    """What a stage does per micro-batch, by cause; ``once_s`` shows after its last one, with the
    gradients of tied parameters."""

    forward: PassParts
    again: PassParts
    backward: PassParts
    accumulated_s: float
    beyond: StageParts
    once_s: float

    @property
    def forward_communication_s(self) -> float:
        """Seconds of a forward pass in which the stage does nothing but communicate."""
        return self.forward.communication_s * self._shown + self.beyond.forward_data_s

    @property
    def backward_communication_s(self) -> float:
        """Those of a backward pass, with what is run again."""
        collectives_s = self.again.communication_s + self.backward.communication_s
        return collectives_s * self._shown + self.beyond.exposed_data_s - self.beyond.forward_data_s

    @property
    def _shown(self) -> float:
        """Part of the layers' collectives that nothing hides."""
        whole_s = (
            self.forward.communication_s
            + self.again.communication_s
            + self.backward.communication_s
        )
        return 1.0 - self.beyond.hidden_tensor_s / whole_s if whole_s else 1.0


@dataclass(frozen=True)
class StepTime:
    """The optimizer's step: of its ``seconds``, ``waiting_s`` are for what is in host memory,
    ``between_s`` the host's own."""

    seconds: float
    waiting_s: float
    between_s: float


def stage_breakdown(
    work: StageWork, micro_batches: int, transfer_s: float, step: StepTime, iteration_s: float
) -> Breakdown:
    """Where the iteration goes on a stage; what its own work does not explain is waiting for other
    stages."""
    forward, again, backward, parts = work.forward, work.again, work.backward, work.beyond
    hidden_s = parts.hidden_tensor_s
    tensor_s, sequence_s = (
        sum(getattr(each, name) for each in (forward, again, backward))
        for name in ("tensor_s", "sequence_s")
    )
    shown = 1 - hidden_s / (tensor_s + sequence_s) if hidden_s else 1.0
    many = micro_batches
    known = Breakdown(
        arithmetic_s=many * (forward.arithmetic_s + backward.arithmetic_s),
        memory_bound_s=many * (forward.memory_s + backward.memory_s + work.accumulated_s),
        launch_s=many * (forward.launch_s + backward.launch_s + parts.launch_s) + step.between_s,
        recompute_s=many * again.work_s,
        tensor_communication_s=many * tensor_s * shown,
        sequence_communication_s=many * sequence_s * shown,
        context_communication_s=many * (forward.context_s + again.context_s + backward.context_s),
        expert_communication_s=many * (forward.expert_s + again.expert_s + backward.expert_s),
        pipeline_communication_s=transfer_s,
        data_communication_s=many * parts.exposed_data_s + work.once_s,
        bubble_s=0.0,
        optimizer_s=step.seconds - step.waiting_s - step.between_s,
        hidden_tensor_communication_s=many * hidden_s,
        hidden_data_communication_s=many * parts.hidden_data_s + parts.hidden_once_s,
        host_communication_s=many * parts.exposed_host_s + step.waiting_s,
        hidden_host_communication_s=many * parts.hidden_host_s + parts.hidden_step_host_s,
    )
    return replace(known, bubble_s=max(iteration_s - known.total_s, 0.0))


def _work(priced: PricedPlan, stage: int) -> StageWork:
    costs = priced.costs
    layers = [costs.sizes.sequence[layer] for layer in layers_of(priced, stage)]
    accumulated_s = (
        float(costs.accumulation_s[priced.configuration][layers].sum()) * priced.rates.accumulated
    )
    return StageWork(
        *passes_of(priced, stage),
        accumulated_s,
        stage_parts(priced, stage),
        float(priced.after_s[stage]),
    )


def _breakdown(priced: PricedPlan, stage: int, transfer_s: float, iteration_s: float) -> Breakdown:
    work, many = _work(priced, stage), priced.plan.micro_batches
    step = StepTime(priced.step_s, priced.step_waiting_s, priced.rates.between_s)
    return stage_breakdown(work, many, transfer_s, step, iteration_s)


def _iteration(priced: PricedPlan, breakdown: Breakdown, iteration_s: float) -> Iteration:
    plan, machine, sizes = priced.plan, priced.machine, priced.costs.sizes
    samples = plan.global_batch_size  # what is run beyond that fills up the last micro-batches
    runs = samples / plan.micro_batch_size * plan.inner_devices
    sequence = list(sizes.sequence)
    work = trained_flops(sizes, sequence, runs)
    stages = _stages(priced)
    reason = misfit(stages, machine)
    joules = priced.costs.joules
    return Iteration(
        status=Status.INFEASIBLE if reason else Status.FEASIBLE,
        reason=reason,
        iteration_s=iteration_s,
        samples_per_s=samples / iteration_s,
        tokens_per_s=samples * priced.costs.graph.key.sequence_length / iteration_s,
        **vars(work.rates(iteration_s * plan.devices, machine.peak_flops)),
        energy_per_sample_j=None
        if joules is None
        else sample_joules(priced.costs, priced.configuration),
        devices=plan.devices,
        micro_batches_per_pipeline=plan.micro_batches,
        stages=stages,
        breakdown=breakdown,
        pipeline=_pipeline_report(priced),
    )


def sample_joules(costs: LayerCosts, configuration: int | slice = slice(None)) -> float:
    """Joules per training sample of all devices that work on it together; of many configurations an
    array.

    Raises:
        ValueError: the energy of the hardware is not known.
    """
    if costs.joules is None:
        raise ValueError("the energy of this hardware is not known")
    key = costs.graph.key
    joules: float = (
        costs.joules[configuration][..., list(costs.sizes.sequence)].sum(axis=-1)
        * key.tp
        * key.sequence_devices
        / key.micro_batch_size
    )
    return joules


def _stages(priced: PricedPlan) -> tuple[StageReport, ...]:
    plan, names = priced.plan, priced.costs.sizes.names
    state, activations, workspace, reserved = priced.memory_bytes
    host = priced.host_bytes
    forward_s, backward_s = priced.chunks_s.reshape(2, -1, plan.pp).sum(axis=1)
    parameters = priced.sizes.parameters.reshape(-1, plan.pp).sum(axis=0)
    if plan.pp == 1:
        parameters = parameters - priced.tied_parameters
    after_s = priced.after_s
    work = [_work(priced, stage) for stage in range(plan.pp)]
    return tuple(
        StageReport(
            layers=tuple(names[layer] for layer in layers_of(priced, stage)),
            devices=plan.inner_devices * plan.dp,
            load_s=float(forward_s[stage] + backward_s[stage]),
            forward_s=float(forward_s[stage]),
            backward_s=float(backward_s[stage]),
            after_s=float(after_s[stage]),
            forward_communication_s=work[stage].forward_communication_s,
            backward_communication_s=work[stage].backward_communication_s,
            parameters=round(float(parameters[stage])),
            memory_bytes=float(
                state[stage] + activations[stage] + workspace[stage] + reserved[stage]
            ),
            parameter_state_bytes=float(state[stage]),
            activation_bytes=float(activations[stage]),
            workspace_bytes=float(workspace[stage]),
            reserved_bytes=float(reserved[stage]),
            allocated_bytes=float(state[stage] + activations[stage] + workspace[stage]),
            host_bytes=float(host[stage]),
        )
        for stage in range(plan.pp)
    )


def _pipeline_report(priced: PricedPlan) -> PipelineReport:
    costs = priced.pipeline_costs()
    return PipelineReport(
        schedule=priced.plan.passes.value,
        pp=costs.pp,
        micro_batches=priced.plan.micro_batches,
        forward_s=tuple(costs.forward_s.tolist()),
        backward_s=tuple(costs.backward_s.tolist()),
        transfer_s=tuple(costs.transfer_s.tolist()),
        backward_transfer_s=tuple(costs.backward_transfer_s.tolist()),
        overlap_transfers=costs.overlap_transfers,
        sync_s=tuple(priced.after_s.tolist()),
        optimizer_s=priced.step_s - priced.rates.between_s,
        saved_bytes=tuple(priced.allocated_sizes.saved_bytes.tolist()),
        between_s=priced.rates.between_s,
        whole_warm_up=costs.whole_warm_up,
    )


def misfit(stages: Sequence[StageReport], machine: Machine) -> str:
    """Why the stages do not fit in memory, empty where they do."""
    fullest = max(range(len(stages)), key=lambda stage: stages[stage].memory_bytes)
    needed, given = stages[fullest].memory_bytes, machine.memory_bytes
    if needed <= given:
        return _host_misfit(stages, machine)
    return (
        f"stage {fullest + 1} of {len(stages)} needs {size_text(needed)} per device, "
        f"{machine.title} has {size_text(given)}"
    )


def _host_misfit(stages: Sequence[StageReport], machine: Machine) -> str:
    """Why what is kept in host memory does not fit there, where that is known."""
    fullest = max(range(len(stages)), key=lambda stage: stages[stage].host_bytes)
    needed, given = stages[fullest].host_bytes, machine.host_bytes
    if needed <= given:
        return ""
    return (
        f"stage {fullest + 1} of {len(stages)} keeps {size_text(needed)} per device in host "
        f"memory, a host of {machine.cluster.name} has {size_text(given)} for each"
    )
