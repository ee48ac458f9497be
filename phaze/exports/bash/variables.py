"""Variables of a bash script, put into its words, and values that branches may have given them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from phaze.exports.bash.arithmetic import LONGEST as LONGEST_EXPRESSION
from phaze.exports.bash.arithmetic import value_of
from phaze.exports.bash.words import NAME, Operator, Part, PartKind, Word, parts_of, tokens_of
from phaze_common.errors import InputError

MAYBE, SURE = "\x01", "\x02"  # around words of a branch that may not run
LONGEST = 100_000  # characters of a value that is put in; a longer one is left as the script has it
MOST = 50_000_000  # characters put in for variables, of a whole script
MOST_DEFAULTS = 20  # of defaults within defaults
MOST_NESTED = 20  # of commands put in within commands put in
MOST_OPTIONS = 4  # values of a variable that a refusal names
# in an expression: arguments, lengths and items of lists
_TO_PUT_IN = re.compile(r"\$(?:\{[^}]*[\[#]|\{?[0-9#])")
ARRAY_END = ("@", "*")
ARGUMENT_DIGITS = tuple("123456789")
ARGUMENTS = "@"  # the list of what a script was started with
Value = str | list[str]
_VARIABLE = re.compile(
    rf"({NAME}|[0-9@*#?$!-])(?:\[((?:[^\[\]]|\[[^\[\]]*\])*)\])?(?:(:?[-=+?])(.*))?", re.DOTALL
)
_LENGTH = re.compile(rf"#({NAME}|[@*])(?:\[([@*])\])?")
# of which it is not known what it comes to
_PUT_IN = re.compile(r"\$\{[^{}]*\}|\$\(\(.*\)\)|\$\([^()]*\)|`[^`]*`", re.DOTALL)


@dataclass
class Variables:
    """Values by name; ``unsure`` are those of variables of which it is not known which one they
    have.

    ``used`` are variables whose values some word has, ``left`` the characters that may still be put
    in. ``maps`` are lists by keys, each item of which is a variable ``name[key]``.
    """

    values: dict[str, Value] = field(default_factory=dict)
    unsure: dict[str, tuple[str, ...]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    left: int = MOST
    nested: int = 0  # commands put in that are being looked at
    maps: set[str] = field(default_factory=set)

    def assign(self, name: str, value: Value) -> None:
        """Give a variable a value; its own name put in is one that is not known."""
        if value != f"${{{name}}}":
            self.unsure.pop(name, None)
        self.used.discard(name)
        self.values[name] = value

    def merged(self, name: str, options: list[Value], before: Value | None) -> Value:
        """The value of a variable behind branches of which one may have run; ``before`` is that
        ahead of them."""
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
        texts = all(isinstance(each, str) for each in options) and isinstance(before, str)
        if texts and before and all(flat(each).endswith(flat(before)) for each in options):
            before = flat(before)
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
        """A word with variables put in; several where an unquoted variable holds several, or a list
        is put in."""
        found, joined = list[str](), False
        for part in word.parts:
            items = self._items(part)
            if items is None:
                text = self.part(part)
                whole = part.quoted or part.kind is PartKind.TEXT or _PUT_IN.fullmatch(text)
                items = [text] if whole else text.split()
            for place, item in enumerate(items):
                if joined and place == 0:
                    found[-1] += item
                else:
                    found.append(item)
            joined = bool(found)
        return found

    def _items(self, part: Part) -> list[str] | None:
        used = _VARIABLE.fullmatch(part.text) if part.kind is PartKind.VARIABLE else None
        if used is None:
            return None
        name, end = _place(used)
        value = self.values.get(name) if end in ARRAY_END else None
        if not isinstance(value, list) or (part.quoted and end == "*"):
            return None
        self.used.add(name)
        self._spend(sum(len(item) + 1 for item in value))
        return value if part.quoted else [field for item in value for field in item.split()]

    def part(self, part: Part, depth: int = 0) -> str:
        """The text of a part of a word; as the script has it where it is not known."""
        if part.kind is PartKind.TEXT:
            return part.text
        if part.kind is PartKind.ARITHMETIC:
            result = self.computed(part.text)
            return f"$(({part.text}))" if result is None else str(result)
        if part.kind is PartKind.COMMAND:
            printed = None if self.nested >= MOST_NESTED else self._printed(part.text)
            return _short(part.text) if printed is None else printed
        return self._variable(part, depth)

    def _printed(self, text: str) -> str | None:
        """What a command put in prints, where it is one that only says its words, a number or a
        file; None of any other."""
        if not text.startswith(("$(", "`")):
            return None
        inner = tokens_of(text[1:-1] if text.startswith("`") else text[2:-1])
        words = [each for each in inner if isinstance(each, Word)]
        operators = [each.text for each in inner if isinstance(each, Operator)]
        operators = [text for text in operators if text != "\n"]
        if operators == ["<"] and len(words) == 1:
            return self.file(self.text(words[0]))
        within = len(operators) == 1 and operators[0].startswith("<<")
        if within and [word.plain for word in words[:-1]] == ["cat"]:
            return self.text(words[-1]).rstrip("\n")
        if operators:
            return None
        if not words:
            return ""
        self.nested += 1
        texts = [field for word in words for field in self.fields(word)]
        self.nested -= 1
        match texts:
            case [":" | "true", *_]:
                return ""
            case ["echo", *said]:
                return " ".join(said[1:] if said[:1] == ["-n"] else said)
            case ["expr", *_]:
                result = self.computed(" ".join(texts[1:]))
                return None if result is None else str(result)
            case ["cat", name]:
                return self.file(name)
        return None

    def file(self, name: str) -> str | None:
        """The text of a file that the script prints; None where it is not known."""
        return None

    def computed(self, text: str) -> int | None:
        """The value of an expression, with arguments, lengths and items of lists put in; None where
        it is not known."""
        if len(text) <= LONGEST_EXPRESSION and _TO_PUT_IN.search(text):
            text = "".join(self.part(each) for each in parts_of(text, True))
        return value_of(text, self.number)

    def place_of(self, index: str, items: Sequence[str]) -> int | None:
        """The place of a list that an index means; None where it is not known, or lies before the
        list."""
        found = self.computed(index)
        place = None if found is None else found + len(items) * (found < 0)
        return place if place is not None and place >= 0 else None

    def number(self, name: str) -> str | None:
        """The value of a variable in an expression."""
        self.used.add(name)
        value = self.values.get(name)
        return value if isinstance(value, str) else None

    def _variable(self, part: Part, depth: int) -> str:
        used = _VARIABLE.fullmatch(part.text)
        as_written = f"${part.text}" if re.fullmatch(r"\w+", part.text) else f"${{{part.text}}}"
        if used is None or depth > MOST_DEFAULTS:
            length = self._length(part.text)
            return as_written if length is None else length
        (name, index), how, default = _place(used), used[3], used[4]
        self.used.add(name)
        value = self.values.get(name)
        if name in self.maps and index is not None:
            item = self.values.get(f"{name}[{self._default(index, depth)}]")
            value = None if item is None else flat(item)
        elif isinstance(value, list):
            items = value
            if index not in ARRAY_END:
                at = self.place_of(self._default(index or "0", depth), value)
                items = [] if at is None else value[at : at + 1]
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
        started = isinstance(self.values.get(ARGUMENTS), list)
        if value is None and not how and name in ARGUMENT_DIGITS and started:
            return ""  # it was started with fewer words
        if how and how[-1] in "-=":
            made = self._default(default, depth)
            if how[-1] == "=":
                self.assign(name, made)
            return made
        return as_written if value is None else value

    def _length(self, text: str) -> str | None:
        """How many items or characters a variable has, ``#name``; None where it is not known."""
        asked = _LENGTH.fullmatch(text)
        if asked is None:
            return None
        arguments = asked[1] in ARRAY_END
        value = self.values.get(ARGUMENTS if arguments else asked[1])
        if value is None or _PUT_IN.search(flat(value)):
            return None
        self.used.add(asked[1])
        listed = isinstance(value, list) == bool(asked[2]) or arguments
        return str(len(value) if listed else len(flat(value)))

    def _default(self, text: str, depth: int) -> str:
        return "".join(self.part(each, depth + 1) for each in parts_of(text.replace("'", ""), True))

    def _spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise InputError(
                f"the variables of the command put in are more than {MOST:,} characters; write "
                "their values out"
            )


def _place(used: re.Match[str]) -> tuple[str, str | None]:
    """Name and index of a variable that is put in; ``$@`` and ``$*`` are the list of arguments,
    whole."""
    return (ARGUMENTS, used[2] or used[1]) if used[1] in ARRAY_END else (used[1], used[2])


def _short(text: str) -> str:
    """A command put in as it is shown: by its first word where it holds flags, which are not those
    of the command around it."""
    if "--" not in text:
        return text
    opened, closed = ("`", "`") if text.startswith("`") else (text[:2], ")")
    return f"{opened}{text[len(opened) :].split()[0].rstrip(closed)}...{closed}"


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
    if after.startswith(before):
        grown = after.removeprefix(before)
    else:
        grown = after.strip().removeprefix(before.strip())
    worth = after.strip().startswith(before.strip()) and (
        grown[:1] in ("", " ", MAYBE) or not before.strip()
    )
    words = "--" in grown or " " in before.strip()  # of a command, not letters behind a value
    return grown if worth and (not grown or words) else None
