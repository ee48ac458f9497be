"""``phaze train``: a plan trained with torch.distributed, measured and compared with its
prediction."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.cli import mode
from phaze.cli.exit_status import DONE, FAILED, Stopped
from phaze.cli.printing import print_answer
from phaze.cli.report import need_libraries
from phaze_common.errors import InputError
from phaze_common.files import check_writable, user_path
from phaze_common.written_files import check_replaceable, write_outputs

if TYPE_CHECKING:
    from phaze.runtime.training.job import Job
    from phaze.runtime.training.plan_file import PlanToTrain
    from phaze.runtime.training.records import CheckRecord, JobRecord, TrainRecord

logger = logging.getLogger(__name__)

PAGE, TRACE = "report.html", "trace.json"


@dataclass(frozen=True, kw_only=True)
class Train(mode.Command):
    """Train the plan of a file with local processes, and compare what it takes with what was
    predicted."""

    plan: Path | None = mode.flag(
        None, "the best.json of a search, or a file that holds one plan by value", "FILE"
    )
    model: str | None = mode.flag(
        None, "of several models in the file (default: the first)", "NAME"
    )
    steps: int = mode.flag(20, "training steps in all (default 20)")
    data: str = mode.flag(
        "synthetic", "synthetic (default), or a text, whose bytes are the tokens", "FILE"
    )
    dtype: str = mode.flag(
        "float32", "number format of weights and products (default float32)", "NAME"
    )
    seed: int = mode.flag(0, "of weights and data (default 0)")
    most_processes: int = mode.flag(
        16,
        "most processes that may be started on this machine (default 16)",
        names=("--processes",),
    )
    check: bool = mode.flag(
        False, "also train 3 steps with one process and compare losses and parameters"
    )
    checkpoint_every: int = mode.flag(
        0, "keep what is needed to go on every K steps (default: never)", "K"
    )
    resume: Path | None = mode.flag(
        None, "go on from a checkpoint, or from the last one of a run's folder", "DIR"
    )
    output: str | None = mode.flag(
        None,
        "folder of train.json, trace.json and checkpoints (default: train beside the plan's file)",
        "DIR",
    )
    force: bool = mode.force_flag()


def run(command: Train) -> int:
    """Train the plan and print losses, times per stage and what the check found."""
    from phaze.runtime.training.torchrun import is_first, said_once

    if command.plan is None:
        raise InputError("no plan is named; give --plan best.json")
    folder = _folder(command.plan, command)
    try:
        return said_once(lambda: _train(command, folder))
    except KeyboardInterrupt as stop:
        raise Stopped(_kept(folder) if is_first() else "") from stop


def _folder(plan: Path, command: Train) -> Path:
    from phaze.runtime.training.records import TRAIN_FOLDER

    if command.output is None:
        return plan.absolute().parent / TRAIN_FOLDER
    return user_path(command.output).absolute()


def _kept(folder: Path) -> str:
    """What there is of a training that was told to end."""
    from phaze.runtime.training.job import CHECKPOINTS

    if any((folder / CHECKPOINTS).glob("step-*")):
        return f"the same command with --resume {folder} goes on from the last checkpoint"
    return "no checkpoint was written; give --checkpoint-every to be able to go on"


def _train(command: Train, folder: Path) -> int:
    from phaze.runtime.training.checkpoints import find
    from phaze.runtime.training.comparison import check_training
    from phaze.runtime.training.job import check_job
    from phaze.runtime.training.launch import launch, say_step
    from phaze.runtime.training.plan_file import read_plan_to_train
    from phaze.runtime.training.process import prepare_torch
    from phaze.runtime.training.process import train as train_here
    from phaze.runtime.training.records import MEASURED_FILE, TRAIN_FILE
    from phaze.runtime.training.start_checks import check_start
    from phaze.runtime.training.torchrun import (
        agreed,
        check_world,
        is_first,
        meeting,
        started_by_torchrun,
    )

    need_libraries("train")
    assert command.plan is not None  # train has refused that
    plan_file = read_plan_to_train(command.plan, command.model)
    job = _job(plan_file, folder, command)
    family = check_job(job, command.most_processes)
    if job.resume is not None:
        find(job.resume, job)
    if started_by_torchrun():
        check_world(job)
    check_start(job, family)
    if is_first():
        check_writable(job.folder)
        check_replaceable(
            job.folder, dict.fromkeys((TRAIN_FILE, MEASURED_FILE, TRACE, PAGE)), force=command.force
        )
    check = None
    if started_by_torchrun():
        with meeting():
            mine = train_here(job, say_step)
            if job.check:
                check = check_training(
                    job, family, mine, agreed, lambda exact: train_here(exact, say_step)
                )
        return DONE if mine is None else _report(job, plan_file, mine, check, command)
    (record,) = launch([job])
    if job.check:
        prepare_torch()
        check = check_training(job, family, record, bool, lambda exact: launch([exact])[0])
    return _report(job, plan_file, record, check, command)


def _job(plan_file: PlanToTrain, folder: Path, command: Train) -> Job:
    from phaze.runtime.training.job import SYNTHETIC, Job

    return Job(
        plan=plan_file.plan,
        steps=command.steps,
        folder=folder,
        data=SYNTHETIC if command.data == SYNTHETIC else str(user_path(command.data).absolute()),
        dtype=command.dtype,
        seed=command.seed,
        check=command.check,
        checkpoint_every=command.checkpoint_every,
        resume=None if command.resume is None else user_path(str(command.resume)).absolute(),
    )


def _report(
    job: Job, plan_file: PlanToTrain, record: JobRecord, check: CheckRecord | None, command: Train
) -> int:
    from phaze.report.pages.page import page
    from phaze.report.pages.training.training_report import training_report
    from phaze.report.training_run import measured_timeline, training_tables
    from phaze.runtime.training.plan_file import train_record
    from phaze.runtime.training.records import MEASURED_FILE, TRAIN_FILE
    from phaze_common.file_formats import TRAINING
    from phaze_common.records import to_json

    answer: TrainRecord = train_record(job, plan_file, record, check)
    content = TRAINING.stamped_json(to_json(answer), indent=2)
    files = {
        TRAIN_FILE: content,
        MEASURED_FILE: TRAINING.stamped_json(to_json(record)),
        TRACE: measured_timeline(answer, record, plan_file.pipeline),
        PAGE: page(training_report(answer, record, plan_file.pipeline)).encode(),
    }
    write_outputs(job.folder, files, force=command.force)
    print_answer(content.decode(), lambda: training_tables(answer, job.folder), command)
    return DONE if check is None or check.equal else FAILED


MODE = mode.Mode("train", mode.RUN_FOR_REAL, Train, run)
