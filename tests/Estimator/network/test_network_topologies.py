"""Collectives on every topology: lower bounds that hold anywhere, and simulations of small networks
link by link."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from Estimator.chips.cost import load_prices, switches_usd
from Estimator.chips.own_links import own_links
from Estimator.hardware_files import HARDWARE, load_cluster
from Estimator.network.cluster import Cluster, Tier, Topology
from Estimator.network.collectives import collective_costs, collective_s
from Estimator.network.links import (
    PipelineLayouts,
    boundary_tiers,
    carried_tiers,
    end_tiers,
    routes,
    transfer_costs,
)
from Estimator.network.own_links import over_links
from GraphExtractor.graph import CollectiveKind
from phaze_common.errors import InputError
from Solver.chip_metrics import cluster_switches_usd

TOPOLOGIES = {
    "torus_2d": "4x50GB/s",
    "torus_3d": "6x50GB/s",
    "fully_connected": "7x64GB/s",
    "rail_optimised": "18x25GB/s",
}
TOPOLOGIES |= {"dgx_h100": "18x25GB/s"}
KINDS = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
)
GROUPS = [
    (2, 1),
    (4, 1),
    (8, 1),
    (16, 1),
    (64, 1),
    (256, 1),
    (4, 8),
    (16, 8),
    (16, 16),
    (2, 4),
    (8, 4),
    (3, 5),
    (6, 3),
]
FAR = {CollectiveKind.ALL_REDUCE: 2.0}


def torus(dims: tuple[int, ...], bandwidth: float = 2.0) -> Cluster:
    sizes = list(itertools.accumulate(dims, lambda one, two: one * two))
    return Cluster(
        "torus",
        sizes[-1],
        tuple(
            Tier(str(k), n, bandwidth, 0.0, topology=Topology.TORUS) for k, n in enumerate(sizes)
        ),
    )


def rails(
    inner: float = 10.0, outer: float = 1.0, latency: float = 0.0, blocks: int = 4, block: int = 4
) -> Cluster:
    near = Tier("near", block, inner, latency)
    return Cluster(
        "rails",
        block * blocks,
        (near, Tier("far", block * blocks, outer, 10 * latency, topology=Topology.RAIL)),
    )


def switched(cluster: Cluster) -> Cluster:
    """The same with a switch between all in place of rails."""
    return replace(
        cluster, tiers=tuple(replace(tier, topology=Topology.SWITCH) for tier in cluster.tiers)
    )


def per_byte(
    kind: CollectiveKind, cluster: Cluster, size: int, stride: int = 1, first: int = 0
) -> float:
    return min(cost.per_byte_s for cost in collective_costs(kind, size, stride, cluster, first))


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("kind", KINDS)
def test_no_device_sends_faster_than_all_of_its_links(name: str, kind: CollectiveKind) -> None:
    """Each must send (n-1)/n of the tensor, in an all-reduce twice (Patarin & Yuan 2009), over
    links of all tiers at most."""
    cluster = load_cluster(name)
    for size, stride in GROUPS:
        if (size - 1) * stride < cluster.num_devices:
            links = sum(tier.bandwidth_bytes_per_s * tier.efficiency for tier in cluster.tiers)
            least_s = FAR.get(kind, 1.0) * (size - 1) / size * 1e9 / links
            assert collective_s(kind, 1e9, size, stride, cluster) >= least_s


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_more_bandwidth_is_never_slower_on_any_topology(name: str) -> None:
    text, cluster = TOPOLOGIES[name], load_cluster(name)
    count, _, each = text.partition("x")
    twice = own_links(f"{2 * int(count)}x{each}")
    slow, fast = over_links(cluster, own_links(text)), over_links(cluster, twice)
    for (size, stride), kind, payload in itertools.product(GROUPS, KINDS, (1e4, 1e9)):
        if (size - 1) * stride < cluster.num_devices:
            assert collective_s(kind, payload, size, stride, fast) <= collective_s(
                kind, payload, size, stride, slow
            )
    assert collective_s(KINDS[0], 1e9, 8, 1, fast) < collective_s(KINDS[0], 1e9, 8, 1, slow)


@pytest.mark.parametrize("dims", [(4,), (5,), (4, 4), (2, 4), (3, 5), (4, 2, 4)])
def test_reductions_and_gathers_over_a_whole_torus_reach_the_bound_of_all_its_links(
    dims: tuple[int, ...],
) -> None:
    size = math.prod(dims)
    for kind in (
        CollectiveKind.ALL_GATHER,
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.ALL_REDUCE,
    ):
        bound = FAR.get(kind, 1.0) * (size - 1) / size / (2.0 * len(dims))
        assert per_byte(kind, torus(dims), size) == pytest.approx(bound)


@pytest.mark.parametrize("dims", [(4,), (5,), (4, 4), (2, 4), (3, 5), (4, 2, 4)])
def test_a_tree_along_a_torus_takes_as_many_steps_as_its_farthest_device_is_away(
    dims: tuple[int, ...],
) -> None:
    """Breadth first from any device: each link, one of two along each dimension, carries the whole
    tensor."""
    cluster, size = torus(dims), math.prod(dims)
    slow = replace(cluster, tiers=tuple(replace(tier, latency_s=1.0) for tier in cluster.tiers))
    farthest = max(
        sum(min(at, width - at) for at, width in zip(place, dims, strict=True))
        for place in places_of(dims)
    )
    for kind, times in ((CollectiveKind.BROADCAST, 1), (CollectiveKind.ALL_REDUCE, 2)):
        (tree,) = (
            each for each in collective_costs(kind, size, 1, slow) if each.algorithm == "tree"
        )
        assert (tree.fixed_s, tree.per_byte_s) == (times * farthest, times * 1.0)


def places_of(dims: tuple[int, ...]) -> list[tuple[int, ...]]:
    return list(itertools.product(*map(range, dims)))


ON_RINGS = [
    (n, s, p)
    for p in (4, 6, 8, 16)
    for n in range(2, p + 1)
    for s in range(1, p)
    if n * s <= p and p % (n * s) == 0
]


@pytest.mark.parametrize(("size", "stride", "ring"), ON_RINGS)
def test_groups_along_a_ring_are_held_up_by_those_between_them(
    size: int, stride: int, ring: int
) -> None:
    """What must leave any arc of devices leaves over its two ends, all groups at once; and no
    message skips a device."""
    cluster = torus((ring,))
    slow = replace(cluster, tiers=tuple(replace(tier, latency_s=1.0) for tier in cluster.tiers))
    groups = [
        {first + block + stride * k for k in range(size)}
        for block in range(0, ring, size * stride)
        for first in range(stride)
    ]
    leaving = 0.0
    for start, length in itertools.product(range(ring), range(1, ring)):
        arc = {(start + at) % ring for at in range(length)}
        leaving = max(leaving, sum(len(group & arc) / size for group in groups if group - arc))
    farthest = max(min(abs(a - b), ring - abs(a - b)) for a in groups[0] for b in groups[0])
    for kind in (
        CollectiveKind.ALL_GATHER,
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.ALL_REDUCE,
    ):
        times = FAR.get(kind, 1.0)
        assert per_byte(kind, cluster, size, stride) >= leaving / 2.0 * (1 - 1e-12)
        costs = collective_costs(kind, size, stride, slow)
        assert min(cost.fixed_s for cost in costs) >= farthest
        assert (
            per_byte(kind, cluster, size, stride) <= 4 * times * leaving / 2.0
        )  # and no group waits for longer than that
    assert (
        per_byte(CollectiveKind.ALL_TO_ALL, cluster, size, stride)
        >= leaving * (size - 1) / size / 4.0
    )


def simulated_torus(dims: tuple[int, ...], links_bytes_per_s: float) -> float:
    """Seconds of an all-to-all of one byte per device, dimension by dimension, each message the
    shorter way round."""
    total_s, places = 0.0, list(itertools.product(*map(range, dims)))
    for axis, width in enumerate(dims):
        load: dict[tuple[Any, ...], float] = defaultdict(float)
        for place in (
            places
        ):  # every device holds a byte, of which as much goes to each place along the dimension
            for hops in range(1, width):
                ways = (
                    [(1, hops)]
                    if 2 * hops < width
                    else [(-1, width - hops)]
                    if 2 * hops > width
                    else [(1, hops), (-1, hops)]
                )
                for way, steps in ways:
                    for step in range(steps):
                        at = (place[axis] + way * step) % width
                        load[*place[:axis], at, *place[axis + 1 :], way] += 1 / width / len(ways)
        total_s += max(load.values()) / links_bytes_per_s
    return total_s


@pytest.mark.parametrize("dims", [(2,), (4,), (5,), (6,), (4, 4), (2, 4), (3, 5), (4, 2, 4)])
def test_an_all_to_all_on_a_torus_is_that_of_a_simulation_link_by_link(
    dims: tuple[int, ...],
) -> None:
    """Two links along each dimension; and no faster than its bisection, which n/2 devices send half
    of what they hold over."""
    found, size = per_byte(CollectiveKind.ALL_TO_ALL, torus(dims), math.prod(dims)), math.prod(dims)
    assert found == pytest.approx(simulated_torus(dims, 1.0))
    for width in dims:
        if width % 2 == 0:
            assert found >= size / 2 / 2 / (2 * size / width) * (1 - 1e-12)


@pytest.mark.parametrize("members", [2, 3, 5, 8])
def test_in_a_mesh_every_message_has_a_link_of_its_own(members: int) -> None:
    """A link of eight devices has a seventh of the bandwidth; each of n members sends 1/n over each
    of n-1 of its links."""
    mesh = Cluster("mesh", 8, (Tier("direct", 8, 7.0, 0.0, topology=Topology.MESH),))
    assert per_byte(CollectiveKind.ALL_TO_ALL, mesh, members) == pytest.approx(1 / members)
    assert per_byte(CollectiveKind.ALL_GATHER, mesh, members) == pytest.approx(
        (members - 1) / members / (members - 1)
    )


def simulated_rails(members: list[int], block: int) -> tuple[float, float]:
    """Most bytes that a device sends within its block and on its rail, in an all-to-all of one byte
    per member."""
    within: dict[int, float] = defaultdict(float)
    outside: dict[int, float] = defaultdict(float)
    for source, target in itertools.permutations(members, 2):
        if source // block == target // block:
            within[source] += 1 / len(members)
            continue
        relay = source // block * block + target % block
        if relay != source:
            within[source] += 1 / len(members)
        outside[relay] += 1 / len(members)
    return max(within.values(), default=0.0), max(outside.values(), default=0.0)


@pytest.mark.parametrize(
    ("size", "stride"), [(16, 1), (8, 1), (4, 1), (4, 4), (8, 2), (2, 8), (2, 1)]
)
def test_an_all_to_all_on_rails_is_that_of_a_simulation_message_by_message(
    size: int, stride: int
) -> None:
    """One tier after the other, as the textbook has it."""
    within, outside = simulated_rails([stride * each for each in range(size)], 4)
    assert per_byte(CollectiveKind.ALL_TO_ALL, rails(), size, stride) == pytest.approx(
        within / 10 + outside / 1
    )


def test_an_all_to_all_over_whole_blocks_passes_them_once_more() -> None:
    """(g-1)/g of the bytes within blocks of g, and (N-1)/N over the rails of N blocks (PXN)."""
    assert per_byte(CollectiveKind.ALL_TO_ALL, rails(), 16) == pytest.approx(3 / 4 / 10 + 3 / 4)
    assert per_byte(CollectiveKind.ALL_TO_ALL, switched(rails()), 16) == pytest.approx(
        3 / 16 / 10 + 3 / 4
    )


@pytest.mark.parametrize(
    "kind", [each for each in CollectiveKind if each is not CollectiveKind.ALL_TO_ALL]
)
@pytest.mark.parametrize("library", [False, True])
def test_groups_on_their_rails_need_no_spine(kind: CollectiveKind, library: bool) -> None:
    """Whole blocks, and the same places of several, cost what they do under a switch that joins
    all."""
    cluster = load_cluster("rail_optimised") if library else rails(latency=1.0)
    block = cluster.tiers[0].group_size
    for size, stride in (
        (2 * block, 1),
        (4, block),
        (2, 2 * block),
        (block, block // 2),
        (block, 1),
    ):
        assert collective_costs(kind, size, stride, cluster) == collective_costs(
            kind, size, stride, switched(cluster)
        )


@pytest.mark.parametrize("kind", list(CollectiveKind))
@pytest.mark.parametrize(
    ("size", "stride", "first"), [(4, 3, 0), (4, 1, 2), (3, 5, 0), (2, 5, 1), (2, 3, 3)]
)
def test_groups_off_their_rails_pass_their_blocks_on_the_way(
    kind: CollectiveKind, size: int, stride: int, first: int
) -> None:
    slow_inside = rails(inner=0.5, latency=1.0)
    for cluster in (rails(latency=1.0), slow_inside):
        on_rails = collective_s(kind, 100.0, size, stride, switched(cluster), first)
        assert collective_s(kind, 100.0, size, stride, cluster, first) > on_rails
    two = collective_s(CollectiveKind.ALL_GATHER, 100.0, 2, 5, slow_inside)
    assert two == pytest.approx(
        50 / 0.5 + 11.0
    )  # half of it at the slower bandwidth, after a step of 10 s and one within


def test_messages_between_stages_on_other_rails_wait_for_both_tiers() -> None:
    cluster = rails(latency=1.0)
    costs = transfer_costs(cluster)
    assert routes(cluster) == len(costs.latency_s) == 3
    assert costs.latency_s.tolist() == [1.0, 10.0, 11.0] and costs.per_byte_s.tolist() == [
        0.1,
        1.0,
        1.0,
    ]

    def layouts(widths: int, strides: int, pp: int) -> PipelineLayouts:
        return PipelineLayouts(*(np.array([each]) for each in (widths, strides, 16, pp, 1)))

    assert boundary_tiers(layouts(4, 4, 4), cluster)[0].tolist() == [
        1,
        1,
        1,
    ]  # the same place of the next block
    assert boundary_tiers(layouts(2, 2, 4), cluster)[0].tolist() == [0, 2, 0]
    assert end_tiers(layouts(4, 4, 4), cluster).tolist() == [1] and end_tiers(
        layouts(2, 2, 4), cluster
    ).tolist() == [2]
    parts = np.array([[2], [2]])
    assert carried_tiers(parts, cluster)[0].tolist() == [0, 2, 0]
    assert carried_tiers(np.array([[1], [4]]), cluster)[0].tolist() == [1, 1, 1]
    assert boundary_tiers(layouts(2, 2, 4), switched(cluster))[0].tolist() == [0, 1, 0]


def test_switches_are_those_of_the_structure() -> None:
    """None in a torus; of rails each joins one device of every block, which takes fewer tiers than
    all devices together."""
    prices = load_prices("datacenter_2025")
    cost = {name: cluster_switches_usd(load_cluster(name), 4096, prices) for name in TOPOLOGIES}
    assert cost["torus_2d"] == cost["torus_3d"] == 0.0
    assert cost["dgx_h100"] == cost["fully_connected"] == switches_usd(5e10, 4096, prices)
    assert cost["rail_optimised"] == switches_usd(5e10, 512, prices) < cost["dgx_h100"]
    inside = load_cluster("fully_connected")
    assert cluster_switches_usd(replace(inside, tiers=inside.tiers[:1]), 8, prices) == 0.0


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        (
            "rail_optimised",
            lambda d: d["tiers"][0].update(topology="mesh"),
            "tiers.1.topology is rail; it must be a tier outside a switch",
        ),
        (
            "rail_optimised",
            lambda d: d["tiers"][0].update(topology="rail"),
            "tiers.0.topology is rail",
        ),
        (
            "rail_optimised",
            lambda d: d["tiers"][1].update(link_parts=2),
            "tiers.1.link_parts is 2; it must be 0, as ports beyond",
        ),
        (
            "torus_3d",
            lambda d: [tier.update(link_parts=2) for tier in d["tiers"]],
            "the parts make at most one whole",
        ),
        (
            "torus_2d",
            lambda d: d["tiers"][0].update(link_parts=-1),
            "tiers.0.link_parts is -1; it must be zero or positive",
        ),
    ],
)
def test_networks_that_cannot_be_are_refused(
    tmp_path: Path, name: str, edit: Callable[[Any], object], message: str
) -> None:
    content = yaml.safe_load((HARDWARE / "clusters" / f"{name}.yaml").read_text())
    edit(content)
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(InputError, match=message):
        load_cluster(str(tmp_path / "bad.yaml"))
