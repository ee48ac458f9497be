"""Simple commands of bash by their assignments, words and redirections, and bodies of functions;
nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from phaze.exports.bash.words import NAME, Operator, Part, PartKind, Token, Word

ENDS = ("\n", ";", ";;", "&", "|", "|&", "&&", "||", "(", ")", "()")  # of a statement
DECLARING = ("export", "local", "readonly", "declare", "typeset")
FROM_TEXT = ("<<", "<<-", "<<<")  # what stands behind them is the input itself
_ASSIGNED = re.compile(rf"({NAME})(\+?)=", re.DOTALL)
_ITEM = re.compile(rf"({NAME})\[", re.DOTALL)
_ITEM_ENDS = re.compile(r"\](\+?)=", re.DOTALL)
_BEFORE_COMMANDS: tuple[str, ...] = (
    "then",
    "do",
    "else",
    "elif",
    "if",
    "while",
    "until",
    "{",
    "}",
    "!",
    "time",
    "fi",
    "done",
    "esac",
)


@dataclass(frozen=True)
class Assignment:
    """``name=value``, ``name[index]=value`` or, with ``items``, ``name=(items)``; it ``grows`` by
    ``+=``."""

    name: str
    value: Word
    grows: bool = False
    index: Word | None = None
    items: Sequence[Token] | None = None


@dataclass(frozen=True)
class SimpleCommand:
    """A command without reserved words: ``assignments`` before its ``words``, or those that it
    declares by ``declaring``.

    It reads the text ``input`` or the file ``source``, and writes the file ``output``, to whose end
    where it ``appends``.
    """

    assignments: tuple[Assignment, ...]
    words: tuple[Word, ...]
    declaring: str = ""
    flags: str = ""  # of what declares
    input: Word | None = None
    source: Word | None = None
    output: Word | None = None
    appends: bool = False


def plain(token: Token) -> str:
    """The text of a word in which nothing is quoted or put in; empty for others."""
    return token.plain if isinstance(token, Word) else ""


def statements(tokens: Sequence[Token], start: int = 0) -> Iterator[tuple[list[Token], str, int]]:
    """Statements from ``start`` on, what ended each, and the place behind that; lines within lists
    are joined."""
    statement: list[Token] = []
    depth = 0
    for place in range(start, len(tokens)):
        token = tokens[place]
        text = token.text if isinstance(token, Operator) else ""
        if depth == 0 and text in ENDS:
            yield statement, text, place + 1
            statement = []
            continue
        if text == "=(":
            depth += 1
        elif text == ")" and depth:
            depth -= 1
        if not (depth and text == "\n"):
            statement.append(token)
    yield statement, "\n", len(tokens)


def body_of(tokens: Sequence[Token], place: int) -> tuple[Sequence[Token], int] | None:
    """The body of a function that begins at ``place``, and the place behind it; None where there is
    none."""
    while place < len(tokens) and tokens[place] == Operator("\n"):
        place += 1
    first = tokens[place] if place < len(tokens) else Operator("")
    if plain(first) != "{" and first != Operator("("):
        return None
    depth, begins = 0, True
    for at in range(place, len(tokens)):
        token = tokens[at]
        if isinstance(token, Operator):
            depth += {"(": 1, "=(": 1, ")": -1}.get(token.text, 0)
            begins = token.text in ENDS
        else:
            depth += {"{": 1, "}": -1}.get(token.plain, 0) if begins else 0
            begins = begins and token.plain in _BEFORE_COMMANDS
        if depth == 0:
            own = first == Operator("(")  # which stay: what they hold changes nothing outside
            return tokens[place : at + 1] if own else tokens[place + 1 : at], at + 1
    return None


def simple_command(tokens: Sequence[Token]) -> SimpleCommand:
    """A statement without reserved words by what it is made of."""
    assignments, words = list[Assignment](), list[Word]()
    place, declaring, flags = 0, "", ""
    given: Word | None = None
    source: Word | None = None
    output: Word | None = None
    appends = False
    while place < len(tokens):
        token = tokens[place]
        place += 1
        if isinstance(token, Operator):
            behind = tokens[place] if place < len(tokens) else None
            within = token.text in FROM_TEXT
            if isinstance(behind, Word) and (within or not behind.parts[0].text.startswith("--")):
                place += 1
                if within:
                    given = behind
                elif token.text == "<":
                    source = behind
                elif token.text in (">", ">>", ">|"):
                    output, appends = behind, token.text == ">>"
            continue
        if not words or declaring:
            if not declaring and token.plain in DECLARING:
                declaring = token.plain
                continue
            made = _assignment(token)
            if made is not None:
                following = tokens[place] if place < len(tokens) else None
                if isinstance(following, Operator) and following.text == "=(":
                    ends = (at for at in range(place, len(tokens)) if tokens[at] == Operator(")"))
                    end = next(ends, len(tokens))
                    items = tokens[place + 1 : end]
                    made = Assignment(made.name, made.value, made.grows, items=items)
                    place = end + 1
                assignments.append(made)
                continue
            if declaring and token.plain.startswith("-"):
                flags += token.plain
                continue
        words.append(token)
    return SimpleCommand(
        tuple(assignments), tuple(words), declaring, flags, given, source, output, appends
    )


def _assignment(word: Word) -> Assignment | None:
    """The assignment that a word is; None for other words."""
    head = word.parts[0]
    if head.kind is not PartKind.TEXT or head.quoted:
        return None
    whole = _ASSIGNED.match(head.text)
    if whole is not None:
        return Assignment(whole[1], _behind(word, 0, whole.end()), bool(whole[2]))
    item = _ITEM.match(head.text)
    if item is None:
        return None
    for at, part in enumerate(word.parts):
        plain_part = part.kind is PartKind.TEXT and not part.quoted
        if plain_part and (ends := _ITEM_ENDS.search(part.text)) is not None:
            before = (*word.parts[:at], Part(PartKind.TEXT, part.text[: ends.start()]))
            index = _behind(Word(before), 0, item.end())
            return Assignment(item[1], _behind(word, at, ends.end()), bool(ends[1]), index)
    return None


def _behind(word: Word, part: int, place: int) -> Word:
    """What stands behind a ``place`` of a text within a word."""
    first = word.parts[part]
    return Word((Part(first.kind, first.text[place:], first.quoted), *word.parts[part + 1 :]))
