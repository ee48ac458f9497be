"""Networks from words."""

import pytest

from phaze.validation.network_description import DescribedNetwork, network_in


@pytest.mark.parametrize(
    ("text", "devices", "node", "port"),
    [
        ("DGX A100 (NVSwitch) 8x200Gb HDR IB", None, 1600, None),
        ("8-GPU nodes; vTrain config: inter 800 Gb/s, intra 150 GB/s", 8, 800, None),
        ("4x Omni-Path 100Gb per node", None, 400, None),
        ("A100 80GB with 1600 Gbps node-node interconnect (RoCE)", None, 1600, None),
        ("NVLink + 8x400Gb NDR IB", None, 3200, None),
        ("8x HDR", None, 1600, None),
        ("3.2 Tb/s per node", None, 3200, None),
        ("4x Slingshot-11 200Gb/s; 4 GPUs per node", 4, 800, None),
        ("8 x A100 per node, 25 GB/s InfiniBand per GPU", 8, None, 200),
        ("RoCE 400 Gb/s per GPU", None, None, 400),
        ("100 Gb/s Ethernet", None, None, 100),
        ("EFA 3200 Gbps", None, 3200, None),
        ("one node of 8 A100, NVSwitch", 8, None, None),
        ("NVLink 600 GB/s", None, None, None),
        ("DGX H100", None, None, None),
        ("", None, None, None),
    ],
)
def test_nodes_and_rates_are_found(text, devices, node, port):
    assert network_in(text) == DescribedNetwork(devices, node, port)
