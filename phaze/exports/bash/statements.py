"""Statements of a bash script in order: reserved words, functions that it has, and commands that
perhaps run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from phaze.exports.bash.assignments import Assignments
from phaze.exports.bash.branches import Frame
from phaze.exports.bash.conditions import arithmetic_of
from phaze.exports.bash.simple_commands import body_of, plain, statements
from phaze.exports.bash.variables import MOST_OPTIONS
from phaze.exports.bash.words import NAME_ALONE, PartKind, Token, Word

_TESTS = ("[", "[[", "test", "true", "false")


@dataclass
class Statements(Assignments):
    """``functions`` are bodies by name; ``returned`` is whether what is gone over has ended,
    ``status`` its success."""

    functions: dict[str, Sequence[Token]] = field(default_factory=dict)
    returned: bool = False
    status: bool | None = True  # of the last function
    in_pipe: bool = False  # behind |
    patterns: list[str] = field(default_factory=list)

    def go_over(self, tokens: Sequence[Token]) -> None:
        """Go over all statements in order."""
        floor = len(self.frames)
        place: int | None = 0
        while place is not None:
            place = self._to_function(tokens, place)
        while len(self.frames) > floor:
            self.leave()

    def execute(self, tokens: Sequence[Token], ended: str) -> None:
        """Go over a command without reserved words, and what ``ended`` it."""

    def _to_function(self, tokens: Sequence[Token], start: int) -> int | None:
        """Go over statements up to the next function, and give the place behind it."""
        for statement, ended, behind in statements(tokens, start):
            if self.returned:
                return None
            named = len(statement) > 1 and plain(statement[0]) == "function"
            name = ""
            if named or (ended == "()" and statement):
                name = plain(statement[1 if named else -1])
            begins = behind + 1 - len(statement) if named and len(statement) > 2 else behind
            body = body_of(tokens, begins) if name else None
            if body is None:
                opens = ended == "(" and not self._awaits_pattern()
                closes = ended == ")" and not self._awaits_pattern()
                self._statement(statement, ended)
                if opens:
                    self.enter_subshell()
                elif closes:
                    self.leave_subshell()
                continue
            if not named and len(statement) > 1:
                self._statement(statement[:-1], "")
            if not self.skipping(self.frames):
                self.functions[name] = body[0]
            return body[1]
        return None

    def _statement(self, tokens: list[Token], ended: str) -> None:
        """One simple command, with reserved words before it, and what ended it."""
        at = 0
        while at < len(tokens):
            word = plain(tokens[at])
            if self._awaits_pattern() and self._in_pattern(tokens[at:], ended):
                return
            at += 1
            if word in ("if", "while", "until"):
                self.enter(Frame("if" if word == "if" else "loop", None, subject=word, awaits=True))
                self.condition = []
            elif word == "elif":
                self.next_branch()
                if self.frames:
                    self.frames[-1].awaits = True
            elif word in ("then", "do"):
                self.begin_branch()
            elif word == "else":
                self.begin_else()
            elif word in ("fi", "done", "esac", "}"):
                self.leave_compound()
            elif word in ("for", "select"):
                self._loop(tokens[at:])
                return
            elif word == "case":
                subject = self.known(tokens[at]) if at < len(tokens) else None
                self.enter(Frame("case", False, subject=subject, awaits=True))
                after = [place for place in range(at, len(tokens)) if plain(tokens[place]) == "in"]
                at = after[0] + 1 if after else len(tokens)
            elif word == "{":
                self.enter(Frame("group", True))
            elif word not in ("time", "exec"):
                self._simple(tokens[at - 1 :], ended)
                return
        if ended == ";;":
            self._end_pattern()

    def _awaits_pattern(self) -> bool:
        return bool(self.frames) and self.frames[-1].kind == "case" and self.frames[-1].awaits

    def _in_pattern(self, tokens: list[Token], ended: str) -> bool:
        """Whether a pattern of a case begins here, which then has been read."""
        frame, first = self.frames[-1], tokens[0]
        if not isinstance(first, Word) or first.plain == "esac":
            frame.awaits = False
            return False
        place = next((at for at, each in enumerate(tokens) if _ends_pattern(each)), None)
        self.patterns.append(
            (self.known(tokens[place or 0]) or "").removesuffix(")" if place is not None else "")
        )
        if place is None and ended != ")":  # one of several, a|b)
            return True
        patterns, self.patterns, frame.awaits = self.patterns, [], False
        met = None
        if frame.subject is not None:
            met = any(fnmatchcase(frame.subject, each) for each in patterns)
        frame.covers = frame.covers or met is True or "*" in patterns
        frame.runs = False if frame.decided else None if met and frame.branches else met
        frame.decided = frame.decided or met is True
        self._statement(tokens[place + 1 :] if place is not None else [], ended)
        return True

    def _end_pattern(self) -> None:
        if self.frames and self.frames[-1].kind == "case":
            self.next_branch()
            self.frames[-1].runs, self.frames[-1].awaits = False, True

    def _simple(self, tokens: list[Token], ended: str) -> None:
        frame = self.frames[-1] if self.frames else None
        if frame is not None and frame.awaits and frame.kind != "case":
            if not self.skipping(self.frames[:-1]):
                self.condition.append((self._met(tokens, ended), ended))
            return
        met: bool | None = True
        if self._is_test(tokens):
            met = self.test(tokens)
        elif not self.skipping(self.frames):
            met = self._status_of(tokens, ended)
        if frame is not None and frame.kind == "single":
            met = frame.skipped if frame.runs is False else None if frame.runs is None else met
            self.leave()
        if ended in ("&&", "||"):
            runs = met if ended == "&&" or met is None else not met
            self.enter(Frame("single", runs, skipped=ended == "||"))
        elif ended == ";;":
            self._end_pattern()

    def _is_test(self, tokens: list[Token]) -> bool:
        first = tokens[plain(tokens[0]) == "!"] if len(tokens) > 1 else tokens[0]
        return self.open_test or plain(first) in _TESTS

    def _status_of(self, tokens: list[Token], ended: str) -> bool | None:
        """Go over a command; whether it succeeds, which programs are taken to do."""
        inverted = plain(tokens[0]) == "!"
        self.status = True
        # a process of its own, which changes nothing here
        own = ended in ("|", "|&", "&") or self.in_pipe
        self.in_pipe = ended in ("|", "|&")
        before = dict(self.values) if own else {}
        self.execute(tokens[inverted:], ended)
        if own:
            self.values = before
        return self.status if not inverted or self.status is None else not self.status

    def _met(self, tokens: list[Token], ended: str) -> bool | None:
        """What a condition comes to; the command that it may be is one of the script."""
        if self._is_test(tokens) or arithmetic_of(tokens) is not None:
            return self.test(tokens)
        frame = self.frames[-1]
        first, frame.runs = frame.runs, frame.runs if frame.branches or frame.decided else True
        met = self._status_of(tokens, ended)
        frame.runs = first
        if plain(tokens[-1]) in self.functions or plain(tokens[0]) in self.functions:
            return met
        return None

    def _loop(self, tokens: list[Token]) -> None:
        """``for name in words``: one word is a value, several are not known."""
        name = plain(tokens[0]) if tokens else ""
        listed = [each for each in tokens[2:] if isinstance(each, Word)]
        words = [text for each in listed for text in self.fields(each)]
        once = len(words) == 1 and not words[0].startswith(("$", "`"))
        empty = len(tokens) > 2 and not words
        self.enter(Frame("loop", True if once else False if empty else None))
        if NAME_ALONE.fullmatch(name):
            if once:
                self.assign(name, words[0])
            else:
                self.unsure[name] = tuple(dict.fromkeys(words))[:MOST_OPTIONS]
                self.assign(name, f"${{{name}}}")


def _ends_pattern(token: Token) -> bool:
    if not isinstance(token, Word):
        return False
    last = token.parts[-1]
    return last.kind is PartKind.TEXT and not last.quoted and last.text.endswith(")")
