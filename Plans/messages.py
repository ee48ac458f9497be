"""Messages between pipeline stages."""

from __future__ import annotations

from dataclasses import dataclass

from Estimator.network.cluster import Cluster
from Estimator.network.collectives import collective_s, tier_between, transfer_s
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
    replicas = [replica * plan.replica_stride for replica in range(min(plan.dp, cluster.period))]
    ends = [
        (source * plan.stage_stride + replica + member, target * plan.stage_stride + replica + member)
        for replica in replicas
        for member in {0, plan.tp * plan.cp - 1}
    ]
    tiers = [tier_between(first, second, cluster) for first, second in ends]
    whole = max(transfer_s(payload_bytes, tier) for tier in tiers)
    if plan.tp == 1 or plan.sequence_parallel:
        return whole
    part = max(transfer_s(payload_bytes / plan.tp, tier) for tier in tiers)
    return min(whole, part + collective_s(CollectiveKind.ALL_GATHER, payload_bytes, plan.tp, 1, cluster))
