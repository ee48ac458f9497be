"""Cluster files: every number has a source, bad ones are refused, a part of a cluster is a
cluster."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from Estimator.hardware_files import HARDWARE, load_cluster
from Estimator.network.cluster import Cluster, Tier, with_devices
from Estimator.network.collectives import collective_s
from GraphExtractor.graph import CollectiveKind
from phaze_common.errors import InputError

FILES = sorted((HARDWARE / "clusters").glob("*.yaml"))
IN_COMMENTS = {"phaze_icml24", "nvlink_infiniband"}  # their few numbers are explained above them


def uncited(stated: Any, key: str = "") -> list[str]:
    """Keys of numbers that have no source beside them."""
    if isinstance(stated, dict):
        if stated.keys() == {"value", "source"}:
            return [] if stated["source"] else [key]
        return [bad for name, each in stated.items() for bad in uncited(each, f"{key}.{name}")]
    if isinstance(stated, list):
        return [bad for each in stated for bad in uncited(each, key)]
    return [] if isinstance(stated, str) else [key]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_number_has_a_source(path: Path) -> None:
    assert load_cluster(path.stem).name == path.stem
    if path.stem in IN_COMMENTS:
        assert path.read_text().startswith("#")
    else:
        assert uncited(yaml.safe_load(path.read_text())) == []


def test_a_part_of_a_cluster() -> None:
    pod = load_cluster("dgx_a100")
    part = with_devices(pod, 3072)
    assert part.num_devices == 3072 and part.tiers == pod.tiers and part.library == pod.library
    node = with_devices(pod, 4)
    assert [tier.name for tier in node.tiers] == ["nvswitch"]
    kind = CollectiveKind.ALL_REDUCE
    assert collective_s(kind, 1e9, 4, 1, node) == collective_s(kind, 1e9, 4, 1, pod)
    assert with_devices(pod, pod.num_devices) == pod
    for asked in (0, 4097):
        with pytest.raises(InputError, match=f"dgx_a100 has 4096 devices, {asked} were asked for"):
            with_devices(pod, asked)


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        (
            "perlmutter",
            lambda d: d["tiers"][0].update(efficiency=1.2),
            r"tiers\.0\.efficiency is 1\.2; it must be above 0",
        ),
        (
            "perlmutter",
            lambda d: d["tiers"][0]["short"].update(efficiency=0.0),
            r"tiers\.0\.short\.efficiency is 0",
        ),
        ("perlmutter", lambda d: d["tiers"][1].update(start_s=-1.0), r"tiers\.1\.start_s is -1"),
        (
            "perlmutter",
            lambda d: d["tiers"][1].update(relay_stall=-1.0),
            r"tiers\.1\.relay_stall is -1",
        ),
        (
            "perlmutter",
            lambda d: d["tiers"][1].update(inner_latency_s=-1.0),
            r"tiers\.1\.inner_latency_s is -1",
        ),
        (
            "perlmutter",
            lambda d: d["tiers"][1].update(topology="mesh"),
            r"tiers\.1\.topology is mesh; it must be switch or torus",
        ),
        (
            "perlmutter",
            lambda d: d["tiers"][1].update(topology="star"),
            r"tiers\.1\.topology.*star",
        ),
        (
            "perlmutter",
            lambda d: d["library"].update(tree_efficiency=0.0),
            r"library\.tree_efficiency is 0",
        ),
        (
            "perlmutter",
            lambda d: d["library"].update(copy_share=-0.1),
            r"library\.copy_share is -0\.1",
        ),
        (
            "perlmutter",
            lambda d: d["tiers"][0]["efficiency"].pop("source"),
            r"tiers\.0\.efficiency",
        ),
        ("perlmutter", lambda d: d["tiers"][0].update(colour="red"), "colour is not a known key"),
    ],
)
def test_bad_clusters_are_refused(
    tmp_path: Path, name: str, edit: Callable[[Any], object], message: str
) -> None:
    content = yaml.safe_load((HARDWARE / "clusters" / f"{name}.yaml").read_text())
    edit(content)
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(InputError, match=message):
        load_cluster(str(path))


def test_plain_numbers_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "plain.yaml"
    path.write_text(
        "name: plain\nnum_devices: 8\ntiers: [{name: a, group_size: 8, bandwidth_bytes_per_s: "
        "1.0, latency_s: 0.5}]\n"
    )
    assert load_cluster(str(path)) == Cluster("plain", 8, (Tier("a", 8, 1.0, 0.5),))
