"""Measured runs of a file, typed or published, in typed fields, with the assumptions that reading them took."""

from dataclasses import dataclass, replace
from pathlib import Path

from Common.errors import InputError
from Estimator.devices.device import Device
from Validation.assumptions import Assumptions, Notes
from Validation.measured_runs import read_rows
from Validation.run_hardware import RunHardware
from Validation.translation import translated, with_defaults
from Validation.typed_run import TypedRun
from Validation.typed_table import is_typed, read_typed

PUBLISHED_RUNS = Path(__file__).with_name("published_runs.csv")


@dataclass(frozen=True)
class ReadRun:
    """A run as it was read; ``refused`` says why its words make no typed run, else it is empty."""

    run: TypedRun
    notes: Notes
    refused: str = ""


def read_runs(path: Path | None, rules: Assumptions, device: Device | None = None) -> tuple[ReadRun, ...]:
    """The runs of a file, or those that ship, on ``device`` where it replaces theirs.

    Raises:
        InputError: not a readable CSV of measured runs, or a value that cannot be; names the line and the column.
    """
    path = path or PUBLISHED_RUNS
    if is_typed(path):
        return tuple(_completed(run, rules, device) for run in read_typed(path))
    hardware, runs = RunHardware(), []
    for row in read_rows(path):
        notes = Notes()
        try:
            runs.append(ReadRun(translated(row, rules, hardware, notes, device), notes))
        except InputError as error:
            bare = TypedRun(row.line, row.source, row.model, devices=row.devices, iteration_s=row.iteration_s)
            runs.append(ReadRun(replace(bare, memory_bytes=row.memory_bytes), notes, str(error)))
    return tuple(runs)


def _completed(run: TypedRun, rules: Assumptions, device: Device | None) -> ReadRun:
    """A typed run with what the software of its year did by default."""
    notes = Notes()
    framework = rules.framework_with(run.software, run.year, None if run.precision is None else run.precision.value)
    try:
        known = device or RunHardware.device_of(run)
    except InputError:  # whoever prices the run says so
        known = None
    return ReadRun(with_defaults(run, framework, known, notes), notes)
