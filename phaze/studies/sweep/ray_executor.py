"""Points on a Ray cluster, which is there already or made of this machine's cores."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import islice
from threading import current_thread, main_thread
from typing import Any

from phaze.studies.sweep.work import Ending, Outcome, Task, compute_apart, died
from phaze_common.errors import InputError

AHEAD = 2  # tasks per worker that are handed over before earlier ones end
CONNECT_S = 10.0
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to anybody
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # of accelerators it says a lot otherwise
}


class RayExecutor:
    """One core of the cluster per point, of at most ``workers``; connected while it runs tasks."""

    def __init__(self, workers: int | None, address: str | None) -> None:
        """A cluster at ``address``, or a local one.

        Raises:
            InputError: Ray is not installed.
        """
        if find_spec("ray") is None:
            raise InputError(
                "--executor ray needs Ray, which is not installed; install it with: "
                ".venv/bin/python -m pip install ray"
            )
        self._workers = workers
        self._address = address

    def outcomes(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        """As ``Executor.outcomes``.

        Raises:
            InputError: no cluster answers.
        """
        import ray

        self._connect()
        running: dict[Any, Task] = {}
        try:
            most = AHEAD * (self._workers or max(int(ray.cluster_resources().get("CPU", 1)), 1))
            run = ray.remote(num_cpus=1, max_retries=0)(compute_apart)
            waiting = iter(tasks)
            while True:
                for task in islice(waiting, most - len(running)):
                    running[run.remote(task)] = task
                if not running:
                    return
                (done, *_), _ = ray.wait(list(running), num_returns=1)
                task = running.pop(done)
                yield _outcome(done, task)
        finally:
            ray.shutdown()  # a cluster that is not ours cancels what we started

    def _connect(self) -> None:
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)
        if self._address is not None:
            _check_address(self._address)
        import ray

        terminate = signal.getsignal(signal.SIGTERM)
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if self._address is None:
                ray.init(address="local", num_cpus=self._workers, include_dashboard=False, **quiet)
            else:
                ray.init(address=self._address, **quiet)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            where = "a local Ray cluster cannot be started"
            if self._address:
                where = f"the Ray cluster at {self._address} refuses"
            raise InputError(
                f"{where} ({' '.join(str(error).split())}); check 'ray status' there, and "
                "RAY_AUTH_MODE where it asks for a token"
            ) from error
        # which Ray has replaced by one that writes a page of addresses
        if current_thread() is main_thread():
            signal.signal(signal.SIGTERM, terminate)


def _check_address(address: str) -> None:
    """Refuse an address where nobody listens; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return  # a word such as auto
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"no Ray cluster answers at {address} ({error}); check --address, and 'ray status' "
            "there"
        ) from error


def _outcome(reference: Any, task: Task) -> Outcome:
    import ray

    errors = ray.exceptions
    try:
        outcome: Outcome = ray.get(reference)
    except (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.NodeDiedError):
        return died(task)
    except errors.RayError as error:
        why = str(error).strip().splitlines()[-1]
        problem = (
            f"Ray could not run it ({why}); every machine of the cluster needs the same "
            "phaze and Python"
        )
        return Outcome(task.point.key, Ending.FAILED, problem=problem)
    return outcome
