"""What leaves a node in a collective of all its devices at once fits its ports: groups that cross
together share them."""

import pytest

from Estimator.hardware_files import load_cluster
from Estimator.network.collectives import collective_s
from GraphExtractor.operator_records import CollectiveKind


@pytest.mark.parametrize("nodes", [2, 4, 16])
@pytest.mark.parametrize("name", ["aws_p4d", "dgx_a100", "gcp_g2", "perlmutter"])
@pytest.mark.parametrize("payload_bytes", [1e6, 1e9])
def test_groups_that_cross_at_once_share_the_ports_of_a_node(
    name: str, nodes: int, payload_bytes: float
) -> None:
    """Each of the groups has some devices in each of the nodes; together they have all devices of
    these."""
    cluster = load_cluster(name)
    node, outer = cluster.tiers[0].group_size, cluster.tiers[1]
    for inside in (each for each in (1, 2, 4, 8) if each <= node):
        seconds = collective_s(
            CollectiveKind.ALL_REDUCE, payload_bytes, nodes * inside, node // inside, cluster
        )
        leaving = (
            node // inside * 2 * (nodes - 1) / nodes * payload_bytes
        )  # no algorithm sends less
        assert leaving <= node * outer.bandwidth_bytes_per_s * seconds
