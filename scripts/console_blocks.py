"""Console examples of the manual: files a page gives, commands it runs, and whether what they print
is what the page says.

A page is read from top to bottom, in one folder:

- a fenced block with ``title="NAME"`` is a file of that name;
- a fenced block ``console`` holds commands after ``$ `` (a line that ends with a backslash goes on
  in the next), and below each what it prints on a terminal of ``COLUMNS`` columns; a line that is
  only ``...`` stands for any lines, also none.

Progress is left out. Notes that a command logs on standard error may be left out without a word;
warnings and refusals may not. What depends on the machine is compared without: the folder in a path
and the hash in the name of a run. Blocks of other languages are not run.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

COLUMNS = 120
HOME = "/home/you"  # where a page says that it runs
LEFT_OUT = "..."
PROMPT = "$ "
PROGRAMS = ("phaze", "python", "cat", "head", "ls")

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,})(?P<language>[\w-]*)(?P<rest>.*)$")
_TITLE = re.compile(r'title="(?P<name>[^"]*)"')
_FOLDERS = re.compile(r"(?<![\w.~])/(?:[\w.+-]+/)*(?=[\w.+-])")
_HASH = re.compile(r"(?<=-)[0-9a-f]{8}\b")
_RULES = re.compile(r"[ ─]+")
_NUMBERS = re.compile(r"\d[\d,.]*")
_NO_NOTE = ("phaze: ", "  - ", "warning: ", "error: ")  # begin lines of standard error
_PROGRESS = re.compile(r": [\d,]+ of [\d,]+ in |, about .+ left$|, (\d+\.\d s|\d+ min.*|\d+ h.*)$")


class PageError(ValueError):
    """A page is not written as the format asks; the message names page and line."""


@dataclass(frozen=True)
class GivenFile:
    """A file that the reader is to make, relative to the page's folder."""

    name: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command and what the page says it prints: lines ``first`` to ``last`` (exclusive, from 0)
    of the page.

    ``indent`` is how far the block is indented in the page.
    """

    line: str
    expected: tuple[str, ...]
    first: int
    last: int
    indent: int = 0

    @property
    def words(self) -> list[str]:
        """Program and arguments."""
        return shlex.split(self.line, comments=True)

    @property
    def may_fail(self) -> bool:
        """Whether the page shows that the command is refused."""
        return any(line.startswith("phaze: ") for line in self.expected)


Step = GivenFile | Command


@dataclass(frozen=True)
class Output:
    """What a command printed, line by line; ``notes`` are the places of those that a page may leave
    out."""

    lines: tuple[str, ...]
    notes: frozenset[int] = frozenset()

    @property
    def without_notes(self) -> list[str]:
        """All other lines."""
        return [line for place, line in enumerate(self.lines) if place not in self.notes]


@dataclass(frozen=True)
class Run:
    """A command that was run, its output and its exit status."""

    command: Command
    output: Output
    status: int

    @property
    def failed(self) -> bool:
        """Whether it ended as the page does not say: neither done, nor without a feasible answer,
        nor refused in sight."""
        return self.status not in {0, 3} and not self.command.may_fail

    @property
    def apart(self) -> str | None:
        """Where page and output part, in words; None where they do not."""
        first = difference(self.command.expected, self.output.without_notes)
        return None if difference(self.command.expected, self.output.lines) is None else first


def steps_of(page: str, name: str = "page") -> list[Step]:
    """Files and commands of a page, in order.

    Raises: PageError: a block that does not end, a file outside the folder, output before a
        command, or a program that is not run.
    """
    lines, steps, place = page.splitlines(), list[Step](), 0
    while place < len(lines):
        opened = _FENCE.match(lines[place])
        place += 1
        if opened is None:
            continue
        indent, end = len(opened["indent"]), opened["indent"] + opened["fence"]
        last = next(
            (each for each in range(place, len(lines)) if lines[each].rstrip() == end), None
        )
        if last is None:
            raise PageError(f"{name}:{place}: this block does not end with {opened['fence']!r}")
        inside = [line[indent:] for line in lines[place:last]]
        title = _TITLE.search(opened["rest"])
        if title is not None:
            if (
                not title["name"]
                or PurePosixPath(title["name"]).is_absolute()
                or ".." in PurePosixPath(title["name"]).parts
            ):
                raise PageError(
                    f"{name}:{place}: {title['name']!r} is no file of the page's folder; give a "
                    "relative path"
                )
            steps.append(GivenFile(title["name"], "\n".join(inside) + "\n"))
        elif opened["language"] == "console":
            steps += _commands(inside, place, indent, name)
        place = last + 1
    return steps


def _commands(lines: Sequence[str], start: int, indent: int, name: str) -> Iterator[Command]:
    prompts = [place for place, line in enumerate(lines) if line.startswith(PROMPT)]
    if not prompts or any(line.strip() for line in lines[: prompts[0]]):
        raise PageError(f"{name}:{start}: a console block begins with a command after {PROMPT!r}")
    for prompt, following in zip(prompts, [*prompts[1:], len(lines)], strict=True):
        first = prompt + 1
        while lines[first - 1].endswith("\\") and first < following:
            first += 1
        line = " ".join(each.removesuffix("\\").strip() for each in lines[prompt:first])[
            len(PROMPT) :
        ]
        command = Command(
            line, tuple(lines[first:following]), start + first, start + following, indent
        )
        if not command.words or command.words[0] not in PROGRAMS:
            allowed = ", ".join(PROGRAMS)
            raise PageError(
                f"{name}:{start + prompt + 1}: {line!r} is not run; use {allowed}, or a block "
                "with the language bash"
            )
        yield command


def run_page(
    steps: Sequence[Step], folder: Path, phaze: Callable[[Sequence[str]], int]
) -> Iterator[Run]:
    """Make the files of a page in ``folder`` and run its commands there, in this process; ``phaze``
    is the front door."""
    for step in steps:
        if isinstance(step, GivenFile):
            path = folder / step.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.text)
        else:
            screen = _Screen()
            with _terminal(screen, folder):
                status = _run(step.words, phaze)
            lines = tuple(line.replace(str(folder), HOME) for line in screen.lines)
            yield Run(step, Output(lines, frozenset(screen.notes)), status)


def _run(words: Sequence[str], phaze: Callable[[Sequence[str]], int]) -> int:
    program, arguments = words[0], words[1:]
    if program == "phaze":
        return phaze(arguments)
    if program == "python":
        try:
            runpy.run_path(arguments[0], run_name="__main__")
        except Exception:  # noqa: BLE001 - what an interpreter does with it
            print(traceback.format_exc())
            return 1
        return 0
    done = subprocess.run(list(words), capture_output=True, text=True, check=False)
    print(done.stdout + done.stderr, end="")
    return done.returncode


@contextlib.contextmanager
def _terminal(screen: _Screen, folder: Path) -> Iterator[None]:
    """In ``folder``, before a terminal of ``COLUMNS`` columns that shows on ``screen`` what pages
    do; sweeps in this process."""
    before = dict(os.environ)
    os.environ.update(COLUMNS=str(COLUMNS), LOKY_MAX_CPU_COUNT="1")
    try:
        with (
            contextlib.chdir(folder),
            contextlib.redirect_stdout(_Stream(screen, logs=False)),
            contextlib.redirect_stderr(_Stream(screen, logs=True)),
        ):
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class _Screen:
    """Lines in the order in which they were printed, and which of them are notes."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.notes: set[int] = set()


class _Stream(io.TextIOBase):
    """Shows whole lines on a screen; a stream of logs is no terminal, lest bars be drawn on it."""

    def __init__(self, screen: _Screen, *, logs: bool) -> None:
        self._screen, self._logs, self._begun = screen, logs, ""

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return not self._logs

    def write(self, text: str) -> int:
        *whole, self._begun = (self._begun + text).split("\n")
        for line in whole:
            note = self._logs and not line.startswith(_NO_NOTE)
            if note and _PROGRESS.search(line):
                continue
            if note:
                self._screen.notes.add(len(self._screen.lines))
            self._screen.lines.append(line)
        return len(text)


def difference(expected: Sequence[str], printed: Sequence[str]) -> str | None:
    """What of ``expected`` was not printed where it should have been, in words; None if all was.

    Words are compared, in their order: where a line breaks depends on the length of paths.
    """
    parts, screen = _segments(expected), _text(printed)
    place = 0
    for number, part in enumerate(parts):
        wanted = _text(part)
        begins, ends = number == 0, number == len(parts) - 1
        if begins:
            found = 0 if screen.startswith(wanted) else -1
        else:
            found = (
                len(screen) - len(wanted)
                if ends and screen.endswith(wanted)
                else -1
                if ends
                else screen.find(wanted, place)
            )
        if found < place or (begins and ends and wanted != screen):
            return _how_they_differ(part, printed)
        place = found + len(wanted) - 1  # the space behind a word is the one before the next
    return None


def refreshed(expected: Sequence[str], output: Output) -> list[str]:
    """``expected`` as it should be: what was printed, with the same left out as far as the lines
    beside it are still there.

    Where they are not, and where nothing was expected, all that was printed but notes.
    """
    printed = output.without_notes
    if None in (difference(expected, printed), difference(expected, output.lines)):
        return list(expected)
    everything = _without_blank_ends(printed)
    wanted_shapes = {_shape(line) for line in expected}
    if any(_shape(output.lines[place]) in wanted_shapes for place in output.notes):
        printed = list(output.lines)
    if LEFT_OUT not in [line.strip() for line in expected]:
        return everything
    shape = [_shape(line) for line in printed]
    result, place, segment = list[str](), 0, list[str]()
    for line in [*expected, LEFT_OUT]:
        if line.strip() != LEFT_OUT:
            segment.append(line)
            continue
        wanted = [_shape(each) for each in segment if each.strip()]
        if wanted:
            if wanted[0] not in shape[place:]:
                return everything
            first = shape.index(wanted[0], place)
            least = first + len(wanted) - 1  # rows of a table have one shape
            if wanted[-1] not in shape[least:]:
                return everything
            place = shape.index(wanted[-1], least) + 1
            result += printed[first:place]
        result.append(LEFT_OUT)
        segment = []
    return result[:-1]


def rewritten(page: str, runs: Sequence[Run]) -> str:
    """The page with the outputs of its commands as they were printed."""
    lines = page.splitlines()
    for run in reversed(runs):
        new = refreshed(run.command.expected, run.output)
        lines[run.command.first : run.command.last] = [
            f"{' ' * run.command.indent}{line}".rstrip() for line in new
        ]
    return "\n".join(lines) + "\n"


def _segments(expected: Sequence[str]) -> list[list[str]]:
    """What stands between lines left out, without empty lines."""
    parts: list[list[str]] = [[]]
    for line in expected:
        if line.strip() == LEFT_OUT:
            parts.append([])
        elif line.strip():
            parts[-1].append(line)
    return parts


def _text(lines: Sequence[str]) -> str:
    """All words, with a space before and behind each."""
    return f" {' '.join(' '.join(map(_compared, lines)).split())} ".replace("  ", " ")


def _shape(line: str) -> str:
    """What of a line is the same whatever its numbers are."""
    return _NUMBERS.sub("0", _compared(line))


def _compared(line: str) -> str:
    return _RULES.sub(" ", _HASH.sub("#", _FOLDERS.sub("/", line))).strip()


def _without_blank_ends(lines: Sequence[str]) -> list[str]:
    return "\n".join(lines).strip("\n").splitlines()


def _how_they_differ(part: Sequence[str], printed: Sequence[str]) -> str:
    compared = {_compared(line) for line in printed}
    missing = next((line for line in part if _compared(line) not in compared), None)
    if missing is None:
        return "\n".join(
            [
                "these lines were not printed there, one after the other:",
                *part,
                "printed was:",
                *printed,
            ]
        )
    near = difflib.get_close_matches(_compared(missing), sorted(compared), n=1)
    nearest = [f"not printed: {missing}", f"the nearest: {near[0] if near else 'nothing like it'}"]
    return "\n".join([*nearest, "printed was:", *printed])


def forget_modules_in(folder: Path) -> None:
    """Unload what the commands of a page imported from its folder, so that the next page has its
    own."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]
