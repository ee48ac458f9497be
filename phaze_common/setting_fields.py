"""Fields of records that are settings, and the flags, keys and checks that follow from them.

A field is a setting where its metadata hold an ``About``. The field's type says how values are
read: numbers, texts, names of an enumeration, switches, tuples of them where several may be given.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum, StrEnum, auto
from functools import partial
from typing import Any, Union, get_args, get_origin

from phaze_common.setting_values import Kind, Setting, Written
from phaze_common.settings import SettingTable

ABOUT = "about"  # in the metadata of a field


class Mode(Enum):
    """What is done with a request."""

    # the best of a space; also its graphs and estimates alone, and every point of a sweep
    SEARCH = auto()
    EVALUATE = auto()  # one plan is priced


class Hardware(Enum):
    """What a setting is about where it is not about every kind of hardware."""

    CHIPS = auto()  # to design
    DEVICES = auto()  # that exist


BOTH = frozenset(Mode)
SEARCH = frozenset({Mode.SEARCH})
EVALUATE = frozenset({Mode.EVALUATE})


@dataclass(frozen=True)
class Shorthand:
    """Another way to give the values of a setting, which excludes it: ``max_tp`` for ``tp``."""

    key: str
    kind: Kind
    help: str
    aliases: tuple[str, ...] = ()
    most: float = 2**30
    modes: frozenset[Mode] = BOTH


@dataclass(frozen=True)
class About:
    """A setting, beside its name and type. ``key`` is its name for users where that is not the
    field's.

    ``default`` says in words what holds where it is not given, ``evaluated`` the same where one
    plan is priced (if that differs). ``modes`` take it, ``lists`` of them several values (of a
    tuple), ``takes_all`` the word ``all`` too. It ``decides`` where it can change the answer; a
    ``file`` setting may name a YAML file. Choices ``of_a_search`` stand for many values, which only
    a search takes. Bounds and ``unit`` as in ``phaze_common.settings.Setting``.
    """

    help: str
    default: str = ""
    evaluated: str = ""
    key: str = ""
    aliases: tuple[str, ...] = ()
    least: float = 1
    most: float = 2**30
    repeats: bool = False
    takes_all: bool = False
    modes: frozenset[Mode] = BOTH
    lists: frozenset[Mode] = SEARCH
    hardware: Hardware | None = None
    decides: bool = True
    file: bool = False
    unit: str = ""
    shorthand: Shorthand | None = None
    of_a_search: frozenset[str] = frozenset()


class Decides(StrEnum):
    """What a value of an axis of plans decides first; it decides the others, too."""

    GRAPH = "the graph of a layer on one device"
    LAYER_COSTS = "what a layer costs"
    PLAN = "what a plan makes of its layers"


@dataclass(frozen=True)
class Axis(About):
    """A setting that is an axis of plans, beside its name and the type of a value in a plan.

    ``title`` names it in tables and figures, ``glossary`` is added where its key is explained.
    ``values`` is the type of the field in a request (left out: a tuple of what one plan holds),
    ``usual`` its default there (``...``: what ``phaze.settings.defaults`` finds). ``attribute`` is
    what a plan calls it, where that is not the key. Axes that are ``compared`` are told apart by
    results of searches: their values are chosen, and can be asked. Those ``of_framework`` are as
    the framework does them where nothing is stated. A ``feature`` can have another value while
    degrees, batches and stages stay as they are; one that ``rounds`` changes number formats, too,
    and so what is learned. ``phrase`` is what sentences say of a plan with
    another value (``{}``) than a plan has by itself; nothing where the degree ``of_degree`` is 1.
    """

    title: str = ""
    glossary: str = ""
    decides_first: Decides = Decides.PLAN
    compared: bool = False
    values: Any = None
    usual: Any = ...
    attribute: str = ""
    of_framework: bool = False
    feature: bool = False
    rounds: bool = False
    of_degree: str = ""
    phrase: str = ""


@dataclass(frozen=True)
class SettingField:
    """A field that is a setting. ``item`` is the type of a value, of each where it ``holds_many``.

    Where it is an enumeration, values that are none of its names may be of the type ``other``.
    """

    name: str
    type: Any
    about: About
    item: Any
    holds_many: bool
    other: type[Written] | None = None

    @property
    def key(self) -> str:
        """Name of the setting in YAML files and, with hyphens, as a flag."""
        return self.about.key or self.name

    def setting(self, mode: Mode) -> Setting:
        """The setting as a mode takes it."""
        about = self.about
        many = self.holds_many and mode in about.lists
        everything = ", 'all' for every possible one" if many and about.takes_all else ""
        default = about.evaluated if mode is Mode.EVALUATE and about.evaluated else about.default
        return Setting(
            self.key,
            KINDS.get(self.item, Kind.CHOICE if issubclass(self.item, StrEnum) else Kind.TEXT),
            f"{about.help}{everything}" + (f" (default {default})" if default else ""),
            about.aliases,
            many=many,
            repeats=about.repeats,
            takes_all=about.takes_all and many,
            names=self.item if issubclass(self.item, StrEnum) else None,
            left_out=frozenset() if many else about.of_a_search,
            other=self.other,
            least=about.least,
            most=about.most,
            unit=about.unit,
        )


KINDS = {int: Kind.INTEGER, float: Kind.NUMBER, bool: Kind.SWITCH}


def option_field(default: Any, about: About) -> Any:
    """A field of a record that is a setting; ``...``: it has no default."""
    return field(default=MISSING if default is ... else default, metadata={ABOUT: about})


def option(
    default: Any, help_text: str, default_text: str = "", evaluated: str = "", **others: Any
) -> Any:
    """As ``option_field``, of an ``About`` of these."""
    return option_field(default, About(help_text, default_text, evaluated, **others))


chip_option = partial(option, hardware=Hardware.CHIPS)
device_option = partial(option, hardware=Hardware.DEVICES)
search_option = partial(option, modes=SEARCH)
chip_search_option = partial(chip_option, modes=SEARCH)


def setting_fields(record: type[Any]) -> tuple[SettingField, ...]:
    """The settings among the fields of ``record``, whose types must be objects, not texts."""
    return tuple(
        setting_field(each.name, each.type, each.metadata[ABOUT])
        for each in fields(record)
        if ABOUT in each.metadata
    )


def setting_field(name: str, hint: Any, about: About) -> SettingField:
    """The setting ``name`` of a field of that type."""
    value_type = hint
    if get_origin(hint) in {Union, types.UnionType}:
        (value_type,) = (each for each in get_args(hint) if each is not types.NoneType)
    many = get_origin(value_type) is tuple
    items = get_args(get_args(value_type)[0]) or get_args(value_type)[:1] if many else (value_type,)
    return SettingField(name, hint, about, items[0], many, items[1] if len(items) > 1 else None)


def settings_of(stated: Iterable[SettingField], mode: Mode) -> SettingTable:
    """Those settings that a mode takes, in the order of the fields."""
    settings: list[Setting] = []
    rivals: list[frozenset[str]] = []
    for each in stated:
        if mode not in each.about.modes:
            continue
        settings.append(each.setting(mode))
        short = each.about.shorthand
        if short is not None and mode in short.modes:
            settings.append(
                Setting(short.key, short.kind, short.help, short.aliases, most=short.most)
            )
            rivals.append(frozenset({each.key, short.key}))
    return SettingTable(tuple(settings), rivals=tuple(rivals))
