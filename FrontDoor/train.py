"""``phaze train``: a plan trained with torch.distributed, measured and compared with its
prediction."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from Common.errors import InputError
from FrontDoor.arguments import Command
from FrontDoor.exit_status import DONE, FAILED, Stopped
from FrontDoor.printing import print_answer
from FrontDoor.report import need_libraries

if TYPE_CHECKING:
    from Runtime.training.job import Job
    from Runtime.training.plan_file import PlanToTrain
    from Runtime.training.records import CheckRecord, JobRecord, TrainRecord

logger = logging.getLogger(__name__)

PAGE, TRACE = "report.html", "trace.json"


def train(command: Command) -> int:
    """Train the plan and print losses, times per stage and what the check found; fails where the
    check does."""
    from Runtime.training.torchrun import is_first, said_once

    if command.config is None:
        raise InputError("no plan is named; give --plan best.json")
    folder = _folder(command.config, command)
    try:
        return said_once(lambda: _train(command, folder))
    except KeyboardInterrupt as stop:
        raise Stopped(_kept(folder) if is_first() else "") from stop


def _folder(plan: Path, command: Command) -> Path:
    from Common.files import user_path
    from Runtime.training.records import TRAIN_FOLDER

    return (
        plan.absolute().parent / TRAIN_FOLDER
        if command.output is None
        else user_path(command.output)
    ).absolute()


def _kept(folder: Path) -> str:
    """What there is of a training that was told to end."""
    from Runtime.training.job import CHECKPOINTS

    if any((folder / CHECKPOINTS).glob("step-*")):
        return f"the same command with --resume {folder} goes on from the last checkpoint"
    return "no checkpoint was written; give --checkpoint-every to be able to go on"


def _train(command: Command, folder: Path) -> int:
    from Common.files import check_writable
    from Common.written_files import check_replaceable
    from Runtime.training.checkpoints import find
    from Runtime.training.comparison import check_training
    from Runtime.training.job import check_job
    from Runtime.training.launch import launch, say_step
    from Runtime.training.plan_file import read_plan_to_train
    from Runtime.training.process import prepare_torch
    from Runtime.training.process import train as train_here
    from Runtime.training.records import MEASURED_FILE, TRAIN_FILE
    from Runtime.training.start_checks import check_start
    from Runtime.training.torchrun import (
        agreed,
        check_world,
        is_first,
        meeting,
        started_by_torchrun,
    )

    need_libraries("train")
    assert command.config is not None  # train has refused that
    given = read_plan_to_train(command.config, command.names[0] if command.names else None)
    job = _job(given, folder, command)
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
        return DONE if mine is None else _report(job, given, mine, check, command)
    (record,) = launch([job])
    if job.check:
        prepare_torch()
        check = check_training(job, family, record, bool, lambda exact: launch([exact])[0])
    return _report(job, given, record, check, command)


def _job(given: PlanToTrain, folder: Path, command: Command) -> Job:
    from Common.files import user_path
    from Runtime.training.job import SYNTHETIC, Job

    return Job(
        plan=given.plan,
        steps=command.steps,
        folder=folder,
        data=SYNTHETIC if command.data == SYNTHETIC else str(user_path(command.data).absolute()),
        dtype=command.dtype or "float32",
        seed=command.seed,
        check=command.check,
        checkpoint_every=command.checkpoint_every,
        resume=None if command.resume is None else user_path(str(command.resume)).absolute(),
    )


def _report(
    job: Job, given: PlanToTrain, record: JobRecord, check: CheckRecord | None, command: Command
) -> int:
    """Write and print what was measured; fails where the check found another training."""
    from Common.file_formats import TRAINING
    from Common.records import to_json
    from Common.written_files import write_outputs
    from Reporter.report.page import page
    from Reporter.report.training.training_report import training_report
    from Reporter.training_run import measured_timeline, training_tables
    from Runtime.training.plan_file import train_record
    from Runtime.training.records import MEASURED_FILE, TRAIN_FILE

    answer: TrainRecord = train_record(job, given, record, check)
    content = TRAINING.stamped_json(to_json(answer), indent=2)
    files = {
        TRAIN_FILE: content,
        MEASURED_FILE: TRAINING.stamped_json(to_json(record)),
        TRACE: measured_timeline(answer, record, given.pipeline),
        PAGE: page(training_report(answer, record, given.pipeline)).encode(),
    }
    write_outputs(job.folder, files, force=command.force)
    print_answer(content.decode(), lambda: training_tables(answer, job.folder), command)
    return DONE if check is None or check.equal else FAILED
