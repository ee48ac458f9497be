"""Unit strings of AMPeD's files: what they mean in base units, and which are refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze_common.errors import InputError
from third_party.amped.units import LARGEST, Kind, parse_quantity, written

MEANINGS = [
    ("8 GB", Kind.BYTES, 8e9),
    ("8GB", Kind.BYTES, 8e9),
    ("80 GiB", Kind.BYTES, 80 * 2**30),
    ("64 Gb", Kind.BYTES, 8e9),
    (" 1.5 TB ", Kind.BYTES, 1.5e12),
    (12, Kind.BYTES, 12),
    ("12", Kind.BYTES, 12),
    ("1.2 GHz", Kind.HERTZ, 1.2e9),
    ("1410 MHz", Kind.HERTZ, 1.41e9),
    ("300 GB/s", Kind.BITS_PER_SECOND, 2.4e12),
    ("200 Gb/s", Kind.BITS_PER_SECOND, 2e11),
    ("200 Gbps", Kind.BITS_PER_SECOND, 2e11),
    ("25 GBps", Kind.BITS_PER_SECOND, 2e11),
    ("1 GiB/s", Kind.BITS_PER_SECOND, 8 * 2**30),
    (1.6e12, Kind.BITS_PER_SECOND, 1.6e12),
    ("5 us", Kind.SECONDS, 5e-6),
    ("5 µs", Kind.SECONDS, 5e-6),
    ("700 ns", Kind.SECONDS, 7e-7),
    ("2.5e-6", Kind.SECONDS, 2.5e-6),
    ("16 bits", Kind.BITS, 16),
    ("16 bit", Kind.BITS, 16),
    ("2 bytes", Kind.BITS, 16),
    ("300e9", Kind.NUMBER, 3e11),
    ("0e999999999999999999999 s", Kind.SECONDS, 0),
    ("1e-400 us", Kind.SECONDS, 0),
]


@pytest.mark.parametrize(("text", "kind", "value"), MEANINGS)
def test_units_are_understood_exactly(text: object, kind: Kind, value: float) -> None:
    assert parse_quantity(text, kind, "x") == value


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ("8 GB", Kind.SECONDS, "is '8 GB', which is a number of bits; give a time such as '5 us'"),
        ("5 us", Kind.BITS_PER_SECOND, "which is a time; give a bandwidth such as '300 GB/s'"),
        ("8 GB", Kind.BITS_PER_SECOND, "give a bandwidth"),
        ("8 GB/s", Kind.BYTES, "which is a bandwidth; give an amount of memory such as '80 GB'"),
        ("1 GHz", Kind.NUMBER, "which is a frequency; give a number"),
        ("5 parsec", Kind.SECONDS, "whose unit 'parsec' is not known"),
        ("5 GGB", Kind.BYTES, "whose unit 'GGB' is not known"),
        ("5 gb", Kind.BYTES, "whose unit 'gb' is not known"),
        ("5 MS", Kind.SECONDS, "whose unit 'MS' is not known"),
        ("1 mHz", Kind.HERTZ, "whose unit 'mHz' is not known"),
        ("eight GB", Kind.BYTES, "give an amount of memory"),
        ("8 GB 9", Kind.BYTES, "give an amount of memory"),
        ("1,000", Kind.NUMBER, "give a number"),
        ("٣ GB", Kind.BYTES, "give an amount of memory"),
        ("", Kind.BYTES, "give an amount of memory"),
        ("8" * 5000, Kind.NUMBER, "give a number"),
        (True, Kind.NUMBER, "is true; give a number"),
        (None, Kind.NUMBER, "is null; give a number"),
        ([8], Kind.BYTES, "is [8]; give"),
        ({"GB": 8}, Kind.BYTES, "give an amount of memory"),
        (float("inf"), Kind.NUMBER, "must be a finite number"),
        (float("nan"), Kind.BYTES, "must be a finite number"),
        (10**400, Kind.NUMBER, "must be a finite number"),
        ("1e300", Kind.NUMBER, "must be a finite number"),
        ("1e999 GB", Kind.BYTES, "must be a finite number"),
        ("1e15 PB", Kind.BYTES, "must be a finite number"),
    ],
)
def test_what_is_no_such_quantity_is_refused(given: object, kind: Kind, words: str) -> None:
    with pytest.raises(InputError) as refusal:
        parse_quantity(given, kind, "memory")
    assert str(refusal.value).startswith("memory is ") and words in str(refusal.value)
    assert len(str(refusal.value)) < 500


@given(st.floats(min_value=-LARGEST, max_value=LARGEST))
def test_numbers_are_written_so_that_they_read_back(value: float) -> None:
    assert parse_quantity(written(value), Kind.NUMBER, "x") == value


@given(st.text(max_size=40))
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    for kind in Kind:
        try:
            assert abs(parse_quantity(text, kind, "x")) <= LARGEST
        except InputError as refusal:
            assert str(refusal).startswith("x is ")
