"""A training whose processes are killed ends with one sentence, leaves none behind, and goes on to
the same result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest
from trained_plans import BACK, FRONT, Stage, tiny_plan

import phaze
from phaze.runtime.training.job import CHECKPOINTS
from phaze.runtime.training.records import TrainRecord
from phaze_common.file_formats import TRAINING
from phaze_common.records import from_json, to_json
from tests.builders.processes import MARK, ended, forked, programs, started

REPOSITORY = Path(__file__).resolve().parents[3]
PATIENCE_S = 120.0  # of a loaded machine
LONGEST_WAIT_S = 1.0  # some steps and checkpoints


@contextmanager
def endless(folder: Path, mark: str, every: int = 3) -> Iterator[subprocess.Popen[str]]:
    """A training of two processes that has trained some steps and would go on for days."""
    plan = folder / "plan.json"
    plan.write_bytes(to_json(tiny_plan(Stage(FRONT), Stage(BACK))))
    words = [
        sys.executable,
        "phaze.py",
        "train",
        "--plan",
        plan,
        "--steps",
        "1000000",
        "--checkpoint-every",
        str(every),
    ]
    environment = {**os.environ, MARK: mark}
    with started(
        words, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        deadline = time.monotonic() + PATIENCE_S
        while not list((folder / "train" / CHECKPOINTS).glob("step-*")):
            assert process.poll() is None and time.monotonic() < deadline, (
                "the training did not begin"
            )
            time.sleep(0.1)
        yield process


@pytest.mark.thorough
@pytest.mark.kill
def test_a_killed_process_ends_the_training_with_one_sentence(tmp_path: Path) -> None:
    mark = str(uuid4())
    with endless(tmp_path, mark) as process:
        training = forked(process.pid, mark)
        assert len(training) == 2
        os.kill(training[1], signal.SIGKILL)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    last = said.strip().splitlines()[-1]
    assert last.startswith("phaze: process ") and "signal 9" in last and "--resume" in last
    assert "Traceback" not in said
    assert ended(mark) == []


@pytest.mark.thorough
@pytest.mark.kill
def test_a_training_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    mark = str(uuid4())
    with endless(tmp_path, mark) as process:
        assert len(programs(mark)) >= 3
        process.kill()
        process.communicate(timeout=PATIENCE_S)
        assert ended(mark) == []


@pytest.mark.thorough
@pytest.mark.kill
def test_a_training_that_is_told_to_end_says_how_to_go_on(tmp_path: Path) -> None:
    mark = str(uuid4())
    with endless(tmp_path, mark) as process:
        process.terminate()
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGTERM
    last = said.strip().splitlines()[-1]
    assert (
        last
        == f"phaze: terminated; the same command with --resume {tmp_path / 'train'} goes on from "
        "the last checkpoint"
    )
    assert "Traceback" not in said
    assert ended(mark) == []


@pytest.mark.kill
def test_a_training_killed_at_any_moment_goes_on_to_the_same_losses(tmp_path: Path) -> None:
    mark, random = str(uuid4()), Random()
    with endless(tmp_path, mark, every=1) as process:
        time.sleep(random.uniform(0, LONGEST_WAIT_S))
        victim = random.choice([process.pid, *forked(process.pid, mark)])
        os.kill(victim, signal.SIGKILL)
        _, said = process.communicate(timeout=PATIENCE_S)
        assert ended(mark) == []
    assert "Traceback" not in said
    folder, plan = tmp_path / "train", tmp_path / "plan.json"
    done = max(
        int(each.name.removeprefix("step-")) for each in (folder / CHECKPOINTS).glob("step-*")
    )
    words = ["train", "--plan", str(plan), "--quiet", "--steps", str(done + 2)]
    assert phaze.main([*words, "--resume", str(folder)]) == 0
    assert phaze.main([*words, "--output", str(tmp_path / "straight")]) == 0
    resumed, straight = (
        from_json(
            TrainRecord,
            TRAINING.current_json((each / "train.json").read_bytes(), "train.json"),
            "train.json",
        ).steps
        for each in (folder, tmp_path / "straight")
    )
    assert [each.step for each in resumed] == [done + 1, done + 2]
    assert [each.loss for each in resumed] == [each.loss for each in straight[done:]]
