"""Variables of a bash script, put into its words, and values that branches may have given them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from Common.errors import InputError
from third_party.exports.shell_arithmetic import value_of
from third_party.exports.shell_words import NAME, Part, PartKind, Word, parts_of

MAYBE, SURE = "\x01", "\x02"  # around words of a branch that may not run
LONGEST = 100_000  # characters of a value that is put in; a longer one is left as the script has it
MOST = 50_000_000  # characters put in for variables, of a whole script
MOST_DEFAULTS = 20  # of defaults within defaults
MOST_OPTIONS = 4  # values of a variable that a refusal names
ARRAY_END = ("@", "*")
Value = str | list[str]
_VARIABLE = re.compile(rf"({NAME}|[0-9@*#?$!-])(?:\[([^\]]*)\])?(?:(:?[-=+?])(.*))?", re.DOTALL)
_EXPR = re.compile(r"(?:\$\(|`)\s*expr\s+(.*?)\s*[)`]", re.DOTALL)


@dataclass
class Variables:
    """Values by name; ``unsure`` are those of variables of which it is not known which one they have.

    ``used`` are variables whose values some word has, ``left`` the characters that may still be put in.
    """

    values: dict[str, Value] = field(default_factory=dict)
    unsure: dict[str, tuple[str, ...]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    left: int = MOST

    def assign(self, name: str, value: Value) -> None:
        """Give a variable a value; its own name put in is one that is not known."""
        if value != f"${{{name}}}":
            self.unsure.pop(name, None)
        self.used.discard(name)
        self.values[name] = value

    def merged(self, name: str, options: list[Value], before: Value | None) -> Value:
        """The value of a variable behind branches of which one may have run; ``before`` is that ahead of them."""
        first = options[0]
        if first == f"${{{name}}}" and name in self.unsure:
            return first
        if all(each == first for each in options) and (len(options) > 1 or before is not None):
            return first
        grown = [_growth(before, each) for each in options]
        if all(each is not None for each in grown):
            words = " ".join(dict.fromkeys(each for each in grown if each))
            marked = f"{MAYBE} {words} {SURE}"
            return [*before, marked] if isinstance(before, list) else f"{before or ''} {marked}"
        if isinstance(before, str) and before and all(isinstance(each, str) and each.endswith(before) for each in options):
            ahead = " ".join(flat(each).removesuffix(before) for each in options)
            return f"{MAYBE} {ahead} {SURE} {before}"
        if before is None and all("--" in flat(each) for each in options):
            return f"{MAYBE} {' '.join(flat(each) for each in options)} {SURE}"
        self.unsure[name] = tuple(dict.fromkeys(flat(each) for each in options))[:MOST_OPTIONS]
        return f"${{{name}}}"

    def text(self, word: Word) -> str:
        """A word with variables put in, not split."""
        return "".join(self.part(part) for part in word.parts)

    def fields(self, word: Word) -> list[str]:
        """A word with variables put in; several where an unquoted variable holds several, or a list is put in."""
        found, joined = list[str](), False
        for part in word.parts:
            items = self._items(part)
            if items is None:
                text = self.part(part)
                items = [text] if part.quoted or part.kind is PartKind.TEXT else text.split()
            for place, item in enumerate(items):
                if joined and place == 0:
                    found[-1] += item
                else:
                    found.append(item)
            joined = bool(found)
        return found

    def _items(self, part: Part) -> list[str] | None:
        """Items of a list that is put in whole."""
        used = _VARIABLE.fullmatch(part.text) if part.kind is PartKind.VARIABLE else None
        value = self.values.get(used[1]) if used is not None and used[2] in ARRAY_END else None
        if used is None or not isinstance(value, list) or (part.quoted and used[2] == "*"):
            return None
        self.used.add(used[1])
        self._spend(sum(len(item) + 1 for item in value))
        return value if part.quoted else [field for item in value for field in item.split()]

    def part(self, part: Part, depth: int = 0) -> str:
        """The text of a part of a word; as the script has it where it is not known."""
        if part.kind is PartKind.TEXT:
            return part.text
        if part.kind is PartKind.ARITHMETIC:
            result = value_of(part.text, self.number)
            return f"$(({part.text}))" if result is None else str(result)
        if part.kind is PartKind.COMMAND:
            computed = _EXPR.fullmatch(part.text)
            result = None if computed is None else value_of(computed[1].replace("\\*", "*"), self.number)
            return part.text if result is None else str(result)
        return self._variable(part, depth)

    def number(self, name: str) -> str | None:
        """The value of a variable in an expression."""
        self.used.add(name)
        value = self.values.get(name)
        return value if isinstance(value, str) else None

    def _variable(self, part: Part, depth: int) -> str:
        used = _VARIABLE.fullmatch(part.text)
        as_written = f"${part.text}" if re.fullmatch(r"\w+", part.text) else f"${{{part.text}}}"
        if used is None or depth > MOST_DEFAULTS:
            return as_written
        name, index, how, default = used[1], used[2], used[3], used[4]
        self.used.add(name)
        value = self.values.get(name)
        if isinstance(value, list):
            items = (
                value if index in ARRAY_END else value[int(index or 0) :][:1] if re.fullmatch("[0-9]{0,4}", index or "") else []
            )
            value = " ".join(items) if items else None
        elif index not in (None, "0", *ARRAY_END):
            value = None
        set_one = value is not None and not (how and how.startswith(":") and not value)
        if how and how[-1] == "+":
            return self._default(default, depth) if set_one else ""
        if set_one:
            assert value is not None
            if len(value) > LONGEST:
                return as_written
            self._spend(len(value))
            return value
        if how and how[-1] in "-=":
            made = self._default(default, depth)
            if how[-1] == "=":
                self.assign(name, made)
            return made
        return as_written if value is None else value

    def _default(self, text: str, depth: int) -> str:
        return "".join(self.part(each, depth + 1) for each in parts_of(text.replace("'", ""), True))

    def _spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise InputError(f"the variables of the command put in are more than {MOST:,} characters; write their values out")


def flat(value: Value) -> str:
    """A value as one text."""
    return value if isinstance(value, str) else " ".join(value)


def _growth(before: Value | None, after: Value) -> str | None:
    """What was added behind a value, None where it is another one."""
    if before is None or isinstance(before, list) != isinstance(after, list):
        return None
    if isinstance(before, list):
        return " ".join(after[len(before) :]) if list(after[: len(before)]) == before else None
    assert isinstance(after, str)
    grown = after.removeprefix(before) if after.startswith(before) else after.strip().removeprefix(before.strip())
    worth = after.strip().startswith(before.strip()) and (grown[:1] in ("", " ", MAYBE) or not before.strip())
    return grown if worth and (not grown or "--" in grown) else None
