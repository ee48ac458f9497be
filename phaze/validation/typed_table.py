"""Typed files of measured runs: CSV whose columns are the fields of ``TypedRun``, with ``null`` for
what is not known."""

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import get_args

from GraphExtractor.models.dimensions import family_names
from phaze.validation.csv_lines import CsvLine, csv_lines
from phaze.validation.measured_runs import MOST_MEASURED, refuse_where_none_is_read
from phaze.validation.published_row import RefusedRow
from phaze.validation.typed_run import FlopsConvention, MemoryFigure, TypedRun
from phaze_common.choices import Attention, Precision, Recompute
from phaze_common.errors import InputError
from phaze_common.files import read_text
from phaze_common.suggestions import nearest
from phaze_common.written_files import write_output

NULL = "null"
MARK = "global_batch_samples"  # a column that no other table has
COLUMNS = tuple(field.name for field in fields(TypedRun) if field.name != "line")
REQUIRED = ("device", MARK)
MEASURED = ("iteration_s", "tflops_per_device", "mfu")
LARGEST = 10**15
FEW = {"zero_stage": (0, 1, 2, 3), "gradient_bytes": (2, 4), "year": range(2012, 2100)}
MOST_OF = {  # of what was measured
    "iteration_s": MOST_MEASURED["measured_iter_time_s"],
    "tflops_per_device": MOST_MEASURED["achieved_tflops_per_gpu"],
    "memory_bytes": MOST_MEASURED["mem_GB_measured"] * 1e9,
}
CHOICES: tuple[type[StrEnum], ...] = (
    Attention,
    Precision,
    Recompute,
    FlopsConvention,
    MemoryFigure,
)
# of what ships: a table opens no other file
NAMES = ("device", "cluster", "software", "attention_kernel")


def is_typed(path: Path) -> bool:
    """Whether the first line of a file names typed columns.

    Raises:
        InputError: the file cannot be read.
    """
    first = next(
        iter(read_text(path, "a CSV file of measured runs").lstrip("\ufeff").splitlines()), ""
    )
    return MARK in [name.strip() for name in first.split(",")]


def read_typed(path: Path) -> tuple[TypedRun | RefusedRow, ...]:
    """The runs of a typed file; a line that is none is kept with its reason.

    Raises: InputError: a column that is not allowed, or no line is a run; names line and column,
        and what is allowed.
    """
    lines = csv_lines(read_text(path, "a CSV file of measured runs"))
    header = next(lines, CsvLine(1, ()))
    names = _header(path, [name.strip() for name in header.cells])
    rows = [_read(path, line, names) for line in lines]
    if not rows:
        raise InputError(f"{path} has a header but no runs; add a line per run")
    refuse_where_none_is_read(rows)
    return tuple(rows)


def _read(path: Path, line: CsvLine, names: Sequence[str]) -> TypedRun | RefusedRow:
    where, wrong = f"{path}, line {line.number}", line.wrong
    if not wrong and len(line.cells) != len(names):
        wrong = (
            f"has {len(line.cells)} cells for {len(names)} columns; write {NULL} where "
            "nothing is known"
        )
    cells = dict(zip(names, map(str.strip, line.cells), strict=False))
    try:
        if wrong:
            raise InputError(f"{where} {wrong}")
        return _run(path, line.number, cells)
    except InputError as error:
        said = (
            "" if cells.get(name, NULL) == NULL else cells[name] for name in ("source", "model")
        )
        source, model = said
        return RefusedRow(line.number, source or path.name, model, str(error))


def write_typed(runs: Sequence[TypedRun], path: Path) -> None:
    """Write a typed file, where there may be one.

    Raises:
        InputError: nothing can be written there.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_text(getattr(run, name)) for name in COLUMNS] for run in runs)
    write_output(path, text.getvalue().encode(), force=True)


def _header(path: Path, names: Sequence[str]) -> Sequence[str]:
    for name in names:
        if name not in COLUMNS:
            end = nearest(name, COLUMNS, f"the columns are {', '.join(COLUMNS)}")
            raise InputError(
                f"{path}, line 1 names column {name!r:.60}, which typed runs have not; {end}"
            )
        if names.count(name) > 1:
            raise InputError(f"{path}, line 1 names column {name} twice; name it once")
    lacking = [name for name in REQUIRED if name not in names]
    if not set(MEASURED) & set(names):
        lacking.append(" or ".join(MEASURED))
    if lacking:
        raise InputError(
            f"{path}, line 1 lacks column {' and '.join(lacking)}; the columns are "
            f"{', '.join(COLUMNS)}"
        )
    return names


def _run(path: Path, line: int, cells: Mapping[str, str]) -> TypedRun:
    values: dict[str, object] = {}
    for name, text in cells.items():
        if text in ("", NULL):
            continue
        try:
            values[name] = _READERS[name](text)
        except ValueError as error:
            raise InputError(
                f"{path}, line {line}, column {name} is {text!r:.60}; give {error}, or {NULL}"
            ) from None
    return TypedRun(**{"line": line, "source": path.name, **values})  # type: ignore[arg-type]


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < LARGEST):
        raise ValueError("a whole number above 0")
    return int(text)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < LARGEST or "_" in text:
        raise ValueError(f"a number above 0 and below {LARGEST:.0e}")
    return value


def _at_most(most: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = _number(text)
        if value > most:
            raise ValueError(f"a number above 0, at most {most:g}")
        return value

    return read


def _fraction(text: str) -> float:
    value = _number(text)
    if value > 1:
        raise ValueError("a fraction, at most 1")
    return value


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


def _one_of(names: Sequence[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in names:
            raise ValueError(f"one of {', '.join(names)}")
        return text

    return read


def _few(allowed: Sequence[int]) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and int(text) in allowed):
            raise ValueError(
                f"a year from {allowed[0]} on"
                if isinstance(allowed, range)
                else f"one of {', '.join(map(str, allowed))}"
            )
        return int(text)

    return read


def _name(text: str) -> str:
    if "/" in text or text.endswith((".yaml", ".yml")):
        raise ValueError("a name that is listed, and a file for all runs by the flag of this name")
    return text


def _reader(name: str, kind: object) -> Callable[[str], object]:
    kinds = [each for each in get_args(kind) if each is not NoneType] or [kind]
    if name == "family":
        return _one_of(family_names(mixtures=False))
    if name in FEW:
        return _few(FEW[name])
    if name in NAMES:
        return _name
    if name == "mfu":
        return _fraction
    if name in MOST_OF:
        return _at_most(MOST_OF[name])
    if kinds[0] in CHOICES:
        choice: type[StrEnum] = kinds[0]
        names = _one_of([each.value for each in choice])
        return lambda text: choice(names(text))
    readers: dict[object, Callable[[str], object]] = {
        int: _whole,
        float: _number,
        bool: _flag,
        str: str,
    }
    return readers[kinds[0]]


_READERS = {
    field.name: _reader(field.name, field.type)
    for field in fields(TypedRun)
    if field.name != "line"
}


def _text(value: object) -> str:
    if value is None or value == "":
        return NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return str(value)
