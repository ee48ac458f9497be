"""Collectives as a library runs them: closed forms by hand, what must hold always, and published
measurements."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Estimator.hardware_files import HARDWARE, load_cluster
from Estimator.network.calibration_errors import LARGE_BYTES, network_errors
from Estimator.network.calibration_tables import CollectiveSample, read_collectives
from Estimator.network.cluster import Cluster, CollectiveLibrary, ShortProtocol, Tier, Topology
from Estimator.network.collectives import collective_costs, collective_s, wire_bytes
from Estimator.network.links import transfer_costs
from GraphExtractor.graph import CollectiveKind

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
)
PASS = CollectiveKind.PASS
LIBRARY = CollectiveLibrary(tree_efficiency=0.8, copy_share=0.5)
NODE = Tier("node", 4, 100.0, 1.0, efficiency=0.5, start_s=3.0)
NETWORK = Tier(
    "network", 32, 10.0, 2.0, efficiency=0.8, start_s=7.0, relay_stall=0.25, inner_latency_s=0.5
)
TWO_TIERS = Cluster("two tiers", 32, (NODE, NETWORK), LIBRARY)
CLUSTERS = st.sampled_from(
    sorted(path.stem for path in (HARDWARE / "clusters").glob("*.yaml"))
).map(load_cluster)


def costs_of(
    kind: CollectiveKind, size: int, stride: int, cluster: Cluster = TWO_TIERS
) -> dict[str, tuple[float, float]]:
    return {
        cost.algorithm: (cost.fixed_s, cost.per_byte_s)
        for cost in collective_costs(kind, size, stride, cluster)
    }


def test_inside_a_node() -> None:
    """Three hops of 1 s; three quarters of the tensor at 50 B/s and the copies of a quarter at half
    of that time."""
    assert costs_of(REDUCE_SCATTER, 4, 1) == {
        "ring": pytest.approx((3 + 3 * 1, 0.75 / 50 + 0.25 * 0.5 / 50))
    }
    assert costs_of(ALL_GATHER, 4, 1) == {
        "ring": pytest.approx((3 + 3 * 1, 0.75 / 50 + 2 * 0.25 * 0.5 / 50))
    }
    assert costs_of(ALL_REDUCE, 4, 1) == {
        "ring": pytest.approx((3 + 6 * 1, 1.5 / 50 + 0.25 * 0.5 / 50))
    }


def test_whole_nodes_use_all_their_ports() -> None:
    """16 devices: 12 hops inside nodes of 1.5 s, 3 between; 4 ports of 8 B/s, a quarter of whose
    hops follow one another."""
    found = costs_of(ALL_REDUCE, 16, 1)
    ports, copy = 4 * 8 / (1 + 0.25 / 4), 0.5 / 16 / 50
    assert found["ring"] == pytest.approx((7 + 2 * (12 * 1.5 + 3 * 2), 2 * 15 / 16 / ports + copy))
    assert found["tree"] == pytest.approx((7 + 2 * (3 * 1.5 + 2 * 2 * 2), 2 / ports / 0.8 + copy))
    assert "tree" not in costs_of(ALL_GATHER, 16, 1)


def test_one_device_per_node_uses_one_port() -> None:
    assert costs_of(ALL_GATHER, 8, 4) == {"ring": pytest.approx((7 + 7 * 2, 7 / 8 / 8 * 1.25))}
    uneven = costs_of(ALL_GATHER, 6, 1)[
        "ring"
    ]  # four devices in one node, two in the next, which has two ports for them
    assert uneven == pytest.approx((7 + 4 * 1.5 + 2, 5 / 6 / (2 * 8) * 1.125 + 2 * 0.5 / 6 / 50))


def test_every_step_around_a_ring_is_started_by_itself() -> None:
    """Devices compute between the steps, so that each is a send and a receive of its own: of four
    devices three."""
    assert costs_of(PASS, 4, 1) == {
        "ring": pytest.approx((3 * 3 + 3 * 1, 0.75 / 50 + 0.25 * 0.5 / 50))
    }
    assert costs_of(PASS, 8, 4) == {"ring": pytest.approx((7 * 7 + 7 * 2, 7 / 8 / 8 * 1.25))}
    short = costs_of(PASS, 4, 1, load_cluster("dgx_a100"))["short ring"]
    protocol = load_cluster("dgx_a100").tiers[0].for_short
    assert short[0] == pytest.approx(3 * (protocol.start_s + protocol.latency_s))


def test_short_messages_have_their_own_protocol() -> None:
    quick = Cluster(
        "quick",
        32,
        (
            Tier("node", 4, 100.0, 1.0, 0.5, 3.0, short=ShortProtocol(0.5, 0.1, 0.1)),
            Tier("network", 32, 10.0, 2.0, 0.8, 7.0, short=ShortProtocol(0.7, 0.2, 0.1)),
        ),
        LIBRARY,
    )
    found = costs_of(ALL_REDUCE, 16, 1, quick)
    assert found["short ring"] == pytest.approx((0.7 + 2 * (12 * 0.1 + 3 * 0.2), 2 * 15 / 16 / 4))
    assert found["short tree"] == pytest.approx(
        (0.7 + 2 * (3 * 0.1 + 4 * 0.2), 2 * (3 / 10 + 4 / 4))
    )
    fastest = [
        min(found, key=lambda name: found[name][0] + found[name][1] * size)
        for size in (0.1, 30.0, 1e4)
    ]
    assert fastest == ["short tree", "short ring", "ring"]


@pytest.mark.parametrize(
    ("topology", "shares"),
    [
        (Topology.SWITCH, {2: 1, 4: 1, 8: 1}),
        (Topology.MESH, {2: 1 / 7, 4: 3 / 7, 8: 1}),
        (Topology.HYPERCUBE, {2: 1 / 3, 4: 2 / 3, 8: 1}),
        (Topology.TORUS, {2: 1 / 2, 4: 1 / 2, 8: 1}),
    ],
)
def test_part_of_a_tier_has_part_of_its_links(topology: Topology, shares: dict[int, float]) -> None:
    cluster = Cluster("links", 8, (Tier("links", 8, 100.0, 0.0, topology=topology),))
    for size, share in shares.items():
        expected = (size - 1) / size / (100 * share)
        assert costs_of(REDUCE_SCATTER, size, 1, cluster)["ring"][1] == pytest.approx(expected)
        if (
            topology is Topology.TORUS
        ):  # rings through devices that lie apart close, and share their links with those between
            expected = (size - 1) / size / (100 / (8 // size))
        assert costs_of(REDUCE_SCATTER, size, 8 // size, cluster)["ring"][1] == pytest.approx(
            expected
        )
    assert transfer_costs(cluster).seconds(100.0, 0) == pytest.approx(1 / shares[2])


def test_a_torus_works_on_all_its_dimensions_at_once() -> None:
    x, y = (
        Tier(name, size, 100.0, 1.0, topology=Topology.TORUS)
        for name, size in (("x", 4), ("y", 16))
    )
    torus = Cluster("torus", 16, (x, y))
    assert costs_of(ALL_GATHER, 16, 1, torus)["torus"] == pytest.approx((6.0, 15 / 16 / 200))
    assert costs_of(ALL_GATHER, 4, 1, torus)["torus"] == pytest.approx((3.0, 3 / 4 / 100))
    assert collective_s(ALL_GATHER, 1e6, 16, 1, torus) == pytest.approx(6 + 1e6 * 15 / 16 / 200)


@given(
    CLUSTERS,
    st.sampled_from(CollectiveKind),
    st.floats(1, 1e11),
    st.floats(1, 10),
    st.integers(1, 64),
    st.sampled_from([1, 2, 4, 8, 16]),
)
def test_no_cluster_beats_its_links(
    cluster: Cluster, kind: CollectiveKind, payload: float, larger: float, size: int, stride: int
) -> None:
    if size * stride > cluster.num_devices:
        return
    seconds = collective_s(kind, payload, size, stride, cluster)
    assert seconds <= collective_s(kind, payload * larger, size, stride, cluster)
    fastest = sum(tier.bandwidth_bytes_per_s for tier in cluster.tiers)
    assert seconds >= wire_bytes(kind, payload, size) / fastest


def test_more_nodes_take_longer() -> None:
    cluster = load_cluster("perlmutter")
    for kind in CollectiveKind:
        for payload in (1e5, 1e8):
            times = [
                collective_s(kind, payload, 4 * nodes, 1, cluster)
                for nodes in (1, 2, 4, 8, 16, 32, 64, 128, 256)
            ]
            assert times == sorted(times)


def test_tensor_parallel_all_reduces_of_a_node_of_a100() -> None:
    """NCCL on 8, 4 and 2 A100 under NVSwitch, microseconds by MiB, from vTrain (MICRO 2024),
    trace/a100."""
    cluster = load_cluster("dgx_a100")
    for size, measured in (
        (8, {8: 134.3, 16: 232.4, 32: 358.1, 64: 579.9, 256: 2162.3}),
        (4, {8: 116.8, 16: 179.6, 32: 284.2, 64: 543.8, 256: 1929.0}),
        (2, {8: 86.9, 16: 131.9, 32: 230.0, 64: 404.7, 256: 1455.8}),
    ):
        for mebibytes, microseconds in measured.items():
            predicted = collective_s(ALL_REDUCE, mebibytes * 2**20, size, 1, cluster) * 1e6
            assert predicted == pytest.approx(microseconds, rel=0.13)


@pytest.mark.parametrize(
    ("name", "kind", "size", "stride", "payload", "bus_bytes_per_s"),
    [
        ("dgx_a100", ALL_REDUCE, 32, 1, 8e9, 192e9),  # NVIDIA on DGX A100, nccl issue 812
        (
            "a100_hdr_800g",
            ALL_REDUCE,
            24,
            1,
            8e9,
            96e9,
        ),  # peak of 3 nodes with 4 HDR ports, nccl-tests issue 119
        ("dgx_h100", ALL_GATHER, 8, 1, 4e9, 367e9),  # rings of H100, nccl issue 1455
        ("dgx_h100", ALL_GATHER, 2, 1, 4e9, 367e9),
        ("dgx_h100", ALL_REDUCE, 128, 1, 67108864, 150e9),  # 16 nodes, nccl issue 1469
    ],
)
def test_bus_bandwidths_that_others_report(
    name: str, kind: CollectiveKind, size: int, stride: int, payload: float, bus_bytes_per_s: float
) -> None:
    predicted = wire_bytes(kind, payload, size) / collective_s(
        kind, payload, size, stride, load_cluster(name)
    )
    assert predicted == pytest.approx(bus_bytes_per_s, rel=0.12)


def test_perlmutter_is_as_measured(shared_data: Path) -> None:
    samples = read_collectives(shared_data / "layouts" / "nccl_perlmutter_measured.csv")
    cluster = load_cluster("perlmutter")
    errors = network_errors(samples, cluster)
    assert errors.all.rows == 1329 and errors.all.mape < 0.08 and errors.all.median < 0.06
    assert errors.large is not None and errors.large.mape < 0.05 and abs(errors.large.bias) < 0.01
    for kind in {sample.kind for sample in samples}:
        of_kind = network_errors(
            [sample for sample in samples if sample.kind is kind], cluster
        ).large
        assert of_kind is not None and of_kind.mape < 0.05 and abs(of_kind.bias) < 0.015
    for layout in {(sample.kind, sample.num_nodes, sample.devices_per_node) for sample in samples}:
        group = [
            sample
            for sample in samples
            if (sample.kind, sample.num_nodes, sample.devices_per_node) == layout
        ]
        large, small = (
            [each for each in group if (each.payload_bytes > LARGE_BYTES) is above]
            for above in (True, False)
        )
        assert abs(network_errors(large, cluster).all.bias) < 0.12
        assert abs(network_errors(small, cluster).all.bias) < 0.2


def test_all_reduces_of_a_hybrid_cube_mesh_are_as_measured(shared_data: Path) -> None:
    cluster = load_cluster("v100_4x8")
    for size in (2, 4, 8):
        rows = [
            CollectiveSample(
                ALL_REDUCE, float(mebibytes) * 2**20, 1, size, float(milliseconds) * 1e-3
            )
            for path in (shared_data / "aceso" / "v100_nvlink_4x8").glob(
                f"prim_gpt_*_all_reduce_{size}gpus.csv"
            )
            for mebibytes, milliseconds in (
                line.split(",") for line in path.read_text().split()[1:]
            )
            if float(mebibytes) >= 1
            and float(milliseconds) < 1e6  # a million marks what did not fit
        ]
        errors = network_errors(rows, cluster)
        assert errors.all.rows > 100 and errors.all.mape < 0.08
        assert errors.large is not None and abs(errors.large.bias) < 0.07


@pytest.mark.parametrize(
    ("name", "folder", "most"),
    [("gcp_g2", "mist/operators/l4", 0.03), ("pcie3_servers", "aceso/v100_pcie_1x4", 0.01)],
)
def test_all_reduces_behind_pcie_take_as_long_as_profiled(
    shared_data: Path, name: str, folder: str, most: float
) -> None:
    rows = [
        CollectiveSample(ALL_REDUCE, float(mebibytes) * 2**20, 1, size, float(milliseconds) * 1e-3)
        for size in (2, 4, 8)
        for path in (shared_data / folder).glob(f"prim_gpt_*_all_reduce_{size}gpus.csv")
        for mebibytes, milliseconds in (line.split(",") for line in path.read_text().split()[1:])
        if float(mebibytes) >= 1 and float(milliseconds) < 1e6
    ]
    errors = network_errors(rows, load_cluster(name))
    assert errors.all.rows > 100 and errors.all.mape < most


def test_a_pair_of_a_mesh_has_a_third_of_the_links() -> None:
    cluster = load_cluster("perlmutter")
    inside, between = (transfer_costs(cluster).seconds(1e9, tier) for tier in (0, 1))
    assert inside == pytest.approx(1e9 / (100e9 * 0.753), rel=0.01)
    assert between == pytest.approx(1e9 / (25e9 * 0.817), rel=0.01)
