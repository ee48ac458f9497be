"""Taking part in a training as one of the processes that torchrun started."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch.distributed as dist

from phaze.runtime.training.job import Job
from phaze.runtime.training.process import prepare_torch
from phaze_common.errors import InputError

SILENT_S = 20.0  # for which processes that were refused as well leave it to the first one to say so


def started_by_torchrun() -> bool:
    """Whether this process is one of those that torchrun started."""
    return {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()


def is_first() -> bool:
    """Whether this is the one process that says and writes what concerns all."""
    return not started_by_torchrun() or os.environ["RANK"] == "0"


def said_once(run: Callable[[], int]) -> int:
    """Exit status of ``run()``; what all processes refuse is said by the first one alone.

    The others wait for torchrun to end them, which it does once the first one has ended; what only
    they refuse they say later.
    """
    try:
        return run()
    except InputError:
        if not is_first():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            time.sleep(SILENT_S)
        raise


def check_world(job: Job) -> None:
    """Refuse another number of processes than the plan needs.

    Raises:
        InputError: says how many it needs.
    """
    world = int(os.environ["WORLD_SIZE"])
    if world != job.processes:
        raise InputError(
            f"torchrun started {world} processes, but the plan needs {job.processes}; give "
            f"--nproc-per-node {job.processes}"
        )


@contextmanager
def meeting() -> Iterator[None]:
    """While inside, the processes know each other."""
    prepare_torch()
    dist.init_process_group("gloo")
    try:
        yield
        dist.barrier()
    finally:
        dist.destroy_process_group()


def agreed(first_says: bool) -> bool:
    """What the first process says; all must ask together."""
    answer = [first_says]
    dist.broadcast_object_list(answer, 0)
    return answer[0]
