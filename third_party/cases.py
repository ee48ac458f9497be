"""The command lines of bridges: one runner with its exit statuses, and cases of JSON files."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from phaze_common.echo import as_given, say
from phaze_common.errors import InputError, PhazeError
from phaze_common.files import read_json
from phaze_common.ranges import check_ranges

Solve = Callable[[dict[str, Any]], dict[str, Any]]
Answer = TypeVar("Answer")


def run_bridge(
    parser: argparse.ArgumentParser,
    answer: Callable[[argparse.Namespace], Iterable[str]],
    arguments: Sequence[str] | None,
) -> int:
    """Print the lines that ``answer`` gives to what was typed, a refusal as one line on stderr;
    returns the exit status."""
    given = parser.parse_args(arguments)
    try:
        say(sys.stdout, answer(given))
        sys.stdout.flush()
    except PhazeError as error:
        say(sys.stderr, [" ".join(str(error).split())])
        return error.exit_status
    except BrokenPipeError:  # the reader of our output has seen enough
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return 0


def answer_cases(
    program: str, about: str, commands: Mapping[str, Solve], arguments: Sequence[str] | None
) -> int:
    """Run ``program COMMAND IN.json``: the answer, or a list for a list, to stdout; returns the
    exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=about)
    parser.add_argument("command", choices=tuple(commands))
    parser.add_argument("input", type=Path, metavar="IN.json")

    def answer(given: argparse.Namespace) -> list[str]:
        document = read_json(given.input, "a JSON file")
        cases = cases_in(
            document,
            given.input,
            "a JSON object or a list of objects; give one case, or a list of cases",
        )
        listed = isinstance(document, list)
        answers = answers_of(commands[given.command], cases, given.input, numbered=listed)
        return [json.dumps(answers if listed else answers[0])]

    return run_bridge(parser, answer, arguments)


def cases_in(document: Any, path: Path, wanted: str) -> list[dict[str, Any]]:
    """The cases that a document of ``path`` is: itself, or the entries of a list. Raises
    InputError: it is not made of objects, or has numbers that no case can have."""
    cases = document if isinstance(document, list) else [document]
    if not cases or not all(isinstance(case, dict) for case in cases):
        raise InputError(f"{path} does not hold {wanted}")
    for case in cases:
        check_ranges(case, str(path))
    return cases


def answers_of(
    solve: Callable[[dict[str, Any]], Answer],
    cases: Iterable[dict[str, Any]],
    path: Path,
    *,
    numbered: bool = True,
) -> list[Answer]:
    """The answers of all cases; a refusal names their file and the case's place there, from 1, if
    they are ``numbered``."""
    answers = []
    for place, case in enumerate(cases, start=1):
        where = f"{path}, case {place}" if numbered else path
        try:
            answers.append(solve(case))
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        except MemoryError as error:
            raise PhazeError(
                f"{where}: the case is too large for the memory of this machine; give a smaller one"
            ) from error
    return answers


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value of JSON is a number, which true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def integer(value: Any, name: str, least: int, most: int) -> int:
    """A whole number within bounds, such as 8 or 8.0. Raises InputError: it is something else;
    ``name`` says what."""
    if not is_number(value) or value % 1 != 0 or not least <= value <= most:
        raise InputError(
            f"{name} is {as_given(value)}; it must be a whole number from {least} to {most}"
        )
    return int(value)


def count_up_to(most: int) -> Callable[[str], int]:
    """What reads a whole number from 1 to ``most`` on a command line."""

    def count(text: str) -> int:
        whole = text.isascii() and text.isdecimal() and len(text) <= 10
        if not whole or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r:.40} is not a whole number from 1 to {most}")
        return int(text)

    return count
