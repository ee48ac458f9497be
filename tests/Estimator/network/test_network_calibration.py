"""Fitting a cluster to measured collectives: known constants come back, unseen sizes are predicted,
files read again."""

from dataclasses import replace
from pathlib import Path

import pytest

from Estimator.hardware_files import load_cluster
from Estimator.network.calibration import cluster_yaml, fit_collectives
from Estimator.network.calibration_errors import network_errors
from Estimator.network.calibration_tables import CollectiveSample, read_collectives
from Estimator.network.cluster import Cluster, Tier, Topology
from Estimator.network.collectives import collective_s
from GraphExtractor.graph import CollectiveKind
from phaze_common.errors import InputError

SIZES = [2.0**power for power in range(15, 33, 2)]
BARE = Cluster(
    "bare",
    512,
    (
        Tier("node", 4, 300e9, 1e-5, topology=Topology.MESH),
        Tier("network", 512, 25e9, 2e-5, relay_stall=0.1),
    ),
)


def synthetic(cluster: Cluster) -> list[CollectiveSample]:
    layouts = [
        (nodes, devices) for nodes in (1, 2, 8, 64) for devices in (1, 2, 4) if nodes * devices > 1
    ]
    return [
        CollectiveSample(
            kind, size, nodes, devices, collective_s(kind, size, nodes * devices, stride, cluster)
        )
        for kind in CollectiveKind
        for nodes, devices in layouts
        for stride in [1 if nodes == 1 else 4 // devices]
        for size in SIZES
    ]


def test_known_constants_come_back() -> None:
    truth = load_cluster("perlmutter")
    fit = fit_collectives(synthetic(truth), BARE)
    assert fit.errors.all.mape < 0.005
    for found, tier in zip(fit.cluster.tiers, truth.tiers, strict=True):
        assert found.efficiency == pytest.approx(tier.efficiency, rel=0.02)
        assert found.start_s == pytest.approx(tier.start_s, rel=0.1)
    assert fit.cluster.tiers[1].latency_s == pytest.approx(truth.tiers[1].latency_s, rel=0.02)
    assert fit.cluster.tiers[1].relay_stall == pytest.approx(truth.tiers[1].relay_stall, rel=0.05)
    stated = [
        (tier.name, tier.group_size, tier.bandwidth_bytes_per_s, tier.topology)
        for tier in fit.cluster.tiers
    ]
    assert stated == [
        (tier.name, tier.group_size, tier.bandwidth_bytes_per_s, tier.topology)
        for tier in BARE.tiers
    ]


def test_only_what_was_measured_is_fitted() -> None:
    inside = [sample for sample in synthetic(load_cluster("perlmutter")) if sample.num_nodes == 1]
    fit = fit_collectives(inside, BARE)
    assert fit.cluster.tiers[1] == BARE.tiers[1]
    assert {key.split(".")[1] for key in fit.fitted if key.startswith("tiers")} == {"0"}
    assert "library.tree_efficiency" not in fit.fitted


@pytest.mark.thorough
def test_small_clusters_predict_large_ones(shared_data: Path) -> None:
    samples = read_collectives(shared_data / "layouts" / "nccl_perlmutter_measured.csv")
    start = replace(
        BARE, num_devices=1024, tiers=(BARE.tiers[0], replace(BARE.tiers[1], group_size=1024))
    )
    fit = fit_collectives([sample for sample in samples if sample.num_nodes <= 16], start)
    unseen = network_errors([sample for sample in samples if sample.num_nodes > 16], fit.cluster)
    assert unseen.large is not None and unseen.large.mape < 0.08 and abs(unseen.large.bias) < 0.03
    assert unseen.all.mape < 0.12


def test_a_calibrated_cluster_is_a_cluster_file(tmp_path: Path) -> None:
    fit = fit_collectives(synthetic(load_cluster("perlmutter")), BARE)
    text = cluster_yaml(fit, "table.csv", "bare.yaml")
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    assert load_cluster(str(path)) == fit.cluster
    assert f"All sizes: {fit.errors.all.rows} rows, mean error 0." in text and "Above 32 MB" in text
    assert text.count("source: calibrated on table.csv") == len(fit.fitted)
    assert text.count("source: bare.yaml") == text.count("value:") - len(fit.fitted)


def test_nothing_to_fit_is_refused() -> None:
    with pytest.raises(InputError, match="no measured collectives"):
        fit_collectives([], BARE)
    odd = CollectiveSample(CollectiveKind.ALL_REDUCE, 1e6, 2, 3, 1.0)
    with pytest.raises(
        InputError, match="3 devices per node were measured, the nodes of cluster bare have 4"
    ):
        fit_collectives([odd], BARE)


def test_tables_with_either_names_of_columns_are_read(tmp_path: Path) -> None:
    table = tmp_path / "nccl.csv"
    table.write_text("size,time-o,num_nodes,gpus_per_node,op\n1024,12.5,2,4,allreduce\n")
    (sample,) = read_collectives(table)
    assert sample == CollectiveSample(CollectiveKind.ALL_REDUCE, 1024, 2, 4, sample.seconds)
    assert sample.seconds == pytest.approx(12.5e-6)
    table.write_text(
        "op,size_bytes,seconds,num_nodes,gpus_per_node\nreduce_scatter,1024,2.5e-5,1,8\n"
    )
    assert read_collectives(table) == (
        CollectiveSample(CollectiveKind.REDUCE_SCATTER, 1024, 1, 8, 2.5e-5),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no rows"),
        ("op,size,seconds,num_nodes\nallgather,1,1,1\n", "line 2 has no gpus_per_node"),
        (
            "op,size,seconds,num_nodes,gpus_per_node\nallgather,one,1,1,2\n",
            "size_bytes or size is 'one'; it must be a positive",
        ),
        (
            "op,size,seconds,num_nodes,gpus_per_node\nallgather,1e150,1,1,2\n",
            "size is '1e150'; it must be from 1e-30 to 1e\\+18",
        ),
        (
            "op,size,seconds,num_nodes,gpus_per_node\nallgather,1,-1,1,2\n",
            "seconds or time-o is '-1'",
        ),
        (
            "op,size,seconds,num_nodes,gpus_per_node\nallgather,1,1,1.5,2\n",
            "num_nodes is 1.5; it must be a whole number",
        ),
        (
            "op,size,seconds,num_nodes,gpus_per_node\ngossip,1,1,1,2\n",
            "op is 'gossip'; known are all_reduce",
        ),
        (
            "op,size,seconds,num_nodes,gpus_per_node\nallgather,1,1,1,1\n",
            "a collective of one device",
        ),
    ],
)
def test_bad_tables_are_refused(tmp_path: Path, text: str, message: str) -> None:
    table = tmp_path / "bad.csv"
    table.write_text(text)
    with pytest.raises(InputError, match=message):
        read_collectives(table)


def test_missing_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*No such file"):
        read_collectives(tmp_path / "none.csv")
