"""Messages between pipeline stages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from Estimator.network.cluster import Cluster
from Estimator.network.collectives import collective_s
from Estimator.network.links import tiers_between, transfer_costs
from GraphExtractor.graph import CollectiveKind
from Plans.plan import TrainingPlan


@dataclass(frozen=True)
class Transfer:
    """Seconds of activations forward and gradients back over one boundary between chunks."""

    forward_s: float
    backward_s: float


def message_s(payload_bytes: float, source: int, target: int, plan: TrainingPlan, cluster: Cluster) -> float:
    """A message from stage ``source`` to ``target`` over the slowest link that a replica has between them.

    It goes as a whole, or scattered over the tensor-parallel group and gathered behind the link, whichever is faster (the
    scatter-gather optimisation of Narayanan et al. 2021, section 4.1); with sequence parallelism it is scattered already.
    """
    if source == target:
        return 0.0
    replicas = np.arange(min(plan.dp, cluster.period)) * plan.replica_stride
    places = replicas[:, None] + np.array([0, plan.tp * plan.cp - 1])
    tiers = tiers_between(source * plan.stage_stride + places, target * plan.stage_stride + places, cluster)
    slowest, costs = int(tiers.max()), transfer_costs(cluster)
    whole = float(costs.seconds(payload_bytes, slowest))
    if plan.tp == 1 or plan.sequence_parallel:
        return whole
    part = float(costs.seconds(payload_bytes / plan.tp, slowest))
    return min(whole, part + collective_s(CollectiveKind.ALL_GATHER, payload_bytes, plan.tp, 1, cluster))
