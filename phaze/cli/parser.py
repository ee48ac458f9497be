"""How flags are read: a parser that refuses in a sentence, and settings of a table as flags.
Imports nothing heavy."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NoReturn

from phaze.cli.names import MODES
from phaze.settings.request import setting_groups, settings_for
from phaze_common.errors import InputError
from phaze_common.settings import Kind, Setting, SettingTable
from phaze_common.stated_fields import Mode

CONSTANTS = "constants"
LONGEST_CHOICES = 60  # letters behind a flag, of a line of 80
_MISSED = re.compile(r"argument (?P<flags>-\S+): expected .*argument")
MANY = 99  # values of a flag that takes any number
_NAMED = (
    {"model": "NAME", "output": "DIR", "name": "NAME"}
    | {"memory": "KIND:STACKS", "links": "NxGB/s"}
    | dict.fromkeys(
        (
            "device",
            "chip",
            "design_space",
            "technology",
            "cluster",
            "software",
            "prices",
            "setting",
        ),
        "NAME|FILE",
    )
)
_METAVARS = {Kind.INTEGER: "N", Kind.NUMBER: "X", Kind.TEXT: "TEXT", Kind.SWITCH: ""}


@dataclass(frozen=True)
class FlagWords:
    """A flag by all its names, and the values it can take where these are known: at most ``most``
    (0: a switch)."""

    names: tuple[str, ...]
    help: str
    values: tuple[str, ...]
    most: int

    def with_values(self, values: tuple[str, ...]) -> FlagWords:
        """The same flag with other values."""
        return replace(self, values=values)


class Parser(argparse.ArgumentParser):
    """Refuses with an ``InputError``."""

    _typed: tuple[str, ...] = ()

    def flag_words(self) -> list[FlagWords]:
        """Flags as a shell completes them."""
        return [_words_of(action) for action in self._offered() if action.option_strings]

    @property
    def takes_words(self) -> bool:
        """Whether words that belong to no flag are allowed."""
        return any(not action.option_strings for action in self._actions)

    @property
    def flags(self) -> list[str]:
        """Long names of all flags but those that are gone."""
        names = (name for action in self._offered() for name in action.option_strings)
        return [name for name in names if name.startswith("--")]

    def _offered(self) -> list[argparse.Action]:
        return [each for each in self._actions if not isinstance(each, RemovedFlag)]

    def _get_values(self, action: argparse.Action, words: list[str]) -> Any:
        if (
            words == ["--"] and action.option_strings
        ):  # of --flag=--, which argparse takes for no value at all
            raise InputError(
                f"{action.option_strings[0]} is '--', which is no value; '{self.prog} --help' "
                "lists what is allowed"
            )
        return super()._get_values(action, words)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As of every parser; the words are kept for a refusal, which argparse does not tell
        them."""
        self._typed = () if args is None else tuple(args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Refuse."""
        raise InputError(
            f"{self._dashed(message) or message}; '{self.prog} --help' lists what is allowed"
        )

    def _dashed(self, message: str) -> str:
        """What is wrong where ``message`` misses the value of a flag, and a word behind that begins
        with a dash is no flag."""
        missed = _MISSED.match(message)
        flags = () if missed is None else missed["flags"].split("/")
        for flag, value in pairwise(self._typed):
            known = value.partition("=")[0] in self._option_string_actions
            if flag in flags and value.startswith("-") and value.strip("-") and not known:
                given = (
                    f"{flag} is followed by {value!r:.100}, which begins with a dash and so "
                    "is taken for a flag"
                )
                return f"{given}; if it is the value, write {flag}={value:.100}"
        return ""


def add_table(
    parser: Parser, table: SettingTable, groups: Mapping[str, Sequence[str]] | None = None
) -> None:
    """Add the settings of ``table`` as flags, by group, and ``--set``, which takes any of them."""
    for title, keys in (groups or setting_groups()).items():
        group = parser.add_argument_group(title)
        for setting in sorted(
            (each for each in table.settings if each.key in keys),
            key=lambda each: keys.index(each.key),
        ):
            _add_setting(group, table, setting)
    parser.add_argument(
        "--set",
        action=SetAction,
        table=table,
        metavar="KEY=VALUE",
        help="a setting by its key, value in YAML; may be repeated",
    )


def add_one(parser: Parser, mode: Mode, key: str, help_text: str | None = None) -> None:
    """A single setting of a mode, with what it means elsewhere."""
    table = settings_for(mode)
    _add_setting(
        parser, table, next(setting for setting in table.settings if setting.key == key), help_text
    )


def _add_setting(
    group: argparse._ActionsContainer,
    table: SettingTable,
    setting: Setting,
    help_text: str | None = None,
) -> None:
    shown, listed = "|".join(setting.choices), ""
    if len(shown) > LONGEST_CHOICES:
        shown, listed = "NAME", f"; one of {', '.join(setting.choices)}"
    metavar = shown or _NAMED.get(setting.key, _METAVARS[setting.kind])
    metavar += " [UNIT]" if setting.unit else ""
    arity: dict[str, Any] = {"metavar": metavar}
    if setting.kind is Kind.SWITCH:
        arity = {"nargs": "*" if setting.many else "?", "const": True, "metavar": "true|false"}
    elif setting.many or setting.unit:
        arity["nargs"] = "+"
    group.add_argument(
        *setting.flags,
        dest=setting.key,
        action=_Give,
        table=table,
        default=argparse.SUPPRESS,
        help=(help_text or setting.help) + listed,
        single=not setting.many,
        **arity,
    )


def _words_of(action: argparse.Action) -> FlagWords:
    most = {0: 0, None: 1, "?": 1}.get(action.nargs, MANY)
    values = tuple(map(str, action.choices or ()))
    if isinstance(action, _Give):
        setting = next((each for each in action.table.settings if each.key == action.dest), None)
        if setting is not None:
            values = ("true", "false") if setting.kind is Kind.SWITCH else setting.choices
            values += ("all",) if setting.takes_all and values else ()
    elif action.dest == "mode":
        values = tuple(MODES)
    return FlagWords(tuple(action.option_strings), action.help or "", values, most)


class RemovedFlag(argparse.Action):
    """A flag of earlier versions, which help does not show: refused with the reason ``why``."""

    def __init__(self, option_strings: list[str], dest: str, *, why: str) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=argparse.SUPPRESS)
        self.why = why

    def __call__(
        self, parser: object, namespace: object, values: object, flag: object = ""
    ) -> None:
        """Refuse."""
        raise InputError(f"{flag} is gone: {self.why}")


class _Give(argparse.Action):
    """Put the value of a setting of ``table`` among those given, replacing an earlier one: ``dest``
    is the setting's key.

    Rivals of it stay too: that somebody typed both is for whoever reads the settings to refuse.
    """

    def __init__(
        self,
        option_strings: list[str],
        dest: str,
        *,
        table: SettingTable,
        single: bool = False,
        **others: Any,
    ) -> None:
        super().__init__(option_strings, dest, **others)
        self.table = table
        self.single = single

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        options: argparse.Namespace,
        values: Any,
        option: str | None = None,
    ) -> None:
        self.give(options, {self.dest: True if values == [] else values})  # a switch alone

    def give(self, options: argparse.Namespace, given: dict[str, object]) -> None:
        """Put settings over those given so far."""
        options.given = vars(options).get("given", {}) | given


class SetAction(_Give):
    """Put ``key=value`` among the settings given, the value read as YAML."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        options: argparse.Namespace,
        values: Any,
        option: str | None = None,
    ) -> None:
        """Read one."""
        from phaze_common.records import parse_yaml

        key, equals, text = values.partition("=")
        if not equals:
            raise InputError(
                f"--set {values!r} has no '='; write --set key=value, for instance --set "
                "micro_batch_size=2"
            )
        if "." in key:  # a constant, of which there may be several
            before = vars(options).get("given", {}).get(CONSTANTS, [])
            stated = before if isinstance(before, list) else [before]
            self.give(options, {CONSTANTS: [*stated, f"{key.strip()}={text}"]})
            return
        value = parse_yaml(text, f"the value in --set {values!r}")
        self.give(options, self.table.canonical({key.strip(): value}, "--set"))
