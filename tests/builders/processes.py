"""Programs that tests start: an interrupt reaches them whatever started the tests, and none
outlives its test.

A pytest plugin, loaded by ``conftest.py``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

MARK = "PHAZE_STARTED_BY_TESTS"  # in the environment of whatever this process starts
PROCESSES = Path("/proc")
# of the interpreter and of joblib: they are kept for the next test and end with this process
POOLS = ("resource_tracker", "popen_loky")
GRACE_S = 10.0  # for programs that are ending
POLL_S = 0.02


@contextmanager
def started(words: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A program in a session and process group of its own; whatever is left of the group is killed
    at the end."""
    with subprocess.Popen(
        [str(word) for word in words], text=True, start_new_session=True, **options
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def finished(words: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    """What a program gave that was ``started``, given to its end."""
    with started(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
        stdout, stderr = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


@dataclass(frozen=True)
class Left:
    """A program that should have ended."""

    pid: int
    parent: int
    command: str


def programs(mark: str) -> list[Left]:
    """Running programs that were started, however indirectly, by a process of that ``mark``, of
    which the beginning is enough."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for folder in PROCESSES.glob("[0-9]*"):
        with suppress(OSError):  # it ended, or is another user's
            if not any(
                line.startswith(wanted) for line in (folder / "environ").read_bytes().split(b"\0")
            ):
                continue
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (
                (folder / "cmdline")
                .read_bytes()
                .replace(b"\0", b" ")
                .decode(errors="replace")
                .strip()
            )
            if command and not (parent == os.getpid() and any(pool in command for pool in POOLS)):
                found.append(Left(int(folder.name), parent, command))
    return found


def forked(pid: int, mark: str) -> list[int]:
    """Running processes with ``mark`` that were forked from a server which process ``pid``
    started."""
    running = programs(mark)
    servers = {each.pid for each in running if each.parent == pid}
    return [each.pid for each in running if each.parent in servers]


def ended(mark: str) -> list[Left]:
    """Wait until nothing with ``mark`` runs; what still does after ``GRACE_S`` is killed and
    returned."""
    deadline = time.monotonic() + GRACE_S
    while (left := programs(mark)) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    kill(left)
    return left


def kill(left: list[Left]) -> None:
    """End programs at once."""
    for each in left:
        with suppress(ProcessLookupError):
            os.kill(each.pid, signal.SIGKILL)


def mark_of(run: str, worker: str) -> str:
    """What the marks of a worker of xdist begin with."""
    return f"{run}-{worker}-"


def pytest_configure() -> None:
    """Let an interrupt reach what the tests start, also where the shell that started them ignores
    it (``nohup``, ``&``).

    A signal that is ignored stays so in every program started from here; one that is caught does
    not. This process itself goes on ignoring it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda number, frame: None)


@pytest.fixture(scope="module", autouse=True)
def _no_program_is_left() -> Iterator[None]:
    """Kill what the tests of a module left running, and say so; outlives all other fixtures of the
    module."""
    worker = [
        os.environ.get(name, "") for name in ("PYTEST_XDIST_TESTRUNUID", "PYTEST_XDIST_WORKER")
    ]
    mark = f"{mark_of(*worker)}{os.getpid()}-{uuid4().hex}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, mark)
        yield
    left = ended(mark) if PROCESSES.is_dir() else []
    if left:
        pytest.fail(
            "still running behind the last test, and killed: "
            f"{'; '.join(each.command for each in left)}"
        )


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Kill what a worker that died had started: it cannot, and what keeps our output open keeps
    those waiting who read it."""
    if error and PROCESSES.is_dir():
        kill(programs(mark_of(node.workerinput["testrunuid"], node.workerinput["workerid"])))
