"""``phaze train``: a plan trained with torch.distributed, measured and compared with its prediction."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from FrontDoor.arguments import Command
from FrontDoor.exit_status import DONE, FAILED
from FrontDoor.printing import print_answer

if TYPE_CHECKING:
    from Runtime.training.job import Job
    from Runtime.training.plan_file import PlanToTrain
    from Runtime.training.records import JobRecord, TrainRecord


def train(command: Command) -> int:
    """Train the plan and print losses, times per stage and what the check found; fails where the check does."""
    from Common.errors import InputError
    from Common.files import check_writable, user_path
    from Runtime.training.checkpoints import find
    from Runtime.training.job import Job, check_job
    from Runtime.training.launch import check_world, launch, started_by_torchrun, train_here
    from Runtime.training.plan_file import read_plan_to_train
    from Runtime.training.start_checks import check_start

    if command.config is None:
        raise InputError("no plan is named; give --plan best.json")
    given = read_plan_to_train(command.config, command.names[0] if command.names else None)
    folder = command.config.absolute().parent / "train" if command.output is None else user_path(command.output)
    job = Job(
        plan=given.plan,
        steps=command.steps,
        folder=folder.absolute(),
        data=command.data if command.data == "synthetic" else str(user_path(command.data).absolute()),
        dtype=command.dtype or "float32",
        seed=command.seed,
        check=command.check,
        checkpoint_every=command.checkpoint_every,
        resume=None if command.resume is None else user_path(str(command.resume)).absolute(),
    )
    family = check_job(job, command.most_processes)
    if job.resume is not None:
        find(job.resume, job)
    if started_by_torchrun():
        check_world(job)
    check_start(job, family)
    if not started_by_torchrun() or os.environ["RANK"] == "0":
        job.folder.mkdir(parents=True, exist_ok=True)
        check_writable(job.folder)
    if started_by_torchrun():
        record = train_here(job)
        return DONE if record is None else _report(job, given, record, command)
    return _report(job, given, launch([job])[0], command)


def _report(job: Job, given: PlanToTrain, record: JobRecord, command: Command) -> int:
    from Common.files import write_output
    from Common.records import to_json
    from GraphExtractor.models.registry import find_model
    from Reporter.training_run import measured_timeline, training_tables
    from Runtime.training.comparison import compare
    from Runtime.training.plan_file import train_record
    from Runtime.training.process import prepare_torch

    check = None
    if job.check:
        prepare_torch()
        check = compare(job, record, find_model(job.plan.model))
    answer: TrainRecord = train_record(job, given, record, check)
    write_output(job.folder / "train.json", to_json(answer, indent=2), named=False)
    write_output(job.folder / "trace.json", measured_timeline(answer, record, given.pipeline), named=False)
    print_answer(to_json(answer, indent=2).decode(), lambda: training_tables(answer, job.folder), command)
    return DONE if check is None or check.equal else FAILED
