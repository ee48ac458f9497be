"""Keys of a launch file, written as paths, and what phaze makes of each by the list of its program
(``known_keys/*.yaml``).

A list sorts the keys of one version of a program into those that its reader reads, those that
change no price, and those that change time or memory in a way that no plan says, each with the
reason and with the values that turn it off. ``part.*`` stands for every key of a part that has no
line of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Self

from phaze.exports.near_names import near_name
from phaze.settings.launched import KeyKind, LaunchKey, LaunchReading
from phaze_common.echo import clipped, kind_of
from phaze_common.errors import InputError
from phaze_common.yaml_files import read_yaml

# of files of several programs
HYBRID = (
    "shards are divided within groups of replicas, of which the file does not say how many; give "
    "--shard-groups"
)
AS_DESCRIBED = "the software is priced as it is described, whatever this says"
HOME = Path(__file__).parent / "known_keys"
# values that turn any key off, or leave it to the program
OFF = (None, False, "auto", "none", "None", "no", "NO", "", (), 0)
LONGEST_VALUE = 60  # characters of a value that are shown
DEEPEST = 50  # objects in each other
MOST_KEYS = 20_000  # of a file; the largest configurations have some hundred


@dataclass(frozen=True)
class Meaning:
    """The kind of a key, why it is of that kind, and values ``off`` with which it changes
    nothing."""

    kind: KeyKind
    reason: str = ""
    off: tuple[object, ...] = ()


@dataclass(frozen=True)
class KnownKeys:
    """The sorted keys of ``program`` in ``version``, by path; a path may end in ``*``."""

    program: str
    version: str
    meanings: Mapping[str, Meaning]

    @cached_property
    def read(self) -> frozenset[str]:
        """Paths of the keys that are read."""
        return frozenset(path for path, each in self.meanings.items() if each.kind is KeyKind.READ)

    def kind_of(self, path: str, value: object) -> tuple[KeyKind, str]:
        """What becomes of the key at ``path`` with ``value``, and why where no plan says it."""
        name = next((each for each in _names(path) if each in self.meanings), None)
        if name is None:
            return KeyKind.UNKNOWN, ""
        meaning = self.meanings[name]
        off = is_off(value) or any(_same(value, each) for each in meaning.off)
        if off and meaning.kind is not KeyKind.READ:
            return KeyKind.NO_EFFECT, ""
        return meaning.kind, meaning.reason

    def check_spelling(self, given: Mapping[str, object]) -> None:
        """Refuse a key that no list names itself and whose name is nearly that of one that is read.

        Raises:
            InputError: says which it may have been.
        """
        left = self.read.difference(given)
        beside = defaultdict[str, set[str]](set)
        for path in self.read:
            beside[path.rpartition(".")[0]].add(path)
        for path, value in given.items():
            if path in self.meanings or self.kind_of(path, value)[0] is KeyKind.READ:
                continue
            near = near_name(path, left) or near_name(path, beside.get(path.rpartition(".")[0], ()))
            if near is not None:
                raise InputError(
                    f"{path} is no key of {self.program} that is read; did you mean {near}? "
                    "Correct it or leave it out"
                )


@dataclass
class GivenKeys:
    """The ``content`` of a launch file, its values by their paths, ``keys``, and what is noted of
    them while they are read.

    ``command_line`` are its settings, by their keys. ``untold`` are keys that no plan says as they
    are here, and why; ``taken`` those that one says as they are here, although the list has them
    among those that none does; ``usual`` those priced as is usual, and what that is. ``spelled``
    has the names that the file has for paths that are written otherwise here.
    """

    known: KnownKeys
    content: Mapping[str, object]
    keys: Mapping[str, object]
    command_line: Mapping[str, str] = field(default_factory=dict)
    spelled: Mapping[str, str] = field(default_factory=dict)
    untold: dict[str, str] = field(default_factory=dict)
    usual: dict[str, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    @classmethod
    def of(
        cls, name: str, content: Mapping[str, object], command_line: Mapping[str, str] | None = None
    ) -> Self:
        """Those of the nested ``content`` of a file of the program of ``known_keys/NAME.yaml``.

        Raises:
            InputError: a key is nearly one that is read, or there are far too many.
        """
        known, keys = known_keys(name), flattened(content)
        known.check_spelling(keys)
        return cls(known, content, keys, command_line or {})

    def value(self, path: str) -> object:
        """The value at ``path``, ``zero_optimization.stage``; None where there is none."""
        home, _, name = path.rpartition(".")
        return (self.part(home) if home else self.content).get(name)

    def part(self, path: str) -> Mapping[str, object]:
        """The object of keys at ``path``; see ``part``."""
        place = self.content
        for name in path.split("."):
            place = part(place, name, self.known.program)
        return place

    def first(self, *paths: str) -> object:
        """The first value that is given and not null."""
        return next((value for path in paths if (value := self.value(path)) is not None), None)

    def size(self, *paths: str) -> int | None:
        """The whole number at the first of ``paths`` that is given; see ``whole``."""
        return whole(self.first(*paths), paths[0])

    def flag(self, *paths: str) -> bool:
        """The switch at the first of ``paths`` that is given; see ``truth``."""
        return truth(self.first(*paths), paths[0])

    def word(self, path: str, allowed: Collection[str], usual: str) -> str:
        """The word at ``path``, ``usual`` where there is none.

        Raises:
            InputError: it is not among those ``allowed``.
        """
        word = str(self.value(path) or usual)
        if word not in allowed:
            raise refused(path, word, " or ".join(allowed))
        return word

    def note_hybrid(self, path: str) -> None:
        """Note hybrid sharding at ``path``: the command line says the groups, or has to."""
        if "shard_groups" in self.command_line:
            self.usual[path] = "its groups are those of --shard-groups"
        else:
            self.untold[path] = HYBRID

    def reading(self, settings: Mapping[str, object], **others: Any) -> LaunchReading:
        """``settings`` with every key that is given, and ``others`` of what a reading says."""
        keys = tuple(
            LaunchKey(self.spelled.get(path, path), shown(value), *self._kind_of(path, value))
            for path, value in self.keys.items()
        )
        return LaunchReading(self.known.program, settings, keys, **others)

    def _kind_of(self, path: str, value: object) -> tuple[KeyKind, str]:
        if path in self.usual:
            return KeyKind.USUAL, self.usual[path]
        if path in self.untold:
            return KeyKind.NOT_EXPRESSIBLE, self.untold[path]
        return (KeyKind.READ, "") if path in self.taken else self.known.kind_of(path, value)


@cache
def known_keys(name: str) -> KnownKeys:
    """The list ``known_keys/NAME.yaml``."""
    content = read_yaml(HOME / f"{name}.yaml")
    kinds = {
        "priced_as_usual": Meaning(KeyKind.USUAL, AS_DESCRIBED),
        "no_effect": Meaning(KeyKind.NO_EFFECT),
        "read": Meaning(KeyKind.READ),
    }
    found = {path: meaning for kind, meaning in kinds.items() for path in content.get(kind, ())}
    for path, entry in content["not_expressible"].items():
        given = entry if isinstance(entry, dict) else {"reason": entry, "unless": ()}
        off = tuple(map(_frozen, given["unless"]))
        found[path] = Meaning(KeyKind.NOT_EXPRESSIBLE, given["reason"], off)
    return KnownKeys(content["program"], str(content["version"]), found)


def flattened(content: Mapping[str, object]) -> dict[str, object]:
    """Every value of nested objects by its path, ``zero_optimization.stage``; an empty object is a
    value.

    Raises:
        InputError: there are more than ``MOST_KEYS``, or they are nested deeper than ``DEEPEST``.
    """
    found = dict[str, object]()
    waiting: list[tuple[str, object, int]] = [("", content, 0)]
    while waiting:
        path, value, depth = waiting.pop()
        if isinstance(value, Mapping) and value:
            inner = [
                (f"{path}.{name}" if path else str(name), each, depth + 1)
                for name, each in value.items()
            ]
            waiting.extend(reversed(inner))
        elif path:
            found[path] = value
        if len(found) + len(waiting) > MOST_KEYS or depth > DEEPEST:
            raise InputError(
                f"it has more than {MOST_KEYS:,} keys or {DEEPEST} levels, far more than any "
                "launch; give a smaller file"
            )
    return found


def is_off(value: object) -> bool:
    """Whether ``value`` turns a key off, or leaves it to the program."""
    return any(_same(value, each) for each in OFF) or value == {}


def shown(value: object) -> str:
    """A value as text of one line, cut where it is long."""
    return clipped(repr(value) if isinstance(value, list | dict) else str(value), LONGEST_VALUE)


def written(value: object) -> str:
    """As ``shown``, a text in quotes: ``"2048"`` is no number."""
    return shown(repr(value) if type(value) is str else value)


def refused(path: str, value: object, taken: str) -> InputError:
    """The refusal of a value at ``path`` in place of which one that is ``taken`` is to be given."""
    return InputError(f"{path} is {written(value)}; give {taken}")


def part(content: Mapping[str, object], name: str, program: str) -> Mapping[str, object]:
    """An object of keys at ``name``; empty where there is none or it is null.

    Raises:
        InputError: there is something else.
    """
    value = content.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError(f"{name} holds {kind_of(value)}; {program} takes an object of keys there")
    return value


def whole(value: object, name: str) -> int | None:
    """A whole number of at least 1; None where it is absent or left to something else (``auto``, 0,
    null).

    Raises:
        InputError: it is another value.
    """
    if value is None or value == "auto" or (value == 0 and not isinstance(value, bool)):
        return None
    if isinstance(value, str) and value.isdecimal() and value.isascii() and len(value) < 10:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} is {shown(repr(value))}; give a whole number of at least 1")
    return value


def truth(value: object, name: str) -> bool:
    """A switch; what is absent or left to something else is off.

    Raises:
        InputError: it is another value.
    """
    if isinstance(value, str) and value.lower() in ("true", "false", "yes", "no"):
        return value.lower() in ("true", "yes")
    if is_off(value):
        return False
    if value is True or (value == 1 and isinstance(value, int)):
        return True
    raise InputError(f"{name} is {shown(repr(value))}; give true or false")


def _names(path: str) -> list[str]:
    """``path`` and the patterns that hold it, the narrowest first."""
    words = path.split(".")
    return [path, *(".".join((*words[:length], "*")) for length in range(len(words) - 1, 0, -1))]


def _same(value: object, other: object) -> bool:
    if isinstance(value, bool) or isinstance(other, bool) or value is None or other is None:
        return value is other
    return _frozen(value) == other


def _frozen(value: object) -> object:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value
