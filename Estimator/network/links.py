"""Messages between two devices: the tiers they cross, and what they cost there.

Devices are numbered 0 .. num_devices-1, and the blocks of a tier are consecutive devices. A message
crosses the innermost tier that joins its two ends. Blocks of inner tiers nest in those of outer
ones.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from Estimator.network.cluster import Cluster, Topology
from phaze_common.array_types import BoolArray, FloatArray, IntArray

TierArray = NDArray[np.int8]  # positions of tiers in a cluster; plans times boundaries are many


@dataclass(frozen=True, eq=False)
class TransferCosts:
    """Seconds of a message over each route of a cluster: fixed, and for every byte; shape
    (routes,).

    Routes are the tiers, innermost first, and behind them its tiers of rails again, for messages to
    another rail. A message over an outer tier also passes the inner ones, so an outer tier is never
    faster than those within it; one that changes rails goes to a device of its own block first, and
    waits for both (PXN of NCCL 2.12).
    """

    latency_s: FloatArray
    per_byte_s: FloatArray

    def seconds(self, payload_bytes: FloatArray | float, tiers: TierArray | int) -> FloatArray:
        """Seconds of messages of ``payload_bytes`` over ``tiers``, which broadcast; 0 where nothing
        is sent."""
        return np.where(
            payload_bytes, self.latency_s[tiers] + self.per_byte_s[tiers] * payload_bytes, 0.0
        )


@dataclass(frozen=True, eq=False)
class PipelineLayouts:
    """Where the pipelines of N plans lie; all arrays have shape (N,).

    The device of rank m of ``group_widths`` neighbours, stage s of ``pp`` and replica r of ``dp``
    is ``m + s * stage_strides + r * replica_strides``; stages are at least ``group_widths`` apart.
    """

    group_widths: IntArray
    stage_strides: IntArray
    replica_strides: IntArray
    pp: IntArray
    dp: IntArray


def transfer_costs(cluster: Cluster) -> TransferCosts:
    """What messages between two devices cost over the tiers of ``cluster``."""
    latency_s = np.array([tier.latency_s for tier in cluster.tiers])
    per_byte_s = np.array([1.0 / tier.pair_bytes_per_s for tier in cluster.tiers])
    latency_s, per_byte_s = np.maximum.accumulate(latency_s), np.maximum.accumulate(per_byte_s)
    rails = np.array(_rails(cluster), dtype=np.int64)
    return TransferCosts(
        np.concatenate([latency_s, latency_s[rails] + latency_s[rails - 1]]),
        np.concatenate([per_byte_s, per_byte_s[rails]]),
    )


def routes(cluster: Cluster) -> int:
    """How many there are for messages on ``cluster``."""
    return len(cluster.tiers) + len(_rails(cluster))


def _rails(cluster: Cluster) -> list[int]:
    """Places of the tiers of rails."""
    return [place for place, tier in enumerate(cluster.tiers) if tier.topology is Topology.RAIL]


def _changing_rails(
    tiers: TierArray, stays: Callable[[int], BoolArray], cluster: Cluster
) -> TierArray:
    """``tiers`` (N, boundaries) with routes to other rails for messages that do not stay on theirs.

    ``stays`` says of the place of a tier of rails which of the N keep to one rail there, (N,).
    """
    for number, place in enumerate(_rails(cluster)):
        leaves = (tiers == place) & ~stays(place)[:, None]
        tiers = np.where(leaves, np.int8(len(cluster.tiers) + number), tiers)
    return tiers


def boundary_tiers(layouts: PipelineLayouts, cluster: Cluster) -> TierArray:
    """Route of the messages over every stage boundary, for the slowest replica; shape (N, largest
    pp - 1).

    Column s is the boundary between the stages s and s + 1; columns from a plan's pp - 1 on are 0.
    """
    boundaries = np.arange(max(int(layouts.pp.max(initial=1)) - 1, 0))
    tiers = _slowest_tiers(layouts, layouts.stage_strides, len(boundaries), cluster)
    tiers *= boundaries < layouts.pp[:, None] - 1
    return tiers


def end_tiers(layouts: PipelineLayouts, cluster: Cluster) -> TierArray:
    """Route of the messages between the first and the last stage, for the slowest replica; shape
    (N,), 0 with one stage."""
    distances = (layouts.pp - 1) * layouts.stage_strides
    return np.where(
        layouts.pp > 1, _slowest_tiers(layouts, distances, 1, cluster)[:, 0], np.int8(0)
    )


def carried_tiers(parts: IntArray, cluster: Cluster | None = None) -> TierArray:
    """``boundary_tiers`` of N pipelines that have ``parts`` (tiers, N) stages in each block of
    every tier.

    Stages that follow one another are as near as can be: the next one is in another block of a tier
    when that of the last is full, and on its rail where a block has one stage. ``cluster`` is
    needed where it has rails.
    """
    together = np.cumprod(parts, axis=0)
    pp = together[-1]
    stages_before = np.arange(1, max(int(pp.max(initial=1)), 1))
    tiers = np.zeros((len(pp), len(stages_before)), dtype=np.int8)
    for full in together[:-1]:
        tiers += stages_before % full[:, None] == 0
    tiers *= stages_before < pp[:, None]
    if cluster is None:
        return tiers
    return _changing_rails(tiers, lambda place: together[place - 1] == 1, cluster)


def outermost_routes(parts: IntArray, cluster: Cluster) -> TierArray:
    """``end_tiers`` of the same, shape (N,)."""
    together = np.cumprod(parts, axis=0)
    return _changing_rails(
        outermost_tiers(parts)[:, None], lambda place: together[place - 1] == 1, cluster
    )[:, 0]


def outermost_tiers(parts: IntArray) -> TierArray:
    """The tier that joins the ends of the same, shape (N,)."""
    several = parts > 1
    last: TierArray = (len(parts) - 1 - np.argmax(several[::-1], axis=0)).astype(np.int8)
    return np.where(several.any(axis=0), last, np.int8(0))


def _slowest_tiers(
    layouts: PipelineLayouts, distances: IntArray, boundaries: int, cluster: Cluster
) -> TierArray:
    """Routes of messages over ``distances`` devices (N,) from stages as far apart, the first at
    device 0; (N, boundaries)."""
    tiers = np.zeros((len(distances), boundaries), dtype=np.int8)
    for tier in cluster.tiers[:-1]:
        tiers += _leaving(layouts, distances, boundaries, tier.group_size)
    return _changing_rails(
        tiers, lambda place: distances % cluster.block_sizes[place] == 0, cluster
    )


def _leaving(
    layouts: PipelineLayouts, distances: IntArray, boundaries: int, block: int
) -> BoolArray:
    """Whether a replica has a message from a block of ``block`` devices to another; shape (N,
    boundaries).

    Of neighbouring devices that all send over one distance, one leaves its block if the first
    sender and the last receiver lie in different blocks; replicas that are neighbours count as one.
    Other replicas are gone through, as many as lie differently in their blocks, once for all plans
    in which they do.
    """
    adjacent = (layouts.replica_strides == layouts.group_widths) | (layouts.dp == 1)
    # devices from first sender to last receiver
    reach = np.where(adjacent, layouts.dp, 1) * layouts.group_widths + distances
    inside = np.flatnonzero(reach <= block)  # messages of others leave in any case
    step = np.where(adjacent[inside], 0, layouts.replica_strides[inside] % block)
    replicas = np.minimum(layouts.dp[inside], block // np.gcd(step, block))

    place = np.ravel_multi_index((distances[inside], step, reach[inside] - 1), (block,) * 3)
    places, place_of = np.unique(place, return_inverse=True)
    distance, step, last = np.unravel_index(places, (block,) * 3)
    most = np.zeros(len(places), dtype=np.int64)
    np.maximum.at(most, place_of, replicas)
    # a row for plans all of whose messages leave; then for each place row r says what the first r +
    # 1 replicas do
    first_rows = 1 + np.cumsum(most) - most
    leaving = np.ones((1 + int(most.sum()), boundaries), dtype=np.bool_)
    senders = np.arange(boundaries) * distance[:, None]
    leaving[first_rows] = senders % block + last[:, None] >= block
    for several in np.flatnonzero(most > 1):
        rows = slice(first_rows[several], first_rows[several] + most[several])
        replica = np.arange(most[several])[:, None]
        leaves = (senders[several] + replica * step[several]) % block + last[several] >= block
        np.logical_or.accumulate(leaves, axis=0, out=leaving[rows])
    row_of = np.zeros(len(distances), dtype=np.int64)
    row_of[inside] = first_rows[place_of] + replicas - 1
    return leaving[row_of]
