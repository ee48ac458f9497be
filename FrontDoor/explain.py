"""``phaze explain``: why the best design of a run is the best."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from FrontDoor.arguments import Command
from FrontDoor.exits import DONE, NOTHING_FEASIBLE

if TYPE_CHECKING:
    from Common.progress import Progress
    from Solver.explain.records import Alternative
    from Solver.finished_run import FinishedRun


def explain(command: Command) -> int:
    """Explain the answer of a run, and what alternatives would cost."""
    from Common.files import user_path
    from Common.progress import progress_for
    from Common.records import to_json
    from Reporter.explain_tables import print_explanation
    from Solver.explain.explanation import explain as explained
    from Solver.finished_run import open_run

    run = open_run(user_path(command.runs[0]))
    explanation = explained(run)
    if command.instead:
        progress = progress_for(sys.stderr, quiet=command.quiet)
        explanation = replace(explanation, alternatives=_alternatives(run, command.instead, progress))
    if command.output_format == "json":
        sys.stdout.write(to_json(explanation, indent=2).decode() + "\n")
    else:
        print_explanation(explanation, sys.stdout)
    asked = explanation.alternatives
    return NOTHING_FEASIBLE if asked and all(each.slower is None for each in asked) else DONE


def _alternatives(run: FinishedRun, asked: tuple[str, ...], progress: Progress) -> tuple[Alternative, ...]:
    from FrontDoor.compiled import find_place
    from Solver.explain.alternatives import alternative
    from Solver.explain.asking import ask_again
    from Solver.explain.plan_alternatives import ask_plans_again, plan_alternative
    from Solver.explain.wishes import read_plan_wish, read_wish
    from Solver.finished_run import FinishedPlanSearch
    from Solver.study import REPOSITORY

    find_place(REPOSITORY / "Solver")
    if isinstance(run, FinishedPlanSearch):
        plan_wishes = [read_plan_wish(text) for text in asked]
        plans = ask_plans_again(run, progress)
        return tuple(plan_alternative(plans, wish) for wish in plan_wishes)
    wishes = [read_wish(text) for text in asked]
    asker = ask_again(run, progress)
    return tuple(alternative(asker, wish) for wish in wishes)
