"""Processes of a training on this machine: started together, watched, and none left behind.

A process whose parent dies is killed by the kernel (PR_SET_PDEATHSIG); where one dies, the others are ended.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import socket
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

import torch.distributed as dist

from Common.errors import PhazeError
from Runtime.training.job import Job
from Runtime.training.process import prepare_torch, train
from Runtime.training.records import JobRecord

PR_SET_PDEATHSIG = 1  # of prctl(2)
GRACE_S = 5.0  # for processes that were told to end


def launch(jobs: Sequence[Job]) -> tuple[JobRecord, ...]:
    """Train the jobs one after another in one set of processes, as many as the largest needs.

    Raises:
        PhazeError: a process failed or was killed; says which. InputError where one refused its job.
    """
    world = max(job.processes for job in jobs)
    context = get_context("spawn")
    port = _free_port()
    started: list[tuple[SpawnProcess, Connection]] = []
    try:
        for rank in range(world):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_run, args=(rank, world, port, tuple(jobs), theirs, os.getpid()), daemon=True)
            process.start()
            theirs.close()
            started.append((process, ours))
        return _watched(jobs, started)
    finally:
        _end([process for process, _ in started])


def _watched(jobs: Sequence[Job], started: Sequence[tuple[SpawnProcess, Connection]]) -> tuple[JobRecord, ...]:
    """What the first process sends when all are done."""
    running, result = dict(enumerate(started)), None
    while running:
        ready = wait([pipe for _, pipe in running.values()])
        for rank, (process, pipe) in list(running.items()):
            if pipe not in ready:
                continue
            try:
                sent = pickle.loads(pipe.recv_bytes())  # noqa: S301 - of a process that we started
            except EOFError:
                process.join(GRACE_S)
                raise PhazeError(_ended(jobs, rank, process.exitcode)) from None
            if isinstance(sent, Exception):
                raise sent
            result = sent if rank == 0 else result
            del running[rank]
    assert result is not None  # the first process sent it
    return tuple(result)


def _ended(jobs: Sequence[Job], rank: int, status: int | None) -> str:
    how = f"was ended by signal {-status}" if status is not None and status < 0 else f"ended with status {status}"
    stage = next((place.stage for place in jobs[0].places if rank in place.ranks), None)
    where = "" if stage is None else f" of stage {stage}"
    kept = (
        "--resume goes on from the last checkpoint" if jobs[0].checkpoint_every else "give --checkpoint-every to be able to go on"
    )
    return f"process {rank}{where} {how}, so the training was ended; {kept}"


def _run(rank: int, world: int, port: int, jobs: Sequence[Job], pipe: Connection, parent: int) -> None:
    """A started process: train, and send what the first one is to return, or what went wrong."""
    die_with(parent)
    prepare_torch()
    try:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
        pipe.send_bytes(pickle.dumps([train(job) for job in jobs]))
        dist.barrier()
        dist.destroy_process_group()
    except PhazeError as error:
        pipe.send_bytes(pickle.dumps(error))
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent says it in one sentence
        pipe.send_bytes(pickle.dumps(PhazeError(f"process {rank} failed with {type(error).__name__}: {error}")))


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, also if that has happened already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _end(processes: Sequence[SpawnProcess]) -> None:
    for process in processes:
        if process.is_alive():
            process.terminate()
    for process in processes:
        process.join(GRACE_S)
        if process.is_alive():
            process.kill()
            process.join()


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
