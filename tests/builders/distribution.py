"""Which worker takes which tests, and in which order. A pytest plugin, loaded by ``conftest.py``.

``--dist loadfile`` gives whole files to workers, so that what the tests of a file share is made
once. Some folders share more than their files do, and some files nothing. With
``--no-loadscope-reorder`` the longest work is begun first.

A worker that dies in the middle of a test fails that test; what else it had to do is left to
others. The session ends and fails whatever a worker dies of.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import PurePosixPath
from typing import Any

import pytest

SPLIT = (
    "tests/docs/test_commands.py",
    "tests/GraphExtractor/test_zoo.py",
)  # each of their tests is work for any worker
TOGETHER = (  # one worker takes all files that begin so
    *("tests/phaze/studies/explain/", "tests/phaze/report/"),
    *(
        "tests/Solver/paths/",
        "tests/third_party/test_aceso_",
    ),  # each has inner loops of its own to compile
)
LONGEST_FIRST = (
    "tests/phaze/validation/test_validation.py",
    "tests/phaze/studies/sweep/test_sweep_disturbed.py",
    "tests/Solver/designs/test_kill.py",
    "tests/Solver/designs/test_whole_search.py",
    "tests/phaze/studies/explain",
    "tests/phaze/report",
    "tests/phaze/studies/sweep",
    "tests/phaze/cli",
    "tests/fuzzing/test_fuzzer.py",  # finds compiled what the others have compiled
    "tests/GraphExtractor/test_user_module.py",
)

DIED = pytest.StashKey[bool]()  # whether a worker did


def file_of(nodeid: str) -> PurePosixPath:
    """The file of a test, from the root of the repository."""
    return PurePosixPath(nodeid.partition("::")[0])


def scope_of(nodeid: str) -> str:
    """The work that a worker takes as a whole with this test."""
    file = file_of(nodeid)
    if str(file) in SPLIT:
        return nodeid
    return next((begin for begin in TOGETHER if str(file).startswith(begin)), str(file))


def turn_of(nodeid: str) -> int:
    """When it is the turn of this test; those of equal turns stay in the order of their files."""
    return _turn_of_file(file_of(nodeid))


@cache
def _turn_of_file(file: PurePosixPath) -> int:
    turns = (turn for turn, place in enumerate(LONGEST_FIRST) if file.is_relative_to(place))
    return next(turns, len(LONGEST_FIRST))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest work first, also where one process does all of it."""
    items.sort(key=lambda item: turn_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """``--dist loadfile`` with our own scopes."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        """What xdist does, but for crashes, after which its own waits for ever on a worker that was
        given nothing to run."""

        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

        def remove_node(self, node: Any) -> str | None:
            """Put back what a worker that died has not run, and return the test that it died of,
            which nobody runs again."""
            died_of = None
            for scope, tests in self.assigned_work.pop(node).items():
                left = [nodeid for nodeid, is_done in tests.items() if not is_done]
                if left and died_of is None:
                    died_of = left.pop(0)
                if left:
                    self.workqueue[scope] = dict.fromkeys(left, False)
            if self.collection is None:  # nothing was given out yet: its successor collects for it
                self.registered_collections.pop(node, None)
            if died_of is not None:
                for other in self.nodes:
                    self._reschedule(other)
            return died_of

        def _reschedule(self, node: Any) -> None:
            if node not in self.registered_collections:
                return  # a successor that is still collecting
            super()._reschedule(node)
            # a worker begins a test when it knows the next one, or that there is none
            while (
                self.workqueue
                and not node.shutting_down
                and self._pending_of(self.assigned_work[node]) < 2
            ):
                self._assign_work_unit(node)

        def _assign_work_unit(self, node: Any) -> None:
            with suppress(OSError):  # it died, and will be removed with its work
                super()._assign_work_unit(node)

    return Scheduling(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Remember that a worker died."""
    if error:
        node.config.stash[DIED] = True


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A session in which a worker died has failed, also where it died of no test."""
    if session.config.stash.get(DIED, False) and session.exitstatus in (
        pytest.ExitCode.OK,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    ):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
