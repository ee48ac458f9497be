"""The command line of a bridge that solves JSON cases: one case or a list of them from a file, answers as JSON to stdout."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from Common.errors import InputError, PhazeError
from Common.files import read_json

Solve = Callable[[dict[str, Any]], dict[str, Any]]


def read_cases(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """The cases in ``path``, and whether they came as a list.

    Raises:
        InputError: the file is missing, not readable, not JSON or not made of objects.
    """
    document = read_json(path, "a JSON file")
    cases = document if isinstance(document, list) else [document]
    if not cases or not all(isinstance(case, dict) for case in cases):
        raise InputError(f"{path} does not hold a JSON object or a list of objects; give one case, or a list of cases")
    return cases, isinstance(document, list)


def answer_cases(program: str, about: str, commands: Mapping[str, Solve], arguments: Sequence[str] | None) -> int:
    """Run ``program COMMAND IN.json``: the answer, or a list for a list, to stdout; returns the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=about)
    parser.add_argument("command", choices=tuple(commands))
    parser.add_argument("input", type=Path, metavar="IN.json")
    given = parser.parse_args(arguments)
    try:
        cases, listed = read_cases(given.input)
        answers = [commands[given.command](case) for case in cases]
    except PhazeError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    sys.stdout.write(json.dumps(answers if listed else answers[0]) + "\n")
    return 0
