"""Data-parallel communication of a pipeline stage: gradients, sharded weights, and what the first and last stage share."""

from __future__ import annotations

from dataclasses import dataclass

from Estimator.network.cluster import Cluster
from Estimator.network.collectives import collective_s
from GraphExtractor.graph import CollectiveKind
from Plans.groups import GroupNetwork
from Plans.plan import TrainingPlan
from Solver.placement.problem import TrainingPolicy


@dataclass(frozen=True)
class StageSynchronisation:
    """Seconds of a stage's data-parallel communication.

    ``gather_s`` of the weights precedes each forward and each backward pass (ZeRO-3), ``reduce_s`` of the gradients follows each
    backward pass (ZeRO-2 and 3). Once per iteration come ``last_reduce_s`` of the gradients and ``update_s``, which gathers the
    updated weights (ZeRO-1 and 2).
    """

    gather_s: float
    reduce_s: float
    last_reduce_s: float
    update_s: float


def stage_synchronisation(
    parameters: float,
    expert_parameters: float,
    layers: int,
    policy: TrainingPolicy,
    replicas: GroupNetwork,
    expert_replicas: GroupNetwork,
) -> StageSynchronisation:
    """Communication of a stage with ``parameters`` on each device, of which ``expert_parameters`` have fewer replicas.

    ``replicas``, context-parallel devices among them, hold the same weights, so gradients are reduced over all of them; those of
    experts that are divided among them over ``expert_replicas``, which have the same ones. ZeRO-3 gathers layer by layer
    (Rajbhandari et al. 2020).
    """
    divided = ((parameters - expert_parameters, replicas), (expert_parameters, expert_replicas))

    def seconds(kind: CollectiveKind, bytes_per_parameter: float, pieces: int = 1) -> float:
        each_s = (groups.seconds(kind, count * bytes_per_parameter / pieces) for count, groups in divided)
        return pieces * sum(each_s)

    gradient, weight = policy.gradient_bytes, policy.weight_bytes
    if policy.zero_stage == 0:
        return StageSynchronisation(0.0, 0.0, seconds(CollectiveKind.ALL_REDUCE, gradient), 0.0)
    scatter = seconds(CollectiveKind.REDUCE_SCATTER, gradient, layers if policy.zero_stage == 3 else 1)
    if policy.zero_stage == 3:
        return StageSynchronisation(seconds(CollectiveKind.ALL_GATHER, weight, layers), scatter, 0.0, 0.0)
    gather = seconds(CollectiveKind.ALL_GATHER, weight)
    if policy.zero_stage == 2:
        return StageSynchronisation(0.0, scatter, 0.0, gather)
    return StageSynchronisation(0.0, 0.0, scatter, gather)


def tied_synchronisation_s(tied_parameters: float, plan: TrainingPlan, policy: TrainingPolicy, cluster: Cluster) -> float:
    """All-reduce of the gradients that the first and the last stage share (tied embeddings); 0 on one stage."""
    if plan.pp == 1 or not tied_parameters:
        return 0.0
    stride = (plan.pp - 1) * plan.stage_stride
    return collective_s(CollectiveKind.ALL_REDUCE, tied_parameters * policy.gradient_bytes, 2, stride, cluster)


def exposed_s(communication_s: float, computation_s: float, layers: int) -> float:
    """What of a stage's ``communication_s`` is left over when it runs beside ``computation_s``, both layer by layer.

    The communication of a layer can only hide behind the computation of another one, so one layer's share always shows.
    """
    return max(communication_s - computation_s * (layers - 1) / layers, communication_s / layers)
