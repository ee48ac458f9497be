"""Whose code is run: what a person names on the command line is, what only a file names is not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

import phaze
from phaze_common.errors import InputError
from phaze_common.sealed import KEY, with_digest
from tests.builders.forged_runs import forged

MODEL = """
from pathlib import Path
import torch
from torch import nn

Path(__file__).with_name("was_run").touch()


def build():
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def example_inputs(micro_batch_size):
    return torch.randn(micro_batch_size, 32)


def loss(output):
    return nn.functional.cross_entropy(output, torch.zeros(len(output), dtype=torch.long))
"""
ASKED = {
    "device": "a100_80gb",
    "devices": 2,
    "global_batch_size": 8,
    "tp": 1,
    "micro_batch_size": 1,
    "recompute": "none",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of somebody's own and a run of it, whose graphs are in the run's
    folder."""
    folder = tmp_path_factory.mktemp("somebody")
    (folder / "mine.py").write_text(MODEL)
    phaze.run_solver(
        phaze.study(model=str(folder / "mine.py"), output=str(folder / "run"), **ASKED)
    )
    return folder


@pytest.fixture
def received(made: Path, tmp_path: Path) -> Path:
    """The same as it reaches somebody else: files alone, in which the model is beside the run."""
    (tmp_path / "mine.py").write_text(MODEL)
    run = tmp_path / "run"
    shutil.copytree(made / "run", run, ignore=shutil.ignore_patterns("points", "GraphExtractor"))
    for name in ("best.json", "study.yaml"):
        forged(
            run,
            name,
            (run / name).read_text().replace(str(made / "mine.py"), "../mine.py").encode(),
        )
    return tmp_path


@pytest.fixture
def moved(made: Path, tmp_path: Path) -> Path:
    """A run without its graphs, whose study names a model that is there."""
    run = tmp_path / "run"
    shutil.copytree(made / "run", run, ignore=shutil.ignore_patterns("points", "GraphExtractor"))
    (run / "GraphExtractor" / "out").mkdir(parents=True)  # of a run with a folder for everything
    (made / "was_run").unlink(missing_ok=True)
    return run


def was_run(folder: Path) -> bool:
    return (folder / "was_run").exists()


def refused(words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command is refused before anything is run, names the file that would be, and says how to
    allow it."""
    assert phaze.main(words) == 2
    error = capsys.readouterr().err
    assert f"--run-code {folder / 'mine.py'}" in error and "Traceback" not in error
    assert not was_run(folder)


def test_a_plan_from_somebody_else_runs_no_code(
    received: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "evaluate",
        "--plan",
        str(received / "run" / "best.json"),
        "--output",
        str(received / "out"),
    ]
    refused(words, received, capsys)
    assert phaze.main([*words, "--run-code", str(received / "mine.py")]) == 0
    assert was_run(received)


@pytest.mark.parametrize(
    "words", ["evaluate --plan run/best.json --dp 1", "run_solver --config run/study.yaml"]
)
def test_code_that_is_not_run_is_the_first_thing_said(
    received: Path, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(received)
    assert (
        phaze.main([*words.split(), "--set", "global_batch_size=10", "--set", "micro_batch_size=3"])
        == 2
    )
    edited, *said = capsys.readouterr().err.splitlines()
    said = said if "was edited" in edited else [edited, *said]
    assert len(said) == 1 and "--run-code" in said[0]


def test_a_model_that_is_named_beside_the_plan_is_run(received: Path) -> None:
    plan, model = str(received / "run" / "best.json"), str(received / "mine.py")
    assert (
        phaze.main(
            ["evaluate", "--plan", plan, "--output", str(received / "out"), "--model", model]
        )
        == 0
    )
    assert was_run(received)


def test_an_alternative_to_somebody_else_s_run_runs_no_code(
    made: Path, moved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["explain", str(moved), "--instead", "pp=2,dp=1"]
    refused(words, made, capsys)
    assert phaze.main([*words, "--run-code", str(made / "mine.py")]) == 0
    assert was_run(made)


def test_an_alternative_whose_graphs_are_there_needs_no_code(made: Path) -> None:
    (made / "was_run").unlink(missing_ok=True)
    assert phaze.main(["explain", str(made / "run"), "--instead", "pp=2,dp=1"]) == 0
    assert not was_run(made)


def test_a_study_of_a_run_or_sweep_from_somebody_else_runs_no_code(
    received: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = ["--output", str(received / "out")]
    study = received / "run" / "study.yaml"
    for words in (
        ["run_solver", "--config", str(study)],
        ["extract_graph", "--config", str(study)],
        ["sweep", str(study)],
    ):
        refused([*words, *output], received, capsys)
    assert (
        phaze.main(
            [
                "extract_graph",
                "--config",
                str(study),
                *output,
                "--run-code",
                str(received / "mine.py"),
            ]
        )
        == 0
    )
    assert was_run(received)


def test_a_study_that_a_person_wrote_runs_the_model_that_it_names(received: Path) -> None:
    study = received / "mine.yaml"
    study.write_text(yaml.safe_dump({"model": ["mine.py"], "micro_batch_size": 1}))
    assert (
        phaze.main(["extract_graph", "--config", str(study), "--output", str(received / "out")])
        == 0
    )
    assert was_run(received)


@pytest.mark.parametrize(
    "model",
    ["mine.py", "gpt2, mine.py", ["gpt2", "mine.py"], {"mine.py": 2}, [["gpt2", "mine.py=2"]]],
)
def test_a_sweep_is_refused_however_it_names_the_model(
    received: Path,
    model: object,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    elsewhere = received / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.py").write_text(MODEL)
    monkeypatch.chdir(elsewhere)  # paths in a file are those from where it is
    (received / "points").mkdir()  # a sweep of somebody else
    (received / "sweep.yaml").write_text(
        yaml.safe_dump({"model": model, "micro_batch_size": [1, 2]})
    )
    refused(["sweep", str(received / "sweep.yaml")], received, capsys)
    assert not was_run(elsewhere)


def test_a_file_that_lies_in_the_current_folder_is_not_taken_for_the_one_beside_the_plan(
    received: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = received / "elsewhere" / "deeper"
    elsewhere.mkdir(parents=True)
    (elsewhere.parent / "mine.py").write_text(MODEL)
    monkeypatch.chdir(elsewhere)
    refused(
        ["evaluate", "--plan", "../../run/best.json", "--output", str(received / "out")],
        received,
        capsys,
    )
    assert not was_run(elsewhere.parent)


def test_python_callers_name_models_themselves_but_not_those_of_a_run(
    made: Path, moved: Path
) -> None:
    with pytest.raises(InputError, match="run_code"):
        phaze.explain(phaze.open_run(moved), "pp=2,dp=1")
    assert not was_run(made)
    phaze.explain(phaze.open_run(moved, run_code=made / "mine.py"), "pp=2,dp=1")
    assert was_run(made)


def test_only_python_files_can_be_allowed(
    received: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (received / "config.json").write_text("{}")
    assert (
        phaze.main(
            [
                "evaluate",
                "--model",
                "gpt2",
                "--device",
                "h100",
                "--run-code",
                str(received / "config.json"),
            ]
        )
        == 2
    )
    assert "no Python file" in capsys.readouterr().err


def test_an_edited_answer_is_priced_and_said_to_be_edited(
    received: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = received / "run" / "best.json"
    words = [
        "evaluate",
        "--plan",
        str(plan),
        "--output",
        str(received / "out"),
        "--run-code",
        str(received / "mine.py"),
    ]
    assert phaze.main(words) == 0
    assert f"{plan} was edited" in capsys.readouterr().err  # the path of the model, see received
    document = json.loads(plan.read_text())
    del document[KEY]
    plan.write_text(json.dumps(with_digest(document)))
    assert phaze.main(words) == 0
    assert "edited" not in capsys.readouterr().err


@pytest.mark.parametrize("ending", ["import sys; sys.exit(0)", "raise SystemExit", "exit()"])
def test_a_model_that_ends_the_process_is_no_success(
    tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(MODEL.replace("Path(__file__)", f"{ending}\nPath(__file__)"))
    assert (
        phaze.main(
            [
                "extract_graph",
                "--model",
                str(tmp_path / "mine.py"),
                "--output",
                str(tmp_path / "out"),
            ]
        )
        == 2
    )
    assert "ends the process" in capsys.readouterr().err


def test_code_of_a_repository_that_a_configuration_names_is_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``auto_map`` and ``trust_remote_code`` are how the hub's configurations bring code: beside
    them, or in a repository."""
    (tmp_path / "modeling_evil.py").write_text(MODEL + "\nclass Evil(nn.Module):\n    pass\n")
    config = {
        "model_type": "mpnet",
        "architectures": ["MPNetForMaskedLM"],
        "auto_map": dict.fromkeys(
            ("AutoConfig", "AutoModel", "AutoModelForMaskedLM"), "modeling_evil.Evil"
        ),
        "trust_remote_code": True,
        "_name_or_path": str(tmp_path),
        "attn_implementation": "evil/kernels",
        "_attn_implementation": "evil/kernels",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 1000,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.chdir(tmp_path)
    words = [
        "extract_graph",
        "--model",
        "config.json",
        "--sequence-length",
        "64",
        "--output",
        str(tmp_path / "out"),
    ]
    assert phaze.main(words) in {0, 2}
    assert not was_run(tmp_path)
    config["architectures"] = ["modeling_evil.Evil"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert phaze.main(words) == 2
    assert not was_run(tmp_path) and "Traceback" not in capsys.readouterr().err
