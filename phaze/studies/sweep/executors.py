"""Who runs the points of a sweep: this process, the cores of this machine, or a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor
from typing import Protocol

from phaze.studies.sweep.work import Outcome, Task, compute, compute_apart, died
from phaze_common.errors import InputError
from phaze_common.processes import in_processes


class Executor(Protocol):
    """Runs tasks, in any order, several at a time."""

    def outcomes(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        """The outcome of every task once it is known; a worker that dies fails its task alone.

        Closing the iterator ends the workers.
        """
        ...


class InProcessExecutor:
    """One point after the other in this process, where a debugger reaches them."""

    def outcomes(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        """As ``Executor.outcomes``; nothing outlives this process if it dies."""
        yield from map(compute, tasks)


class JoblibExecutor:
    """Processes on this machine, each with its share of the cores for its own threads."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def outcomes(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        """As ``Executor.outcomes``.

        A worker that dies takes all that run at that moment along. Each of these is run once more,
        alone, which shows whether it is the one that brings its worker down.
        """
        left = {task.point.key: task for task in tasks}
        while left:
            started: list[Task] = []
            tasks = list(left.values())
            try:
                for outcome in in_processes(compute_apart, tasks, self._workers, started):
                    del left[outcome.key]
                    yield outcome
            except BrokenExecutor:
                for task in started:
                    if left.pop(task.point.key, None) is not None:
                        yield self._alone(task)

    def _alone(self, task: Task) -> Outcome:
        try:
            (outcome,) = in_processes(compute_apart, [task], 1)
        except BrokenExecutor:
            return died(task)
        return outcome


def executor_named(name: str, workers: int | None, address: str | None) -> Executor:
    """The executor called ``joblib`` or ``ray``; ``workers`` None is one per core.

    Raises:
        InputError: the executor is not installed, or cannot be reached.
    """
    if workers is not None and workers < 1:
        raise InputError(f"--workers {workers} is not possible; give a positive whole number")
    if name == "ray":
        from phaze.studies.sweep.ray_executor import RayExecutor

        return RayExecutor(workers, address)
    if address is not None:
        raise InputError("--address is that of a Ray cluster; add --executor ray, or leave it out")
    import joblib

    count = workers or int(joblib.cpu_count())
    return InProcessExecutor() if count == 1 else JoblibExecutor(count)
