"""Numbers as people read them, the same in tables, sentences, pages and charts.

Thousands have separators, and nobody meets an exponent between 0.0001 and 1e15. Units are written
out beside the number; bytes and seconds pick a prefix that suits their size. Capacities and sizes
in memory are binary (GiB, MiB, KiB), rates are decimal (GB/s), as data sheets and networks give
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from phaze_common.units import GIB, MIB

DIGITS = 4  # significant, of a number in a sentence or beside others
FINE_DIGITS = 5  # of what a search maximises, so that neighbours in a table differ
SMALLEST_PLAIN, LARGEST_PLAIN = 1e-6, 1e15  # outside of these an exponent is shorter than the zeros
KIB = 1024


@dataclass(frozen=True)
class TimeUnit:
    """A unit that makes some seconds legible: ``seconds * per_second``."""

    name: str
    per_second: float


TIME_UNITS = (TimeUnit("s", 1.0), TimeUnit("ms", 1e3), TimeUnit("µs", 1e6), TimeUnit("ns", 1e9))


def number(value: float, digits: int = DIGITS, *, aligned: bool = False) -> str:
    """At least ``digits`` significant digits, all of a larger whole part, with commas: ``45,528``,
    ``409.6``, ``0.01234``.

    ``aligned`` with others in a column it keeps its last zeros.
    """
    if not math.isfinite(value):
        return str(value)
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    if float(mantissa) == 0.0:
        return "0"
    decimals = digits - 1 - int(exponent)
    if not SMALLEST_PLAIN <= abs(float(f"{mantissa}e{exponent}")) < LARGEST_PLAIN:
        return f"{value:.{digits}g}"
    if decimals <= 0:
        return f"{value:,.0f}"
    text = f"{value:,.{decimals}f}"
    return text if aligned else text.rstrip("0").rstrip(".")


def rate(value: float) -> str:
    """Of what a search maximises, for a column: ``45,528``, ``290.30``."""
    return number(value, FINE_DIGITS, aligned=True)


def share(fraction: float) -> str:
    """For a table: ``50.5%``; what is not nothing is not shown as nothing."""
    return "<0.1%" if 0.0 < fraction < 0.0005 else f"{fraction:,.1%}"


def percent(fraction: float) -> str:
    """For a sentence: ``18%``, ``4.2%``, ``0.13%``; two digits or the whole number."""
    size = 100 * abs(fraction)
    if size == 0.0:
        return "0%"
    text = f"{size:.2f}" if size < 0.1 else number(size, 2, aligned=True)
    return "less than 0.01%" if text == "0.00" else f"{text}%"


def at_least(fraction: float, comparison: str) -> str:
    """``at least 5.3% longer``, rounded down; where that is less than 0.01%, ``longer``."""
    shown = percent(_rounded(fraction, math.floor))
    return comparison if shown in ("0%", "less than 0.01%") else f"at least {shown} {comparison}"


def at_most(fraction: float, comparison: str) -> str:
    """``at most 5.3% better``, rounded up; ``less than 0.01% better``."""
    shown = percent(fraction)
    if shown.startswith("less"):
        return f"{shown} {comparison}"
    return f"at most {percent(_rounded(fraction, math.ceil))} {comparison}"


def _rounded(fraction: float, towards: Callable[[float], int]) -> float:
    """``fraction`` to the digits that ``percent`` shows, downwards or upwards."""
    size = 100 * abs(fraction)
    if not math.isfinite(size):
        return fraction
    decimals = 2 if size < 0.1 else max(0, 1 - math.floor(math.log10(size)))
    # What is such a number already, but for the last bit of a float, stays it.
    scaled = round(size * 10.0**decimals, 9)
    return towards(scaled) / 10.0**decimals / 100


def gib(size_bytes: float) -> str:
    """Memory in GiB, for a column of that unit."""
    return number(size_bytes / GIB)


def size_text(size_bytes: float) -> str:
    """``3.1 GiB``, ``577 MiB``, ``12 KiB``, ``1 byte``."""
    for unit, scale in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size_bytes >= scale:
            return f"{number(size_bytes / scale, 3)} {unit}"
    return f"{number(size_bytes)} byte{'' if size_bytes == 1 else 's'}"


def unit_for(seconds: float) -> TimeUnit:
    """The unit that gives ``seconds`` at least one digit before the point."""
    return next(
        (unit for unit in TIME_UNITS if abs(seconds) * unit.per_second >= 1.0), TIME_UNITS[-1]
    )


def time_text(seconds: float) -> str:
    """``286 s``, ``97.88 ms``, ``1.2 µs``."""
    unit = unit_for(seconds) if seconds else TIME_UNITS[0]
    return f"{number(seconds * unit.per_second)} {unit.name}"


def stage_memory_text(used_bytes: float, given_bytes: float) -> str:
    """How much of a memory is used: ``60.9 of 80 GiB (76.1%)``."""
    return f"{gib(used_bytes)} of {gib(given_bytes)} GiB ({share(used_bytes / given_bytes)})"
