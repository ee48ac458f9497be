"""``--stage-cuts inside``: stages that begin between attention and feed-forward, from the search to
the plan's file and back."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import phaze

MODEL = [
    "--model",
    "gpt:layers=5,hidden=512,heads=8",
    "--sequence-length",
    "256",
    "--precision",
    "fp16",
]
HARDWARE = ["--device", "v100_16gb", "--devices", "4"]
ASKED = [
    *MODEL,
    *HARDWARE,
    "--global-batch-size",
    "16",
    "--micro-batch-size",
    "1",
    "--tp",
    "1",
    "--recompute",
    "none",
]


def evaluated(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert phaze.main(["evaluate", *words, "--format", "json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def best(folder: Path, cuts: str) -> dict[str, Any]:
    searched = [
        "--pp",
        "4",
        "--heterogeneous",
        "--stage-cuts",
        cuts,
        "--output",
        str(folder / cuts),
        "--quiet",
    ]
    assert phaze.main(["run_solver", *ASKED, *searched]) == 0
    found: dict[str, Any] = json.loads((folder / cuts / "best.json").read_bytes())
    return found


def test_more_places_to_cut_make_stages_even(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    between, inside = best(tmp_path, "between"), best(tmp_path, "inside")
    capsys.readouterr()
    assert between["optimal"] and inside["optimal"]
    (whole,), (cut,) = between["models"].values(), inside["models"].values()
    assert cut["time_per_batch_s"] < whole["time_per_batch_s"]
    names = [layer for stage in cut["stages"] for layer in stage["layers"]]
    assert len(names) == len({*names}) == 2 * 5 + 2
    ends = {stage["layers"][-1].split(".")[1] for stage in cut["stages"][:-1]}
    assert "attn" in ends  # a stage ends inside a layer
    assert inside["heterogeneous"]["status"] == "optimal"
    plan = shutil.copy(tmp_path / "inside" / "best.json", tmp_path / "plan.json")
    found = evaluated(capsys, "--plan", str(plan), "--output", str(tmp_path / "inside"), "--quiet")
    assert found["iteration_s"] == cut["time_per_batch_s"]


def test_on_one_stage_the_parts_take_what_the_layers_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = [*ASKED, "--pp", "1", "--dp", "4", "--output", str(tmp_path), "--quiet"]
    whole, cut = (evaluated(capsys, *alone, "--stage-cuts", cuts) for cuts in ("between", "inside"))
    assert cut["iteration_s"] == pytest.approx(whole["iteration_s"], rel=1e-12)
    assert [len(found["stages"][0]["layers"]) for found in (whole, cut)] == [7, 12]


def test_stage_layers_count_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    piped = [
        *ASKED,
        "--pp",
        "2",
        "--dp",
        "2",
        "--output",
        str(tmp_path),
        "--quiet",
        "--stage-cuts",
        "inside",
        "--stage-layers",
    ]
    found = evaluated(capsys, *piped, "4", "8")
    assert found["stages"][0]["layers"] == [
        "embedding",
        "block.attn.0",
        "block.mlp.0",
        "block.attn.1",
    ]
    assert phaze.main(["evaluate", *piped, "3", "4"]) == 2
    assert "adds up to 7 layers, but the model has 12" in capsys.readouterr().err
