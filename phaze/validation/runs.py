"""Measured runs of a file, typed or published, in typed fields, with the assumptions that reading
them took."""

from dataclasses import dataclass, replace
from pathlib import Path

from Estimator.devices.device import Device
from phaze.validation import megatron_tests
from phaze.validation.alike import filled_from_others
from phaze.validation.assumptions import Assumptions, Notes
from phaze.validation.csv_table import RefusedRow, header_of
from phaze.validation.megatron_tests import has_tests, read_tests
from phaze.validation.published_runs import PublishedRow, read_rows, unread_columns
from phaze.validation.published_words import is_nothing
from phaze.validation.run_hardware import device_of
from phaze.validation.translation import translated, with_defaults
from phaze.validation.typed_run import TypedRun, is_typed, read_typed
from phaze_common.errors import InputError

PUBLISHED_RUNS = Path(__file__).with_name("published_runs.csv")


@dataclass(frozen=True)
class ReadRun:
    """A run as it was read; ``refused`` says why its words make no typed run, else it is empty."""

    run: TypedRun
    notes: Notes
    refused: str = ""
    own_recomputation: bool = False  # that it describes in words of no mode


def read_runs(
    path: Path | None, rules: Assumptions, device: Device | None = None
) -> tuple[ReadRun, ...]:
    """The runs of a file, or those that ship, on ``device`` where it replaces theirs.

    What one leaves out is taken from others of its source.

    Raises: InputError: not a readable CSV of measured runs, or no row of it can be read; names the
        line and the column.
    """
    path = path or PUBLISHED_RUNS
    runs = list[ReadRun]()
    for row in _rows(path):
        if isinstance(row, RefusedRow):
            bare = TypedRun(row.line, row.source, row.model)
            runs.append(ReadRun(bare, Notes(), row.reason))
        elif isinstance(row, TypedRun):
            runs.append(_completed(row, rules, device))
        else:
            runs.append(_translated(row, rules, device))
    known = [each for each in runs if not each.refused]
    own = [each.own_recomputation for each in known]
    filled = iter(
        filled_from_others([each.run for each in known], [each.notes for each in known], own)
    )
    return tuple(each if each.refused else replace(each, run=next(filled)) for each in runs)


def columns_not_read(path: Path | None) -> tuple[str, ...]:
    """Columns of a file that nothing reads; typed files have none."""
    if path is None or is_typed(path):
        return ()
    header = header_of(path)
    return megatron_tests.unread_columns(header) if has_tests(header) else unread_columns(path)


def _rows(path: Path) -> tuple[TypedRun | PublishedRow | RefusedRow, ...]:
    if is_typed(path):
        return read_typed(path)
    return read_tests(path) if has_tests(header_of(path)) else read_rows(path)


def _translated(row: PublishedRow, rules: Assumptions, device: Device | None) -> ReadRun:
    notes = Notes()
    try:
        run = translated(row, rules, notes, device)
    except InputError as error:
        bare = TypedRun(row.line, row.source, row.model, devices=row.devices)
        bare = replace(bare, iteration_s=row.iteration_s, memory_bytes=row.memory_bytes)
        return ReadRun(bare, notes, str(error))
    return ReadRun(run, notes, own_recomputation=not is_nothing(row.recompute))


def _completed(run: TypedRun, rules: Assumptions, device: Device | None) -> ReadRun:
    """A typed run with what the software of its year did by default."""
    notes = Notes()
    framework = rules.framework_with(
        run.software, run.year, None if run.precision is None else run.precision.value
    )
    try:
        known = device or device_of(run)
    except InputError:  # whoever prices the run says so
        known = None
    return ReadRun(with_defaults(run, framework, known, notes), notes)
