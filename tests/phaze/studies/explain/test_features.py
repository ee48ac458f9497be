"""What features of the software are worth to a plan, from the command line to its tables."""

import json
from pathlib import Path
from typing import Any

import pytest

import phaze
from phaze.studies.explain.features import FEATURES, LEAST_GAIN

MODEL = "gpt:layers=4,hidden=512,heads=8,sequence_length=256,vocabulary=1024"
PLAN = (
    f"--model {MODEL} --device a100_80gb --tp 2 --pp 2 --dp 2 --micro-batch-size 1 "
    "--global-batch-size 16 --recompute full --overlap-gradients false --quiet"
).split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where graphs are kept."""
    return tmp_path_factory.mktemp("features")


def answer(capsys: pytest.CaptureFixture[str], *words: object, status: int = 0) -> Any:
    assert phaze.main([*map(str, words), "--format", "json"]) == status
    return json.loads(capsys.readouterr().out)


def test_each_change_is_what_evaluate_says_of_that_plan(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(capsys, "explain", *PLAN, "--output", folder)
    now = found["evaluated"]["iteration_s"]
    assert len({each["key"] for each in found["changes"]}) > 5
    for each in found["changes"]:
        flag = ["--set", f"{each['key']}={each['instead']}"]
        alone = answer(capsys, "evaluate", *PLAN, "--output", folder, *flag)
        assert each["iteration_s"] == alone["iteration_s"] != now or (
            each["memory_bytes"] == alone["memory_bytes"] != found["evaluated"]["memory_bytes"]
        )
        assert each["faster"] == now / alone["iteration_s"]
    assert [each["faster"] for each in found["changes"]] == sorted(
        (each["faster"] for each in found["changes"]), reverse=True
    )
    settled = {each["key"] for each in (*found["changes"], *found["impossible"])}
    assert settled | set(found["without_effect"]) == {
        each.key for each in FEATURES if each.axis.of_degree in {"", "tp"}
    }


def test_changes_that_help_together_are_the_best_at_each_step(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = list[str]()
    found = answer(capsys, "explain", *PLAN, "--output", folder)
    assert {"recompute", "cuda_graphs"} <= {each["key"] for each in found["together"]}
    for step in found["together"]:
        alone = answer(capsys, "explain", *PLAN, "--output", folder, *words)
        allowed = [each for each in alone["changes"] if each["fits"] and not each["rounds"]]
        assert step["faster"] == allowed[0]["faster"] >= LEAST_GAIN
        words += ["--set", f"{step['key']}={step['instead']}"]
    last = answer(capsys, "evaluate", *PLAN, "--output", folder, *words)
    assert last["iteration_s"] == found["together"][-1]["iteration_s"]


def test_a_plan_that_does_not_fit_is_told_what_makes_it_fit(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = [*PLAN, "--recompute", "none", "--micro-batch-size", "8", "--output", folder]
    priced = answer(capsys, "evaluate", *kept)
    again = answer(capsys, "evaluate", *kept, "--recompute", "full")
    between = (priced["memory_bytes"] + again["memory_bytes"]) / 2**31
    small = ["--memory-size", f"{between:.4f}"]
    assert answer(capsys, "evaluate", *kept, *small, status=3)["status"] == "infeasible"
    found = answer(capsys, "explain", *kept, *small)
    assert found["together"] and all(each["fits"] for each in found["together"])
    assert answer(capsys, "explain", *kept, "--memory-size", "0.01", status=3)["together"] == []


def test_a_table_of_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert phaze.main(["explain", *PLAN, "--output", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "what helps most, each change with those above it" in out
    assert "every feature changed alone" in out and "changes number formats" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to explain is given; name the folder of a run, or a plan"),
        (["a_run", "--tp", "2"], "a_run is a run, which is explained as it was searched"),
        ([*PLAN, "--instead", "pp=2"], "--instead, --what-if and --limits ask about a finished"),
        ([*PLAN, "--ignore", "x"], "--ignore is about keys of a launch file"),
    ],
)
def test_what_does_not_go_together(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert phaze.main(["explain", *words]) == 2
    assert capsys.readouterr().err.startswith(f"phaze: {message}")


def test_memory_lasts_to_the_load_that_is_told_and_no_further(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = "gptmoe:layers=2,hidden=1024,heads=16,ffn=4096,experts=8,chosen=2,vocabulary=1024"
    words = f"--model {model} --sequence-length 2048 --device a100_80gb --dp 8 --ep 8 --quiet"
    plan = [*words.split(), "--micro-batch-size", "96", "--global-batch-size", "768"]
    most = answer(capsys, "explain", *plan, "--output", folder)["most_load"]
    assert not most["every"] and 1 < most["load"] < 8

    for load, status, said in (
        (most["load"], 0, "feasible"),
        (most["load"] + 0.05, 3, "infeasible"),
    ):
        asked = *plan, "--expert-load", load, "--output", folder
        assert answer(capsys, "evaluate", *asked, status=status)["status"] == said
    small = [*words.split(), "--micro-batch-size", "1", "--global-batch-size", "8"]
    most = answer(capsys, "explain", *small, "--output", folder)["most_load"]
    assert most == {"load": 8.0, "every": True}
