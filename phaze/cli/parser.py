"""How flags are read: a parser that refuses in a sentence, and the flags of a mode, from the
annotated fields of its record. Imports nothing heavy."""

from __future__ import annotations

import argparse
import re
from dataclasses import MISSING, Field, dataclass, fields
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from phaze.cli.help_text import HelpFormatter, described
from phaze.cli.mode import ABOUT, Command, Flag, Mode, SettingFlags, Word
from phaze_common.errors import InputError
from phaze_common.settings import Kind, Setting, SettingTable

CONSTANTS = "constants"
LONGEST_CHOICES = 60  # letters behind a flag, of a line of 80
MANY = 99  # values of a flag that takes any number
_MISSED = re.compile(r"argument (?P<flags>-\S+): expected .*argument")
_FILES = (
    "device",
    "chip",
    "design_space",
    "technology",
    "cluster",
    "software",
    "attention_kernel",
    "prices",
    "setting",
)
_TAKES = {
    **dict.fromkeys(_FILES, "NAME|FILE"),
    **{"model": "NAME", "output": "DIR", "name": "NAME"},
    **{"memory": "KIND:STACKS", "links": "NxGB/s"},
}
_TAKES_OF_KIND = {Kind.INTEGER: "N", Kind.NUMBER: "X", Kind.TEXT: "TEXT", Kind.SWITCH: ""}


@dataclass(frozen=True)
class FlagWords:
    """A flag by all its names, and its known values: at most ``most`` (0: a switch)."""

    names: tuple[str, ...]
    help: str
    values: tuple[str, ...]
    most: int


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
        # of --flag=--, which argparse takes for no value at all
        if words == ["--"] and action.option_strings:
            raise InputError(
                f"{action.option_strings[0]} is '--', which is no value; '{self.prog} --help' "
                "lists what is allowed"
            )
        return super()._get_values(action, words)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As of every parser; the words are kept for a refusal."""
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


def mode_parser(mode: Mode) -> Parser:
    """The command line behind the name of a mode: the flags of its own, then those of all modes."""
    parser = Parser(
        prog=f"phaze {mode.name}",
        usage="\n       ".join(f"phaze {mode.name} {each}" for each in mode.usages) or None,
        description=described(mode.purpose),
        epilog=mode.epilog or None,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    common = {each.name for each in fields(Command)} - {"mode", "settings"}
    types = get_type_hints(mode.command)
    for each in sorted(fields(mode.command), key=lambda each: each.name in common):
        match each.metadata.get(ABOUT):
            case SettingFlags() as flags:
                _add_settings(parser, flags)
            case Word() as word:
                _add_word(parser, each, types[each.name], word)
            case Flag() as flag if mode.tables or each.name != "wide":
                _add_flag(parser, each, types[each.name], flag)
    for name, why in mode.removed.items():
        parser.add_argument(name, action=RemovedFlag, why=why)
    return parser


def _add_word(parser: Parser, field: Field[Any], value_type: Any, word: Word) -> None:
    optional = field.default is not MISSING
    if get_origin(value_type) is tuple:
        parser.add_argument(
            field.name, nargs="*" if optional else "+", metavar=word.takes, help=word.help
        )
    else:
        parser.add_argument(
            field.name,
            nargs="?" if optional else None,
            default=field.default if optional else None,
            type=_reader(value_type),
            metavar=word.takes,
            help=word.help,
        )


def _add_flag(parser: Parser, field: Field[Any], value_type: Any, flag: Flag) -> None:
    names = flag.names or (f"--{field.name.replace('_', '-')}",)
    item = next((each for each in get_args(value_type) if each is not NoneType), value_type)
    if value_type is bool:
        parser.add_argument(*names, dest=field.name, action="store_true", help=flag.help)
        return
    taken: dict[str, Any] = {
        "metavar": flag.takes or {int: "N", float: "X"}.get(item),
        "type": flag.read or _reader(item),
    }
    literal = value_type if get_origin(value_type) is Literal else item
    if get_origin(literal) is Literal:
        taken = {"choices": get_args(literal)}
    if get_origin(value_type) is tuple:
        taken |= {"nargs": "*"} if flag.listed else {"action": "append"}
    repeated = taken.get("action") == "append"
    parser.add_argument(
        *names,
        dest=field.name,
        required=field.default is MISSING,
        default=argparse.SUPPRESS if repeated or field.default is MISSING else field.default,
        help=flag.help,
        **taken,
    )


def _reader(item: Any) -> Any:
    """What makes a value of a text; a path is one of something."""
    return _file if Path in {item, *get_args(item)} else item if item in {int, float} else None


def _file(text: str) -> Path:
    if not text.strip():
        raise argparse.ArgumentTypeError("no file is named; give the path of one")
    return Path(text)


def _add_settings(parser: Parser, flags: SettingFlags) -> None:
    table = flags.table()
    settings = {each.key: each for each in table.settings if each.key != flags.without}
    if flags.only is not None:
        for key, help_text in flags.only.items():
            _add_setting(parser, table, settings[key], help_text)
    else:
        for title, keys in flags.groups().items():
            group = parser.add_argument_group(title)
            for key in keys:
                if key in settings:
                    _add_setting(group, table, settings[key])
    if not flags.only:
        parser.add_argument(
            "--set",
            action=SetAction,
            table=table,
            default=argparse.SUPPRESS,
            metavar="KEY=VALUE",
            help="a setting by its key, value in YAML; may be repeated",
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
    takes = shown or _TAKES.get(setting.key) or _TAKES_OF_KIND[setting.kind]
    arity: dict[str, Any] = {"metavar": takes + (" [UNIT]" if setting.unit else "")}
    if setting.kind is Kind.SWITCH:
        arity = {"nargs": "*" if setting.many else "?", "const": True, "metavar": "true|false"}
    elif setting.many or setting.unit:
        arity["nargs"] = "+"
    group.add_argument(
        *setting.flags,
        dest=setting.key,
        action=GiveAction,
        table=table,
        default=argparse.SUPPRESS,
        help=(help_text or setting.help) + listed,
        single=not setting.many,
        **arity,
    )


def _words_of(action: argparse.Action) -> FlagWords:
    most = {0: 0, None: 1, "?": 1}.get(action.nargs, MANY)
    values = tuple(map(str, action.choices or ()))
    if isinstance(action, GiveAction):
        setting = next((each for each in action.table.settings if each.key == action.dest), None)
        if setting is not None:
            values = ("true", "false") if setting.kind is Kind.SWITCH else setting.choices
            values += ("all",) if setting.takes_all and values else ()
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


class GiveAction(argparse.Action):
    """Put the value of a setting of ``table``, whose key is ``dest``, over an earlier one.

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
        """Put one; a switch alone is true."""
        self.give(options, {self.dest: True if values == [] else values})

    def give(self, options: argparse.Namespace, given: dict[str, object]) -> None:
        """Put settings over those given so far."""
        options.settings = vars(options).get("settings", {}) | given


class SetAction(GiveAction):
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
            before = vars(options).get("settings", {}).get(CONSTANTS, [])
            stated = before if isinstance(before, list) else [before]
            self.give(options, {CONSTANTS: [*stated, f"{key.strip()}={text}"]})
            return
        value = parse_yaml(text, f"the value in --set {values!r}")
        self.give(options, self.table.canonical({key.strip(): value}, "--set"))
