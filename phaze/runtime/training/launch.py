"""Processes of a training on this machine: started together, watched, and none left behind.

Where one dies, the others are ended; all of them end with the process that started them.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory

import torch.distributed as dist

from phaze.runtime.forked import die_with_parent, forking, stop_server
from phaze.runtime.training.job import Job
from phaze.runtime.training.process import prepare_torch, train
from phaze.runtime.training.records import JobRecord, StepRecord
from phaze_common.errors import InputError, PhazeError

logger = logging.getLogger(__name__)

PRELOADED = ("phaze.runtime.training.process", "transformers.modeling_utils")
GRACE_S = 5.0  # for processes that were told to end


def launch(jobs: Sequence[Job]) -> tuple[JobRecord, ...]:
    """Train the jobs one after another in one set of processes, as many as the largest needs.

    Raises: PhazeError: a process failed or was killed; says which. InputError where one refused its
        job.
    """
    world = max(job.processes for job in jobs)
    context = forking(PRELOADED)
    started: list[tuple[ForkServerProcess, Connection]] = []
    meeting = TemporaryDirectory(
        prefix="phaze-train-"
    )  # a port could be taken by another program before it is used
    try:
        for rank in range(world):
            ours, theirs = context.Pipe(duplex=False)
            place = str(Path(meeting.name) / "meeting")
            process = context.Process(
                target=_run, args=(rank, world, place, tuple(jobs), theirs), daemon=True
            )
            process.start()
            theirs.close()
            started.append((process, ours))
        return _watched(jobs, started)
    finally:
        _end([process for process, _ in started])
        stop_server()
        meeting.cleanup()


def say_step(step: StepRecord) -> None:
    """Log a step."""
    logger.info(
        "step %d: loss %.6f, gradient norm %.4f, %.3f s",
        step.step,
        step.loss,
        step.gradient_norm,
        step.wall_s,
    )


def _watched(
    jobs: Sequence[Job], started: Sequence[tuple[ForkServerProcess, Connection]]
) -> tuple[JobRecord, ...]:
    """What the first process sends when all are done."""
    running, result, done = dict(enumerate(started)), None, 0
    while running:
        ready = wait([pipe for _, pipe in running.values()])
        for rank, (process, pipe) in list(running.items()):
            if pipe not in ready:
                continue
            try:
                sent = pickle.loads(pipe.recv_bytes())  # of a process that we started
            except EOFError:
                process.join(GRACE_S)
                raise PhazeError(_ended(jobs, rank, process.exitcode, done)) from None
            if isinstance(sent, Exception):
                killed = None if isinstance(sent, InputError) else _killed(running, rank)
                if killed is None:
                    raise sent
                raise PhazeError(_ended(jobs, killed, running[killed][0].exitcode, done)) from sent
            if isinstance(sent, StepRecord):
                say_step(sent)
                done = sent.step
                continue
            result = sent if rank == 0 else result
            del running[rank]
    assert result is not None  # the first process sent it
    return tuple(result)


def _killed(running: Mapping[int, tuple[ForkServerProcess, Connection]], failed: int) -> int | None:
    """The process that a signal ended, if any: one that waited for it, ``failed``, may say so
    before its end is noticed."""
    deadline = time.monotonic() + GRACE_S
    others = {rank: process for rank, (process, _) in running.items() if rank != failed}
    while others and (left_s := deadline - time.monotonic()) > 0.0:
        wait([process.sentinel for process in others.values()], left_s)
        for rank, process in list(others.items()):
            if process.exitcode is not None:
                if process.exitcode < 0:
                    return rank
                del others[rank]
    return None


def _ended(jobs: Sequence[Job], rank: int, status: int | None, done: int) -> str:
    how = (
        f"was ended by signal {-status}"
        if status is not None and status < 0
        else f"ended with status {status}"
    )
    stage = next((place.stage for place in jobs[0].places if rank in place.ranks), None)
    where = "" if stage is None else f" of stage {stage}"
    kept = (
        "--resume goes on from the last checkpoint"
        if jobs[0].checkpoint_every
        else "give --checkpoint-every to be able to go on"
    )
    return f"process {rank}{where} {how}, so the training was ended after step {done}; {kept}"


def _run(rank: int, world: int, meeting: str, jobs: Sequence[Job], pipe: Connection) -> None:
    """A started process: train, and send what the first one is to return, or what went wrong."""
    die_with_parent()
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # of a terminal, which the process that started this one hears as well
    prepare_torch()

    def tell(what: object) -> None:
        try:
            pipe.send_bytes(pickle.dumps(what))
        except OSError:  # nobody is left who would hear of it
            os._exit(1)

    try:
        dist.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=rank, world_size=world
        )
        tell([train(job, tell) for job in jobs])
        dist.barrier()
        dist.destroy_process_group()
    except PhazeError as error:
        tell(error)
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent says it in one sentence
        tell(PhazeError(f"process {rank} failed with {type(error).__name__}: {error}"))


def _end(processes: Sequence[ForkServerProcess]) -> None:
    for process in processes:
        if process.is_alive():
            process.terminate()
    for process in processes:
        process.join(GRACE_S)
        if process.is_alive():
            process.kill()
            process.join()
