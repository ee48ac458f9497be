"""``run_solver --heterogeneous`` to ``evaluate``: stages that differ where memory and network ask
for it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import phaze

MODEL = [
    "--model",
    "gpt:layers=6,hidden=1024,heads=16",
    "--sequence-length",
    "512",
    "--precision",
    "fp16",
]
HARDWARE = [
    "--device",
    "v100_16gb",
    "--cluster",
    "phaze_icml24",
    "--software",
    "megatron_2022",
    "--devices",
    "4",
]
ASKED = [
    *MODEL,
    *HARDWARE,
    "--global-batch-size",
    "48",
    "--micro-batch-size",
    "1",
    "2",
    "--max-tp",
    "2",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with a plan whose stages differ."""
    folder = tmp_path_factory.mktemp("differing")
    words = [*ASKED, "--memory-size", "4", "--heterogeneous", "--output", str(folder), "--quiet"]
    assert phaze.main(["run_solver", *words]) == 0
    return folder


def answer_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "best.json").read_bytes())["heterogeneous"]
    return found


def evaluated(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert phaze.main(["evaluate", *words, "--format", "json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_stages_that_differ_beat_the_best_of_stages_alike(run: Path) -> None:
    answer, whole = answer_of(run), json.loads((run / "best.json").read_bytes())
    best, uniform = answer["best"], next(iter(whole["models"].values()))
    assert answer["status"] == "optimal"
    assert (
        best["time_per_batch_s"] < answer["uniform_time_per_batch_s"] == uniform["time_per_batch_s"]
    )
    assert answer["time_per_batch_bound_s"] == pytest.approx(best["time_per_batch_s"], rel=1e-9)
    kinds = {(stage["devices"], len(stage["layers"])) for stage in best["stages"]}
    assert len(kinds) > 1
    assert sum(stage["devices"] for stage in best["stages"]) == best["devices_used"] == 4
    assert max(stage["memory_bytes"] for stage in best["stages"]) <= 4 * 2**30
    names = [layer for stage in best["stages"] for layer in stage["layers"]]
    assert len(names) == len(set(names)) == 8
    degrees = [stage["degrees"] or best for stage in best["stages"]]
    rows = {each["dp"] * each["micro_batch_size"] for each in degrees}
    assert len(rows) == 1


def test_the_plan_is_priced_again_from_its_file_alone(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = shutil.copy(run / "best.json", tmp_path / "plan.json")
    found = evaluated(capsys, "--plan", str(plan), "--output", str(run), "--quiet")
    best = answer_of(run)["best"]
    assert found["iteration_s"] == best["time_per_batch_s"]
    assert found["stages"] == best["stages"]
    assert found["breakdown_s"] == best["breakdown_s"]
    assert sum(
        value for name, value in found["breakdown_s"].items() if not name.startswith("hidden_")
    ) == pytest.approx(found["iteration_s"])
    small = [
        "evaluate",
        "--plan",
        str(plan),
        "--output",
        str(run),
        "--memory-size",
        "2.5",
        "--quiet",
        "--format",
        "json",
    ]
    assert phaze.main(small) == 3


def test_the_answer_and_its_price_are_told(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        phaze.main(
            [
                "run_solver",
                *ASKED,
                "--memory-size",
                "4",
                "--heterogeneous",
                "--output",
                str(run),
                "--quiet",
            ]
        )
        == 0
    )
    told = capsys.readouterr().out
    best = answer_of(run)["best"]
    assert (
        "the stages" in told
        and "times the best plan of stages alike; proven optimal" in " ".join(told.split())
    )
    assert (
        phaze.main(["evaluate", "--plan", str(run / "best.json"), "--output", str(run), "--quiet"])
        == 0
    )
    assert f"{len(best['stages'])} stages that differ" in capsys.readouterr().out


@pytest.mark.thorough
def test_the_page_of_the_run_shows_the_stages(run: Path) -> None:
    assert phaze.main(["report", str(run), "--quiet"]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "Stages that differ" in page and "times the best plan of stages alike" in page
    for stage in answer_of(run)["best"]["stages"]:
        assert stage["layers"][0] in page


def test_the_explanation_says_what_stages_that_differ_bring(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert phaze.main(["explain", str(run), "--quiet"]) == 0
    assert "times the best plan of stages alike; proven optimal" in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tp", "2"], "tp would change them"),
        (["--global-batch-size", "96"], "global_batch_size would change them"),
        (["--model", "gpt2"], "holds no plan of gpt2"),
    ],
)
def test_what_would_change_the_plan_is_refused(
    run: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        phaze.main(
            ["evaluate", "--plan", str(run / "best.json"), *words, "--output", str(run), "--quiet"]
        )
        == 2
    )
    assert said in capsys.readouterr().err


def test_stages_on_too_few_devices_or_rows_that_differ_are_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads((run / "best.json").read_bytes())
    best = content["heterogeneous"]["best"]
    own = next(number for number, stage in enumerate(best["stages"]) if stage["degrees"])
    degrees = best["stages"][own]["degrees"]
    for changed, said in (
        ({"degrees": degrees | {"dp": degrees["dp"] * 2}}, "rows"),
        ({"layers": []}, "names 0 layers"),
        ({"degrees": degrees | {"zero_stage": 7}}, "zero_stage"),
    ):
        edited = json.loads(json.dumps(content))
        edited["heterogeneous"]["best"]["stages"][own] |= changed
        path = tmp_path / "edited.json"
        path.write_text(json.dumps(edited))
        assert phaze.main(["evaluate", "--plan", str(path), "--output", str(run), "--quiet"]) == 2
        refusal = capsys.readouterr().err
        assert said in refusal and "Traceback" not in refusal


def test_designed_chips_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert phaze.main(["run_solver", "--model", "gpt2", "--chip", "tpu_v4", "--heterogeneous"]) == 2
    assert "--heterogeneous belongs to devices that exist" in capsys.readouterr().err


def test_training_time_takes_stages_alike(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        phaze.main(
            ["training-time", "--plan", str(run / "best.json"), "--tokens", "1e9", "--quiet"]
        )
        == 2
    )
    assert "training-time takes plans of stages alike" in capsys.readouterr().err
