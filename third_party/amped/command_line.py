"""``python -m third_party.amped run|optimize CONFIG``: arguments, files, exit statuses."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from phaze_common.echo import say
from phaze_common.errors import InputError, PhazeError
from phaze_common.files import check_writable, refuse_replacing, user_path, write_atomically
from third_party.amped.configuration import Configuration, read_configuration
from third_party.amped.corrections import NAMES
from third_party.amped.estimate import TrainingTime, estimate
from third_party.amped.lookup import shipped_tables, with_tables_of
from third_party.amped.matrices import MatDims, compute_graph, gemm_breakdown, mat_dims
from third_party.amped.reports import (
    config_summary,
    run_document,
    run_text,
    search_document,
    search_text,
)
from third_party.amped.search import optimize
from third_party.amped.summary import SUMMARY_HEAD

SUMMARY = "config_summary.txt"
MOST_SHOWN = 10_000
_ABOUT = (
    "Time, breakdown and best parallelization of training a transformer, by AMPeD's model "
    "(ISPASS 2023)."
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m third_party.amped", description=_ABOUT)
    commands = parser.add_subparsers(dest="command", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "config",
        metavar="CONFIG",
        help="config.json, or a config_summary.txt that an earlier run wrote",
    )
    shared.add_argument(
        "--lookup-tables",
        metavar="FILE",
        help="lookup_tables.json: rows beside, or in place of, those that ship",
    )
    shared.add_argument(
        "--as-published", action="store_true", help="keep all published formulas, errors included"
    )
    shared.add_argument(
        "--keep",
        nargs="+",
        default=[],
        metavar="NAME",
        help=f"keep some as published; names: {', '.join(NAMES)}",
    )
    shared.add_argument(
        "--format",
        choices=("json", "text"),
        default="json",
        help="of the answer on standard output",
    )
    run = commands.add_parser("run", parents=[shared], help="training time of a configuration")
    run.add_argument(
        "--output",
        default="output_files",
        metavar="FOLDER",
        help="for the text files (output_files)",
    )
    run.add_argument(
        "--timestamp",
        action="store_true",
        help="begin the files' names with the time, as AMPeD does",
    )
    run.add_argument("--GEMM", dest="gemm", action="store_true", help="write gemm_breakdown.txt")
    run.add_argument("--compute_graph", action="store_true", help="write visual_graph.txt")
    run.add_argument(
        *("--mat-dims", "--mat_dims"),
        nargs="?",
        const=MatDims.TRAINING.value,
        choices=[each.value for each in MatDims],
        help="write mat_dims.txt for DeepFlow (training: with CR or RC and names)",
    )
    search = commands.add_parser(
        "optimize", parents=[shared], help="best batch size and degrees of a configuration"
    )
    search.add_argument(
        "--batch-sizes",
        nargs="+",
        type=int,
        default=[],
        metavar="B",
        help="to compare (those of batch_size)",
    )
    search.add_argument("--best", type=int, default=10, metavar="N", help="how many to print (10)")
    search.add_argument(
        "--ignore-memory", action="store_true", help="let needs exceed the accelerator's memory"
    )
    return parser


def _run(given: argparse.Namespace, configuration: Configuration, kept: Sequence[str]) -> None:
    folder = user_path(given.output)
    answer = estimate(configuration, kept)
    check_writable(folder)
    stamp = f"{datetime.now():%Y-%m-%d_%H-%M-%S}_" if given.timestamp else ""
    texts = {f"{stamp}{name}": text for name, text in _texts(given, answer).items()}
    if not _is_own(folder):
        refuse_replacing(folder, list(texts), "run of AMPeD's formulas")
    files = tuple(str(_write(folder / name, text)) for name, text in texts.items())
    document = (
        json.dumps(run_document(answer, files), indent=2)
        if given.format == "json"
        else run_text(answer, files)
    )
    say(sys.stdout, document.splitlines())


def _is_own(folder: Path) -> bool:
    """Whether a run wrote the summary in ``folder``, by its first line."""
    try:
        with (folder / SUMMARY).open("rb") as stream:
            return stream.read(len(SUMMARY_HEAD)) == SUMMARY_HEAD.encode()
    except OSError:
        return False


def _texts(given: argparse.Namespace, answer: TrainingTime) -> dict[str, str]:
    """Content by name of each file to write."""
    texts = {
        SUMMARY: config_summary(answer),
        "training_time_breakdown.txt": answer.breakdown.text(),
    }
    if given.gemm:
        texts["gemm_breakdown.txt"] = gemm_breakdown(answer.table)
    if given.compute_graph:
        texts["visual_graph.txt"] = compute_graph(answer.table)
    if given.mat_dims:
        texts["mat_dims.txt"] = mat_dims(answer.table, MatDims(given.mat_dims), answer.kept)
    return texts


def _write(path: Path, text: str) -> Path:
    write_atomically(path, text.encode())
    return path


def _optimize(given: argparse.Namespace, configuration: Configuration, kept: Sequence[str]) -> None:
    if not 1 <= given.best <= MOST_SHOWN:
        raise InputError(f"--best is {given.best}; give a whole number from 1 to {MOST_SHOWN:,}")
    result = optimize(
        configuration, given.batch_sizes, kept, best=given.best, ignore_memory=given.ignore_memory
    )
    document = (
        json.dumps(search_document(result), indent=2)
        if given.format == "json"
        else search_text(result)
    )
    say(sys.stdout, document.splitlines())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    given = _parser().parse_args(arguments)
    try:
        tables = (
            with_tables_of(user_path(given.lookup_tables))
            if given.lookup_tables is not None
            else shipped_tables()
        )
        configuration = read_configuration(user_path(given.config), tables)
        kept = NAMES if given.as_published else tuple(given.keep)
        (_run if given.command == "run" else _optimize)(given, configuration, kept)
        sys.stdout.flush()
    except PhazeError as error:
        say(sys.stderr, [" ".join(str(error).split())])
        return error.exit_status
    except MemoryError:
        say(
            sys.stderr, ["out of memory; give fewer batch sizes, or use a machine with more memory"]
        )
        return PhazeError.exit_status
    except BrokenPipeError:  # the reader of our output has seen enough
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return 0
