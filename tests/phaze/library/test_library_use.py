"""Searches from Python: the same answers, files and refusals as on the command line."""

from __future__ import annotations

import contextlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import phaze
from Estimator.plans.results import Status
from phaze.python_words import reworded
from phaze.runs.finished_run import FinishedRun
from phaze.settings.request import WeightedModel, settings_for
from phaze_common.errors import InputError
from phaze_common.setting_fields import Mode
from Solver.results import SearchResult, SpaceSize
from tests.Solver.designs.small_study import write_hardware


def test_every_setting_of_the_command_line_can_be_completed() -> None:
    assert list(inspect.signature(phaze.study).parameters) == list(settings_for(Mode.SEARCH).keys)


def test_looking_at_the_names_imports_nothing_heavy() -> None:
    words = (
        "import sys; import phaze; dir(phaze); print([name for name in "
        "('numba', 'torch') if name in sys.modules])"
    )
    told = subprocess.run(
        [sys.executable, "-c", words],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(phaze.__file__).parents[1],
    )
    assert told.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute serch"):
        phaze.serch  # noqa: B018


@pytest.fixture(scope="module")
def hardware(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return write_hardware(tmp_path_factory.mktemp("hardware"))


@pytest.fixture(scope="module")
def answered(
    hardware: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[SearchResult, FinishedRun]:
    study = phaze.study(
        model={"bertbase": 2.0},
        sequence_length=64,
        micro_batch_size=(1, 2),
        hbm_size=[2, 16],
        global_batch_size=64,
        recompute="none",
        design_space=Path(hardware["design_space"]),
        cluster=hardware["cluster"],
        output=tmp_path_factory.mktemp("library") / "run",
    )
    assert study.workload.models == (WeightedModel("bertbase", 2.0),)
    result = phaze.run_solver(study)
    assert isinstance(result, SearchResult)
    run = phaze.open_run(result.run_directory)
    assert isinstance(run, FinishedRun) and not run.on_device
    return result, run


def test_the_answer_is_in_the_result_and_in_the_run(
    answered: tuple[SearchResult, FinishedRun],
) -> None:
    result, run = answered
    assert result.best is not None and result.best.status is Status.OPTIMAL
    assert run.result == result
    assert result.best.accelerator is not None
    best = run.designs.loc[run.designs["throughput_samples_per_s"].idxmax()]
    assert best["num_tc"] == result.best.accelerator.num_tc
    assert best["throughput_samples_per_s"] == pytest.approx(result.best.value)
    assert len(run.designs) == result.counts.space


def test_the_command_line_reads_the_same_study(
    answered: tuple[SearchResult, FinishedRun], capsys: pytest.CaptureFixture[str]
) -> None:
    result, run = answered
    size = phaze.space_size(phaze.study(**run.settings))
    assert isinstance(size, SpaceSize)
    assert size.points == result.counts.space
    assert (
        phaze.main(
            [
                "run_solver",
                "--config",
                str(run.folder / "study.yaml"),
                "--dry-run",
                "--format",
                "json",
            ]
        )
        == 0
    )
    assert f'"points": {size.points}' in capsys.readouterr().out


def test_an_answer_is_explained_and_compared(answered: tuple[SearchResult, FinishedRun]) -> None:
    result, run = answered
    assert result.best is not None
    assert phaze.explain(run).alternatives == ()
    assert result.best.accelerator is not None
    other = 4 if result.best.accelerator.num_tc != 4 else 16
    asked = phaze.explain(run, instead=[f"num_tc={other}", "pp=2"])
    assert [each.asked for each in asked.alternatives] == [f"num_tc={other}", "pp=2"]
    slower = asked.alternatives[0].slower
    assert slower is not None and slower >= 1.0
    assert asked.answer == phaze.explain(run).answer
    with pytest.raises(InputError, match="num_tcs"):
        phaze.explain(run, instead="num_tcs=4")


def test_nothing_feasible_is_an_answer(hardware: dict[str, str], tmp_path: Path) -> None:
    study = phaze.study(
        model="bertbase",
        sequence_length=64,
        hbm_size=0.01,
        global_batch_size=64,
        output=tmp_path,
        **hardware,
    )
    result = phaze.run_solver(study)
    assert isinstance(result, SearchResult)
    assert (result.best, result.status) == (None, Status.INFEASIBLE)
    assert "no plan of bertbase fits 10.2 MiB per device; the leanest needs " in result.reason


def test_a_device_makes_it_a_search_of_plans(tmp_path: Path) -> None:
    request = phaze.study(
        model="bertbase",
        sequence_length=64,
        device="a100_80gb",
        devices=2,
        global_batch_size=8,
        tp=1,
        micro_batch_size=1,
        recompute="none",
        output=tmp_path,
    )
    answer = phaze.run_solver(request)
    assert answer.best is not None and answer.best.accelerator is None
    plan = answer.best.models["bertbase"]
    assert answer.status is Status.OPTIMAL and plan.devices_used == 2
    run = phaze.open_run(request.folders.run)
    assert isinstance(run, FinishedRun) and run.on_device
    assert run.result == answer
    assert run.designs["time_per_batch_s"].min() == pytest.approx(plan.time_per_batch_s)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"model": "bertbase", "hbm_sise": 32},
            "phaze.study: unknown key 'hbm_sise'; did you mean 'hbm_size'",
        ),
        (
            {"model": "bertbase", "micro_batch_size": [1, "two"]},
            "phaze.study: micro_batch_size is 'two', but must be a whole number",
        ),
        (
            {"model": "bertbase", "software": "megatron_core"},
            "software belongs to devices that exist",
        ),
        (
            {"model": "bertbase", "device": "a100_80gb", "hbm_size": 32},
            "hbm_size 32 is about chips to design",
        ),
        ({"model": ["bertbase", "gpt2"], "device": "a100_80gb"}, "places one model"),
        ({"model": "bertbasse"}, "bertbasse"),
    ],
)
def test_refusals_are_typed_and_say_what_is_allowed(
    settings: dict[str, object], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        phaze.study(**settings)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no best"):
        phaze.open_run(tmp_path)


GPT = "gpt:layers=4,hidden=256,heads=4,vocabulary=1000,sequence_length=128"
REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "width": ({"tp": 2, "pp": 2, "dp": 4}, "tp 1, or pp 1"),
    "replicas": ({"dp": 8, "global_batch_size": 4}, "raise global_batch_size, or lower dp"),
    "interleaving": ({"pp": 1, "interleave": 2}, "give a larger pp, or interleave 1"),
    "whole micro-batches": ({"global_batch_size": 9, "pp": 1}, "whole_micro_batches false"),
    "two at once": ({"device": "h10", "model": "brt"}, ""),
}


@pytest.mark.parametrize(("settings", "words"), REFUSED.values(), ids=REFUSED)
def test_refusals_name_the_keywords_that_python_has(
    settings: dict[str, object], words: str, tmp_path: Path
) -> None:
    settings = {
        "model": GPT,
        "device": "a100_80gb",
        "devices": 8,
        "output": str(tmp_path / "run"),
    } | settings
    with pytest.raises(InputError) as refused:
        phaze.run_solver(phaze.study(**settings))
    said = str(refused.value)
    assert "--" not in said and words in said, said
    with contextlib.suppress(InputError):  # by rules of its own
        try:
            phaze.training_time(tokens=1e9, **settings)
        except InputError as error:
            assert "--" not in str(error)
            raise


def test_the_command_line_still_names_flags(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "run_solver",
        "--model",
        GPT,
        "--device",
        "a100_80gb",
        "--devices",
        "8",
        "--pp",
        "1",
        "--interleave",
        "2",
    ]
    assert phaze.main(words) == 2
    assert "give a larger --pp, or --interleave 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("give --global-batch-size 64", "give global_batch_size 64"),
        ("leave --tp, --run-code and --set out", "leave tp, run_code and --set out"),
        ("a--tp and x -- y", "a--tp and x -- y"),
        ("--force to replace it", "--force to replace it"),
    ],
)
def test_only_flags_of_settings_are_reworded(sentence: str, expected: str) -> None:
    assert reworded(sentence) == expected
