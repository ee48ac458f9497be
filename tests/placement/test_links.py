"""Tiers crossed by the messages of a plan, by numbering every device; prices against the collectives of the estimator."""

from __future__ import annotations

import numpy as np
import pytest

from Common.errors import InputError
from Estimator.hardware_files import load_cluster
from Estimator.network.cluster import Cluster, Tier
from Estimator.network.collectives import collective_s
from GraphExtractor.graph import CollectiveKind
from Solver.placement.links import Network
from Solver.placement.problem import GroupOrder


def cluster_of(*sizes: int) -> Cluster:
    return Cluster("tiers", sizes[-1], tuple(Tier(str(k), size, 100.0 / 3**k, 0.01 * (k + 1)) for k, size in enumerate(sizes)))


def device(order: GroupOrder, tp: int, pp: int, dp: int, stage: int, replica: int, rank: int) -> int:
    group = stage * dp + replica if order is GroupOrder.DATA_INNER else replica * pp + stage
    return group * tp + rank


def tier_between(sizes: tuple[int, ...], one: int, other: int) -> int:
    return next(tier for tier, size in enumerate(sizes) if one // size == other // size)


@pytest.mark.parametrize("sizes", [(8, 64), (4, 16, 64), (6, 64), (5, 20, 64)])
@pytest.mark.parametrize("order", list(GroupOrder))
def test_tiers_are_those_of_the_slowest_replica(sizes: tuple[int, ...], order: GroupOrder) -> None:
    network = Network.of(cluster_of(*sizes))
    for tp in (1, 2, 3, 4, 8):
        for pp in (1, 2, 3, 5, 8):
            degrees = np.arange(1, 64 // (tp * pp) + 1)
            if not len(degrees):
                continue
            boundaries = network.boundary_tiers(order, tp, pp, degrees)
            spanned, ends = network.data_tiers(order, tp, pp, degrees), network.end_tiers(order, tp, pp, degrees)
            for row, dp in enumerate(degrees.tolist()):

                def worst(stage: int, other: int, dp: int = dp, tp: int = tp, pp: int = pp) -> int:
                    return max(
                        tier_between(sizes, device(order, tp, pp, dp, stage, r, x), device(order, tp, pp, dp, other, r, x))
                        for r in range(dp)
                        for x in range(tp)
                    )

                assert boundaries[row].tolist() == [worst(stage, stage + 1) for stage in range(pp - 1)]
                replicas = [
                    tier_between(sizes, device(order, tp, pp, dp, s, 0, x), device(order, tp, pp, dp, s, dp - 1, x))
                    for s in range(pp)
                    for x in range(tp)
                ]
                assert spanned[row] == max(replicas)
                if pp > 1:
                    assert ends[row] == worst(0, pp - 1)


@pytest.mark.parametrize("payload", [0.5, 10.0, 1000.0])
def test_collectives_cost_what_the_estimator_says(payload: float) -> None:
    cluster = cluster_of(8, 32, 64)
    network = Network.of(cluster)
    for order in GroupOrder:
        for tp, pp, dp in [(1, 1, 64), (1, 8, 8), (2, 4, 8), (4, 2, 4), (8, 2, 2), (1, 2, 16), (2, 1, 1)]:
            stride = tp if order is GroupOrder.DATA_INNER else tp * pp
            prices = network.data_collectives(order, tp, pp, np.array([dp]))
            fastest = min(float(price.per_byte_s[0]) * payload + float(price.fixed_s[0]) for price in prices)
            assert fastest == pytest.approx(collective_s(CollectiveKind.ALL_GATHER, payload, dp, stride, cluster))


@pytest.mark.parametrize("payload", [1e4, 1e7, 1e10])
def test_a_library_prices_data_parallel_groups_as_the_estimator_does(payload: float) -> None:
    cluster = load_cluster("dgx_a100")
    network = Network.of(cluster)
    for order in GroupOrder:
        for tp, pp in [(1, 1), (8, 4), (2, 16), (4, 1)]:
            stride = tp if order is GroupOrder.DATA_INNER else tp * pp
            degrees = np.array([1, 2, 8, 32])
            prices = network.data_collectives(order, tp, pp, degrees)
            fastest = np.min([price.per_byte_s * payload + price.fixed_s for price in prices], axis=0)
            wanted = [collective_s(CollectiveKind.REDUCE_SCATTER, payload, int(dp), stride, cluster) for dp in degrees]
            assert fastest == pytest.approx(wanted)


def test_outer_tiers_are_never_faster() -> None:
    network = Network.of(Cluster("odd", 8, (Tier("a", 2, 1.0, 0.5), Tier("b", 8, 10.0, 0.1))))
    assert network.seconds_per_byte.tolist() == [1.0, 1.0]
    assert network.latency_s.tolist() == [0.5, 0.5]


def test_tiers_that_do_not_span_the_cluster_are_refused() -> None:
    with pytest.raises(InputError, match="must hold all 16 devices"):
        Network.of(Cluster("small", 16, (Tier("a", 8, 1.0, 0.0),)))
