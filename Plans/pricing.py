"""The price of a plan's pipeline stages: seconds, bytes, and when their gradients are complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from Estimator.devices.operator_cost import DeviceModel
from Estimator.network.cluster import Cluster
from GraphExtractor.graph import ModelGraph
from Plans.chunks import Chunk, OncePerIteration, Overlap, chunk_cost, once_per_iteration
from Plans.groups import GroupNetwork, expert_replicas, replicas
from Plans.layer_costs import LayerCost
from Plans.messages import Transfer, message_s
from Plans.pipeline.schedule import FloatArray, PipelineCosts
from Plans.pipeline.simulation import simulate
from Plans.plan import TrainingPlan, check_cluster, check_plan
from Plans.synchronisation import stage_synchronisation, tied_synchronisation_s
from Solver.placement.layer_graph import copied_bytes
from Solver.placement.objective import optimizer_s_per_parameter, resident_bytes_per_parameter
from Solver.placement.policy import training_policy
from Solver.placement.problem import TrainingPolicy

Spans = tuple[tuple[int, int], ...]  # layers [first, stop) of each chunk of a stage


@dataclass(frozen=True)
class StageCost:
    """A pipeline stage: its chunks, its communication after the last micro-batch, and the bytes its devices hold."""

    chunks: tuple[Chunk, ...]
    once: OncePerIteration
    layers: int
    parameters: float
    expert_parameters: float  # of them, those that fewer devices hold than the others
    parameter_state_bytes: float
    workspace_bytes: float
    reserved_bytes: float

    @property
    def fixed_bytes(self) -> float:
        """All but the activations."""
        return self.parameter_state_bytes + self.workspace_bytes + self.reserved_bytes


class PlanPricer:
    """Prices one plan with any cut into chunks. ``costs`` are the layers of ``graph``, which was made for the plan.

    Raises:
        InputError: the plan contradicts itself or does not fit on the cluster.
    """

    def __init__(
        self, graph: ModelGraph, plan: TrainingPlan, model: DeviceModel, cluster: Cluster, costs: Sequence[LayerCost]
    ) -> None:
        check_plan(plan)
        check_cluster(plan, cluster)
        self.graph, self.plan, self.model, self.cluster, self.costs = graph, plan, model, cluster, tuple(costs)
        software = model.software
        policy, gradient_bytes = training_policy(plan.optimizer, plan.zero_stage), software.gradient_bytes.value
        read_more = gradient_bytes - policy.gradient_bytes
        self.policy = replace(policy, gradient_bytes=gradient_bytes, optimizer_step_bytes=policy.optimizer_step_bytes + read_more)
        self.overlap = overlap_of(plan, model)
        copies = np.array([plan.dp * plan.cp, plan.dp * plan.cp // plan.ep])  # of a parameter, and of an expert's
        self._update_s = optimizer_s_per_parameter(self.policy, copies, model.device.memory.stream_bytes_per_s())
        self._resident_bytes = resident_bytes_per_parameter(self.policy, copies)
        self._replicas = GroupNetwork(replicas(plan), cluster)
        self._expert_replicas = GroupNetwork(expert_replicas(plan), cluster)
        self._whole_bytes = unsharded_bytes_per_parameter(self.policy)
        # each layer but the first that owns a parameter has a copy of it, unless all are on one stage
        self._tied_parameters = sum(cost.tied_parameters for cost in costs)
        self._tied_s = tied_synchronisation_s(self._tied_parameters, plan, self.policy, cluster)
        self._copied_bytes = copied_bytes(graph.tensors, range(len(costs)))
        self.stage = lru_cache(maxsize=None)(self._stage)
        self._message_s = lru_cache(maxsize=None)(partial(message_s, plan=plan, cluster=cluster))

    @property
    def least_bytes(self) -> float:
        """What the fullest stage holds at least, however the layers are cut: its part of the parameters."""
        parameters = sum(cost.parameters for cost in self.costs) - self._tied_parameters
        counts = self._counts(parameters, self._experts(self.costs))
        return float(self._resident_bytes @ counts) / self.plan.pp + self.model.software.reserved_memory.value

    def stages(self, bounds: Sequence[int]) -> tuple[StageCost, ...]:
        """The stages when chunks start at the layers ``bounds``, whose last entry is the number of layers."""
        plan = self.plan
        return tuple(
            self.stage(tuple((bounds[chunk], bounds[chunk + 1]) for chunk in range(stage, plan.chunks, plan.pp)))
            for stage in range(plan.pp)
        )

    def transfers(self, bounds: Sequence[int]) -> tuple[Transfer, ...]:
        """Messages over every boundary between chunks."""
        return tuple(self.transfer(chunk, bounds[chunk + 1]) for chunk in range(self.plan.chunks - 1))

    def transfer(self, chunk: int, position: int) -> Transfer:
        """Messages between ``chunk`` and the next, which starts at layer ``position``."""
        activations, gradients = self.graph.cut_bytes(position)
        source, target = chunk % self.plan.pp, (chunk + 1) % self.plan.pp
        return Transfer(self._message_s(activations, source, target), self._message_s(gradients, target, source))

    def finished_s(self, stages: Sequence[StageCost], transfers: Sequence[Transfer]) -> FloatArray:
        """When each stage has its gradients complete and synchronised, from the start of the first micro-batch; shape (pp,).

        1F1B and GPipe wait for their transfers; interleaved schedules do unless the framework overlaps them.
        """
        ends_s = simulate(self.pipeline_costs(stages, transfers), self.plan.schedule, self.plan.micro_batches).last_backward_end_s
        finished: FloatArray = ends_s.reshape(-1, self.plan.pp).max(axis=0) + np.array([stage.once.exposed_s for stage in stages])
        return finished

    def pipeline_costs(self, stages: Sequence[StageCost], transfers: Sequence[Transfer]) -> PipelineCosts:
        """What the pipeline's passes and messages take."""
        plan = self.plan
        chunks = [stages[chunk % plan.pp].chunks[chunk // plan.pp] for chunk in range(plan.chunks)]
        return PipelineCosts(
            plan.pp,
            np.array([chunk.forward.total_s for chunk in chunks]),
            np.array([chunk.whole_backward_s for chunk in chunks]),
            np.array([each.forward_s for each in transfers]),
            np.array([each.backward_s for each in transfers]),
            overlap_transfers=self.overlap.pipeline and plan.interleave > 1,
        )

    def optimizer_s(self, stages: Sequence[StageCost]) -> float:
        """The update of the largest stage: all wait for the norm of the gradients before, and for each other after."""
        return max(float(self._update_s @ self._counts(stage.parameters, stage.expert_parameters)) for stage in stages)

    def _experts(self, costs: Sequence[LayerCost]) -> float:
        """Parameters of experts, where they have fewer copies than others."""
        return float(sum(cost.expert_parameters for cost in costs)) if self.plan.ep > 1 else 0.0

    def _counts(self, parameters: float, experts: float) -> FloatArray:
        """Parameters by how many copies they have."""
        return np.array([parameters - experts, experts])

    def _stage(self, spans: Spans) -> StageCost:
        chunks = [self.costs[first:stop] for first, stop in spans]
        layers = [cost for chunk in chunks for cost in chunk]
        first_stage, last_stage = spans[0][0] == 0, spans[-1][1] == len(self.costs)
        parameters = float(sum(cost.parameters for cost in layers))
        if first_stage and last_stage:  # what layers share counts once where one stage has them all
            parameters -= self._tied_parameters
        experts = self._experts(layers)
        sync = stage_synchronisation(parameters, experts, len(layers), self.policy, self._replicas, self._expert_replicas)
        priced = tuple(
            replace(cost, saved_bytes=cost.saved_bytes + float(self._copied_bytes[first]))
            for (first, _), chunk in zip(spans, chunks, strict=True)
            for cost in (chunk_cost(chunk, sync, len(layers), self.overlap),)
        )
        once = once_per_iteration(sync, priced, self.overlap)
        if first_stage or last_stage:
            once = replace(once, exposed_s=once.exposed_s + self._tied_s)
        return StageCost(
            chunks=priced,
            once=once,
            layers=len(layers),
            parameters=parameters,
            expert_parameters=experts,
            parameter_state_bytes=float(self._resident_bytes @ self._counts(parameters, experts)),
            workspace_bytes=max(cost.workspace_bytes + self._whole_bytes * cost.parameters for cost in layers),
            reserved_bytes=self.model.software.reserved_memory.value,
        )


def unsharded_bytes_per_parameter(policy: TrainingPolicy) -> float:
    """What a device holds of a layer at work beyond its own part of it.

    From ZeRO-2 on the whole gradient, until it is reduced; under ZeRO-3 also the gathered weights, and those of the next layer.
    """
    gradient = policy.gradient_bytes if policy.zero_stage >= 2 else 0.0
    return gradient + (2 * policy.weight_bytes if policy.zero_stage == 3 else 0.0)


def overlap_of(plan: TrainingPlan, model: DeviceModel) -> Overlap:
    """What runs beside computation: what the plan says, else what the framework does."""
    software = model.software
    tensor = software.overlap_tensor if plan.overlap_tensor is None else plan.overlap_tensor
    data = software.overlap_gradients if plan.overlap_gradients is None else plan.overlap_gradients
    return Overlap(tensor and plan.sequence_parallel, data, software.overlap_pipeline, plan.tp, 1 - 1 / plan.micro_batches)
