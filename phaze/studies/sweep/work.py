"""Computes one point: in this process, in another one, or on another machine."""

from __future__ import annotations

import atexit
import contextlib
import errno
import logging
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cache
from pathlib import Path
from time import perf_counter

from phaze.settings.request import Request
from phaze.studies.sweep.points import SweepPoint, key_of
from phaze.studies.sweep.results import point_result
from phaze.studies.sweep.store import FinishedPoint, Store
from phaze_common.errors import InputError, PhazeError
from phaze_common.progress import SilentProgress


class Ending(Enum):
    """What became of a task."""

    COMPUTED = auto()
    THERE = auto()  # another sweep had finished it meanwhile
    BUSY = auto()  # another process is computing it
    FAILED = auto()
    IMPOSSIBLE = auto()  # what is asked cannot be


@dataclass(frozen=True)
class Task:
    """A point to compute into ``store``, whose ``identity`` shows whether it is that disk here."""

    point: SweepPoint
    store: Path
    identity: str
    wait: bool = False  # for another process that computes the same point


@dataclass(frozen=True)
class Outcome:
    """How a task ended: the point, or a sentence why there is none; warnings on the way.

    ``contents`` are the point's files where the store is out of reach of who computed it.
    """

    key: str
    ending: Ending
    point: FinishedPoint | None = None
    problem: str = ""
    warnings: tuple[str, ...] = ()
    contents: dict[str, bytes] | None = None


def compute(task: Task) -> Outcome:
    """Compute a point and store it; whatever goes wrong is told in the outcome."""
    key = task.point.key
    try:
        return _computed(task)
    except InputError as error:
        return Outcome(key, Ending.IMPOSSIBLE, problem=str(error))
    except PhazeError as error:
        problem = str(error)
    except MemoryError:
        problem = (
            "out of memory; run fewer points at a time with --workers, or use a machine "
            "with more memory"
        )
    except OSError as error:
        where = f" at {error.filename}" if error.filename else ""
        problem = f"{(error.strerror or str(error)).lower()}{where}"
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            problem = f"the disk is full{where}; make room"
    except Exception as error:  # a defect that one point meets must not end the others
        problem = (
            f"unexpected {type(error).__name__}: {error}; run the point alone with "
            "--workers 1 --verbose to see more"
        )
        logging.getLogger(__name__).debug("point %s", key, exc_info=True)
    return Outcome(key, Ending.FAILED, problem=" ".join(problem.split()))


def compute_apart(task: Task) -> Outcome:
    """As ``compute`` in a process whose output nobody reads: warnings come with the outcome."""
    kept = _KeptWarnings()
    root = logging.getLogger()
    root.addHandler(kept)
    try:
        # a user's model may print; the sweep's own output is for its answer
        with contextlib.redirect_stdout(sys.stderr):
            outcome = compute(task)
    finally:
        root.removeHandler(kept)
    return replace(outcome, warnings=tuple(kept.messages))


def died(task: Task) -> Outcome:
    """The outcome of a task whose worker did not survive it."""
    return Outcome(
        task.point.key,
        Ending.FAILED,
        problem="its worker process died, killed for want of memory perhaps; run fewer points at a "
        "time with --workers, or use a machine with more memory",
    )


def _computed(task: Task) -> Outcome:
    point, store = task.point, Store(task.store)
    if not store.is_called(task.identity):
        return _computed_elsewhere(point)
    with store.locked(point.key, wait=task.wait) as held:
        if not held:
            return Outcome(point.key, Ending.BUSY)
        finished = store.load(point.key)
        if finished is not None:
            return Outcome(point.key, Ending.THERE, finished)
        return Outcome(point.key, Ending.COMPUTED, _solved(point, point.request, store))


def _computed_elsewhere(point: SweepPoint) -> Outcome:
    """On a machine that does not see the store: the files travel with the outcome."""
    root = _private_folder()
    store = Store(root / "points")
    request = point.request.with_settings(output=root)
    try:
        finished = _solved(point, request, store)
        return Outcome(point.key, Ending.COMPUTED, finished, contents=store.contents(finished))
    finally:
        shutil.rmtree(store.folder(point.key), ignore_errors=True)


def _solved(point: SweepPoint, request: Request, store: Store) -> FinishedPoint:
    start = perf_counter()
    _check_key(point)
    # compiles inner loops, which a sweep that finds everything does not need
    from phaze.studies.search_run import run_search

    request = replace(request, run_folder=store.folder(point.key))
    result = point_result(run_search(request, SilentProgress()))
    _check_key(point)
    return store.finish(point.key, result, perf_counter() - start)


def _check_key(point: SweepPoint) -> None:
    """Refuse a point that is another by now than the sweep asked for.

    Raises: PhazeError: it is.
    """
    if key_of(point.request) != point.key:
        raise PhazeError(
            f"files that this point names, or phaze itself, differ on {os.uname().nodename} from "
            "when and where the sweep started; run the sweep again, with the same version "
            "everywhere"
        )


@cache
def _private_folder() -> Path:
    """A folder for the life of this process, so that its points share graphs and estimates."""
    folder = tempfile.mkdtemp(prefix="phaze-sweep-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


class _KeptWarnings(logging.Handler):
    """Keeps the texts of warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
