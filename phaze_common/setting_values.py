"""What a setting takes, and its value as text or YAML gives it: read, checked, and refused with
what is allowed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from fractions import Fraction
from numbers import Integral, Real
from pathlib import Path
from typing import ClassVar, Protocol

from phaze_common.echo import as_given, breaks_line, on_one_line
from phaze_common.errors import InputError
from phaze_common.quantities import QuantityError, in_unit

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
# without a unit
_NUMBER = re.compile(r"\s*[+-]?([0-9.]+(e[+-]?[0-9]+)?|inf|infinity|nan)\s*", re.IGNORECASE)
_SEPARATORS = re.compile(r"[\s,]+")
_BETWEEN_QUANTITIES = re.compile(r"[\s,]+(?![^\W\d]|%)")  # a unit belongs to the number before it
_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")
COMMAND_LINE = "command line"  # as a source of settings
_LONGEST_NUMBER = 10**40  # that is a word
# which are shown to nobody but the user, who is told more of them by ``phaze.settings.folders``
_PLACES = frozenset({"output"})
LONGEST_ECHO = 80  # characters of a value in a refusal
ALL = "all"  # in place of a list: every value that is possible


class Kind(Enum):
    """How the value of a setting is read."""

    INTEGER = auto()
    NUMBER = auto()
    CHOICE = auto()
    TEXT = auto()
    SWITCH = auto()


@dataclass(frozen=True)
class Form:
    """Texts that match ``pattern``, such as ``example``, which are ``what``."""

    pattern: re.Pattern[str]
    what: str
    example: str


class Written(Protocol):
    """A value with a text of its own."""

    FORM: ClassVar[Form]

    @staticmethod
    def parsed(text: str) -> Written:
        """The value of a text of that form."""


@dataclass(frozen=True)
class Setting:
    """One thing a user may ask for.

    ``key`` is the name in YAML files and, with hyphens, the flag; ``aliases`` are further names of
    both, the original's among them. ``many`` settings take a list, in which a value may stand twice
    if it ``repeats``, and the word ``all`` where it ``takes_all``; others take a list of one for
    its value. Numbers lie within ``least`` .. ``most``, choices among ``names``, but for those
    ``left_out``, or are texts of an ``other`` type. Numbers count ``unit``s where there is one; a
    text may say the same in another: ``80 GB``.
    """

    key: str
    kind: Kind
    help: str
    aliases: tuple[str, ...] = ()
    many: bool = False
    repeats: bool = False
    takes_all: bool = False
    names: type[StrEnum] | None = None
    left_out: frozenset[str] = frozenset()
    other: type[Written] | None = None
    least: float = 1
    most: float = 2**30
    unit: str = ""

    @property
    def choices(self) -> tuple[str, ...]:
        """The names that it takes, of a choice."""
        return tuple(each.value for each in self.names or () if each not in self.left_out)

    @property
    def flags(self) -> tuple[str, ...]:
        """Command-line names: new ones with hyphens, the original's as they were."""
        names = (self.key, *self.aliases)
        return tuple(
            dict.fromkeys(
                f"--{name if _is_original(name) else name.replace('_', '-')}" for name in names
            )
        )


def _is_original(name: str) -> bool:
    return name.startswith("phaze_") or name == "force_reextract_model"


def shown(key: str, source: str) -> str:
    """A setting in refusals: by its flag where that was typed, else by its key."""
    return f"--{key.replace('_', '-')}" if source == COMMAND_LINE else key


def read_value(setting: Setting, value: object, source: str) -> object:
    """The value of a setting: int, float, str, bool, a name of an enumeration or what a text of
    another type says, a tuple of them, or ``ALL``.

    Raises:
        InputError: it is not what the setting takes; names ``source`` and says what is allowed.
    """
    name = shown(setting.key, source)
    try:
        if not setting.many:
            return _READERS[setting.kind](setting, _alone(value, setting))
        if setting.takes_all and _says_all(value):
            return ALL
        listed = _listed(value, setting)
        if setting.takes_all and any(_says_all(item) for item in listed):
            raise InputError(
                f"{source}: {name} lists {ALL!r} beside other values; give it alone, or leave it "
                "out"
            )
        items = tuple(_READERS[setting.kind](setting, item) for item in listed)
        if not items:
            raise _NotAllowedError(
                "",
                f"one of {', '.join(setting.choices)}"
                if setting.choices
                else _ONE_AT_LEAST[setting.kind],
            )
    except _NotAllowedError as problem:
        raise InputError(
            f"{source}: {name} is {_echo(problem.given)}{problem.link} {problem.allowed}"
        ) from problem
    if not setting.repeats and len(set(items)) < len(items):
        twice = next(item for item in items if items.count(item) > 1)
        raise InputError(f"{source}: {name} lists {twice} twice; list every value once")
    return items


def _echo(given: object) -> str:
    if isinstance(given, Mapping):
        text = (
            "{"
            + ", ".join(f"{on_one_line(str(key))}: {_echo(value)}" for key, value in given.items())
            + "}"
        )
    else:
        text = "empty" if isinstance(given, str) and not given.strip() else as_given(given)
    return text if len(text) <= LONGEST_ECHO else text[: LONGEST_ECHO - 3] + "..."


def _alone(value: object, setting: Setting) -> object:
    """The value in a list of one, and in one of a number and its unit."""
    if not isinstance(value, list | tuple):
        return value
    if setting.unit and value and all(isinstance(part, str) for part in value):
        return " ".join(value)
    return value[0] if len(value) == 1 else value


def _says_all(value: object) -> bool:
    word = value[0] if isinstance(value, list | tuple) and len(value) == 1 else value
    return isinstance(word, str) and word.strip().lower() == ALL


class _NotAllowedError(ValueError):
    """``given`` is not what a setting takes, which is ``allowed``; ``link`` stands between them."""

    def __init__(self, given: object, allowed: str, link: str = ", but must be") -> None:
        super().__init__(given, allowed, link)
        self.given = given
        self.allowed = allowed
        self.link = link


def _listed(value: object, setting: Setting) -> list[object]:
    if isinstance(value, str):
        if setting.kind is Kind.TEXT and _names_file(value):
            return [value]
        if setting.unit:
            return [item for item in _BETWEEN_QUANTITIES.split(value.strip()) if item]
        # dimensions have commas
        words = (word if ":" in word else _SEPARATORS.sub(" ", word) for word in value.split())
        return [item for word in words for item in word.split()]
    if isinstance(value, Mapping) and setting.kind is Kind.TEXT:  # models and their weights
        return [f"{name}={weight}" for name, weight in value.items()]
    if isinstance(value, list | tuple):
        if setting.unit and value and all(isinstance(part, str) for part in value):
            return _listed(" ".join(value), setting)  # of a flag: 64 GiB 80 GB
        return [
            item
            for part in value
            for item in (_listed(part, setting) if isinstance(part, str) else [part])
        ]
    return [value]


def _names_file(text: str) -> bool:
    """Whether a text, or what is before its last equals sign, is an existing path."""
    if "/" not in text and "." not in text:
        return False
    try:
        return any(
            Path(path).expanduser().is_file() for path in (text, text.rpartition("=")[0]) if path
        )
    except (OSError, ValueError, RuntimeError):  # nothing the file system knows
        return False


def _integer(setting: Setting, value: object) -> int:
    whole = isinstance(value, str) and _INTEGER.fullmatch(value.strip())
    number = int(str(value)) if whole else _measured(setting, value)
    if isinstance(number, Fraction) and number.denominator == 1:
        number = number.numerator
    if not isinstance(number, bool) and isinstance(number, Integral):  # numpy's too
        number = int(number)
    if (
        isinstance(number, bool)
        or not isinstance(number, int)
        or not setting.least <= number <= setting.most
    ):
        raise _NotAllowedError(value, f"a whole number {_range(setting)}")
    return number


def _number(setting: Setting, value: object) -> float:
    measured = _measured(setting, value)
    try:
        if not isinstance(measured, bool) and isinstance(measured, str | Real):
            number = float(measured)
        else:
            number = math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not setting.least <= number <= setting.most:
        raise _NotAllowedError(value, f"a number {_range(setting)}")
    return number


def _measured(setting: Setting, value: object) -> object:
    """What a text with a unit says in the unit of the setting; all else as it is."""
    if (
        not setting.unit
        or not isinstance(value, str)
        or not value.strip()
        or _NUMBER.fullmatch(value)
    ):
        return value
    try:
        return in_unit(value, setting.unit)
    except QuantityError as error:
        raise _NotAllowedError(value, str(error), "; it is") from error


def _range(setting: Setting) -> str:
    return f"from {setting.least:.10g} to {setting.most:.0f} {setting.unit}".rstrip()


def _word(value: object) -> str:
    """A word or a number as text; nothing of what is neither, or too long to be shown."""
    if isinstance(value, int) and abs(value) > _LONGEST_NUMBER:
        return ""
    return str(value).strip() if isinstance(value, str | int | float) else ""


def _choice(setting: Setting, value: object) -> object:
    text = _word(value).lower()
    if setting.names is not None and text in setting.choices:
        return setting.names(text)
    other = setting.other
    if other is not None and isinstance(value, other):
        return value  # as it was read before
    if other is None or not other.FORM.pattern.fullmatch(text):
        others = "" if other is None else f", or {other.FORM.what}, such as {other.FORM.example}"
        raise _NotAllowedError(value, f"one of {', '.join(setting.choices)}{others}")
    return other.parsed(text)


def _text(setting: Setting, value: object) -> str:
    text = "" if isinstance(value, bool) else _word(value)
    if not text or "\0" in text:
        raise _NotAllowedError(value, "a non-empty text")
    if breaks_line(text) and setting.key not in _PLACES:
        raise _NotAllowedError(value, "a text on one line")
    return text


def _switch(setting: Setting, value: object) -> bool:
    text = _word(value).lower()
    if text not in _TRUE + _FALSE:
        raise _NotAllowedError(value, "true or false")
    return text in _TRUE


_ONE_AT_LEAST = {
    Kind.INTEGER: "at least one whole number",
    Kind.NUMBER: "at least one number",
    Kind.TEXT: "at least one name",
    Kind.SWITCH: "true or false",
}
_READERS: Mapping[Kind, Callable[[Setting, object], object]] = {
    Kind.INTEGER: _integer,
    Kind.NUMBER: _number,
    Kind.CHOICE: _choice,
    Kind.TEXT: _text,
    Kind.SWITCH: _switch,
}
