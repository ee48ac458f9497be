"""Functions that are compiled when they are called: what few steps take is interpreted, with the
same results, and compiled code calls what it called."""

import numpy as np
import pytest
from numba.core.errors import TypingError

from Estimator.compiled import borrowing_outer, inlined, inner, outer
from phaze_common import kept_code
from phaze_common.errors import DefectError
from phaze_common.kept_code import Compiled


@inlined
def squared(value):
    return value * value


@inner
def largest(values, value):
    most = value
    for each in values:
        most = max(most, squared(each))
    return most


def summed() -> Compiled:
    """One that nothing has called."""

    @outer
    def function(values, factor):
        return factor * largest(values, 0.0) + values.sum()

    return function


def test_interpreted_functions_call_interpreted_ones() -> None:
    function, values = summed(), np.arange(5.0)
    assert function.interpreted(values, 2.0) == 2.0 * 16.0 + 10.0
    assert "dispatcher" not in vars(function)
    assert function(values, 2.0) == 42.0
    assert function.signatures


def test_many_steps_are_compiled_and_so_is_all_that_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_code, "FEW_STEPS", 10)
    function = summed()
    assert function.of_steps(6) is function.interpreted
    assert function.of_steps(6) is not function.interpreted
    function(np.arange(5.0), 2.0)
    assert function.of_steps(1) is not function.interpreted


def test_what_counts_no_references_makes_no_arrays_and_returns_none() -> None:
    @borrowing_outer
    def given_back(values):
        return values, 1.0

    @borrowing_outer
    def made(count):
        return np.empty(count).sum()

    values = np.arange(5.0)
    with pytest.raises(DefectError, match="does not count"):
        given_back(values)
    with pytest.raises(TypingError, match="Only accept returning of array passed"):
        made(5)
