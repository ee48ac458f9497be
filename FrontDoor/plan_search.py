"""``phaze run_solver --device``: the best training plan on hardware that is given."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from FrontDoor.arguments import Command
from FrontDoor.exits import DONE, NOTHING_FEASIBLE
from FrontDoor.printing import print_answer, print_rows

if TYPE_CHECKING:
    from Studies.request import Request


def search_plans(request: Request, command: Command) -> int:
    """Search every plan of the request and print the fastest."""
    from Studies.adapters import plan_search

    from Common.progress import progress_for

    asked = plan_search(request)
    if command.dry_run:
        print_rows("size of the space", [asdict(asked.size)], command)
        return DONE
    from Solver.plan_search.run import best_json, run_plan_search

    from Reporter.plan_search_tables import plan_search_tables

    run = run_plan_search(asked, progress_for(sys.stderr, quiet=command.quiet))
    print_answer(best_json(run).decode(), lambda: plan_search_tables(run), command)
    return NOTHING_FEASIBLE if run.result.plan is None else DONE
