"""Groups that lie evenly in the blocks of every tier, told by how many of each block they have."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from Estimator.hardware_files import load_cluster
from Estimator.network.calibration_tables import read_collectives
from Estimator.network.cluster import Cluster, Tier
from Estimator.network.collectives import collective_costs_of, rectangle_costs, rectangle_costs_of
from Estimator.network.crossings import parts_of
from Estimator.network.links import carried_tiers, outermost_tiers
from GraphExtractor.graph import CollectiveKind

PAYLOADS = np.array([[1e3], [1e6], [1e9]])
CLUSTERS = ("dgx_a100", "perlmutter", "tpu_v4", "v100_4x8", "phaze_icml24")


def groups_on(cluster: Cluster) -> tuple[np.ndarray, np.ndarray]:
    found = [
        (size, stride)
        for size in (1, 2, 3, 4, 6, 8, 16, 32, 64)
        for stride in (1, 2, 3, 4, 8, 16, 32)
        if size * stride <= cluster.num_devices
    ]
    return tuple(np.array(column) for column in zip(*found, strict=True))  # type: ignore[return-value]


@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.parametrize("kind", list(CollectiveKind))
def test_neighbours_cost_what_their_rectangle_does(name: str, kind: CollectiveKind) -> None:
    cluster = load_cluster(name)
    sizes, strides = groups_on(cluster)
    parts = parts_of(sizes, strides, np.full(len(sizes), 2**31), cluster.block_sizes, cluster.rings)
    even = parts.all(axis=0)
    assert even.any()
    strided = collective_costs_of(kind, sizes[even], strides[even], cluster).seconds(
        PAYLOADS + np.zeros(even.sum())
    )
    assert np.array_equal(
        strided,
        rectangle_costs_of(kind, parts[:, even], cluster).seconds(PAYLOADS + np.zeros(even.sum())),
    )


@given(
    blocks=st.sampled_from([[16], [2, 16], [4, 16], [3, 12], [2, 4, 16], [2, 6, 24]]),
    size=st.integers(1, 12),
    stride=st.integers(1, 12),
    before=st.integers(0, 11),
    turn=st.integers(0, 3),
)
def test_parts_are_what_counting_says(
    blocks: list[int], size: int, stride: int, before: int, turn: int
) -> None:
    """Of groups that start where a contiguous numbering puts them; where counts differ from block
    to block there are none."""
    cluster = Cluster(
        "counted", 10**4, tuple(Tier(str(block), block, 1e9, 1e-6) for block in blocks)
    )
    (parts,) = parts_of(
        np.array([size]), np.array([stride]), np.array([2**31]), cluster.block_sizes
    ).T.tolist()
    members = before % stride + turn * size * stride + stride * np.arange(size)
    if 0 in parts:
        return
    assert math.prod(parts) == size
    inside = 1
    for block, part in zip(blocks[:-1], parts, strict=False):
        inside *= part
        assert set(np.unique(members // block, return_counts=True)[1].tolist()) == {inside}


@given(parts=st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4))
def test_the_next_stage_is_in_another_block_when_the_last_one_is_full(parts: list[int]) -> None:
    column = np.array(parts)[:, None]
    digits = np.array(np.unravel_index(np.arange(math.prod(parts)), parts[::-1]))[
        ::-1
    ]  # innermost tier first
    crossed = [
        int(np.flatnonzero(digits[:, stage] != digits[:, stage + 1]).max())
        for stage in range(digits.shape[1] - 1)
    ]
    assert carried_tiers(column)[0].tolist() == crossed
    assert int(outermost_tiers(column)[0]) == max(crossed, default=0)


def test_more_in_a_node_is_faster_where_nodes_are() -> None:
    cluster = load_cluster("dgx_a100")
    shapes = [(1, 16), (2, 8), (4, 4), (8, 2)]
    seconds = [
        min(
            cost.seconds(1e9) for cost in rectangle_costs(CollectiveKind.ALL_REDUCE, shape, cluster)
        )
        for shape in shapes
    ]
    assert seconds == sorted(seconds, reverse=True)


def test_rectangles_over_two_tiers_take_what_was_measured(shared_data: Path) -> None:
    """NCCL on Perlmutter: so many GPUs in each of so many nodes; the manual says 4.4 % of long
    messages, 7.6 % of all."""
    samples = read_collectives(shared_data / "layouts" / "nccl_perlmutter_measured.csv")
    cluster = load_cluster("perlmutter")
    errors, long = [], []
    for kind in {sample.kind for sample in samples}:
        mine = [sample for sample in samples if sample.kind is kind]
        parts = np.array([(sample.devices_per_node, sample.num_nodes) for sample in mine]).T
        costs = rectangle_costs_of(kind, parts, cluster)
        predicted = costs.seconds(np.array([float(sample.payload_bytes) for sample in mine]))
        errors += np.abs(predicted / [sample.seconds for sample in mine] - 1).tolist()
        long += [sample.payload_bytes > 32 * 2**20 for sample in mine]
    both = np.array(errors), np.array(long)
    assert both[0][both[1]].mean() < 0.05
    assert both[0].mean() < 0.09
