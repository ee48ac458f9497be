"""``phaze training-time``: what a whole training takes on devices that exist, or on a designed
chip."""

from __future__ import annotations

import json
import logging
import sys

from phaze.cli.arguments import Command
from phaze.cli.exit_status import DONE, FAILED, NOTHING_FEASIBLE
from phaze.cli.printing import print_answer

logger = logging.getLogger(__name__)


def training_time(command: Command) -> int:
    """Price the training with the plan that is given or with the best one, and print what it
    takes."""
    from GraphExtractor.permission import files_to_run
    from phaze.studies.training_time.request import training_request

    asked = training_request(command.config, command.given, files_to_run(command.run_code))
    for note in asked.request.notes:
        logger.info("%s", note)
    from Estimator.plans.results import Status
    from phaze.report.tables.training_time_tables import training_tables
    from phaze.studies.training_time.run import price_training, training_json
    from phaze_common.progress import progress_for
    from Solver.results import SearchResult

    answer = price_training(asked, progress_for(sys.stderr, quiet=command.quiet))
    if isinstance(answer, SearchResult):
        from phaze.report.tables.search_tables import print_result

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
