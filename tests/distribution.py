"""Which worker takes which tests, and in which order. A pytest plugin, loaded by ``conftest.py``.

``--dist loadfile`` gives whole files to workers, so that what the tests of a file share is made once. Some folders share more
than their files do, and some files nothing. With ``--no-loadscope-reorder`` the longest work is begun first.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest

SPLIT = ("tests/extraction/test_zoo.py",)  # each of their tests is work for any worker
TOGETHER = ("tests/explain", "tests/report")  # one worker takes the whole folder
LONGEST_FIRST = (
    "tests/validation/test_validation.py",
    "tests/sweep/test_sweep_disturbed.py",
    "tests/search/test_kill.py",
    "tests/search/test_whole_search.py",
    "tests/explain",
    "tests/report",
    "tests/sweep",
    "tests/frontdoor",
    "tests/extraction/test_user_module.py",
)


def file_of(nodeid: str) -> PurePosixPath:
    """The file of a test, from the root of the repository."""
    return PurePosixPath(nodeid.partition("::")[0])


def scope_of(nodeid: str) -> str:
    """The work that a worker takes as a whole with this test."""
    file = file_of(nodeid)
    if str(file) in SPLIT:
        return nodeid
    return str(file.parent) if str(file.parent) in TOGETHER else str(file)


def turn_of(nodeid: str) -> int:
    """When it is the turn of this test; those of equal turns stay in the order of their files."""
    turns = (turn for turn, place in enumerate(LONGEST_FIRST) if file_of(nodeid).is_relative_to(place))
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
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    return Scheduling(config, log)
