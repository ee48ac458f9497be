"""Which tier of the network the messages of a plan cross, and what a message costs there.

Tensor-parallel groups are innermost; then either the replicas of a stage or the stages of a pipeline are neighbours. Devices
are numbered in that order, the d-th device of the cluster belongs to group ``d // group_size`` of every tier, and a message
is priced by the innermost tier that holds both its ends. Where replicas differ, the slowest one sets the price.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from Common.errors import InputError
from Estimator.network.cluster import Cluster
from Estimator.network.collectives import collective_costs_of
from GraphExtractor.graph import CollectiveKind
from Solver.placement.problem import FloatArray, GroupOrder, IntArray


@dataclass(frozen=True, eq=False)
class CollectivePrice:
    """Seconds of a reduce-scatter or all-gather by one algorithm, for each byte of the whole tensor and besides; any shape."""

    per_byte_s: FloatArray
    fixed_s: FloatArray


@dataclass(frozen=True, eq=False)
class Network:
    """A cluster's links: seconds per byte and per message of every tier, shape (tiers,), innermost first.

    A message through an outer tier also passes the inner ones, so an outer tier is never faster than those within it.
    """

    cluster: Cluster
    group_sizes: IntArray
    seconds_per_byte: FloatArray
    latency_s: FloatArray

    @staticmethod
    def of(cluster: Cluster) -> Network:
        """Network of ``cluster``.

        Raises:
            InputError: the tiers do not grow outwards or the last one does not span the cluster.
        """
        sizes = np.array([tier.group_size for tier in cluster.tiers], dtype=np.int64)
        if not len(sizes) or np.any(np.diff(sizes) <= 0) or sizes[-1] < cluster.num_devices:
            raise InputError(
                f"cluster {cluster.name} has tiers of {sizes.tolist()} devices; group sizes must grow outwards "
                f"and the last tier must hold all {cluster.num_devices} devices; correct the cluster file"
            )
        return Network(
            cluster,
            sizes,
            np.maximum.accumulate([1.0 / tier.pair_bytes_per_s for tier in cluster.tiers]),
            np.maximum.accumulate([tier.latency_s for tier in cluster.tiers]),
        )

    @property
    def orders(self) -> tuple[GroupOrder, ...]:
        """Group orders worth searching: one where all links are equal."""
        return (GroupOrder.DATA_INNER,) if len(self.group_sizes) == 1 else tuple(GroupOrder)

    def boundary_tiers(self, order: GroupOrder, tp: int, pp: int, dp: IntArray) -> IntArray:
        """Tier of every stage-to-stage link, first boundary first, for each candidate ``dp``: shape (len(dp), pp - 1)."""
        tiers = np.zeros((len(dp), pp - 1), dtype=np.int64)
        stage = np.arange(pp - 1)
        for inner, size in enumerate(self.group_sizes[:-1]):
            if (
                order is GroupOrder.DATA_INNER
            ):  # stages are blocks of tp·dp devices, each sends to the same place in the next block
                block = tp * dp[:, None]
                crossing = _boundary_between(stage * block, (stage + 2) * block - 1, size)
            else:  # the crossings of a replica repeat after at most ``size`` replicas
                replica = np.arange(min(int(dp.max()), int(size)))[:, None]
                first = (replica * pp + stage) * tp
                seen = np.logical_or.accumulate(_boundary_between(first, first + 2 * tp - 1, size), axis=0)
                crossing = seen[np.minimum(dp, len(replica)) - 1]
            tiers[crossing] = inner + 1
        return tiers

    def data_tiers(self, order: GroupOrder, tp: int, pp: int, dp: IntArray) -> IntArray:
        """Tier spanned by the data-parallel groups, shape (len(dp),)."""
        tiers = np.zeros(len(dp), dtype=np.int64)
        for inner, size in enumerate(self.group_sizes[:-1]):
            if order is GroupOrder.DATA_INNER:
                block = tp * dp[:, None]
                stage = np.arange(pp)
                crossing = _boundary_between(stage * block, (stage + 1) * block - 1, size).any(axis=1)
            else:
                crossing = dp * pp * tp > size
            tiers[crossing & (dp > 1)] = inner + 1
        return tiers

    def data_collectives(self, order: GroupOrder, tp: int, pp: int, dp: IntArray) -> tuple[CollectivePrice, ...]:
        """Algorithms for a reduce-scatter or all-gather over the data-parallel groups: ring, tree, and rings tier by tier.

        The formulas are those of ``collective_s``, which takes the fastest for one size. Shape (len(dp),).
        Tier by tier needs groups that fill whole groups of the inner tiers; where they do not, its entry is the tree's.
        A cluster with a communication library has that library's algorithms.
        """
        if self.cluster.library is not None:
            return self._library_collectives(order, tp, pp, dp)
        tier = self.data_tiers(order, tp, pp, dp)
        per_byte_s, latency_s = self.seconds_per_byte[tier], self.latency_s[tier]
        ring = CollectivePrice((dp - 1) / dp * per_byte_s, (dp - 1) * latency_s)
        tree = CollectivePrice(np.where(dp > 1, per_byte_s, 0.0), np.ceil(np.log2(dp)) * latency_s)
        if len(self.group_sizes) == 1:
            return ring, tree
        stride = tp if order is GroupOrder.DATA_INNER else tp * pp
        block = tp * dp if order is GroupOrder.DATA_INNER else np.full_like(dp, stride)
        inside, seconds, latency, possible = np.ones_like(dp), np.zeros(len(dp)), np.zeros(len(dp)), np.full(len(dp), True)
        for level, size in enumerate(self.group_sizes):
            together = np.minimum(dp, max(1, size // stride))
            whole = (together % inside == 0) & ((size % stride == 0) | (together == 1) | (together == dp))
            aligned = (block % size == 0) | (size % block == 0) | (level == len(self.group_sizes) - 1)
            width = together / inside
            possible &= whole & aligned
            seconds += (width - 1) / together * self.seconds_per_byte[level]
            latency += (width - 1) * self.latency_s[level]
            inside = together
        by_tier = CollectivePrice(np.where(possible, seconds, tree.per_byte_s), np.where(possible, latency, tree.fixed_s))
        return ring, tree, by_tier

    def _library_collectives(self, order: GroupOrder, tp: int, pp: int, dp: IntArray) -> tuple[CollectivePrice, ...]:
        """The library's reduce-scatters for each candidate ``dp``; the ring stands in for an algorithm that one cannot use."""
        stride = tp if order is GroupOrder.DATA_INNER else tp * pp
        costs = collective_costs_of(CollectiveKind.REDUCE_SCATTER, dp, np.full_like(dp, stride), self.cluster)
        usable = np.isfinite(costs.fixed_s)
        fixed_s, per_byte_s = (np.where(usable, each, each[0]) for each in (costs.fixed_s, costs.per_byte_s))
        return tuple(CollectivePrice(*price) for price in zip(per_byte_s, fixed_s, strict=True))

    def end_tiers(self, order: GroupOrder, tp: int, pp: int, dp: IntArray) -> IntArray:
        """Tier between the first and the last stage of a pipeline, shape (len(dp),)."""
        tiers = np.zeros(len(dp), dtype=np.int64)
        for inner, size in enumerate(self.group_sizes[:-1]):
            if order is GroupOrder.DATA_INNER:
                crossing = dp * pp * tp > size
            else:
                replica = np.arange(min(int(dp.max()), int(size)))
                seen = np.logical_or.accumulate(_boundary_between(replica * pp * tp, (replica + 1) * pp * tp - 1, size))
                crossing = seen[np.minimum(dp, len(replica)) - 1]
            tiers[crossing] = inner + 1
        return tiers


def _boundary_between(first: IntArray, last: IntArray, size: int) -> NDArray[np.bool_]:
    """Whether devices ``first`` and ``last`` lie in different groups of ``size``."""
    crossing: NDArray[np.bool_] = last // size > first // size
    return crossing
