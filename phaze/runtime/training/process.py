"""What each process of a training does, from its first to its last step."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from GraphExtractor.models.registry import find_model
from phaze.runtime.allocator import keep_freed_memory
from phaze.runtime.training.batches import Batches
from phaze.runtime.training.checkpoints import find, load, save
from phaze.runtime.training.clock import Clock
from phaze.runtime.training.groups import make_groups
from phaze.runtime.training.job import CHECKED_STEPS, Job
from phaze.runtime.training.places import seat_of
from phaze.runtime.training.records import JobRecord, ProcessRecord, StepRecord, process_record
from phaze.runtime.training.stage_worker import StageWorker, cut_stage, operators_to_run

KIB = 1024  # of getrusage on Linux


def train(job: Job, report_step: Callable[[StepRecord], None]) -> JobRecord | None:
    """Take part in a job; the first process reports every step and returns what all measured.

    Raises:
        PhazeError: the model cannot be cut as the plan has it.
    """
    family, rank = find_model(job.plan.model), dist.get_rank()
    seat = seat_of(job.places, rank) if rank < job.processes else None
    clock = Clock()
    if seat is None:  # of a smaller job than there are processes
        tied: list[list[tuple[int, ...]] | None] = [None]
        dist.broadcast_object_list(tied, 0)
        make_groups(None, job.places, tied[0] or [])
        return None
    # of the processes that share products, which exists only once the model was cut
    group: list[object] = []
    cut = cut_stage(job, family, seat.place.stage, operators_to_run(group, clock))
    tied = [sorted(set(cut.program.tied.values()))]
    dist.broadcast_object_list(tied, 0)
    groups = make_groups(seat, job.places, tied[0] or [])
    assert groups is not None  # this process has a seat
    group.append(groups.parts)
    worker = StageWorker(job, seat, cut, groups, clock)
    done, losses = 0, []
    if job.resume is not None:
        place, record = find(job.resume, job)
        load(place, seat, worker.optimizer)
        done, losses = record.step, list(record.losses)
    batches = Batches(job, family)
    steps = []
    for step in range(done + 1, job.steps + 1):
        clock.step = step
        batch = batches.step(step)
        dist.barrier(groups.everyone)
        start = time.monotonic()
        loss, norm = worker.step(batch)
        steps.append(StepRecord(step, loss, norm, time.monotonic() - start))
        losses.append(loss)
        if seat.rank == 0:
            report_step(steps[-1])
        if job.checkpoint_every and step % job.checkpoint_every == 0:
            save(job, job.checkpoint(step), seat, worker.optimizer, groups, step, tuple(losses))
        if job.check and step == CHECKED_STEPS:
            save(job, job.checked_weights, seat, worker.optimizer, groups, step, tuple(losses))
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB
    mine = process_record(
        seat,
        clock.spans,
        job.traced,
        worker.optimizer.state_bytes,
        worker.peak_kept_bytes,
        resident,
    )
    found: list[ProcessRecord | None] = [None] * job.processes
    dist.all_gather_object(found, mine, group=groups.everyone)
    if seat.rank == 0:
        return JobRecord(tuple(steps), tuple(each for each in found if each is not None))
    return None


def prepare_torch() -> None:
    """One thread per process, since processes share the cores; its memory as operators are profiled
    with it.

    Time of the thread then says what a pass costs, and can be compared with what was predicted of
    it.
    """
    torch.set_num_threads(1)
    keep_freed_memory()
