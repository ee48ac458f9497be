"""Whole runs through the front door on a small design space, every room real."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import phaze
from Estimator.chips.design_space_files import load_design_space
from GraphExtractor.graph import ModelGraph
from phaze_common.errors import PhazeError
from phaze_common.files import write_atomically

SPACE = {
    "name": "small",
    "technology": "phaze_22nm",
    "platform": "phaze_hbm2",
    "vector_functions": "phaze",
    "axes": {
        "num_tc": [4, 8],
        "num_vc": [2, 4],
        "width": [64, 128],
        "depth": [128],
        "width_vc": None,
        "glb_mib": [8, 16],
    },
    "budget": {"area_mm2": 300.0},
    "keep": {"minimum_area_fraction": 0.0, "any_single_tc": True, "any_single_vc": True},
}


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Flags of a small study in a folder of its own."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "small.yaml").write_text(yaml.safe_dump(SPACE))
    study = {
        "model": "bertbase",
        "sequence_length": 64,
        "micro_batch_size": [1, 2],
        "hbm_size": [16, 32],
        "design_space": "small.yaml",
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    return ["--config", str(folder / "study.yaml"), "--output", str(folder / "out"), "--quiet"]


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert phaze.main([*words, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_mode_works_and_the_search_reads_back_its_own_study(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    out = Path(words[3])
    small = len(load_design_space(str(out.parent / "small.yaml")).generate())
    size = printed(capsys, "run_solver", *words, "--dry-run")
    assert (size["configurations"], size["points"]) == (small, small * 2 * 2 * 3)
    assert not out.exists()
    for mode in ("extract_graph", "prepopulate_estimates"):
        assert len(printed(capsys, mode, *words)) == 2
    best = printed(capsys, *words)
    assert (best["status"], best["optimal"]) == ("optimal", True)
    assert best == json.loads((out / "best.json").read_text())
    assert {"study.yaml", "manifest.json", "designs.parquet"} <= {
        path.name for path in out.iterdir()
    }
    again = printed(capsys, "--config", str(out / "study.yaml"), "--quiet")
    for key in ("study", "value", "accelerator", "models"):
        assert again[key] == best[key]


@pytest.mark.parametrize("mode", ["extract_graph", "prepopulate_estimates"])
def test_graphs_that_differ_in_a_degree_alone_can_be_told_apart(
    words: list[str],
    mode: str,
    extracted: Callable[..., ModelGraph],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    graph = extracted("bertbase", 1, 128)
    graphs = [replace(graph, key=replace(graph.key, ep=ep)) for ep in (1, 2, 4)]
    monkeypatch.setattr("phaze.cli.study.graphs_of", lambda request, progress: graphs)
    rows = printed(capsys, mode, *words)
    assert [(row["ep"], row["cp"], row["sequence_parallel"]) for row in rows] == [
        (1, 1, False),
        (2, 1, False),
        (4, 1, False),
    ]
    assert phaze.main([mode, *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "ep" in lines[2].split() and "cp" not in lines[2].split()
    assert len({line for line in lines[4:] if line}) == 3


def test_a_sample_that_is_no_sequence_has_no_length(
    extracted: Callable[..., ModelGraph],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    graph = extracted("bertbase", 1, 128)
    image = replace(graph, key=replace(graph.key, model="wide-resnet-500m", sequence_length=1))
    monkeypatch.setattr("phaze.cli.study.graphs_of", lambda request, progress: [image])
    words = ["extract_graph", "--model", "wide-resnet-500m", "--output", str(tmp_path)]
    (row,) = printed(capsys, *words)
    assert row["sequence_length"] is None
    assert printed(capsys, "models", "wide-resnet-500m")[0]["sequence_length"] is None


def test_the_table_names_the_best_of_every_hbm_size(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert phaze.main(words) == 0
    text = capsys.readouterr().out
    assert "best accelerator and plan per HBM size" in text
    assert "proven optimal over the whole space" in text


def test_the_plan_that_was_found_can_be_evaluated_on_a_device(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert phaze.main(words) == 0
    capsys.readouterr()
    out = Path(words[3])
    found = json.loads((out / "best.json").read_text())["models"]["bertbase"]
    asked = [
        "--plan",
        str(out / "best.json"),
        "--device",
        "a100_80gb",
        "--cluster",
        "phaze_icml24",
        "--output",
        str(out),
    ]
    record = printed(capsys, "evaluate", *asked)
    plan, stages = record["plan"], record["stages"]
    assert isinstance(plan, dict)
    assert isinstance(stages, list)
    for key in ("tp", "pp", "dp", "micro_batch_size", "recompute"):
        assert plan[key] == found[key]
    assert (plan["sequence_length"], plan["global_batch_size"]) == (64, 4096)
    assert record["micro_batches_per_pipeline"] == found["micro_batches_per_pipeline"]
    assert [stage["layers"] for stage in stages] == [stage["layers"] for stage in found["stages"]]


@pytest.mark.thorough
def test_an_answer_never_stands_beside_files_of_another_study(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert phaze.main(words) == 0

    def full(path: Path, content: bytes) -> None:
        if path.name == "designs.parquet":
            raise PhazeError(f"cannot write {path}")
        write_atomically(path, content)

    monkeypatch.setattr("phaze.runs.run_directory.write_atomically", full)
    assert phaze.main([*words, "--hbm-size", "8"]) == 1
    assert not (Path(words[3]) / "best.json").exists()


def test_nothing_feasible_ends_with_status_3(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert phaze.main([*words, "--hbm-size", "0.001", "--output", words[3] + "-infeasible"]) == 3
    captured = capsys.readouterr()
    assert "infeasible" in captured.out
    assert "Traceback" not in captured.err
