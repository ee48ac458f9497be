"""``phaze validate`` from the command line to its answer: what it reads, prints, draws and
refuses."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import phaze
from phaze.validation.records import ValidationReport

RUN = {
    "model": "tiny",
    "layers": "2",
    "hidden": "256",
    "heads": "4",
    "seq": "128",
    "vocab": "1024",
    "gpu": "A100-80GB-SXM",
    "n_gpus": "2",
    "tp": "1",
    "pp": "1",
    "dp": "2",
    "micro_batch": "1",
    "global_batch": "4",
    "recompute": "none",
    "measured_iter_time_s": "0.01",
    "precision": "bf16",
    "framework": "Megatron-LM",
    "source": "made up for this test",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where traces are kept from one test to the next."""
    return tmp_path_factory.mktemp("validate")


@pytest.fixture(scope="module")
def runs(folder: Path) -> Path:
    """One small run, and one of a chip that nobody knows."""
    path = folder / "runs.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(RUN))
        writer.writeheader()
        writer.writerows([RUN, RUN | {"gpu": "abacus"}])
    return path


def record(
    capsys: pytest.CaptureFixture[str], *words: str | Path, status: int = 0
) -> dict[str, Any]:
    assert phaze.main(["validate", *map(str, words), "--format", "json", "--quiet"]) == status
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_the_record_has_the_statistics_by_source_and_over_all(
    runs: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = record(capsys, runs, "--output", folder)
    (source,) = found["sources"]
    statistics = {"rows", "skipped", "time_mape", "time_bias", "spearman", "memory_mape"}
    assert statistics <= found["overall"].keys()
    assert statistics | {"source"} <= source.keys()
    assert (source["source"], source["rows"], source["skipped"]) == ("made up for this test", 1, 1)
    assert source["time_mape"] == abs(source["time_bias"]) > 0
    assert source["spearman"] is None


def test_hardware_that_is_given_replaces_that_of_the_runs(
    runs: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = record(capsys, runs, "--output", folder)["sources"][0]
    hardware = "--device", "v100_32gb", "--cluster", "phaze_icml24"
    other = record(capsys, runs, "--output", folder, *hardware, status=1)["sources"][0]
    assert (other["rows"], other["skipped"]) == (0, 2)  # a V100 has no bf16
    other = record(
        capsys, runs, "--output", folder, "--device", "a100_80gb", "--cluster", "phaze_icml24"
    )["sources"][0]
    assert (other["rows"], other["skipped"]) == (2, 0)
    assert other["time_bias"] > own["time_bias"]


def test_the_tables_name_source_and_skipped_run(
    runs: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert phaze.main(["validate", str(runs), "--output", str(folder), "--quiet"]) == 0
    captured = capsys.readouterr()
    assert "made up for this test" in captured.out
    assert "abacus" in captured.out
    assert captured.err == ""


def test_a_picture_is_drawn_where_it_was_asked_for(
    runs: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn: list[tuple[int, Path]] = []

    def draw(report: ValidationReport, path: Path) -> None:
        drawn.append((len(report.runs), path))

    monkeypatch.setattr("phaze.report.validation_plot.draw", draw)
    monkeypatch.chdir(folder)
    record(capsys, runs, "--output", folder)
    assert not drawn
    record(capsys, runs, "--output", folder, "--plot", "here.SVG")
    assert drawn == [(2, folder / "here.SVG")]


REFUSED = {
    "missing file": ("nowhere.csv", "nowhere.csv"),
    "a folder": (".", "Is a directory"),
    "unknown device": ("runs.csv --device a1000", "no device named 'a1000'"),
    "unknown cluster": ("runs.csv --cluster imaginary", "no cluster named 'imaginary'"),
    "unknown software": ("runs.csv --software imaginary", "no software named 'imaginary'"),
    "missing hardware file": (
        "runs.csv --device nowhere/x.yaml",
        "device 'nowhere/x.yaml' is not a file",
    ),
    "picture of another kind": ("runs.csv --plot x.gif", "is no PNG, SVG or PDF"),
    "two files": ("runs.csv more.csv", "unexpected argument 'more.csv'"),
    "a study's flag": ("runs.csv --tp 8", "unknown flag '--tp' of validate"),
}


@pytest.mark.parametrize(("words", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_with_a_sentence(
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    said: str,
) -> None:
    monkeypatch.chdir(runs.parent)
    assert phaze.main(["validate", *words.split(), "--quiet"]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert (captured.out, len(captured.err.splitlines())) == ("", 1)


cells = st.sampled_from(
    [
        "",
        "0",
        "1",
        "2",
        "-1",
        "x",
        "1e400",
        "nan",
        "full",
        "yes",
        "A100",
        "4,5",
        '"',
        "\u00e9",
        "1-4",
    ]
)
columns = st.sampled_from(
    [
        *RUN,
        "seq_parallel",
        "interleave",
        "mfu_pct",
        "zero",
        "params_B",
        "network",
        "cp",
        "mem_GB_measured",
    ]
)


@given(
    st.dictionaries(columns, cells, max_size=5), st.lists(st.sampled_from(list(RUN)), max_size=1)
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
def test_any_table_is_predicted_skipped_or_refused(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, str],
    absent: list[str],
) -> None:
    row = {key: value for key, value in (RUN | changes).items() if key not in absent}
    with (tmp_path / "any.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow(row)
    words = [
        "validate",
        str(tmp_path / "any.csv"),
        "--output",
        str(folder),
        "--format",
        "json",
        "--quiet",
    ]
    status = phaze.main(words)
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    if status == 2:
        assert (captured.out, len(captured.err.splitlines())) == ("", 1)
        return
    overall = json.loads(captured.out)["overall"]
    assert status == (1 if overall["skipped"] else 0)
    assert overall["rows"] + overall["skipped"] == 1
    assert overall["rows"] == 0 or math.isfinite(overall["time_mape"])
