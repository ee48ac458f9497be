"""``phaze sweep``: a study for every combination of the values it lists."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from GraphExtractor.permission import files_of_study
from phaze.cli import mode
from phaze.cli.exit_status import DONE, FAILED
from phaze.cli.printing import print_answer, print_rows
from phaze_common.errors import InputError
from phaze_common.files import user_path
from phaze_common.numbers import number

if TYPE_CHECKING:
    from phaze.studies.sweep.axes import Sweep
    from phaze.studies.sweep.run import SweptPoint

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SweepCommand(mode.Command):
    """Run a study for every combination of the values it lists, on all cores or a cluster, and
    gather one table."""

    settings: Mapping[str, object] = mode.setting_flags(mode.search_settings, only={})
    study: Path = mode.word(
        mode.REQUIRED,
        "settings as for run_solver --config; each value of a list is a point of its own, a list "
        "in a list one value",
        "STUDY.yaml",
    )
    output: str | None = mode.flag(
        None, "folder of the table and of every point (default: Solver/output/NAME)", "DIR"
    )
    executor: Literal["joblib", "ray"] = mode.flag(
        "joblib", "what runs the points (default joblib)"
    )
    address: str | None = mode.flag(
        None, "with --executor ray: the cluster's address (default: a local one)", "A"
    )
    workers: int | None = mode.flag(None, "points run at a time (default: one per core)")
    csv: bool = mode.flag(False, "also write the table as CSV")
    dry_run: bool = mode.flag(False, "list the points and stop")
    run_code: tuple[str, ...] = mode.run_code_flag()


def run(command: SweepCommand) -> int:
    """Run every point that is not in the store yet, and print and write the table of all."""
    from phaze.studies.sweep.axes import read_sweep

    study = user_path(str(command.study))
    run_code = files_of_study(study, command.run_code)
    swept = read_sweep(study, command.settings, command.output, csv=command.csv, run_code=run_code)
    if command.dry_run:
        return _print_points(swept, command)
    from phaze.report.tables.sweep_tables import point_line, sweep_tables
    from phaze.studies.sweep.executors import executor_named
    from phaze.studies.sweep.run import run_sweep
    from phaze.studies.sweep.table import sweep_rows, write_table

    executor = executor_named(command.executor, command.workers, command.address)
    total, ended = swept.count, 0

    def tell(point: SweptPoint) -> None:
        nonlocal ended
        ended += 1
        level = logging.WARNING if point.point is None else logging.INFO
        logger.log(level, "%s", point_line(swept, point, ended, total))

    points = run_sweep(swept, executor, command.progress, tell)
    write_table(swept, points)
    impossible = sum(point.impossible for point in points)
    failed = sum(point.point is None for point in points) - impossible
    ends = {"failed": failed, "impossible": impossible}
    rows = {
        "name": swept.name,
        "folder": str(swept.folder),
        **ends,
        "points": sweep_rows(swept, points),
    }
    print_answer(json.dumps(rows, indent=2), lambda: sweep_tables(swept, points), command)
    from phaze_common.run_files import TABLE

    logger.info("table: %s, a run per point in %s", swept.folder / TABLE, swept.store)
    if failed:
        how_many = f"{number(failed)} of {number(total)} points"
        logger.warning("%s failed; the same command tries them again", how_many)
    return FAILED if failed else _status(impossible, total)


def _status(impossible: int, total: int) -> int:
    """Of a sweep in which nothing went wrong but what was asked."""
    if impossible:
        how_many = f"{number(impossible)} of {number(total)} points"
        logger.warning("%s are impossible; give other values in their place", how_many)
    return InputError.exit_status if impossible else DONE


def _print_points(swept: Sweep, command: SweepCommand) -> int:
    from phaze.report.tables.sweep_tables import asked_rows
    from phaze.studies.sweep.run import resolved_points
    from phaze.studies.sweep.store import Store

    points, store = resolved_points(swept), Store(swept.store)
    there = [
        point.point is not None and store.load(point.point.key) is not None for point in points
    ]
    sizes = [None if point.point is None else point.point.size for point in points]
    print_rows(
        f"{swept.name}: {len(points)} points", asked_rows(swept, points, sizes, there), command
    )
    return _status(sum(point.point is None for point in points), len(points))


MODE = mode.Mode("sweep", mode.SEARCH_AND_PRICE, SweepCommand, run)
