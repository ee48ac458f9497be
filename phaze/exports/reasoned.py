"""Options of a launch with the reason for each, one to a line: the reasons stand in one column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Option:
    """An option as its program is given it, with its value, and why it is there."""

    given: str
    why: str

    def line(self, indent: str, column: int) -> str:
        """The option and its reason, which begins at ``column`` where the option leaves room."""
        return f"{indent}{self.given}".ljust(column - 1) + f" # {self.why}"


def options(text: str) -> Iterator[Option]:
    """The options of ``text``: lines of an option, `` # `` and its reason."""
    for line in text.strip().splitlines():
        given, _, why = line.strip().partition(" # ")
        yield Option(given, why)
