"""Which worker takes which tests."""

from pathlib import Path

import pytest

from tests.builders.distribution import LONGEST_FIRST, SPLIT, TOGETHER, scope_of, turn_of

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("place", sorted({*SPLIT, *TOGETHER, *LONGEST_FIRST}))
def test_places_are_there(place: str) -> None:
    assert list(REPOSITORY.glob(f"{place}*"))


def test_files_stay_whole_but_for_those_taken_apart_or_together() -> None:
    assert scope_of("tests/phaze_common/test_files.py::test_a[1]") == scope_of(
        "tests/phaze_common/test_files.py::test_b"
    )
    assert scope_of("tests/phaze_common/test_files.py::test_a") != scope_of(
        "tests/phaze_common/test_arrays.py::test_a"
    )
    assert scope_of("tests/GraphExtractor/test_zoo.py::test_a[1]") != scope_of(
        "tests/GraphExtractor/test_zoo.py::test_a[2]"
    )
    assert scope_of("tests/phaze/studies/explain/test_limits.py::test_a") == scope_of(
        "tests/phaze/studies/explain/test_comparison.py::test_b"
    )


def test_the_longest_comes_first() -> None:
    first, last = (
        turn_of(f"{LONGEST_FIRST[0]}::test_a"),
        turn_of("tests/phaze_common/test_files.py::test_a"),
    )
    assert first < turn_of("tests/phaze/studies/explain/test_limits.py::test_a[0]") < last


def test_the_sessions_tests_are_in_that_order(request: pytest.FixtureRequest) -> None:
    turns = [turn_of(item.nodeid) for item in request.session.items]
    assert turns == sorted(turns)
