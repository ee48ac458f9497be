"""Groups in the domains of a network: whole ones in each, and the same price as where somebody says
what lies where."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Estimator.hardware_files import load_cluster
from Estimator.network.cluster import Cluster, Tier, Topology, with_devices
from Estimator.plans.assignment import Assignment
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import GroupNetwork, layer_groups, replicas
from Estimator.plans.placement import extent, placement_of, used_part
from GraphExtractor.graph import CollectiveKind
from phaze_common.choices import GroupOrder

GB200 = load_cluster("gb200_nvl72")
DEGREES = st.sampled_from([1, 1, 2, 3, 4, 6, 8])


def network(*sizes: int) -> Cluster:
    """Switches that join so many devices each, the last of them all."""
    tiers = (Tier(f"tier{place}", size, 1e9 / 4**place, 1e-6) for place, size in enumerate(sizes))
    return Cluster("made", sizes[-1], tuple(tiers))


def groups_of(plan: UniformPlan, axis: str) -> list[list[int]]:
    """Devices of each group of an axis, numbered one after another."""
    inner = ["tp", "cp"]
    nest = (
        [*inner, "dp", "pp"] if plan.group_order is GroupOrder.DATA_INNER else [*inner, "pp", "dp"]
    )
    strides, stride = {}, 1
    for name in nest:
        strides[name], stride = stride, stride * getattr(plan, name)
    found: dict[tuple[int, ...], list[int]] = {}
    for places in itertools.product(*(range(getattr(plan, name)) for name in nest)):
        at = dict(zip(nest, places, strict=True))
        device = sum(at[name] * strides[name] for name in nest)
        if axis == "ep":  # the nearest of those that hold the same parameters
            copy = at["cp"] + plan.cp * at["dp"]
            key = (at["tp"], at["pp"], copy // plan.ep)
        else:
            key = tuple(at[name] for name in nest if name != axis)
        found.setdefault(key, []).append(device)
    return list(found.values())


@st.composite
def plans(draw: st.DrawFn) -> UniformPlan:
    degrees = {name: draw(DEGREES) for name in ("tp", "cp", "dp", "pp")}
    copies = degrees["cp"] * degrees["dp"]
    ep = draw(st.sampled_from([each for each in range(1, copies + 1) if copies % each == 0]))
    order = draw(st.sampled_from([GroupOrder.DATA_INNER, GroupOrder.PIPELINE_INNER]))
    return UniformPlan(**degrees, ep=ep, group_order=order, global_batch_size=degrees["dp"])


@settings(max_examples=200, deadline=None)
@given(plans(), st.sampled_from([(8, 8192), (12, 8400), (72, 7200), (6, 24, 4800), (10, 70, 7000)]))
def test_no_group_that_fits_into_a_domain_lies_in_two_unless_it_is_said(
    plan: UniformPlan, sizes: tuple[int, ...]
) -> None:
    """Device by device: those of a plan fill as many places of each domain as are used, one domain
    after another."""
    cluster = network(*sizes)
    used = used_part(plan, cluster)
    placement = placement_of(plan, cluster, used)
    said = {(each.axis, each.tier) for each in placement.crossing}
    for tier, size, taken in zip(
        cluster.tiers[:-1], cluster.block_sizes[1:], used.block_sizes[1:], strict=True
    ):
        assert taken <= size
        for axis in ("tp", "cp", "ep", "dp", "pp"):
            groups = groups_of(plan, axis)
            crosses = any(len({device // taken for device in group}) > 1 for group in groups)
            assert crosses == ((axis, tier.name) in said), (axis, tier.name)
    assert plan.devices <= placement.devices_occupied <= extent(cluster)
    avoidable = [each for each in placement.crossing if each.avoidable]
    chain = sorted(
        len(range(min(group), max(group) + 1))
        for axis in ("tp", "cp", "dp", "pp")
        for group in groups_of(plan, axis)[:1]
    )
    if all(b % a == 0 for a, b in itertools.pairwise(chain)) and plan.ep == 1:
        assert not avoidable  # with domains enough, nested groups are all whole


@pytest.mark.parametrize(
    ("ep", "dp", "pp"), [(32, 32, 8), (64, 64, 4), (64, 128, 2), (8, 8, 9), (16, 16, 16)]
)
def test_a_rack_of_72_holds_whole_groups_and_costs_as_if_said_so(ep: int, dp: int, pp: int) -> None:
    plan = UniformPlan(ep=ep, dp=dp, pp=pp, global_batch_size=dp)
    used = used_part(plan, GB200)
    whole = 72 // ep * ep
    inside = max(each for each in range(1, whole // ep + 1) if (dp // ep * pp) % each == 0)
    stages = min(inside, pp)
    parts = {
        "ep": (ep, 1),
        "dp": (ep, dp // ep),
        "pp": (stages, pp // stages),
        "tp": (1, 1),
        "cp": (1, 1),
        "tp2": (1, 1),
    }
    said = replace(plan, group_order=Assignment(**parts))
    for kind, payload in itertools.product(
        (CollectiveKind.ALL_TO_ALL, CollectiveKind.ALL_REDUCE), (1e5, 1e9)
    ):
        own = GroupNetwork(layer_groups(plan, used).experts, used).seconds(kind, payload)
        assert own == GroupNetwork(layer_groups(said, GB200).experts, GB200).seconds(kind, payload)
        straddling = GroupNetwork(layer_groups(plan, GB200).experts, GB200).seconds(kind, payload)
        assert own <= straddling * (1 + 1e-12)
        if 72 % ep:
            assert own < straddling / (
                4 if payload > 1e6 and kind is CollectiveKind.ALL_TO_ALL else 1
            )
    if 72 % ep == 0:
        assert used is GB200
    placement = placement_of(plan, GB200, used)
    assert placement.domains[0].used == used.tiers[0].group_size
    assert placement.devices_occupied == -(-plan.devices // used.tiers[0].group_size) * 72
    assert placement.devices_occupied >= plan.devices


def test_replicas_of_tensor_groups_keep_their_nodes_where_a_node_is_no_multiple() -> None:
    """Not of experts alone: three devices of a tensor-parallel group, two of a replica pair, on
    nodes of eight."""
    nodes = network(8, 800)
    assert used_part(UniformPlan(tp=3, dp=5, global_batch_size=5), nodes).block_sizes == (1, 6)
    assert used_part(UniformPlan(tp=2, dp=3, pp=4, global_batch_size=3), nodes).block_sizes == (
        1,
        6,
    )
    assert (
        used_part(
            UniformPlan(
                tp=2, dp=3, pp=4, global_batch_size=3, group_order=GroupOrder.PIPELINE_INNER
            ),
            nodes,
        )
        is nodes
    )
    assert used_part(UniformPlan(tp=8, dp=9, global_batch_size=9), nodes) is nodes
    assert (
        used_part(UniformPlan(tp=4, dp=27, global_batch_size=27), nodes) is nodes
    )  # a group that no node holds cuts none
    mesh = replace(nodes, tiers=(replace(nodes.tiers[0], topology=Topology.MESH), nodes.tiers[1]))
    assert used_part(UniformPlan(tp=3, dp=5, global_batch_size=5), mesh) is mesh


def test_where_there_are_too_few_domains_groups_cross_and_that_is_said() -> None:
    two = network(8, 16)
    plan = UniformPlan(tp=3, dp=5, global_batch_size=5)
    assert used_part(plan, two) is two
    (sentence,) = placement_of(plan, two, two).sentences
    crossing = "groups of tp reach over 3 devices and cross tier0 of 8, although each would fit"
    assert sentence == f"{crossing}: whole ones in each leave no room for all"
    part = with_devices(
        network(8, 800), 16
    )  # of a cluster of which so many are asked for, others are there
    assert used_part(plan, part).block_sizes == (1, 6)
    sentences = placement_of(plan, part, used_part(plan, part)).sentences
    assert (
        "6 of its 8 devices are used, so that the 15 devices of the plan occupy 24 in 3 of them"
        in sentences[0]
    )


def test_replicas_over_many_domains_are_those_of_the_used_part() -> None:
    plan = UniformPlan(
        ep=32, dp=96, global_batch_size=96
    )  # three groups, of which a rack holds two
    used = used_part(plan, GB200)
    assert used.tiers[0].group_size == 64
    assert GroupNetwork(replicas(plan, used), used).seconds(CollectiveKind.ALL_REDUCE, 1e9) > 0.0
