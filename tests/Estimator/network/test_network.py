"""Collectives and transfers against their closed forms."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Estimator.hardware_files import load_cluster
from Estimator.network.cluster import Cluster, Tier
from Estimator.network.collectives import collective_s, wire_bytes
from GraphExtractor.graph import CollectiveKind
from phaze_common.errors import InputError

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
)
TIERED = Cluster("tiered", 64, (Tier("inner", 8, 1e11, 1e-6), Tier("outer", 64, 1e10, 5e-6)))
DEGREES = st.sampled_from([1, 2, 4, 8, 16, 32, 64])


@pytest.mark.parametrize("size", [2, 3, 8, 1024])
def test_ring_on_a_flat_network_without_latency(flat_cluster: Cluster, size: int) -> None:
    payload = 1e9
    half = (size - 1) / size * payload / 4 / 2**30
    assert collective_s(REDUCE_SCATTER, payload, size, 1, flat_cluster) == pytest.approx(half)
    assert collective_s(ALL_GATHER, payload, size, 1, flat_cluster) == pytest.approx(half)
    assert collective_s(ALL_REDUCE, payload, size, 1, flat_cluster) == pytest.approx(2 * half)
    assert wire_bytes(ALL_REDUCE, payload, size) == pytest.approx(2 * half * 4 * 2**30)


def test_tree_wins_where_latency_rules() -> None:
    flat = Cluster("flat", 64, (Tier("only", 64, 1e10, 5e-6),))
    assert collective_s(ALL_REDUCE, 8, 64, 1, flat) == pytest.approx(2 * (8 / 1e10 + 6 * 5e-6))
    assert collective_s(ALL_REDUCE, 1e9, 64, 1, flat) == pytest.approx(
        2 * (63 / 64 * 1e9 / 1e10 + 63 * 5e-6)
    )


def test_what_passes_around_a_ring_takes_every_step_of_it() -> None:
    """No tree brings it sooner: each device has all parts, one after another, and starts each
    message."""
    flat = Cluster("flat", 64, (Tier("only", 64, 1e10, 5e-6, start_s=3e-6),))
    assert collective_s(CollectiveKind.PASS, 8, 64, 1, flat) == pytest.approx(
        63 * (3e-6 + 5e-6) + 63 / 64 * 8 / 1e10
    )
    assert collective_s(ALL_GATHER, 8, 64, 1, flat) == pytest.approx(3e-6 + 6 * 5e-6 + 8 / 1e10)


def test_group_inside_a_node_uses_only_the_inner_tier() -> None:
    assert collective_s(ALL_GATHER, 1e9, 8, 1, TIERED) == pytest.approx(7 / 8 * 1e-2 + 7e-6)
    assert collective_s(ALL_GATHER, 1e9, 8, 8, TIERED) == pytest.approx(7 / 8 * 1e-1 + 7 * 5e-6)


def test_group_across_nodes_is_hierarchical() -> None:
    expected = (7 / 8 * 1e-2 + 7e-6) + (7 / 8 * 1e-1 / 8 + 7 * 5e-6)
    assert collective_s(REDUCE_SCATTER, 1e9, 64, 1, TIERED) == pytest.approx(expected)
    strided = (1 / 2 * 1e-2 + 1e-6) + (7 / 8 * 1e-1 / 2 + 7 * 5e-6)
    assert collective_s(REDUCE_SCATTER, 1e9, 16, 4, TIERED) == pytest.approx(strided)


@given(st.floats(0, 1e12), DEGREES, DEGREES, st.sampled_from(CollectiveKind))
def test_more_bytes_or_slower_links_never_help(
    payload: float, size: int, stride: int, kind: CollectiveKind
) -> None:
    if (size - 1) * stride >= TIERED.num_devices:
        return
    seconds = collective_s(kind, payload, size, stride, TIERED)
    assert seconds >= 0 and (size > 1 or seconds == 0)
    assert seconds <= collective_s(kind, 2 * payload, size, stride, TIERED)
    slower = Cluster("slower", 64, (Tier("inner", 8, 1e11, 1e-6), Tier("outer", 64, 5e9, 6e-6)))
    assert seconds <= collective_s(kind, payload, size, stride, slower) * (1 + 1e-12)
    if payload:
        assert seconds >= wire_bytes(kind, payload, size) / 1e11


def test_group_that_does_not_fit_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"16 devices, 8 apart, do not fit on the 64 of cluster tiered"
    ):
        collective_s(ALL_REDUCE, 1.0, 16, 8, TIERED)


def test_shipped_tiered_cluster_prefers_its_inner_tier() -> None:
    cluster = load_cluster("nvlink_infiniband")
    inside = collective_s(ALL_REDUCE, 1e9, 8, 1, cluster)
    across = collective_s(ALL_REDUCE, 1e9, 8, 8, cluster)
    assert across > 8 * inside and math.isfinite(across)
