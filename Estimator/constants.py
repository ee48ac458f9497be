"""Changes of single constants of the physics, without a file of one's own:
``platform.glb_bandwidth=2x``, ``prices.pue=1.3``.

A change names a kind of hardware, the place in its record and a factor or a value in the unit of
the record; names may leave out the unit behind them, and ``*`` stands for every entry. It is made
once files are read and before anything is derived from them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any, TypeVar

from Estimator.chips.technology import CapacityTable
from Estimator.quantity import Quantity, UncertainQuantity
from phaze_common.errors import InputError
from phaze_common.quantities import QuantityError, in_unit, is_measured, unit_of_key
from phaze_common.suggestions import nearest

Record = TypeVar("Record")
EVERY = "*"
FORM = "KIND.NAME=VALUE or KIND.NAME=2x, such as platform.glb_bandwidth=2x"
# that a constant can be beside 0, in any unit; sums and quotients of such are finite
LEAST, MOST = 1e-30, 1e30


class Kind(StrEnum):
    """What a constant belongs to."""

    PLATFORM = "platform"
    TECHNOLOGY = "technology"
    MEMORY = "memory"
    PRICES = "prices"
    CLUSTER = "cluster"
    SOFTWARE = "software"
    DEVICE = "device"


OF_CHIPS = frozenset({Kind.PLATFORM, Kind.TECHNOLOGY, Kind.MEMORY, Kind.PRICES})


@dataclass(frozen=True)
class ConstantChange:
    """One change as it was ``asked``: a ``factor``, or in place of the value that there is a
    ``value``, or a ``measured`` one."""

    asked: str
    kind: Kind
    path: tuple[str, ...]
    factor: float | None
    value: float | None
    measured: str | None = None

    @staticmethod
    def parsed(text: str) -> ConstantChange:
        """What ``text`` asks.

        Raises:
            InputError: it is no change.
        """
        key, equals, given = (part.strip() for part in text.partition("="))
        kind, dot, rest = key.partition(".")
        if not equals or not dot or not all(rest.split(".")):
            raise InputError(f"the change of a constant is {text!r:.200}; write {FORM}")
        kinds = [each.value for each in Kind]
        if kind not in kinds:
            hint = nearest(kind, kinds, f"give {', '.join(kinds)}")
            raise InputError(f"{text!r:.200}: there are no constants of {kind!r:.100}; {hint}")
        path = tuple(rest.split("."))
        try:
            amount = float(given.removesuffix("x"))
        except ValueError:
            amount = math.nan
        with_unit = any(letter.isdigit() for letter in given) and given[-1].isalpha()
        if math.isnan(amount) and with_unit and not given.endswith("x"):
            return ConstantChange(text, Kind(kind), path, None, None, given)
        if not _possible(amount):
            raise InputError(
                f"{text!r:.200}: the value is {given!r:.100}, but must be zero or a positive "
                f"number from {LEAST:g} to {MOST:g}, "
                "in the unit of the record or with one of its own, or a factor as 2x"
            )
        if given.endswith("x"):
            return ConstantChange(text, Kind(kind), path, factor=amount, value=None)
        return ConstantChange(text, Kind(kind), path, factor=None, value=amount)

    def of(self, record: Record) -> Record:
        """``record`` with the change.

        Raises:
            InputError: it has no such constant, or one that is no number.
        """
        changed: Record = self._changed(record, self.path)
        return changed

    def _changed(self, record: Any, path: Sequence[str], key: str = "") -> Any:
        """``record``, which is called ``key``, with what is at ``path`` below it changed."""
        if not path:
            return self._applied(record, unit_of_key(key))
        if isinstance(record, tuple):
            return self._in_list(record, path)
        if isinstance(record, dict):
            if path[0] == EVERY:
                return {key: self._changed(each, path[1:]) for key, each in record.items()}
            key = self._named(path[0], list(record))
            return {**record, key: self._changed(record[key], path[1:], key)}
        if not is_dataclass(record) or isinstance(
            record, Quantity | UncertainQuantity | CapacityTable
        ):
            raise self._wrong(f"there is nothing called {path[0]!r:.100} below it; write {FORM}")
        key = self._named(path[0], [entry.name for entry in fields(record)])
        return replace(record, **{key: self._changed(getattr(record, key), path[1:], key)})  # type: ignore[type-var]

    def _wrong(self, problem: str) -> InputError:
        return InputError(f"{self.asked!r:.200}: {problem}")

    def _in_list(self, record: tuple[Any, ...], path: Sequence[str]) -> tuple[Any, ...]:
        if path[0] == EVERY:
            return tuple(self._changed(each, path[1:]) for each in record)
        if not path[0].isdecimal() or int(path[0]) >= len(record):
            allowed = f"give 0 to {len(record) - 1}, or * for all"
            raise self._wrong(f"{path[0]!r:.100} is none of {len(record)} entries; {allowed}")
        at = int(path[0])
        return (*record[:at], self._changed(record[at], path[1:]), *record[at + 1 :])

    def _named(self, name: str, names: Sequence[str]) -> str:
        """The name of a field, whose unit may be left out."""
        longer = [each for each in names if each.startswith(f"{name}_")]
        if name in names or len(longer) == 1:
            return name if name in names else longer[0]
        hint = nearest(name, names, f"there are {', '.join(names)}")
        raise self._wrong(f"{self.kind} has no constant {name!r:.100}; {hint}")

    def _applied(self, value: Any, unit: str) -> Any:
        if isinstance(value, CapacityTable):
            if self.factor is None:
                raise self._wrong("it is a table by capacity; give a factor, as 2x")
            return replace(value, value=tuple(self.factor * each for each in value.value))
        if isinstance(value, Quantity | UncertainQuantity):
            now = self._number(value.value, value.unit)
            source = f"{self.asked}, in place of {value.value:g} {value.unit}"
            if isinstance(value, Quantity):
                return replace(value, value=now, source=source)
            low, high = (
                now if not value.value else now * end / value.value
                for end in (value.low, value.high)
            )
            return replace(value, value=now, low=low, high=high, source=source)
        if isinstance(value, bool) or not isinstance(value, int | float):
            what = f"a group of {len(fields(value))}" if is_dataclass(value) else repr(value)[:100]
            what = f"a list of {len(value)}" if isinstance(value, tuple | dict) else what
            other = "name one of its parts, or another constant"
            raise self._wrong(f"it is {what}, not a number; {other}")
        if isinstance(value, int):
            return round(self._number(value, unit))
        return self._number(value, unit)

    def _number(self, value: float, unit: str) -> float:
        """What is asked in place of a ``value`` in ``unit``."""
        now = self._stated(value, unit)
        if not _possible(now if now > 0 else -now):
            allowed = f"zero or from {LEAST:g} to {MOST:g} {unit}".rstrip()
            raise self._wrong(f"the constant must be {allowed}")
        return float(now)

    def _stated(self, value: float, unit: str) -> float | Fraction:
        if self.factor is not None:
            return self.factor * value
        if self.measured is not None:
            if not is_measured(unit):
                number = "give a number without a unit, or a factor as 2x"
                raise self._wrong(f"the constant is no measured one; {number}")
            try:
                return in_unit(self.measured, unit)
            except QuantityError as error:
                raise self._wrong(f"{error}; or give a factor, as 2x") from error
        assert self.value is not None
        return self.value


def _possible(amount: float | Fraction) -> bool:
    return amount == 0 or LEAST <= amount <= MOST


def asked_of(changes: Iterable[ConstantChange], kind: Kind) -> str:
    """The changes of ``kind`` as they were asked: what is to blame where a record cannot be, which
    could before."""
    return ", ".join(f"{change.asked!r:.200}" for change in changes if change.kind is kind)


def constant_changes(texts: Iterable[str]) -> tuple[ConstantChange, ...]:
    """The changes that ``texts`` ask, in their order.

    Raises:
        InputError: one of them is none.
    """
    return tuple(ConstantChange.parsed(text) for text in texts)


def changed(record: Record, kind: Kind, changes: Iterable[ConstantChange]) -> Record:
    """``record`` with those of ``changes`` that are of its kind."""
    for change in changes:
        if change.kind is kind:
            record = change.of(record)
    return record
