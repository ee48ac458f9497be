"""Seconds of collectives and transfers on a cluster of tiers (pure functions).

A group of n devices, one every ``stride`` devices, exchanging a tensor of S bytes (the whole, unsharded one) at bandwidth B per
device and direction and latency L per step (Thakur, Rabenseifner & Gropp 2005; NCCL's ring and tree):

* ring reduce-scatter or all-gather: ``(n-1)/n S/B + (n-1) L``;  * tree reduce or broadcast: ``S/B + ceil(log2 n) L``;
* all-reduce is twice either of them: reduce-scatter and all-gather, or reduce and broadcast.

A group that spans tiers runs the ring on each tier in turn, on what the inner tiers left of the tensor, where it fills whole
inner groups; the flat algorithms at the speed of the slowest tier are always allowed too. The fastest is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from Common.errors import InputError
from Estimator.accelerator import Cluster, Tier
from GraphExtractor.graph import CollectiveKind


def collective_s(kind: CollectiveKind, payload_bytes: float, group_size: int, stride: int, cluster: Cluster) -> float:
    """Seconds of a collective over ``group_size`` devices that lie ``stride`` apart.

    Raises:
        InputError: the group does not fit on the cluster.
    """
    if group_size < 1 or stride < 1 or (group_size - 1) * stride >= cluster.num_devices:
        raise InputError(
            f"{group_size} devices, {stride} apart, do not fit on the {cluster.num_devices} of cluster {cluster.name}; "
            "choose smaller degrees or a larger cluster"
        )
    if group_size == 1 or payload_bytes == 0:
        return 0.0
    members = _members_per_tier(group_size, stride, cluster)
    slowest = [tier for tier, inside in zip(cluster.tiers, [1, *members], strict=False) if inside < group_size]
    half = min(
        _ring_s(payload_bytes, group_size, slowest),
        _tree_s(payload_bytes, group_size, slowest),
        _hierarchical_s(payload_bytes, members, cluster.tiers),
    )
    return 2 * half if kind is CollectiveKind.ALL_REDUCE else half


def _members_per_tier(group_size: int, stride: int, cluster: Cluster) -> list[int]:
    """How many members of the group share a block of each tier (for groups aligned to the blocks)."""
    return [min(group_size, max(1, tier.group_size // stride)) for tier in cluster.tiers]


def _ring_s(payload_bytes: float, group_size: int, tiers: Sequence[Tier]) -> float:
    bandwidth, latency = _worst(tiers)
    return (group_size - 1) / group_size * payload_bytes / bandwidth + (group_size - 1) * latency


def _tree_s(payload_bytes: float, group_size: int, tiers: Sequence[Tier]) -> float:
    bandwidth, latency = _worst(tiers)
    return payload_bytes / bandwidth + math.ceil(math.log2(group_size)) * latency


def _hierarchical_s(payload_bytes: float, members: list[int], tiers: Sequence[Tier]) -> float:
    """Rings tier by tier; infinite where the group does not fill whole inner groups."""
    seconds, inside, left = 0.0, 1, payload_bytes
    for tier, together in zip(tiers, members, strict=True):
        if together % inside:
            return math.inf
        width = together // inside
        seconds += (width - 1) / width * left / tier.bandwidth_bytes_per_s + (width - 1) * tier.latency_s
        inside, left = together, left / width
    return seconds


def _worst(tiers: Sequence[Tier]) -> tuple[float, float]:
    """Lowest bandwidth and highest latency of the tiers crossed."""
    return min(tier.bandwidth_bytes_per_s for tier in tiers), max(tier.latency_s for tier in tiers)


def tier_between(first_device: int, second_device: int, cluster: Cluster) -> Tier:
    """The innermost tier that joins two devices (numbered 0 .. num_devices-1, groups are consecutive).

    Raises:
        InputError: a device is not on the cluster.
    """
    if not (0 <= first_device < cluster.num_devices and 0 <= second_device < cluster.num_devices):
        raise InputError(f"devices {first_device} and {second_device}: {cluster.name} has devices 0 to {cluster.num_devices - 1}")
    for tier in cluster.tiers:
        if first_device // tier.group_size == second_device // tier.group_size:
            return tier
    return cluster.tiers[-1]


def transfer_s(payload_bytes: float, tier: Tier) -> float:
    """Seconds to send ``payload_bytes`` to another device over one tier."""
    return tier.latency_s + payload_bytes / tier.bandwidth_bytes_per_s if payload_bytes else 0.0


def p2p_s(payload_bytes: float, first_device: int, second_device: int, cluster: Cluster) -> float:
    """Seconds to send ``payload_bytes`` from one device to another; 0 to itself.

    Raises:
        InputError: a device is not on the cluster.
    """
    if first_device == second_device:
        return 0.0
    return transfer_s(payload_bytes, tier_between(first_device, second_device, cluster))


def wire_bytes(kind: CollectiveKind, payload_bytes: float, group_size: int) -> float:
    """Bytes each device sends in a bandwidth-optimal collective: ``(n-1)/n S``, twice that for an all-reduce."""
    half = (group_size - 1) / group_size * payload_bytes
    return 2 * half if kind is CollectiveKind.ALL_REDUCE else half
