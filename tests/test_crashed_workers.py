"""Workers that die: the session runs what they leave, fails, and ends."""

import os
import random
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_processes import is_running
from xdist.dsession import DSession

from tests.builders.distribution import pytest_xdist_make_scheduler
from tests.builders.processes import finished

TESTS = Path(__file__).resolve().parent
PLUGINS = "-p no:faulthandler -p xdist -p tests.builders.processes -p tests.builders.distribution"
RESTARTS = 4  # of each worker: as many xdist makes where nothing else is said
Run = Callable[..., CompletedProcess[str]]


class Worker:
    """What a worker of xdist answers, one message a step; like it, it begins a test when it knows
    the next or that none comes."""

    def __init__(
        self, name: int, tests: list[str], deadly: set[str], dies_early: bool, messages: Queue[Any]
    ) -> None:
        self.gateway = SimpleNamespace(id=f"gw{name}", spec=SimpleNamespace(id=None))
        self.workeroutput = {"exitstatus": 0, "shouldfail": False, "shouldstop": False}
        self.shutting_down = False
        self._tests, self._deadly, self._messages = tests, deadly, messages
        self._name, self._dies_early = name, dies_early
        self._is_dead = False
        self._indices: deque[int | None] = deque()
        self._life = self._live()

    def shutdown(self) -> None:
        self.shutting_down = True
        self._indices.append(None)

    def send_runtest_some(self, indices: list[int]) -> None:
        if self._is_dead:
            raise OSError("cannot send to a closed channel")
        self._indices.extend(indices)

    def step(self) -> bool:
        """Whether there was anything to do."""
        return next(self._life, False)

    def _say(self, name: str, **content: object) -> bool:
        self._messages.put((name, {"node": self, **content}))
        return True

    def _die(self) -> bool:
        self._is_dead = True
        return self._say("errordown", error="Not properly terminated")

    def _live(self) -> Iterator[bool]:
        yield self._say("workerready", workerinfo={})
        if self._dies_early and self._name % 2 == 0:
            yield self._die()
            return
        yield self._say("collectionfinish", ids=self._tests)
        if self._dies_early:
            yield self._die()
            return
        while not self._indices:
            yield False
        index = self._indices.popleft()
        while index is not None:
            while not self._indices:
                yield False
            if self._tests[index] in self._deadly:
                yield self._die()
                return
            self._messages.put(("ran", {"nodeid": self._tests[index]}))
            yield self._say("runtest_protocol_complete", item_index=index, duration=0.0)
            index = self._indices.popleft()
        yield self._say("workerfinished")


class Session(DSession):
    """The session of xdist itself, with such workers; the first ``dying_early`` die before they are
    given anything."""

    def __init__(self, workers: int, tests: list[str], deadly: set[str], dying_early: int) -> None:
        option = SimpleNamespace(
            debug=False,
            dist="loadfile",
            loadscopereorder=False,
            maxfail=0,
            maxworkerrestart=None,
            numprocesses=workers,
            tx=[f"{workers}*popen"],
            verbose=-1,
        )
        hook = SimpleNamespace(
            pytest_handlecrashitem=lambda **about: None,
            pytest_runtest_logreport=lambda report: self.failed.append(report.nodeid),
            pytest_testnodedown=lambda **about: None,
            pytest_testnodeready=lambda **about: None,
            pytest_xdist_node_collection_finished=lambda **about: None,
        )
        config: Any = SimpleNamespace(
            option=option,
            hook=hook,
            getoption=vars(option).get,
            getvalue=vars(option).get,
            pluginmanager=SimpleNamespace(getplugin=lambda name: None),
        )
        super().__init__(config)
        self._session = SimpleNamespace(testscollected=0)
        self.sched = pytest_xdist_make_scheduler(config, self.log)
        self.shouldstop = False
        self.ran: list[str] = []
        self.failed: list[str] = []
        self._workers: list[Worker] = []
        self._tests, self._deadly, self._dying_early = tests, deadly, dying_early
        for _ in range(workers):
            self._clone_node(None)

    def _clone_node(self, node: Any) -> Any:
        early = len(self._workers) < self._dying_early
        self._workers.append(
            Worker(len(self._workers), self._tests, self._deadly, early, self.queue)
        )
        self._active_nodes.add(self._workers[-1])
        return self._workers[-1]

    def worker_ran(self, nodeid: str) -> None:
        self.ran.append(nodeid)

    def _hear(self) -> bool:
        if self.queue.empty():
            return False
        self.loop_once()
        return True

    def comes_to_its_end(self, chance: random.Random) -> bool:
        """Run, with workers that get on, and are heard, in any order."""
        while not self.session_finished:
            turns = [self._hear, *(worker.step for worker in self._workers)]
            chance.shuffle(turns)
            if not any(turn() for turn in turns):
                return False
        return True


@st.composite
def crashes(draw: st.DrawFn) -> tuple[list[str], set[str]]:
    """Tests of some files, and those that kill their worker."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=7))
    tests = [
        f"tests/test_{file}.py::test_{number}"
        for file, size in enumerate(sizes)
        for number in range(size)
    ]
    return tests, draw(st.sets(st.sampled_from(tests), max_size=6))


@given(crashes(), st.integers(1, 3), st.integers(0, 2), st.integers(0, 2**32))
def test_every_test_is_run_or_named_once_whatever_dies(
    session: tuple[list[str], set[str]], workers: int, dying_early: int, seed: int
) -> None:
    tests, deadly = session
    early = min(dying_early, RESTARTS * workers - len(deadly))
    running = Session(workers, tests, deadly, early)
    assert running.comes_to_its_end(random.Random(seed))
    if early >= 0:
        assert sorted(running.ran + running.failed) == sorted(tests)
        assert deadly <= set(running.failed) and len(set(running.failed) - deadly) <= early


@given(st.integers(1, 3), st.integers(0, 40), st.integers(0, 2**32))
def test_a_session_ends_where_all_that_it_runs_dies(
    workers: int, dying_early: int, seed: int
) -> None:
    tests = [f"tests/test_{number % 20}.py::test_{number}" for number in range(40)]
    running = Session(workers, tests, set(tests), dying_early)
    assert running.comes_to_its_end(random.Random(seed))
    assert running.ran == [] and len(running.failed) <= RESTARTS * workers + workers


CRASHING = """
import os, subprocess, sys
import pytest

SLEEPING = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]

@pytest.fixture(scope="module")
def deadly():
    program = subprocess.Popen(SLEEPING, stdout=subprocess.PIPE)
    assert program.stdout.readline() == b"up\\n"
    open("pid", "w").write(str(program.pid))
    os.kill(os.getpid(), 11)

def test_before():
    pass

def test_deadly(deadly):
    pass

def test_behind():
    pass
"""
DYING_LATE = """
import os

def pytest_sessionfinish():
    if os.environ.get("PYTEST_XDIST_WORKER") == "gw0":
        os._exit(1)
"""


@pytest.fixture
def run_in(tmp_path: Path) -> Run:
    """Sessions of two workers of their own."""

    def run(**files: str) -> CompletedProcess[str]:
        for name, source in files.items():
            (tmp_path / f"{name}.py").write_text(source)
        options = f"-q -p no:cacheprovider {PLUGINS} -n 2 --dist loadfile --no-loadscope-reorder"
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment = ours | {
            "PYTHONPATH": str(TESTS.parent),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        words = [sys.executable, "-m", "pytest", *options.split(), tmp_path]
        return finished(words, cwd=tmp_path, env=environment)

    return run


def test_the_test_that_kills_its_worker_fails_and_its_programs_end(
    tmp_path: Path, run_in: Run
) -> None:
    plain = "def test_it():\n    pass\n"
    done = run_in(test_a=CRASHING, test_b=plain, test_c=plain)
    assert done.returncode == 1
    assert "1 failed, 4 passed" in done.stdout
    assert re.search(r"FAILED \S*test_a.py::test_deadly", done.stdout)
    assert not is_running(int((tmp_path / "pid").read_text()))


def test_a_worker_that_dies_of_no_test_fails_the_session(run_in: Run) -> None:
    done = run_in(conftest=DYING_LATE, test_a="def test_it():\n    pass\n")
    assert (done.returncode, "1 passed" in done.stdout) == (1, True)
