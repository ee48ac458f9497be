"""What each argument of Megatron-LM's command line is to a price: read from
``megatron_keys.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path

from phaze.exports.given_keys import Meaning
from phaze.exports.near_names import near_name
from phaze.settings.launched import KeyKind
from phaze_common.yaml_files import read_yaml

MOST_VALUES = 10_000  # behind one argument


@dataclass(frozen=True)
class Known:
    """Meanings by name, those by the patterns of names, and sizes of vocabularies by a part of a
    tokenizer's name."""

    names: Mapping[str, Meaning]
    patterns: Mapping[str, Meaning]
    tokenizers: Mapping[str, int]

    def meaning(self, name: str) -> Meaning:
        """That of an argument by its name without dashes before it."""
        plain = name.replace("_", "-")
        for each in (name, plain):
            if each in self.names:
                return self.names[each]
        patterns = (each for each in self.patterns if fnmatchcase(plain, each))
        pattern = next(patterns, None)  # the first of several counts
        return Meaning(KeyKind.UNKNOWN) if pattern is None else self.patterns[pattern]

    def is_known(self, name: str) -> bool:
        """Whether anything is known of an argument."""
        return self.meaning(name).kind is not KeyKind.UNKNOWN

    def near(self, name: str) -> str | None:
        """The argument that ``name`` is, misspelt; None where it is one itself, or near none."""
        plain, kind = name.replace("_", "-"), self.meaning(name).kind
        if {name, plain} & self.names.keys() or values_of(plain) is not None:
            return None
        if kind is KeyKind.UNKNOWN:
            return near_name(plain, self.read)
        if kind is not KeyKind.USUAL and not plain.startswith("moe-"):
            return None
        return near_name(plain, self.names.keys() | _taken_values().keys())

    @cached_property
    def read(self) -> frozenset[str]:
        """Names of the arguments that are read."""
        return frozenset(
            name for name, meaning in self.names.items() if meaning.kind is KeyKind.READ
        )


@cache
def known_arguments() -> Known:
    """The classification that this package holds."""
    document = read_yaml(Path(__file__).with_name("megatron_keys.yaml"))
    every = {name: Meaning(KeyKind.READ) for name in document["read"]}
    for name, entry in document["not_expressible"].items():
        unless = tuple(entry.get("unless", ()))
        every[name] = Meaning(KeyKind.NOT_EXPRESSIBLE, entry["changes"], unless)
    for key, kind in (("priced_as_usual", KeyKind.USUAL), ("no_effect", KeyKind.NO_EFFECT)):
        for reason, names in document[key].items():
            for name in names:
                every.setdefault(name, Meaning(kind, reason))
    patterns = {name: meaning for name, meaning in every.items() if "*" in name}
    return Known(
        {name: each for name, each in every.items() if name not in patterns},
        patterns,
        document["tokenizers"],
    )


def values_of(name: str) -> int | None:
    """How many values an argument of Megatron-LM takes; the most that any does of those that take
    some; None of other names."""
    takes = _taken_values().get(name)
    return MOST_VALUES if isinstance(takes, str) else takes


@cache
def _taken_values() -> Mapping[str, int | str]:
    arguments = read_yaml(Path(__file__).with_name("megatron_arguments.yaml"))["arguments"]
    return {name: entry["takes"] for name, entry in arguments.items()}
