"""Plans that need no look: more replicas only slow gradients and messages down where they save no micro-batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from Estimator.network.cluster import Cluster
from Estimator.network.collectives import collective_costs_of
from GraphExtractor.graph import CollectiveKind
from Plans.many_rates import UniformPlans, group_starts, replica_levels

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

MOST_ROUNDS = 4  # plans of a class that others are compared with: hardly any is closed by a later one


def undominated(plans: UniformPlans, cluster: Cluster) -> IntArray:
    """Places of the plans, ascending, that none with fewer replicas is at least as fast as on all chips of ``cluster``.

    Compared are plans alike but for the replicas, with as many micro-batches per pipeline, without ZeRO (which makes replicas
    save memory) and experts over devices: their stages take and hold the same, so one is dominated if its collectives and
    messages are nowhere faster. An all-reduce takes no less than along one of its groups, algorithm for algorithm, and no more
    than the slowest of the other plan's groups would with each. With sparse tables more replicas gather, hold and step through
    no fewer rows either; a gather takes half an all-reduce, of a payload that grows with the replicas.
    """
    kept = np.ones(len(plans), np.bool_)
    if plans.shape.ep == 1 and len(plans):
        alike = np.stack([plans.pp, plans.micro_batches, plans.interleave, plans.pipeline_inner, plans.overlap_gradients])
        key = np.ravel_multi_index(tuple(alike), tuple(alike.max(axis=1) + 1))
        rows = np.flatnonzero(plans.zero_stage == 0)
        rows = rows[np.lexsort((plans.dp[rows], key[rows]))]
        kept[rows] = _kept(plans.some(rows), key[rows], cluster)
    return np.flatnonzero(kept)


def _kept(plans: UniformPlans, key: IntArray, cluster: Cluster) -> BoolArray:
    """The same for plans sorted by class and replicas, shape (N,)."""
    far = plans.pipeline_inner | (plans.pp == 1) | (plans.layouts.stage_strides >= cluster.period)
    groups = _Groups(plans, cluster)
    kept, left = np.ones((2, len(plans)), np.bool_)
    for _ in range(MOST_ROUNDS):
        rows = np.flatnonzero(left & kept)
        first = np.flatnonzero(np.diff(key[rows], prepend=-1))
        beside = np.repeat(np.arange(len(first)), np.diff(first, append=len(rows)))
        left[rows[first]] = False
        if len(first) == len(rows):
            break
        kept[rows] &= ~(far[rows] & left[rows] & groups.slower(rows, rows[first], beside))
    return kept


class _Groups:
    """Collectives of plans: all-reduces over the levels of their replicas, and that of tied parameters between pipeline ends."""

    def __init__(self, plans: UniformPlans, cluster: Cluster) -> None:
        self._plans, self._cluster = plans, cluster
        ends = np.where(plans.pp > 1, 2, 1), np.maximum((plans.pp - 1) * plans.layouts.stage_strides, 1)
        sizes, strides = replica_levels(plans)
        self._sizes, self._strides = np.concatenate([sizes, ends[:1]]), np.concatenate([strides, ends[1:]])
        self._strides = np.minimum(self._strides, cluster.period)  # members that lie further apart share no inner block
        key, place = np.unique(self._sizes * (cluster.period + 1) + self._strides, return_inverse=True)
        self._line: IntArray = place.reshape(self._sizes.shape)
        self._costs, self._algorithms = self._costs_of(
            key // (cluster.period + 1), key % (cluster.period + 1), np.zeros_like(key)
        )

    def slower(self, rows: IntArray, others: IntArray, beside: IntArray) -> BoolArray:
        """Whether the plans ``rows`` are nowhere faster than ``others[beside]``, shape (rows,)."""
        slower = np.ones(len(rows), np.bool_)
        for level in range(len(self._sizes)):
            if (self._sizes[level] == 1).all():
                continue
            most = self._most(level, others)[beside]
            slower &= (self._costs[self._line[level, rows]] >= most).all(axis=1)
        return slower

    def _most(self, level: int, rows: IntArray) -> FloatArray:
        """Cost of each algorithm for the slowest of the groups of ``rows``, shape (rows, 2 * algorithms)."""
        plans, period = self._plans.some(rows), self._cluster.period
        sizes, strides = self._sizes[level, rows], self._strides[level, rows]
        if level == len(self._sizes) - 1:
            own: FloatArray = self._costs[self._line[level, rows]]
            return own
        starts = group_starts(plans.layouts, strides, plans.shape.tp, period)
        starts[(sizes == 1) | (strides >= period)] = np.where(np.arange(starts.shape[1]) == 0, 0, -1)
        used = starts >= 0
        key = ((sizes * (period + 1) + strides)[:, None] * period + starts)[used]
        distinct, place = np.unique(key, return_inverse=True)
        size, stride = np.divmod(distinct // period, period + 1)
        costs, algorithms = self._costs_of(size, stride, distinct % period)
        aligned = np.full((len(costs), self._costs.shape[1]), np.inf)
        half = len(self._algorithms)
        for at, name in enumerate(algorithms):
            if name in self._algorithms:
                to = self._algorithms.index(name)
                aligned[:, [to, half + to]] = costs[:, [at, len(algorithms) + at]]
        per_row = np.flatnonzero(used.ravel()) // starts.shape[1]
        slowest: FloatArray = np.maximum.reduceat(aligned[place], np.flatnonzero(np.diff(per_row, prepend=-1)), axis=0)
        return slowest

    def _costs_of(self, sizes: IntArray, strides: IntArray, starts: IntArray) -> tuple[FloatArray, tuple[str, ...]]:
        found = collective_costs_of(CollectiveKind.ALL_REDUCE, sizes, strides, self._cluster, starts)
        return np.concatenate([found.fixed_s, found.per_byte_s]).T, found.algorithms
