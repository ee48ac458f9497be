"""Which devices of a plan hold the same parameters, and which divide the experts among them.

Tensor-parallel devices are neighbours, context-parallel ones come next, replicas where the plan's ``group_order`` puts them. The
devices that share the tokens of sequences and the replicas all hold the same parameters, but for the experts: these are divided
among ``ep`` of them that are neighbours in this order, and so have as many copies as there are such groups (Megatron-LM).
Groups of which only the cost matters are told apart by where they start within a ``period`` of the cluster.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from Estimator.network.cluster import Cluster
from Estimator.network.collectives import collective_costs, distinct_starts
from Estimator.network.costs import AlgorithmCost
from GraphExtractor.graph import CollectiveKind
from Plans.plan import UniformPlan


@dataclass(frozen=True)
class GroupLevel:
    """``size`` devices that lie ``stride`` apart."""

    size: int
    stride: int

    @property
    def offsets(self) -> range:
        """Of the devices from the first."""
        return range(0, self.size * self.stride, self.stride)


@dataclass(frozen=True)
class DeviceGroups:
    """Groups alike of a plan: their levels, innermost first, and the first devices of all groups."""

    levels: tuple[GroupLevel, ...]
    starts: tuple[int, ...]

    @property
    def size(self) -> int:
        """Devices in a group."""
        return math.prod(level.size for level in self.levels)


ALONE = DeviceGroups((), (0,))


def replicas(plan: UniformPlan, period: int | None = None) -> DeviceGroups:
    """The devices with the same parameters, experts aside."""
    return DeviceGroups(_levels(plan), _firsts(plan, (), period))


def expert_groups(plan: UniformPlan, period: int | None = None) -> DeviceGroups:
    """The devices that divide the experts among them."""
    inside, outside = _divided(plan)
    return DeviceGroups(inside, _firsts(plan, outside, period))


def expert_replicas(plan: UniformPlan, period: int | None = None) -> DeviceGroups:
    """The devices with the same experts."""
    inside, outside = _divided(plan)
    return DeviceGroups(outside, _firsts(plan, inside, period))


class GroupNetwork:
    """Prices collectives of like groups on a cluster, level by level; all groups wait for the slowest."""

    def __init__(self, groups: DeviceGroups, cluster: Cluster) -> None:
        self.groups, self.cluster = groups, cluster
        self._costs = lru_cache(maxsize=None)(self._costs_of_level)

    def seconds(self, kind: CollectiveKind, payload_bytes: float) -> float:
        """Seconds of a collective over ``payload_bytes``.

        Reductions and gathers go on with what inner levels left of the tensor; an all-to-all moves everything on each level.
        """
        if not payload_bytes:
            return 0.0
        total_s, left_bytes = 0.0, payload_bytes
        for level in self.groups.levels:
            total_s += max(min(cost.seconds(left_bytes) for cost in costs) for costs in self._costs(kind, level))
            left_bytes /= 1 if kind is CollectiveKind.ALL_TO_ALL else level.size
        return total_s

    def _costs_of_level(self, kind: CollectiveKind, level: GroupLevel) -> tuple[tuple[AlgorithmCost, ...], ...]:
        starts = distinct_starts(level.stride, self.cluster, self.groups.starts)
        return tuple(collective_costs(kind, level.size, level.stride, self.cluster, start) for start in starts)


def _levels(plan: UniformPlan) -> tuple[GroupLevel, ...]:
    contexts, copies = GroupLevel(plan.cp, plan.tp), GroupLevel(plan.dp, plan.replica_stride)
    if copies.stride == contexts.size * contexts.stride:
        return _used(GroupLevel(plan.cp * plan.dp, plan.tp))
    return _used(contexts, copies)


def _divided(plan: UniformPlan) -> tuple[tuple[GroupLevel, ...], tuple[GroupLevel, ...]]:
    """The levels of a group that divides the experts, and those between such groups."""
    left, inside, outside = plan.ep, [], []
    for level in _levels(plan):
        part = math.gcd(left, level.size)
        inside.append(GroupLevel(part, level.stride))
        outside.append(GroupLevel(level.size // part, level.stride * part))
        left //= part
    return _used(*inside), _used(*outside)


def _used(*levels: GroupLevel) -> tuple[GroupLevel, ...]:
    return tuple(level for level in levels if level.size > 1)


def _firsts(plan: UniformPlan, between: Sequence[GroupLevel], period: int | None) -> tuple[int, ...]:
    """First devices of the groups: a tensor-parallel group's of every stage, and what lies ``between`` like groups.

    With a ``period``, after which the blocks of the cluster repeat, one of those that lie alike in them.
    """
    steps = [range(0, plan.pp * plan.stage_stride, plan.stage_stride), range(plan.tp), *(level.offsets for level in between)]
    firsts = np.zeros(1, dtype=np.int64)
    for offsets in steps:
        firsts = (firsts[:, None] + np.array(offsets)[None, :]).ravel()
        if period is not None:
            firsts = np.unique(firsts % period)
    return tuple(firsts.tolist())
