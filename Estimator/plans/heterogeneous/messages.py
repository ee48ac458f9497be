"""Messages between stages that differ: rows are sliced anew where the next stage has another number
of replicas."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from Estimator.network.cluster import Cluster
from Estimator.network.collectives import collective_s
from Estimator.network.links import transfer_costs
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import GroupNetwork, layer_groups
from Estimator.plans.heterogeneous.placed_stage import PlacedStage
from GraphExtractor.graph import CollectiveKind
from phaze_common.choices import TensorLayout


@dataclass(frozen=True)
class MeshBoundary:
    """How the device mesh of a stage holds what crosses a boundary of it.

    Each device has ``parts`` of a micro-batch of all replicas: the more, the smaller. Without
    sequence parallelism the devices of a tensor-parallel group all hold the same; ``tensor`` of
    them could share it out.
    """

    devices: int
    parts: int
    tensor: int

    @staticmethod
    def of(degrees: UniformPlan) -> MeshBoundary:
        """That of a stage trained so."""
        tp, shared = degrees.tp, degrees.dp * degrees.sequence_devices
        if scattered(degrees):
            return MeshBoundary(degrees.devices, shared * tp, 1)
        return MeshBoundary(degrees.devices, shared, tp)


def scattered(degrees: UniformPlan) -> bool:
    """Whether tensor-parallel devices hold different parts of what crosses a boundary."""
    return degrees.tp > 1 and (degrees.sequence_parallel or degrees.layout is TensorLayout.TWO_D)


def whole_rows_bytes(degrees: UniformPlan, crossing_bytes: float) -> float:
    """Bytes of a micro-batch of all replicas, of which a device has ``crossing_bytes``."""
    return crossing_bytes * MeshBoundary.of(degrees).parts


def sent_bytes(
    source: MeshBoundary, target: MeshBoundary, rows_bytes: float, *, share: int = 1
) -> float:
    """Bytes that a link carries, the busiest of both sides', where each target device needs
    1/``share`` of its part.

    The devices of ``source`` send, all as much as each other, what all those of ``target`` need
    together.
    """
    message_bytes = rows_bytes / target.parts / share
    return max(message_bytes, message_bytes * target.devices / source.devices)


def message_s(
    source: PlacedStage, target: PlacedStage, rows_bytes: float, cluster: Cluster
) -> float:
    """Seconds of ``rows_bytes``, those of a micro-batch on all replicas, from one stage to another.

    As a whole, or scattered over the target's tensor-parallel group and gathered there, whichever
    is faster (Narayanan et al. 2021, section 4.1). Both stages' devices are within one block of the
    tier that is crossed. Between stages alike this is ``Messages.seconds``.
    """
    if not rows_bytes:
        return 0.0
    first = min(source.first_device, target.first_device)
    last = max(source.end_device, target.end_device) - 1
    tier = tier_between(first, last, cluster)
    tier_s = transfer_costs(cluster)
    ours, theirs = MeshBoundary.of(source.degrees), MeshBoundary.of(target.degrees)

    def seconds(payload_bytes: float) -> float:
        return float(tier_s.seconds(np.array([payload_bytes]), np.array([tier], np.int8))[0])

    whole_s = seconds(sent_bytes(ours, theirs, rows_bytes))
    if theirs.tensor == 1:
        return whole_s
    tensor = GroupNetwork(
        layer_groups(target.degrees, cluster, target.first_device).tensor, cluster
    )
    gather_s = tensor.seconds(CollectiveKind.ALL_GATHER, rows_bytes / theirs.parts)
    return min(
        whole_s, seconds(sent_bytes(ours, theirs, rows_bytes, share=theirs.tensor)) + gather_s
    )


def tier_between(first: int, last: int, cluster: Cluster) -> int:
    """The innermost tier with a block that holds the devices ``first`` and ``last``."""
    for number, tier in enumerate(cluster.tiers[:-1]):
        if first // tier.group_size == last // tier.group_size:
            return number
    return len(cluster.tiers) - 1


def tied_s(stages: tuple[PlacedStage, ...], payload_bytes: float, cluster: Cluster) -> float:
    """All-reduce of gradients that both ends of the pipeline share, device by device."""
    if len(stages) == 1 or not payload_bytes:
        return 0.0
    stride = stages[-1].first_device - stages[0].first_device
    return collective_s(CollectiveKind.ALL_REDUCE, payload_bytes, 2, stride, cluster)
