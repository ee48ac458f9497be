"""The command line: cases from a file, answers as JSON to standard output."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from phaze_common.echo import say
from phaze_common.errors import InfeasibleError, InputError, PhazeError
from phaze_common.files import output_file
from phaze_common.written_files import write_output
from third_party.transformer_perf_estimates.answers import Answer, compared, evaluated, searched
from third_party.transformer_perf_estimates.case_files import read_case_file
from third_party.transformer_perf_estimates.configurations import MICRO_BATCH_SIZES

PROGRAM = "python -m third_party.transformer_perf_estimates"
ABOUT = (
    "Training times of transformers under 1D, sequence and 2D tensor parallelism, as "
    "transformer-perf-estimates has them."
)
MOST_SHOWN = 1000
Answered = TypeVar("Answered")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    given = _parser().parse_args(arguments)
    path: Path = given.file

    def answer(case: Mapping[str, Any]) -> Answer:
        if given.command == "compare":
            return compared(
                case,
                path.parent,
                given.as_published,
                given.micro_batch_size,
                given.model,
                given.device,
            )
        if given.command == "search":
            return searched(case, path.parent, given.as_published, given.top)
        return evaluated(case, path.parent, given.as_published)

    try:
        if given.command == "curves":
            _curves(path, given.output)
            return 0
        answers = [
            _answered(answer, case, place, path)
            for place, case in enumerate(read_case_file(path), start=1)
        ]
        _print(answers, as_table=given.command == "compare" and given.format == "table")
        sys.stdout.flush()
        if given.command == "search" and not any(each["best"] for each in answers):
            raise InfeasibleError(f"{path}: {_why_none(answers)}")
    except PhazeError as error:
        say(sys.stderr, [" ".join(str(error).split())])
        return error.exit_status
    except BrokenPipeError:  # the reader of our output has seen enough
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return 0


def _why_none(answers: Sequence[Answer]) -> str:
    """Why no case has an answer."""
    candidates = sum(each["candidates"] for each in answers)
    if candidates:
        return (
            f"none of {candidates:,} configurations fits in memory; give more GPUs, or a "
            "system with more memory"
        )
    return (
        "no configuration is possible: degrees multiply to n_gpus and divide layers, heads and "
        "the batch, and those in the fast "
        "domain multiply to nvlink_size; give other numbers"
    )


def _print(answers: Sequence[Answer], *, as_table: bool) -> None:
    if as_table:
        say(sys.stdout, [line for each in answers for line in (*each["table"], "")])
    else:
        say(
            sys.stdout,
            [
                json.dumps(
                    {
                        "cases": [
                            {key: each[key] for key in each if key != "table"} for each in answers
                        ]
                    }
                )
            ],
        )


def _curves(path: Path, output: str | None) -> None:
    """Print the points of all cases, and write them where a file is named."""
    from third_party.transformer_perf_estimates.curves import curve_csv, curve_lines, curve_points

    table = None if output is None else output_file(output)
    points = [
        point
        for place, case in enumerate(read_case_file(path), start=1)
        for point in _answered(lambda each: curve_points(each, path.parent), case, place, path)
    ]
    if table is not None:
        write_output(table, curve_csv(points).encode())
    say(sys.stdout, curve_lines(points))
    sys.stdout.flush()


def _answered(
    answer: Callable[[Mapping[str, Any]], Answered], case: Mapping[str, Any], place: int, path: Path
) -> Answered:
    try:
        return answer(case)
    except InputError as error:
        raise InputError(f"{path}, case {place}: {error}") from error
    except MemoryError as error:
        raise PhazeError(
            f"{path}, case {place}: the space is too large for the memory of this machine; give "
            "fewer GPUs"
        ) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=ABOUT)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    evaluate = commands.add_parser("evaluate", help="price the configuration of every case")
    find = commands.add_parser(
        "search", help="find the best configurations of every case, and count all"
    )
    find.add_argument(
        "--top", type=_count, default=10, metavar="N", help="how many to show, default 10"
    )
    both = commands.add_parser(
        "compare", help="ask every case of our own physics too, and show both answers side by side"
    )
    both.add_argument(
        "--format", choices=("table", "json"), default="table", help="of the answer, default table"
    )
    both.add_argument(
        "--micro-batch-size",
        type=_count,
        nargs="+",
        default=MICRO_BATCH_SIZES,
        metavar="N",
        help=f"that our search compares, default {' '.join(map(str, MICRO_BATCH_SIZES))}",
    )
    both.add_argument(
        "--model",
        metavar="NAME",
        help="our model of the same sizes, where another than the usual one is meant",
    )
    both.add_argument(
        "--device",
        metavar="NAME",
        help="our device whose efficiencies the system has, default its generation's",
    )
    curves = commands.add_parser(
        "curves", help="the best over the number of GPUs; every value of a case may be a list"
    )
    curves.add_argument(
        "--output",
        metavar="FILE.csv",
        help="also write them as CSV, for phaze report SWEEP --beside FILE.csv",
    )
    for command in (evaluate, find, both, curves):
        command.add_argument("file", type=Path, metavar="CASE.json")
    for command in (evaluate, find, both):
        command.add_argument(
            "--as-published",
            action="store_true",
            help="the published formulas with their errors; else corrected, both shown",
        )
    return parser


def _count(text: str) -> int:
    if (
        not text.isascii()
        or not text.isdecimal()
        or not 1 <= int(text[:9]) <= MOST_SHOWN
        or len(text) > 9
    ):
        raise argparse.ArgumentTypeError(
            f"{text!r:.40} is not a whole number from 1 to {MOST_SHOWN}"
        )
    return int(text)
