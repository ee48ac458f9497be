"""``python -m third_party.amped run|optimize CONFIG``: arguments, files, exit statuses."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from phaze_common.errors import InputError, PhazeError
from phaze_common.files import check_writable, refuse_replacing, user_path, write_atomically
from third_party.cases import run_bridge

from .configuration import Configuration, read_configuration
from .corrections import NAMES
from .estimate import TrainingTime, estimate
from .lookup import shipped_tables, with_tables_of
from .matrices import MatDims, compute_graph, gemm_breakdown, mat_dims
from .reports import config_summary, run_document, run_text, search_document, search_text
from .search import optimize
from .summary import SUMMARY_HEAD

SUMMARY = "config_summary.txt"
MOST_SHOWN = 10_000
_ABOUT = (
    "Time, breakdown and best parallelization of training a transformer, by AMPeD's model "
    "(ISPASS 2023)."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    return run_bridge(_parser(), _answer, arguments)


def _answer(given: argparse.Namespace) -> list[str]:
    tables = shipped_tables()
    if given.lookup_tables is not None:
        tables = with_tables_of(user_path(given.lookup_tables))
    configuration = read_configuration(user_path(given.config), tables)
    kept = NAMES if given.as_published else tuple(given.keep)
    try:
        text = (_run if given.command == "run" else _optimize)(given, configuration, kept)
    except MemoryError as error:
        raise PhazeError(
            "out of memory; give fewer batch sizes, or use a machine with more memory"
        ) from error
    return text.splitlines()


def _run(given: argparse.Namespace, configuration: Configuration, kept: Sequence[str]) -> str:
    folder = user_path(given.output)
    answer = estimate(configuration, kept)
    check_writable(folder)
    stamp = f"{datetime.now():%Y-%m-%d_%H-%M-%S}_" if given.timestamp else ""
    texts = {folder / f"{stamp}{name}": text for name, text in _texts(given, answer).items()}
    if not _is_own(folder):
        refuse_replacing(folder, [path.name for path in texts], "run of AMPeD's formulas")
    for path, text in texts.items():
        write_atomically(path, text.encode())
    files = tuple(map(str, texts))
    if given.format == "json":
        return json.dumps(run_document(answer, files), indent=2)
    return run_text(answer, files)


def _optimize(given: argparse.Namespace, configuration: Configuration, kept: Sequence[str]) -> str:
    if not 1 <= given.best <= MOST_SHOWN:
        raise InputError(f"--best is {given.best}; give a whole number from 1 to {MOST_SHOWN:,}")
    result = optimize(
        configuration, given.batch_sizes, kept, best=given.best, ignore_memory=given.ignore_memory
    )
    if given.format == "json":
        return json.dumps(search_document(result), indent=2)
    return search_text(result)


def _is_own(folder: Path) -> bool:
    """Whether a run wrote the summary in ``folder``, by its first line."""
    try:
        with (folder / SUMMARY).open("rb") as stream:
            return stream.read(len(SUMMARY_HEAD)) == SUMMARY_HEAD.encode()
    except OSError:
        return False


def _texts(given: argparse.Namespace, answer: TrainingTime) -> dict[str, str]:
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m third_party.amped", description=_ABOUT)
    commands = parser.add_subparsers(dest="command", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    add = shared.add_argument
    add(
        "config",
        metavar="CONFIG",
        help="config.json, or a config_summary.txt that an earlier run wrote",
    )
    tables = "lookup_tables.json: rows beside, or in place of, those that ship"
    add("--lookup-tables", metavar="FILE", help=tables)
    published = "keep all published formulas, errors included"
    add("--as-published", action="store_true", help=published)
    names = f"keep some as published; names: {', '.join(NAMES)}"
    add("--keep", nargs="+", default=[], metavar="NAME", help=names)
    formats = ("json", "text")
    add("--format", choices=formats, default="json", help="of the answer on standard output")
    run = commands.add_parser("run", parents=[shared], help="training time of a configuration")
    add = run.add_argument
    folder = "for the text files (output_files)"
    add("--output", default="output_files", metavar="FOLDER", help=folder)
    stamp = "begin the files' names with the time, as AMPeD does"
    add("--timestamp", action="store_true", help=stamp)
    add("--GEMM", dest="gemm", action="store_true", help="write gemm_breakdown.txt")
    add("--compute_graph", action="store_true", help="write visual_graph.txt")
    dims = "write mat_dims.txt for DeepFlow (training: with CR or RC and names)"
    training, variants = MatDims.TRAINING.value, [each.value for each in MatDims]
    add("--mat-dims", "--mat_dims", nargs="?", const=training, choices=variants, help=dims)
    search = commands.add_parser(
        "optimize", parents=[shared], help="best batch size and degrees of a configuration"
    )
    add = search.add_argument
    sizes = "to compare (those of batch_size)"
    add("--batch-sizes", nargs="+", type=int, default=[], metavar="B", help=sizes)
    add("--best", type=int, default=10, metavar="N", help="how many to print (10)")
    memory = "let needs exceed the accelerator's memory"
    add("--ignore-memory", action="store_true", help=memory)
    return parser
