"""Tables of measured operators against what a device is priced with under a framework: the round
trip of ``phaze calibrate``.

Operators are timed by themselves, so they have their launch and the clock of a short measurement;
all else is as in training: the matrix library is that of the framework's year.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from Estimator.devices.calibration import read_measurements
from Estimator.devices.calibration_tables import COLUMNS, LAYOUTS
from Estimator.devices.device import Calibration
from Estimator.devices.files import load_device, load_software
from Estimator.devices.isolated import isolated_s
from phaze_common.errors import InputError
from phaze_common.files import read_text

MARKS = ("operator", "seconds")  # columns that no table of runs has together


@dataclass(frozen=True)
class OperatorRow:
    """An operator's measured and predicted seconds; ``error`` is predicted / measured - 1."""

    where: str
    operator: str
    number_format: str
    measured_s: float
    predicted_s: float
    error: float


@dataclass(frozen=True)
class OperatorReport:
    """How far the operators of a table are off on a device under a framework: by kind of launch,
    and row by row."""

    file: str
    device: str
    software: str
    tables: tuple[Calibration, ...]
    rows: tuple[OperatorRow, ...]


def has_operators(path: Path) -> bool:
    """Whether a file is a table of operators, with a header or known by its name.

    Raises:
        InputError: the file cannot be read.
    """
    first = next((line for line in read_text(path, "a CSV file").splitlines() if line.strip()), "")
    names = [name.strip() for name in first.split(",")]
    if set(MARKS) <= set(names) <= set(COLUMNS):
        return True
    layout = LAYOUTS.get(path.stem.split("_")[0].lower())
    return layout is not None and len(names) == layout.cells and names[0].isdigit()


def validate_operators(path: Path, device: str | None, software: str | None) -> OperatorReport:
    """Price every operator of a table and compare.

    Raises: InputError: no device is given, the table cannot be read, or it has a number format that
        the device does not compute in.
    """
    if device is None:
        raise InputError(
            f"{path} is a table of operators, which does not say its device; give --device, by "
            "name or YAML file"
        )
    found, table = load_device(device), read_measurements(path)
    framework = load_software(software or found.software)
    rows = []
    for row in table.rows:
        seconds, operator = isolated_s(row.operator, found, framework.year), row.operator
        times = row.seconds, seconds, seconds / row.seconds - 1.0
        rows.append(OperatorRow(row.where, operator.launch, operator.number_format, *times))
    tables = tuple(_by_launch(table.name, rows))
    return OperatorReport(str(path), found.name, framework.name, tables, tuple(rows))


def _by_launch(name: str, rows: list[OperatorRow]) -> list[Calibration]:
    made = []
    for launch in sorted({row.operator for row in rows}):
        errors = np.array([row.error for row in rows if row.operator == launch])
        mape, bias = float(np.abs(errors).mean()), float(errors.mean())
        made.append(Calibration(f"{name}: {launch}", len(errors), mape, bias))
    return made
