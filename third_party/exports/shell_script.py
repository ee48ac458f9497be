"""The commands of a bash script with variables put in, as if it were started with no arguments in an empty environment.

Nothing is run. Conditions of assigned variables are decided; what stands in a branch or loop of which it is not known whether it
runs is marked with ``MAYBE`` and ``SURE`` where it adds words to a text, and is unknown where it gives other values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from Common.errors import InputError
from third_party.exports.shell_arithmetic import value_of
from third_party.exports.shell_words import NAME, Operator, Part, PartKind, Token, Word, parts_of, tokens_of

MAYBE, SURE = "\x01", "\x02"  # around words of a branch that may not run
LONGEST = 100_000  # characters of a value that is put in; a longer one is left as the script has it
MOST = 50_000_000  # characters put in for variables, of a whole script
MOST_DEFAULTS = 20  # of defaults within defaults
MOST_SOURCED = 20  # files
MOST_DEPTH = 100  # of compound commands
MOST_OPTIONS = 4  # values of a variable that a refusal names
ARRAY_END = ("@", "*")
Value = str | list[str]
_ASSIGNED = re.compile(rf"({NAME})(\[[^\]]*\])?(\+?)=(.*)", re.DOTALL)
_VARIABLE = re.compile(rf"({NAME}|[0-9@*#?$!-])(?:\[([^\]]*)\])?(?:(:?[-=+?])(.*))?", re.DOTALL)
_DECLARING = ("export", "local", "readonly", "declare", "typeset")
_TESTS = ("[", "[[", "test", "true", "false", "!")
_SILENT = ("echo", "printf", ":")  # commands whose words are no commands themselves
_SOURCES = (".", "source")
_SOURCED = re.compile(r"(?:.*/)?([\w.-]+)")
_OF_SYSTEM = ("/etc/", "/opt/", "/usr/", "~")
_SHELL_SET_UP = re.compile(r"conda|/bin/activate|bashrc|profile|modules?/|setvars")  # of environments of programs
_FROM_OUTSIDE = re.compile(r"(SLURM|PBS|LSB|OMPI|PMI|MASTER|RANK|LOCAL_RANK|NODE|WORLD_SIZE|HOST|USER|HOME|PWD|PATH)\w*")
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_COMPARED = {
    "-eq": lambda left, right: left == right,
    "-ne": lambda left, right: left != right,
    "-lt": lambda left, right: left < right,
    "-le": lambda left, right: left <= right,
    "-gt": lambda left, right: left > right,
    "-ge": lambda left, right: left >= right,
}


@dataclass(frozen=True)
class Script:
    """``commands`` by their words; ``variables`` at the end, ``unsure`` ones with values that they may have.

    ``unused`` are texts of variables that no command has. ``assumed`` are variables that conditions took as not set, ``unread``
    files that it reads and that do not lie beside it.
    """

    commands: tuple[tuple[str, ...], ...]
    variables: Mapping[str, str]
    unsure: Mapping[str, tuple[str, ...]]
    unused: tuple[str, ...]
    assumed: tuple[str, ...]
    unread: tuple[str, ...]


def script_of(text: str, beside: Callable[[str], str | None] = lambda name: None) -> Script:
    """What a script or any other text with commands in it says; ``beside`` are texts of files that lie beside it, by name.

    Raises:
        InputError: its variables grow beyond all measure.
    """
    return _Interpreter(beside).read(tokens_of(_unmarked(text)))


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


@dataclass
class _Interpreter:
    beside: Callable[[str], str | None]
    values: dict[str, Value] = field(default_factory=dict)
    unsure: dict[str, tuple[str, ...]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    assumed: dict[str, None] = field(default_factory=dict)
    commands: list[tuple[str, ...]] = field(default_factory=list)
    frames: list[_Frame] = field(default_factory=list)
    left: int = MOST
    sourced: int = 0
    unread: dict[str, None] = field(default_factory=dict)

    # statements

    def read(self, tokens: Sequence[Token]) -> Script:
        """Go over all statements in order."""
        self._go_over(tokens)
        while self.frames:
            self._leave()
        flat = {name: _flat(value) for name, value in self.values.items()}
        unused = tuple(text for name, text in flat.items() if name not in self.used and "--" in text)
        return Script(tuple(self.commands), flat, self.unsure, unused, tuple(self.assumed), tuple(self.unread))

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
                subject = self._known(tokens[at]) if at < len(tokens) else None
                self._enter(_Frame("case", False, subject=subject, awaits=True))
                after = [place for place in range(at, len(tokens)) if _plain(tokens[place]) == "in"]
                at = after[0] + 1 if after else len(tokens)
            elif word == "{":
                self._enter(_Frame("group", True))
            elif word == "function":
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
    _open_test: bool = False  # [[ without its ]], which && and || divide

    def _in_pattern(self, tokens: list[Token], ended: str) -> bool:
        """Whether a pattern of a case begins here, which then has been read."""
        frame, first = self.frames[-1], tokens[0]
        if not isinstance(first, Word) or first.plain == "esac":
            frame.awaits = False
            return False
        place = next((at for at, each in enumerate(tokens) if _ends_pattern(each)), None)
        self._patterns.append((self._known(tokens[place or 0]) or "").removesuffix(")" if place is not None else ""))
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
                self._condition.append((self._test(tokens), ended))
            return
        head = tokens[0].plain if isinstance(tokens[0], Word) else ""
        met: bool | None = True
        if self._open_test or head in _TESTS:
            met = self._test(tokens)
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
        met = _combined(self._condition)
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
            self._assign(name, self._merged(name, met, before))

    def _merged(self, name: str, options: list[Value], before: Value | None) -> Value:
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
            ahead = " ".join(_flat(each).removesuffix(before) for each in options)
            return f"{MAYBE} {ahead} {SURE} {before}"
        if before is None and all("--" in _flat(each) for each in options):
            return f"{MAYBE} {' '.join(_flat(each) for each in options)} {SURE}"
        self.unsure[name] = tuple(dict.fromkeys(_flat(each) for each in options))[:MOST_OPTIONS]
        return f"${{{name}}}"

    def _loop(self, tokens: list[Token]) -> None:
        """``for name in words``: one word is a value, several are not known."""
        name = tokens[0].plain if tokens and isinstance(tokens[0], Word) else ""
        words = [text for each in tokens[2:] if isinstance(each, Word) for text in self._fields(each)]
        self._enter(_Frame("loop", True if len(words) == 1 else None))
        if re.fullmatch(NAME, name):
            if len(words) == 1:
                self._assign(name, words[0])
            else:
                self.unsure[name] = tuple(dict.fromkeys(words))[:MOST_OPTIONS]
                self._assign(name, f"${{{name}}}")

    # commands

    def _execute(self, tokens: list[Token]) -> None:
        place, words = 0, list[Word]()
        declaring = False
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
                    if isinstance(following, Operator) and following.text == "=(":
                        end = next((at for at in range(place, len(tokens)) if tokens[at] == Operator(")")), len(tokens))
                        self._list(assigned, tokens[place + 1 : end])
                        place = end + 1
                    else:
                        self._scalar(assigned, token)
                    continue
                if declaring:
                    continue
            words.append(token)
        if not words:
            return
        if words[0].plain in ("unset",):
            for word in words[1:]:
                self.values.pop(word.plain, None)
            return
        if words[0].plain in _SOURCES and len(words) > 1:
            self._source(self._text(words[1]))
            return
        made = tuple(text for word in words for text in self._fields(word))
        if made and made[0] not in _SILENT:
            self.commands.append(made)

    def _source(self, name: str) -> None:
        """Read a file that the script reads, where it lies beside it; one of the system's says nothing of a launch."""
        found = _SOURCED.fullmatch(name)
        text = None if found is None or self.sourced >= MOST_SOURCED else self.beside(found[1])
        if text is not None:
            self.sourced += 1
            self._go_over(tokens_of(_unmarked(text)))
        elif not name.startswith(_OF_SYSTEM) and not _SHELL_SET_UP.search(name):
            self.unread[name] = None

    def _scalar(self, assigned: re.Match[str], token: Word) -> None:
        name, index, more = assigned[1], assigned[2], assigned[3]
        rest = Word((Part(PartKind.TEXT, assigned[4], token.parts[0].quoted), *token.parts[1:]))
        value = self._text(rest)
        before = self.values.get(name)
        if index is not None:
            items = list(before) if isinstance(before, list) else [before] if before is not None else []
            at = int(index[1:-1]) if re.fullmatch(r"\[[0-9]{1,4}\]", index) else -1
            if not 0 <= at <= len(items):
                return
            items[at : at + 1] = [value]
            self._assign(name, items)
        elif more:
            grown: Value = [*before[:-1], before[-1] + value] if isinstance(before, list) and before else f"{before or ''}{value}"
            self._assign(name, grown)
        else:
            self._assign(name, value)

    def _list(self, assigned: re.Match[str], tokens: Iterable[Token]) -> None:
        items = [text for token in tokens if isinstance(token, Word) for text in self._fields(token)]
        before = self.values.get(assigned[1])
        if assigned[3] and isinstance(before, list) and all(frame.runs is not None for frame in self.frames):
            before += items  # in place: nothing else has it
            items = before
        elif assigned[3]:
            items = [*([before] if isinstance(before, str) else before or ()), *items]
        self._assign(assigned[1], items)

    def _assign(self, name: str, value: Value) -> None:
        for frame in reversed(self.frames):
            if frame.runs is None:
                frame.before.setdefault(name, self.values.get(name))
                break
        if value != f"${{{name}}}":
            self.unsure.pop(name, None)
        self.used.discard(name)
        self.values[name] = value

    # words

    def _text(self, word: Word) -> str:
        """A word with variables put in, not split."""
        return "".join(self._part(part) for part in word.parts)

    def _fields(self, word: Word) -> list[str]:
        """A word with variables put in; several where an unquoted variable holds several, or a list is put in."""
        found, joined = list[str](), False
        for part in word.parts:
            items = self._items(part)
            if items is None:
                text = self._part(part)
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

    def _part(self, part: Part, depth: int = 0) -> str:
        if part.kind is PartKind.TEXT:
            return part.text
        if part.kind is PartKind.ARITHMETIC:
            result = value_of(part.text, self._number)
            return f"$(({part.text}))" if result is None else str(result)
        if part.kind is PartKind.COMMAND:
            return part.text
        return self._variable(part, depth)

    def _number(self, name: str) -> str | None:
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
                self._assign(name, made)
            return made
        return as_written if value is None else value

    def _default(self, text: str, depth: int) -> str:
        return "".join(self._part(each, depth + 1) for each in parts_of(text.replace("'", ""), True))

    def _spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise InputError(f"the variables of the command put in are more than {MOST:,} characters; write their values out")

    # conditions

    def _known(self, token: Token) -> str | None:
        """The text of a word of a condition; None where it is not known."""
        if not isinstance(token, Word):
            return None
        texts = list[str]()
        for part in token.parts:
            text = self._part(part)
            if part.kind is PartKind.COMMAND or (part.kind is PartKind.ARITHMETIC and text.startswith("$(")):
                return None
            if part.kind is PartKind.VARIABLE and text.startswith("$"):
                name = re.sub(r"\W.*", "", part.text) or part.text
                if name in self.unsure or _FROM_OUTSIDE.fullmatch(name) or name in self.values or name in "?$!":
                    return None
                self.assumed[name] = None
                text = "0" if part.text == "#" else ""
            if MAYBE in text or "$" in text:
                return None
            texts.append(text)
        return "".join(texts)

    def _test(self, tokens: Sequence[Token]) -> bool | None:
        """What a test comes to; None where it is not known, and for other commands."""
        words = [token for token in tokens if isinstance(token, Word)]
        head = words[0].plain if words else ""
        if head == "true":
            return True
        if head == "false":
            return False
        if head == "!":
            inner = self._test(words[1:])
            return None if inner is None else not inner
        if head not in ("[", "[[", "test") and not self._open_test:
            return None
        ends = words[-1].plain in ("]", "]]")
        self._open_test = (head == "[[" or self._open_test) and not ends
        body = words[1:] if head in ("[", "[[", "test") else words
        operators = any(isinstance(token, Operator) for token in tokens)  # comparisons of texts by their order
        return None if operators else self._compared(body[:-1] if ends else body)

    def _compared(self, words: list[Word]) -> bool | None:
        if words and words[0].plain == "!":
            inner = self._compared(words[1:])
            return None if inner is None else not inner
        if len(words) == 2 and words[0].plain == "-v":
            name = words[1].plain
            if name not in self.values and not _FROM_OUTSIDE.fullmatch(name):
                self.assumed[name] = None
            return None if name not in self.values and _FROM_OUTSIDE.fullmatch(name) else name in self.values
        if len(words) == 2 and words[0].plain in ("-z", "-n"):
            text = self._known(words[1])
            return None if text is None else (text == "") == (words[0].plain == "-z")
        if len(words) == 1:
            text = self._known(words[0])
            return None if text is None else text != ""
        if len(words) != 3:
            return None
        left, how, right = self._known(words[0]), words[1].plain, self._known(words[2])
        if left is None or right is None:
            return None
        if how in ("==", "=", "!="):
            return fnmatchcase(left, right) == (how != "!=")
        if how in _COMPARED:
            numbers = [int(each) if _NUMBER.fullmatch(each) else 0 if each == "" else None for each in (left, right)]
            return None if None in numbers else bool(_COMPARED[how](*numbers))
        return None


def _combined(conditions: Sequence[tuple[bool | None, str]]) -> bool | None:
    """Tests joined by && and ||, from the left; of several commands the last one counts."""
    found: bool | None = None
    how = ";"
    for met, following in conditions:
        if how == "&&":
            found = False if found is False or met is False else None if None in (found, met) else True
        elif how == "||":
            found = True if found is True or met is True else None if None in (found, met) else False
        else:
            found = met
        how = following
    return found


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


def _flat(value: Value) -> str:
    return value if isinstance(value, str) else " ".join(value)


def _plain(token: Token) -> str:
    return token.plain if isinstance(token, Word) else ""


def _ends_pattern(token: Token) -> bool:
    last = token.parts[-1] if isinstance(token, Word) else None
    return last is not None and last.kind is PartKind.TEXT and not last.quoted and last.text.endswith(")")


def _is_flag(token: Token) -> bool:
    return isinstance(token, Word) and token.parts[0].text.startswith("--")
