"""Tiers that the messages of pipelines cross, by numbering every device."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from networks_by_hand import clusters

from Estimator.network.cluster import Cluster, Tier, Topology
from Estimator.network.links import PipelineLayouts, boundary_tiers, end_tiers, transfer_costs

Plan = tuple[
    int, int, int, bool
]  # devices of a tensor-parallel group, pp, dp, whether the replicas of a stage are neighbours


def joining_tier(one: int, other: int, cluster: Cluster) -> int:
    """The innermost tier whose blocks hold both devices; the last one holds all."""
    joined = (
        position
        for position, tier in enumerate(cluster.tiers)
        if one // tier.group_size == other // tier.group_size
    )
    return next(joined, len(cluster.tiers) - 1)


def route(one: int, other: int, cluster: Cluster) -> tuple[int, bool]:
    """The tier that joins two devices, and whether they lie on other rails of it."""
    tier = joining_tier(one, other, cluster)
    rails = cluster.tiers[tier].topology is Topology.RAIL
    return tier, rails and (one - other) % cluster.block_sizes[tier] != 0


def worst_tier(plan: Plan, cluster: Cluster, stage: int, other: int) -> int:
    width, pp, dp, data_inner = plan

    def device(stage: int, replica: int, rank: int) -> int:
        return (stage * dp + replica if data_inner else replica * pp + stage) * width + rank

    tier, changes = max(
        route(device(stage, replica, rank), device(other, replica, rank), cluster)
        for replica in range(dp)
        for rank in range(width)
    )
    rails = [place for place, each in enumerate(cluster.tiers) if each.topology is Topology.RAIL]
    return len(cluster.tiers) + rails.index(tier) if changes else tier


def layouts_of(plans: list[Plan]) -> PipelineLayouts:
    width, pp, dp, data_inner = (np.array(column) for column in zip(*plans, strict=True))
    stages, replicas = (
        np.where(data_inner, width * dp, width),
        np.where(data_inner, width, width * pp),
    )
    return PipelineLayouts(width, stages, replicas, pp, dp)


@st.composite
def plans_on(draw: st.DrawFn, cluster: Cluster) -> list[Plan]:
    devices, plans = min(cluster.num_devices, 400), []
    for _ in range(draw(st.integers(1, 6))):
        width = draw(st.integers(1, min(devices, 16)))
        pp = draw(st.integers(1, devices // width))
        plans.append(
            (width, pp, draw(st.integers(1, devices // (width * pp))), draw(st.booleans()))
        )
    return plans


@given(st.data(), clusters())
def test_messages_cross_the_tier_of_the_slowest_replica(
    data: st.DataObject, cluster: Cluster
) -> None:
    plans = data.draw(plans_on(cluster))
    layouts = layouts_of(plans)
    boundaries, ends = boundary_tiers(layouts, cluster), end_tiers(layouts, cluster)
    assert boundaries.shape == (len(plans), max(pp for _, pp, _, _ in plans) - 1)
    for row, plan in enumerate(plans):
        pp = plan[1]
        assert boundaries[row, : pp - 1].tolist() == [
            worst_tier(plan, cluster, stage, stage + 1) for stage in range(pp - 1)
        ]
        assert not boundaries[row, pp - 1 :].any()
        assert ends[row] == (worst_tier(plan, cluster, 0, pp - 1) if pp > 1 else 0)


@pytest.mark.parametrize("inner", [6, 8, 64])
def test_every_plan_of_a_cluster_at_once(inner: int) -> None:
    cluster = Cluster(
        "two tiers", 192, (Tier("node", inner, 1e11, 1e-6), Tier("network", 192, 1e10, 1e-5))
    )
    plans = [
        (width, pp, dp, data_inner)
        for width in (1, 3, 4)
        for pp in (1, 2, 3, 5, 8, 12)
        for dp in range(1, 192 // (width * pp) + 1, 3)
        for data_inner in (False, True)
    ]
    boundaries, ends = (
        boundary_tiers(layouts_of(plans), cluster),
        end_tiers(layouts_of(plans), cluster),
    )
    assert {0, 1} == set(ends.tolist())
    for row, plan in enumerate(plans):
        pp = plan[1]
        assert boundaries[row, : pp - 1].tolist() == [
            worst_tier(plan, cluster, stage, stage + 1) for stage in range(pp - 1)
        ]
        assert ends[row] == (worst_tier(plan, cluster, 0, pp - 1) if pp > 1 else 0)


def test_outer_tiers_are_never_faster_than_those_a_message_passes_on_its_way() -> None:
    odd = Cluster("odd", 8, (Tier("a", 2, 1.0, 0.5), Tier("b", 8, 10.0, 0.1)))
    costs = transfer_costs(odd)
    assert costs.per_byte_s.tolist() == [1.0, 1.0] and costs.latency_s.tolist() == [0.5, 0.5]
    assert costs.seconds(np.array([4.0, 0.0]), np.array([1, 1])).tolist() == [4.5, 0.0]
