"""Numbers as people read them."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze_common.numbers import (
    at_least,
    at_most,
    number,
    percent,
    rate,
    share,
    size_text,
    stage_memory_text,
    time_text,
    unit_for,
)
from phaze_common.units import GIB, MIB

DIGITS = st.integers(1, 7)
ORDINARY = st.floats(1e-3, 1e9)
ANY_SIZE = st.floats(1e-300, 1e300)
SCALES = {"bytes": 1.0, "byte": 1.0, "KiB": 1024.0, "MiB": float(MIB), "GiB": float(GIB)}


def read(text: str) -> float:
    return float(text.replace(",", ""))


@given(ANY_SIZE, DIGITS, st.booleans(), st.sampled_from([1.0, -1.0]))
def test_what_is_read_is_what_was_written_to_its_digits(
    size: float, digits: int, aligned: bool, sign: float
) -> None:
    text = number(sign * size, digits, aligned=aligned)
    assert read(text) == pytest.approx(sign * size, rel=0.5000001 * 10.0 ** (1 - digits))
    assert number(read(text), digits, aligned=aligned) == text


@given(ORDINARY, DIGITS, st.booleans())
def test_ordinary_numbers_have_no_exponent(value: float, digits: int, aligned: bool) -> None:
    for text in (number(value, digits, aligned=aligned), rate(value), percent(value), share(value)):
        assert "e" not in text
        assert re.fullmatch(r"(less than |<)?\d{1,3}(,\d{3})*(\.\d+)?%?", text)


@given(ANY_SIZE, ANY_SIZE, DIGITS)
def test_a_larger_number_is_never_written_as_a_smaller_one(
    one: float, two: float, digits: int
) -> None:
    small, large = sorted((one, two))
    assert read(number(small, digits)) <= read(number(large, digits))


@given(st.floats(1.0, 1e14), st.floats(1.0, 1e14), DIGITS)
def test_a_column_is_as_wide_as_its_digits_or_its_largest_whole_part(
    one: float, two: float, digits: int
) -> None:
    small, large = sorted((one, two))
    room = digits + digits // 3 + 1  # commas and a point
    assert len(number(small, digits, aligned=True)) <= max(room, len(number(large, digits)))


@given(ORDINARY, st.integers(2, 6))
def test_aligned_numbers_keep_all_their_digits(value: float, digits: int) -> None:
    figures = number(value, digits, aligned=True).replace(",", "").replace(".", "").lstrip("0")
    assert len(figures) >= digits


def test_rounding_up_to_a_thousand_brings_its_comma() -> None:
    assert [number(each) for each in (999.94, 999.96, 9999.4, 99999.6, 100000.0)] == [
        "999.9",
        "1,000",
        "9,999",
        "100,000",
        "100,000",
    ]
    assert [rate(each) for each in (290.3, 9999.96, 45528.4)] == ["290.30", "10,000", "45,528"]


def test_what_is_no_number_is_said() -> None:
    assert [number(each) for each in (math.inf, -math.inf, math.nan, 0.0, -0.0)] == [
        "inf",
        "-inf",
        "nan",
        "0",
        "0",
    ]


@given(st.floats(1.0, 2.0**60))
def test_sizes_in_memory_are_binary_and_to_three_digits(size: float) -> None:
    text, unit = size_text(size).split()
    assert read(text) * SCALES[unit] == pytest.approx(size, rel=0.0051)
    assert read(text) < 1024.5 or unit == "GiB"
    assert read(text) > 0


@given(st.floats(1e-9, 1e9))
def test_a_time_picks_the_unit_with_a_digit_before_the_point(seconds: float) -> None:
    text, name = time_text(seconds).split()
    unit = unit_for(seconds)
    assert name == unit.name
    assert read(text) / unit.per_second == pytest.approx(seconds, rel=0.00051)
    assert 0.99 <= read(text) < 1001 or name == "s"


@given(st.floats(1e-12, 10.0))
def test_a_sentence_never_bounds_by_less_than(fraction: float) -> None:
    assert "less" not in at_least(fraction, "longer")
    assert at_least(fraction, "longer").endswith("longer")
    assert "at most less" not in at_most(fraction, "better")
    assert percent(fraction) != "0.00%"


@given(st.floats(1e-9, 1.0))
def test_nothing_is_said_only_of_nothing(fraction: float) -> None:
    assert percent(fraction) != percent(0.0) == "0%"
    assert share(fraction) != share(0.0) == "0.0%"


def test_memory_of_a_stage_is_in_one_unit_with_its_share() -> None:
    assert stage_memory_text(61.5 * GIB, 80 * GIB) == "61.5 of 80 GiB (76.9%)"
    assert stage_memory_text(0.01 * GIB, 2048 * GIB) == "0.01 of 2,048 GiB (<0.1%)"
