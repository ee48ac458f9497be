"""A training whose processes are killed ends with one sentence and leaves none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from processes import MARK, ended, programs, started
from trained_plans import BACK, FRONT, Stage, tiny_plan

from Common.records import to_json
from Runtime.training.job import CHECKPOINTS

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_S = 120.0  # of a loaded machine


@contextmanager
def endless(folder: Path, mark: str) -> Iterator[subprocess.Popen[str]]:
    """A training of two processes that has trained some steps and would go on for days."""
    plan = folder / "plan.json"
    plan.write_bytes(to_json(tiny_plan(Stage(FRONT), Stage(BACK))))
    words = [sys.executable, "phaze.py", "train", "--plan", plan, "--steps", "1000000", "--checkpoint-every", "3"]
    environment = {**os.environ, MARK: mark}
    with started(words, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + PATIENCE_S
        while not list((folder / "train" / CHECKPOINTS).glob("step-*")):
            assert process.poll() is None and time.monotonic() < deadline, "the training did not begin"
            time.sleep(0.1)
        yield process


def parents() -> dict[int, int]:
    """The parent of every process."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    return found


@pytest.mark.kill
def test_a_killed_process_ends_the_training_with_one_sentence(tmp_path: Path) -> None:
    mark = str(uuid4())
    with endless(tmp_path, mark) as process:
        above = parents()
        ranks = [each.pid for each in programs(mark) if above.get(above.get(each.pid, 0)) == process.pid]
        assert len(ranks) == 2
        os.kill(ranks[1], signal.SIGKILL)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    last = said.strip().splitlines()[-1]
    assert last.startswith("phaze: process ") and "signal 9" in last and "--resume" in last
    assert "Traceback" not in said
    assert ended(mark) == []


@pytest.mark.kill
def test_a_training_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    mark = str(uuid4())
    with endless(tmp_path, mark) as process:
        assert len(programs(mark)) >= 3
        process.kill()
        process.communicate(timeout=PATIENCE_S)
        assert ended(mark) == []
