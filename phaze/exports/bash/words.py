"""Words of bash: quotes, comments, continued lines and what is to be put in are known; nothing is
run.

Every character is looked at a bounded number of times, whatever the text holds. A quote that never
ends is taken to end with its line, and what follows is read anew from the next line. A text within
the script (``<<END``) is the word behind its operator.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

RESTARTS = 3  # behind lines with a quote that never ends; then each line is read by itself
NAME = r"[A-Za-z_]\w*"
NAME_ALONE = re.compile(NAME)
_BLANK = " \t\r"
# reserved words
_BEFORE_COMMANDS = ("if", "elif", "while", "until", "for", "then", "else", "do", "!", "{")
_OPERATORS = (";;", "&&", "||", "|&", ";", "&", "|")
_REDIRECTED = re.compile(r"[0-9]*(?:<<<|<<-?|>>|>\||[<>]&?)")
_PLACEHOLDER = re.compile(r"<[A-Za-z_][^<>\n|;&]*>")  # <path to data>
_ASSIGNS = re.compile(rf"{NAME}\+?=")
_NO_PARAMETERS = re.compile(r"\([ \t]*\)")
_PLAIN = re.compile(r"[^\s\\'\"`$#;&|<>()]+")
_VARIABLE = re.compile(rf"\$(?:({NAME})|([0-9@*#?$!-]))")
_INNER = re.compile(r"[^\\\"'$`(){}]+")
_IN_QUOTES = re.compile(r"[^\\\"$`]+")


class PartKind(StrEnum):
    """What a part of a word is."""

    TEXT = "text"
    VARIABLE = "variable"  # the text is that between the braces
    ARITHMETIC = "arithmetic"
    COMMAND = "command"  # what a command would print, which is not known


@dataclass(frozen=True)
class Part:
    """A piece of a word; ``quoted`` text is never split into several words."""

    kind: PartKind
    text: str
    quoted: bool = False


@dataclass(frozen=True)
class Word:
    """A word by its parts."""

    parts: tuple[Part, ...]

    @property
    def plain(self) -> str:
        """Its text where nothing is put in or quoted, else empty: reserved words are such."""
        only = self.parts[0]
        plain = len(self.parts) == 1 and only.kind is PartKind.TEXT and not only.quoted
        return only.text if plain else ""


@dataclass(frozen=True)
class Operator:
    """What stands between words: ``;``, a line's end, ``&&``, ``=(`` of a list, ``()`` of a
    function, ...; or a redirection."""

    text: str


Token = Word | Operator


class _UnendedError(Exception):
    """A quote or bracket that never ends."""


@dataclass(frozen=True)
class Lexed:
    """Words and operators of a script; ``unended`` is the line with a quote or a bracket that never
    ends (0: none)."""

    tokens: list[Token]
    unended: int = 0


def tokens_of(text: str) -> list[Token]:
    """Words and operators of a script."""
    return lexed_of(text).tokens


def lexed_of(text: str) -> Lexed:
    """A script by its words and operators."""
    found: list[Token] = []
    start = unended = 0
    for _ in range(RESTARTS):
        lexer = _Lexer(text, start)
        try:
            lexer.run()
        except _UnendedError:
            unended = unended or text.count("\n", 0, lexer.safe) + 1
            found += lexer.tokens[: lexer.safe_tokens]
            end = text.find("\n", lexer.safe)
            end = len(text) if end < 0 else end
            found += _of_line(text[lexer.safe : end])
            start = end
            continue
        return Lexed(found + lexer.tokens, unended)
    for line in text[start:].splitlines():
        found += _of_line(line)
    return Lexed(found, unended)


def parts_of(text: str, quoted: bool) -> tuple[Part, ...]:
    """Parts of a text that stands inside braces, such as a default."""
    lexer = _Lexer(text, 0)
    try:
        return tuple(lexer.inside_quotes(None, quoted))
    except _UnendedError:
        return (Part(PartKind.TEXT, text, quoted),)


def _of_line(line: str) -> list[Token]:
    lexer = _Lexer(line, 0)
    try:
        lexer.run()
        found = lexer.tokens
    except _UnendedError:
        found = [Word((Part(PartKind.TEXT, word),)) for word in line.split("#")[0].split()]
    return [*found, Operator("\n")]


@dataclass
class _Lexer:
    """A pass over ``text`` from ``start``; up to ``safe`` (and ``safe_tokens``) lines are whole."""

    text: str
    start: int
    tokens: list[Token] = field(default_factory=list)
    safe: int = 0
    safe_tokens: int = 0
    _parts: list[Part] = field(default_factory=list)
    _opened: list[str] = field(default_factory=list)  # brackets that are operators
    _literal: int = 0  # brackets open within the word
    _begun: bool = False  # whether the statement has words
    _after: int = 0  # the place behind the quoted text that was read last
    # operators of this line behind whose line a text stands
    _texts: list[int] = field(default_factory=list)

    def run(self) -> None:
        """Read to the end."""
        text, place, size = self.text, self.start, len(self.text)
        self.safe = self.start
        while place < size:
            char = text[place]
            if char in _BLANK:
                self._end_word()
                place += 1
            elif char == "\n":
                self._end_word()
                place += 1
                for operator in self._texts:
                    place = self._text_within(operator, place)
                self._texts = []
                self._operator("\n")
                self.safe, self.safe_tokens = place, len(self.tokens)
            elif char == "#" and not self._parts:
                end = text.find("\n", place)
                place = size if end < 0 else end
            elif char == "\\":
                place = self._escaped(place)
            elif (plain := _PLAIN.match(text, place)) is not None:
                self._parts.append(Part(PartKind.TEXT, plain[0]))
                place = plain.end()
            else:
                place = self._special(place, char)
        self._end_word()

    def _special(self, place: int, char: str) -> int:
        text = self.text
        if char == "'":
            end = _found(text, "'", place + 1)
            self._parts.append(Part(PartKind.TEXT, text[place + 1 : end], True))
            return end + 1
        if char == '"':
            inner = list(self.inside_quotes(place + 1, True))
            self._parts += inner or [Part(PartKind.TEXT, "", True)]
            return self._after
        if char in "$`":
            part, end = self._put_in(place, False)
            self._parts.append(part)
            return end
        if char in "()":
            return self._bracket(place, char)
        if char in "<>":
            return self._angle(place)
        if char == "#":
            self._parts.append(Part(PartKind.TEXT, "#"))
            return place + 1
        operator = next(each for each in _OPERATORS if text.startswith(each, place))
        self._operator(operator)
        return place + len(operator)

    def _escaped(self, place: int) -> int:
        following = self.text[place + 1 : place + 3]
        if following.startswith("\n"):
            return place + 2
        if following == "\r\n":
            return place + 3
        self._parts.append(Part(PartKind.TEXT, following[:1] or "\\", True))
        return place + 2

    def _bracket(self, place: int, char: str) -> int:
        if char == ")":
            if self._literal or not self._opened:
                self._literal = max(0, self._literal - 1)
                self._parts.append(Part(PartKind.TEXT, ")"))
            else:
                self._opened.pop()
                self._operator(")")
            return place + 1
        only = self._parts[0] if len(self._parts) == 1 else None
        if only is not None and only.kind is PartKind.TEXT and _ASSIGNS.fullmatch(only.text):
            self._opened.append("=(")
            self._end_word()
            self.tokens.append(Operator("=("))
            return place + 1
        begins = not self._parts and (not self._begun or self._behind_reserved())
        if begins and self.text.startswith("((", place):
            end = _closed(self.text, place + 2, ")")
            if self.text.startswith(")", end):
                inner = self.text[place + 2 : end - 1].strip()
                self._parts.append(Part(PartKind.ARITHMETIC, inner))
                return end + 1
        function = _NO_PARAMETERS.match(self.text, place)
        if function is not None and (self._parts or self._begun):
            self._operator("()")
            return function.end()
        if self._parts or self._begun:  # bash takes no bracket here, but texts of flags have them
            self._literal += 1
            self._parts.append(Part(PartKind.TEXT, "("))
        else:
            self._opened.append("(")
            self._operator("(")
        return place + 1

    def _behind_reserved(self) -> bool:
        last = self.tokens[-1] if self.tokens else None
        return isinstance(last, Word) and last.plain in _BEFORE_COMMANDS

    def _angle(self, place: int) -> int:
        text = self.text
        placeholder = _PLACEHOLDER.match(text, place)
        if placeholder is not None:
            self._parts.append(Part(PartKind.TEXT, placeholder[0], True))
            return placeholder.end()
        if text.startswith(("<(", ">("), place):
            end = _closed(text, place + 2, ")")
            self._parts.append(Part(PartKind.COMMAND, text[place:end]))
            return end
        redirected = _REDIRECTED.match(text, place)
        assert redirected is not None  # it begins with < or >
        if len(self._parts) == 1 and self._parts[0].text.isdigit():
            self._parts.clear()  # the number of a stream
        self._end_word()
        self.tokens.append(Operator(redirected[0].lstrip("0123456789")))
        if self.tokens[-1] in (Operator("<<"), Operator("<<-")):
            self._texts.append(len(self.tokens) - 1)
        return redirected.end()

    def _text_within(self, operator: int, place: int) -> int:
        """Put the text that begins at ``place`` behind its operator, and give the place behind it;
        without an end it is none."""
        word = self.tokens[operator + 1] if operator + 1 < len(self.tokens) else None
        if not isinstance(word, Word):
            return place
        indented = self.tokens[operator] == Operator("<<-")
        ending = "".join(part.text for part in word.parts)
        ends = self._lines.get((ending, indented), [])
        found = bisect_left(ends, place)
        if found == len(ends):
            return place
        start = ends[found]
        body = self.text[place:start]
        body = re.sub(r"^\t+", "", body, flags=re.MULTILINE) if indented else body
        if any(part.quoted for part in word.parts):
            parts = [Part(PartKind.TEXT, body, True)]
        else:
            try:
                parts = list(_Lexer(body, 0).inside_quotes(None, True, literal=True))
            except _UnendedError:
                parts = [Part(PartKind.TEXT, body, True)]
        self.tokens[operator + 1] = Word(tuple(parts) or (Part(PartKind.TEXT, "", True),))
        end = self.text.find("\n", start)
        return len(self.text) if end < 0 else end + 1

    @cached_property
    def _lines(self) -> dict[tuple[str, bool], list[int]]:
        """Where lines of one word begin, by that word and whether tabs may stand before it."""
        found = defaultdict[tuple[str, bool], list[int]](list)
        for line in re.finditer(r"^(\t*)(\S+)\r?$", self.text, re.MULTILINE):
            found[line[2], True].append(line.start())
            if not line[1]:
                found[line[2], False].append(line.start())
        return found

    def inside_quotes(
        self, place: int | None, quoted: bool, literal: bool = False
    ) -> Iterator[Part]:
        """Parts up to the quote that ends them; up to the end of the text, whose quotes may be
        ``literal``, for no ``place``."""
        text, at, whole = self.text, place or 0, place is None
        while True:
            if at >= len(text):
                if whole:
                    return
                raise _UnendedError
            char = text[at]
            plain = _IN_QUOTES.match(text, at)
            if plain is not None:
                yield Part(PartKind.TEXT, plain[0], quoted)
                at = plain.end()
            elif char == '"':
                at += 1
                if not whole:
                    self._after = at
                    return
                if literal:
                    yield Part(PartKind.TEXT, char, quoted)
            elif char == "\\":
                following = text[at + 1 : at + 2]
                if following != "\n":
                    escaped = following if following in '\\"$`' else "\\" + following
                    yield Part(PartKind.TEXT, escaped, quoted)
                at += 2
            else:
                part, at = self._put_in(at, quoted)
                yield part

    def _put_in(self, place: int, quoted: bool) -> tuple[Part, int]:
        """What begins with a dollar or a backquote, and the place behind it."""
        text = self.text
        if text[place] == "`":
            end = _found(text, "`", place + 1)
            return Part(PartKind.COMMAND, text[place : end + 1], quoted), end + 1
        if text.startswith("$(", place):
            end = _closed(text, place + 2, ")")
            inner = text[place + 2 : end - 1]
            if inner.startswith("(") and inner.endswith(")"):
                return Part(PartKind.ARITHMETIC, inner[1:-1], quoted), end
            return Part(PartKind.COMMAND, text[place:end], quoted), end
        if text.startswith("${", place):
            end = _closed(text, place + 2, "}")
            return Part(PartKind.VARIABLE, text[place + 2 : end - 1], quoted), end
        variable = _VARIABLE.match(text, place)
        if variable is not None:
            return Part(PartKind.VARIABLE, variable[1] or variable[2], quoted), variable.end()
        return Part(PartKind.TEXT, "$", quoted), place + 1

    def _operator(self, text: str) -> None:
        self._end_word()
        self.tokens.append(Operator(text))
        self._begun = text == ")"

    def _end_word(self) -> None:
        self._literal = 0
        if self._parts:
            self.tokens.append(Word(_joined(self._parts)))
            self._parts = []
            self._begun = True


def _joined(parts: list[Part]) -> tuple[Part, ...]:
    found: list[Part] = []
    for part in parts:
        last = found[-1] if found else None
        if (
            last is not None
            and last.kind is part.kind is PartKind.TEXT
            and last.quoted == part.quoted
        ):
            found[-1] = Part(PartKind.TEXT, last.text + part.text, part.quoted)
        else:
            found.append(part)
    return tuple(found)


def _found(text: str, char: str, place: int) -> int:
    end = text.find(char, place)
    if end < 0:
        raise _UnendedError
    return end


def _closed(text: str, place: int, bracket: str) -> int:
    """The place behind the ``bracket`` that ends what begins at ``place``; brackets and quotes
    within are counted."""
    open_ones = [bracket]
    while open_ones:
        if place >= len(text):
            raise _UnendedError
        plain = _INNER.match(text, place)
        if plain is not None:
            place = plain.end()
            continue
        char, top = text[place], open_ones[-1]
        if char == "\\":
            place += 2
            continue
        if char == top:
            open_ones.pop()
        elif char == '"':
            open_ones.append('"')
        elif char == "'" and top == ")":
            place = _found(text, "'", place + 1)
        elif text.startswith("${", place):
            open_ones.append("}")
            place += 1
        elif char == "(" and (top == ")" or text[place - 1] == "$"):
            open_ones.append(")")
        place += 1
    return place
