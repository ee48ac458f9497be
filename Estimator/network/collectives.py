"""Seconds of collectives and transfers on a cluster of tiers (pure functions).

A group of n devices, one every ``stride`` devices, exchanges a tensor of S bytes (the whole, unsharded one). An algorithm costs a
fixed time plus a time for every byte (``CollectiveLine``); a collective costs what its fastest algorithm does. With bandwidth B
per device and direction and latency L per step, the textbook has (Thakur, Rabenseifner & Gropp 2005)

* ring reduce-scatter or all-gather: ``(n-1)/n S/B + (n-1) L``;  * tree reduce or broadcast: ``S/B + ceil(log2 n) L``;
* all-reduce is twice either of them: reduce-scatter and all-gather, or reduce and broadcast.

A group that spans tiers runs the ring on each tier in turn, on what the inner tiers left of the tensor, where it fills whole
inner groups, and on all dimensions of a torus at once; the flat algorithms at the speed of the slowest tier are always allowed.
Clusters that state a library are priced by ``Estimator.network.library``. All-to-alls are in ``Estimator.network.exchange``;
their S is what one device holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from Common.errors import InputError
from Estimator.network.algorithms import CollectiveLine, Crossing, crossings
from Estimator.network.cluster import Cluster, Tier, Topology
from Estimator.network.exchange import library_exchange_lines, textbook_exchange_lines
from Estimator.network.library import library_lines
from GraphExtractor.graph import CollectiveKind, OperatorGraph


def collective_s(
    kind: CollectiveKind, payload_bytes: float, group_size: int, stride: int, cluster: Cluster, first: int = 0
) -> float:
    """Seconds of a collective over ``group_size`` devices that lie ``stride`` apart, starting at device ``first``.

    Raises:
        InputError: the group does not fit on the cluster.
    """
    lines = collective_lines(kind, group_size, stride, cluster, first)
    return min(line.seconds(payload_bytes) for line in lines) if payload_bytes else 0.0


def collective_lines(
    kind: CollectiveKind, group_size: int, stride: int, cluster: Cluster, first: int = 0
) -> tuple[CollectiveLine, ...]:
    """The algorithms of a collective, of which the fastest for its size is used; one that costs nothing for a single device.

    Raises:
        InputError: the group does not fit on the cluster.
    """
    if group_size < 1 or stride < 1 or first + (group_size - 1) * stride >= cluster.num_devices:
        raise InputError(
            f"{group_size} devices, {stride} apart, do not fit on the {cluster.num_devices} of cluster {cluster.name}; "
            "choose smaller degrees or a larger cluster"
        )
    if group_size == 1:
        return (CollectiveLine("none", 0.0, 0.0),)
    crossed = crossings(group_size, stride, cluster, first)
    if kind is CollectiveKind.ALL_TO_ALL:
        return (textbook_exchange_lines if cluster.library is None else library_exchange_lines)(group_size, crossed)
    if cluster.library is not None:
        return library_lines(kind, group_size, crossed, cluster.library)
    halves = _textbook_lines(group_size, crossed)
    return tuple(half.twice() for half in halves) if kind is CollectiveKind.ALL_REDUCE else halves


def _textbook_lines(group_size: int, crossed: Sequence[Crossing]) -> tuple[CollectiveLine, ...]:
    """Algorithms of a reduce-scatter or all-gather."""
    bandwidth = min(crossing.device_bytes_per_s for crossing in crossed)  # what crosses an outer tier passes the inner ones
    latency_s = max(crossing.tier.latency_s for crossing in crossed)
    start_s = max(crossing.tier.start_s for crossing in crossed)
    left = (group_size - 1) / group_size
    lines = [
        CollectiveLine("ring", start_s + (group_size - 1) * latency_s, left / bandwidth),
        CollectiveLine("tree", start_s + math.ceil(math.log2(group_size)) * latency_s, 1 / bandwidth),
    ]
    if all(crossing.together % crossing.inside == 0 for crossing in crossed):
        widths = [crossing.together // crossing.inside for crossing in crossed]
        steps_s = sum((width - 1) * crossing.tier.latency_s for width, crossing in zip(widths, crossed, strict=True))
        per_byte = sum(
            (width - 1) / crossing.together / crossing.device_bytes_per_s for width, crossing in zip(widths, crossed, strict=True)
        )
        lines.append(CollectiveLine("tier by tier", start_s + steps_s, per_byte))
        used = [crossing for crossing in crossed if crossing.hops]
        if all(crossing.tier.topology is Topology.TORUS for crossing in used):
            lines.append(CollectiveLine("torus", start_s + steps_s, left / sum(each.device_bytes_per_s for each in used)))
    return tuple(lines)


def innermost_collectives_s(graph: OperatorGraph, cluster: Cluster) -> NDArray[np.float64]:
    """Seconds of the collectives of ``graph``, in its order, each among neighbouring devices; shape (collectives,).

    This is where tensor-parallel groups lie. Where context- and expert-parallel groups lie depends on the plan.

    Raises:
        InputError: a group does not fit on the cluster.
    """
    found = (operator.collective for operator in graph.operators if operator.collective is not None)
    seconds = [collective_s(each.kind, each.payload_bytes, each.group_size, 1, cluster) for each in found]
    return np.array(seconds, dtype=np.float64)


def slowest_collective_s(
    kind: CollectiveKind, payload_bytes: float, group_size: int, stride: int, cluster: Cluster, starts: Iterable[int]
) -> float:
    """Seconds of the slowest of like groups that start at the devices ``starts``: all wait for it."""
    distinct = distinct_starts(stride, cluster, starts) if group_size > 1 else {0}
    return max(collective_s(kind, payload_bytes, group_size, stride, cluster, start) for start in distinct)


def distinct_starts(stride: int, cluster: Cluster, starts: Iterable[int]) -> set[int]:
    """Of ``starts`` of groups of devices ``stride`` apart one for those that lie alike in all inner blocks, as blocks repeat."""
    period = cluster.period
    step = stride if period % stride == 0 else 1  # within a stride, all starts see the same blocks
    return {start % period // step * step for start in starts}


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
    return tier.latency_s + payload_bytes / tier.pair_bytes_per_s if payload_bytes else 0.0


def p2p_s(payload_bytes: float, first_device: int, second_device: int, cluster: Cluster) -> float:
    """Seconds to send ``payload_bytes`` from one device to another; 0 to itself.

    Raises:
        InputError: a device is not on the cluster.
    """
    if first_device == second_device:
        return 0.0
    return transfer_s(payload_bytes, tier_between(first_device, second_device, cluster))


def wire_bytes(kind: CollectiveKind, payload_bytes: float, group_size: int) -> float:
    """Bytes each device sends in a bandwidth-optimal collective or all-to-all: ``(n-1)/n S``, twice that for an all-reduce."""
    half = (group_size - 1) / group_size * payload_bytes
    return 2 * half if kind is CollectiveKind.ALL_REDUCE else half
