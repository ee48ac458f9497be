"""How a plan's groups lie in the domains of a network: whole ones in each, as schedulers place
them, and what must cross them.

By an order of groups the devices of a plan follow one another. Where the devices of a domain (a
rack of 72) are no multiple of a group that fits into it (of 32), consecutive groups would straddle
two domains. Schedulers leave devices idle instead: a domain holds the largest multiple of the group
(64 of 72), and the plan occupies more domains. Here the same is done on every tier for the groups
of every axis, the largest that fit deciding, as far as the cluster has domains enough;
``used_part`` is the cluster as such a plan sees it. An ``Assignment`` says itself what lies where.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import mul

from Estimator.network.cluster import SWITCHED, Cluster
from Estimator.plans.assignment import Assignment
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import divided_levels

WITHIN_LAYERS = ("tp", "tp2", "cp", "ep")  # axes whose groups communicate in every layer


@dataclass(frozen=True)
class DomainUse:
    """What a plan uses of the domains of a tier, all but the outermost of a cluster."""

    tier: str  # whose groups of devices the domains are
    devices: int  # of a domain
    used: int  # of these, in domains that are full
    domains: int  # that hold devices of the plan


@dataclass(frozen=True)
class CrossingGroup:
    """Groups of an axis that no domain of a tier holds as a whole."""

    axis: str  # tp, tp2, cp, ep, dp or pp
    tier: str  # whose domains they cross
    devices: int  # from the first of a group to its last, whatever lies between
    avoidable: bool  # they would fit into a domain, but there are too few of these for all of them


@dataclass(frozen=True)
class Placement:
    """Where the groups of a plan lie. ``devices_occupied`` are those of the cluster that nobody
    else can have: also idle ones."""

    devices: int  # in use
    devices_occupied: int  # also idle ones of domains that are not filled
    domains: tuple[DomainUse, ...]  # of all tiers but the outermost
    crossing: tuple[CrossingGroup, ...]  # groups that no domain holds

    @property
    def sentences(self) -> tuple[str, ...]:
        """What to tell of it: domains not filled, and groups that need not cross them."""
        found = []
        for each in self.domains:
            if each.used < each.devices and each.domains > 1:
                found.append(
                    f"whole groups in each {each.tier}: {each.used} of its {each.devices} devices "
                    f"are used, so that the {self.devices:,} devices of the plan occupy "
                    f"{each.domains * each.devices:,} in {each.domains:,} of them"
                )
        for group in self.crossing:
            size = next(each.devices for each in self.domains if each.tier == group.tier)
            if group.axis in WITHIN_LAYERS or group.avoidable:
                why = ", although each would fit: whole ones in each leave no room for all"
                why = why if group.avoidable else ""
                found.append(
                    f"groups of {group.axis} reach over {group.devices:,} devices and cross "
                    f"{group.tier} of {size}{why}"
                )
        return tuple(found)


def used_part(plan: UniformPlan, cluster: Cluster) -> Cluster:
    """``cluster`` with as many devices in each domain as ``plan`` uses; itself where it fills them
    or says what lies where."""
    sizes = _used_sizes(tuple(_reaches(plan).values()), plan.devices, cluster)
    return cluster if sizes == cluster.block_sizes[1:] else _with_domains(cluster, sizes)


def placement_of(plan: UniformPlan, cluster: Cluster, used_cluster: Cluster) -> Placement:
    """Where the groups of ``plan`` lie on ``cluster``, of which it uses ``used_cluster``
    (``used_part``, or all of it)."""
    assigned = plan.group_order if isinstance(plan.group_order, Assignment) else None
    whole = cluster.block_sizes[1:]
    sizes = used_cluster.block_sizes[1:]
    if assigned:
        sizes = tuple(accumulate(assigned.over(len(cluster.tiers)).occupied[:-1], mul))
    domains = tuple(
        DomainUse(tier.name, size, min(used, plan.devices), -(-plan.devices // max(used, 1)))
        for tier, size, used in zip(cluster.tiers, whole, sizes, strict=False)
    )
    full = [each.domains * each.devices for each in domains if each.domains > 1]
    crossing = tuple(_crossing(plan, cluster, sizes))
    occupied = min(max([plan.devices, *full]), max(extent(cluster), plan.devices))
    return Placement(plan.devices, occupied, domains, crossing)


def extent(cluster: Cluster) -> int:
    """Devices that are there: of a cluster of which a part is used also the others."""
    return max(cluster.num_devices, cluster.tiers[-1].group_size)


def _reaches(plan: UniformPlan) -> dict[str, int]:
    """Devices from the first to the last of a group of each axis, by an order of groups."""
    if isinstance(plan.group_order, Assignment):
        return {}
    of_experts = [level.size * level.stride for level in divided_levels(plan)[0]]
    return {
        "tp": plan.tp,
        "tp2": plan.tp * plan.tp2 if plan.tp2 > 1 else 1,
        "cp": plan.inner_devices if plan.cp > 1 else 1,
        "ep": max(of_experts) if plan.ep > 1 else 1,
        "dp": plan.replica_stride * plan.dp if plan.dp > 1 else 1,
        "pp": plan.stage_stride * plan.pp if plan.pp > 1 else 1,
    }


@lru_cache(maxsize=65536)
def _used_sizes(reaches: tuple[int, ...], devices: int, cluster: Cluster) -> tuple[int, ...]:
    """Devices used of each domain, innermost first; all where nothing is to be gained."""
    whole = cluster.block_sizes[1:]
    if not reaches or not whole:
        return whole
    units = sorted({each for each in reaches if each > 1})
    while True:
        sizes = tuple(_filled(units, devices, cluster))
        blocks = extent(cluster) // whole[-1]
        if sizes == whole or devices <= blocks * sizes[-1]:
            return sizes
        units.pop()


def _filled(units: list[int], devices: int, cluster: Cluster) -> Iterator[int]:
    """Devices used of each domain where whole groups of ``units`` lie in it if they fit."""
    used = 1
    for tier, (inner, outer) in zip(cluster.tiers, pairwise(cluster.block_sizes), strict=False):
        room, multiple = outer // inner * used, used
        # where links lead to certain others, a part of a domain has fewer
        if tier.topology not in SWITCHED:
            yield (used := room)
            continue
        for unit in units:
            together = math.lcm(multiple, unit)
            multiple = together if together <= room else multiple
        used = room // multiple * multiple if devices > room else room
        yield used


def _crossing(
    plan: UniformPlan, cluster: Cluster, sizes: tuple[int, ...]
) -> Iterator[CrossingGroup]:
    """Groups that cross domains of which so many devices are used."""
    if isinstance(plan.group_order, Assignment):
        assigned = plan.group_order.over(len(cluster.tiers))
        for axis in ("tp", "tp2", "cp", "ep", "dp", "pp"):
            parts = getattr(assigned, axis)
            for place, tier in enumerate(cluster.tiers[:-1]):
                if math.prod(parts[place + 1 :]) > 1:
                    yield CrossingGroup(axis, tier.name, math.prod(parts), avoidable=False)
        return
    for axis, reach in _reaches(plan).items():
        for tier, size, used in zip(cluster.tiers, cluster.block_sizes[1:], sizes, strict=False):
            if reach > 1 and plan.devices > used and (reach > used or used % reach):
                yield CrossingGroup(axis, tier.name, reach, avoidable=reach <= size)


def _with_domains(cluster: Cluster, sizes: tuple[int, ...]) -> Cluster:
    """``cluster`` whose inner tiers join so many devices of those that are there."""
    blocks = extent(cluster) // cluster.block_sizes[-1]
    inner, last = cluster.tiers[:-1], cluster.tiers[-1]
    tiers = [replace(tier, group_size=size) for tier, size in zip(inner, sizes, strict=True)]
    outer = replace(last, group_size=blocks * sizes[-1])
    return replace(cluster, tiers=(*tiers, outer), num_devices=blocks * sizes[-1])
