"""Processes of this machine that are forked from a server, which imports once what all of them
need.

A process whose server ends is killed by the kernel, and the server ends with the process that
started it.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Sequence
from multiprocessing import get_context, parent_process
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import _forkserver

PR_SET_PDEATHSIG = 1  # of prctl(2)


def forking(modules: Sequence[str]) -> ForkServerContext:
    """Starts processes in which ``modules`` are imported; a server that runs already stays as it
    is."""
    context = get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    return context


def stop_server() -> None:
    """End the server, so that nothing is left where this process goes on; the next process starts
    another one."""
    _forkserver._stop()  # type: ignore[attr-defined]


def die_with_parent() -> None:
    """Let the kernel kill this process, which was forked, when the server ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    starter = parent_process()
    if starter is not None and not starter.is_alive():  # it ended before that
        os._exit(1)
