"""``phaze report``: draws a finished run, or the difference of two, as one page."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from Common.echo import say
from Common.errors import InputError, PhazeError
from FrontDoor.arguments import Command
from FrontDoor.exit_status import DONE

if TYPE_CHECKING:
    from Reporter.report.figures import Report
    from Studies.finished_run import FinishedRun

logger = logging.getLogger(__name__)

PAGES = {".html", ".htm"}


def report(command: Command) -> int:
    """Write the page, and the figures where they are asked for, and print where they are."""
    from Common.files import output_file, user_path, write_output
    from GraphExtractor.permission import files_to_run
    from Studies.finished_run import open_run
    from Studies.folders import check_output

    if len(command.runs) > 2:
        raise InputError(f"report draws one run or compares two, given {len(command.runs)}; give one or two folders")
    output = None if command.output is None else output_file(command.output)
    folder = None if command.figures is None else user_path(command.figures)
    if output is not None and output.suffix not in PAGES:
        raise InputError(f"--output {output} would not be taken for a page; give a name that ends in .html")
    if folder is not None:
        check_output(folder, "--figures")
    _need_libraries()
    run_code = files_to_run(command.run_code)
    runs = [open_run(user_path(run), run_code) for run in command.runs]
    from Reporter.report.export import write_figures
    from Reporter.report.page import page

    drawn = _report(runs)
    path = output or runs[-1].folder / ("report.html" if len(runs) == 1 else "comparison.html")
    write_output(path, page(drawn).encode(), named=output is not None)
    figures = () if folder is None else write_figures(drawn, folder)
    logger.info("open %s in a browser; it needs nothing else", path)
    if command.output_format == "json":
        say(sys.stdout, json.dumps({"report": str(path), "figures": [str(each) for each in figures]}, indent=2).splitlines())
    else:
        say(sys.stdout, map(str, (path, *figures)))
    return DONE


def _report(runs: Sequence[FinishedRun]) -> Report:
    """The page of one run, or of two compared."""
    if len(runs) == 2:
        from Reporter.report.comparison_report import comparison_report
        from Studies.explain.comparison import compare_runs

        before, after = runs
        return comparison_report(before, after, compare_runs(before, after))
    from Reporter.report.search_report import search_report

    (run,) = runs
    return search_report(run)


def _need_libraries() -> None:
    """Refuse before anything is read where the plotting library is absent."""
    try:
        import altair  # noqa: F401
        import vl_convert  # noqa: F401
    except ModuleNotFoundError as error:
        raise PhazeError(f"report needs {error.name}, which is not installed; run ./setup.sh") from error
