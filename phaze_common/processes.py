"""Calls spread over processes of this machine, which end with the process that started them,
however it ends."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

PARENT_INTERVAL_S = 0.5


def in_processes(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int,
    started: list[Item] | None = None,
) -> Iterator[Result]:
    """Results of ``function`` of every item, as soon as they are known; those handed to a worker so
    far are in ``started``.

    Closing the iterator ends the workers.

    Raises: concurrent.futures.BrokenExecutor: a worker died, which takes all that run at that
        moment along.
    """
    import joblib

    def calls() -> Iterator[Any]:
        for item in items:
            if started is not None:
                started.append(item)
            yield joblib.delayed(function)(item)

    parallel = joblib.Parallel(
        n_jobs=max(workers, 2),  # a single one would run in this process
        backend="loky",
        return_as="generator_unordered",
        pre_dispatch=workers,
        batch_size=1,
        initializer=_start_worker,
        initargs=(os.getpid(),),
    )
    results = parallel(calls())
    try:
        for result in results:  # noqa: UP028 - "yield from" would close them before what follows
            yield result
    finally:
        with warnings.catch_warnings():  # that calls were cancelled is said in a sentence
            warnings.simplefilter("ignore", UserWarning)
            results.close()


def _start_worker(parent: int) -> None:
    """Leave interrupts and terminations to the parent, and end with it, however it ends."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_INTERVAL_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
