"""``phaze evaluate``: what a training plan costs on devices that exist."""

from __future__ import annotations

import logging

from FrontDoor.arguments import Command
from FrontDoor.exits import DONE, NOTHING_FEASIBLE
from FrontDoor.printing import print_answer

logger = logging.getLogger(__name__)


def evaluate(command: Command) -> int:
    """Predict time and memory of one iteration of the plan and print them."""
    from Common.compiled_code import find_place
    from Studies.adapters import evaluation as evaluation_of

    from Studies.plan_files import evaluate_request

    find_place()
    request = evaluate_request(command.config, command.given)
    evaluation = evaluation_of(request)
    for note in request.notes:
        logger.info(note)
    from Plans.results import Status
    from Reporter.training_tables import prediction_json, prediction_tables
    from Studies.evaluation import evaluated

    prediction = evaluated(evaluation)
    print_answer(prediction_json(evaluation, prediction).decode(), lambda: prediction_tables(evaluation, prediction), command)
    return NOTHING_FEASIBLE if prediction.status is Status.INFEASIBLE else DONE
