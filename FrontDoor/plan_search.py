"""``phaze run_solver --device``: the best training plan on hardware that is given."""

from __future__ import annotations

import sys
from dataclasses import asdict

from FrontDoor.arguments import Command
from FrontDoor.exits import DONE, NOTHING_FEASIBLE
from FrontDoor.printing import print_answer, print_rows


def search_plans(command: Command) -> int:
    """Search every plan of the request and print the fastest."""
    from Common.progress import progress_for
    from FrontDoor.compiled import find_place
    from Solver.plan_search.request import plan_request
    from Studies.study import REPOSITORY, read_config

    find_place(REPOSITORY / "Solver")
    config = {} if command.config is None else read_config(command.config)
    request = plan_request(config, command.given, str(command.config))
    if command.dry_run:
        print_rows("size of the space", [asdict(request.size)], command)
        return DONE
    from Reporter.plan_search_tables import plan_search_tables
    from Solver.plan_search.run import best_json, run_plan_search

    run = run_plan_search(request, progress_for(sys.stderr, quiet=command.quiet))
    print_answer(best_json(run).decode(), lambda: plan_search_tables(run), command)
    return NOTHING_FEASIBLE if run.result.plan is None else DONE
