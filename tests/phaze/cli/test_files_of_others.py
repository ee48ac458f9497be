"""Files and places that cannot be used, as they are given on the command line: one sentence that
names them, exit status 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import phaze
from Estimator.hardware_files import HARDWARE


def said(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a refused command says."""
    assert phaze.main(words) == 2
    _, err = capsys.readouterr()
    assert "Traceback" not in err and len(err.splitlines()) == 1
    return err


def hardware(kind: str, name: str) -> dict[str, object]:
    content: dict[str, object] = yaml.safe_load((HARDWARE / kind / f"{name}.yaml").read_text())
    return content


@pytest.mark.parametrize("value", [1e40, 1e18, 2.0**21])
def test_a_platform_beyond_any_range_is_refused(
    tmp_path: Path, value: float, capsys: pytest.CaptureFixture[str]
) -> None:
    platform, space = hardware("platforms", "phaze_hbm2"), hardware("design_spaces", "phaze_icml24")
    platform["l2_per_pe"] = {**platform["l2_per_pe"], "value": value}  # type: ignore[dict-item]
    (tmp_path / "platform.yaml").write_text(yaml.safe_dump(platform))
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(space | {"platform": "./platform.yaml"}))
    words = [
        "accelerators",
        "--design-space",
        str(tmp_path / "space.yaml"),
        "--output",
        str(tmp_path / "cores.json"),
    ]
    error = said(words, capsys)
    assert "platform.yaml: l2_per_pe.value is" in error and "at most" in error


def test_a_latency_without_end_is_refused_not_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = hardware("clusters", "phaze_icml24")
    cluster["tiers"] = [{**tier, "latency_s": 1e308} for tier in cluster["tiers"]]  # type: ignore[attr-defined]
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(cluster))
    words = [
        "evaluate",
        "--model",
        "gpt2",
        "--chip",
        "tpu_v4",
        "--cluster",
        str(tmp_path / "cluster.yaml"),
    ]
    assert "cluster.yaml: tiers.0.latency_s is 1e+308" in said(words, capsys)


@pytest.mark.parametrize("values", [[2**63], [1e40], [10**39], [[2**63, 1]]])
def test_values_of_a_sweep_that_no_point_can_have_are_refused_with_their_file(
    tmp_path: Path, values: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(
        yaml.safe_dump({"model": "bertbase", "micro_batch_size": values, "hbm_size": [32, 64]})
    )
    for words in (["--dry-run"], []):
        error = said(["sweep", str(path), "--output", str(tmp_path / "out"), *words], capsys)
        assert f"{path}: no point of the sweep is possible; the first: micro_batch_size is" in error


def test_a_sweep_with_one_value_that_cannot_be_lists_it_as_impossible(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sweep.yaml").write_text(
        yaml.safe_dump({"model": "bertbase", "micro_batch_size": [1, 2**63, 1e40]})
    )
    words = [
        "sweep",
        str(tmp_path / "sweep.yaml"),
        "--output",
        str(tmp_path / "out"),
        "--dry-run",
        "--format",
        "json",
    ]
    assert phaze.main(words) == 2
    assert len(json.loads(capsys.readouterr().out)) == 3


@pytest.mark.parametrize(
    "mode", ["run_solver --model gpt2", "accelerators", "evaluate --model gpt2 --device h100"]
)
def test_a_place_where_nothing_can_be_written_is_wrong_input(
    mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "/proc/x/y" in said([*mode.split(), "--output", "/proc/x/y"], capsys)


def test_a_file_without_a_name_or_content_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.yaml").touch()
    (tmp_path / "some.yaml").write_text("tp: 1")
    for words in (["run_solver", "--config", ""], ["evaluate", "--plan", " "], ["sweep", ""]):
        assert "no file is named" in said(words, capsys)
    assert "empty.yaml is empty" in said(
        ["run_solver", "--config", str(tmp_path / "empty.yaml")], capsys
    )
    assert "some.yaml names no model" in said(
        ["run_solver", "--config", str(tmp_path / "some.yaml")], capsys
    )
    assert (
        phaze.main(
            ["run_solver", "--config", str(tmp_path / "empty.yaml"), "--model", "gpt2", "--dry-run"]
        )
        == 0
    )


@pytest.mark.parametrize(
    "words",
    [
        "explain run --instead=--",
        "evaluate --plan=--",
        "run_solver --model=--",
        "trace x --output=--",
    ],
)
def test_two_hyphens_are_no_value(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "'--', which is no value" in said(words.split(), capsys)
