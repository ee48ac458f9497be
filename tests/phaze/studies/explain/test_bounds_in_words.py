"""Sentences about what is only bounded, or comes in steps: they say what is known and no more."""

from types import SimpleNamespace

import numpy as np
import pytest

from Estimator.plans.results import Status
from phaze.report.sentences.gains import steps
from phaze.report.sentences.other_plans import other_plans
from Solver.results import AxisValue, AxisValues

BEST = 100.0


def plan_value(value: str, reached: float, bound: float) -> AxisValue:
    status = (
        Status.INFEASIBLE
        if not reached
        else Status.OPTIMAL
        if reached == bound
        else Status.FEASIBLE
    )
    return AxisValue(value, status, reached, bound, None, 1, {})


def said_of(others: list[AxisValue], there_are: int) -> str:
    axis = AxisValues("pp", "m", "1", there_are, (plan_value("1", BEST, BEST), *others))
    best = SimpleNamespace(axes=(axis,), models={"m": None})
    (sentence,) = other_plans(best)
    return sentence.removeprefix("Pipeline depth 1 is best, all else chosen anew: ")


@pytest.mark.parametrize(
    ("longer", "least_longer", "said"),
    [
        (1.2, 1.0, "takes at most 20% longer"),
        (1.2, 1.00001, "takes at most 20% longer"),
        (1.2, 1.05, "takes 5.0% to 20% longer"),
        (1.2, 1.2, "takes 20% longer"),
        (1.0, 1.0, "takes as long"),
        (1.00001, 1.00001, "takes less than 0.01% longer"),
        (np.inf, np.inf, "does not fit"),
    ],
)
def test_other_plans_are_told_by_what_is_known_of_them(
    longer: float, least_longer: float, said: str
) -> None:
    assert said_of([plan_value("2", BEST / longer, BEST / least_longer)], 2) == f"2 {said}."


@pytest.mark.parametrize(
    ("longer", "there_are", "said"),
    [
        (1.0, 8, "2 others are no faster"),
        (1.1, 8, "2 others take at least 10% longer"),
        (1.1, 70, "2 others compared take at least 10% longer"),
        (np.inf, 8, "2 others do not fit"),
    ],
)
def test_the_rest_of_many_other_plans_is_told_by_the_nearest(
    longer: float, there_are: int, said: str
) -> None:
    named = [plan_value(str(value), BEST, BEST) for value in range(2, 7)]
    rest = [plan_value(value, BEST / longer, BEST / longer) for value in ("7", "8")]
    assert said_of([*named, *rest], there_are).endswith(f" and {said}.")


def test_a_step_too_small_to_be_used_is_not_said_to_bring_nothing() -> None:
    said = steps(0.0, "one more (1,024 to 1,025)", 0.67, "as many as can be used")
    assert (
        said
        == "one more (1,024 to 1,025) alone is of no use yet, as many as can be used brings 67% "
        "more"
    )


def test_what_a_step_brings_is_said_beside_what_any_amount_does() -> None:
    said = steps(0.16, "one more GB/s (4 to 5)", 2.99, "any amount of it")
    assert said == "one more GB/s (4 to 5) brings 16% more, any amount of it 3.99 times as much"


def test_micro_batch_sizes_are_said_once_with_the_best_design_for_each() -> None:
    axes = tuple(
        AxisValues(key, "m", "1", 2, (plan_value("1", BEST, BEST), plan_value("2", 80.0, 80.0)))
        for key in ("micro_batch_size", "pp")
    )
    (sentence,) = other_plans(SimpleNamespace(axes=axes, models={"m": None}))
    assert sentence.startswith("Pipeline depth 1 is best")
