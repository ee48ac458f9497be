"""Frozen dataclasses from and to YAML and JSON, checked field by field, with errors that name the
file and the bad key."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from phaze_common.echo import kind_of
from phaze_common.errors import InputError
from phaze_common.json_text import parse_json
from phaze_common.quantity_fields import in_base_units
from phaze_common.ranges import check_finite, check_ranges
from phaze_common.refusals import Refusals
from phaze_common.yaml_files import parse_yaml as parse_yaml
from phaze_common.yaml_files import read_yaml as read_yaml

if TYPE_CHECKING:
    import pydantic

Record = TypeVar("Record")


def to_record(cls: type[Record], data: object, source: str) -> Record:
    """Check ``data`` (parsed YAML or JSON) against the dataclass ``cls`` and build it.

    Unknown and missing keys and values of the wrong type are refused; integers pass for floats.
    Texts with units (``80 GB``) are converted before (``phaze_common.quantity_fields``). Numbers
    lie within the ranges of ``phaze_common.ranges``.

    Raises:
        InputError: all that is wrong; names ``source``, the key and what was expected.
    """
    if is_dataclass(cls) and not isinstance(data, dict):
        keys = ", ".join(each.name for each in fields(cls)[:3])
        raise InputError(
            f"{source} holds {kind_of(data)}, but must be a mapping of keys such as {keys}"
        )
    data = in_base_units(cls, data, source)
    try:
        text = json.dumps(data, default=str)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{source}: a value contains itself, or is no number that can be written; correct it"
        ) from error
    check_finite(data, source)  # what contains itself has no end
    check_ranges(data, source)
    return from_json(cls, text, source)


def from_json(cls: type[Record], text: str | bytes, source: str) -> Record:
    """As ``to_record``, straight from JSON text (fast for large records).

    Raises:
        InputError: as ``to_record``.
    """
    import pydantic

    content = text.encode() if isinstance(text, str) else text
    if b"NaN" in content or b"Infinity" in content:  # which pydantic takes for numbers
        parse_json(content, source)
    try:
        record: Record = _adapter(cast(Any, cls)).validate_json(text, strict=True, extra="forbid")
    except pydantic.ValidationError as error:
        from phaze_common.record_problems import problems

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
    """Cached, since making one takes longer than checking most records."""
    import pydantic

    return pydantic.TypeAdapter(cls)
