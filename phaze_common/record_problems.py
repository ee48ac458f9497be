"""Why parsed YAML or JSON is not the record it should be: every problem with its key, what was
given and what is allowed."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import ValidationError

from phaze_common.echo import as_given
from phaze_common.suggestions import nearest

LONGEST_SHOWN = 60  # characters of a value
_ALLOWED = {  # by the first word of pydantic's type of problem
    "int": "a whole number",
    "float": "a number",
    "string": "a text",
    "bool": "true or false",
    "tuple": "a list",
    "list": "a list",
    "none": "empty",
}


def problems(error: ValidationError, cls: type[Any]) -> Iterator[str]:
    """A sentence for every problem that pydantic found in a record of the class ``cls``."""
    found = error.errors(include_url=False)
    branches = _branches(cls, (each["loc"] for each in found))
    for each in found:
        yield _sentence(each, cls, branches)


def _sentence(
    problem: Mapping[str, Any], cls: type[Any], branches: frozenset[tuple[int | str, ...]]
) -> str:
    place: tuple[int | str, ...] = problem["loc"]
    shown = [str(part) for index, part in enumerate(place) if place[: index + 1] not in branches]
    key = ".".join(shown) or "the document"
    match problem["type"]:
        case "missing":
            return f"{key} is missing; add it"
        case "unexpected_keyword_argument":
            known = _keys_of(_type_at(cls, place[:-1]))
            return (
                f"{key} is not a known key; "
                f"{nearest(str(place[-1]), known, 'remove it or correct its spelling')}"
            )
        case "json_invalid":
            return f"{key}: {problem['msg'].lower()}"
    return (
        f"{key} is {_value(problem['input'])}, but must be "
        f"{_allowed(problem, _type_at(cls, place))}"
    )


def _value(given: object) -> str:
    text = as_given(given)
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 3]}..."


def _allowed(problem: Mapping[str, Any], wanted: Any) -> str:
    kind = str(problem["type"])
    if kind in {"enum", "literal_error"}:
        return f"one of {problem['ctx']['expected']}"
    if kind.startswith(("dataclass", "dict", "model")):
        keys = _keys_of(wanted)
        return f"a mapping of keys such as {', '.join(keys[:3])}" if keys else "a mapping"
    word = kind.partition("_")[0]
    if word in _ALLOWED:
        return _ALLOWED[word]
    return (
        str(problem["msg"]).removeprefix("Input should be ").removeprefix("Value error, ").lower()
    )


def _branches(
    cls: type[Any], places: Iterable[tuple[int | str, ...]]
) -> frozenset[tuple[int | str, ...]]:
    """Parts of places that name an alternative of a union, which nobody wrote."""
    found = set()
    for place in places:
        for end in range(1, len(place) + 1):
            before = _type_at(cls, place[: end - 1])
            if len(_alternatives(before)) > 1 and not _holds(before, place[end - 1]):
                found.add(place[:end])
    return frozenset(found)


def _holds(wanted: Any, part: int | str) -> bool:
    for each in _alternatives(wanted):
        if part in _keys_of(each) or (get_origin(each) is dict and isinstance(part, str)):
            return True
        if get_origin(each) in {tuple, list} and isinstance(part, int):
            return True
    return False


def _type_at(cls: Any, place: tuple[int | str, ...]) -> Any:
    """The type at ``place`` in a record of the class ``cls``; None: not known."""
    wanted: Any = cls
    for part in place:
        options = [_inner(each, part) for each in _alternatives(wanted)]
        named = next((option for option in options if option is not None), None)
        # the name of an alternative
        wanted = named if named is not None or len(options) < 2 else wanted
    return wanted


def _inner(wanted: Any, part: int | str) -> Any:
    if is_dataclass(wanted) and isinstance(wanted, type):
        return get_type_hints(wanted).get(str(part))
    arguments = get_args(wanted)
    if get_origin(wanted) is dict and len(arguments) == 2:
        return arguments[1]
    if get_origin(wanted) in {tuple, list} and arguments and isinstance(part, int):
        return arguments[part if part < len(arguments) and arguments[-1] is not Ellipsis else 0]
    return None


def _alternatives(wanted: Any) -> tuple[Any, ...]:
    if get_origin(wanted) in {Union, types.UnionType}:
        return tuple(each for each in get_args(wanted) if each is not types.NoneType)
    return (wanted,)


def _keys_of(wanted: Any) -> list[str]:
    classes = (
        each for each in _alternatives(wanted) if isinstance(each, type) and is_dataclass(each)
    )
    return [entry.name for each in classes for entry in fields(each)]
