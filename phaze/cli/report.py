"""``phaze report``: draws a run, the difference of two, or the many points of a sweep or of several
runs, as one page."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from GraphExtractor.permission import files_to_run
from phaze.cli import mode
from phaze.cli.exit_status import DONE
from phaze.settings.folders import check_output
from phaze_common.echo import say
from phaze_common.errors import InputError, PhazeError
from phaze_common.files import check_ending, output_file, user_path
from phaze_common.written_files import write_output

if TYPE_CHECKING:
    from phaze.report.pages.figures import Report, Section
    from phaze.runs.finished_run import FinishedRun
    from phaze.studies.sweep.points_read import PointSet, ReadPoint

logger = logging.getLogger(__name__)

PAGES = {".html", ".htm"}
PAGE = "report.html"


@dataclass(frozen=True, eq=False)
class _Drawn:
    report: Report
    path: Path


@dataclass(frozen=True, kw_only=True)
class DrawnReport(mode.Command):
    """Draw a run, the difference of two, or the points of a sweep, as one self-contained HTML
    page."""

    runs: tuple[str, ...] = mode.word(
        mode.REQUIRED,
        f"{mode.RUN_HELP}; with a second one, what changed between them; with more, or with the "
        "folder of a sweep, all points",
        "RUN",
    )
    output: str | None = mode.flag(
        None, "page to write (default: report.html in the run's folder)", "FILE"
    )
    figures: str | None = mode.flag(
        None,
        "also write every figure as SVG, PNG and PDF, and its data as parquet, into this folder",
        "DIR",
    )
    points: Literal["all", "best", "none"] | None = mode.flag(
        None,
        "of many points: those whose own reports are written too, which the page leads to (default "
        "all)",
    )
    beside: str | None = mode.flag(
        None,
        "of many points: answers of others to draw beside the curves; columns source, devices, "
        "seconds, and settings by key",
        "FILE.csv",
    )
    limits: bool = mode.flag(
        False,
        "of one run on a designed chip: first search what limits it and what other values of every "
        "axis allow, where the run does not state it, and keep it with the run",
    )
    run_code: tuple[str, ...] = mode.run_code_flag()
    force: bool = mode.force_flag()


def run(command: DrawnReport) -> int:
    """Write the page, and the figures where they are asked for, and print where they are."""
    from phaze.studies.sweep.points_read import is_sweep

    output = None if command.output is None else output_file(command.output)
    folder = None if command.figures is None else user_path(command.figures)
    if output is not None:
        check_ending(output, PAGES, "taken for a page", ".html")
    if folder is not None:
        check_output(folder, "--figures")
    need_libraries("report")
    run_code = files_to_run(command.run_code)
    folders = [user_path(run) for run in command.runs]
    several = len(folders) > 1 or any(map(is_sweep, folders))
    if several and command.limits:
        raise InputError("--limits is about one run; leave it out, or give one run alone")
    if len(folders) > 2 or any(map(is_sweep, folders)):
        drawn = _many(folders, output, command)
    else:
        if command.points is not None:
            raise InputError(
                "--points is about the points of a sweep or of more than two runs; leave it out"
            )
        if command.beside is not None:
            raise InputError(
                "--beside is about the curves of a sweep or of more than two runs; leave it out"
            )
        drawn = _one_or_two(folders, run_code, command)
    from phaze.report.pages.export import write_figures
    from phaze.report.pages.page import page

    path = output or drawn.path
    write_output(path, page(drawn.report).encode(), force=command.force)
    figures = () if folder is None else write_figures(drawn.report, folder, force=command.force)
    logger.info("open %s in a browser; it needs nothing else", path)
    written = [str(path), *map(str, figures)]
    if command.output_format == "json":
        answer = {"report": written[0], "figures": written[1:]}
        written = json.dumps(answer, indent=2).splitlines()
    say(sys.stdout, written)
    return DONE


def _one_or_two(
    folders: Sequence[Path], run_code: frozenset[str] | None, command: DrawnReport
) -> _Drawn:
    from phaze.runs.finished_run import open_run

    runs = [open_run(folder, run_code) for folder in folders]
    if len(runs) == 2:
        from phaze.report.pages.comparison_report import comparison_report
        from phaze.studies.explain.comparison import compare_runs

        before, after = runs
        return _Drawn(
            comparison_report(before, after, compare_runs(before, after)),
            after.folder / "comparison.html",
        )
    (run,) = runs
    if command.limits:
        from phaze.studies.added_limits import add_limits

        run = add_limits(run, command.progress)
    return _Drawn(_of_run(run), run.folder / PAGE)


def _many(folders: Sequence[Path], output: Path | None, command: DrawnReport) -> _Drawn:
    from phaze.report.pages.points.best_points import best_points
    from phaze.report.pages.points.points_report import points_report
    from phaze.studies.sweep.points_read import is_sweep, read_points

    points, progress = read_points(folders), command.progress
    answered = () if command.beside is None else (_beside(points, command.beside),)
    own = folders[0] if len(folders) == 1 else folders[-1].absolute().parent
    path = output or own / (PAGE if is_sweep(folders[0]) and len(folders) == 1 else "points.html")
    if command.points == "best":
        chosen = {each.point for each in best_points(points)}
    else:
        chosen = {each.number for each in points.points}
    linked: dict[int, str] = {}
    if command.points != "none":
        wanted = [
            point for point in points.points if point.folder is not None and point.number in chosen
        ]
        with progress.phase("reports of the points", len(wanted)) as advance:
            for point in wanted:
                page_of_point = _report_of_point(point, force=command.force)
                if page_of_point is not None:
                    linked[point.number] = _address(page_of_point, path)
                advance(1)
    with progress.phase("points", len(points.points)) as advance:
        drawn = points_report(
            points, lambda point: linked.get(point.number, ""), lambda: advance(1), answered
        )
    return _Drawn(drawn, path)


def _beside(points: PointSet, file: str) -> Section:
    from phaze.report.pages.points.side_by_side import side_by_side, side_by_side_section
    from phaze.studies.sweep.other_answers import read_other_answers

    path = user_path(file)
    return side_by_side_section(
        side_by_side(points, read_other_answers(path), str(path)), path.name
    )


def _report_of_point(point: ReadPoint, *, force: bool) -> Path | None:
    """The report of a point, written unless it is newer than the run; None: unreadable."""
    from phaze.report.pages.page import page
    from phaze_common.run_files import BEST

    assert point.folder is not None  # only those that have one are asked for
    path = point.folder / PAGE
    try:
        if path.stat().st_mtime_ns >= (point.folder / BEST).stat().st_mtime_ns:
            return path
    except OSError:
        pass
    run = point.open()
    if run is None:
        return None
    write_output(path, page(_of_run(run)).encode(), force=force)
    return path


def _address(page_of_point: Path, page: Path) -> str:
    """Where the one page finds the other, for as long as both stay where they are to each other."""
    from urllib.parse import quote

    return quote(Path(os.path.relpath(page_of_point.absolute(), page.absolute().parent)).as_posix())


def _of_run(run: FinishedRun) -> Report:
    from phaze.report.pages.search_report import search_report

    return search_report(run)


def need_libraries(mode: str) -> None:
    """Refuse before anything is read where the plotting library is absent."""
    try:
        import altair  # noqa: F401
        import jinja2  # noqa: F401
        import vl_convert  # noqa: F401
    except ModuleNotFoundError as error:
        raise PhazeError(
            f"{mode} needs {error.name}, which is not installed; run ./setup.sh, or: python -m "
            "pip install 'phaze[report]'"
        ) from error


MODE = mode.Mode("report", mode.FINISHED_RUNS, DrawnReport, run, tables=False)
