"""``phaze evaluate``: what a training plan costs on a device that exists, or on a designed chip."""

from __future__ import annotations

import logging

from FrontDoor.arguments import Command
from FrontDoor.exit_status import DONE, NOTHING_FEASIBLE
from FrontDoor.printing import print_answer

logger = logging.getLogger(__name__)


def evaluate(command: Command) -> int:
    """Predict time and memory of one iteration of the plan and print them."""
    from GraphExtractor.permission import files_to_run
    from Studies.plan_files import evaluate_request

    request = evaluate_request(command.config, command.given, files_to_run(command.run_code))
    from Studies.problem import check_code

    check_code(request)
    for note in request.notes:
        logger.info("%s", note)
    from Plans.results import Status
    from Reporter.training_tables import evaluation_json, evaluation_tables
    from Studies.evaluation import evaluated

    evaluation = evaluated(request)
    print_answer(evaluation_json(evaluation).decode(), lambda: evaluation_tables(evaluation), command)
    return NOTHING_FEASIBLE if evaluation.iteration.status is Status.INFEASIBLE else DONE
