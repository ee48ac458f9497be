"""What degrees make parameters cost, of one plan and of many plans of one shape: collectives over
replicas, bytes and seconds per parameter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from Estimator.network.cluster import Cluster
from Estimator.network.collectives import collective_costs_of, distinct_starts, rectangle_costs_of
from Estimator.network.costs import CollectiveCosts
from Estimator.network.crossings import parts_of
from Estimator.network.links import PipelineLayouts
from Estimator.plans.assignment import Assignment
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import DeviceGroups, GroupLevel, Rectangle, divided_replicas, replicas
from Estimator.plans.host_traffic import HostRates
from Estimator.plans.policy import policy_under
from Estimator.plans.rates import (
    KINDS,
    Machine,
    between_s,
    exchange_rates,
    gather_copy_s,
    gather_rates,
    hidden_gathers,
    hides_tensor_collectives,
    host_rates,
    orthogonalised_part,
    paired_part,
    shards_s,
    start_s,
    straggler_excess,
    tensor_hides,
)
from Estimator.plans.stage_price import (
    ALL_GATHER,
    ALL_REDUCE,
    DENSE,
    REDUCE_SCATTER,
    ExpertRates,
    GatherRates,
    GroupRates,
    PlanRates,
)
from Estimator.plans.uniform_plans import UniformPlans

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
# of ``HostRates``, one row for each plan
HOST_COLUMNS = ("weights", "gradients", "state", "step_in", "step_out", "kept")


class ManyRates(NamedTuple):
    """``PlanRates`` of N plans: arrays of shape (N,), with (2,) behind it for dense parameters and
    experts.

    The groups of plan n are entry ``group[n]`` of ``groups``, whose arrays have one dimension more
    in front.
    """

    tp: float
    overlap_tensor: bool
    tensor_hides: float
    weight_bytes: float
    gradient_bytes: float
    reserved_bytes: float
    reduces_all: bool
    gathers_beside: bool
    expert_split: bool
    tied_split: bool
    exchange: ExpertRates
    gathers: GatherRates
    groups: GroupRates
    group: IntArray
    paired: FloatArray
    accumulated: FloatArray
    micro_batches: FloatArray
    straggler_excess: FloatArray
    between_s: FloatArray
    copies: FloatArray
    zero_stage: IntArray
    working: IntArray
    gather_copy_s: FloatArray
    overlap_data: BoolArray
    shown_part: FloatArray
    hidden_part: FloatArray
    resident_bytes: FloatArray
    step_s: FloatArray
    wide: FloatArray
    matrices: FloatArray
    start_s: FloatArray
    in_flight: FloatArray
    host: HostRates

    def some(self, rows: IntArray) -> ManyRates:
        """Those of ``rows``."""
        host = self.host._replace(**{name: getattr(self.host, name)[rows] for name in HOST_COLUMNS})
        return self._replace(
            **{name: getattr(self, name)[rows] for name in self._fields[13:-1]}, host=host
        )


def rates_at(rates: ManyRates, plan: int) -> PlanRates:
    """Those of one plan."""
    group, groups, host = rates.group[plan], rates.groups, rates.host
    return PlanRates(
        rates.tp,
        rates.accumulated[plan],
        rates.micro_batches[plan],
        rates.copies[plan],
        rates.zero_stage[plan],
        rates.working[plan],
        rates.overlap_tensor,
        rates.tensor_hides,
        rates.overlap_data[plan],
        rates.shown_part[plan],
        rates.hidden_part[plan],
        rates.weight_bytes,
        rates.gradient_bytes,
        rates.resident_bytes[plan],
        rates.step_s[plan],
        rates.wide[plan],
        rates.matrices[plan],
        rates.start_s[plan],
        rates.reserved_bytes,
        rates.reduces_all,
        rates.gathers_beside,
        rates.gather_copy_s[plan],
        rates.gathers,
        rates.straggler_excess[plan],
        rates.between_s[plan],
        rates.exchange,
        rates.paired[plan],
        rates.expert_split,
        rates.tied_split,
        GroupRates(groups.fixed_s[group], groups.per_byte_s[group], groups.sizes[group]),
        HostRates(
            host.used,
            host.seconds_per_byte,
            host.slowdown,
            host.weights[plan],
            host.gradients[plan],
            host.state[plan],
            host.step_in[plan],
            host.step_out[plan],
            host.kept[plan],
            host.kept_gradient,
            rates.in_flight[plan],
            host.room_bytes,
        ),
    )


def many_rates(plans: UniformPlans, machine: Machine) -> ManyRates:
    """What the degrees of ``plans`` make parameters cost on the devices of ``machine``."""
    within = replicas_within_first_tier(plans, machine.cluster)
    return _rates(plans, machine, *many_group_rates(plans, machine.cluster), within)


def plan_rates(
    plan: UniformPlan,
    machine: Machine,
    first: int = 0,
    *,
    pipeline: int = 1,
    devices: int | None = None,
) -> PlanRates:
    """Those of one plan on the devices from ``first`` on, as one of so many stages of a
    ``pipeline``.

    ``devices`` are those that work on a step together, None: those of the plan.
    """
    software, cluster = machine.software, machine.cluster
    data = software.overlap_gradients if plan.overlap_gradients is None else plan.overlap_gradients
    dense = replicas(plan, cluster, first)
    experts = divided_replicas(plan, cluster, first) if plan.divides_more else dense
    plans, within = UniformPlans.of(plan, data), np.array([dense.within_first_tier])
    groups, group = _one_group(dense, experts, cluster), np.zeros(1, np.int64)
    rates = rates_at(_rates(plans, machine, groups, group, within), 0)
    if pipeline > 1:
        of_all = UniformPlans.of(replace(plan, pp=pipeline, interleave=1), data)
        paired = float(paired_part(of_all, software)[0])
        rates = rates._replace(start_s=start_s(machine, True), paired=paired)
    if devices is None:
        return rates
    return rates._replace(straggler_excess=float(straggler_excess(machine, devices)))


def _rates(
    plans: UniformPlans,
    machine: Machine,
    groups: GroupRates,
    group: IntArray,
    within_first_tier: BoolArray,
) -> ManyRates:
    """Rates of plans whose replicas communicate by entry ``group`` (N,) of ``groups``.

    Replicas, context-parallel devices among them, hold the same weights, so gradients are reduced
    over all of them; those of experts that are divided among them over the devices that have the
    same ones.
    """
    shape, software, copies, sharding = plans.shape, machine.software, plans.copies, plans.sharding
    policy, sharers = policy_under(software, shape, sharding[:, None]), plans.sharers
    near, beyond = machine.hiding(near=True), machine.hiding(near=False)
    shown = np.where(within_first_tier, near.shown_part, beyond.shown_part)
    # of what shows where only contention decides; of the gathers of ZeRO stage 3 a part never hides
    hides = np.where(sharding == 3, hidden_gathers(software), 1.0)
    wide = policy.wide(sharers[:, :1], shape.offload, machine.stream_bytes_per_s)
    return ManyRates(
        tp=float(shape.tp),
        overlap_tensor=hides_tensor_collectives(shape, software),
        tensor_hides=tensor_hides(shape.tp, machine),
        weight_bytes=policy.state.weight,
        gradient_bytes=policy.state.gradient,
        reserved_bytes=software.reserved_memory.value,
        reduces_all=software.reduces_all,
        gathers_beside=software.gathers_beside,
        expert_split=shape.divides_more,
        tied_split=shape.tp2 > 1,
        exchange=exchange_rates(shape, machine),
        gathers=gather_rates(software),
        groups=groups,
        group=group,
        paired=paired_part(plans, software),
        accumulated=1 - 1 / plans.micro_batches,
        micro_batches=plans.micro_batches.astype(np.float64),
        straggler_excess=straggler_excess(machine, plans.devices),
        between_s=between_s(software) + shards_s(software, sharding, sharers[:, 0]),
        copies=copies[:, 0].astype(np.float64),
        zero_stage=sharding,
        working=plans.working,
        gather_copy_s=gather_copy_s(machine, sharers),
        overlap_data=plans.overlap_gradients,
        shown_part=shown + (1.0 - hides) * (1.0 - shown),
        hidden_part=np.where(within_first_tier, near.hidden_part, beyond.hidden_part),
        resident_bytes=policy.resident_bytes(sharers, shape.offload),
        step_s=policy.step_s(sharers, machine.stream_bytes_per_s, plans.devices[:, None]),
        wide=wide[:, 0],
        matrices=orthogonalised_part(shape, sharding[:, None], sharers, machine),
        start_s=start_s(machine, plans.pp > 1),
        in_flight=np.minimum(plans.pp, plans.micro_batches).astype(np.float64),
        host=host_rates(shape.offload, policy, sharers, machine),
    )


@lru_cache(maxsize=4096)  # a search asks for those of many plans
def _one_group(dense: DeviceGroups, experts: DeviceGroups, cluster: Cluster) -> GroupRates:
    """Collectives over the groups of dense parameters and of experts, as one entry."""
    return _divided_rates([(dense, experts)], cluster)


def many_group_rates(plans: UniformPlans, cluster: Cluster) -> tuple[GroupRates, IntArray]:
    """Distinct collectives over replicas, stacked, and which each plan has, shape (N,)."""
    shape = plans.shape
    degrees = shape.tp, shape.tp2, shape.cp, shape.ep, shape.expert_tp, shape.shard_groups
    columns = (plans.pp, plans.dp, plans.pipeline_inner, plans.assigned)
    key = *degrees, shape.layout, shape.group_order, *(each.tobytes() for each in columns)
    return _cached_group_rates(_ReplicaPlaces(key, plans), cluster)


@dataclass(frozen=True)
class _ReplicaPlaces:
    """Plans whose replicas are asked for, known by what decides where these lie."""

    key: tuple[object, ...]
    plans: UniformPlans = field(compare=False)


@lru_cache(maxsize=256)  # shapes that differ in recomputation or micro-batches have the same
def _cached_group_rates(places: _ReplicaPlaces, cluster: Cluster) -> tuple[GroupRates, IntArray]:
    plans = places.plans
    if not len(plans):
        none = np.zeros((0, 3, 2, 1, 1, 1))
        return GroupRates(none, none, np.ones((0, 2, 1))), np.empty(0, np.int64)
    _, first, group = np.unique(plans.replica_places, return_index=True, return_inverse=True)
    distinct = plans.some(first)
    if not plans.shape.divides_more and plans.shape.shard_groups == 1:
        groups, alike = _replica_rates(distinct, cluster)
        return groups, alike[group]
    each = [distinct.plan(index) for index in range(len(distinct))]
    divided = divided_replicas if plans.shape.divides_more else replicas
    both = [(replicas(plan, cluster), divided(plan, cluster)) for plan in each]
    place = {pair: number for number, pair in enumerate(dict.fromkeys(both))}
    return _divided_rates(list(place), cluster), np.array([place[pair] for pair in both])[group]


def _divided_rates(
    both: Sequence[tuple[DeviceGroups, DeviceGroups]], cluster: Cluster
) -> GroupRates:
    """Collectives over groups of dense and of expert parameters, each line priced once."""
    lines: dict[tuple[GroupLevel | Rectangle, int], int] = {}
    at = []
    sizes = np.ones((len(both), 2, max(1, *(len(each.levels) for pair in both for each in pair))))
    for number, pair in enumerate(both):
        for which, groups in enumerate(pair):
            for place, level in enumerate(groups.levels):
                sizes[number, which, place] = level.size
                firsts = {0}
                if isinstance(level, GroupLevel):
                    firsts = distinct_starts(level.stride, cluster, groups.starts)
                for start, first in enumerate(sorted(firsts)):
                    line = lines.setdefault((level, first), len(lines))
                    at.append((number, which, place, start, line))
    numbers, kinds, levels, starts, at_line = np.array(at, dtype=np.int64).reshape(-1, 5).T
    of_lines_s, of_lines_per_byte_s = _line_costs(list(lines), cluster)
    shape = (len(both), 3, 2, sizes.shape[2], int(starts.max(initial=0)) + 1, of_lines_s.shape[2])
    fixed_s, per_byte_s = np.full(shape, np.inf), np.zeros(shape)
    fixed_s[..., 0] = 0.0  # of what is not there
    fixed_s[numbers, :, kinds, levels, starts] = of_lines_s[at_line]
    per_byte_s[numbers, :, kinds, levels, starts] = of_lines_per_byte_s[at_line]
    for number, pair in enumerate(both):
        for which, groups in enumerate(pair):
            _sum_outside(fixed_s[number, :, which], per_byte_s[number, :, which], groups)
    return GroupRates(fixed_s, per_byte_s, sizes)


def _sum_outside(fixed_s: FloatArray, per_byte_s: FloatArray, groups: DeviceGroups) -> None:
    """Over the outer levels of ``groups``, which share no shards, shards of gradients are summed
    and no weights gathered."""
    first, last = len(groups.levels) - groups.outer, len(groups.levels)
    for each in (fixed_s, per_byte_s):
        each[REDUCE_SCATTER, first:last] = each[ALL_REDUCE, first:last]
        each[ALL_GATHER, first:last] = 0.0


def _line_costs(
    lines: Sequence[tuple[GroupLevel | Rectangle, int]], cluster: Cluster
) -> tuple[FloatArray, FloatArray]:
    """``_cost_arrays`` of the collectives on each level of groups and start."""
    strided = {
        number: (level.size, level.stride, first)
        for number, (level, first) in enumerate(lines)
        if isinstance(level, GroupLevel)
    }
    even = {n: level.parts for n, (level, _) in enumerate(lines) if isinstance(level, Rectangle)}
    found = []
    if strided:
        size, stride, start = np.array(list(strided.values())).T
        costs = [collective_costs_of(kind, size, stride, cluster, start) for kind in KINDS]
        found.append((list(strided), _cost_arrays(costs)))
    if even:
        parts = np.array(list(even.values())).T
        costs = [rectangle_costs_of(kind, parts, cluster) for kind in KINDS]
        found.append((list(even), _cost_arrays(costs)))
    algorithms = max([1, *(each.shape[2] for _, (each, _) in found)])
    fixed_s = np.full((len(lines), len(KINDS), algorithms), np.inf)
    per_byte_s = np.zeros_like(fixed_s)
    for rows, (fixed, per_byte) in found:
        fixed_s[rows, :, : fixed.shape[2]] = fixed
        per_byte_s[rows, :, : fixed.shape[2]] = per_byte
    return fixed_s, per_byte_s


def _cost_arrays(costs: Sequence[CollectiveCosts]) -> tuple[FloatArray, FloatArray]:
    """Fixed seconds and seconds per byte of the algorithms of each kind, (groups, kinds,
    algorithms) each."""
    shape = costs[0].fixed_s.shape[1], len(costs), max(len(each.fixed_s) for each in costs)
    fixed_s, per_byte_s = np.full(shape, np.inf), np.zeros(shape)
    for kind, each in enumerate(costs):
        count, finite = len(each.fixed_s), np.isfinite(each.fixed_s)
        fixed_s[:, kind, :count] = each.fixed_s.T
        per_byte_s[:, kind, :count] = np.where(finite, each.per_byte_s, 0.0).T
    return fixed_s, per_byte_s


def _stacked(found: list[GroupRates]) -> GroupRates:
    """Rates one after another, of as many levels, starts and algorithms each.

    Those that are added cost nothing, or more than any other.
    """
    *_, levels, starts, algorithms = np.max(
        [rates.fixed_s.shape for rates in found], axis=0
    ).tolist()
    groups = sum(len(rates.sizes) for rates in found)
    fixed_s = np.full((groups, 3, 2, levels, starts, algorithms), np.inf)
    fixed_s[..., 0] = 0.0
    per_byte_s, sizes, first = np.zeros_like(fixed_s), np.ones((groups, 2, levels)), 0
    for rates in found:
        count, _, _, level, start, algorithm = rates.fixed_s.shape
        rows = slice(first, first + count)
        fixed_s[rows, :, :, :level, :start, :algorithm] = rates.fixed_s
        per_byte_s[rows, :, :, :level, :start, :algorithm] = rates.per_byte_s
        sizes[rows, :, :level] = rates.sizes
        first += count
    return GroupRates(fixed_s, per_byte_s, sizes)


def replica_parts(plans: UniformPlans, cluster: Cluster) -> IntArray:
    """Devices with the same parameters by tier, (tiers, N); 0 where they lie unevenly."""
    order = plans.shape.group_order
    if isinstance(order, Assignment):
        return np.array(order.sequence)[:, None] * plans.assigned[:, 0].T
    sizes, strides = replica_levels(plans)
    blocks, rings = cluster.block_sizes, cluster.rings
    each = [
        parts_of(size, stride, plans.devices, blocks, rings)
        for size, stride in zip(sizes, strides, strict=True)
    ]
    parts: IntArray = each[0] * each[1]
    return np.where(parts.all(axis=0), parts, 0)


def replicas_within_first_tier(plans: UniformPlans, cluster: Cluster) -> BoolArray:
    """Whether each plan's replicas lie in one block of the first tier, shape (N,)."""
    within: BoolArray = replica_parts(plans, cluster)[1:].prod(axis=0) == 1
    return within


def _replica_rates(plans: UniformPlans, cluster: Cluster) -> tuple[GroupRates, IntArray]:
    """The same where experts have as many copies as all else, all plans at once."""
    parts = replica_parts(plans, cluster)
    even = parts.all(axis=0)
    distinct, place = np.unique(parts[:, even], axis=1, return_inverse=True)
    rectangles = _rectangle_rates(distinct, cluster)
    if even.all():
        return rectangles, place.reshape(-1)
    others, like = _strided_rates(plans.some(np.flatnonzero(~even)), cluster)
    group = np.empty(len(plans), np.int64)
    group[even], group[~even] = place.reshape(-1), distinct.shape[1] + like
    return _stacked([rectangles, others]), group


def _rectangle_rates(parts: IntArray, cluster: Cluster) -> GroupRates:
    """Rates of the replicas that have ``parts`` (tiers, groups) in each block of every tier."""
    fixed, per_byte = _cost_arrays([rectangle_costs_of(kind, parts, cluster) for kind in KINDS])
    groups, kinds, algorithms = fixed.shape
    fixed_s, per_byte_s = np.zeros((2, groups, kinds, 2, 1, 1, algorithms))
    sizes = np.ones((groups, 2, 1))
    sizes[:, DENSE, 0] = parts.prod(axis=0)
    fixed_s[:, :, DENSE, 0, 0] = fixed
    per_byte_s[:, :, DENSE, 0, 0] = per_byte
    return GroupRates(fixed_s, per_byte_s, sizes)


def _strided_rates(plans: UniformPlans, cluster: Cluster) -> tuple[GroupRates, IntArray]:
    """The same for groups that blocks cut unevenly, level by level, for the slowest."""
    shape, layouts, count = plans.shape, plans.layouts, len(plans)
    sizes, strides = replica_levels(plans)
    # (2, count, starts), -1: none
    ids = np.stack([group_starts(layouts, stride, shape.tp, cluster.period) for stride in strides])
    ids[sizes == 1] = np.where(np.arange(ids.shape[2]) == 0, 0, -1)
    used = ids >= 0
    key = (sizes[..., None] * (int(strides.max()) + 1) + strides[..., None]) * cluster.period + ids
    _, first, line = np.unique(key[used], return_index=True, return_inverse=True)
    size, stride, start = (
        np.broadcast_to(each, ids.shape)[used][first]
        for each in (sizes[..., None], strides[..., None], ids)
    )
    costs = [collective_costs_of(kind, size, stride, cluster, start) for kind in KINDS]
    lines = np.stack(_cost_arrays(costs))
    algorithms = lines.shape[-1]
    # Groups that cost the same count once: of each plan's, the lines in descending order without
    # repetitions.
    flat, like = np.unique(
        np.moveaxis(lines, 1, 0).reshape(len(first), -1), axis=0, return_inverse=True
    )
    ids[used] = like.reshape(-1)[line]
    ids = -np.sort(-ids, axis=2)
    ids[:, :, 1:][ids[:, :, 1:] == ids[:, :, :-1]] = -1
    ids = -np.sort(-ids, axis=2)[:, :, : int((ids >= 0).sum(axis=2).max())]
    table = np.concatenate([np.moveaxis(ids, 0, 1).reshape(count, -1), sizes.T], axis=1)
    found, alike = np.unique(table, axis=0, return_inverse=True)
    chosen = found[:, :-2].reshape(len(found), 2, -1)  # (groups, levels, starts)
    nothing = np.zeros((1, 2, 3, algorithms))
    nothing[:, 0, :, 1:] = np.inf
    # (groups, levels, starts, 2, kinds, algorithms)
    both = np.concatenate([flat.reshape(-1, 2, 3, algorithms), nothing])[chosen]
    fixed_s = np.zeros((len(found), 3, 2, *chosen.shape[1:], algorithms))
    per_byte_s, group_sizes = np.zeros_like(fixed_s), np.ones((len(found), 2, 2))
    fixed_s[:, :, DENSE] = np.moveaxis(both[..., 0, :, :], 3, 1)
    per_byte_s[:, :, DENSE] = np.moveaxis(both[..., 1, :, :], 3, 1)
    group_sizes[:, DENSE] = found[:, -2:]
    return GroupRates(fixed_s, per_byte_s, group_sizes), alike.reshape(-1)


def replica_levels(plans: UniformPlans) -> tuple[IntArray, IntArray]:
    """Sizes and strides of both levels of replicas, innermost first, shape (2, N) each."""
    shape, strides = plans.shape, plans.layouts.replica_strides
    joined, shared = strides == shape.inner_devices, shape.sequence_devices
    sizes = np.stack([np.where(joined, plans.dp * shared, shared), np.where(joined, 1, plans.dp)])
    return sizes, np.stack([np.full(len(plans), shape.tp), strides])


def group_starts(
    layouts: PipelineLayouts, strides: IntArray, members: int, period: int
) -> IntArray:
    """``distinct_starts`` of groups ``strides`` (N,) apart, (N, starts); -1 repeats one."""
    stages, ranks = np.arange(min(int(layouts.pp.max()), period)), np.arange(min(members, period))
    stage = np.minimum(stages, layouts.pp[:, None] - 1) * layouts.stage_strides[:, None]
    starts = (stage[:, :, None] + ranks).reshape(len(strides), -1) % period
    step = np.where(period % strides == 0, strides, 1)[:, None]
    starts = np.sort(starts // step * step, axis=1)
    starts[:, 1:][starts[:, 1:] == starts[:, :-1]] = -1
    return starts
