"""Exchanges that send a token once to every node: copies against routing at random, times against
published measurements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from Estimator.hardware_files import load_cluster
from Estimator.network.cluster import Cluster, Tier
from Estimator.network.collectives import collective_costs, rectangle_costs
from Estimator.network.dispatchers import PerNode, Routing, dispatcher_rates
from GraphExtractor.graph import CollectiveKind
from phaze_common.choices import Dispatcher

ALL_TO_ALL = CollectiveKind.ALL_TO_ALL
TOKEN_BYTES = 4096 * 7168 * 2
PER_NODE = [each for each in Dispatcher if each.per_node]
H800 = Cluster(
    "h800", 64, (Tier("nvswitch", 8, 200e9, 0.0), Tier("infiniband", 64, 50e9, 0.0))
)  # NVLink 400 GB/s both ways, a 400 Gbit/s port for each


def seconds(
    cluster: Cluster, devices: int, exchange: PerNode, tokens_bytes: float = TOKEN_BYTES
) -> float:
    """Of sending the tokens of a device to their experts, by the only algorithm there is."""
    (cost,) = collective_costs(ALL_TO_ALL, devices, 1, cluster, 0, exchange)
    return cost.seconds(tokens_bytes * exchange.routing.chosen)


@pytest.mark.parametrize("nodes", [2, 4, 8])
@pytest.mark.parametrize("chosen", [1, 2, 8])
def test_as_many_copies_leave_as_routing_at_random_sends(nodes: int, chosen: int) -> None:
    """Over a network much slower than all else."""
    slow = Cluster("slow", 64, (Tier("node", 8, 1e15, 0.0), Tier("network", 64, 1e6, 0.0)))
    rates = dispatcher_rates(Dispatcher.HYBRIDEP)
    found_s = seconds(slow, 8 * nodes, PerNode(Dispatcher.HYBRIDEP, Routing(chosen)))
    copies = (found_s - rates.beyond_start.value) * 1e6 * rates.beyond.value / TOKEN_BYTES
    random = np.random.default_rng(0)
    nodes_of = random.integers(0, nodes, (50_000, chosen))  # with the token's own node 0
    seen = [np.unique(each[each > 0]).size for each in nodes_of]
    assert copies == pytest.approx(np.mean(seen), rel=0.02)


def test_nodes_are_no_more_than_routing_allows() -> None:
    slow = Cluster("slow", 64, (Tier("node", 8, 1e15, 0.0), Tier("network", 64, 1e6, 0.0)))
    start_s = dispatcher_rates(Dispatcher.HYBRIDEP).beyond_start.value
    free, limited = (
        seconds(slow, 64, PerNode(Dispatcher.HYBRIDEP, Routing(8, most))) - start_s
        for most in (0, 4)
    )
    any_nodes = 8 * (1 - (7 / 8) ** 8)
    assert limited / free == pytest.approx(4 / any_nodes)


@given(
    dispatcher=st.sampled_from(PER_NODE),
    nodes=st.sampled_from([1, 2, 4, 8]),
    chosen=st.integers(1, 16),
    name=st.sampled_from(["dgx_h100", "dgx_b200", "gb200_nvl72", "rail_optimised"]),
)
def test_more_experts_of_a_token_never_take_less_and_each_takes_no_more(
    dispatcher: Dispatcher, nodes: int, chosen: int, name: str
) -> None:
    cluster, devices = load_cluster(name), 8 * nodes

    def of(count: int) -> float:
        return seconds(cluster, devices, PerNode(dispatcher, Routing(count)))

    assert of(chosen) <= of(chosen + 1) * (1 + 1e-12)
    assert of(chosen + 1) / (chosen + 1) <= of(chosen) / chosen * (1 + 1e-12)


def test_a_group_costs_the_same_as_a_line_and_as_a_rectangle() -> None:
    cluster, exchange = load_cluster("dgx_h100"), PerNode(Dispatcher.DEEPEP, Routing(8.0, 4))
    line = collective_costs(ALL_TO_ALL, 32, 1, cluster, 0, exchange)
    assert line == rectangle_costs(ALL_TO_ALL, (8, 4), cluster, exchange)


@pytest.mark.parametrize(("nodes", "counted", "published"), [(1, 5.25, 158e9), (2, 2, 43e9)])
def test_deepep_on_h800_is_as_published(nodes: int, counted: float, published: float) -> None:
    """DeepEP's README: combines of 4,096 tokens in bf16; bytes to all devices of a node, the
    sender among them, or to all nodes likewise."""
    found_s = seconds(H800, 8 * nodes, PerNode(Dispatcher.DEEPEP, Routing(8, 4)))
    assert found_s == pytest.approx(counted * TOKEN_BYTES / published, rel=0.2)


@pytest.mark.parametrize(
    ("devices", "published"), [(8, 538.44e9), (16, 521.55e9), (32, 464.54e9), (36, 447.89e9)]
)
def test_hybridep_on_gb200_is_as_published(devices: int, published: float) -> None:
    """Hybrid-EP's README: combines of 4,096 tokens in bf16, bytes to all devices of a token."""
    exchange = PerNode(Dispatcher.HYBRIDEP, Routing(8))
    seen = devices * (1 - (1 - 1 / devices) ** 8)
    found_s = seconds(load_cluster("gb200_nvl72"), devices, exchange)
    assert found_s == pytest.approx(seen * TOKEN_BYTES / published, rel=0.15)


def test_deepep_of_devices_that_nothing_was_fitted_to(shared_data: Path) -> None:
    """Combines by 20 SMs within 4 GB200 or GB300, 1,024 tokens and more."""
    file = shared_data / "kernels_2026" / "deepep.parquet"
    if not file.is_file():
        pytest.skip("the measured exchanges (kernels_2026/deepep.parquet) are not here")
    import pyarrow.parquet as pq

    node = Cluster("gb200", 4, (Tier("nvlink", 4, 900e9, 0.0),))
    errors = []
    for row in pq.read_table(file).to_pylist():
        if (
            row["device_name"] in ("gb200", "gb300")
            and row["combine_sms"] == 20
            and row["num_token"] >= 1024
        ):
            exchange = PerNode(Dispatcher.DEEPEP, Routing(row["num_topk"]))
            held = 2.0 * row["num_token"] * row["hidden_size"]
            measured_s = 1e-6 * (row["combine_transmit_us"] + row["combine_notify_us"])
            errors.append(seconds(node, 4, exchange, held) / measured_s - 1)
    assert len(errors) > 100
    assert np.mean(np.abs(errors)) < 0.2 and abs(np.mean(errors)) < 0.15
