"""``phaze models``, and models named by a path wherever a model is named."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import phaze
from GraphExtractor.models.registry import canonical_name, listed_aliases, listed_models
from GraphExtractor.names import label
from phaze.runs.plan_files import evaluate_request
from phaze.settings.config_files import read_config
from phaze.settings.resolve import resolve
from phaze_common.errors import InputError

REPOSITORY = Path(__file__).resolve().parents[3]
MODEL = """\
import torch
def build(): return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64), torch.nn.Linear(64, 8))
def example_inputs(micro_batch_size, sequence_length=16): return torch.zeros(micro_batch_size, sequence_length, 64)
def loss(output): return torch.atan(output).sum()
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MODEL)
    return path


def test_every_listed_model_is_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert phaze.main(["models"]) == 0
    table = capsys.readouterr().out
    rows = {line.split()[0]: line for line in table.splitlines() if line.strip()}
    assert set(listed_models()) <= set(rows)
    assert all(alias in rows[model] for alias, model in listed_aliases().items())
    assert rows["llama3-405b"].split()[1:3] == ["Llama", "405.9B"]
    assert "128 (8 kv)" in rows["llama3-405b"]
    assert (
        "gpt:layers=24,hidden=2304,heads=24" in table
        and "config.json" in table
        and "model.py" in table
    )


def test_as_json_nothing_is_rounded(capsys: pytest.CaptureFixture[str], mine: Path) -> None:
    assert (
        phaze.main(
            [
                "models",
                "llama2-70b",
                "gpt:layers=4,hidden=64,heads=4",
                str(mine),
                "--format",
                "json",
            ]
        )
        == 0
    )
    llama, gpt, own = json.loads(capsys.readouterr().out)
    assert (llama["parameters"], llama["tp_widths"], llama["sequence_length"]) == (
        68_976_648_192,
        [1, 2, 4, 8],
        4096,
    )
    assert (gpt["name"], gpt["parameters"], gpt["layers"], gpt["hidden"]) == (
        "gpt-layers4-hidden64-heads4",
        None,
        4,
        64,
    )
    assert (own["name"], own["layers"], own["tp_widths"], own["sequence_length"]) == (
        str(mine),
        None,
        None,
        16,
    )


def test_an_unknown_name_is_refused_in_one_short_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert phaze.main(["models", "lama2"]) == 2
    said = capsys.readouterr().err
    assert (
        said.startswith("phaze: unknown model 'lama2'; did you mean llama2")
        and "'phaze models' lists them" in said
    )
    assert len(said) < 400


def test_listing_models_needs_no_torch(mine: Path) -> None:
    code = (
        "import sys, phaze; phaze.main(sys.argv[1:]); print([name for name in ('torch', "
        "'transformers') if name in sys.modules])"
    )
    words = [sys.executable, "-c", code, "models", "bertbase", str(mine)]
    done = subprocess.run(
        words, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_path_means_the_same_however_it_is_written(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(mine.parent)
    names = {
        canonical_name(name)
        for name in (
            "mine.py",
            "./mine.py",
            str(mine),
            f"{mine.parent}/../{mine.parent.name}/mine.py",
        )
    }
    assert names == {str(mine)}
    assert label(str(mine)).startswith("mine-")
    assert label("/a/resnet/model.py").startswith("resnet-") and label("/b c/x y.py").startswith(
        "x_y-"
    )
    assert label("/a/resnet/model.py") != label("/b/resnet/model.py")


def test_a_study_of_a_file_reads_back_as_itself(mine: Path, tmp_path: Path) -> None:
    spaced = tmp_path / "a folder, with = signs" / "mine.py"
    spaced.parent.mkdir()
    spaced.write_text(MODEL)
    study = resolve({}, {"model": [f"{mine}=2", str(spaced), "bertbase"]})
    assert [(model.name, model.weight) for model in study.workload.models] == [
        (str(mine), 2),
        (str(spaced), 1),
        ("bertbase", 1),
    ]
    assert "/" not in study.output.name
    assert resolve(yaml.safe_load(study.to_yaml()), {}) == study
    assert study.sequence_length_of(str(mine)) == 16
    with pytest.raises(InputError, match="given twice"):
        resolve({}, {"model": [str(mine), f"{tmp_path}/./mine.py"]})


@pytest.mark.parametrize(
    ("written", "weights"),
    [
        ("mine.py", [1]),
        ("[./mine.py=3, bertbase]", [3, 1]),
        ("{mine.py: 2, bertbase: 1}", [2, 1]),
        ("vit-b/16", [1]),
    ],
)
def test_paths_in_a_file_are_relative_to_it(mine: Path, written: str, weights: list[float]) -> None:
    config = mine.with_name("study.yaml")
    config.write_text(f"model: {written}\n")
    study = resolve(read_config(config), {})
    assert study.workload.models[0].name == ("vit-b-16" if written == "vit-b/16" else str(mine))
    assert [model.weight for model in study.workload.models] == weights
    if weights == [1]:
        assert (
            evaluate_request(config, {"device": "a100_80gb"}).workload.models[0].name
            == study.workload.models[0].name
        )
        request = resolve(read_config(config), {"device": "a100_80gb", "devices": 8})
        assert (
            request.workload.models[0].name == study.workload.models[0].name
            and "/" not in request.output.name
        )


def test_a_search_of_a_file_leaves_a_plan_that_evaluates(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(mine.parent / "run")
    words = [
        "--model",
        str(mine),
        "--hbm-size",
        "1",
        "--global-batch-size",
        "8",
        "--recompute",
        "none",
        "--output",
        output,
        "--quiet",
    ]
    assert phaze.main(words) == 0
    captured = capsys.readouterr()
    assert f"{label(str(mine))}: " in captured.out and str(mine) not in captured.out
    assert captured.err.count("aten.atan (once, in linear.2)") == 1
    (best,) = json.loads((mine.parent / "run" / "best.json").read_text())["models"].items()
    assert best[0] == str(mine) and best[1]["throughput_samples_per_s"] > 0
    assert {path.name for path in (mine.parent / "run" / "Estimator" / "estimates").iterdir()} == {
        label(str(mine))
    }
    plan = [
        "evaluate",
        "--plan",
        f"{output}/best.json",
        "--device",
        "a100_80gb",
        "--output",
        output,
        "--quiet",
    ]
    assert phaze.main(plan) == 0
    captured = capsys.readouterr()
    assert "aten.atan (once, in linear.2)" in captured.err  # of a graph that was on disk
    for strict in (
        plan,
        words,
        ["extract_graph", *words[:2], "--output", output],
        ["prepopulate_estimates", *words[:2]],
    ):
        assert phaze.main([*strict, "--strict", "--output", output, "--quiet"]) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and captured.err.startswith(
            f"phaze: operators of {label(str(mine))} have no cost: aten.atan (once, in linear.2);"
        )


def test_the_search_of_a_plan_for_a_file_counts_its_plans_once_it_is_traced(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--model",
        str(mine),
        "--device",
        "a100_80gb",
        "--devices",
        "4",
        "--global-batch-size",
        "8",
        "--format",
        "json",
    ]
    assert phaze.main([*words, "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)["plans"] is None


def test_a_file_that_cannot_be_read_is_refused(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if os.geteuid() == 0:
        pytest.skip("everything can be read by root")
    mine.chmod(0)
    assert phaze.main(["models", str(mine)]) == 2
    assert "Permission denied" in capsys.readouterr().err
