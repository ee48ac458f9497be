"""What is wrong with how a run ended; nothing, for most."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from tests.fuzzing.server import Outcome

ALLOWED = frozenset({0, 2, 3})
REFUSALS = frozenset({2, 3})
NOTHING_FEASIBLE = 3  # which may be the answer, on standard output
MOST_SENTENCES = 3
MOST_LETTERS = 2000  # of a refusal: a list of known names may be long, an echo of the input may not
LARGEST = 1e60  # of any number that is printed
NEGATIVE = frozenset(  # words of names of numbers that may be
    ("bias", "change", "slope", "delta", "difference", "behind", "gap", "error", "slower")
).union(("exponent", "id", "spearman", "correlation"))
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


def problems(outcome: Outcome, mode: str) -> list[str]:
    """What is wrong with ``outcome``: what was lost, or how it ended."""
    lines = outcome.stderr.strip().splitlines() or [""]
    found = list(outcome.lost)
    if outcome.limit is not None:
        return [*found, f"{mode}: more than {outcome.limit}"]
    if outcome.status not in ALLOWED:
        return [*found, f"{mode}: exit status {outcome.status}: {lines[-1]}"]
    foreign = (line for line in lines if FOREIGN.search(_without_quotes(line)))
    found += [f"words of other software: {line[:600]}" for line in foreign]
    if outcome.status in REFUSALS and not (outcome.status == NOTHING_FEASIBLE and outcome.stdout):
        found += _wordy(outcome.stderr)
    if outcome.status == 0:
        found += [f"{mode}: number out of range: {what}" for what in _bad_numbers(outcome.stdout)]
    return found


def _without_quotes(text: str) -> str:
    """What is not an echo of the input."""
    return re.sub(r"'[^'\n]*'|\"[^\"\n]*\"", "''", text)


def _wordy(stderr: str) -> Iterator[str]:
    """A refusal is one to three sentences; notes and warnings of the program before it do not
    count."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    start = next((index for index, line in enumerate(lines) if line.startswith("phaze: ")), 0)
    said = [line for line in lines[start:] if not _LISTED.match(line)]
    if not said:
        yield "refused without a word"
    text = " ".join(said)
    if len(_SENTENCE_END.split(_OWN_WORDS.sub("", _without_quotes(text)))) > MOST_SENTENCES:
        yield f"more than {MOST_SENTENCES} sentences: {text[:600]}"
    if len(text) > MOST_LETTERS:
        yield f"more than {MOST_LETTERS} letters: {text[:600]}"


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
                yield f"{found[1]} in {line}"
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
