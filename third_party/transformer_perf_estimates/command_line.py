"""The command line: cases from a file, answers as JSON to standard output."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from Common.echo import say
from Common.errors import InputError, PhazeError
from third_party.transformer_perf_estimates.answers import Answer, evaluated, searched
from third_party.transformer_perf_estimates.case_files import read_case_file

PROGRAM = "python -m third_party.transformer_perf_estimates"
ABOUT = "Training times of transformers under 1D, sequence and 2D tensor parallelism, as transformer-perf-estimates has them."
MOST_SHOWN = 1000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    given = _parser().parse_args(arguments)
    path: Path = given.file

    def answer(case: Mapping[str, Any]) -> Answer:
        if given.command == "search":
            return searched(case, path.parent, given.as_published, given.top)
        return evaluated(case, path.parent, given.as_published)

    try:
        answers = [_answered(answer, case, place, path) for place, case in enumerate(read_case_file(path), start=1)]
    except PhazeError as error:
        say(sys.stderr, [" ".join(str(error).split())])
        return error.exit_status
    say(sys.stdout, [json.dumps({"cases": answers})])
    return 0


def _answered(answer: Callable[[Mapping[str, Any]], Answer], case: Mapping[str, Any], place: int, path: Path) -> Answer:
    try:
        return answer(case)
    except InputError as error:
        raise InputError(f"{path}, case {place}: {error}") from error
    except MemoryError as error:
        raise PhazeError(
            f"{path}, case {place}: the space is too large for the memory of this machine; give fewer GPUs"
        ) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=ABOUT)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    evaluate = commands.add_parser("evaluate", help="price the configuration of every case")
    find = commands.add_parser("search", help="find the best configurations of every case, and count all")
    find.add_argument("--top", type=_count, default=10, metavar="N", help="how many to show, default 10")
    for command in (evaluate, find):
        command.add_argument("file", type=Path, metavar="CASE.json")
        command.add_argument(
            "--as-published", action="store_true", help="the published formulas with their errors; else corrected, both shown"
        )
    return parser


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:9]) <= MOST_SHOWN or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a whole number from 1 to {MOST_SHOWN}")
    return int(text)
