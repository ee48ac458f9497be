"""Processes of a training on this machine: started together, watched, and none left behind.

Where one dies, the others are ended; all of them end with the process that started them.
"""

from __future__ import annotations

import logging
import os
import pickle
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait

import torch.distributed as dist

from phaze.runtime.forked import GRACE_S, Member, die_with_parent, forked
from phaze.runtime.training.job import Job
from phaze.runtime.training.process import prepare_torch, train
from phaze.runtime.training.records import JobRecord, StepRecord
from phaze_common.errors import InputError, PhazeError

logger = logging.getLogger(__name__)

PRELOADED = ("phaze.runtime.training.process", "transformers.modeling_utils")


def launch(jobs: Sequence[Job]) -> tuple[JobRecord, ...]:
    """Train the jobs one after another in one set of processes, as many as the largest needs.

    Raises: PhazeError: a process failed or was killed; says which. InputError where one refused its
        job.
    """
    world = max(job.processes for job in jobs)
    with forked(PRELOADED, world, _run, tuple(jobs)) as members:
        return _watched(jobs, members)


def say_step(step: StepRecord) -> None:
    """Log a step."""
    logger.info(
        "step %d: loss %.6f, gradient norm %.4f, %.3f s",
        step.step,
        step.loss,
        step.gradient_norm,
        step.wall_s,
    )


def _watched(jobs: Sequence[Job], members: Sequence[Member]) -> tuple[JobRecord, ...]:
    """What the first process sends when all are done."""
    running, result, done = dict(enumerate(members)), None, 0
    while running:
        ready = wait([member.pipe for member in running.values()])
        for rank, member in list(running.items()):
            if member.pipe not in ready:
                continue
            try:
                sent = pickle.loads(member.pipe.recv_bytes())  # of a process that we started
            except EOFError:
                member.process.join(GRACE_S)
                raise PhazeError(_ended(jobs, rank, member.process.exitcode, done)) from None
            if isinstance(sent, Exception):
                killed = None if isinstance(sent, InputError) else _killed(running, rank)
                if killed is None:
                    raise sent
                raise PhazeError(
                    _ended(jobs, killed, running[killed].process.exitcode, done)
                ) from sent
            if isinstance(sent, StepRecord):
                say_step(sent)
                done = sent.step
                continue
            result = sent if rank == 0 else result
            del running[rank]
    assert result is not None  # the first process sent it
    return tuple(result)


def _killed(running: Mapping[int, Member], failed: int) -> int | None:
    """The process that a signal ended, if any: one that waited for it, ``failed``, may say so
    before its end is noticed."""
    deadline = time.monotonic() + GRACE_S
    others = {rank: member.process for rank, member in running.items() if rank != failed}
    while others and (left_s := deadline - time.monotonic()) > 0.0:
        wait([process.sentinel for process in others.values()], left_s)
        for rank, process in list(others.items()):
            if process.exitcode is not None:
                if process.exitcode < 0:
                    return rank
                del others[rank]
    return None


def _ended(jobs: Sequence[Job], rank: int, status: int | None, done: int) -> str:
    if status is not None and status < 0:
        how = f"was ended by signal {-status}"
    else:
        how = f"ended with status {status}"
    stage = next((place.stage for place in jobs[0].places if rank in place.ranks), None)
    where = "" if stage is None else f" of stage {stage}"
    if jobs[0].checkpoint_every:
        kept = "--resume goes on from the last checkpoint"
    else:
        kept = "give --checkpoint-every to be able to go on"
    return f"process {rank}{where} {how}, so the training was ended after step {done}; {kept}"


def _run(rank: int, world: int, meeting: str, pipe: Connection, jobs: Sequence[Job]) -> None:
    """A started process: train, and send what the first one is to return, or what went wrong."""
    die_with_parent()
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
