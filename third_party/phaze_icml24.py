"""Solves the inputs of Phaze (msr-fiddle/phaze, ICML 2024) under the original's semantics.

    python -m third_party.phaze_icml24 place IN.json       # an input of its device placement, prints its output fields
    python -m third_party.phaze_icml24 schedule IN.json    # an operator graph with latencies, prints the least makespan

A file may hold one case or a list of cases; the answer goes to stdout as JSON, likewise one or a list. Wrong input is refused
with one sentence on stderr and exit status 2.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from Common.errors import InputError, PhazeError


def read_cases(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """The cases in ``path``, and whether they came as a list.

    Raises:
        InputError: the file is missing, not readable, not JSON or not made of objects.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; give the path of an existing JSON file") from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error}); correct the file") from error
    cases = document if isinstance(document, list) else [document]
    if not cases or not all(isinstance(case, dict) for case in cases):
        raise InputError(f"{path} does not hold a JSON object or a list of objects; give one case, or a list of cases")
    return cases, isinstance(document, list)


def place(document: dict[str, Any]) -> dict[str, Any]:
    """The optimum of a device-placement input, in the fields of the original's output.

    Raises:
        InputError: a field is missing or wrong, or the layers do not form a chain.
    """
    from third_party.phaze_icml24_placement import place_case

    return place_case(document)


def schedule(document: dict[str, Any]) -> dict[str, Any]:
    """The least makespan of an operator graph.

    Raises:
        InputError: a field is missing or wrong.
    """
    from third_party.phaze_icml24_schedule import schedule_case

    return schedule_case(document)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m third_party.phaze_icml24", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("command", choices=("place", "schedule"))
    parser.add_argument("input", type=Path, metavar="IN.json")
    given = parser.parse_args(arguments)
    try:
        cases, listed = read_cases(given.input)
        answers = [{"place": place, "schedule": schedule}[given.command](case) for case in cases]
    except PhazeError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    sys.stdout.write(json.dumps(answers if listed else answers[0]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
