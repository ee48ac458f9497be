"""Numbers as tables write them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze.validation.published_numbers import number_in


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.5k", 1500),
        ("50,257", 50257),
        ("1,234,567", 1234567),
        ("~60.1 s", 60.1),
        ("60.1s", 60.1),
        ("80GB", 80),
        ("4M tokens", 4e6),
        ("175B", 175e9),
        ("2048 (the largest)", 2048),
        ("45%", 45),
        (".5", 0.5),
        ("1e3", 1000),
        ("0", 0),
        ("-3", -3),
        ("inf", math.inf),
    ],
)
def test_numbers_are_read(text, number):
    assert number_in(text) == pytest.approx(number)


@pytest.mark.parametrize(
    "text",
    ["", "auto", "1-2", "8x4", "8 x 4", "2 to 4", "2/4", "1..5", "3 2", "yes(v unknown)", "v3"],
)
def test_what_is_no_single_number_is_none(text):
    assert number_in(text) is None


@given(
    st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["{!r}", "{:.6e}", " {!r} "])
)
def test_every_printed_float_is_read_back(value, form):
    text = form.format(value)
    assert number_in(text) == float(text)


@given(st.integers(0, 10**15))
def test_thousands_may_be_separated(value):
    assert number_in(f"{value:,}") == value


@given(st.text(max_size=20))
def test_any_text_is_a_number_or_not(text):
    assert number_in(text) is None or isinstance(number_in(text), float)
