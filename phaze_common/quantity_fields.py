"""Texts with units in parsed YAML or JSON, as the plain numbers that the fields of a record
take."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from phaze_common.echo import as_given, clipped
from phaze_common.errors import InputError
from phaze_common.quantities import (
    QuantityError,
    allowed,
    in_unit,
    is_measured,
    plain_number,
    unit_of_key,
)
from phaze_common.refusals import Refusals

# fields of a constant with its unit, for which its value alone may stand
STATED_ALONE = {"value", "unit", "source"}
NO_SOURCE = "not stated"


def in_base_units(cls: Any, data: object, source: str) -> Any:
    """``data`` with every text that says a measured number of ``cls`` as that number.

    What a number counts is the end of its key's name, or of the key it is listed under
    (``phaze_common.quantities``); of a constant ``{value, unit, source}`` its unit, which the
    record states where the data does not. A text may stand for the whole of one. All else stays as
    it is, for whoever checks the record.

    Raises: InputError: all texts that are no such quantity; names ``source``, the key and what is
        allowed.
    """
    reader = _Reader(source)
    converted = reader.read(cls, data, "", "")
    reader.refusals.raise_any()
    return converted


class _Reader:
    def __init__(self, source: str) -> None:
        self.source = source
        self.refusals = Refusals()

    def read(self, wanted: Any, data: object, unit: str, key: str) -> Any:
        options, unit = _options(wanted, unit)
        records = [each for each in options if is_dataclass(each)]
        if isinstance(data, str):
            return self._text(options, records, data, unit, key)
        if isinstance(data, Mapping) and len(records) == 1:
            return self._record(records[0], data, unit, key)
        inner = next((each for each in options if get_origin(each) in {tuple, list, dict}), None)
        arguments = get_args(inner)
        if isinstance(data, Mapping) and get_origin(inner) is dict:
            return {
                name: self.read(arguments[1], each, unit, _joined(key, name))
                for name, each in data.items()
            }
        if isinstance(data, list) and arguments and get_origin(inner) in {tuple, list}:
            same = len(arguments) == 1 or arguments[-1] is Ellipsis
            kinds = [
                arguments[0] if same else arguments[min(place, len(arguments) - 1)]
                for place in range(len(data))
            ]
            return [
                self.read(kind, each, unit, _joined(key, place))
                for place, (kind, each) in enumerate(zip(kinds, data, strict=True))
            ]
        return data

    def _record(self, record: Any, data: Mapping[Any, Any], unit: str, key: str) -> dict[Any, Any]:
        stated, known = {**data}, _hints(record)
        if (
            known.keys() >= STATED_ALONE
            and unit
            and "unit" not in data
            and isinstance(data.get("value"), str)
        ):
            stated["unit"] = unit
        own = stated.get("unit")
        return {
            name: self.read(known[name], value, _unit_in(name, own, unit), _joined(key, name))
            if name in known
            else value
            for name, value in stated.items()
        }

    def _text(
        self, options: tuple[Any, ...], records: list[Any], text: str, unit: str, key: str
    ) -> object:
        if (
            not is_measured(unit)
            or str in options
            or any(isinstance(each, type) and issubclass(each, Enum) for each in options)
        ):
            return text
        if len(records) == 1 and _hints(records[0]).keys() == STATED_ALONE:
            return {
                "value": self._number(float, text, unit, key),
                "unit": unit,
                "source": NO_SOURCE,
            }
        kinds = [each for each in options if each in {int, float}]
        return self._number(kinds[-1], text, unit, key) if kinds else text

    def _number(self, kind: type[int | float], text: str, unit: str, key: str) -> object:
        try:
            exact = in_unit(text, unit)
            if kind is int and exact.denominator != 1:
                raise QuantityError(
                    f"a whole number of {unit}, which {text.strip()} is not; give one"
                )
            return plain_number(exact) if kind is int else float(exact)
        except (QuantityError, OverflowError) as error:
            what = str(error) if isinstance(error, QuantityError) else allowed(unit)
            given = f"{self.source}: {clipped(key)} is {clipped(as_given(text), 60)}"
            self.refusals.add(InputError(f"{given}; it is {what}"))
            return text


def _unit_in(name: str, stated: object, outer: str) -> str:
    """The unit of a field in a record that states one or lies under a key with one."""
    if name in {"unit", "source"}:
        return ""
    if name == "value":
        return stated if isinstance(stated, str) else outer
    return unit_of_key(name)


def _joined(key: str, name: object) -> str:
    return f"{key}.{name}" if key else str(name)


def _options(wanted: Any, unit: str) -> tuple[tuple[Any, ...], str]:
    """The alternatives of a type without None, and its annotated unit, else ``unit``."""
    if get_origin(wanted) is Annotated:
        stated = wanted.__metadata__[0]
        return _options(wanted.__origin__, stated if isinstance(stated, str) else unit)
    if get_origin(wanted) in {Union, types.UnionType}:
        return tuple(each for each in get_args(wanted) if each is not types.NoneType), unit
    return (wanted,), unit


@lru_cache(maxsize=256)
def _hints(record: Any) -> Mapping[str, Any]:
    hints = get_type_hints(record, include_extras=True)
    return {entry.name: hints[entry.name] for entry in fields(record)}
