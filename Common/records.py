"""Frozen dataclasses from and to YAML and JSON, checked field by field, with errors that name the file and the bad key."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from dataclasses import fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import yaml

from Common.errors import InputError
from Common.files import read_text
from Common.refusals import Refusals

if TYPE_CHECKING:
    import pydantic

Record = TypeVar("Record")


class _Loader(yaml.SafeLoader):
    """Refuses a mapping that gives a key twice, of which plain YAML would silently take the last.

    Reads 160e9 as the number it is in YAML 1.2 and JSON; PyYAML, which follows YAML 1.1, would take it for a text.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge"]
        for position, key in enumerate(keys):
            if key in keys[:position]:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))


def read_yaml(path: Path) -> Any:
    """Parse a YAML file.

    Raises:
        InputError: the file is missing, not readable, not YAML, or gives a key twice.
    """
    return parse_yaml(read_text(path, "a YAML file"), str(path))


def parse_yaml(text: str, source: str) -> Any:
    """Parse YAML text.

    Raises:
        InputError: it is not YAML, gives a key twice, or holds a value that cannot be what it says it is.
    """
    try:
        return deepcopy(_parsed(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise InputError(f"{source} is not valid YAML{where}: {getattr(error, 'problem', error)}; correct it") from error
    except ValueError as error:  # such as the date 2001-99-99
        raise InputError(f"{source} is not valid YAML: {error}; correct it") from error
    except RecursionError as error:
        raise InputError(f"{source} is nested too deeply; correct it") from error


@lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    """Content of YAML text. Hardware files are read again for every study, and parsing them takes most of that time."""
    return yaml.load(text, Loader=_Loader)  # a SafeLoader


def to_record(cls: type[Record], data: object, source: str) -> Record:
    """Check ``data`` (parsed YAML or JSON) against the dataclass ``cls`` and build it.

    Unknown and missing keys and values of the wrong type are refused; integers pass for floats, nothing else is converted.

    Raises:
        InputError: all that is wrong; names ``source``, the key and what was expected.
    """
    if is_dataclass(cls) and not isinstance(data, dict):
        held, keys = "nothing" if data is None else f"a {type(data).__name__}", ", ".join(each.name for each in fields(cls)[:3])
        raise InputError(f"{source} holds {held}, but must be a mapping of keys such as {keys}")
    try:
        text = json.dumps(data, default=str, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: a number is not finite, or a value contains itself; give finite numbers") from error
    return from_json(cls, text, source)


def from_json(cls: type[Record], text: str | bytes, source: str) -> Record:
    """As ``to_record``, straight from JSON text (fast for large records).

    Raises:
        InputError: as ``to_record``.
    """
    import pydantic

    try:
        record: Record = _adapter(cast(Any, cls)).validate_json(text, strict=True, extra="forbid")
    except pydantic.ValidationError as error:
        from Common.record_problems import problems

        refusals = Refusals()
        for problem in problems(error, cls):
            refusals.add(InputError(f"{source}: {problem}"))
        refusals.raise_any()
        raise  # never: there is a problem
    return record


def to_json(record: object, *, indent: int | None = None) -> bytes:
    """Serialise a dataclass as JSON."""
    return _adapter(cast(Any, type(record))).dump_json(record, indent=indent)


@lru_cache(maxsize=256)
def _adapter(cls: Any) -> pydantic.TypeAdapter[Any]:
    """What checks and writes records of the class ``cls``; making one takes longer than most records do."""
    import pydantic

    return pydantic.TypeAdapter(cls)
