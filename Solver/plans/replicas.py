"""Plans that need no look: more replicas only slow gradients and messages down where they save no
micro-batch."""

from __future__ import annotations

import numpy as np

from Estimator.network.cluster import Cluster
from Estimator.network.collectives import collective_costs_of, rectangle_costs_of
from Estimator.network.costs import MOST_ALGORITHMS, CollectiveCosts
from Estimator.plans.assignment import Assignment
from Estimator.plans.many_rates import (
    group_starts,
    replica_levels,
    replica_parts,
    replicas_within_first_tier,
)
from Estimator.plans.uniform_plans import UniformPlans
from GraphExtractor.graph import CollectiveKind
from phaze_common.array_types import BoolArray, FloatArray, IntArray

# Plans of a class that others are compared with: hardly any is pruned by a later one
MOST_ROUNDS = 4


def undominated(plans: UniformPlans, cluster: Cluster) -> IntArray:
    """Places of the plans, ascending, that none with fewer replicas is at least as fast as on all
    chips of ``cluster``.

    Compared are plans alike but for the replicas, with as many micro-batches per pipeline and
    stages that lie alike, without ZeRO (which makes replicas save memory) and experts over devices:
    their stages take and hold the same, so one is dominated if its collectives and messages are
    nowhere faster. An all-reduce takes no less than along one of its groups, algorithm for
    algorithm, and no more than the slowest of the other plan's groups would with each. With sparse
    tables more replicas gather, hold and step through no fewer rows either; a gather takes half an
    all-reduce, of a payload that grows with the replicas."""
    undominated = np.ones(len(plans), np.bool_)
    if not plans.shape.divides_more and len(plans):
        stages = plans.assigned[:, 1]
        even = replica_parts(plans, cluster).all(axis=0)
        # What is hidden slows computation down
        within = replicas_within_first_tier(plans, cluster) & plans.overlap_gradients
        stages_alike = plans.pp, plans.micro_batches, plans.interleave, plans.pipeline_inner
        alike = *stages_alike, plans.overlap_gradients, even, within
        _, key = np.unique(np.column_stack([*alike, stages]), axis=0, return_inverse=True)
        key = key.reshape(-1)
        rows = np.flatnonzero(plans.zero_stage == 0)
        rows = rows[np.lexsort((plans.dp[rows], key[rows]))]
        undominated[rows] = _undominated(plans.some(rows), key[rows], cluster)
    return np.flatnonzero(undominated)


def _undominated(plans: UniformPlans, key: IntArray, cluster: Cluster) -> BoolArray:
    """The same for plans sorted by class and replicas, shape (N,)."""
    assigned = isinstance(plans.shape.group_order, Assignment)
    apart = plans.layouts.stage_strides >= cluster.period
    far = assigned | plans.pipeline_inner | (plans.pp == 1) | apart
    groups = _Groups(plans, cluster)
    undominated, left = np.ones((2, len(plans)), np.bool_)
    for _ in range(MOST_ROUNDS):
        rows = np.flatnonzero(left & undominated)
        first = np.flatnonzero(np.diff(key[rows], prepend=-1))
        beside = np.repeat(np.arange(len(first)), np.diff(first, append=len(rows)))
        left[rows[first]] = False
        if len(first) == len(rows):
            break
        undominated[rows] &= ~(far[rows] & left[rows] & groups.slower(rows, rows[first], beside))
    return undominated


class _Groups:
    """Collectives of plans: all-reduces over their replicas, and that of tied parameters between
    pipeline ends.

    Replicas that lie evenly are one group, others are those of two levels. A line is what one group
    costs by each algorithm."""

    def __init__(self, plans: UniformPlans, cluster: Cluster) -> None:
        self._plans, self._cluster = plans, cluster
        parts = replica_parts(plans, cluster)
        self._even: BoolArray = np.asarray(parts.all(axis=0))
        self._names: dict[str, int] = {}
        rectangles, place = np.unique(parts[:, self._even], axis=1, return_inverse=True)
        self._rectangle = np.zeros(len(plans), np.int64)
        self._rectangle[self._even] = place.reshape(-1)
        self._of_rectangles = self._aligned(
            rectangle_costs_of(CollectiveKind.ALL_REDUCE, rectangles, cluster)
        )
        sizes, strides = replica_levels(plans)
        every = zip(sizes, strides, strict=True)
        levels = [level for level in every if (level[0][~self._even] > 1).any()]
        # Plans that are compared have ends that lie alike
        if isinstance(plans.shape.group_order, Assignment):
            ends = np.ones_like(plans.pp), np.ones_like(plans.pp)
        else:
            apart = np.maximum((plans.pp - 1) * plans.layouts.stage_strides, 1)
            ends = np.where(plans.pp > 1, 2, 1), apart
        # members that lie further apart than a period share no inner block; along a torus it
        # matters how far
        apart = np.iinfo(np.int64).max if any(cluster.rings) else cluster.period
        self._levels = [(size, np.minimum(stride, apart)) for size, stride in (*levels, ends)]

    def slower(self, rows: IntArray, others: IntArray, beside: IntArray) -> BoolArray:
        """Whether plans ``rows`` are nowhere faster than ``others[beside]``; shape (rows,)."""
        slower, even = ~self._even[rows], np.flatnonzero(self._even[rows])  # and so the others
        ours, theirs = self._rectangle[rows[even]], self._rectangle[others[beside[even]]]
        costs = self._of_rectangles
        slower[even] = (costs[ours] >= costs[theirs]).all(axis=1)
        last = len(self._levels) - 1
        for place, (sizes, strides) in enumerate(self._levels):
            if (sizes == 1).all():
                continue
            mine = self._lines(sizes[rows], strides[rows], np.zeros_like(rows))
            most = self._lines(sizes[others], strides[others], np.zeros_like(others))
            if place < last:
                most = self._most(sizes[others], strides[others], others)
            nowhere = (mine >= most[beside]).all(axis=1)
            slower &= nowhere if place == last else nowhere | self._even[rows]
        return slower

    def _most(self, sizes: IntArray, strides: IntArray, rows: IntArray) -> FloatArray:
        """Cost of each algorithm for the slowest group of each row, (rows, 2 * algorithms)."""
        plans, period = self._plans.some(rows), self._cluster.period
        starts = group_starts(plans.layouts, strides, plans.shape.tp, period)
        starts[(sizes == 1) | (strides >= period)] = np.where(
            np.arange(starts.shape[1]) == 0, 0, -1
        )
        used = starts >= 0
        size, stride = (
            np.broadcast_to(each[:, None], starts.shape)[used] for each in (sizes, strides)
        )
        lines = self._lines(size, stride, starts[used])
        per_row = np.flatnonzero(used.ravel()) // starts.shape[1]
        slowest: FloatArray = np.maximum.reduceat(
            lines, np.flatnonzero(np.diff(per_row, prepend=-1)), axis=0
        )
        return slowest

    def _lines(self, sizes: IntArray, strides: IntArray, starts: IntArray) -> FloatArray:
        distinct, place = np.unique(np.stack([sizes, strides, starts]), axis=1, return_inverse=True)
        size, stride, start = distinct
        found = collective_costs_of(CollectiveKind.ALL_REDUCE, size, stride, self._cluster, start)
        return self._aligned(found)[place.reshape(-1)]

    def _aligned(self, found: CollectiveCosts) -> FloatArray:
        """Fixed seconds and seconds per byte by algorithm in one order; infinite: not usable."""
        lines = np.full((2, MOST_ALGORITHMS, found.fixed_s.shape[1]), np.inf)
        for name, fixed_s, per_byte_s in zip(
            found.algorithms, found.fixed_s, found.per_byte_s, strict=True
        ):
            at = self._names.setdefault(name, len(self._names))
            lines[:, at] = fixed_s, per_byte_s
        return lines.reshape(2 * MOST_ALGORITHMS, -1).T
