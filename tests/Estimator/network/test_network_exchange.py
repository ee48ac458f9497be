"""All-to-alls against hand calculation and published measurements."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Estimator.hardware_files import load_cluster
from Estimator.network.cluster import Cluster, CollectiveLibrary, ShortProtocol, Tier, Topology
from Estimator.network.collectives import collective_costs, collective_s
from GraphExtractor.graph import CollectiveKind

ALL_TO_ALL = CollectiveKind.ALL_TO_ALL
NODE = Tier("node", 4, 100.0, 1.0, efficiency=0.5, start_s=3.0, short=ShortProtocol(0.5, 0.1, 0.1))
NETWORK = Tier(
    "network", 64, 10.0, 2.0, efficiency=0.8, start_s=7.0, short=ShortProtocol(0.7, 0.2, 0.1)
)
TEXTBOOK = Cluster("textbook", 64, (NODE, NETWORK))
LIBRARY = Cluster(
    "library", 64, (NODE, NETWORK), CollectiveLibrary(tree_efficiency=0.8, copy_share=0.5)
)


def costs_of(
    size: int, stride: int, cluster: Cluster, first: int = 0
) -> dict[str, tuple[float, float]]:
    return {
        cost.algorithm: (cost.fixed_s, cost.per_byte_s)
        for cost in collective_costs(ALL_TO_ALL, size, stride, cluster, first)
    }


def test_pairwise_exchange_meets_one_peer_after_another() -> None:
    """Inside a node 3 peers at 50 B/s; over 4 nodes also 12 of 16 parts at 8 B/s."""
    assert costs_of(4, 1, TEXTBOOK) == {"pairwise": pytest.approx((3 + 3 * 1, 3 / 4 / 50))}
    assert costs_of(16, 1, TEXTBOOK) == {
        "pairwise": pytest.approx((7 + 3 * 1 + 12 * 2, 3 / 16 / 50 + 12 / 16 / 8))
    }
    assert costs_of(4, 4, TEXTBOOK) == {"pairwise": pytest.approx((7 + 3 * 2, 3 / 4 / 8))}


def test_a_library_posts_to_all_peers_and_waits_for_the_slowest_tier() -> None:
    found = costs_of(16, 1, LIBRARY)
    assert found["exchange"] == pytest.approx(
        (7 + 1 * 1 + 2 * 2, 12 / 16 / 8)
    )  # 12 peers, 8 at a time
    assert found["short exchange"] == pytest.approx((0.7 + 0.1 + 2 * 0.2, 12 / 16 / 1))
    assert costs_of(4, 1, LIBRARY)["exchange"] == pytest.approx((3 + 1, 3 / 4 / 50))


def test_bus_bandwidth_over_nodes_is_that_of_a_port_and_what_stays_inside() -> None:
    """N / (N - 1) of a port's bandwidth over N whole nodes (S. Jeaugey, nccl-tests issue 130)."""
    for nodes in (2, 4, 16):
        devices = 4 * nodes
        per_byte_s = costs_of(devices, 1, LIBRARY)["exchange"][1]
        assert (devices - 1) / devices / per_byte_s == pytest.approx(
            (devices - 1) / 4 / (nodes - 1) * 8
        )


def test_the_member_that_is_alone_in_its_node_sends_most_of_its_bytes_out() -> None:
    """Devices 3 to 6: one in the first node, three in the next."""
    assert costs_of(4, 1, LIBRARY, first=3)["exchange"][1] == pytest.approx(3 / 4 / 8)


@pytest.mark.parametrize(
    ("topology", "size", "passing"),
    [
        (Topology.SWITCH, 8, 7 / 8),
        (Topology.MESH, 8, 7 / 8),
        (
            Topology.HYPERCUBE,
            8,
            7 / 8 * 12 / 7,
        ),  # 3 peers over one link, 3 over two, one over three: 12 links for 7 parts
        (Topology.TORUS, 8, 2.0),  # distances 1, 1, 2, 2, 3, 3, 4: 16 links for 8 parts
        (Topology.TORUS, 4, 2 * 1.0),  # half of the ring is a line: no link closes it
    ],
)
def test_bytes_pass_through_other_devices_where_links_are_few(
    topology: Topology, size: int, passing: float
) -> None:
    cluster = Cluster("links", 8, (Tier("links", 8, 100.0, 0.0, topology=topology),))
    assert costs_of(size, 1, cluster)["pairwise"][1] == pytest.approx(passing / 100)


def test_each_dimension_of_a_torus_carries_what_moves_along_it() -> None:
    x, y = (
        Tier(name, size, 100.0, 0.0, topology=Topology.TORUS)
        for name, size in (("x", 4), ("y", 16))
    )
    assert costs_of(16, 1, Cluster("torus", 16, (x, y)))["pairwise"][1] == pytest.approx(
        2 * 1.0 / 100
    )


@given(
    st.floats(1, 1e12),
    st.sampled_from([2, 3, 8, 24, 64]),
    st.sampled_from(["dgx_h100", "perlmutter", "tpu_v4", "phaze_icml24"]),
)
def test_no_exchange_beats_all_links_at_once(payload: float, size: int, name: str) -> None:
    cluster = load_cluster(name)
    seconds = collective_s(ALL_TO_ALL, payload, size, 1, cluster)
    assert seconds <= collective_s(ALL_TO_ALL, 2 * payload, size, 1, cluster)
    links = sum(tier.bandwidth_bytes_per_s for tier in cluster.tiers)
    assert seconds >= (size - 1) / size * payload / links


@pytest.mark.parametrize(
    ("size", "payload", "measured_s"),
    [
        (
            64,
            8 * 2**20,
            316e-6,
        ),  # 8 nodes of H800, 338 us out of place, 296 us in place (nccl issue 1531)
        (4, 524_288_000, 1174e-6),  # 4 H100 in a node (nccl issue 2169)
        (8, 1024, 10.8e-6),  # 8 H20 in a node (DeepEP issue 303)
    ],
)
def test_published_times_are_met(size: int, payload: int, measured_s: float) -> None:
    assert collective_s(ALL_TO_ALL, payload, size, 1, load_cluster("dgx_h100")) == pytest.approx(
        measured_s, rel=0.2
    )
