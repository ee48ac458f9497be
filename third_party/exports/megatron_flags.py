"""Flags of a command or bash script: what stands behind them, with variables put in."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import groupby

from Common.errors import InputError

NEARLY = 0.93  # of the letters of two names are the same, where one is the other misspelt
DEPTH = 10  # of variables that name others
MOST = 100_000  # characters of a word with variables put in
_ASSIGNED = re.compile(r"(?:export\s+|local\s+|readonly\s+)*([A-Za-z_]\w*)=(.*)", re.DOTALL)
_USED = re.compile(r"\$\{([A-Za-z_]\w*)(?::?-([^}]*))?\}|\$([A-Za-z_]\w*)")
_CONTINUED = re.compile(r"\\\n")


@dataclass(frozen=True)
class Flags:
    """Flags of a command by name without dashes, with what follows each; the last of several holds, as in Megatron-LM.

    ``asked`` are the names that somebody looked for.
    """

    values: Mapping[str, tuple[str, ...]]
    asked: set[str] = field(default_factory=set)

    def check_spelling(self) -> None:
        """Refuse a flag that nobody looked for and whose name is nearly that of one that was.

        Raises:
            InputError: says which it may have been.
        """
        for name in self.values.keys() - self.asked:
            near = get_close_matches(name, self.asked - self.values.keys(), 1, NEARLY)
            if near:
                raise InputError(f"--{name} is no flag that is read; did you mean --{near[0]}? Correct it or leave it out")

    def has(self, *names: str) -> bool:
        """Whether one of them is given."""
        self.asked.update(names)
        return any(name in self.values for name in names)

    def text(self, name: str, default: str = "") -> str:
        """What follows a flag; the first word of several.

        Raises:
            InputError: nothing follows it.
        """
        self.asked.add(name)
        if name not in self.values:
            return default
        if not self.values[name]:
            raise InputError(f"--{name} of the Megatron-LM command has no value; give one")
        return self.values[name][0]

    def number(self, name: str, default: int | None = None) -> int:
        """The whole number behind a flag.

        Raises:
            InputError: it is missing and has no default, or is no positive whole number.
        """
        text = self.text(name)
        if not text and default is not None:
            return default
        if not text:
            raise InputError(f"the Megatron-LM command has no --{name}; add it")
        if not re.fullmatch(r"[0-9]{1,12}", text) or int(text) < 1:
            raise InputError(
                f"--{name} of the Megatron-LM command is {text!r:.60}; give a positive whole number, or set the variable in it"
            )
        return int(text)


def flags_of(text: str) -> tuple[Flags, Mapping[str, str]]:
    """Flags of ``text`` and variables that it assigns."""
    words, variables = _words(text)
    values: dict[str, tuple[str, ...]] = {}
    for is_flag, run in groupby(words, key=lambda word: word.startswith("--") and len(word) > 2):
        following = tuple(run)
        if is_flag:
            for word in following:
                name, equals, value = word[2:].partition("=")
                values[name] = (value,) if equals else ()
            last = following[-1][2:]
        elif values and "=" not in last:
            values[last] = following
    return Flags(values), variables


def _words(text: str) -> tuple[list[str], dict[str, str]]:
    """Words of a script with variables put in, texts that hold several flags taken apart; and the variables."""
    variables: dict[str, str] = {}
    words: list[str] = []
    for word in _lexed(_CONTINUED.sub(" ", text)):
        assigned = _ASSIGNED.fullmatch(word)
        if assigned is None:
            words += _put_in(word, variables)
            continue
        name, value = assigned[1], assigned[2]
        variables[name] = " ".join(_put_in(value, variables))
        if variables[name].lstrip().startswith("--"):
            words += _put_in(value, variables)
    return [word for word in words if word not in ("(", ")", "=(")], variables


def _lexed(text: str) -> Iterator[str]:
    """Words of bash as far as flags go: quotes and comments are known, a quote that does not end ends with its line."""
    for line in _statements(text):
        try:
            yield from shlex.split(line, comments=True)
        except ValueError:
            yield from line.split("#")[0].split()


def _statements(text: str) -> Iterator[str]:
    """Lines, those joined that a quote spans."""
    held = ""
    for line in text.splitlines():
        held = f"{held}\n{line}" if held else line
        try:
            shlex.split(held, comments=True)
        except ValueError:
            continue
        yield held
        held = ""
    yield from held.splitlines()


def _put_in(word: str, variables: Mapping[str, str]) -> list[str]:
    """A word with variables in it put in; several words where that makes several flags."""
    for _ in range(DEPTH):
        made = _USED.sub(lambda used: variables.get(used[1] or used[3], used[2] if used[2] is not None else used[0]), word)
        if made == word or len(made) > MOST:
            break
        word = made
    return word.split() if "--" in word and len(word.split()) > 1 else [word]
