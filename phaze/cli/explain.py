"""``phaze explain``: why the best design of a run is the best, or what features of the software are
worth to a plan."""

from __future__ import annotations

import json
from dataclasses import dataclass

from phaze.cli import mode, one_plan
from phaze.cli.exit_status import DONE, NOTHING_FEASIBLE
from phaze.cli.one_plan import OnePlan
from phaze.cli.printing import print_answer, print_shown
from phaze_common.errors import InputError
from phaze_common.files import user_path


@dataclass(frozen=True, kw_only=True)
class Explain(OnePlan):
    """Tell why the best design of a run is the best: what limits it, and what an alternative would
    cost; or what features of the software are worth to a plan."""

    run_folder: str | None = mode.word(
        None, f"{mode.RUN_HELP}; without it a plan is explained, given as to evaluate", "RUN"
    )
    instead: tuple[str, ...] = mode.flag(
        (),
        "an alternative to compare with, such as num_tc=4,width=256 or pp=8: the best design that "
        "has these values; may be repeated",
        "KEY=VALUE,...",
    )
    what_if: tuple[str, ...] = mode.flag(
        (),
        "other circumstances, such as hbm_bandwidth=2x, network_latency=0, prices.electricity=3x "
        "or devices=256: what the design would reach then, and the best there would be; may be "
        "repeated",
        "KEY=VALUE,...",
    )
    limits: bool = mode.flag(
        False,
        "first search what limits the best chip and what other values of every axis allow, where "
        "the run does not state it, and keep it with the run",
    )


def run(command: Explain) -> int:
    """Explain the answer of a run, and what alternatives would cost; or a plan."""
    if command.run_folder is None:
        return _run_of_plan(command)
    if command.settings or command.plan or command.launcher or command.ignore:
        raise InputError(
            f"{command.run_folder} is a run, which is explained as it was searched, and a plan is "
            "given too; leave one of them out"
        )
    from phaze import library
    from phaze.report.tables.explain_tables import print_explanation
    from phaze_common.records import to_json

    run = library.open_run(user_path(command.run_folder), command.run_code)
    progress = command.progress
    explanation = library.explain(
        run, command.instead, progress, command.what_if, limits=command.limits
    )
    as_json = json.dumps(json.loads(to_json(explanation)), indent=2)
    print_shown(as_json, print_explanation, explanation, command)
    others = explanation.alternatives
    impossible = others and all(each.slower is None for each in others)
    return NOTHING_FEASIBLE if impossible else DONE


def _run_of_plan(command: Explain) -> int:
    """Print what each feature of the software is worth to a plan."""
    if command.instead or command.what_if or command.limits:
        raise InputError(
            "--instead, --what-if and --limits ask about a finished run, and none is given; name "
            "its folder, or leave them out"
        )
    if not (command.settings or command.plan or command.launcher):
        raise InputError(
            "nothing to explain is given; name the folder of a run, or a plan as to evaluate "
            "(--model and --device, --plan or --from)"
        )
    request, launch = one_plan.read(command)
    from Estimator.plans.results import Status
    from phaze.report.tables.feature_tables import features_json, features_tables
    from phaze.studies.explain.features import plan_features

    found = plan_features(request, command.progress)
    launch = one_plan.as_priced(launch, command, found.plan)
    print_answer(features_json(found, launch), lambda: features_tables(found), command)
    infeasible = found.plan.iteration.status is Status.INFEASIBLE
    return NOTHING_FEASIBLE if infeasible and not found.together else DONE


USAGES = ("RUN [FLAG ...]", *one_plan.USAGES)
REMOVED = {
    "--moldable": "schedules on groups of cores gained less than 0.2 % of an iteration for every "
    "model measured (docs/explanation/schedule.md); leave it out"
}
MODE = mode.Mode(
    "explain", mode.FINISHED_RUNS, Explain, run, USAGES, mode.OF_PLANS, removed=REMOVED
)
