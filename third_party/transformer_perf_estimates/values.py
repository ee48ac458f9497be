"""Values of JSON objects that somebody wrote: checked one by one, refused with what is allowed."""

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from phaze_common.echo import as_given, clipped
from phaze_common.errors import InputError
from phaze_common.suggestions import nearest
from phaze_common.yaml_files import read_yaml
from third_party.cases import integer, is_number

Record = TypeVar("Record")


def published_records(file: str, read: Callable[[Any, str], Record]) -> dict[str, Record]:
    """What ``read`` makes of the entries of a file of this package, by their names."""
    path = Path(__file__).with_name(file)
    return {name: read(document, f"{path}: {name}") for name, document in read_yaml(path).items()}


def published_one(known: Mapping[str, Record], kind: str, name: str) -> Record:
    """The one of that name. Raises InputError: there is none; says which there are."""
    if name not in known:
        instead = nearest(name, known, f"known are {', '.join(known)}")
        raise InputError(f"{kind} '{name}' is not known; {instead}, or give '{kind}' as an object")
    return known[name]


def mapping_of(document: Any, source: str, keys: str) -> Mapping[str, Any]:
    """The document as a JSON object. Raises InputError: it is something else."""
    if not isinstance(document, dict):
        raise InputError(
            f"{source} is {as_given(document)}; it must be an object with keys such as {keys}"
        )
    return document


def refuse_unknown(given: Mapping[str, Any], known: Iterable[str], source: str) -> None:
    """Refuse a key that nobody reads. Raises InputError: there is one."""
    known = tuple(known)
    for key in given:
        if key not in known:
            raise InputError(
                f"{source}: '{clipped(key)}' is not a known key; "
                f"{nearest(key, known, 'known are ' + ', '.join(known))}"
            )


def positive(value: Any, name: str, *, zero: bool = False) -> float:
    """A finite number above zero, or zero where that is allowed. Raises InputError: it is missing
    or something else; ``name`` says what."""
    if value is None:
        raise InputError(f"{name} is missing; add it")
    possible = is_number(value) and math.isfinite(value) and value >= 0
    if not possible or not (value or zero):
        raise InputError(
            f"{name} is {as_given(value)}; it must be a number "
            f"{'of at least 0' if zero else 'above 0'}"
        )
    return float(value)


def whole(value: Any, name: str, least: int, most: int) -> int:
    """A whole number within bounds. Raises InputError: it is missing or something else; ``name``
    says what."""
    if value is None:
        raise InputError(f"{name} is missing; add it")
    return integer(value, name, least, most)
