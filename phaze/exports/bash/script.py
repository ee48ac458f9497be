"""The commands of a bash script with variables put in, as if it were started with no arguments in
an empty environment.

Nothing is run. Conditions of assigned variables are decided; what stands in a branch or loop of
which it is not known whether it runs is marked with ``MAYBE`` and ``SURE`` where it adds words to a
text, and is unknown where it gives other values. Functions are gone over where they are called, and
scripts where they are started.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from phaze.exports.bash.conditions import FROM_OUTSIDE, arithmetic_of
from phaze.exports.bash.input import assigned_by
from phaze.exports.bash.simple_commands import Assignment, SimpleCommand, simple_command
from phaze.exports.bash.statements import Statements
from phaze.exports.bash.variables import ARGUMENT_DIGITS, ARGUMENTS, MAYBE, SURE, Value, flat
from phaze.exports.bash.words import NAME, NAME_ALONE, Token, Word, lexed_of, tokens_of
from phaze_common.errors import InputError

MOST_SOURCED = 20  # files, and texts that are commands
MOST_RUN = 500_000  # words of functions that are called
_FROM_INPUT = ("read", "mapfile", "readarray")
_SILENT = ("echo", "printf", ":")  # commands whose words are no commands themselves
_WRITING = ("cat", "echo", "tee")
_SHELLS = re.compile(r"(?:.*/)?(?:ba|z|da)?sh")
_QUEUED = re.compile(r"(?:.*/)?sbatch")
_SOURCES = (".", "source")
# within the script's folder, or of an unknown one
_PATH = re.compile(r"(?:[^/]*[$`][^/]*/|\./)*((?:[\w.-]+/)*?)([\w.-]+)")
_OF_SYSTEM = ("/etc/", "/opt/", "/usr/", "~")
# of environments of programs
_SHELL_SET_UP = re.compile(r"conda|/bin/activate|bashrc|profile|modules?/|setvars")
_GIVEN = re.compile(rf"({NAME})=(.*)", re.DOTALL)
_ARGUMENT_NAMES = (ARGUMENTS, "#", *ARGUMENT_DIGITS)


@dataclass(frozen=True)
class Script:
    """``commands`` by their words; ``variables`` at the end, ``unsure`` ones with values that they
    may have.

    ``unused`` are texts of variables that no command has. ``assumed`` are variables that conditions
    took as not set, ``unread`` files that it reads and that do not lie beside it. ``unended`` is
    the line with a quote or bracket that never ends (0: none).
    """

    commands: tuple[tuple[str, ...], ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    unsure: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    unended: int = 0


def script_of(
    text: str,
    beside: Callable[[str], str | None] = lambda name: None,
    environment: Mapping[str, str] = MappingProxyType({}),
    whole: bool = False,
) -> Script:
    """What a script or any other text with commands in it says.

    ``beside`` are texts of files that lie beside it, by name; ``environment`` are variables that it
    begins with. With ``whole``, functions that nothing calls and texts that nothing reads are
    commands, too.

    Raises:
        InputError: its variables or its functions grow beyond all measure.
    """

    def read(name: str) -> str | None:
        found = beside(name)
        return None if found is None else _unmarked(found)

    made = _Interpreter(values=dict(environment), exported=set(environment), beside=read)
    lexed = lexed_of(_unmarked(text))
    made.go_over(lexed.tokens)
    if whole:
        made.go_over_the_rest()
    return made.script(lexed.unended)


def _unmarked(text: str) -> str:
    return text.replace(MAYBE, "").replace(SURE, "")


@dataclass(frozen=True)
class _Other:
    """Another script: words ``before`` it, which are of each of its commands, its text, and what it
    is started with.

    ``name`` is its own where the command says one.
    """

    before: tuple[str, ...]
    text: str
    words: tuple[str, ...] = ()
    name: tuple[str, ...] = ()


@dataclass
class _Interpreter(Statements):
    """``files`` are those that the script writes, None where it is not known what; ``left_over``
    texts that nothing has read."""

    beside: Callable[[str], str | None] = lambda name: None
    commands: list[tuple[str, ...]] = field(default_factory=list)
    exported: set[str] = field(default_factory=set)
    sourced: int = 0
    run: int = 0  # words of functions
    unread: dict[str, None] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    running: list[str] = field(default_factory=list)
    locals: list[dict[str, Value | None]] = field(default_factory=list)
    # open compound commands where each running function was called
    floors: list[int] = field(default_factory=list)
    files: dict[str, str | None] = field(default_factory=dict)
    left_over: dict[str, None] = field(default_factory=dict)
    piped: str | None = None  # what the command before writes into this one

    def script(self, unended: int) -> Script:
        """What all that was gone over says."""
        texts = {name: flat(value) for name, value in self.values.items()}
        unused = tuple(
            text for name, text in texts.items() if name not in self.used and "--" in text
        )
        return Script(
            tuple(self.commands),
            texts,
            self.unsure,
            unused,
            tuple(self.assumed),
            tuple(self.unread),
            unended,
        )

    def go_over_the_rest(self) -> None:
        """Go over functions that nothing calls and texts that nothing reads."""
        for name in [each for each in self.functions if each not in self.called]:
            self._call((name,), ())
        for text in self.left_over:
            self.go_over(tokens_of(text))

    # commands

    def execute(self, tokens: Sequence[Token], ended: str) -> None:
        """See base class."""
        command = simple_command(tokens)
        piped, self.piped = self.piped, None
        if command.declaring or not command.words:
            self._declare(command)
            return
        text = piped if command.source is None else self.file(self.text(command.source))
        text = text if command.input is None else self.text(command.input)
        if text is not None and not text.endswith("\n"):
            text += "\n"
        self._command(command, text, ended == "|")
        for each in command.assignments:
            if FROM_OUTSIDE.fullmatch(each.name):  # tells the program its processes
                self.give(each)

    def _declare(self, command: SimpleCommand) -> None:
        """Assignments that are commands of their own, and names that are declared with them."""
        alone = [word.plain for word in command.words if NAME_ALONE.fullmatch(word.plain)]
        computed = [word for word in command.words if not NAME_ALONE.fullmatch(word.plain)]
        names = [*(each.name for each in command.assignments), *alone]
        of_all = command.declaring not in ("declare", "typeset") or "g" in command.flags
        if self.locals and (command.declaring == "local" or not of_all):
            for name in names:
                self.locals[-1].setdefault(name, self.values.get(name))
            for name in alone:
                self.forget(name)
        if command.declaring == "export" or "x" in command.flags:
            self.exported.update(names)
        if "A" in command.flags:
            self.maps.update(names)
        for each in command.assignments:
            self.give(each)
        for word in computed:
            self._declare_computed(command.declaring, word)

    def _declare_computed(self, declaring: str, word: Word) -> None:
        """``export "$name=4"`` and ``export $(cat file)``; what is not known from the file is
        noted."""
        for text in self.fields(word):
            name, equals, value = text.partition("=")
            if equals and NAME_ALONE.fullmatch(name):
                self.assign(name, value)
                self.exported |= {name} if declaring == "export" else set()
            elif "$" in text or "`" in text:
                self.unread[f"{declaring} {text}"] = None

    def _command(self, command: SimpleCommand, text: str | None, pipes: bool) -> None:
        """A command that is no assignment; ``text`` is what it reads, and it ``pipes`` into the
        next one."""
        words = command.words
        head = words[0].plain
        expression = arithmetic_of(words)
        if expression is not None or head == "let":
            texts = [self.text(word) for word in words[1:]]
            for each in texts if expression is None else expression.split(","):
                self.let(each.strip())
        elif head == "unset":
            for word in words[1:]:
                self.unset(self.text(word))
        elif head in _SOURCES and len(words) > 1:
            self._source(self.text(words[1]))
        elif head == "eval" and self.sourced < MOST_SOURCED:
            self.sourced += 1
            self.go_over(tokens_of(" ".join(self._fields(words[1:]))))
        elif head == "set" and len(words) > 1 and words[1].plain == "--":
            self._start_with(self._fields(words[2:]))
        elif head == "shift":
            self._shift(words[1].plain if len(words) > 1 else "1")
        elif head == "return" and self.floors:
            self.returned = all(frame.runs for frame in self.frames[self.floors[-1] :])
            code = self.text(words[1]) if len(words) > 1 else "0"
            self.status = code == "0" if self.returned and code.isdecimal() else None
        elif head in _FROM_INPUT:
            own = [self.text(each.value) for each in command.assignments if each.name == "IFS"]
            found = assigned_by(self._fields(words), text, own[0] if own else None)
            for name, value in found.items():
                self.assign(name, f"${{{name}}}" if value is None else value)
        elif head in ("printf", "getopts") and (name := self._named(words)):
            self.assign(name, f"${{{name}}}")
        elif made := self._fields(words):
            self._program(made, command, text, pipes)

    def _named(self, words: Sequence[Word]) -> str:
        """The variable that ``printf -v`` or ``getopts`` gives a value."""
        if words[0].plain == "printf" and [word.plain for word in words[1:2]] != ["-v"]:
            return ""
        name = words[2].plain if len(words) > 2 else ""
        return name if NAME_ALONE.fullmatch(name) else ""

    def _program(
        self, made: tuple[str, ...], command: SimpleCommand, text: str | None, pipes: bool
    ) -> None:
        if made[0] in self.functions and made[0] not in self.running:
            self._call(made, command.assignments)
        elif self._writes(made, command, text, pipes):
            return
        elif self.sourced < MOST_SOURCED and (other := self._other(made, text)) is not None:
            self._run(other, command.assignments)
        elif made[0] not in _SILENT:
            self._leave_over(text)
            self.commands.append(made)

    def _leave_over(self, text: str | None) -> None:
        """Note a text that may hold a launch, and that nothing has read yet."""
        if text is not None and "--" in text:
            self.left_over[text] = None

    def _fields(self, words: Iterable[Word]) -> tuple[str, ...]:
        return tuple(text for word in words for text in self.fields(word))

    # arguments and functions

    def _start_with(self, words: Sequence[str]) -> None:
        bound = _bound(words)
        for name in _ARGUMENT_NAMES:
            self.restore(name, bound.get(name))

    def _shift(self, count: str) -> None:
        """Leave out the first words that the script or function was started with."""
        words = self.values.get(ARGUMENTS)
        if isinstance(words, list) and count.isdecimal() and self.certain:
            self._start_with(words[int(count[:9]) :] if int(count[:9]) <= len(words) else words)
        elif words is not None:
            self.assign(ARGUMENTS, "$@")  # how often is not known

    def _call(self, made: tuple[str, ...], assignments: Iterable[Assignment]) -> None:
        """Go over a function with what it is given; variables that it has of its own are as before
        afterwards.

        Raises:
            InputError: functions that call each other grow beyond all measure.
        """
        name, body = made[0], self.functions[made[0]]
        self.called.add(name)
        self.run += len(body) + 1
        if self.run > MOST_RUN:
            raise InputError(
                f"calls of {name:.40} and other functions are more than {MOST_RUN:,} words; write "
                "the command out"
            )
        arguments = {each: self.values.get(each) for each in _ARGUMENT_NAMES}
        own = {each.name: self.values.get(each.name) for each in assignments}
        for assignment in assignments:
            self.give(assignment)
        for each in _ARGUMENT_NAMES:
            self.values.pop(each, None)
        self.values |= _bound(made[1:])
        condition, patterns, open_test = self.condition, self.patterns, self.open_test
        self.running.append(name)
        self.locals.append({})
        self.floors.append(len(self.frames))
        self.open_test = False
        self.go_over(body)
        self.condition, self.patterns, self.open_test = condition, patterns, open_test
        self.returned = False
        self.floors.pop()
        self.running.pop()
        for each, before in {**self.locals.pop(), **own}.items():
            self.restore(each, before)
        for each, before in arguments.items():
            self._put_back(each, before)

    # files

    def _writes(
        self, made: tuple[str, ...], command: SimpleCommand, text: str | None, pipes: bool
    ) -> bool:
        """Whether a command only writes a text, to a file or to the next command; its files are
        noted."""
        if made[0] not in _WRITING:
            return False
        if made[0] == "cat" and len(made) > 1:
            parts = [self.file(name) for name in made[1:]]
            text = None if None in parts else "".join(each or "" for each in parts)
        elif made[0] == "echo":
            said = made[2:] if made[1:2] in (("-e",), ("-n",)) else made[1:]
            text = " ".join(said) + "\n"
        written = [self.text(command.output)] if command.output is not None else []
        appends = command.appends
        if made[0] == "tee":
            written += [word for word in made[1:] if not word.startswith("-")]
            appends = appends or "-a" in made
        for name in written:
            self._write(name.rpartition("/")[2], text, appends)
        if pipes and not written:
            self.piped = text
        elif not written and made[0] != "echo":
            self._leave_over(text)
        return True

    def _write(self, name: str, text: str | None, appends: bool) -> None:
        """Note what is in a file: where it is not known whether it is written, it is not known what
        is in it."""
        before = self.files.get(name, "" if appends else None)
        made = None if before is None and appends else text
        if made is not None and appends:
            made = (before or "") + made
        if before and made != before:
            self.left_over.pop(before, None)
        if self.certain or name not in self.files:
            self.files[name] = made
        elif made != before:
            self.files[name] = None
        self._leave_over(made)

    def file(self, name: str) -> str | None:
        """See base class: those that the script wrote, and those beside it."""
        found = _PATH.fullmatch(name)
        base = name.rpartition("/")[2]
        if base in self.files:
            text = self.files[base]
            self.left_over.pop(text or "", None)
            return text
        if found is None or ".." in found[1].split("/"):
            return None if found is None else self.beside(base)
        text = self.beside(found[1] + found[2]) if found[1] else None
        return self.beside(base) if text is None else text

    def _source(self, name: str) -> None:
        """Read a file that the script reads, where it is known; one of the system's says nothing of
        a launch."""
        text = self.file(name) if self.sourced < MOST_SOURCED else None
        if text is not None:
            self.sourced += 1
            self.floors.append(len(self.frames))
            self.go_over(tokens_of(text))
            self.floors.pop()
            self.returned = False
        elif not name.startswith(_OF_SYSTEM) and not _SHELL_SET_UP.search(name):
            self.unread[name] = None

    def _other(self, made: tuple[str, ...], text: str | None) -> _Other | None:
        """The other script that a command starts, which may be the ``text`` that it reads; None
        where it is not known."""
        shell = next((place for place, word in enumerate(made) if _SHELLS.fullmatch(word)), None)
        if _QUEUED.fullmatch(made[0]):
            for at, word in enumerate(made):
                if (script := self._script(word)) is not None:
                    return _Other(made[:at], script, made[at + 1 :])
            return None if text is None else _Other(made, text)
        if shell is None:
            script = self._script(made[0])
            return None if script is None else _Other((), script, made[1:])
        before = made[:shell]
        behind_shell = range(shell + 1, len(made))
        starts = (at for at in behind_shell if made[at] == "-c" or not made[at].startswith("-"))
        place = next(starts, len(made))
        behind = made[place + 1 :]
        if place == len(made):
            return None if text is None else _Other(before, text)
        if made[place] == "-c":
            return _Other(before, behind[0], behind[2:], behind[1:2]) if behind else None
        script = self._script(made[place])
        return None if script is None else _Other(before, script, behind)

    def _script(self, name: str) -> str | None:
        """The text of a script that is known; None of other words."""
        return self.file(name) if name.endswith((".sh", ".slurm", ".sbatch")) else None

    def _run(self, other: _Other, assignments: Iterable[Assignment]) -> None:
        """Go over another script, which knows what is exported; its commands are those of this one,
        too."""
        self.sourced += 1
        known = dict[str, Value]()
        for name, value in self.values.items():
            if name in self.exported or FROM_OUTSIDE.fullmatch(name) or value == f"${{{name}}}":
                known[name] = value
        known |= {each.name: self.text(each.value) for each in assignments}
        known |= _environment(other.before)
        self.used |= known.keys()
        exported = {name: body for name, body in self.functions.items() if name in self.exported}
        inner = _Interpreter(
            values={**known, **_bound(other.words), **dict(zip("0", other.name, strict=False))},
            exported=set(known),
            beside=self.file,
            left=self.left,
            sourced=self.sourced,
            functions=exported,
        )
        inner.go_over(tokens_of(other.text))
        self.left, self.sourced = inner.left, inner.sourced
        self.commands += [(*other.before, *command) for command in inner.commands]
        self.unread |= inner.unread
        self.assumed |= inner.assumed
        for name, options in inner.unsure.items():
            if name not in self.values:
                self.unsure[name] = options
        self.left_over |= inner.left_over


def _environment(words: Iterable[str]) -> dict[str, Value]:
    """Variables that words before a script give it: of ``env``, ``mpirun -x`` and Slurm's
    ``--export``."""
    texts = [each for word in words for each in word.removeprefix("--export=").split(",")]
    found = [_GIVEN.fullmatch(text) for text in texts]
    return {each[1]: each[2] for each in found if each is not None}


def _bound(words: Sequence[str]) -> dict[str, Value]:
    """Variables of the words that a script or function is started with."""
    places = {str(place): word for place, word in enumerate(words[:9], 1)}
    return {ARGUMENTS: list(words), "#": str(len(words)), **places}
