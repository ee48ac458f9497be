"""Checkpoints: weights by name and Adam's state in safetensors, written beside their place and
moved there when whole."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file

from Estimator.plans.plan import Plan
from phaze.runtime.training.groups import Groups
from phaze.runtime.training.job import CHECKPOINTS, Job
from phaze.runtime.training.optimizer import StageOptimizer
from phaze.runtime.training.places import Seat
from phaze_common.errors import InputError
from phaze_common.file_formats import CHECKPOINT
from phaze_common.files import read_json, write_atomically
from phaze_common.records import to_json, to_record

RECORD = "checkpoint.json"


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint is of: a plan after so many steps, on these data from this seed; losses up
    to there."""

    step: int  # its number
    plan: Plan  # by value
    data: str  # what was trained on
    seed: int  # by which it repeats
    losses: tuple[float, ...]  # of the steps so far


def save(
    job: Job,
    place: Path,
    seat: Seat,
    optimizer: StageOptimizer,
    groups: Groups,
    step: int,
    losses: tuple[float, ...],
) -> None:
    """Write the checkpoint of ``step`` to ``place``; all processes of the job do so together."""
    partial = place.with_name(f".{place.name}.partial")
    first = seat.rank == 0
    if first:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    dist.barrier(groups.everyone)
    weights, state = optimizer.named_weights(), optimizer.state()
    if seat.replica == 0:
        save_file(
            {name: value.contiguous() for name, value in weights.items()},
            partial / _weights_file(seat.place.stage, seat.part),
        )
    if seat.replica == 0 or optimizer.zero_stage:
        save_file(state, partial / _state_file(seat, optimizer.zero_stage))
    dist.barrier(groups.everyone)
    if first:
        write_atomically(
            partial / RECORD,
            CHECKPOINT.stamped_json(
                to_json(Checkpoint(step, job.plan, job.data, job.seed, losses))
            ),
        )
        shutil.rmtree(place, ignore_errors=True)
        partial.rename(place)
    dist.barrier(groups.everyone)


def load(folder: Path, seat: Seat, optimizer: StageOptimizer) -> None:
    """Put the weights and the state of one process in place."""
    weights = load_file(folder / _weights_file(seat.place.stage, seat.part))
    optimizer.load(weights, load_file(folder / _state_file(seat, optimizer.zero_stage)))


def stage_weights(folder: Path, stage: int, part: int) -> dict[str, torch.Tensor]:
    """Weights by name as one process of a stage holds them."""
    return dict(load_file(folder / _weights_file(stage, part)))


def find(path: Path, job: Job) -> tuple[Path, Checkpoint]:
    """The checkpoint at ``path``, or the last one of the run there, and its record.

    Raises:
        InputError: there is none, or it is of another training.
    """
    places = [path] if (path / RECORD).is_file() else sorted((path / CHECKPOINTS).glob("step-*"))
    if not places or not (places[-1] / RECORD).is_file():
        raise InputError(
            f"--resume {path} holds no checkpoint; give the folder of a run that was told "
            "--checkpoint-every, or of a checkpoint"
        )
    content = CHECKPOINT.current(
        read_json(places[-1] / RECORD, "a checkpoint"), str(places[-1] / RECORD)
    )
    record = to_record(Checkpoint, content, str(places[-1]))
    for name, now in (("plan", job.plan), ("data", job.data), ("seed", job.seed)):
        if getattr(record, name) != now:
            raise InputError(
                f"--resume {path} is of another {name} than this training; give the same, or "
                "start anew"
            )
    if record.step >= job.steps:
        raise InputError(
            f"--resume {path} has {record.step} steps already, and {job.steps} were asked for; "
            "give more --steps"
        )
    return places[-1], record


def _weights_file(stage: int, part: int) -> str:
    return f"weights-stage{stage}-part{part}.safetensors"


def _state_file(seat: Seat, zero_stage: int) -> str:
    replica = seat.replica if zero_stage else 0
    return f"adam-stage{seat.place.stage}-replica{replica}-part{seat.part}.safetensors"
