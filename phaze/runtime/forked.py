"""Processes of this machine that are forked from a server, which imports once what all of them
need.

A process whose server ends is killed by the kernel, and the server ends with the process that
started it.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from multiprocessing.forkserver import _forkserver
from pathlib import Path
from tempfile import TemporaryDirectory

PR_SET_PDEATHSIG = 1  # of prctl(2)
GRACE_S = 5.0  # for processes that were told to end


@dataclass(frozen=True)
class Member:
    """One of several processes, and what it sends."""

    process: ForkServerProcess
    pipe: Connection


@contextmanager
def forked(
    modules: Sequence[str], count: int, run: Callable[..., None], *arguments: object
) -> Iterator[list[Member]]:
    """Processes in which ``modules`` are imported, all of them ended behind it.

    Each runs ``run(rank, count, meeting, pipe, *arguments)``; ``meeting`` is a file by which they
    find each other: a port could be taken by another program before it is used.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload(list(modules))  # of a server that does not run already
    members = list[Member]()
    with TemporaryDirectory(prefix="phaze-") as folder:
        try:
            for rank in range(count):
                ours, theirs = context.Pipe(duplex=False)
                given = (rank, count, str(Path(folder) / "meeting"), theirs, *arguments)
                process = context.Process(target=run, args=given, daemon=True)
                process.start()
                theirs.close()
                members.append(Member(process, ours))
            yield members
        finally:
            _end([member.process for member in members])
            stop_server()


def _end(processes: Sequence[ForkServerProcess]) -> None:
    for process in processes:
        if process.is_alive():
            process.terminate()
    for process in processes:
        process.join(GRACE_S)
        if process.is_alive():
            process.kill()
            process.join()


def stop_server() -> None:
    """End the server, so that nothing is left where this process goes on; the next process starts
    another one."""
    _forkserver._stop()  # type: ignore[attr-defined]


def die_with_parent() -> None:
    """Let the kernel kill this process, which was forked, when the server ends; an interrupt is for
    the process that started it, which hears it as well."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    starter = parent_process()
    if starter is not None and not starter.is_alive():  # it ended before that
        os._exit(1)
