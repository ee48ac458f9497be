"""``phaze validate``: predictions against measured training runs."""

from __future__ import annotations

import logging
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.cli.arguments import Command
from phaze.cli.exit_status import DONE
from phaze.cli.printing import print_answer
from phaze.settings.request import settings_for
from phaze_common.errors import InputError
from phaze_common.stated_fields import Mode

if TYPE_CHECKING:
    from phaze.validation.own_plan_runs import PricedFile

logger = logging.getLogger(__name__)

HARDWARE = ("device", "cluster", "software")
PICTURES = (".png", ".svg", ".pdf")


def validate(command: Command) -> int:
    """Predict every run of the table, print how far off that is, and draw it where a file was
    named."""
    from phaze.settings.folders import check_output, folders_of
    from phaze_common.files import named_file, user_path
    from phaze_common.progress import progress_for

    named = settings_for(Mode.EVALUATE).read(command.given, "command line")
    device, cluster, software = (
        named_file(key, named[key]) if key in named else None for key in HARDWARE
    )
    output = user_path(named["output"]) if "output" in named else None
    runs_file = user_path(command.runs[0]) if command.runs else None
    if output is not None:
        check_output(output)
    picture = None if command.plot is None else _picture(command.plot, force=command.force)
    typed = None if command.typed is None else _typed(command.typed, runs_file, force=command.force)
    from phaze.validation.operator_tables import has_operators

    if runs_file is not None and has_operators(runs_file):
        return _operators(command, runs_file, device, cluster, software)
    from phaze.report.tables.validation_tables import report_json, report_tables
    from phaze.validation.explained import explain_errors
    from phaze.validation.run import validate as compare

    progress = progress_for(sys.stderr, quiet=command.quiet)
    report = compare(
        runs_file,
        device,
        cluster,
        software,
        folders_of(output).graphs,
        progress,
        partial(_priced, output),
        typed,
    )
    explained = explain_errors(report.runs) if command.explain else None
    print_answer(
        report_json(report, explained).decode(), lambda: report_tables(report, explained), command
    )
    if picture is not None:
        from phaze.report.validation_plot import draw

        draw(report, picture)
        logger.info("predicted against measured times are drawn in %s", picture)
    return DONE


def _operators(
    command: Command, table: Path, device: str | None, cluster: str | None, software: str | None
) -> int:
    """Compare a table of measured operators with what a device is priced with."""
    from phaze.report.tables.operator_tables import operator_tables
    from phaze.validation.operator_tables import validate_operators
    from phaze_common.records import to_json

    asked = {
        "--cluster": cluster,
        "--plot": command.plot,
        "--typed": command.typed,
        "--explain": command.explain or None,
    }
    for flag, value in asked.items():
        if value is not None:
            raise InputError(
                f"{flag} is about training runs, but {table} is a table of operators; leave it out"
            )
    report = validate_operators(table, device, software)
    print_answer(to_json(report).decode(), lambda: operator_tables(report), command)
    return DONE


def _priced(output: Path | None, plan: Path, database: Path) -> PricedFile:
    """A plan of our own on a machine that was profiled."""
    from phaze.runs.plan_files import evaluate_request
    from phaze.studies.evaluation import evaluated
    from phaze.validation.own_plan_runs import PricedFile

    given = {"device": str(database)} | ({} if output is None else {"output": str(output)})
    evaluation = evaluated(evaluate_request(plan, given))
    return PricedFile(evaluation.plan, evaluation.iteration)


def _typed(text: str, runs_file: Path | None, *, force: bool) -> Path:
    from phaze_common.files import output_file

    path = output_file(text, flag="--typed")
    if runs_file is not None and path.exists() and runs_file.exists() and path.samefile(runs_file):
        raise InputError(f"--typed {text!r} is the table that is read; give another file")
    return _replaceable(path, "--typed", force=force)


def _picture(text: str, *, force: bool) -> Path:
    from phaze_common.files import output_file

    path = output_file(text, flag="--plot")
    if path.suffix.lower() not in PICTURES:
        endings = f"{', '.join(PICTURES[:-1])} or {PICTURES[-1]}"
        raise InputError(
            f"--plot {text!r} is no PNG, SVG or PDF; give a file name that ends in {endings}"
        )
    return _replaceable(path, "--plot", force=force)


def _replaceable(path: Path, flag: str, *, force: bool) -> Path:
    from phaze_common.written_files import check_replaceable

    check_replaceable(path.parent, {path.name: None}, force=force, flag=flag)
    return path
