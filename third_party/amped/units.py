"""Values with units as AMPeD's files write them ("8 GB", "1.2 GHz", "300 GB/s", "5 us", "16 bits"),
in a base unit of each kind.

A number without a unit is in the base unit. Prefixes are decimal (kB, MB, GB) or binary (KiB, MiB,
GiB); B is a byte, b or bit a bit.
"""

import math
import re
from decimal import Decimal
from enum import StrEnum

from phaze_common.echo import as_given
from phaze_common.errors import InputError

LARGEST = 1e18  # of any value in its base unit, as ``phaze_common.ranges`` has it
LONGEST_TEXT = 100  # characters of a value with its unit
_TEXT = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(\S*)\s*", re.ASCII)
# Scales are decimal, so that "5 us" is the number 5e-6 and not its neighbour.
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_DECIMAL = {letter: Decimal(1000) ** power for letter, power in _POWERS.items()}
_BINARY = {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTP", start=1)}
_PREFIXES = _DECIMAL | _BINARY
_MICRO = dict.fromkeys(("us", "µs", "μs"), Decimal("1e-6"))
_TIMES = {"s": Decimal(1), "ms": Decimal("1e-3"), **_MICRO, "ns": Decimal("1e-9")}


class Kind(StrEnum):
    """What a parameter measures: its base unit, in which all formulas are written; what people call
    it; a value of it as a file has it."""

    spoken: str
    example: str

    NUMBER = "number", "a number", "16"
    BITS = "bit", "a number of bits", "'16 bits'"
    BYTES = "B", "an amount of memory", "'80 GB'"
    SECONDS = "s", "a time", "'5 us'"
    HERTZ = "Hz", "a frequency", "'1.41 GHz'"
    BITS_PER_SECOND = "bit/s", "a bandwidth", "'300 GB/s'"

    def __new__(cls, unit: str, spoken: str = "", example: str = "") -> "Kind":
        kind = str.__new__(cls, unit)
        kind._value_, kind.spoken, kind.example = unit, spoken, example
        return kind


def parse_quantity(given: object, kind: Kind, name: str) -> float:
    """``given``, a number or a text such as "8 GB", in the base unit of ``kind``. Raises
    InputError: it is neither, its unit is unknown or of another kind, or it is endless or larger
    than ``LARGEST``; ``name`` says what it is the value of."""
    wanted = f"give {kind.spoken} such as {kind.example}"
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise InputError(f"{name} is {as_given(given)}; {wanted}")
    if isinstance(given, str):
        number = _read(given, kind, f"{name} is {as_given(given)}", wanted)
    else:
        number = _float(given)
    if not math.isfinite(number) or abs(number) > LARGEST:
        unit = "" if kind is Kind.NUMBER else f" {kind.value}"
        raise InputError(
            f"{name} is {as_given(given)}; it must be a finite number of at most "
            f"{LARGEST:g}{unit} in size"
        )
    return number


def _read(text: str, kind: Kind, problem: str, wanted: str) -> float:
    found = _TEXT.fullmatch(text) if len(text) <= LONGEST_TEXT else None
    if found is None:
        raise InputError(f"{problem}; {wanted}")
    value, unit = float(found[1]), found[2]
    if not unit:
        return value
    measured = _kind_of(unit)
    if measured is None:
        raise InputError(f"{problem}, whose unit {as_given(unit)} is not known; {wanted}")
    if measured is not kind and {measured, kind} != {Kind.BITS, Kind.BYTES}:
        raise InputError(f"{problem}, which is {measured.spoken}; {wanted}")
    if not 0.0 < abs(value) <= LARGEST * LARGEST:
        return value
    return float(Decimal(found[1]) * _scale(unit) / (8 if kind is Kind.BYTES else 1))


def _float(value: float) -> float:
    """A number of a file as it is; endless where it is beyond all bounds."""
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return math.inf


def _kind_of(unit: str) -> Kind | None:
    if unit in _TIMES:
        return Kind.SECONDS
    if unit.lower().endswith("hz"):
        return Kind.HERTZ if unit[:-2] in _DECIMAL else None
    data, rate = _data(unit)
    if _bits(data) is None:
        return None
    return Kind.BITS_PER_SECOND if rate else Kind.BITS


def _scale(unit: str) -> Decimal:
    """Base units in one of a unit that ``_kind_of`` knows; of data and its rates, bits."""
    if unit in _TIMES:
        return _TIMES[unit]
    if unit.lower().endswith("hz"):
        return _DECIMAL[unit[:-2]]
    return _bits(_data(unit)[0]) or Decimal(0)


def _data(unit: str) -> tuple[str, bool]:
    """A unit of data without what makes it a rate ("GB/s", "Gbps"), and whether that was there."""
    for ending in ("/s", "ps"):
        if unit.endswith(ending):
            return unit.removesuffix(ending), True
    return unit, False


def _bits(unit: str) -> Decimal | None:
    """Bits in one of a unit of data; None where it is none."""
    for ending, size in (("bytes", 8), ("byte", 8), ("bits", 1), ("bit", 1), ("B", 8), ("b", 1)):
        prefix = unit.removesuffix(ending)
        if unit.endswith(ending) and prefix in _PREFIXES:
            return size * _PREFIXES[prefix]
    return None


def written(number: float) -> str:
    """A number as text that reads back as the same one; whole ones without a point."""
    value = float(number)
    return f"{value:.0f}" if value.is_integer() and abs(value) < LARGEST else repr(value)
