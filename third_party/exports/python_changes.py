"""Changes that parts of a module make which may run or not: each is tried and taken back, and where they differ none is known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import reduce

from third_party.exports.python_values import joined


class Nothing(Enum):
    """In place of the value of a name that has none."""

    ABSENT = "nothing"


ABSENT = Nothing.ABSENT
Home = dict[str, object] | list[object]
Outcome = dict[tuple[int, str], tuple[Home, str, object]]  # by home and name, of a list by no name, what stands there afterwards


@dataclass
class _Journal:
    before: Outcome = field(default_factory=dict)
    born: dict[int, Home] = field(default_factory=dict)  # homes that were made since; no other way knows them


class Changes:
    """Writes names of scopes, keys of records and dictionaries, and lists, so that they can be taken back."""

    def __init__(self) -> None:
        self._open = list[_Journal]()

    def born(self, home: Home) -> None:
        """A home that is made now."""
        if self._open:
            self._open[-1].born[id(home)] = home

    def born_in(self, home: Home, inner: Home) -> None:
        """A home that stands in another: it is as old."""
        if self._open and id(home) in self._open[-1].born:
            self.born(inner)

    def put(self, home: Home, key: str, value: object) -> None:
        """Set ``home[key]``, or delete it where ``value`` is absent; of a list, its parts."""
        if self._open and id(home) not in self._open[-1].born:
            self._open[-1].before.setdefault((id(home), key), (home, key, _at(home, key)))
        _set(home, key, value)

    def begin(self) -> None:
        """Begin a way that may be taken or not."""
        self._open.append(_Journal())

    def take_back(self) -> Outcome:
        """End the way and take its changes back; they are returned."""
        journal = self._open.pop()
        after = {place: (home, key, _at(home, key)) for place, (home, key, _) in journal.before.items()}
        for home, key, value in journal.before.values():
            _set(home, key, value)
        for home in journal.born.values():
            self.born(home)
        return after

    def settle(self, outcomes: Iterable[Outcome]) -> None:
        """Go on behind ways of which one was taken: what they leave different is not known."""
        ways = list(outcomes)
        for place, (home, key, _) in {place: entry for way in ways for place, entry in way.items()}.items():
            values = [way[place][2] if place in way else _at(home, key) for way in ways]
            self.put(home, key, reduce(joined, values))


def _at(home: Home, key: str) -> object:
    return list(home) if isinstance(home, list) else home.get(key, ABSENT)


def _set(home: Home, key: str, value: object) -> None:
    if isinstance(home, list):
        home[:] = value if isinstance(value, list) else [value]
    elif value is ABSENT:
        home.pop(key, None)
    else:
        home[key] = value
