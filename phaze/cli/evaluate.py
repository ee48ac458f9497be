"""``phaze evaluate``: what a training plan costs on a device that exists, or on a designed chip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from phaze.cli import mode, one_plan
from phaze.cli.exit_status import DONE, NOTHING_FEASIBLE
from phaze.cli.one_plan import OnePlan
from phaze.cli.printing import print_answer
from phaze_common.errors import InputError

if TYPE_CHECKING:
    from phaze.studies.evaluation import Evaluation
    from phaze.studies.optimum import Optimum


@dataclass(frozen=True, kw_only=True)
class Evaluate(OnePlan):
    """Predict time and memory of a training plan on devices that exist, or on a designed chip."""

    best: bool = mode.flag(
        False, "search the best plan on as many devices, too, and tell what it would save"
    )


def run(command: Evaluate) -> int:
    """Predict time and memory of one iteration of the plan and print them."""
    request, launch = one_plan.read(command)
    if command.best and not request.on_devices:
        raise InputError(
            "--best searches plans on devices that exist, and the hardware is a designed chip; "
            "leave it out, or search the chip's plans with run_solver"
        )
    from Estimator.plans.results import Status
    from phaze.report.tables.training_tables import (
        evaluation_json,
        evaluation_tables,
        optimum_table,
    )
    from phaze.studies.evaluation import evaluated

    evaluation = evaluated(request)
    launch = one_plan.as_priced(launch, command, evaluation)
    optimum = None
    if command.best and command.output_format == "json":
        optimum = _optimum(evaluation, command)
    as_json = evaluation_json(evaluation, optimum, launch).decode()
    print_answer(as_json, lambda: evaluation_tables(evaluation, launch), command)
    if command.best and optimum is None:  # behind the price, which nobody has to wait for
        optimum = _optimum(evaluation, command)
        print_answer("", lambda: [optimum_table(optimum)], command)
    return NOTHING_FEASIBLE if evaluation.iteration.status is Status.INFEASIBLE else DONE


def _optimum(evaluation: Evaluation, command: Evaluate) -> Optimum:
    """Searched with what a price alone does not wait for."""
    from phaze.studies.optimum import optimum_beside

    return optimum_beside(evaluation, command.progress)


MODE = mode.Mode(
    "evaluate",
    mode.SEARCH_AND_PRICE,
    Evaluate,
    run,
    one_plan.USAGES,
    mode.OF_PLANS,
)
