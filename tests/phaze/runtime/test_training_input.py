"""What cannot be trained is refused in one sentence before any process starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from trained_plans import BACK, FRONT, NARROWING, UNIFORM, Stage, tiny_plan

import phaze
from Estimator.plans.plan import Plan
from phaze.runtime.training.job import CHECKPOINTS
from phaze.runtime.training.torchrun import said_once
from phaze_common.errors import InputError
from phaze_common.records import to_json


def with_stage(plan: Plan, number: int, **changes: object) -> Plan:
    stages = list(plan.stages)
    degrees = replace(stages[number].degrees, **changes)  # type: ignore[arg-type]
    stages[number] = replace(stages[number], degrees=degrees)
    return replace(plan, stages=tuple(stages))


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    def run(plan: Plan | str, *words: str) -> str:
        path = tmp_path / "plan.json"
        path.write_bytes(plan.encode() if isinstance(plan, str) else to_json(plan))

        def started(*_: object) -> None:
            raise AssertionError("processes were started")

        monkeypatch.setattr("phaze.runtime.training.launch.launch", started)
        assert phaze.main(["train", "--plan", str(path), *words]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        (line,) = printed.err.strip().splitlines()
        return line

    return run


@pytest.mark.parametrize(
    ("plan", "words", "said"),
    [
        (
            UNIFORM,
            ["--processes", "3"],
            "the plan needs 4 processes, but at most 3 are allowed; give --processes 4",
        ),
        (with_stage(NARROWING, 1, micro_batch_size=3), [], "x dp 1 = 3 rows, stage 0 on 2"),
        (replace(UNIFORM, global_batch_size=7), [], "global batch of 7 does not divide"),
        (UNIFORM, ["--dtype", "float99"], "dtype 'float99' is unknown; give one of float32"),
        (UNIFORM, ["--steps", "0"], "steps is 0"),
        (UNIFORM, ["--steps", "2", "--check"], "give --steps 3"),
        (UNIFORM, ["--check", "--resume", "/nowhere"], "leave out --check or --resume"),
        (
            tiny_plan(Stage(FRONT + BACK), Stage(())),
            [],
            "stage 1 of the plan has no layers; give it some",
        ),
        (UNIFORM, ["--data", "/nowhere/text"], "--data: cannot read /nowhere/text"),
        (UNIFORM, ["--resume", "/nowhere"], "--resume /nowhere holds no checkpoint"),
        (UNIFORM, ["--model", "gpt2"], "holds no plan of gpt2"),
        (replace(UNIFORM, interleave=2), [], "interleaved"),
        (tiny_plan(Stage(FRONT), Stage((*BACK, "block.9"))), [], "'block.9' is no layer of it"),
        (
            tiny_plan(Stage(BACK), Stage(FRONT)),
            [],
            "give the stages in the order in which they run",
        ),
        (
            tiny_plan(Stage(("model",), tp=2), model="resnet50"),
            [],
            "it is not known how they divide",
        ),
        (tiny_plan(Stage(FRONT + BACK, tp=3)), [], "tp 3 does not divide"),
        ("{}", [], "holds no plan"),
        ("[", [], "plan.json"),
    ],
)
def test_one_sentence_and_nothing_started(
    plan: Plan | str, words: list[str], said: str, refused: Callable[..., str]
) -> None:
    assert said in refused(plan, *words)


def test_checkpoints_of_another_training_are_not_mixed_with_new_ones(
    tmp_path: Path, refused: Callable[..., str]
) -> None:
    (tmp_path / "train" / CHECKPOINTS / "step-000020").mkdir(parents=True)
    assert f"go on with it (--resume {tmp_path / 'train'})" in refused(
        UNIFORM, "--checkpoint-every", "5"
    )


def test_what_all_processes_of_torchrun_refuse_one_says(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("phaze.runtime.training.torchrun.time.sleep", waited.append)
    monkeypatch.setattr("phaze.runtime.training.torchrun.signal.signal", lambda *_: None)

    def refuse() -> int:
        raise InputError("no")

    for rank in ("0", "1"):
        for name, value in {
            "RANK": rank,
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "here",
            "MASTER_PORT": "1",
        }.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(InputError):
            said_once(refuse)
        assert len(waited) == int(rank)


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert phaze.main(["train", "--plan", "/nowhere/best.json"]) == 2
    assert "/nowhere/best.json" in capsys.readouterr().err
