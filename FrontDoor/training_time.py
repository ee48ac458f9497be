"""``phaze training-time``: what a whole training takes on devices that exist, or on a designed
chip."""

from __future__ import annotations

import json
import logging
import sys

from FrontDoor.arguments import Command
from FrontDoor.exit_status import DONE, FAILED, NOTHING_FEASIBLE
from FrontDoor.printing import print_answer

logger = logging.getLogger(__name__)


def training_time(command: Command) -> int:
    """Price the training with the plan that is given or with the best one, and print what it
    takes."""
    from GraphExtractor.permission import files_to_run
    from Studies.training_time.request import training_request

    asked = training_request(command.config, command.given, files_to_run(command.run_code))
    for note in asked.request.notes:
        logger.info("%s", note)
    from Common.progress import progress_for
    from Plans.results import Status
    from Reporter.training_time_tables import training_tables
    from Solver.results import SearchResult
    from Studies.training_time.run import price_training, training_json

    answer = price_training(asked, progress_for(sys.stderr, quiet=command.quiet))
    if isinstance(answer, SearchResult):
        from Reporter.tables import print_result

        if command.output_format == "json":
            print_answer(
                json.dumps({"status": answer.status.value, "reason": answer.reason}, indent=2),
                lambda: [],
                command,
            )
        else:
            print_result(answer, sys.stdout, wide=command.wide)
        return NOTHING_FEASIBLE if answer.status is Status.INFEASIBLE else FAILED
    document = json.dumps(training_json(asked, answer), indent=2)
    print_answer(document, lambda: training_tables(answer, searched=asked.searched), command)
    if answer.folder is not None:
        logger.info("files are in %s", answer.folder)
    return NOTHING_FEASIBLE if answer.training.status is Status.INFEASIBLE else DONE
