"""Sentences about what is only bounded, or comes in steps: they say what is known and no more."""

import pytest

from Studies.explain.other_plans import _longer
from Studies.limits.gains import steps

NONE = float("nan")


@pytest.mark.parametrize(
    ("evaluated_s", "bound_s", "said"),
    [
        (NONE, 10.0, "can at best be as fast"),
        (NONE, 10.0001, "takes longer"),  # by less than 0.01%
        (NONE, 10.5, "takes at least 5.0% longer"),
        (12.0, 10.0, "takes at most 20% longer"),
        (12.0, 10.0001, "takes at most 20% longer"),
        (12.0, 10.5, "takes 5.0% to 20% longer"),
        (12.0, 12.0, "takes 20% longer"),
        (10.0, 10.0, "takes as long"),
        (10.0001, 10.0001, "takes less than 0.01% longer"),
    ],
)
def test_other_plans_are_told_by_what_is_known_of_them(evaluated_s: float, bound_s: float, said: str) -> None:
    assert _longer(evaluated_s, bound_s, 10.0) == said


def test_a_step_too_small_to_be_used_is_not_said_to_bring_nothing() -> None:
    said = steps(0.0, "one more (1,024 to 1,025)", 0.67, "as many as can be used")
    assert said == "one more (1,024 to 1,025) alone is of no use yet, as many as can be used brings 67% more"


def test_what_a_step_brings_is_said_beside_what_any_amount_does() -> None:
    said = steps(0.16, "one more GB/s (4 to 5)", 2.99, "any amount of it")
    assert said == "one more GB/s (4 to 5) brings 16% more, any amount of it 3.99 times as much"
