"""The command line: cases from a file, answers as JSON to standard output."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from phaze_common.echo import say
from phaze_common.errors import InfeasibleError
from phaze_common.files import output_file
from phaze_common.written_files import write_output
from third_party.cases import answers_of, count_up_to, run_bridge

from .answers import Answer, compared, evaluated, searched
from .case_files import read_case_file
from .configurations import MICRO_BATCH_SIZES

PROGRAM = "python -m third_party.transformer_perf_estimates"
ABOUT = (
    "Training times of transformers under 1D, sequence and 2D tensor parallelism, as "
    "transformer-perf-estimates has them."
)
MOST_SHOWN = 1000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return run_bridge(_parser(), _lines, arguments)


def _lines(given: argparse.Namespace) -> list[str]:
    path: Path = given.file
    if given.command == "curves":
        return _curves(path, given.output)

    def answer(case: Mapping[str, Any]) -> Answer:
        question = (case, path.parent, given.as_published)
        if given.command == "compare":
            return compared(*question, given.micro_batch_size, given.model, given.device)
        return searched(*question, given.top) if given.command == "search" else evaluated(*question)

    answers = answers_of(answer, read_case_file(path), path)
    tables = [each.pop("table", []) for each in answers]
    if given.command == "compare" and given.format == "table":
        return [line for table in tables for line in (*table, "")]
    lines = [json.dumps({"cases": answers})]
    if given.command == "search" and not any(each["best"] for each in answers):
        say(sys.stdout, lines)
        raise InfeasibleError(f"{path}: {_why_none(answers)}")
    return lines


def _why_none(answers: Sequence[Answer]) -> str:
    if candidates := sum(each["candidates"] for each in answers):
        return (
            f"none of {candidates:,} configurations fits in memory; give more GPUs, or a "
            "system with more memory"
        )
    return (
        "no configuration is possible: degrees multiply to n_gpus and divide layers, heads and "
        "the batch, and those in the fast domain multiply to nvlink_size; give other numbers"
    )


def _curves(path: Path, output: str | None) -> list[str]:
    from .curves import curve_csv, curve_lines, curve_points

    table = None if output is None else output_file(output)
    found = answers_of(lambda case: curve_points(case, path.parent), read_case_file(path), path)
    points = [point for each in found for point in each]
    if table is not None:
        write_output(table, curve_csv(points).encode())
    return curve_lines(points)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=ABOUT)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    evaluate = commands.add_parser("evaluate", help="price the configuration of every case")
    find = commands.add_parser(
        "search", help="find the best configurations of every case, and count all"
    )
    count = count_up_to(MOST_SHOWN)
    top = "how many to show, default 10"
    find.add_argument("--top", type=count, default=10, metavar="N", help=top)
    both = commands.add_parser(
        "compare", help="ask every case of our own physics too, and show both answers side by side"
    )
    add = both.add_argument
    formats = ("table", "json")
    add("--format", choices=formats, default="table", help="of the answer, default table")
    sizes = f"that our search compares, default {' '.join(map(str, MICRO_BATCH_SIZES))}"
    usual = MICRO_BATCH_SIZES
    add("--micro-batch-size", type=count, nargs="+", default=usual, metavar="N", help=sizes)
    model = "our model of the same sizes, where another than the usual one is meant"
    add("--model", metavar="NAME", help=model)
    device = "our device whose efficiencies the system has, default its generation's"
    add("--device", metavar="NAME", help=device)
    curves = commands.add_parser(
        "curves", help="the best over the number of GPUs; every value of a case may be a list"
    )
    table = "also write them as CSV, for phaze report SWEEP --beside FILE.csv"
    curves.add_argument("--output", metavar="FILE.csv", help=table)
    for command in (evaluate, find, both, curves):
        command.add_argument("file", type=Path, metavar="CASE.json")
    published = "the published formulas with their errors; else corrected, both shown"
    for command in (evaluate, find, both):
        command.add_argument("--as-published", action="store_true", help=published)
    return parser
