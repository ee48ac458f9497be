"""Records of clusters: tiers of links and a communication library. Numbers come from
``Estimator/hardware/clusters/*.yaml``."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

import numpy as np

from phaze_common.array_types import FloatArray, IntArray
from phaze_common.errors import InputError


class Topology(StrEnum):
    """How the blocks that a tier joins are linked, which says how much of its bandwidth a part of
    them can use."""

    SWITCH = "switch"  # any device reaches any other at its full bandwidth
    MESH = "mesh"  # a direct link between every two devices
    # links along log2(devices) dimensions, as in the hybrid cube mesh of DGX-1
    HYPERCUBE = "hypercube"
    # a ring: links to two neighbours; consecutive torus tiers are the dimensions of one torus
    TORUS = "torus"
    # a switch for every place in a block: devices in the same place reach each other, others
    # through their block
    RAIL = "rail"


SWITCHED = frozenset({Topology.SWITCH, Topology.RAIL})


@dataclass(frozen=True)
class ShortProtocol:
    """A library's protocol for short messages over one tier: less time per step, less bandwidth
    (NCCL's LL)."""

    start_s: float  # once per collective
    latency_s: float  # per step
    efficiency: float  # of the bandwidth


@dataclass(frozen=True)
class Tier:
    """A level of the network: groups of ``group_size`` devices (cumulative, innermost first) joined
    at this speed.

    ``bandwidth_bytes_per_s`` is the peak of the links, per device and one direction, with all
    devices of a group active (a node with fewer ports than devices divides them); long messages
    reach its part ``efficiency``. A collective pays the largest ``start_s`` of its tiers once, and
    ``latency_s`` for every step. The rest describes rings of a library that go over several tiers:
    ``relay_stall`` is the extra time of bytes that a device takes from this tier and hands on over
    it, without an inner hop between; ``inner_latency_s`` what a step over an inner tier takes
    longer in a ring that goes on over this one, which has fewer channels, as many as this tier can
    feed, and so longer slices. ``link_parts``: into how many equal parts a chip's own links are
    divided, of which this tier runs over one (``Estimator.network.own_links``); 0: over none of
    them.
    """

    name: str
    group_size: int
    bandwidth_bytes_per_s: float
    latency_s: float
    efficiency: float = 1.0
    start_s: float = 0.0
    topology: Topology = Topology.SWITCH  # how the blocks that it joins are linked
    relay_stall: float = 0.0
    inner_latency_s: float = 0.0
    short: ShortProtocol | None = None  # protocol for short messages; None: none of its own
    link_parts: int = 0

    def directions(self, positions: int) -> int:
        """Over how many links at least a device reaches its neighbours on this tier, which joins
        ``positions`` blocks."""
        match self.topology:
            case Topology.MESH:
                return max(positions - 1, 1)
            case Topology.HYPERCUBE:
                return max(round(math.log2(positions)), 1)
            case Topology.TORUS:
                return 2
        return 1

    def share(self, members: IntArray, positions: int, spacing: IntArray | int = 1) -> FloatArray:
        """Part of its bandwidth that a device can use in a collective of ``members`` (of any shape)
        of ``positions`` blocks.

        Along a torus members may lie ``spacing`` blocks apart: groups of those between them share
        the same links.
        """
        several = np.maximum(members, 2)
        if positions <= 1 or self.topology in SWITCHED:
            return np.ones(several.shape)
        match self.topology:
            case Topology.MESH:
                part = (several - 1) / (positions - 1)
            case Topology.HYPERCUBE:
                part = np.log2(several) / math.log2(positions)
            case (
                Topology.TORUS
            ):  # part of a ring is a line: nothing comes back over the link that closes the ring
                part = np.where(several * spacing == positions, 1.0, 0.5) / spacing
        return np.where(members > 1, part, 1.0)

    @property
    def for_short(self) -> Tier | ShortProtocol:
        """The protocol of short messages; that of long ones where there is no other."""
        return self.short or self

    @cached_property
    def pair_bytes_per_s(self) -> float:
        """Bandwidth of a long message from one device to one other over this tier."""
        reached = self.bandwidth_bytes_per_s * self.efficiency
        if self.topology is Topology.TORUS:
            return reached / 2
        return reached * float(self.share(np.array(2), self.group_size))


@dataclass(frozen=True)
class CollectiveLibrary:
    """A library that runs collectives as NCCL does: rings through the ports of all members at once,
    pipelined; and trees.

    ``tree_efficiency`` is the bandwidth of its trees as part of that of its rings. ``copy_share``
    is the time of copying a byte within a device as part of that of moving it over the innermost
    links: a reduce-scatter or all-reduce writes each device's own part of the result once, an
    all-gather reads and writes it.
    """

    tree_efficiency: float
    copy_share: float


@dataclass(frozen=True)
class Hosts:
    """The hosts of a cluster: how many devices each has, and how many of these share a link to it
    as wide as one device's.

    ``memory_bytes`` are those of one host (None: not known, and so no limit).
    """

    devices: int  # of one host
    sharing: int = 1  # devices that share a link to it
    memory_bytes: float | None = None

    @property
    def bytes_per_device(self) -> float | None:
        """What each device has of its host's memory."""
        return None if self.memory_bytes is None else self.memory_bytes / self.devices


@dataclass(frozen=True)
class Cluster:
    """``num_devices`` devices on a network of tiers, innermost first; the last tier spans the
    cluster.

    Without a ``library`` collectives cost what the textbook says (``Estimator.network.textbook``).
    Without ``hosts`` every device has a link of its own to a host of unknown memory.
    """

    name: str
    num_devices: int
    tiers: tuple[Tier, ...]  # innermost first
    library: CollectiveLibrary | None = None
    hosts: Hosts | None = None

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """Devices in a block of what each tier joins, innermost first: 1, then the groups of the
        inner tiers."""
        return (1, *(tier.group_size for tier in self.tiers[:-1]))

    @property
    def node_size(self) -> int:
        """Devices of a host or, where hosts are not described, of a block of the innermost tier of
        several."""
        if self.hosts is not None:
            return self.hosts.devices
        return self.tiers[0].group_size if len(self.tiers) > 1 else min(self.num_devices, 8)

    @property
    def rings(self) -> tuple[bool, ...]:
        """Which tiers are dimensions of a torus, on which it matters how far members of a group lie
        apart."""
        return tuple(tier.topology is Topology.TORUS for tier in self.tiers)

    @property
    def period(self) -> int:
        """Devices after which the blocks within the last tier repeat: what starts as many apart
        sees the same links."""
        return max((tier.group_size for tier in self.tiers[:-1]), default=1)


def grown_to(cluster: Cluster, num_devices: int) -> Cluster:
    """``cluster`` with ``num_devices``, at least as many as it has, in more of the blocks that its
    last tier joins."""
    *inner, last = cluster.tiers
    block = inner[-1].group_size if inner else 1
    outer = replace(last, group_size=max(last.group_size, -(-num_devices // block) * block))
    return replace(cluster, num_devices=num_devices, tiers=(*inner, outer))


def with_devices(cluster: Cluster, num_devices: int) -> Cluster:
    """The part of ``cluster`` that holds its first ``num_devices`` devices, without tiers that join
    nothing more.

    Raises:
        InputError: the cluster has fewer devices.
    """
    if not 1 <= num_devices <= cluster.num_devices:
        raise InputError(
            f"cluster {cluster.name} has {cluster.num_devices} devices, {num_devices} were asked "
            "for; ask for fewer"
        )
    needed = 1 + next(
        level for level, tier in enumerate(cluster.tiers) if tier.group_size >= num_devices
    )
    return replace(cluster, num_devices=num_devices, tiers=cluster.tiers[:needed])


def with_fast_domain(cluster: Cluster, devices: int) -> Cluster:
    """``cluster`` with ``devices`` in each group of its innermost tier (an NVLink domain, for
    instance), at the tier's own speed.

    A tier further out that joins no more than that is left out.

    Raises: InputError: the cluster has one tier, its innermost one is no switch, it has fewer
        devices, or an outer group is not a
            whole number of such domains.
    """
    fast, *outer = cluster.tiers
    what = f"fast_domain {devices}"
    if not outer:
        raise InputError(
            f"{what}: cluster {cluster.name} has one tier, and so no fast domain; leave it out, "
            "or name another cluster"
        )
    if fast.topology is not Topology.SWITCH:
        raise InputError(
            f"{what}: the innermost tier of cluster {cluster.name} is a {fast.topology.value}, "
            "whose speed depends on its size; "
            "leave it out, or name a cluster whose nodes have a switch"
        )
    if devices > cluster.num_devices:
        raise InputError(
            f"{what}: cluster {cluster.name} has {cluster.num_devices} devices; ask for at most "
            "as many"
        )
    outer_tiers = [tier for tier in outer if tier.group_size > devices] or outer[-1:]
    uneven = next((tier for tier in outer_tiers if tier.group_size % devices), None)
    if uneven is not None:
        raise InputError(
            f"{what}: {uneven.group_size} devices of tier {uneven.name} of cluster {cluster.name} "
            "are not a whole number of such domains; give a number that divides it"
        )
    return replace(cluster, tiers=(replace(fast, group_size=devices), *outer_tiers))
