"""Options of a launch with the reason for each, and how programs write them: flags, keywords of a
call in Python, keys of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from phaze.exports.words import in_code_of_markdown


@dataclass(frozen=True)
class Option:
    """What a program is told under a ``path`` of its own, and why; a switch has no ``value``."""

    path: str
    value: object
    why: str

    @property
    def flag(self) -> str:
        """As words of a command."""
        return f"--{self.path.replace('_', '-')} {self.value}".rstrip()

    @property
    def keyword(self) -> str:
        """As an argument of a call, of which the value is an expression."""
        return f"{self.path}={self.value},"


def options(text: str) -> Iterator[Option]:
    """The options of ``text``: lines of a path, a value, `` # `` and the reason."""
    for line in text.strip().splitlines():
        given, _, why = line.strip().partition(" # ")
        path, _, value = given.partition(" ")
        yield Option(path, value.strip(), why)


def flags(of: Iterable[Option], indent: str, column: int) -> str:
    """Lines of flags, each with its reason from ``column`` on where it leaves room."""
    return "\n".join(_line(indent + each.flag, each.why, column) for each in of)


def keywords(of: Iterable[Option], indent: str, column: int) -> str:
    """Lines of keywords, as ``flags``."""
    return "\n".join(_line(indent + each.keyword, each.why, column) for each in of)


def _line(text: str, why: str, column: int) -> str:
    return text.ljust(column - 1) + f" # {why}"


def json_text(of: Iterable[Option]) -> str:
    """Objects in each other, by the points in the paths."""
    nested: dict[str, object] = {}
    for each in of:
        place: dict[str, object] = nested
        *homes, last = each.path.split(".")
        for name in homes:
            inner = place.setdefault(name, {})
            assert isinstance(inner, dict)
            place = inner
        place[last] = each.value
    return json.dumps(nested, indent=2) + "\n"


def markdown_rows(of: Iterable[Option]) -> str:
    """Rows of a table with the reasons, for what has no comments."""
    return "".join(
        f"| `{each.path}` | `{in_code_of_markdown(json.dumps(each.value))}` | {each.why} |\n"
        for each in of
    )
