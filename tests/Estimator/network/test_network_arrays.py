"""Collectives of many groups at once: each costs what plain loops over its own members say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from networks_by_hand import clusters, costs_by_hand

from Estimator.hardware_files import load_cluster
from Estimator.network.cluster import Cluster
from Estimator.network.collectives import collective_costs, collective_costs_of, collective_s
from GraphExtractor.graph import CollectiveKind
from phaze_common.errors import InputError

ALL_REDUCE = CollectiveKind.ALL_REDUCE
KINDS = st.sampled_from(CollectiveKind)
Group = tuple[int, int, int]  # size, stride, first device


@st.composite
def groups_on(draw: st.DrawFn, cluster: Cluster) -> list[Group]:
    groups = []
    for _ in range(draw(st.integers(1, 8))):
        size = draw(st.integers(1, min(cluster.num_devices, 96)))
        stride = draw(st.integers(1, max(1, (cluster.num_devices - 1) // max(1, size - 1))))
        last_start = cluster.num_devices - 1 - (size - 1) * stride
        groups.append((size, stride, draw(st.just(0) | st.integers(0, last_start))))
    return groups


@given(st.data(), clusters(), KINDS)
def test_each_of_many_groups_costs_what_it_does_by_hand(
    data: st.DataObject, cluster: Cluster, kind: CollectiveKind
) -> None:
    groups = data.draw(groups_on(cluster))
    sizes, strides, first = (np.array(column) for column in zip(*groups, strict=True))
    costs = collective_costs_of(kind, sizes, strides, cluster, first)
    assert costs.fixed_s.shape == costs.per_byte_s.shape == (len(costs.algorithms), len(groups))
    for number, (size, stride, start) in enumerate(groups):
        found = {each.algorithm: (each.fixed_s, each.per_byte_s) for each in costs.of_group(number)}
        if size == 1:
            assert set(found.values()) == {(0.0, 0.0)}
            continue
        wanted = costs_by_hand(kind, size, stride, cluster, start)
        assert found == {
            name: pytest.approx(cost, rel=1e-12, abs=0) for name, cost in wanted.items()
        }
        alone = {
            each.algorithm: (each.fixed_s, each.per_byte_s)
            for each in collective_costs(kind, size, stride, cluster, start)
        }
        assert found == alone


@given(st.data(), clusters(), KINDS)
def test_the_fastest_algorithm_sets_the_seconds(
    data: st.DataObject, cluster: Cluster, kind: CollectiveKind
) -> None:
    groups = data.draw(groups_on(cluster))
    payloads = data.draw(
        st.lists(st.just(0.0) | st.floats(1e-3, 1e12), min_size=len(groups), max_size=len(groups))
    )
    sizes, strides, first = (np.array(column) for column in zip(*groups, strict=True))
    seconds = collective_costs_of(kind, sizes, strides, cluster, first).seconds(np.array(payloads))
    wanted = [
        collective_s(kind, payload, size, stride, cluster, start)
        for payload, (size, stride, start) in zip(payloads, groups, strict=True)
    ]
    assert seconds.tolist() == wanted


def test_groups_start_at_device_0_unless_they_say_otherwise() -> None:
    cluster = load_cluster("dgx_a100")
    sizes, strides = np.array([3, 3]), np.array([2, 2])
    seconds = collective_costs_of(ALL_REDUCE, sizes, strides, cluster).seconds(np.array([1e9, 1e9]))
    across = collective_costs_of(ALL_REDUCE, sizes, strides, cluster, np.array([0, 6])).seconds(
        np.array([1e9, 1e9])
    )
    assert seconds[0] == seconds[1] == across[0] < across[1] / 5


def test_an_algorithm_that_no_group_can_use_is_left_out() -> None:
    cluster = load_cluster("dgx_a100")
    inside = collective_costs_of(ALL_REDUCE, np.array([2, 8]), np.array([1, 1]), cluster)
    assert set(inside.algorithms) == {"ring", "short ring"}
    mixed = collective_costs_of(ALL_REDUCE, np.array([2, 16, 1]), np.array([1, 1, 1]), cluster)
    tree = mixed.algorithms.index("tree")
    assert (
        np.isinf(mixed.fixed_s[tree, 0])
        and np.isfinite(mixed.fixed_s[tree, 1])
        and mixed.fixed_s[tree, 2] == 0
    )


def test_payloads_of_many_tensors() -> None:
    cluster = load_cluster("tpu_v4")
    costs = collective_costs_of(ALL_REDUCE, np.array([1, 16, 64]), np.array([1, 1, 4]), cluster)
    payloads = np.array([[1e3, 1e3, 1e3], [1e9, 0.0, 1e9]])
    seconds = costs.seconds(payloads)
    assert seconds.tolist() == [costs.seconds(row).tolist() for row in payloads]
    assert seconds[0, 0] == seconds[1, 0] == seconds[1, 1] == 0 and (seconds[:, 2] > 0).all()


def test_an_algorithm_prices_arrays_of_bytes() -> None:
    ring, *_ = collective_costs(ALL_REDUCE, 8, 1, load_cluster("phaze_icml24"))
    assert ring.seconds(np.array([1e6, 2e6])).tolist() == [ring.seconds(1e6), ring.seconds(2e6)]


@pytest.mark.parametrize(
    ("sizes", "strides", "first", "message"),
    [
        (
            [8, 513],
            [8, 8],
            [0, 0],
            "513 devices, 8 apart, do not fit on the 4096 of cluster dgx_a100",
        ),
        ([8, 8], [8, 8], [0, 4088], "8 devices, 8 apart, do not fit"),
        ([8, 0], [8, 8], [0, 0], "0 devices, 8 apart, do not fit"),
        ([8, 8], [8, 0], [0, 0], "8 devices, 0 apart, do not fit"),
    ],
)
def test_groups_that_do_not_fit_are_refused(
    sizes: list[int], strides: list[int], first: list[int], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        collective_costs_of(
            ALL_REDUCE,
            np.array(sizes),
            np.array(strides),
            load_cluster("dgx_a100"),
            np.array(first),
        )
