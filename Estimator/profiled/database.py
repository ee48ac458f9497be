"""Databases on disk: a folder with ``machine.yaml`` and tables of operators, collectives and
passes.

A table is ``<name>.parquet``, with what was measured since in ``<name>.csv``: every row is appended
there, and on disk, as soon as it is measured, so that a profile which was cut off goes on where it
was. A folder of CSV files alone is a database too. A last line without its end, which a killed
process leaves, is passed over.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from Estimator.profiled.machine import MACHINE, MachineRecord, profile_folder, read_machine
from Estimator.profiled.rows import (
    CollectiveRow,
    OperatorRow,
    PassRow,
    collective_columns,
    collective_row,
    distinct,
    operator_columns,
    operator_row,
    pass_columns,
    pass_row,
)
from phaze_common.errors import ArtefactError, InputError
from phaze_common.files import append_line, artefact_bytes, read_text, write_atomically
from phaze_common.parquet import MAX_FILE_BYTES, read_parquet
from phaze_common.sealed import digest_of

Row = TypeVar("Row", OperatorRow, CollectiveRow, PassRow)
OPERATORS, COLLECTIVES, PASSES = "operators", "collectives", "passes"
TABLES = (OPERATORS, COLLECTIVES, PASSES)


@dataclass(frozen=True, eq=False)
class ProfileDatabase:
    """What was measured on a machine; ``digest`` is that of all its files. Each operator has one
    row."""

    folder: Path
    digest: str
    machine: MachineRecord
    operators: tuple[OperatorRow, ...]
    collectives: tuple[CollectiveRow, ...]
    passes: tuple[PassRow, ...]


def read_database(text: str | Path) -> ProfileDatabase:
    """The database that ``text`` names, its folder or the ``machine.yaml`` in it; may be one that
    is being measured.

    Raises: InputError: there is none, or a file of it is damaged or foreign; names the file, the
        line and what is wrong.
    """
    folder = profile_folder(text)
    if folder is None:
        raise InputError(
            f"{text} is no profiled database, which is a folder with a {MACHINE}; make one with "
            "'phaze profile'"
        )
    return _unchanged(folder.absolute(), digest_of_folder(folder))


def digest_of_folder(folder: Path) -> str:
    """Hash of everything in a database.

    Raises:
        InputError: a file cannot be read.
    """
    names = [MACHINE, *(f"{table}.{ending}" for table in TABLES for ending in ("parquet", "csv"))]
    parts = [
        b"%s %d\n" % (name.encode(), len(content)) + content
        for name in names
        if (content := _bytes(folder / name))
    ]
    return digest_of(b"".join(parts))


@lru_cache(maxsize=8)  # a search asks for the same one again and again
def _unchanged(folder: Path, digest: str) -> ProfileDatabase:
    machine = read_machine(folder)
    return ProfileDatabase(
        folder=folder,
        digest=digest,
        machine=machine,
        operators=distinct(_rows(folder, OPERATORS, operator_row)),
        collectives=tuple(_rows(folder, COLLECTIVES, collective_row)),
        passes=tuple(_rows(folder, PASSES, pass_row)),
    )


def append_operator(folder: Path, row: OperatorRow) -> None:
    """Keep a row that was measured; it is on disk when this returns.

    Raises:
        InputError: nothing can be written there.
    """
    _append(folder / f"{OPERATORS}.csv", operator_columns(row))


def append_collective(folder: Path, row: CollectiveRow) -> None:
    """As ``append_operator``."""
    _append(folder / f"{COLLECTIVES}.csv", collective_columns(row))


def append_passes(folder: Path, rows: Sequence[PassRow]) -> None:
    """As ``append_operator``, all of them or none."""
    if rows:
        _append(folder / f"{PASSES}.csv", *map(pass_columns, rows))


def pack_tables(folder: Path) -> None:
    """Move what was appended into the parquet tables; cut off at any moment, every row is in one of
    them, or in both.

    Raises:
        InputError: a table is damaged, or nothing can be written.
    """
    database = read_database(folder)
    tables = {
        OPERATORS: [operator_columns(row) for row in database.operators],
        COLLECTIVES: [collective_columns(row) for row in database.collectives],
        PASSES: [pass_columns(row) for row in database.passes],
    }
    for name, rows in tables.items():
        if rows and (folder / f"{name}.csv").exists():
            write_atomically(folder / f"{name}.parquet", _parquet(_distinct_columns(rows)))
            (folder / f"{name}.csv").unlink()


def _distinct_columns(rows: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """Rows without those that a cut-off packing left twice."""
    return list({tuple(row.items()): row for row in rows}.values())


def _parquet(rows: Sequence[Mapping[str, object]]) -> bytes:
    import pandas as pd

    buffer = io.BytesIO()
    pd.DataFrame(rows).to_parquet(buffer, engine="pyarrow", compression="zstd", index=False)
    return buffer.getvalue()


def _append(path: Path, *rows: Mapping[str, object]) -> None:
    lines = [
        _line(repr(value) if isinstance(value, float) else value for value in columns.values())
        for columns in rows
    ]
    append_line(path, b"".join(lines), _line(rows[0]))


def _line(cells: Iterable[object]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()


def _rows(folder: Path, name: str, row: Callable[[Mapping[str, object], str], Row]) -> list[Row]:
    found = []
    for columns, where in (
        *_parquet_rows(folder / f"{name}.parquet"),
        *_csv_rows(folder / f"{name}.csv"),
    ):
        found.append(row(columns, where))
    return list(dict.fromkeys(found))


def _parquet_rows(path: Path) -> list[tuple[Mapping[str, object], str]]:
    content = _bytes(path)
    if not content:
        return []
    try:
        table = read_parquet(content, str(path))
    except ArtefactError as error:
        raise InputError(f"{error}; profile the machine again, or take the file away") from error
    names = [str(name) for name in table.columns]
    rows = zip(*(table[name].tolist() for name in table.columns), strict=True)
    return [
        (dict(zip(names, values, strict=True)), f"{path} row {number}")
        for number, values in enumerate(rows, 1)
    ]


def _csv_rows(path: Path) -> list[tuple[Mapping[str, object], str]]:
    if not path.exists():
        return []
    text = read_text(path, "a table of a profiled database")
    lines = text[: text.rfind("\n") + 1]
    try:
        rows = list(csv.reader(io.StringIO(lines), strict=True))
    except csv.Error as error:
        raise InputError(f"{path} is no CSV file: {error}; profile the machine again") from error
    if not rows:
        return []
    header, found = rows[0], list[tuple[Mapping[str, object], str]]()
    for number, cells in enumerate(rows[1:], 2):
        if len(cells) != len(header):
            raise InputError(
                f"{path} line {number} has {len(cells)} cells, its header {len(header)}; profile "
                "the machine again"
            )
        found.append((dict(zip(header, cells, strict=True)), f"{path} line {number}"))
    return found


def _bytes(path: Path) -> bytes:
    try:
        return artefact_bytes(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        return b""
    except (OSError, ArtefactError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot read {path}: {reason}; give a database that can be read"
        ) from error
