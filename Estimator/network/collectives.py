"""Seconds of collectives on a cluster of tiers, for one group or many at once (pure functions).

A group of n devices, one every ``stride`` devices, exchanges a tensor of S bytes (the whole,
unsharded one). An algorithm costs a fixed time plus a time for every byte (``AlgorithmCost``); a
collective costs what its fastest algorithm does. The formulas are in
``Estimator.network.textbook``, for clusters that state a library in ``Estimator.network.library``,
and for all-to-alls, whose S is what one device holds, in ``Estimator.network.exchange``.
"""

import math
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from Estimator.network.cluster import Cluster
from Estimator.network.costs import AlgorithmCost, AlgorithmCosts, CollectiveCosts
from Estimator.network.crossings import Crossings, crossings, rectangle_crossings
from Estimator.network.dispatchers import PerNode, per_node_costs
from Estimator.network.exchange import library_exchange_costs, textbook_exchange_costs
from Estimator.network.library import library_costs
from Estimator.network.textbook import textbook_costs
from GraphExtractor.graph import CollectiveKind
from phaze_common.array_types import IntArray
from phaze_common.errors import InputError


def collective_s(
    kind: CollectiveKind,
    payload_bytes: float,
    group_size: int,
    stride: int,
    cluster: Cluster,
    first: int = 0,
) -> float:
    """Seconds of a collective over ``group_size`` devices that lie ``stride`` apart, starting at
    device ``first``.

    Raises:
        InputError: the group does not fit on the cluster.
    """
    costs = collective_costs(kind, group_size, stride, cluster, first)
    return min(cost.seconds(payload_bytes) for cost in costs) if payload_bytes else 0.0


@lru_cache(maxsize=4096)  # layers ask for the same few groups again and again
def collective_costs(
    kind: CollectiveKind,
    group_size: int,
    stride: int,
    cluster: Cluster,
    first: int = 0,
    exchange: PerNode | None = None,
) -> tuple[AlgorithmCost, ...]:
    """The algorithms of a collective, of which the fastest for its size is used; one that costs
    nothing for a single device.

    An all-to-all may be an ``exchange`` of routed tokens.

    Raises:
        InputError: the group does not fit on the cluster.
    """
    costs = collective_costs_of(
        kind, np.array([group_size]), np.array([stride]), cluster, np.array([first]), exchange
    )
    return (AlgorithmCost("none", 0.0, 0.0),) if group_size == 1 else costs.of_group(0)


def collective_costs_of(
    kind: CollectiveKind,
    group_sizes: IntArray,
    strides: IntArray,
    cluster: Cluster,
    first: IntArray | None = None,
    exchange: PerNode | None = None,
) -> CollectiveCosts:
    """The algorithms of a collective over N groups; group n has ``group_sizes[n]`` devices that lie
    ``strides[n]`` apart.

    All arrays have shape (N,). Groups start at the devices ``first``, or at device 0. Those that
    start where blocks of all inner tiers start take closed forms; the members of others are counted
    one by one.

    Raises:
        InputError: a group does not fit on the cluster.
    """
    starts = np.zeros_like(group_sizes) if first is None else first
    last = starts + (group_sizes - 1) * strides
    outside = (group_sizes < 1) | (strides < 1) | (starts < 0) | (last >= cluster.num_devices)
    if outside.any():
        worst = int(np.argmax(outside))
        raise InputError(
            f"{group_sizes[worst]} devices, {strides[worst]} apart, do not fit on the "
            f"{cluster.num_devices} of cluster "
            f"{cluster.name}; choose smaller degrees or a larger cluster"
        )
    # two devices stand in for one, which the formulas do not know
    crossed = crossings(np.maximum(group_sizes, 2), strides, cluster, starts)
    return CollectiveCosts.of(_algorithms(kind, crossed, cluster, exchange), group_sizes == 1)


def rectangle_costs_of(
    kind: CollectiveKind, parts: IntArray, cluster: Cluster, exchange: PerNode | None = None
) -> CollectiveCosts:
    """The algorithms of a collective over N groups that lie evenly in the blocks of every tier;
    ``parts`` has shape (tiers, N).

    Group n has ``parts[t, n]`` blocks (devices, on the innermost tier) of tier t - 1 in each block
    of tier t that it is in.
    """
    alone = parts.prod(axis=0) == 1
    # stand in for one, as above
    two = np.where(alone & (np.arange(len(parts))[:, None] == 0), 2, parts)
    crossed = rectangle_crossings(two, cluster)
    return CollectiveCosts.of(_algorithms(kind, crossed, cluster, exchange), alone)


@lru_cache(maxsize=4096)
def rectangle_costs(
    kind: CollectiveKind,
    parts: tuple[int, ...],
    cluster: Cluster,
    exchange: PerNode | None = None,
) -> tuple[AlgorithmCost, ...]:
    """The algorithms of a collective over one such group, of which the fastest for its size is
    used."""
    if math.prod(parts) == 1:
        return (AlgorithmCost("none", 0.0, 0.0),)
    found = rectangle_costs_of(kind, np.array(parts, np.int64)[:, None], cluster, exchange)
    return found.of_group(0)


def _algorithms(
    kind: CollectiveKind, crossed: Crossings, cluster: Cluster, exchange: PerNode | None
) -> list[AlgorithmCosts]:
    if exchange is not None:
        return per_node_costs(crossed, exchange)
    if cluster.library is None:
        if kind is CollectiveKind.ALL_TO_ALL:
            return textbook_exchange_costs(crossed)
        return textbook_costs(kind, crossed)
    if kind is CollectiveKind.ALL_TO_ALL:
        return library_exchange_costs(crossed)
    return library_costs(kind, crossed, cluster.library)


def distinct_starts(stride: int, cluster: Cluster, starts: Iterable[int]) -> set[int]:
    """Of ``starts`` of groups of devices ``stride`` apart one for those that lie alike in all inner
    blocks, as blocks repeat."""
    period = cluster.period
    step = stride if period % stride == 0 else 1  # within a stride, all starts see the same blocks
    return {start % period // step * step for start in starts}


def wire_bytes(kind: CollectiveKind, payload_bytes: float, group_size: int) -> float:
    """Bytes each device sends in a bandwidth-optimal collective or all-to-all: ``(n-1)/n S``, twice
    that for an all-reduce."""
    half = (group_size - 1) / group_size * payload_bytes
    return 2 * half if kind is CollectiveKind.ALL_REDUCE else half
