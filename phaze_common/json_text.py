"""JSON text: read within bounds, and refused where a key stands twice or a number is not finite,
with the key and the line.

What the parser of Python takes in silence (NaN, Infinity, 1e999, the last of two equal keys) is no
JSON, and no number that anybody meant. The parser tells of such a thing only that it is there;
where it is is found by a second, slower reading.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from phaze_common.echo import clipped
from phaze_common.errors import InputError

# digits of a whole number in a file: what is longer cannot even be shown by Python
LONGEST_INTEGER = 40
# of a document that is read at once: parsed, the worst of these take some 2 GiB
MOST_VALUES = 20_000_000
CORRECT_IT = "; correct it"
_TOKEN = re.compile(
    r'(?P<text>"(?:[^"\\]|\\.)*")(?P<key>\s*:)?|[{}\[\],\n]|-?Infinity|NaN|-?[0-9][0-9.eE+-]*',
    re.DOTALL,
)
_BEGINS = (b"{", b"[", b",")


class _NotFiniteError(ValueError):
    """A number that is none, or beyond what can be held."""


class _TwiceError(ValueError):
    """A key that an object has twice."""


def parse_json(text: str | bytes, source: str) -> Any:
    """Content of JSON text.

    Raises: InputError: it is not JSON, is nested too deeply, has more than ``MOST_VALUES`` values,
        gives a key twice, or holds a
            number that is not finite or of more than ``LONGEST_INTEGER`` digits; names the key and
            the line.
    """
    content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if not content.strip():
        raise InputError(f"{source} is empty, which is not valid JSON; give one that has content")
    if len(content) > MOST_VALUES and sum(map(content.count, _BEGINS)) > MOST_VALUES:
        raise InputError(
            f"{source} has more than {MOST_VALUES:,} values, which is too large for JSON; give a "
            "smaller file"
        )
    try:
        return json.loads(
            text,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_not_finite,
            object_pairs_hook=_of_distinct_keys,
        )
    except RecursionError as error:
        raise InputError(
            f"{source} is not valid JSON: it is nested too deeply{CORRECT_IT}"
        ) from error
    except (_NotFiniteError, _TwiceError) as error:
        problem = _where(content.decode("utf-8", "replace")) or str(error)
        raise InputError(f"{source} is not valid JSON: {problem}{CORRECT_IT}") from error
    except ValueError as error:
        problem = _cut_off(error) or str(error)
        raise InputError(f"{source} is not valid JSON: {problem}{CORRECT_IT}") from error


def _cut_off(error: ValueError) -> str:
    """What is wrong with text that stops before it is complete."""
    if not isinstance(error, json.JSONDecodeError):
        return ""
    ended = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated")
    line = error.doc.rstrip().count("\n") + 1
    if ended:
        return f"it stops in line {line} before it is complete, as a file that was cut off"
    return ""


def _integer(digits: str) -> int:
    if len(digits) > LONGEST_INTEGER:
        raise ValueError(
            f"it holds a whole number of {len(digits)} digits, at most {LONGEST_INTEGER} are "
            "possible"
        )
    return int(digits)


def _float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _not_finite(text)


def _not_finite(text: str) -> float:
    raise _NotFiniteError(f"it holds {clipped(text, 60)}, which is no finite number")


def _of_distinct_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _TwiceError(
            f"key {clipped(next(name for name in names if names.count(name) > 1), 60)!r} is given "
            "twice"
        )
    return found


def _where(text: str) -> str:
    """The first number that is not finite or key that is given twice, with its line."""
    # of each its own key, those within, the place in a list
    line = 1
    key = ""
    objects = list[tuple[str, set[str] | None, int]]()
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word in "{[":
            objects.append((key, set() if word == "{" else None, 0))
            key = _joined(key, "0") if word == "[" else key
        elif word in "}]":
            key = objects.pop()[0] if objects else ""
        elif word == "," and objects:
            above, keys, place = objects[-1]
            objects[-1] = (above, keys, place + 1)
            key = _joined(above, str(place + 1)) if keys is None else above
        elif token["key"] and objects and (known := objects[-1][1]) is not None:
            key = _joined(objects[-1][0], token["text"][1:-1])
            if token["text"] in known:
                return f"key {clipped(key, 60)!r} is given twice, again in line {line}"
            known.add(token["text"])
        elif token["text"] is None and not _is_finite(word):
            return (
                f"{clipped(key, 60) or 'it'} is {clipped(word, 60)} in line {line}, which is "
                "not finite"
            )
        line += word.count("\n")
    return ""


def _joined(above: str, name: str) -> str:
    return f"{above}.{name}" if above else name


def _is_finite(word: str) -> bool:
    try:
        return math.isfinite(float(word))
    except ValueError:  # no number at all, which is for the parser to say
        return True
