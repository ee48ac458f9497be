"""Predictions of measured runs whose stages differ: plans from files, devices from databases of
profiled operators."""

from __future__ import annotations

from pathlib import Path

from Estimator.profiled.machine import profile_folder
from phaze.validation.bridges import reader_of_aceso
from phaze.validation.csv_table import RefusedRow, refuse_where_none_is_read
from phaze.validation.own_plan_runs import PriceFile, own_result
from phaze.validation.plan_rows import PlanRow, read_plan_rows
from phaze.validation.records import RunResult, ValidationReport
from phaze.validation.statistics import statistics_of
from phaze_common.errors import InputError
from phaze_common.progress import Progress


def validate_plans(rows_file: Path, progress: Progress, price: PriceFile) -> ValidationReport:
    """Predict every run of a file of plans, by one set of rules; a row whose files are not its own
    is skipped with its reason.

    Plans on databases of ``phaze profile`` are our own, which ``price`` prices.

    Raises: InputError: the table cannot be read, or no row of it: a file is missing, damaged, or of
        another model, size or format.
    """
    rows = read_plan_rows(rows_file)
    results, of_aceso = list[RunResult](), 0
    with progress.phase("measured runs", len(rows)) as advance:
        for row in rows:
            if isinstance(row, RefusedRow):
                results.append(RunResult(row.line, row.source, row.model, None, reason=row.reason))
            else:
                results.append(_result_of(row, price))
                of_aceso += not results[-1].skipped and profile_folder(row.database) is None
            advance(1)
    refuse_where_none_is_read([each.reason for each in results])
    overall, sources = statistics_of(results)
    rules = reader_of_aceso().rules(of_aceso) if of_aceso else ()
    return ValidationReport(str(rows_file), overall, sources, tuple(results), rules)


def _result_of(row: PlanRow, price: PriceFile) -> RunResult:
    """The run of a row with the files that it names, or why these are not its own."""
    try:
        if profile_folder(row.database):
            return own_result(row, price)
        run = reader_of_aceso().AcesoRun(row)
    except InputError as error:
        return RunResult(row.line, row.source, row.model, None, reason=str(error))
    return run.result()


def check_alone(**given: str | None) -> None:
    """Refuse what is given for a table of plans, which names its hardware and is typed.

    Raises:
        InputError: there is any.
    """
    for flag, value in given.items():
        if value is not None:
            raise InputError(
                f"--{flag} {value!r:.60} is given for runs whose devices are profiled databases; "
                "leave it out"
            )
