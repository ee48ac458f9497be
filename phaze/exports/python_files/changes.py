"""Changes that parts of a module make which may run or not: each is tried and taken back, and where
they differ none is known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial, reduce

from phaze.exports.python_files.values import UNTOLD, joined, same


class Nothing(Enum):
    """In place of the value of a name that has none."""

    ABSENT = "nothing"


ABSENT = Nothing.ABSENT
Home = dict[str, object] | list[object]


class _Parts(list[object]):
    """The parts of a list at some time."""


@dataclass(frozen=True)
class Change:
    """What stands under a key of a home, of a list under no key, behind a way, and what may have
    stood there on it."""

    home: Home
    key: str
    value: object
    passed: object


Outcome = dict[tuple[int, str], Change]


@dataclass
class _Journal:
    broken: bool  # it may end anywhere
    before: Outcome = field(default_factory=dict)
    passed: dict[tuple[int, str], object] = field(default_factory=dict)
    # homes that were made since; no other way knows them
    born: dict[int, Home] = field(default_factory=dict)


class Changes:
    """Writes names of scopes, keys of records and dictionaries, and lists, so that they can be
    taken back."""

    def __init__(self) -> None:
        self._open = list[_Journal]()

    def born(self, home: Home) -> None:
        """A home that is made now."""
        if self._open and not self._open[-1].broken:
            self._open[-1].born[id(home)] = home

    def born_in(self, home: Home, inner: Home) -> None:
        """A home that stands in another: it is as old."""
        if self._open and id(home) in self._open[-1].born:
            self.born(inner)

    def put_parts(self, home: list[object], parts: list[object]) -> None:
        """Set all parts of a list."""
        self.put(home, "", _Parts(parts))

    def put(self, home: Home, key: str, value: object) -> None:
        """Set ``home[key]``, or delete it where ``value`` is absent."""
        self._pass(home, key, value)
        _set(home, key, value)

    def begin(self, broken: bool = False) -> None:
        """Begin a way that may be taken or not; ``broken``, or taken up to any point."""
        self._open.append(_Journal(broken or bool(self._open and self._open[-1].broken)))

    def take_back(self) -> Outcome:
        """End the way and take its changes back; they are returned."""
        journal = self._open.pop()
        after = dict[tuple[int, str], Change]()
        for place, change in journal.before.items():
            after[place] = Change(
                change.home, change.key, _at(change.home, change.key), journal.passed[place]
            )
        for change in journal.before.values():
            _set(change.home, change.key, change.value)
        for home in journal.born.values():
            self.born(home)
        return after

    def settle(self, outcomes: Iterable[Outcome], where: str = "a branch") -> None:
        """Go on behind ways of which one was taken: what they leave different is not known, and a
        value of ``where``."""
        ways = list(outcomes)
        for place, (home, key) in {
            place: (each.home, each.key) for way in ways for place, each in way.items()
        }.items():
            for way in ways:
                if place in way:
                    self._pass(home, key, way[place].passed)
            values = [way[place].value if place in way else _at(home, key) for way in ways]
            self.put(home, key, reduce(partial(_joined, key, where), values))

    def blur(self, outcome: Outcome, where: str) -> None:
        """Go on behind a way that was taken up to any point, or not at all."""
        for each in outcome.values():
            values = (_at(each.home, each.key), each.value, each.passed)
            self.put(each.home, each.key, reduce(partial(_joined, each.key, where), values))

    def _pass(self, home: Home, key: str, value: object) -> None:
        """Note that ``value`` stands there for some time, and what stood there before."""
        if self._open and id(home) not in self._open[-1].born:
            journal, place = self._open[-1], (id(home), key)
            if place not in journal.before:
                journal.before[place] = Change(home, key, _at(home, key), None)
            journal.passed[place] = _joined(
                key, "a branch", journal.passed.get(place, value), value
            )


def _joined(key: str, where: str, value: object, other: object) -> object:
    """As ``joined``; parts of a list are compared as they stood there, and what is untold once
    stays so."""
    if isinstance(value, _Parts) and isinstance(other, _Parts):
        parts = len(value) == len(other) and all(map(same, value, other))
        return value if parts else _Parts([joined(list(value), list(other), where)])
    if key == UNTOLD:
        return other if value is ABSENT else value
    return joined(value, other, where)


def _at(home: Home, key: str) -> object:
    return _Parts(home) if isinstance(home, list) else home.get(key, ABSENT)


def _set(home: Home, key: str, value: object) -> None:
    if isinstance(home, list):
        home[:] = value if isinstance(value, list) else [value]
    elif value is ABSENT:
        home.pop(key, None)
    else:
        home[key] = value
