"""Devices and clusters of runs."""

import pytest
from complete_run import row_with, run_with

from Estimator.devices.files import load_device
from phaze.validation.assumptions import Notes, load_assumptions
from phaze.validation.run_hardware import cluster_of, device_of
from phaze.validation.translation import translated
from phaze_common.errors import InputError

RULES = load_assumptions()
DEVICE = load_device("a100_80gb")


def cluster_for(devices, **changes):
    notes = Notes()
    run = translated(row_with(**changes), RULES, notes)
    return cluster_of(run, devices, DEVICE, notes), notes


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        ("A100-80GB-SXM", "a100_80gb"),
        ("A100-40GB", "a100_40gb"),
        ("A100-40GB-SXM4", "a100_40gb"),
        ("H100-80GB-SXM5", "h100"),
        ("H100", "h100"),
        ("MI210-64GB", "mi210"),
        ("TPUv4", "tpu_v4"),
        ("NVIDIA A100", "a100_80gb"),
        ("A100-80GB (Ampere)", "a100_80gb"),
        ("TPUv4 (275 TF)", "tpu_v4"),
        ("Gaudi2", "gaudi2"),
        ("V100-32GB", "v100_32gb"),
    ],
)
def test_devices_are_found_by_the_names_of_papers(gpu, name):
    assert device_of(run_with(device=gpu or None)).name == name


@pytest.mark.parametrize(
    ("gpu", "words"),
    [("Ascend 910", "no device is known as 'Ascend 910'"), ("", "on which device")],
)
def test_other_devices_are_refused(gpu, words):
    with pytest.raises(InputError, match=words):
        device_of(run_with(device=gpu or None))


@pytest.mark.parametrize(
    ("network", "name", "node", "rate"),
    [
        ("", "dgx_a100", 8, 25e9),
        ("DGX A100 (NVSwitch) 8x200Gb HDR IB", "dgx_a100", 8, 25e9),
        ("8-GPU nodes; inter 800 Gb/s", "dgx_a100", 8, 12.5e9),
        ("4 GPUs per node, 4x200Gb", "dgx_a100", 4, 25e9),
        ("100 Gb/s Ethernet", "dgx_a100", 8, 12.5e9),
        ("400 Gb/s per GPU", "dgx_a100", 8, 25e9),
        ("Jean Zay, 4 Omni-Path links per node", "jean_zay", 8, 6.25e9),
        ("vTrain config: inter 800 Gb/s", "a100_hdr_800g", 8, 12.5e9),
    ],
)
def test_clusters_are_named_and_corrected_by_the_network(network, name, node, rate):
    cluster, notes = cluster_for(64, network=network)
    assert cluster.name == name
    assert cluster.tiers[0].group_size == node
    assert cluster.tiers[-1].bandwidth_bytes_per_s == pytest.approx(rate)
    assert {"cluster", "words"} & {each.rule for each in notes.made()}


def test_a_cluster_is_as_large_as_the_run():
    cluster, _ = cluster_for(12288)
    assert cluster.num_devices == cluster.tiers[-1].group_size == 12288
    assert cluster_for(64)[0].num_devices == 4096


def test_a_torus_has_no_nodes():
    notes = Notes()
    cluster = cluster_of(run_with(devices_per_node=8), 64, load_device("tpu_v4"), notes)
    assert cluster.name == "tpu_v4"
