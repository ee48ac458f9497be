"""Conditions of a bash script, as far as values of variables decide them."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from phaze.exports.bash.variables import MAYBE, Variables
from phaze.exports.bash.words import Operator, PartKind, Token, Word

FROM_OUTSIDE = re.compile(
    r"(SLURM|PBS|LSB|OMPI|PMI|MASTER|RANK|LOCAL_RANK|NODE|WORLD_SIZE|HOST|USER|HOME|PWD|PATH)\w*"
)
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-le": operator.le,
    "-gt": operator.gt,
    "-ge": operator.ge,
}


@dataclass
class Conditions(Variables):
    """Variables, and what tests of them come to; ``assumed`` are those that tests took as not
    set."""

    assumed: dict[str, None] = field(default_factory=dict)
    open_test: bool = False  # [[ without its ]], which && and || divide

    def known(self, token: Token) -> str | None:
        """The text of a word of a condition; None where it is not known."""
        if not isinstance(token, Word):
            return None
        texts = list[str]()
        for part in token.parts:
            text = self.part(part)
            if part.kind is PartKind.COMMAND or (
                part.kind is PartKind.ARITHMETIC and text.startswith("$(")
            ):
                return None
            if part.kind is PartKind.VARIABLE and text.startswith("$"):
                name = re.sub(r"\W.*", "", part.text) or part.text
                known = name in self.unsure or name in self.values or name in "?$!"
                if known or FROM_OUTSIDE.fullmatch(name):
                    return None
                self.assumed[name] = None
                text = "0" if part.text == "#" else ""
            if MAYBE in text or "$" in text:
                return None
            texts.append(text)
        return "".join(texts)

    def test(self, tokens: Sequence[Token]) -> bool | None:
        """What a test comes to; None where it is not known, and for other commands."""
        words = [token for token in tokens if isinstance(token, Word)]
        head = words[0].plain if words else ""
        expression = arithmetic_of(tokens)
        if expression is not None:
            result = self.computed(expression)
            return None if result is None else result != 0
        if head == "true":
            return True
        if head == "false":
            return False
        if head == "!":
            inner = self.test(words[1:])
            return None if inner is None else not inner
        if head not in ("[", "[[", "test") and not self.open_test:
            return None
        ends = words[-1].plain in ("]", "]]")
        self.open_test = (head == "[[" or self.open_test) and not ends
        body = words[1:] if head in ("[", "[[", "test") else words
        # comparisons of texts by their order
        operators = any(isinstance(token, Operator) for token in tokens)
        return None if operators else self._compared(body[:-1] if ends else body)

    def _compared(self, words: list[Word]) -> bool | None:
        if words and words[0].plain == "!":
            inner = self._compared(words[1:])
            return None if inner is None else not inner
        if len(words) == 2 and words[0].plain == "-v":
            name = words[1].plain
            if name in self.values:
                return True
            if FROM_OUTSIDE.fullmatch(name):
                return None
            self.assumed[name] = None
            return False
        if len(words) == 2 and words[0].plain in ("-z", "-n"):
            text = self.known(words[1])
            return None if text is None else (text == "") == (words[0].plain == "-z")
        if len(words) == 1:
            text = self.known(words[0])
            return None if text is None else text != ""
        if len(words) != 3:
            return None
        left, how, right = self.known(words[0]), words[1].plain, self.known(words[2])
        if left is None or right is None:
            return None
        if how in ("==", "=", "!="):
            return fnmatchcase(left, right) == (how != "!=")
        if how in _COMPARED:
            first, second = _number(left), _number(right)
            return None if first is None or second is None else _COMPARED[how](first, second)
        return None


def _number(text: str) -> int | None:
    """The number that a test takes a text for; None where it is none."""
    return int(text or 0) if _NUMBER.fullmatch(text or "0") else None


def combined(conditions: Sequence[tuple[bool | None, str]]) -> bool | None:
    """Tests joined by && and ||, from the left; of several commands the last one counts."""
    found: bool | None = None
    how = ";"
    for met, following in conditions:
        if how in ("&&", "||"):
            ends = how == "||"  # what either of them being so makes the whole
            found = ends if ends in (found, met) else None if None in (found, met) else not ends
        else:
            found = met
        how = following
    return found


def arithmetic_of(tokens: Sequence[Token]) -> str | None:
    """The expression of a command ``((...))``; None of any other."""
    only = tokens[0] if len(tokens) == 1 else None
    if not isinstance(only, Word) or len(only.parts) != 1:
        return None
    return only.parts[0].text if only.parts[0].kind is PartKind.ARITHMETIC else None
