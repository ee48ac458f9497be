"""Assignments of bash: values, items of lists and of lists by keys, and arithmetic that changes
variables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from phaze.exports.bash.branches import Branches
from phaze.exports.bash.simple_commands import Assignment
from phaze.exports.bash.variables import Value
from phaze.exports.bash.words import NAME, Word

_CHANGED = re.compile(rf"({NAME})\s*([-+*/%]?)=(?!=)\s*(.*)|({NAME})(\+\+|--)", re.DOTALL)
_UNSET = re.compile(rf"({NAME})\[(.*)\]", re.DOTALL)


@dataclass
class Assignments(Branches):
    """Variables that assignments change; one of which it is not known what it comes to is its own
    name put in."""

    def give(self, assignment: Assignment) -> None:
        """Go over an assignment."""
        if assignment.items is not None:
            self._list(assignment)
        else:
            self._scalar(assignment)

    def let(self, expression: str) -> None:
        """``NAME = A * B``, ``NAME += 1`` or ``NAME++`` of ((...)) and let; a value that cannot be
        computed is not known."""
        changed = _CHANGED.fullmatch(expression)
        if changed is None:
            return
        name, how, right = changed[1] or changed[4], changed[2] or "", changed[3] or ""
        made = f"{name} {how} ({right})" if how else right
        if changed[4]:
            made = f"{name} {changed[5][0]} 1"
        result = self.computed(made)
        self.assign(name, f"${{{name}}}" if result is None else str(result))

    def _scalar(self, assignment: Assignment) -> None:
        name, value = assignment.name, self.text(assignment.value)
        before = self.values.get(name)
        if assignment.index is not None and name in self.maps:
            item = f"{name}[{self.text(assignment.index)}]"
            self.assign(item, f"{self.values.get(item, '')}{value}" if assignment.grows else value)
        elif assignment.index is not None:
            self._item(name, assignment, value)
        elif assignment.grows:
            grown: Value = f"{before or ''}{value}"
            if isinstance(before, list) and before:
                grown = [*before[:-1], before[-1] + value]
            self.assign(name, grown)
        else:
            self.assign(name, value)

    def _item(self, name: str, assignment: Assignment, value: str) -> None:
        """Give one item of a list; the list is not known where it is not known which one, or where
        items before are missing."""
        assert assignment.index is not None
        before = self.values.get(name)
        items = list(before) if isinstance(before, list) else [before] if before is not None else []
        at = self.place_of(self.text(assignment.index), items)
        if at is None or at > len(items) or before == f"${{{name}}}":
            self.assign(name, f"${{{name}}}")
        else:
            grown = items[at] if assignment.grows and at < len(items) else ""
            items[at : at + 1] = [grown + value]
            self.assign(name, items)

    def _list(self, assignment: Assignment) -> None:
        assert assignment.items is not None
        words = [token for token in assignment.items if isinstance(token, Word)]
        items = [text for word in words for text in self.fields(word)]
        before = self.values.get(assignment.name)
        if assignment.name in self.maps or any(re.match(r"\[[^\]]*\]=", item) for item in items):
            self._map(assignment.name, items)
            return
        certain = all(frame.runs is not None for frame in self.frames)
        if assignment.grows and certain and isinstance(before, list):
            before += items  # in place: nothing else has it
            items = before
        elif assignment.grows:
            items = [*([before] if isinstance(before, str) else before or ()), *items]
        self.assign(assignment.name, items)

    def _map(self, name: str, items: Iterable[str]) -> None:
        """``([key]=value ...)``: each is a variable by its key."""
        self.maps.add(name)
        for item in items:
            key, _, value = item[1:].partition("]=")
            self.assign(f"{name}[{key}]", value)

    def unset(self, name: str) -> None:
        """A variable, or an item of a list, is there no more."""
        item = _UNSET.fullmatch(name)
        if item is None or item[1] in self.maps:
            self.forget(name)
            return
        items = self.values.get(item[1])
        at = self.place_of(item[2], items) if isinstance(items, list) else None
        if not isinstance(items, list) or at is None or at >= len(items):
            self.assign(item[1], f"${{{item[1]}}}")
        else:
            self.assign(item[1], [*items[:at], *items[at + 1 :]])
