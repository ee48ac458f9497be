"""How a command ends: exit statuses, one sentence instead of a traceback, and a standard output
that may be closed early."""

from __future__ import annotations

import atexit
import contextlib
import errno
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

from phaze_common.echo import clipped, say, tidy
from phaze_common.errors import InputError, PhazeError
from phaze_common.refusals import SeveralProblemsError

DONE = 0
FAILED = 1
NOTHING_FEASIBLE = 3
INTERRUPTED = 128 + signal.SIGINT  # as shells report it
TERMINATED = 128 + signal.SIGTERM

_IMPOSSIBLE_PATHS = frozenset({errno.ENAMETOOLONG, errno.ELOOP})  # wherever they were typed


SOURCES = Path(__file__).resolve().parents[2]
EVERYTHING_KEPT = "everything finished so far is kept, and the same command goes on from there"


class Stopped(KeyboardInterrupt):
    """A command that was told to end; ``kept`` is what there is of it and how to go on (empty:
    another process says so)."""

    def __init__(self, kept: str) -> None:
        super().__init__(kept)
        self.kept = kept


class Ended(KeyboardInterrupt):
    """An interruption that is how a command ends: nothing was cut off."""


class _Signals:
    """Those that tell the process to end, from ``with`` on: each raises ``KeyboardInterrupt``, and
    is remembered in ``told``.

    What is raised within a library can come out as an error of its own, or not at all: a serializer
    written in another language makes a sentence of it, a callback prints it and goes on, an import
    becomes an ImportError. What was told stays.

    Of a ``whole_process`` they last until it ends: one that comes while the interpreter ends
    decides the status, and the second one ends it at once. Those that come after all that Python
    code does at the end are passed over: nothing is left to cut off.
    """

    def __init__(self, *, whole_process: bool) -> None:
        self.told: list[int] = []
        self.ending = False
        self._whole_process = whole_process
        self._before: dict[int, Any] = {}
        self._told_before: int | None = None  # how many when the command had ended

    def __enter__(self) -> _Signals:
        if self._whole_process:
            # before the command loads what ends with a function of its own: the last to run
            atexit.register(self._end)
        if current_thread() is main_thread():  # no other can
            for number in (signal.SIGTERM, signal.SIGINT):
                # of a shell's background
                if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._tell)
        return self

    def __exit__(self, *_: object) -> None:
        self.ending = True
        self._told_before = len(self.told)
        for number, handler in self._before.items():
            if not self._whole_process:
                signal.signal(number, handler)

    def _tell(self, number: int, _: object) -> None:
        self.told.append(128 + number)
        if not self.ending:
            raise KeyboardInterrupt
        if self._told_before is not None and len(self.told) > self._told_before + 1:
            os._exit(self.told[0])

    def _end(self) -> None:
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)
        if len(self.told) > (self._told_before or 0):
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            os._exit(self.told[0])  # a function of those that run at the end can say no status


def guarded(run: Callable[[], int], *, verbose: bool, whole_process: bool = False) -> int:
    """Exit status of ``run()``; whatever it raises becomes one sentence on standard error and the
    status that goes with it.

    An interruption ends with the status of one wherever it falls, of a ``whole_process`` in its
    last moments too.
    """
    with _Signals(whole_process=whole_process) as signals:
        try:
            _prepare_streams()
            try:
                status = run()
            except SystemExit as stop:  # --help and --version
                status = stop.code if isinstance(stop.code, int) else DONE
            sys.stdout.flush()
            signals.ending = True
            return _interrupted(signals.told, None) if signals.told else status
        except Ended:
            return DONE
        except BaseException as error:  # noqa: BLE001 - the outermost frame: whatever escaped must not reach the user raw
            signals.ending = True
            interruption = _interruption_in(error)
            if signals.told or interruption is not None:
                return _interrupted(signals.told, interruption)
            return _failed(error, verbose=verbose)


def _interruption_in(error: BaseException) -> KeyboardInterrupt | None:
    """The interruption that ``error`` is, came of, or says that it came of, as pydantic's do."""
    seen, pending = set[int](), [error]
    while pending:
        each = pending.pop(0)
        if isinstance(each, KeyboardInterrupt):
            return each
        if not isinstance(each, PhazeError | OSError) and KeyboardInterrupt.__name__ in str(each):
            return KeyboardInterrupt()
        seen.add(id(each))
        beneath = (
            each.__cause__,
            each.__context__,
            *(each.exceptions if isinstance(each, BaseExceptionGroup) else ()),
        )
        pending += [inner for inner in beneath if inner is not None and id(inner) not in seen]
    return None


def _interrupted(told: Sequence[int], stop: KeyboardInterrupt | None) -> int:
    kept = stop.kept if isinstance(stop, Stopped) else EVERYTHING_KEPT
    status = told[0] if told else INTERRUPTED
    if kept:
        _say(f"{'terminated' if status == TERMINATED else 'interrupted'}; {kept}")
    return status


def _failed(error: BaseException, *, verbose: bool) -> int:
    match error:
        case BrokenPipeError():  # the reader of our output has seen enough
            _discard_stdout()
            return DONE
        case SeveralProblemsError():
            _say(error.heading, error.listed)
            return error.exit_status
        case PhazeError():
            _say(str(error))
            return error.exit_status
        case ModuleNotFoundError():
            _say(f"this Python cannot run phaze ({error}); {_way_to_install(error.name)}")
        case MemoryError():
            _say(
                "out of memory; use fewer micro-batch sizes or widths at once, or a machine with "
                "more memory"
            )
        case OSError():
            _say(_os_sentence(error))
            _discard_stdout()
            return InputError.exit_status if error.errno in _IMPOSSIBLE_PATHS else FAILED
        case _:
            if verbose:
                say(sys.stderr, "".join(traceback.format_exception(error)).splitlines())
            more = "" if verbose else "; run again with --verbose to see where it came from"
            _say(f"unexpected {type(error).__name__}: {error}{more}")
    return FAILED


def _prepare_streams() -> None:
    """Give closed streams somewhere to go; what cannot be shown is escaped."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123 - for the rest of the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _os_sentence(error: OSError) -> str:
    where = f" at {clipped(str(error.filename))}" if error.filename else ""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        if not where:  # files have their names: it is what is printed
            return (
                "standard output cannot be written, since its disk is full; make room, then "
                "run the same command again"
            )
        return (
            f"the disk is full{where}; make room or choose another place, then run the same "
            "command again"
        )
    reason = (error.strerror or str(error)).lower()
    if error.errno in _IMPOSSIBLE_PATHS:
        return f"{reason}{where}; give another path"
    return f"{reason}{where}; check the path and its permissions"


def _way_to_install(module: str | None) -> str:
    if (SOURCES / "setup.sh").exists():
        return "run ./setup.sh, then use .venv/bin/python or .venv/bin/phaze"
    return (
        f"install {module or 'it'} with the python -m pip of this environment; phaze doctor "
        "tells what else is missing"
    )


def _say(message: str, listed: Sequence[str] = ()) -> None:
    lines = [
        f"phaze: {' '.join(message.split())}",
        *(f"  - {' '.join(each.split())}" for each in listed),
    ]
    # nobody can be told on a full disk or a closed pipe; the status still tells
    with contextlib.suppress(OSError):
        say(sys.stderr, map(tidy, lines))


def _discard_stdout() -> None:
    """Point standard output at nothing, so that the flush at exit cannot fail again."""
    with contextlib.suppress(OSError):
        descriptor = sys.stdout.fileno()
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, descriptor)
        os.close(nothing)
