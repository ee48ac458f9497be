"""The range of every number in a file that somebody wrote, by what it counts.

The bounds are of magnitude, many orders beyond any machine, and close enough that no product or
quotient of a few such numbers leaves what floating-point numbers and 64-bit integers hold; what is
negative, zero or above one where it must not be is refused by who knows the field. ``docs``: the
table ``MOST`` below is the documentation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from phaze_common.echo import breaks_line, clipped, on_one_line, steers
from phaze_common.errors import InputError
from phaze_common.quantities import unit_of_key

MOST: Mapping[str, float] = {
    "s": 1e9,  # thirty years
    "bytes": 1e18,
    "bytes/s": 1e18,
    "bytes/cycle": 1e12,
    "rows/cycle": 1e12,
    "FLOP/s": 1e21,
    "Hz": 1e15,
    "J": 1e18,
    "pJ": 1e18,
    "pJ/byte": 1e18,
    "mm2": 1e12,
    "um2": 1e18,
    "MiB": 1e12,
    "GiB": 1e9,
}
"""Largest magnitude by unit."""
MOST_OF_OTHERS = 1e18  # counts, fractions, factors, samples per second
LEAST = 1e-30  # smallest magnitude that is not zero
_NAME = "name"  # key of what others show in a line: it has one
LONGEST_TEXT = 4000  # characters of a text in a record


def check_ranges(data: object, source: str) -> None:
    """Refuse numbers beyond the range of their unit, and texts that cannot be shown.

    The unit of a number is stated beside it (``{value: 1.2e12, unit: bytes/s}``), or ends the name
    of its key, or of the key of the list or mapping it is in.

    Raises:
        InputError: names ``source``, the key and what is allowed.
    """
    for key, unit, value in _leaves(data):
        if isinstance(value, str):
            _check_text(value, key, source, one_line=unit == _NAME)
        elif (
            math.isfinite(value)
            and value
            and not LEAST <= abs(value) <= MOST.get(unit, MOST_OF_OTHERS)
        ):
            most = MOST.get(unit, MOST_OF_OTHERS)
            allowed = f"at most {most:g}" if abs(value) > most else f"0 or at least {LEAST:g}"
            raise InputError(
                f"{source}: {clipped(key)} is {value:.6g}, but must be {allowed} {unit}".rstrip()
                + " in size; correct it"
            )


def check_finite(data: object, source: str) -> None:
    """Refuse numbers that are none (NaN) or without bound.

    Raises:
        InputError: names ``source`` and the key.
    """
    for key, _, value in _leaves(data):
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(
                f"{source}: {clipped(key) or 'it'} is {value}, which is not finite; correct it"
            )


def _leaves(data: object) -> Iterator[tuple[str, str, Any]]:
    """Path, unit and value of every number and text, without recursion; keys are texts too."""
    pending: list[tuple[str, str, object]] = [("", "", data)]
    while pending:
        key, unit, value = pending.pop()
        if isinstance(value, Mapping):
            stated = value.get("unit")
            for name, inner in value.items():
                path = f"{key}.{name}" if key else str(name)
                yield path[:LONGEST_TEXT], _NAME, str(name)
                if name == "value" and isinstance(stated, str):
                    own = stated
                else:
                    own = unit_of_key(str(name)) or unit
                pending.append((path[:LONGEST_TEXT], own, inner))
        elif isinstance(value, list | tuple):
            pending.extend((f"{key}.{place}", unit, inner) for place, inner in enumerate(value))
        elif isinstance(value, str) or (
            isinstance(value, int | float) and not isinstance(value, bool)
        ):
            yield key, _NAME if key.rpartition(".")[2] == _NAME else unit, value


def _check_text(value: str, key: str, source: str, *, one_line: bool) -> None:
    if len(value) > LONGEST_TEXT:
        raise InputError(
            f"{source}: {clipped(key)} is a text of {len(value):,} characters, at most "
            f"{LONGEST_TEXT:,} are possible; shorten it"
        )
    if steers(value):
        raise InputError(
            f"{source}: {clipped(key)} holds control characters, in '{clipped(value, 60)}'; "
            "remove them"
        )
    if one_line and breaks_line(value):
        raise InputError(
            f"{source}: {clipped(key)} is a name on several lines, {on_one_line(value)[:60]!r}; "
            "give it on one"
        )


def positive_number(text: str, name: str, where: str) -> float:
    """A cell's number.

    Raises:
        InputError: it is none, not finite, not positive, or beyond what anything measures.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{where}: {name} is {text!r}; it must be a positive number")
    if not LEAST <= value <= MOST_OF_OTHERS:
        raise InputError(
            f"{where}: {name} is {text!r}; it must be from {LEAST:g} to {MOST_OF_OTHERS:g}"
        )
    return value
