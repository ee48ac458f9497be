"""The keys of a record, as a file has them: read from its annotations, its docstring and the
comments behind its fields."""

from __future__ import annotations

import ast
import inspect
import io
import re
import textwrap
import tokenize
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from phaze_common.quantities import unit_of_key
from phaze_common.setting_fields import About
from phaze_common.text_in_files import TextInFiles
from scripts.reference.markdown import plain, table

HEADS = ("key", "takes", "unit", "default", "meaning")
EVERYWHERE: Mapping[str, str] = {
    "name": "what it is called",
    "source": "where it is from, in words",
    "unit": "what its numbers count",
}


@dataclass(frozen=True)
class Key:
    """A key of a record; ``records`` are those that lie under it, by what stands between the key
    and theirs."""

    name: str
    takes: str
    unit: str
    default: str
    meaning: str
    records: tuple[tuple[str, type[Any]], ...]


def keys_of(record: type[Any]) -> Iterator[Key]:
    """The keys of a record in order."""
    hints = get_type_hints(record, include_extras=True)
    for entry in fields(record):
        unit, wanted = _unit_and_type(hints[entry.name], unit_of_key(entry.name))
        yield Key(
            entry.name,
            words(wanted),
            unit,
            _default(entry),
            meaning_of(record, entry.name),
            tuple(_records(wanted, "")),
        )


def table_of(record: type[Any]) -> str:
    """A table of the keys of ``record``, what lies under them by the path that leads there."""
    return table(HEADS, _rows(record, "", {}))


def _rows(record: type[Any], prefix: str, paths: dict[type[Any], str]) -> Iterator[tuple[str, ...]]:
    for key in keys_of(record):
        path = f"{prefix}{key.name}"
        earlier = [paths[inner] for _, inner in key.records if inner in paths]
        meaning = f"{key.meaning} (keys as of `{earlier[0]}`)" if earlier else key.meaning
        yield f"`{path}`", key.takes, key.unit, key.default, meaning
        for between, inner in key.records:
            if inner not in paths and inner not in constants():
                paths[inner] = f"{path}{between}"
                yield from _rows(inner, f"{path}{between}.", paths)


def meaning_of(record: type[Any], name: str) -> str:
    """What the code says of a field: the comment behind it, and the part of the docstring that
    names it."""
    hint = get_type_hints(record, include_extras=True)[name]
    about = next((each for each in get_args(hint) if isinstance(each, About)), None)
    axis = about.help if about is not None and about.key in {"", name} else ""
    home: type = owner_of(record, name)
    sentences = [
        axis or _comments(home).get(name, ""),
        *_named_in(inspect.getdoc(home) or "", name),
    ]
    paths = "; ".join(each for each in sentences if each)
    return _null(plain(paths or EVERYWHERE.get(name, "")))


def owner_of(record: type[Any], name: str) -> type[Any]:
    """The class that declares a field of a record, which may inherit it."""
    return next(each for each in record.__mro__ if name in inspect.get_annotations(each))


def doc_of(record: type[Any]) -> str:
    """The docstring of a record."""
    return _null(plain(inspect.getdoc(record) or ""))


def _null(text: str) -> str:
    return re.sub(r"\bNone\b", "null", text)


def words(wanted: Any) -> str:
    """A type in words."""
    if get_origin(wanted) is Annotated:
        return words(wanted.__origin__)
    if get_origin(wanted) in {Union, types.UnionType}:
        *several, last = [each for each in get_args(wanted) if each is not types.NoneType]
        optional = " or null" if types.NoneType in get_args(wanted) else ""
        return "".join(f"{words(each)}, or " for each in several) + words(last) + optional
    arguments = get_args(wanted)
    if get_origin(wanted) in {tuple, list}:
        return f"list of {_plural(words(arguments[0]))}"
    if get_origin(wanted) in {dict, Mapping}:
        return f"mapping of names to {_plural(words(arguments[1]))}"
    if isinstance(wanted, type) and issubclass(wanted, TextInFiles):
        return "text"
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return " ".join(f"`{each.value}`" for each in wanted)
    return _names().get(
        wanted, "mapping" if is_dataclass(wanted) else str(getattr(wanted, "__name__", wanted))
    )


def _plural(text: str) -> str:
    return {
        "text": "texts",
        "number": "numbers",
        "whole number": "whole numbers",
        "mapping": "mappings",
    }.get(text, text)


@cache
def _names() -> Mapping[type[Any], str]:
    from Estimator.chips.technology import CapacityTable
    from Estimator.quantity import Quantity, UncertainQuantity

    plain_types: dict[type[Any], str] = {
        int: "whole number",
        float: "number",
        str: "text",
        bool: "true or false",
    }
    special: dict[type[Any], str] = {
        Quantity: "constant",
        UncertainQuantity: "constant with a range",
        CapacityTable: "constant by capacity",
    }
    return plain_types | special


def constants() -> frozenset[type[Any]]:
    """Records that stand for one number."""
    return frozenset(_names()) - {int, float, str, bool}


def _unit_and_type(hint: Any, unit: str) -> tuple[str, Any]:
    if get_origin(hint) is Annotated:
        about = hint.__metadata__[0]
        return (about if isinstance(about, str) else unit), hint.__origin__
    return unit, hint


def _records(wanted: Any, between: str) -> Iterator[tuple[str, type[Any]]]:
    if isinstance(wanted, type) and issubclass(wanted, TextInFiles):
        return
    if isinstance(wanted, type) and is_dataclass(wanted):
        yield between, wanted
    elif get_origin(wanted) in {tuple, list}:
        for each in get_args(wanted):
            yield from _records(each, f"{between}[]")
    elif get_origin(wanted) in {dict, Mapping}:
        yield from _records(get_args(wanted)[1], f"{between}.NAME")
    else:
        for each in get_args(wanted):
            yield from _records(each, between)


def _default(entry: Field[Any]) -> str:
    if entry.default_factory is not MISSING:
        return "empty"
    if entry.default is MISSING:
        return "required"
    about = entry.default
    if about in (None, (), ""):
        return "none"
    if isinstance(about, bool):
        return str(about).lower()
    if not is_dataclass(about):
        return str(about.value if isinstance(about, Enum) else about)
    return "none"


@cache
def _comments(record: type[Any]) -> Mapping[str, str]:
    """The comment above, within or behind each field, inherited ones too."""
    inherited = [_comments(each) for each in record.__mro__[1:] if is_dataclass(each)]
    source = textwrap.dedent(inspect.getsource(record))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    sentences = {
        each.start[0]: each.string.removeprefix("# ")
        for each in tokens
        if each.type == tokenize.COMMENT
    }
    alone = {line for line in sentences if source.splitlines()[line - 1].lstrip().startswith("#")}
    found = {name: text for each in inherited[::-1] for name, text in each.items()}
    for field in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            first = field.lineno
            while first - 1 in alone:
                first -= 1
            lines = range(first, (field.end_lineno or field.lineno) + 1)
            found[field.target.id] = " ".join(
                sentences[line] for line in lines if line in sentences
            )
    return found


def _named_in(doc: str, name: str) -> Iterator[str]:
    """The clauses of a docstring that name a field."""
    sentences = re.split(r"(?<=\.)\s+", " ".join(doc.split()))
    for sentence in sentences:
        for clause in re.split(r"; |, (?=``)", sentence):
            if f"``{name}``" in clause:
                yield clause.rstrip(".")
