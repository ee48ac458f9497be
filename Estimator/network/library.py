"""Collectives as a communication library runs them on several tiers: pipelined rings and trees, two protocols.

The model of NCCL behind ``perlmutter.yaml``, whose constants ``Estimator.network.calibration`` fits. A group of n devices, g of
which share a block of the inner tiers (a node), runs as many rings as it has ports, each with its part of the tensor:

* **Steps.** A part of the tensor goes n-1 hops around the ring. Each costs its tier's latency, so the fixed time of an
  all-gather grows with the number of devices; an all-reduce takes them twice. A ring that leaves a node has fewer channels
  than one that stays, so that its steps inside take longer too.
* **Bytes.** The hops of all parts overlap, so the tier on which the ring is the slowest sets the time of a byte: there
  ``(n-1)/n`` of the tensor passes through the ports of the g members of a block. Where hops over a tier follow one another
  directly (1/g of them do) they stall each other. Each device also copies its own part.
* **Tree.** An all-reduce up and down the double binary tree of Sanders, Speck & Träff (2009), as NCCL 2.4 has it: a chain in the
  innermost blocks, then ``ceil(log2)`` levels of two children each; every byte passes a port twice.
* **Protocols.** For short messages a step is cheaper and slower, and a tree is not pipelined.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from Estimator.network.algorithms import CollectiveLine, Crossing
from Estimator.network.cluster import CollectiveLibrary
from GraphExtractor.graph import CollectiveKind


@dataclass(frozen=True)
class _Stretch:
    """One tier of a route under one protocol; ``levels`` counts the steps of a tree over it, ``hops`` those of a ring."""

    hops: int
    levels: int
    start_s: float
    latency_s: float
    per_byte_s: float


def library_lines(
    kind: CollectiveKind, group_size: int, crossed: Sequence[Crossing], library: CollectiveLibrary
) -> tuple[CollectiveLine, ...]:
    """Algorithms and protocols of a collective over ``group_size`` devices, at least 2."""
    rounds = 2 if kind is CollectiveKind.ALL_REDUCE else 1
    passing = rounds * (group_size - 1) / group_size
    copy_s = _copy_s(kind, group_size, crossed[0], library)
    route = _long(crossed)
    slowest_s = max(stretch.per_byte_s for stretch in route)
    lines = [CollectiveLine("ring", _start_s(route) + rounds * _ring_s(route), passing * slowest_s + copy_s)]
    tree = kind is CollectiveKind.ALL_REDUCE and len(crossed) > 1
    if tree:
        per_byte_s = rounds * slowest_s / library.tree_efficiency + copy_s
        lines.append(CollectiveLine("tree", _start_s(route) + rounds * _tree_s(route), per_byte_s))
    route = _short(crossed)
    if route:
        slowest_s = max(stretch.per_byte_s for stretch in route)
        lines.append(CollectiveLine("short ring", _start_s(route) + rounds * _ring_s(route), passing * slowest_s))
        if tree:
            per_byte_s = rounds * sum(stretch.levels * stretch.per_byte_s for stretch in route)
            lines.append(CollectiveLine("short tree", _start_s(route) + rounds * _tree_s(route), per_byte_s))
    return tuple(lines)


def _copy_s(kind: CollectiveKind, group_size: int, innermost: Crossing, library: CollectiveLibrary) -> float:
    """Seconds per byte of the tensor for copying a device's own part; hidden behind the network where each block holds one."""
    if not innermost.hops:
        return 0.0
    copies = 2 if kind is CollectiveKind.ALL_GATHER else 1
    return copies * library.copy_share / group_size / innermost.device_bytes_per_s


def _long(crossed: Sequence[Crossing]) -> list[_Stretch]:
    return [
        _Stretch(
            hops=each.hops,
            levels=_levels(each, each is crossed[0]),
            start_s=each.tier.start_s,
            latency_s=each.tier.latency_s + (0.0 if each is crossed[-1] else crossed[-1].tier.inner_latency_s),
            per_byte_s=(1 + each.tier.relay_stall / each.ports) / (each.ports * each.device_bytes_per_s),
        )
        for each in crossed
        if each.hops
    ]


def _short(crossed: Sequence[Crossing]) -> list[_Stretch]:
    """As ``_long``, in the protocol for short messages; empty where a tier has none."""
    route = []
    for each in crossed:
        short, tier = each.tier.short, each.tier
        if each.hops and short is None:
            return []
        if each.hops and short is not None:
            bandwidth = each.device_bytes_per_s / tier.efficiency * short.efficiency
            levels = _levels(each, each is crossed[0])
            route.append(_Stretch(each.hops, levels, short.start_s, short.latency_s, 1 / (each.ports * bandwidth)))
    return route


def _levels(crossing: Crossing, innermost: bool) -> int:
    """Steps from the leaves of a tree to its root: a chain in the innermost blocks, else levels of two children each."""
    width = -(-crossing.together // crossing.inside)
    return width - 1 if innermost else 2 * math.ceil(math.log2(width))


def _start_s(route: Sequence[_Stretch]) -> float:
    return max(stretch.start_s for stretch in route)


def _ring_s(route: Sequence[_Stretch]) -> float:
    return sum(stretch.hops * stretch.latency_s for stretch in route)


def _tree_s(route: Sequence[_Stretch]) -> float:
    return sum(stretch.levels * stretch.latency_s for stretch in route)
