"""Constants with their unit and source, and those that are known within a range only."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, get_origin, get_type_hints

from phaze_common.errors import InputError


@dataclass(frozen=True)
class Quantity:
    """A constant with its unit and where it comes from."""

    value: float
    unit: str
    source: str


@dataclass(frozen=True)
class UncertainQuantity:
    """A constant within ``low`` to ``high`` (same unit), most likely at ``value``; high, medium or
    low ``confidence``."""

    value: float
    unit: str
    source: str
    low: float
    high: float
    confidence: str | None = None


CONFIDENCES = (None, "high", "medium", "low")


def units_of(record: type[Any]) -> dict[str, str]:
    """Units of those fields of ``record`` that are annotated with one."""
    hints = get_type_hints(record, include_extras=True)
    return {
        name: hint.__metadata__[0] for name, hint in hints.items() if get_origin(hint) is Annotated
    }


def quantity_problems(record: Any, key: str = "") -> Iterator[InputError]:
    """What is wrong with the constants of ``record`` and of the records in it: units, signs and
    ranges; each names its key.

    A constant is zero or positive, and one with a range lies within it.
    """
    units = units_of(type(record))
    for entry in fields(record):
        value, name = getattr(record, entry.name), f"{key}.{entry.name}" if key else entry.name
        if isinstance(value, Quantity | UncertainQuantity):
            yield from _problems_of(value, units.get(entry.name, value.unit), name)
        elif isinstance(value, dict):
            for inner, each in value.items():
                if is_dataclass(each):
                    yield from quantity_problems(each, f"{name}.{inner}")
        elif isinstance(value, tuple):
            for place, each in enumerate(value):
                if is_dataclass(each):
                    yield from quantity_problems(each, f"{name}.{place}")
        elif is_dataclass(value):
            yield from quantity_problems(value, name)


def _problems_of(given: Quantity | UncertainQuantity, unit: str, key: str) -> Iterator[InputError]:
    if given.unit != unit:
        yield InputError(f"{key}.unit is {given.unit!r}; it must be {unit!r}")
    if given.value < 0:
        yield InputError(f"{key}.value is {given.value}; it must be zero or positive")
    if not isinstance(given, UncertainQuantity):
        return
    if not 0 <= given.low <= given.value <= given.high:
        yield InputError(
            f"{key} is {given.value:g} within {given.low:g} to {given.high:g}; it must be 0 <= "
            "low <= value <= high"
        )
    if given.confidence not in CONFIDENCES:
        yield InputError(
            f"{key}.confidence is {given.confidence!r}; it must be 'high', 'medium' or 'low'"
        )
