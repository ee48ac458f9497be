"""CSV files whose columns are the annotated fields of a record.

A line that is no row is kept with its reasons and refuses no other.
"""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from phaze_common.errors import InputError
from phaze_common.files import read_text

# physical lines of one record: a quote that closes no sooner was never meant to open
LONGEST_RECORD = 64
WANTED = "a CSV file of measured runs"

Row = TypeVar("Row")
Reader = Callable[[str], object]


@dataclass(frozen=True)
class CsvLine:
    """Cells of a record and the number of its first line in the file; ``wrong`` says why a line is
    no record."""

    number: int
    cells: tuple[str, ...]
    wrong: str = ""


@dataclass(frozen=True)
class RefusedRow:
    """A line that is no run, and the reason with its column; what it says of itself, as far as that
    could be read."""

    line: int
    source: str
    model: str
    reason: str


class UnclearError(Exception):
    """A cell holds words where a number belongs; the row is read without it."""


@dataclass(frozen=True)
class Column:
    """How a field is written.

    ``read`` makes its value of a cell that is not empty (ValueError says what it must be). The
    column has the first of ``names``, that of the field where there are none, and may be called as
    the others.
    """

    read: Reader
    names: tuple[str, ...] = ()


def csv_lines(text: str) -> Iterator[CsvLine]:
    """All records of ``text`` but empty ones, without spaces around cells."""
    lines = io.StringIO(text.lstrip("\ufeff")).readlines()
    place = 0
    while place < len(lines):
        reader = csv.reader(lines[place : place + LONGEST_RECORD], strict=True)
        try:
            cells = tuple(cell.strip() for cell in next(reader, []))
            found, taken = CsvLine(place + 1, cells), max(reader.line_num, 1)
        except csv.Error as error:  # of this line alone: what follows begins behind it
            found, taken = CsvLine(place + 1, (), f"is not CSV: {error}; correct it"), 1
        if found.wrong or any(found.cells):
            yield found
        place += taken


def header_of(path: Path) -> tuple[str, ...]:
    """The cells of the first line of a file.

    Raises:
        InputError: the file cannot be read.
    """
    return next(csv_lines(read_text(path, WANTED)), CsvLine(1, ())).cells


def columns_of(record: type, readers: Mapping[Any, Reader]) -> dict[str, Column]:
    """The columns of a record by field, in their order, with those of records within it.

    A field has the ``Column`` that it is annotated with, else the reader of its type; one of a type
    that has none is no column.
    """
    found: dict[str, Column] = {}
    for name, kind in get_type_hints(record, include_extras=True).items():
        annotated = get_args(kind)[1] if get_origin(kind) is Annotated else None
        plain = next((each for each in get_args(kind) if each is not NoneType), kind)
        if isinstance(kind, type) and is_dataclass(kind):
            found |= columns_of(kind, readers)
        elif isinstance(annotated, Column):
            found[name] = annotated
        elif plain in readers and name != "line":
            found[name] = Column(readers[plain])
    return found


def column_name(field: str, column: Column) -> str:
    """What the column of a field is usually called."""
    return column.names[0] if column.names else field


def read_table(
    path: Path,
    header: Callable[[Sequence[str]], Sequence[str]],
    row: Callable[[int, Mapping[str, str], Mapping[str, str]], Row],
    null: str = "",
) -> tuple[Row | RefusedRow, ...]:
    """The rows of a file; a line that is none is kept with its reason.

    ``header`` names the columns of line 1. ``row`` makes a row of the number of its line, the cells
    that say something by column, and what line 1 calls the columns; it raises InputError where
    there is none. ``null`` stands where nothing is known; where it is no empty text, no cell may be
    left out.

    Raises:
        InputError: the file cannot be read, its header is wrong, or no line is a row.
    """
    lines = csv_lines(read_text(path, WANTED))
    first = next(lines, CsvLine(1, ()))
    if first.wrong:
        raise InputError(f"{path}, line 1 {first.wrong}")
    names = header(first.cells)
    headings = dict(zip(names, first.cells, strict=True))
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        pairs = zip(names, first.cells, strict=True)
        also = [f" (also called {given})" for name, given in pairs if name == twice[0] != given]
        other = also[0] if also else ""
        raise InputError(f"{path}, line 1 names column {twice[0]}{other} twice; name it once")

    def read(line: CsvLine) -> Row | RefusedRow:
        cells = dict(zip(names, line.cells, strict=False))
        known = {name: cell for name, cell in cells.items() if cell not in ("", null)}
        wrong, counts = line.wrong, f"has {len(line.cells)} cells for {len(names)} columns"
        if not wrong and len(line.cells) > len(names):
            wrong = f"{counts}; put text with commas in quotes"
        elif not wrong and null and len(line.cells) < len(names):
            wrong = f"{counts}; write {null} where nothing is known"
        try:
            if wrong:
                raise InputError(f"{path}, line {line.number} {wrong}")
            return row(line.number, known, headings)
        except InputError as error:
            source = known.get("source", path.name)
            return RefusedRow(line.number, source, known.get("model", ""), str(error))

    rows = tuple(read(line) for line in lines)
    if not rows:
        raise InputError(f"{path} has a header but no runs; add a line per run")
    refuse_where_none_is_read([row.reason if isinstance(row, RefusedRow) else "" for row in rows])
    return rows


def read_typed_csv(
    path: Path,
    record: type[Row],
    columns: Mapping[str, Column],
    header: Callable[[Sequence[str]], Sequence[str]],
    null: str = "",
) -> tuple[Row | RefusedRow, ...]:
    """The rows of a file as a ``record``, whose ``line`` and ``source`` they have; as
    ``read_table``.

    Columns that hold words where a number belongs are listed in the record's field ``unclear``.
    """
    own = {each.name for each in fields(record)}  # type: ignore[arg-type]
    hints = get_type_hints(record)
    within: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}

    def row(line: int, cells: Mapping[str, str], headings: Mapping[str, str]) -> Row:
        values: dict[str, Any] = {"line": line, "source": path.name}
        problems, unclear = list[str](), list[str]()
        for name, column in columns.items():
            called = column_name(name, column)
            if called not in cells:
                continue
            try:
                values[name] = column.read(cells[called])
            except UnclearError:
                unclear.append(called)
            except ValueError as error:
                given = f"column {headings[called]} is {cells[called]!r:.60}"
                problems.append(f"{given}; give {error}, or {null or 'leave it empty'}")
        if problems:
            raise InputError(f"{path}, line {line}, {'; '.join(problems)}")
        if unclear:
            values["unclear"] = tuple(unclear)
        for name, kind in within.items():
            inner = {each.name for each in fields(kind)} & set(values)
            values[name] = kind(**{each: values[each] for each in inner})
        return record(**{name: value for name, value in values.items() if name in own})

    return read_table(path, header, row, null)


def check_columns(
    path: Path, names: Sequence[str], required: Sequence[Sequence[str]], known: str
) -> None:
    """Refuse a header that lacks one of each group of columns.

    Raises:
        InputError: names what is lacking, and the columns that are ``known``.
    """
    lacking = [" or ".join(group) for group in required if not set(group) & set(names)]
    if lacking:
        *first, last = lacking
        some = f"columns {', '.join(first)} and {last}" if first else f"column {last}"
        raise InputError(f"{path}, line 1 lacks {some}; the columns are {known}")


def refuse_where_none_is_read(reasons: Sequence[str]) -> None:
    """Refuse a table all of whose rows are refused; ``reasons`` are empty for those that are not.

    Raises:
        InputError: says why the first one is, and how many others are.
    """
    if reasons and all(reasons):
        others = len(reasons) - 1
        raise InputError(
            reasons[0] + (f" (and so it is with {others} other lines)" if others else "")
        )
