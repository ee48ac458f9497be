"""What is wrong with how a run ended; nothing, for most."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.fuzzing.server import Outcome

ALLOWED = frozenset({0, 2, 3})
REFUSALS = frozenset({2, 3})
NOTHING_FEASIBLE = 3  # which may be the answer, on standard output
WRITTEN = "out"  # folders whose names begin so are what runs write
CACHES = frozenset({"GraphExtractor", "Estimator", "points"})
MOST_SENTENCES = 3
MOST_LETTERS = 2000  # of a refusal: a list of known names may be long, an echo of the input may not
LARGEST = 1e60  # of any number that is printed
NEGATIVE = frozenset(  # words of names of numbers that may be
    (
        "bias",
        "change",
        "slope",
        "delta",
        "difference",
        "behind",
        "gap",
        "error",
        "slower",
        "exponent",
        "id",
        "spearman",
        "correlation",
    )
)
FOREIGN = re.compile(
    r"Traceback \(most recent|^\S*Warning:|\w+Warning: |warnings\.warn|terminate called|Exception "
    r"ignored|C\+\+|Fatal Python|"
    r"frame #\d|Segmentation fault|unexpected "
    r"\w+(Error|Exception|Exit|Iteration)|<built-in|object at 0x|"
    r"(?<!returns )\bNoneType\b|\bnumpy\b|\bnp\.float|aten::|arrow::|LLVM|pydantic_core",
    re.MULTILINE,
)
NOT_NUMBERS = re.compile(
    r"(?<=\S) {2,}[-+]?(nan|inf)(?![\w.(,])", re.IGNORECASE
)  # a cell; a first one may be a name
_RULE = re.compile(r" *─+ *")  # between the header of a table and its rows
_HEADERS = re.compile(r"\S+( \S+)*")
_SENTENCE_END = re.compile(r"[.!?]\s+(?=[A-Z])")
_LISTED = re.compile(r"^\s*(-|\*|•|  )")  # a line of a list: one problem of several
_OWN_WORDS = re.compile(
    r" with \w+: .*(?=; correct it there)"
)  # what a person's module says itself
_VOLATILE = re.compile(r"'[^']*'|\"[^\"]*\"|/[\w./-]+|-?\d[\d.,e+-]*|\b[0-9a-f]{8,}\b")


@dataclass(frozen=True)
class Problem:
    """Something wrong; equal families are one finding."""

    family: str
    detail: str


def contents(folder: Path) -> dict[str, str]:
    """Digest of every file below ``folder`` that no run may change: without what runs write, and
    caches, which are set aside."""
    found = {}
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder)
        if (
            path.is_file()
            and not path.is_symlink()
            and not place.parts[0].startswith(WRITTEN)
            and CACHES.isdisjoint(place.parts)
        ):
            found[str(place)] = hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
    return found


def problems(outcome: Outcome, mode: str) -> list[Problem]:
    """What is wrong with ``outcome`` by itself."""
    last = outcome.stderr.strip().splitlines()[-1] if outcome.stderr.strip() else ""
    if outcome.limit is not None:
        return [Problem(f"{mode}: more than {outcome.limit}", last[:300])]
    if outcome.status < 0:
        return [Problem(f"{mode}: killed by signal {-outcome.status}", outcome.stderr[-600:])]
    found = []
    if outcome.status not in ALLOWED:
        found.append(Problem(f"exit status {outcome.status}: {plain(last)}", last[:600]))
    foreign = FOREIGN.search(_without_quotes(outcome.stderr))
    if foreign is not None and outcome.status in ALLOWED:
        line = next(
            line
            for line in outcome.stderr.splitlines()
            if foreign[0].splitlines()[0] in _without_quotes(line)
        )
        found.append(Problem(f"words of other software: {plain(line)}", line[:600]))
    if outcome.status in REFUSALS and not (outcome.status == NOTHING_FEASIBLE and outcome.stdout):
        found += _wordy(outcome.stderr)
    if outcome.status == 0:
        found += [
            Problem(f"{mode}: number out of range: {what}", what)
            for what in _bad_numbers(outcome.stdout)
        ]
    return found


def plain(line: str) -> str:
    """A sentence without what changes from input to input."""
    return _VOLATILE.sub("#", line)[:140]


def _without_quotes(text: str) -> str:
    """What is not an echo of the input."""
    return re.sub(r"'[^'\n]*'|\"[^\"\n]*\"", "''", text)


def _wordy(stderr: str) -> Iterator[Problem]:
    """A refusal is one to three sentences; notes and warnings of the program before it do not
    count."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    start = next((index for index, line in enumerate(lines) if line.startswith("phaze: ")), None)
    said = [
        line for line in (lines[start:] if start is not None else lines) if not _LISTED.match(line)
    ]
    if not said:
        yield Problem("refused without a word", stderr[-300:])
        return
    text = _OWN_WORDS.sub("", _without_quotes(" ".join(said)))
    if len(_SENTENCE_END.split(text)) > MOST_SENTENCES:
        yield Problem(f"more than {MOST_SENTENCES} sentences: {plain(said[0])}", text[:600])
    if len(" ".join(said)) > MOST_LETTERS:
        yield Problem(f"more than {MOST_LETTERS} letters: {plain(said[0])}", text[:600])


def _bad_numbers(stdout: str) -> Iterator[str]:
    """Numbers in an answer that cannot be; each kind once."""
    try:
        answer = json.loads(stdout)
    except (ValueError, RecursionError):
        above = before = ""  # the header of the table, and the line before
        for line in stdout.splitlines():
            if _RULE.fullmatch(line):
                above = before
            found = next(
                (
                    each
                    for each in NOT_NUMBERS.finditer(line)
                    if not _is_word(each.start(1), each.end(1), above)
                ),
                None,
            )
            if found:
                yield f"{found[1]} in {plain(line)}"
                return
            before = line
        return
    yield from dict.fromkeys(_bad(answer, "answer"))


def _is_word(start: int, end: int, header: str) -> bool:
    """Whether a cell is one of a column of words: those begin below their header, numbers end below
    it."""
    column = next(
        (each for each in _HEADERS.finditer(header) if each.start() <= start < each.end()), None
    )
    return column is not None and column.start() == start and column.end() != end


def _bad(value: Any, key: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _bad(each, str(name))
    elif isinstance(value, list):
        for each in value:
            yield from _bad(each, key)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            yield f"{key} is {value}"
        elif abs(value) > LARGEST:
            yield f"{key} is above {LARGEST:g}"
        elif value < 0 and NEGATIVE.isdisjoint(key.lower().split("_")):
            yield f"{key} is negative"
