"""``phaze profile``: what it measures and keeps, that it goes on where it was killed, and what is
asked of its databases."""

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

import phaze
from Estimator.profiled.database import ProfileDatabase, read_database
from Estimator.profiled.machine import Clock
from Estimator.profiled.rows import Exchange, anonymous, dtype_of
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import GraphKey, OperatorKind, Phase
from GraphExtractor.models.registry import find_model
from phaze.runtime.profiling.layer_passes import measured_layer_passes
from phaze.runtime.profiling.timing import Repeats
from tests.builders.processes import started

REPOSITORY = Path(__file__).resolve().parents[3]
MODEL, LENGTH = "gpt:layers=2,hidden=64,heads=4", 16
PROFILE = [
    "profile",
    "--model",
    MODEL,
    "--sequence-length",
    str(LENGTH),
    "--tp",
    "1",
    "2",
    "--cap",
    "0.02",
    "--processes",
]
ENOUGH_ROWS, PATIENCE_S = 12, 120.0


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small profile of this machine."""
    folder = tmp_path_factory.mktemp("profiles") / "here"
    assert phaze.main([*PROFILE, "--output", str(folder), "--quiet"]) == 0
    return folder


def answer(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    capsys.readouterr()
    assert phaze.main([*map(str, words), "--format", "json", "--quiet"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refusal(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    capsys.readouterr()
    assert phaze.main([*map(str, words)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.strip().splitlines()) == 1
    return captured.err


@pytest.mark.parametrize("tp", [1, 2])
def test_every_operator_of_the_graph_is_measured(profiled: Path, tp: int) -> None:
    graph = extract_graph(GraphKey(MODEL, 1, LENGTH, tp, dtype="float32"))
    operators = [
        each
        for layer in graph.layers
        for each in (*layer.forward.operators, *layer.backward.operators)
    ]
    database = read_database(profiled)
    measured = {row.operator for row in database.operators}
    wanted = {anonymous(each) for each in operators if each.kind is not OperatorKind.COLLECTIVE}
    assert wanted <= measured
    assert {dtype_of(row.operator) for row in database.operators} == {"float32"}
    assert {row.phase for row in database.passes} == set(Phase)


def test_layers_of_models_that_no_family_describes_are_timed(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(
            {
                **{
                    "model_type": "resnet",
                    "architectures": ["ResNetForImageClassification"],
                    "layer_type": "basic",
                },
                **{
                    "embedding_size": 4,
                    "hidden_sizes": [4, 4, 8, 8],
                    "depths": [1, 1, 1, 1],
                    "num_labels": 3,
                },
            }
        )
    )
    family = find_model(str(path))
    assert not family.described
    found = measured_layer_passes(
        GraphKey(str(path), 1, 1, 1, dtype="float32"),
        family,
        Clock.THREAD,
        Repeats(least=1, most=1, warm_up=0),
    )
    layers = {layer for _, layer in found}
    assert len(layers) > 4 and set(found) == {(phase, layer) for phase in Phase for layer in layers}
    assert all(each.timing.seconds > 0 for each in found.values())
    again = {place for place, each in found.items() if each.again_s is not None}
    inner = list(dict.fromkeys(layer for _, layer in found))[1:-1]
    assert again == {(Phase.BACKWARD, layer) for layer in inner}


def test_a_second_profile_measures_nothing_again(
    profiled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_database(profiled)
    report = answer(capsys, *PROFILE, "--output", profiled)
    assert report["measured_now"] == 0
    assert read_database(profiled).digest == before.digest


@pytest.mark.thorough
def test_a_profile_that_was_killed_keeps_its_rows_and_ends_with_the_same_ones(
    profiled: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "killed"
    words = [sys.executable, REPOSITORY / "phaze.py", *PROFILE, "--output", folder, "--quiet"]
    with started(words, cwd=REPOSITORY) as process:
        deadline, table = time.monotonic() + PATIENCE_S, folder / "operators.csv"
        least = Random().randint(1, ENOUGH_ROWS)
        while not (table.exists() and table.read_bytes().count(b"\n") > least):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    kept = read_database(folder)
    assert least <= len(kept.operators) < len(read_database(profiled).operators)
    assert phaze.main([*PROFILE, "--output", str(folder), "--quiet"]) == 0
    whole = read_database(folder)
    assert set(kept.operators) <= set(whole.operators)
    assert keys(whole) == keys(read_database(profiled))


def keys(database: ProfileDatabase) -> tuple[object, ...]:
    """What was measured, without its seconds."""
    passes = sorted((row.phase, row.operators, row.micro_batch_size) for row in database.passes)
    return {row.operator for row in database.operators}, passes


def test_exchanges_between_processes_are_measured(tmp_path: Path, profiled: Path) -> None:
    folder = tmp_path / "exchanges"
    shutil.copytree(profiled, folder)
    assert phaze.main([*PROFILE, "2", "--output", str(folder), "--quiet"]) == 0
    database = read_database(folder)
    assert {row.kind for row in database.collectives} == set(Exchange)
    assert {row.group_size for row in database.collectives} == {2}
    reduced = {
        row.payload_bytes: row.timing.seconds
        for row in database.collectives
        if row.kind is Exchange.ALL_REDUCE
    }
    assert reduced[max(reduced)] > reduced[min(reduced)]


def test_a_plan_is_priced_from_a_database(
    profiled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "evaluate",
        "--model",
        MODEL,
        "--sequence-length",
        LENGTH,
        "--device",
        profiled,
        "--output",
        tmp_path,
    ]
    found = answer(capsys, *words, "--pp", "2", "--global-batch-size", "4")
    machine, sources = read_database(profiled).machine, found["price_sources"]
    assert sources["database"] == str(profiled)
    assert sources["operators"]["measured"] > 0 and sources["operators"]["fitted"] == 0
    assert sources["share_of_seconds"]["measured"] == pytest.approx(1)
    assert found["memory_capacity_bytes"] == pytest.approx(machine.memory_bytes, abs=1)
    larger = answer(capsys, *words, "--micro-batch-size", "3")["price_sources"]["operators"]
    assert larger["fitted"] + larger["interpolated"] > 0


def test_a_search_says_what_was_measured(
    profiled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--model",
        MODEL,
        "--sequence-length",
        LENGTH,
        "--device",
        profiled,
        "--devices",
        "2",
        "--global-batch-size",
        "4",
    ]
    words += [
        "--micro-batch-size",
        "1",
        "--recompute",
        "none",
        "--zero-stage",
        "0",
        "--interleave",
        "1",
        "--sequence-parallel",
        "false",
    ]
    found = answer(capsys, "run_solver", *words, "--output", tmp_path)
    assert found["status"] == "optimal"
    (plan,) = found["models"].values()
    assert plan["price_sources"]["share_of_seconds"]["measured"] > 0.9
    assert plan["precision"] == "fp32"
    again = answer(capsys, "evaluate", "--plan", tmp_path / "best.json")
    assert again["iteration_s"] == pytest.approx(plan["time_per_batch_s"], rel=1e-9)
    assert phaze.main(["run_solver", *map(str, words), "--output", str(tmp_path)]) == 0
    assert "of their seconds" in capsys.readouterr().out


def test_a_training_is_priced_from_a_database(
    profiled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--model",
        MODEL,
        "--sequence-length",
        LENGTH,
        "--device",
        profiled,
        "--output",
        tmp_path,
        "--tokens",
        "1e6",
    ]
    degrees = [
        "--tp",
        "1",
        "--pp",
        "1",
        "--dp",
        "2",
        "--micro-batch-size",
        "1",
        "--global-batch-size",
        "4",
    ]
    assert answer(capsys, "training-time", *words, *degrees)


def test_a_device_and_a_cluster_are_fitted_to_a_database(
    profiled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fitted = tmp_path / "fitted.yaml"
    report = answer(
        capsys, "calibrate", "--device", profiled, "--table", profiled, "--output", fitted
    )
    assert any(each["table"].endswith(": gemm") for each in report["tables"])
    found = answer(
        capsys,
        "evaluate",
        "--model",
        MODEL,
        "--sequence-length",
        LENGTH,
        "--device",
        fitted,
        "--cluster",
        profiled,
        "--output",
        tmp_path,
    )
    assert "price_sources" not in found


def test_what_cannot_be_profiled_is_refused(
    profiled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = ["--output", tmp_path / "new"]
    assert "name its folder with --output" in refusal(capsys, "profile", "--model", MODEL)
    assert "one model at a time" in refusal(capsys, "profile", *there)
    assert "hidden" in refusal(
        capsys, "profile", "--model", "gpt:layers=2,hidden=63,heads=4", *there
    )
    assert "3" in refusal(capsys, "profile", "--model", MODEL, "--tp", "3", *there)
    assert "threads is 0" in refusal(capsys, "profile", "--model", MODEL, "--threads", "0", *there)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    assert "is there and is no profiled database" in refusal(
        capsys, "profile", "--model", MODEL, "--output", tmp_path / "mine"
    )
    assert not (tmp_path / "new").exists()
    other = tmp_path / "other"
    shutil.copytree(profiled, other)
    text = (other / "machine.yaml").read_text()
    (other / "machine.yaml").write_text(text.replace("description: ", "description: another "))
    assert "give another --output" in refusal(capsys, *PROFILE, "--output", other)


def test_a_database_of_another_dtype_or_none_is_refused(
    profiled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["evaluate", "--model", MODEL, "--sequence-length", str(LENGTH), "--output", tmp_path]
    assert "only in float32; give --precision fp32" in refusal(
        capsys, *words, "--device", profiled, "--precision", "bf16"
    )
    assert "measured, which no other peak" in refusal(
        capsys, *words, "--device", profiled, "--peak-flops", "1"
    )
    assert str(tmp_path / "nothing") in refusal(capsys, *words, "--device", tmp_path / "nothing")
    empty = tmp_path / "empty"
    empty.mkdir()
    shutil.copy(profiled / "machine.yaml", empty)
    assert "has no measured matrix product" in refusal(capsys, *words, "--device", empty)
