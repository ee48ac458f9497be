"""Collectives priced group by group in plain loops, and random clusters: what the array formulas
are checked against."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from Estimator.hardware_files import HARDWARE, load_cluster
from Estimator.network.cluster import Cluster, CollectiveLibrary, ShortProtocol, Tier, Topology
from GraphExtractor.graph import CollectiveKind

Cost = tuple[float, float]  # fixed seconds, seconds per byte
FIRST = [each for each in Topology if each is not Topology.RAIL]  # of a first tier
SHIPPED = sorted(path.stem for path in (HARDWARE / "clusters").glob("*.yaml"))


@dataclass(frozen=True)
class Crossing:
    """A group on one tier: most members in a block within it, most in a block of it, steps of a
    ring, members of the emptiest."""

    tier: Tier
    inside: int
    together: int
    hops: int
    ports: int
    bandwidth: float
    spacing: int = 1  # along a torus: blocks from a member to the next
    positions: int = 1
    # of the peers that a member of the emptiest block has on this tier of rails those on another
    # rail
    changing: int = 0

    @property
    def width(self) -> int:
        return math.ceil(self.together / self.inside)


def share(tier: Tier, members: int, positions: int, spacing: int) -> float:
    if members <= 1 or positions <= 1:
        return 1.0
    if tier.topology is Topology.MESH:
        return (members - 1) / (positions - 1)
    if tier.topology is Topology.HYPERCUBE:
        return math.log(members) / math.log(positions)
    if tier.topology is Topology.TORUS:
        return (1.0 if members * spacing == positions else 0.5) / spacing
    return 1.0


def crossings_by_hand(size: int, stride: int, cluster: Cluster, first: int) -> list[Crossing]:
    """Tiers up to the one that joins all; members are counted block by block."""
    crossed: list[Crossing] = []
    members = [first + index * stride for index in range(size)]
    counts, within = [1] * size, 1
    for tier in cluster.tiers:
        shared = Counter(member // tier.group_size for member in members)
        blocks = [size] if tier is cluster.tiers[-1] else list(shared.values())
        inside, together = max(counts), max(blocks)
        positions, spacing = tier.group_size // within, 1
        if tier.topology is Topology.TORUS and len(counts) != len(blocks):
            spacing = max(math.ceil(stride / within), 1)
        part = share(tier, math.ceil(together / inside), positions, spacing)
        bandwidth, hops, changing = (
            tier.bandwidth_bytes_per_s * tier.efficiency * part,
            len(counts) - len(blocks),
            0,
        )
        if tier.topology is Topology.RAIL and hops:
            places: dict[int, set[int]] = {}
            for member in members:
                places.setdefault(member // within, set()).add(member % within)
            on_rails = len({frozenset(each) for each in places.values()}) == 1
            changing = (
                together - min(counts) - (math.ceil(together / inside) - 1 if on_rails else 0)
            )
            if not on_rails:
                below = cluster.tiers[cluster.tiers.index(tier) - 1]
                bandwidth = min(bandwidth, below.bandwidth_bytes_per_s * below.efficiency)
                tier = later(tier, below)
        if spacing > 1:  # hop by hop
            short = tier.short and replace(tier.short, latency_s=spacing * tier.short.latency_s)
            tier = replace(tier, latency_s=spacing * tier.latency_s, short=short)
        crossed.append(
            Crossing(
                tier, inside, together, hops, min(counts), bandwidth, spacing, positions, changing
            )
        )
        counts, within = blocks, tier.group_size
        if len(blocks) == 1:
            break
    return crossed


def later(tier: Tier, below: Tier) -> Tier:
    """``tier`` whose steps pass the tier ``below`` first."""
    short = tier.short and replace(
        tier.short, latency_s=tier.short.latency_s + below.for_short.latency_s
    )
    return replace(tier, latency_s=tier.latency_s + below.latency_s, short=short)


def costs_by_hand(
    kind: CollectiveKind, size: int, stride: int, cluster: Cluster, first: int = 0
) -> dict[str, Cost]:
    """Algorithms of a group of at least 2 devices."""
    crossed = crossings_by_hand(size, stride, cluster, first)
    if kind is CollectiveKind.ALL_TO_ALL:
        above = [*(each.changing for each in crossed[1:]), 0]
        used = [
            (each, more) for each, more in zip(crossed, above, strict=True) if each.hops or more
        ]
        used = [
            (replace(each, tier=cluster.tiers[crossed.index(each)]), more) for each, more in used
        ]  # each hop by itself
        return exchange(size, used, cluster.library is not None)
    return (
        textbook(kind, size, crossed)
        if cluster.library is None
        else library(kind, size, crossed, cluster.library)
    )


def tree(size: int, crossed: list[Crossing], one_way: bool) -> Cost:
    """Levels of two under switches; along a torus half of its width, over one link each way."""
    start_s, latency_s = (
        max(each.tier.start_s for each in crossed),
        max(each.tier.latency_s for each in crossed),
    )
    steps_s, bandwidths = (
        math.ceil(math.log2(size)) * latency_s,
        [each.bandwidth for each in crossed],
    )
    if any(each.hops and each.tier.topology is Topology.TORUS for each in crossed):
        steps_s = 0.0
        for each in crossed:
            torus = each.tier.topology is Topology.TORUS
            line = one_way and each.width * each.spacing != each.positions
            across = each.width - 1 if line else each.width // 2
            steps_s += (across if torus else math.ceil(math.log2(each.width))) * each.tier.latency_s
    for place, each in enumerate(crossed):
        if each.tier.topology is Topology.TORUS:
            bandwidths[place] = (
                each.tier.bandwidth_bytes_per_s * each.tier.efficiency / 2 / each.spacing
            )
    return start_s + steps_s, 1 / min(bandwidths)


def rooted(size: int, crossed: list[Crossing]) -> dict[str, Cost]:
    """From one device to all: down a chain or a tree, or scattered inside, sent on from everywhere,
    and gathered inside."""
    start_s, latency_s = (
        max(each.tier.start_s for each in crossed),
        max(each.tier.latency_s for each in crossed),
    )
    slowest = 1 / min(each.bandwidth for each in crossed)
    found = {
        "chain": (start_s + (size - 1) * latency_s, slowest),
        "tree": tree(size, crossed, one_way=True),
    }
    if all(each.together % each.inside == 0 for each in crossed):
        *inner, outer = crossed
        steps_s = [(each.width - 1) * each.tier.latency_s for each in inner]
        scattered = [(each.width - 1) / each.together / each.bandwidth for each in inner]
        fixed_s = start_s + (outer.width - 1) * outer.tier.latency_s + 2 * sum(steps_s)
        found["tier by tier"] = (fixed_s, 1 / outer.inside / outer.bandwidth + 2 * sum(scattered))
    return found


def textbook(kind: CollectiveKind, size: int, crossed: list[Crossing]) -> dict[str, Cost]:
    if kind in (CollectiveKind.BROADCAST, CollectiveKind.REDUCE):
        return rooted(size, crossed)
    twice = 2 if kind is CollectiveKind.ALL_REDUCE else 1
    bandwidth = min(each.bandwidth for each in crossed)
    latency_s, start_s = (
        max(each.tier.latency_s for each in crossed),
        max(each.tier.start_s for each in crossed),
    )
    passing = kind is CollectiveKind.PASS
    ring_s = (size - 1 if passing else 1) * start_s + (size - 1) * latency_s
    found = {"ring": (ring_s, (size - 1) / size / bandwidth)}
    if not passing:
        found["tree"] = tree(size, crossed, one_way=twice == 1)
    if all(each.together % each.inside == 0 for each in crossed):
        steps_s = (
            ring_s
            if passing
            else start_s + sum((each.width - 1) * each.tier.latency_s for each in crossed)
        )
        found["tier by tier"] = (
            steps_s,
            sum((each.width - 1) / each.together / each.bandwidth for each in crossed),
        )
        used = [each for each in crossed if each.hops]
        if all(each.tier.topology is Topology.TORUS for each in used):
            found["torus"] = (steps_s, (size - 1) / size / sum(each.bandwidth for each in used))
    return {
        name: (twice * fixed_s, twice * per_byte_s) for name, (fixed_s, per_byte_s) in found.items()
    }


def library(
    kind: CollectiveKind, size: int, crossed: list[Crossing], software: CollectiveLibrary
) -> dict[str, Cost]:
    reduces = kind is CollectiveKind.ALL_REDUCE
    rounds, copies = 2 if reduces else 1, 2 if kind is CollectiveKind.ALL_GATHER else 1
    part = (size - 1) / size
    if kind in (CollectiveKind.BROADCAST, CollectiveKind.REDUCE):
        copies, part = 0, 1.0
    used, tree = [each for each in crossed if each.hops], reduces and len(crossed) > 1
    copy_s = copies * software.copy_share / size / crossed[0].bandwidth if crossed[0].hops else 0.0
    levels = [
        each.width - 1 if each is crossed[0] else 2 * math.ceil(math.log2(each.width))
        for each in used
    ]
    hops, start_s = [each.hops for each in used], max(each.tier.start_s for each in used)
    steps_s = [
        each.tier.latency_s + (0.0 if each is crossed[-1] else crossed[-1].tier.inner_latency_s)
        for each in used
    ]
    slowest_s = max(
        (1 + each.tier.relay_stall / each.ports) / (each.ports * each.bandwidth) for each in used
    )
    starts = size - 1 if kind is CollectiveKind.PASS else 1  # each step is a message of its own
    found = {
        "ring": (starts * start_s + rounds * dot(hops, steps_s), rounds * part * slowest_s + copy_s)
    }
    if tree:
        found["tree"] = (
            start_s + rounds * dot(levels, steps_s),
            rounds * slowest_s / software.tree_efficiency + copy_s,
        )
    shorts = [each.tier.short for each in used if each.tier.short is not None]
    if len(shorts) == len(used):
        start_s, steps_s = (
            max(short.start_s for short in shorts),
            [short.latency_s for short in shorts],
        )
        bandwidths = [
            each.bandwidth / each.tier.efficiency * short.efficiency
            for each, short in zip(used, shorts, strict=True)
        ]
        bytes_s = [
            1 / (each.ports * bandwidth) for each, bandwidth in zip(used, bandwidths, strict=True)
        ]
        found["short ring"] = (
            starts * start_s + rounds * dot(hops, steps_s),
            rounds * part * max(bytes_s),
        )
        if tree:
            found["short tree"] = (
                start_s + rounds * dot(levels, steps_s),
                rounds * dot(levels, bytes_s),
            )
    return found


def exchange(size: int, passed: list[tuple[Crossing, int]], posted: bool) -> dict[str, Cost]:
    """Over the tiers ``passed``, each with the messages that change rails beyond it."""
    used, peers = (
        [each for each, _ in passed],
        [each.together - each.ports + more for each, more in passed],
    )
    passing = []
    for each, count in zip(used, peers, strict=True):
        part = count / size
        if each.tier.topology is Topology.TORUS:
            part = each.width**2 // 4 / each.width
        elif each.tier.topology is Topology.HYPERCUBE:
            part *= math.log2(each.width) / 2 * each.width / (each.width - 1)
        passing.append(part)
    if not posted:
        fixed_s = max(each.tier.start_s for each in used) + dot(
            peers, [each.tier.latency_s for each in used]
        )
        return {"pairwise": (fixed_s, dot(passing, [1 / each.bandwidth for each in used]))}
    found = {}
    for name, quick in (("exchange", False), ("short exchange", True)):
        protocols = [each.tier.short if quick else each.tier for each in used]
        speeds = [
            (each.start_s, each.latency_s, each.efficiency)
            for each in protocols
            if each is not None
        ]
        if len(speeds) == len(used):
            fixed_s = max(start_s for start_s, _, _ in speeds)
            fixed_s += sum(
                math.ceil(count / 8) * latency_s
                for count, (_, latency_s, _) in zip(peers, speeds, strict=True)
            )
            bandwidths = [
                each.bandwidth / each.tier.efficiency * speed[2]
                for each, speed in zip(used, speeds, strict=True)
            ]
            found[name] = (
                fixed_s,
                max(part / bandwidth for part, bandwidth in zip(passing, bandwidths, strict=True)),
            )
    return found


def dot(counts: list[int] | list[float], seconds: list[float]) -> float:
    return sum(count * each for count, each in zip(counts, seconds, strict=True))


@st.composite
def random_clusters(draw: st.DrawFn, most_devices: int = 4096) -> Cluster:
    """One to three tiers that nest, of any topology, with and without a library and protocols for
    short messages."""
    sizes = [draw(st.integers(1, 12))]
    for factor in draw(st.lists(st.integers(2, 12), max_size=2)):
        sizes.append(sizes[-1] * factor)
    seconds, part = st.floats(0, 1e-4), st.floats(0.05, 1.0)
    tiers = []
    for position, size in enumerate(sizes):
        rails = [Topology.RAIL] if tiers and tiers[-1].topology is Topology.SWITCH else []
        outer = st.sampled_from([Topology.SWITCH, Topology.TORUS, *rails])
        tiers.append(
            Tier(
                str(position),
                size,
                draw(st.floats(1e9, 1e12)),
                draw(seconds),
                draw(part),
                draw(seconds),
                draw(outer if position else st.sampled_from(FIRST)),
                draw(st.floats(0, 1)),
                draw(seconds),
                draw(st.none() | st.builds(ShortProtocol, seconds, seconds, part)),
            )
        )
    software = draw(st.none() | st.builds(CollectiveLibrary, part, part))
    return Cluster(
        "random",
        draw(st.integers((sizes[-1] + 1) // 2, min(sizes[-1], most_devices))),
        tuple(tiers),
        software,
    )


def clusters() -> st.SearchStrategy[Cluster]:
    """Those that ship, and random ones."""
    return st.sampled_from(SHIPPED).map(load_cluster) | random_clusters()
