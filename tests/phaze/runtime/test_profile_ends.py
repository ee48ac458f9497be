"""A profile whose processes are killed ends with one sentence, leaves none behind, and goes on to
the same rows."""

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

from Estimator.profiled.database import ProfileDatabase, read_database
from tests.builders.processes import MARK, ended, forked, started

REPOSITORY = Path(__file__).resolve().parents[3]
MODEL = "gpt:layers=2,hidden=32,heads=2,vocabulary=256"
WORDS = [
    "--model",
    MODEL,
    "--sequence-length",
    "8",
    "--cap",
    "0.01",
    "--no-passes",
    "--processes",
    "2",
    "--quiet",
]
PATIENCE_S = 120.0
LEAST_ROWS, MOST_ROWS = 1, 12  # of the 36 exchanges, that are measured before it is killed


def lines_of(table: Path) -> int:
    return table.read_bytes().count(b"\n") if table.exists() else 0


@contextmanager
def exchanging(folder: Path, mark: str) -> Iterator[subprocess.Popen[str]]:
    """A profile that has measured its operators and some of its exchanges."""
    words = [sys.executable, "phaze.py", "profile", *WORDS, "--output", str(folder)]
    table, environment = folder / "collectives.csv", {**os.environ, MARK: mark}
    rows = lines_of(table) + Random().randint(LEAST_ROWS, MOST_ROWS)
    with started(
        words, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        deadline = time.monotonic() + PATIENCE_S
        while lines_of(table) <= rows:
            assert process.poll() is None and time.monotonic() < deadline, (
                "no exchange was measured"
            )
            time.sleep(0.01)
        yield process


def exchanges(database: ProfileDatabase) -> set[tuple[object, ...]]:
    return {(row.kind, row.payload_bytes, row.group_size) for row in database.collectives}


@pytest.mark.thorough
@pytest.mark.kill
def test_a_killed_profile_leaves_none_behind_and_goes_on(tmp_path: Path) -> None:
    mark = str(uuid4())
    with exchanging(tmp_path / "here", mark) as process:
        process.kill()
        process.communicate(timeout=PATIENCE_S)
        assert ended(mark) == []
    kept = exchanges(read_database(tmp_path / "here"))
    with exchanging(tmp_path / "here", mark) as process:  # goes on
        member = forked(process.pid, mark)[0]
        os.kill(member, signal.SIGKILL)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert len(said.strip().splitlines()) == 1 and "start the same profile again" in said
    assert ended(mark) == []
    done = subprocess.run(
        [sys.executable, "phaze.py", "profile", *WORDS, "--output", str(tmp_path / "here")],
        cwd=REPOSITORY,
        capture_output=True,
    )
    assert done.returncode == 0
    whole = read_database(tmp_path / "here")
    assert kept < exchanges(whole)
    assert len(exchanges(whole)) == len(whole.collectives)  # none twice


@pytest.mark.thorough
@pytest.mark.kill
def test_a_profile_that_is_told_to_end_says_that_it_goes_on(tmp_path: Path) -> None:
    mark = str(uuid4())
    with exchanging(tmp_path / "here", mark) as process:
        process.terminate()
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGTERM
    assert said.strip().splitlines() == [
        "phaze: terminated; everything finished so far is kept, and the same command goes on from "
        "there"
    ]
    assert ended(mark) == []
