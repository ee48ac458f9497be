"""Which devices of a plan work together: those of tensor- and context-parallel groups, with the
same parameters, with experts.

By an order of groups, tensor-parallel devices are neighbours, context-parallel ones come next,
replicas where the order puts them; an ``Assignment`` says how many of each lie in every tier of the
network. The devices that share the tokens of sequences and the replicas all hold the same
parameters, but for the experts: these are divided among ``ep`` of them, the nearest by an order of
groups, and so have as many copies as there are such groups (Megatron-LM). Where tensor-parallel
devices hold whole experts, they are the nearest of all. Groups that lie evenly in the blocks of
every tier are rectangles, however they came about; others are told apart by where they start within
a ``period`` of the cluster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from Estimator.network.cluster import Cluster
from Estimator.network.collectives import collective_costs, distinct_starts, rectangle_costs
from Estimator.network.costs import FROM_ONE_OR_TO_ONE, AlgorithmCost
from Estimator.network.crossings import parts_of
from Estimator.network.dispatchers import AS_FRAMEWORK, PerNode, Routing, TokenExchange
from Estimator.plans.assignment import Assignment
from Estimator.plans.degrees import UniformPlan
from GraphExtractor.graph import CollectiveGroup, CollectiveKind
from phaze_common.array_types import FloatArray
from phaze_common.choices import CudaGraphs, Dispatcher, ExpertOverlap

# bytes of a token in fp8, with a scale of fp32 for 128 numbers (DeepSeek-AI 2024, section 3.3.2),
# as a part of those in 16 bits
IN_FP8 = (1 + 4 / 128) / 2
WHOLE_ON_EACH_LEVEL = (CollectiveKind.ALL_TO_ALL, *FROM_ONE_OR_TO_ONE)


@dataclass(frozen=True)
class GroupLevel:
    """``size`` devices that lie ``stride`` apart."""

    size: int
    stride: int

    @property
    def offsets(self) -> range:
        """Of the devices from the first."""
        return range(0, self.size * self.stride, self.stride)

    def costs(
        self,
        kind: CollectiveKind,
        cluster: Cluster,
        starts: Sequence[int],
        exchange: PerNode | None = None,
    ) -> tuple[tuple[AlgorithmCost, ...], ...]:
        """The algorithms of a collective, for every one of the ``starts`` that costs another."""
        firsts = sorted(distinct_starts(self.stride, cluster, starts))
        return tuple(
            collective_costs(kind, self.size, self.stride, cluster, first, exchange)
            for first in firsts
        )


@dataclass(frozen=True)
class Rectangle:
    """Devices that lie evenly: ``parts[t]`` devices, or blocks with some, in a block of tier t."""

    parts: tuple[int, ...]

    @property
    def size(self) -> int:
        """Devices."""
        return math.prod(self.parts)

    def costs(
        self,
        kind: CollectiveKind,
        cluster: Cluster,
        starts: Sequence[int],
        exchange: PerNode | None = None,
    ) -> tuple[tuple[AlgorithmCost, ...], ...]:
        """The algorithms of a collective, the same wherever the group starts."""
        return (rectangle_costs(kind, self.parts, cluster, exchange),)


@dataclass(frozen=True)
class DeviceGroups:
    """Groups alike of a plan: their levels, innermost first, and the first device of each.

    Over the last ``outer`` of the levels nothing is sharded.
    """

    levels: tuple[GroupLevel | Rectangle, ...]
    starts: tuple[int, ...]
    outer: int = 0

    @property
    def size(self) -> int:
        """Devices in a group."""
        return math.prod(level.size for level in self.levels)

    @property
    def within_first_tier(self) -> bool:
        """Whether every group lies in one block of the first tier."""
        return all(
            isinstance(level, Rectangle) and math.prod(level.parts[1:]) == 1
            for level in self.levels
        )


ALONE = DeviceGroups((), (0,))


@dataclass(frozen=True)
class LayerGroups:
    """The groups that communicate within a layer, in how many ``panels`` they do beside the
    products of a 2D layout, which of its kernels CUDA ``graphs`` replay, and how ``tokens`` get to
    their experts."""

    tensor: DeviceGroups = ALONE
    context: DeviceGroups = ALONE  # that share the tokens of sequences
    experts: DeviceGroups = ALONE
    tensor2: DeviceGroups = ALONE  # along the second axis of a 2D layout
    panels: int = 1
    graphs: CudaGraphs = CudaGraphs.NONE
    tokens: TokenExchange = AS_FRAMEWORK

    def of(self, group: CollectiveGroup) -> DeviceGroups:
        """Those that take part in collectives of ``group``."""
        return {
            CollectiveGroup.TENSOR: self.tensor,
            CollectiveGroup.CONTEXT: self.context,
            CollectiveGroup.EXPERT: self.experts,
            CollectiveGroup.TENSOR2: self.tensor2,
        }[group]


def layer_groups(plan: UniformPlan, cluster: Cluster, first: int = 0) -> LayerGroups:
    """Groups of ``plan``, on devices from ``first`` on, that communicate within a layer, told apart
    by what they cost."""
    how = plan.panels, plan.cuda_graphs, token_exchange(plan)
    if isinstance(plan.group_order, Assignment):
        assigned = plan.group_order.over(len(cluster.tiers))
        axes = assigned.tp, assigned.sequence, assigned.ep, assigned.tp2
        tensor, context, experts, tensor2 = (_rectangle(parts) for parts in axes)
        return LayerGroups(tensor, context, experts, tensor2, *how)
    tp, rows, sequence, devices = plan.tp, plan.tp2, plan.sequence_devices, plan.devices

    def evenly(degree: int, stride: int) -> DeviceGroups:
        """Groups of devices a stride apart, between which lie all others."""
        if degree == 1:
            return ALONE
        between = GroupLevel(stride, 1), GroupLevel(devices // (degree * stride), degree * stride)
        return _evenly((GroupLevel(degree, stride),), between, devices, cluster, first)

    experts = ALONE
    if plan.ep > 1:
        inside, outside = divided_levels(plan)
        between = *_stages(plan, plan.expert_tp), *outside
        experts = _evenly(inside, between, devices, cluster, first)
    return LayerGroups(evenly(tp, 1), evenly(sequence, tp), experts, evenly(rows, tp), *how)


def token_exchange(plan: UniformPlan) -> TokenExchange:
    """How tokens of ``plan`` get to their experts."""
    if plan.ep == 1:
        return AS_FRAMEWORK
    overlap = plan.overlap_experts
    beside_shared = None if overlap is None else overlap is ExpertOverlap.SHARED
    return TokenExchange(plan.dispatcher, plan.dispatch_fp8, beside_shared)


def replicas(plan: UniformPlan, cluster: Cluster, first: int = 0) -> DeviceGroups:
    """The devices with the same parameters, experts aside, told apart by what they cost; those of
    ``plan`` begin at ``first``."""
    if isinstance(plan.group_order, Assignment):
        return _rectangle(plan.group_order.over(len(cluster.tiers)).copies)
    return _sharing(plan, copy_levels(plan), _stages(plan, plan.tp), cluster, first)


def divided_replicas(plan: UniformPlan, cluster: Cluster, first: int = 0) -> DeviceGroups:
    """Devices with the same experts, or the same part of what is divided twice."""
    if isinstance(plan.group_order, Assignment):
        return _rectangle(plan.group_order.over(len(cluster.tiers)).divided_copies)
    inside, outside = divided_levels(plan)
    between = *_stages(plan, plan.expert_tp), *inside
    return _sharing(plan, outside, between, cluster, first)


def _sharing(
    plan: UniformPlan,
    levels: tuple[GroupLevel, ...],
    between: tuple[GroupLevel, ...],
    cluster: Cluster,
    first: int,
) -> DeviceGroups:
    """Groups of ``levels``, of which the outermost ``shard_groups`` devices share no shards."""
    if plan.shard_groups == 1 or not levels:
        return _evenly(levels, between, plan.devices, cluster, first)
    *inner, last = levels
    part = math.gcd(plan.shard_groups, last.size)
    apart = GroupLevel(part, last.stride * (last.size // part))
    within = _used(*inner, GroupLevel(last.size // part, last.stride))
    inside = _evenly(within, (*between, apart), plan.devices, cluster, first)
    outside = _evenly(_used(apart), (*between, *within), plan.devices, cluster, first)
    starts = tuple(sorted({*inside.starts, *outside.starts}))
    return DeviceGroups((*inside.levels, *outside.levels), starts, len(outside.levels))


class GroupNetwork:
    """Prices collectives of like groups level by level; all groups wait for the slowest."""

    def __init__(self, groups: DeviceGroups, cluster: Cluster) -> None:
        self.groups, self.cluster = groups, cluster
        self._costs = lru_cache(maxsize=None)(self._costs_of_level)
        self._known_s: dict[tuple[CollectiveKind | PerNode, float], float] = {}

    def seconds(
        self, kind: CollectiveKind, payload_bytes: float, exchange: PerNode | None = None
    ) -> float:
        """Seconds of a collective over ``payload_bytes``; an all-to-all may be an ``exchange`` of
        routed tokens.

        Reductions and gathers go on with what inner levels left of the tensor; all-to-alls, and
        what one device sends to all or gets from them, move everything on each level.
        """
        if not payload_bytes:
            return 0.0
        asked = exchange or kind, payload_bytes
        known = self._known_s.get(asked)
        if known is None:
            known = self._known_s[asked] = self._seconds(kind, payload_bytes, exchange)
        return known

    def exchange_s(
        self, payload_bytes: float, dispatcher: Dispatcher, routing: Routing, *, in_fp8: bool
    ) -> float:
        """Seconds of sending tokens to their experts or back, on average of both ways.

        ``payload_bytes`` are those of a copy for every expert of a token of one device. What goes
        to experts may do so ``in_fp8``, what comes back does not.
        """
        sent_bytes = payload_bytes * (IN_FP8 if in_fp8 else 1.0)
        if dispatcher is Dispatcher.ALLGATHER:
            copies = self.groups.size / routing.chosen
            gathered_s = self.seconds(CollectiveKind.ALL_GATHER, sent_bytes * copies)
            scattered_s = self.seconds(CollectiveKind.REDUCE_SCATTER, payload_bytes * copies)
            return (gathered_s + scattered_s) / 2
        exchange = PerNode(dispatcher, routing) if dispatcher.per_node else None
        both = sent_bytes, payload_bytes
        return sum(self.seconds(CollectiveKind.ALL_TO_ALL, each, exchange) for each in both) / 2

    def _seconds(
        self, kind: CollectiveKind, payload_bytes: float, exchange: PerNode | None
    ) -> float:
        total_s, left_bytes = 0.0, payload_bytes
        for level in self.groups.levels:
            total_s += max(
                min(cost.seconds(left_bytes) for cost in costs)
                for costs in self._costs(kind, level, exchange)
            )
            left_bytes /= 1 if kind in WHOLE_ON_EACH_LEVEL else level.size
        return total_s

    def many_seconds(self, kind: CollectiveKind, payload_bytes: FloatArray) -> FloatArray:
        """``seconds`` of payloads of any shape."""
        sizes, places = np.unique(payload_bytes, return_inverse=True)
        return np.array([self.seconds(kind, size) for size in sizes.tolist()])[places].reshape(
            payload_bytes.shape
        )

    def _costs_of_level(
        self, kind: CollectiveKind, level: GroupLevel | Rectangle, exchange: PerNode | None
    ) -> tuple[tuple[AlgorithmCost, ...], ...]:
        return level.costs(kind, self.cluster, self.groups.starts, exchange)


class GroupNetworks:
    """The same for N ways in which groups lie, few of which differ."""

    def __init__(self, networks: Sequence[GroupNetwork]) -> None:
        place = {network: place for place, network in enumerate(dict.fromkeys(networks))}
        self._distinct = tuple(place)
        self._place = np.array([place[network] for network in networks])

    def seconds(self, kind: CollectiveKind, payload_bytes: float) -> FloatArray:
        """Seconds of a collective over ``payload_bytes``, shape (N,)."""
        return self._each(lambda network: network.seconds(kind, payload_bytes))

    def exchange_s(
        self, payload_bytes: float, dispatcher: Dispatcher, routing: Routing, *, in_fp8: bool
    ) -> FloatArray:
        """``GroupNetwork.exchange_s``, shape (N,)."""
        return self._each(
            lambda network: network.exchange_s(payload_bytes, dispatcher, routing, in_fp8=in_fp8)
        )

    def _each(self, seconds: Callable[[GroupNetwork], float]) -> FloatArray:
        found: FloatArray = np.array([seconds(network) for network in self._distinct])[self._place]
        return found


def copy_levels(plan: UniformPlan) -> tuple[GroupLevel, ...]:
    """The levels of a group of devices with the same parameters, by an order of groups."""
    return _with_replicas(plan, GroupLevel(plan.sequence_devices, plan.tp))


def _with_replicas(plan: UniformPlan, inner: GroupLevel) -> tuple[GroupLevel, ...]:
    copies = GroupLevel(plan.dp, plan.replica_stride)
    if copies.stride == inner.size * inner.stride:
        return _used(GroupLevel(inner.size * plan.dp, inner.stride))
    return _used(inner, copies)


def divided_levels(plan: UniformPlan) -> tuple[tuple[GroupLevel, ...], tuple[GroupLevel, ...]]:
    """The levels of a group that divides some parameters, and those between such groups, by an
    order of groups.

    Divided are the experts, or over the second axis of a 2D layout what it divides twice; no layout
    does both.
    """
    if plan.tp2 > 1:
        return _used(GroupLevel(plan.tp2, plan.tp)), _with_replicas(
            plan, GroupLevel(plan.cp, plan.tp * plan.tp2)
        )
    left, inside, outside = plan.ep, [], []
    for level in _expert_levels(plan):
        part = math.gcd(left, level.size)
        inside.append(GroupLevel(part, level.stride))
        outside.append(GroupLevel(level.size // part, level.stride * part))
        left //= part
    return _used(*inside), _used(*outside)


def _expert_levels(plan: UniformPlan) -> tuple[GroupLevel, ...]:
    """The levels of all devices that hold experts alike: with whole ones, those of tensor
    parallelism too."""
    levels = copy_levels(plan)
    if plan.expert_tp == plan.tp:
        return levels
    if levels and levels[0].stride == plan.tp:
        return GroupLevel(levels[0].size * plan.tp, 1), *levels[1:]
    return GroupLevel(plan.tp, 1), *levels


def _used(*levels: GroupLevel) -> tuple[GroupLevel, ...]:
    return tuple(level for level in levels if level.size > 1)


def _stages(plan: UniformPlan, ranks: int) -> tuple[GroupLevel, ...]:
    """What lies between groups besides: pipeline stages, and so many tensor-parallel ranks."""
    return GroupLevel(plan.pp, plan.stage_stride), GroupLevel(ranks, 1)


def _rectangle(parts: tuple[int, ...]) -> DeviceGroups:
    return ALONE if math.prod(parts) == 1 else DeviceGroups((Rectangle(parts),), (0,))


def as_at_the_start(first: int, devices: int, cluster: Cluster) -> bool:
    """Whether devices from ``first`` on lie in blocks as the cluster's first ones do."""
    return all(
        first % block == 0 or first % block + devices <= block for block in cluster.block_sizes[1:]
    )


def _evenly(
    levels: tuple[GroupLevel, ...],
    between: tuple[GroupLevel, ...],
    devices: int,
    cluster: Cluster,
    first: int,
) -> DeviceGroups:
    """Groups of ``levels`` as one rectangle where the blocks of every tier divide them evenly, else
    as they are.

    ``between`` is what lies between like groups; of those that start alike in the blocks of the
    cluster one is kept. The ``devices`` of the plan begin at ``first``.
    """
    used = _used(*levels)
    if not used:
        return ALONE
    parts = _parts(used, min(devices, cluster.period + 1), cluster.block_sizes, cluster.rings)
    if parts is not None and as_at_the_start(first, devices, cluster):
        return _rectangle(parts)
    return DeviceGroups(used, _starts(_used(*between), first % cluster.period, cluster.period))


@lru_cache(maxsize=65536)  # plans of many degrees have the same few
def _parts(
    levels: tuple[GroupLevel, ...],
    devices: int,
    block_sizes: tuple[int, ...],
    rings: tuple[bool, ...],
) -> tuple[int, ...] | None:
    """The devices of a group of ``levels`` in a block of every tier; None where blocks cut it
    unevenly.

    Of ``devices`` it matters alone whether a block has as many.
    """
    sizes, strides = (
        np.array([getattr(level, name) for level in levels]) for name in ("size", "stride")
    )
    parts = parts_of(sizes, strides, np.full(len(levels), devices), block_sizes, rings)
    return tuple(parts.prod(axis=1).tolist()) if parts.all() else None


def _starts(levels: tuple[GroupLevel, ...], first: int, period: int) -> tuple[int, ...]:
    """Where groups that lie at all places of ``levels`` start within a period."""
    repeating = (
        (level.stride % period, min(level.size, period // math.gcd(level.stride, period)))
        for level in levels
    )
    return _repeating_starts(tuple(sorted(repeating)), first, period)


@lru_cache(maxsize=65536)
def _repeating_starts(
    levels: tuple[tuple[int, int], ...], first: int, period: int
) -> tuple[int, ...]:
    """The same of levels by stride and size, neither more than a period."""
    firsts = np.array([first])
    for stride, size in levels:
        firsts = np.unique((firsts[:, None] + np.arange(size)[None, :] * stride).ravel() % period)
    return tuple(firsts.tolist())
