"""Iteration times of others over numbers of devices, as a CSV, to compare a sweep with."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phaze.settings.request import settings_for
from phaze.studies.sweep.table import value_text
from phaze_common.echo import as_given
from phaze_common.errors import InputError
from phaze_common.files import read_text
from phaze_common.ranges import check_ranges, positive_number
from phaze_common.setting_fields import Mode
from phaze_common.suggestions import nearest

SOURCE, DEVICES, SECONDS = "source", "devices", "seconds"
REQUIRED = (SOURCE, DEVICES, SECONDS)
WANTED = f"a CSV file with the columns {', '.join(REQUIRED)} and settings of the sweep"


@dataclass(frozen=True)
class OtherAnswer:
    """Seconds of an iteration on ``devices`` with ``settings``, values as text, by ``source``."""

    source: str
    devices: int
    seconds: float
    settings: Mapping[str, str]

    def agrees(self, key: str, value: Any) -> bool:
        """Whether it has that value of setting ``key``, or does not name the setting."""
        if key not in self.settings:
            return True
        return _comparable(self.settings[key]) == _comparable(value_text(value))


def read_other_answers(path: Path) -> tuple[OtherAnswer, ...]:
    """Read a CSV with columns source, devices and seconds, and settings of studies.

    Raises: InputError: the file is missing, holds no rows, lacks a column or has one that is none,
        or a value is not what it must be.
    """
    try:
        reader = csv.DictReader(io.StringIO(read_text(path, WANTED)), strict=True)
        rows = list(reader)
    except csv.Error as error:
        raise InputError(f"cannot read {path}: {error}; give the path of {WANTED}") from error
    if not rows:
        raise InputError(f"{path} holds no rows; give the path of {WANTED}")
    _check_columns(list(reader.fieldnames or ()), path)
    return tuple(_answer(row, f"{path} line {line}") for line, row in enumerate(rows, start=2))


def _check_columns(columns: list[str], path: Path) -> None:
    known = (*REQUIRED, *settings_for(Mode.SEARCH).keys)
    for column in columns:
        if column not in known:
            give = f"give {', '.join(REQUIRED)}, and settings such as device and fast_domain"
            instead = nearest(column, known, give)
            raise InputError(f"{path}: {as_given(column)} is no column that is known; {instead}")
    for column in REQUIRED:
        if column not in columns:
            raise InputError(f"{path} has no column {column}; give {WANTED}")


def _answer(row: Mapping[str | None, Any], where: str) -> OtherAnswer:
    if None in row or None in row.values():
        raise InputError(f"{where} does not have as many cells as the header; give each column one")
    check_ranges(row, where)
    cells = {str(key): str(value).strip() for key, value in row.items()}
    devices = positive_number(cells.pop(DEVICES), DEVICES, where)
    if devices != int(devices):
        raise InputError(f"{where}: {DEVICES} is {devices:g}; it must be a whole number")
    seconds, source = positive_number(cells.pop(SECONDS), SECONDS, where), cells.pop(SOURCE)
    if not source:
        raise InputError(f"{where} has no {SOURCE}; say whose answer it is")
    settings = {key: value for key, value in cells.items() if value}
    return OtherAnswer(source, int(devices), seconds, settings)


def _comparable(text: str) -> float | str:
    """The number that a text writes, else the text."""
    try:
        return float(text)
    except ValueError:
        return text
