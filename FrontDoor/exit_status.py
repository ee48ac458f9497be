"""How a command ends: exit statuses, one sentence instead of a traceback, and a standard output that may be closed early."""

from __future__ import annotations

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
from typing import NoReturn

from Common.echo import clipped, say, tidy
from Common.errors import InputError, PhazeError
from Common.refusals import SeveralProblemsError

DONE = 0
FAILED = 1
NOTHING_FEASIBLE = 3
INTERRUPTED = 128 + signal.SIGINT  # as shells report it
TERMINATED = 128 + signal.SIGTERM

_IMPOSSIBLE_PATHS = frozenset({errno.ENAMETOOLONG, errno.ELOOP})  # wherever they were typed


SOURCES = Path(__file__).resolve().parent.parent
EVERYTHING_KEPT = "everything finished so far is kept, and the same command goes on from there"


class Stopped(KeyboardInterrupt):
    """A command that was told to end; ``kept`` is what there is of it and how to go on (empty: another process says so)."""

    def __init__(self, kept: str) -> None:
        super().__init__(kept)
        self.kept = kept


def guarded(run: Callable[[], int], *, verbose: bool) -> int:
    """Exit status of ``run()``; whatever it raises becomes one sentence on standard error and the status that goes with it."""
    _prepare_streams()
    told: list[int] = []  # to terminate; libraries raise an interrupt of their own instead of ours

    def terminate(*_: object) -> NoReturn:
        told.append(TERMINATED)
        raise KeyboardInterrupt

    handler = signal.signal(signal.SIGTERM, terminate) if current_thread() is main_thread() else None  # no other can
    try:
        try:
            status = run()
        except SystemExit as stop:  # --help and --version
            status = stop.code if isinstance(stop.code, int) else DONE
        sys.stdout.flush()
    except KeyboardInterrupt as stop:
        kept = stop.kept if isinstance(stop, Stopped) else EVERYTHING_KEPT
        if kept:
            _say(f"{'terminated' if told else 'interrupted'}; {kept}")
        return told[0] if told else INTERRUPTED
    except BrokenPipeError:  # the reader of our output has seen enough
        _discard_stdout()
        return DONE
    except SeveralProblemsError as error:
        _say(error.heading, error.listed)
        return error.exit_status
    except PhazeError as error:
        _say(str(error))
        return error.exit_status
    except ModuleNotFoundError as error:
        _say(f"this Python cannot run phaze ({error}); {_way_to_install(error.name)}")
        return FAILED
    except MemoryError:
        _say("out of memory; use fewer micro-batch sizes or widths at once, or a machine with more memory")
        return FAILED
    except OSError as error:
        _say(_os_sentence(error))
        _discard_stdout()
        return InputError.exit_status if error.errno in _IMPOSSIBLE_PATHS else FAILED
    except Exception as error:  # noqa: BLE001 - the outermost frame: whatever escaped the rooms must not reach the user raw
        if verbose:
            say(sys.stderr, traceback.format_exc().splitlines())
        _say(
            f"unexpected {type(error).__name__}: {error}"
            + ("" if verbose else "; run again with --verbose to see where it came from")
        )
        return FAILED
    finally:
        if handler is not None:
            signal.signal(signal.SIGTERM, handler)
    return status


def _prepare_streams() -> None:
    """Give closed streams somewhere to go; a terminal that cannot show a character gets its escape."""
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
            return "standard output cannot be written, since its disk is full; make room, then run the same command again"
        return f"the disk is full{where}; make room or choose another place, then run the same command again"
    reason = (error.strerror or str(error)).lower()
    if error.errno in _IMPOSSIBLE_PATHS:
        return f"{reason}{where}; give another path"
    return f"{reason}{where}; check the path and its permissions"


def _way_to_install(module: str | None) -> str:
    if (SOURCES / "setup.sh").exists():
        return "run ./setup.sh, then use .venv/bin/python or .venv/bin/phaze"
    return f"install {module or 'it'} with the python -m pip of this environment; phaze doctor tells what else is missing"


def _say(message: str, listed: Sequence[str] = ()) -> None:
    lines = [f"phaze: {' '.join(message.split())}", *(f"  - {' '.join(each.split())}" for each in listed)]
    with contextlib.suppress(OSError):  # nobody can be told on a full disk or a closed pipe; the status still tells
        say(sys.stderr, map(tidy, lines))


def _discard_stdout() -> None:
    """Point standard output, where it is a file, at nothing: the interpreter's own flush at exit must not fail again."""
    with contextlib.suppress(OSError):
        descriptor = sys.stdout.fileno()
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, descriptor)
        os.close(nothing)
