"""The command line of a bridge that solves JSON cases: one case or a list of them from a file,
answers as JSON to stdout."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from phaze_common.echo import as_given, say
from phaze_common.errors import InputError, PhazeError
from phaze_common.files import read_json
from phaze_common.ranges import check_ranges

Solve = Callable[[dict[str, Any]], dict[str, Any]]


def read_cases(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """The cases in ``path``, and whether they came as a list.

    Raises:
        InputError: the file is missing, not readable, not JSON or not made of objects.
    """
    document = read_json(path, "a JSON file")
    cases = document if isinstance(document, list) else [document]
    if not cases or not all(isinstance(case, dict) for case in cases):
        raise InputError(
            f"{path} does not hold a JSON object or a list of objects; give one case, or a list "
            "of cases"
        )
    for case in cases:
        check_ranges(case, str(path))
    return cases, isinstance(document, list)


def _answered(solve: Solve, case: dict[str, Any], path: Path, place: int | None) -> dict[str, Any]:
    """The answer of one case; a refusal names its file and, where it is one of several, its place
    there, from 1."""
    where = str(path) if place is None else f"{path}, case {place + 1}"
    try:
        return solve(case)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    except MemoryError as error:
        raise PhazeError(
            f"{where}: the case is too large for the memory of this machine; give a smaller one"
        ) from error


def integer(value: Any, name: str, least: int, most: int) -> int:
    """A whole number within bounds, such as 8 or 8.0.

    Raises:
        InputError: it is something else; ``name`` says what.
    """
    whole = (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, float) and value.is_integer()
    )
    if not whole or not least <= value <= most:
        raise InputError(
            f"{name} is {as_given(value)}; it must be a whole number from {least} to {most}"
        )
    return int(value)


def answer_cases(
    program: str, about: str, commands: Mapping[str, Solve], arguments: Sequence[str] | None
) -> int:
    """Run ``program COMMAND IN.json``: the answer, or a list for a list, to stdout; returns the
    exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=about)
    parser.add_argument("command", choices=tuple(commands))
    parser.add_argument("input", type=Path, metavar="IN.json")
    given = parser.parse_args(arguments)
    try:
        cases, listed = read_cases(given.input)
        solve = commands[given.command]
        answers = [
            _answered(solve, case, given.input, place if listed else None)
            for place, case in enumerate(cases)
        ]
    except PhazeError as error:
        say(sys.stderr, [" ".join(str(error).split())])
        return error.exit_status
    say(sys.stdout, [json.dumps(answers if listed else answers[0])])
    return 0
