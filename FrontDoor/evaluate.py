"""``phaze evaluate``: what a training plan costs on a device that exists, or on a designed chip."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from Common.errors import InputError
from FrontDoor.arguments import Command
from FrontDoor.exit_status import DONE, NOTHING_FEASIBLE
from FrontDoor.printing import print_answer

if TYPE_CHECKING:
    from pathlib import Path

    from Studies.request import Request

logger = logging.getLogger(__name__)


def evaluate(command: Command) -> int:
    """Predict time and memory of one iteration of the plan and print them."""
    from GraphExtractor.permission import files_to_run
    from Studies.plan_files import evaluate_request

    if command.launcher is None:
        request = evaluate_request(command.config, command.given, files_to_run(command.run_code))
    else:
        request = _launched(command)
    from Studies.problem import check_code

    check_code(request)
    for note in request.notes:
        logger.info("%s", note)
    from Plans.results import Status
    from Reporter.training_tables import evaluation_json, evaluation_tables
    from Studies.evaluation import evaluated
    from Studies.optimum import optimum_beside

    evaluation = evaluated(request)
    optimum = None if command.launcher is None else optimum_beside(evaluation)
    print_answer(evaluation_json(evaluation, optimum).decode(), lambda: evaluation_tables(evaluation, optimum), command)
    return NOTHING_FEASIBLE if evaluation.iteration.status is Status.INFEASIBLE else DONE


def _launched(command: Command) -> Request:
    """What a launch file of another program says, under what the command line does.

    Raises:
        InputError: the file is none, a plan file is given besides, or both together make no plan.
    """
    from Common.files import user_path
    from Studies.annotations import Mode
    from Studies.resolve import resolve
    from third_party.exports.launchers import read_launch

    path = user_path(str(command.launcher))
    if command.config is not None:
        raise InputError(f"--from {path} and --plan {command.config} are two plans; give one of them")
    reading = read_launch(path, {key: str(value) for key, value in command.given.items()})
    reading.check_expressible(())
    found = reading.settings
    logger.info("read from %s: %s", path, ", ".join(f"{key} {value}" for key, value in found.items() if value is not None))
    request = resolve(found, command.given, Mode.EVALUATE, source=str(path))
    for key in found.keys() & command.given.keys():
        if found[key] is not None and str(found[key]) != str(command.given[key]):
            logger.info("%s is %s, as the command line says, and not %s as the file does", key, command.given[key], found[key])
    _check_batch(request, path)
    return request


def _check_batch(request: Request, path: Path) -> None:
    """Refuse a batch that does not come out in whole micro-batches, as all of these programs do.

    Raises:
        InputError: says what it would have to be a multiple of.
    """
    from Studies.problem import single_plan

    plan = single_plan(request)
    rows = plan.micro_batch_size * plan.dp
    if plan.global_batch_size % rows:
        raise InputError(
            f"{path}: a global batch of {plan.global_batch_size} is no multiple of {rows}, micro-batch {plan.micro_batch_size} "
            f"x dp {plan.dp}, and no launch of it would start; change one of them"
        )
