"""The commands of a bash script with variables put in, as if it were started with no arguments in an empty environment.

Nothing is run. Conditions of assigned variables are decided; what stands in a branch or loop of which it is not known whether it
runs is marked with ``MAYBE`` and ``SURE`` where it adds words to a text, and is unknown where it gives other values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType

from Common.errors import InputError
from third_party.exports.shell_arithmetic import value_of
from third_party.exports.shell_conditions import FROM_OUTSIDE, Conditions, arithmetic_of, combined
from third_party.exports.shell_variables import ARGUMENTS, MAYBE, MOST_OPTIONS, SURE, Value, flat
from third_party.exports.shell_words import NAME, Operator, Part, PartKind, Token, Word, tokens_of

MOST_SOURCED = 20  # files
MOST_DEPTH = 100  # of compound commands
_ASSIGNED = re.compile(rf"({NAME})(\[[^\]]*\])?(\+?)=(.*)", re.DOTALL)
_CHANGED = re.compile(rf"({NAME})\s*([-+*/%]?)=(?!=)\s*(.*)|({NAME})(\+\+|--)", re.DOTALL)
_DECLARING = ("export", "local", "readonly", "declare", "typeset")
_TESTS = ("[", "[[", "test", "true", "false", "!")
_FROM_INPUT = ("read", "mapfile", "readarray", "getopts", "printf")  # give variables values that are not known
_SILENT = ("echo", "printf", ":")  # commands whose words are no commands themselves
_OPEN = re.compile(f"[$`{MAYBE}]")  # in a text of which not all is known
_SOURCES = (".", "source")
_SOURCED = re.compile(r"(?:.*/)?([\w.-]+)")
_OF_SYSTEM = ("/etc/", "/opt/", "/usr/", "~")
_SHELL_SET_UP = re.compile(r"conda|/bin/activate|bashrc|profile|modules?/|setvars")  # of environments of programs


@dataclass(frozen=True)
class Script:
    """``commands`` by their words; ``variables`` at the end, ``unsure`` ones with values that they may have.

    ``unused`` are texts of variables that no command has. ``assumed`` are variables that conditions took as not set, ``unread``
    files that it reads and that do not lie beside it, ``calls`` those of its own functions with arguments.
    """

    commands: tuple[tuple[str, ...], ...]
    variables: Mapping[str, str]
    unsure: Mapping[str, tuple[str, ...]]
    unused: tuple[str, ...]
    assumed: tuple[str, ...]
    unread: tuple[str, ...]
    calls: tuple[tuple[str, ...], ...]


def script_of(
    text: str,
    beside: Callable[[str], str | None] = lambda name: None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Script:
    """What a script or any other text with commands in it says.

    ``beside`` are texts of files that lie beside it, by name; ``environment`` are variables that it begins with.

    Raises:
        InputError: its variables grow beyond all measure.
    """
    return _Interpreter(beside=beside, values=dict(environment)).read(tokens_of(_unmarked(text)))


def _unmarked(text: str) -> str:
    return text.replace(MAYBE, "").replace(SURE, "")


@dataclass
class _Frame:
    """A compound command: ``runs`` is its branch (None: perhaps), ``decided`` whether one before certainly did."""

    kind: str  # if, case, loop, group or single
    runs: bool | None
    decided: bool = False
    covers: bool = False  # its branches are all there are: it has an else
    subject: str | None = None  # of a case; of others the reserved word
    awaits: bool = False  # a condition, or a pattern of a case
    skipped: bool = False  # what a single command comes to where it does not run
    before: dict[str, Value | None] = field(default_factory=dict)  # of this branch's assignments
    found: dict[str, list[Value]] = field(default_factory=dict)  # by branches that may run
    branches: int = 0  # of those
    origins: dict[str, Value | None] = field(default_factory=dict)


@dataclass(frozen=True)
class _Assignment:
    """``name`` is what matched before the value, which begins in ``word``; ``items`` are those of a list."""

    name: re.Match[str]
    word: Word
    items: Sequence[Token] | None


@dataclass
class _Interpreter(Conditions):
    beside: Callable[[str], str | None] = lambda name: None
    commands: list[tuple[str, ...]] = field(default_factory=list)
    frames: list[_Frame] = field(default_factory=list)
    sourced: int = 0
    unread: dict[str, None] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)
    calls: list[tuple[str, ...]] = field(default_factory=list)

    # statements

    def read(self, tokens: Sequence[Token]) -> Script:
        """Go over all statements in order."""
        self._go_over(tokens)
        while self.frames:
            self._leave()
        texts = {name: flat(value) for name, value in self.values.items()}
        unused = tuple(text for name, text in texts.items() if name not in self.used and "--" in text)
        return Script(
            tuple(self.commands), texts, self.unsure, unused, tuple(self.assumed), tuple(self.unread), tuple(self.calls)
        )

    def _go_over(self, tokens: Sequence[Token]) -> None:
        statement: list[Token] = []
        depth = 0
        for token in tokens:
            if (
                depth == 0
                and isinstance(token, Operator)
                and token.text in ("\n", ";", ";;", "&", "|", "|&", "&&", "||", "(", ")", "()")
            ):
                self._statement(statement, token.text)
                statement = []
                continue
            if isinstance(token, Operator) and token.text == "=(":
                depth += 1
            elif isinstance(token, Operator) and token.text == ")" and depth:
                depth -= 1
            if not (depth and isinstance(token, Operator) and token.text == "\n"):
                statement.append(token)
        self._statement(statement, "\n")

    def _statement(self, tokens: list[Token], ended: str) -> None:
        """One simple command, with reserved words before it, and what ended it."""
        at = 0
        if ended == "()" and tokens:
            self.functions.add(_plain(tokens[-1]))
        while at < len(tokens):
            first = tokens[at]
            word = first.plain if isinstance(first, Word) else ""
            if self._awaits_pattern() and self._in_pattern(tokens[at:], ended):
                return
            at += 1
            if word in ("if", "while", "until"):
                self._enter(_Frame("if" if word == "if" else "loop", None, subject=word, awaits=True))
                self._condition = []
            elif word == "elif":
                self._next_branch()
                if self.frames:
                    self.frames[-1].awaits = True
            elif word in ("then", "do"):
                self._begin_branch()
            elif word == "else":
                self._else()
            elif word in ("fi", "done", "esac", "}"):
                if self.frames:
                    self._leave()
            elif word in ("for", "select"):
                self._loop(tokens[at:])
                return
            elif word == "case":
                subject = self.known(tokens[at]) if at < len(tokens) else None
                self._enter(_Frame("case", False, subject=subject, awaits=True))
                after = [place for place in range(at, len(tokens)) if _plain(tokens[place]) == "in"]
                at = after[0] + 1 if after else len(tokens)
            elif word == "{":
                self._enter(_Frame("group", True))
            elif word == "function":
                self.functions.update(_plain(token) for token in tokens[at : at + 1])
                at = len(tokens) - (_plain(tokens[-1]) == "{")
            elif word not in ("time", "exec"):
                self._simple(tokens[at - 1 :], ended)
                return
        if ended == ";;":
            self._end_pattern()

    def _else(self) -> None:
        self._next_branch()
        if self.frames:
            frame = self.frames[-1]
            frame.covers = True
            frame.runs = False if frame.decided else (None if frame.branches else True)

    def _awaits_pattern(self) -> bool:
        return bool(self.frames) and self.frames[-1].kind == "case" and self.frames[-1].awaits

    _condition: list[tuple[bool | None, str]] = field(default_factory=list)
    _patterns: list[str] = field(default_factory=list)

    def _in_pattern(self, tokens: list[Token], ended: str) -> bool:
        """Whether a pattern of a case begins here, which then has been read."""
        frame, first = self.frames[-1], tokens[0]
        if not isinstance(first, Word) or first.plain == "esac":
            frame.awaits = False
            return False
        place = next((at for at, each in enumerate(tokens) if _ends_pattern(each)), None)
        self._patterns.append((self.known(tokens[place or 0]) or "").removesuffix(")" if place is not None else ""))
        if place is None and ended != ")":  # one of several, a|b)
            return True
        patterns, self._patterns, frame.awaits = self._patterns, [], False
        met = None if frame.subject is None else any(fnmatchcase(frame.subject, each) for each in patterns)
        frame.covers = frame.covers or met is True or "*" in patterns
        frame.runs = False if frame.decided else None if met and frame.branches else met
        frame.decided = frame.decided or met is True
        self._statement(tokens[place + 1 :] if place is not None else [], ended)
        return True

    def _end_pattern(self) -> None:
        if self.frames and self.frames[-1].kind == "case":
            self._next_branch()
            self.frames[-1].runs, self.frames[-1].awaits = False, True

    def _simple(self, tokens: list[Token], ended: str) -> None:
        """A command without reserved words."""
        frame = self.frames[-1] if self.frames else None
        if frame is not None and frame.awaits and frame.kind != "case":
            if not self._skipping(self.frames[:-1]):
                self._take_input([token for token in tokens if isinstance(token, Word)])
                self._condition.append((self.test(tokens), ended))
            return
        head = tokens[0].plain if isinstance(tokens[0], Word) else ""
        met: bool | None = True
        if self.open_test or head in _TESTS:
            met = self.test(tokens)
        elif not self._skipping(self.frames):
            self._execute(tokens)
        if frame is not None and frame.kind == "single":
            met = frame.skipped if frame.runs is False else None if frame.runs is None else met
            self._leave()
        if ended in ("&&", "||"):
            runs = met if ended == "&&" or met is None else not met
            self._enter(_Frame("single", runs, skipped=ended == "||"))
        elif ended == ";;":
            self._end_pattern()

    def _skipping(self, frames: Iterable[_Frame]) -> bool:
        return any(frame.runs is False for frame in frames)

    # branches

    def _enter(self, frame: _Frame) -> None:
        if len(self.frames) >= MOST_DEPTH:
            raise InputError(f"the commands are nested more than {MOST_DEPTH} deep; give the command that is run alone")
        self.frames.append(frame)

    def _begin_branch(self) -> None:
        if not self.frames:
            return
        frame = self.frames[-1]
        if not frame.awaits or frame.kind == "case":
            return
        met = combined(self._condition)
        self._condition, frame.awaits = [], False
        if frame.subject == "until" and met is not None:
            met = not met
        if frame.kind == "loop" and met is True:
            met = None  # how often it runs is not known
        frame.runs = False if frame.decided else None if met and frame.branches else met
        frame.covers = frame.covers or met is True
        frame.decided = frame.decided or met is True

    def _next_branch(self) -> None:
        """What the branch that ends here assigned is put aside where it may not have run."""
        if not self.frames:
            return
        frame = self.frames[-1]
        if frame.runs is None:
            frame.branches += 1
            for name, before in frame.before.items():
                frame.found.setdefault(name, []).append(self.values[name])
                frame.origins.setdefault(name, before)
                if before is None:
                    self.values.pop(name, None)
                else:
                    self.values[name] = before
        frame.before = {}

    def _leave(self) -> None:
        """End a compound command: variables have the values of its branches, where these agree."""
        self._next_branch()
        frame = self.frames.pop()
        for name, options in frame.found.items():
            every = frame.covers and len(options) == frame.branches
            before = frame.origins[name]
            met = options if every else [*options, *([] if before is None else [before])]
            self.assign(name, self.merged(name, met, before))

    def _loop(self, tokens: list[Token]) -> None:
        """``for name in words``: one word is a value, several are not known."""
        name = tokens[0].plain if tokens and isinstance(tokens[0], Word) else ""
        words = [text for each in tokens[2:] if isinstance(each, Word) for text in self.fields(each)]
        once = len(words) == 1 and not words[0].startswith(("$", "`"))
        self._enter(_Frame("loop", True if once else None))
        if re.fullmatch(NAME, name):
            if once:
                self.assign(name, words[0])
            else:
                self.unsure[name] = tuple(dict.fromkeys(words))[:MOST_OPTIONS]
                self.assign(name, f"${{{name}}}")

    # commands

    def _execute(self, tokens: list[Token]) -> None:
        assignments, words, declaring = _divided(tokens)
        own = [each for each in assignments if not words or declaring]  # others are those of the command that follows alone
        for each in own:
            self._give(each)
        if not words or declaring:
            return
        self._command(words)
        for each in assignments:
            if FROM_OUTSIDE.fullmatch(each.name[1]):  # tells the program its processes
                self._give(each)

    def _give(self, assignment: _Assignment) -> None:
        if assignment.items is None:
            self._scalar(assignment.name, assignment.word)
        else:
            self._list(assignment.name, assignment.items)

    def _command(self, words: list[Word]) -> None:
        """A command that is no assignment."""
        head = words[0].plain
        expression = arithmetic_of(words)
        if expression is not None or head == "let":
            for each in [self.text(word) for word in words[1:]] if expression is None else expression.split(","):
                self._let(each.strip())
        elif head == "unset":
            for word in words[1:]:
                self.values.pop(word.plain, None)
        elif head in _SOURCES and len(words) > 1:
            self._source(self.text(words[1]))
        elif head == "eval" and self.sourced < MOST_SOURCED and not _OPEN.search(text := " ".join(self._fields(words[1:]))):
            self.sourced += 1
            self._go_over(tokens_of(text))
        elif head == "set" and len(words) > 1 and words[1].plain == "--":
            self._start_with(self._fields(words[2:]))
        elif head == "shift" and ARGUMENTS in self.values:
            self.assign(ARGUMENTS, "$@")  # how often is not counted
        elif not self._take_input(words):
            made = self._fields(words)
            if made and made[0] in self.functions and len(made) > 1:
                self.calls.append(made)
            elif made and made[0] not in _SILENT:
                self.commands.append(made)

    def _fields(self, words: Iterable[Word]) -> tuple[str, ...]:
        return tuple(text for word in words for text in self.fields(word))

    def _start_with(self, words: Sequence[str]) -> None:
        """Give the script other words than it was started with."""
        self.assign(ARGUMENTS, list(words))
        self.assign("#", str(len(words)))
        for place, word in enumerate(words[:9], 1):
            self.assign(str(place), word)

    def _take_input(self, words: Sequence[Word]) -> bool:
        """Whether a command gives variables values of which nothing is known; it has then."""
        place = next((at for at, word in enumerate(words) if not _ASSIGNED.fullmatch(word.parts[0].text)), len(words))
        head = words[place].plain if place < len(words) else ""
        names = [word.plain for word in words[place + 1 :] if re.fullmatch(NAME, word.plain)]
        if head == "printf":
            names = names[:1] if [word.plain for word in words[place + 1 : place + 2]] == ["-v"] else []
        if head not in _FROM_INPUT or (head == "printf" and not names):
            return False
        for name in names or ["REPLY"]:
            self.assign(name, f"${{{name}}}")
        return True

    def _let(self, expression: str) -> None:
        """``NAME = A * B``, ``NAME += 1`` or ``NAME++`` of ((...)) and let; a value that cannot be computed is not known."""
        changed = _CHANGED.fullmatch(expression)
        if changed is None:
            return
        name, how, right = changed[1] or changed[4], changed[2] or "", changed[3] or ""
        made = f"{name} {changed[5][0]} 1" if changed[4] else f"{name} {how} ({right})" if how else right
        result = value_of(made, self.number)
        self.assign(name, f"${{{name}}}" if result is None else str(result))

    def _source(self, name: str) -> None:
        """Read a file that the script reads, where it lies beside it; one of the system's says nothing of a launch."""
        found = _SOURCED.fullmatch(name)
        text = None if found is None or self.sourced >= MOST_SOURCED else self.beside(found[1])
        if text is not None:
            self.sourced += 1
            self._go_over(tokens_of(_unmarked(text)))
        elif not name.startswith(_OF_SYSTEM) and not _SHELL_SET_UP.search(name):
            self.unread[name] = None

    def file(self, name: str) -> str | None:
        """See base class: those beside the script."""
        found = _SOURCED.fullmatch(name)
        return None if found is None else self.beside(found[1])

    def _scalar(self, assigned: re.Match[str], token: Word) -> None:
        name, index, more = assigned[1], assigned[2], assigned[3]
        rest = Word((Part(PartKind.TEXT, assigned[4], token.parts[0].quoted), *token.parts[1:]))
        value = self.text(rest)
        before = self.values.get(name)
        if index is not None:
            items = list(before) if isinstance(before, list) else [before] if before is not None else []
            at = int(index[1:-1]) if re.fullmatch(r"\[[0-9]{1,4}\]", index) else -1
            if not 0 <= at <= len(items):
                return
            items[at : at + 1] = [value]
            self.assign(name, items)
        elif more:
            grown: Value = [*before[:-1], before[-1] + value] if isinstance(before, list) and before else f"{before or ''}{value}"
            self.assign(name, grown)
        else:
            self.assign(name, value)

    def _list(self, assigned: re.Match[str], tokens: Iterable[Token]) -> None:
        items = [text for token in tokens if isinstance(token, Word) for text in self.fields(token)]
        before = self.values.get(assigned[1])
        if assigned[3] and isinstance(before, list) and all(frame.runs is not None for frame in self.frames):
            before += items  # in place: nothing else has it
            items = before
        elif assigned[3]:
            items = [*([before] if isinstance(before, str) else before or ()), *items]
        self.assign(assigned[1], items)

    def assign(self, name: str, value: Value) -> None:
        """See base class; what a branch that may run changes is put aside."""
        for frame in reversed(self.frames):
            if frame.runs is None:
                frame.before.setdefault(name, self.values.get(name))
                break
        super().assign(name, value)


def _divided(tokens: Sequence[Token]) -> tuple[list[_Assignment], list[Word], bool]:
    """Assignments of a simple command, its words, and whether it declares variables; redirections are left out."""
    assignments, words = list[_Assignment](), list[Word]()
    place, declaring = 0, False
    while place < len(tokens):
        token = tokens[place]
        place += 1
        if isinstance(token, Operator):
            if token.text.startswith(("<", ">")) and place < len(tokens) and not _is_flag(tokens[place]):
                place += 1
            continue
        if not words or declaring:
            if token.plain in _DECLARING:
                declaring = True
                continue
            head = token.parts[0]
            assigned = _ASSIGNED.fullmatch(head.text) if head.kind is PartKind.TEXT and not head.quoted else None
            if assigned is not None and not (declaring and assigned[1].startswith("-")):
                following = tokens[place] if place < len(tokens) else None
                items = None
                if isinstance(following, Operator) and following.text == "=(":
                    end = next((at for at in range(place, len(tokens)) if tokens[at] == Operator(")")), len(tokens))
                    items = tokens[place + 1 : end]
                    place = end + 1
                assignments.append(_Assignment(assigned, token, items))
                continue
            if declaring:
                continue
        words.append(token)
    return assignments, words, declaring


def _plain(token: Token) -> str:
    return token.plain if isinstance(token, Word) else ""


def _ends_pattern(token: Token) -> bool:
    last = token.parts[-1] if isinstance(token, Word) else None
    return last is not None and last.kind is PartKind.TEXT and not last.quoted and last.text.endswith(")")


def _is_flag(token: Token) -> bool:
    return isinstance(token, Word) and token.parts[0].text.startswith("--")
