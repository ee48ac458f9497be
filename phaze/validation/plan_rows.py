"""Rows of measured runs whose plan is a file and whose device is a folder of profiled operators:
plan and database columns.

The columns are those of Mist's table of runs of Aceso's plans, or as published runs call them;
files lie beside the table, in its folders ``plans`` and ``operators``, or where their paths say.
Everything that a row says of its run is checked against its plan before anything is predicted.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from phaze.validation.csv_table import RefusedRow, check_columns, header_of, read_table
from phaze.validation.published_numbers import number_in
from phaze.validation.typed_run import MOST_MEASURED
from phaze_common.errors import InputError

PLAN, DATABASE = "plan", "database"
TIMES = ("measured_s", "measured_iter_time_s", "measured_iteration_s", "iteration_s")
PLAN_FOLDERS, DATABASE_FOLDERS = (".", "plans"), (".", "operators")
DEVICES_PER_NODE = 8  # of the machines that Aceso and Mist measured on, where a row does not say
LARGEST = 1e15


class MemoryKind(StrEnum):
    """Which figure of the allocator was published."""

    ALLOCATED = "allocated"  # most allocated at once, of all devices
    ALLOCATED_FIRST_NODE = "allocated on the first node"
    RESERVED = "reserved"  # most held from the device at once, of all devices


_MEMORY = re.compile(r"(measured|peak|mem|max)\w*_(?P<unit>mb|mib|gb|gib)(_\w+)?")
_UNITS_MIB = {"mb": 1.0, "mib": 1.0, "gb": 1024.0, "gib": 1024.0}


def memory_column(name: str) -> tuple[MemoryKind, float] | None:
    """Which figure a column holds, and MiB per unit; None for other columns.

    A figure that does not say which it is, is taken as Aceso's, which is what is reserved.
    """
    found = _MEMORY.fullmatch(name)
    if (
        found is None
        or not any(word in name for word in ("mem", "alloc", "reserved"))
        or "pred" in name
    ):
        return None
    kind = MemoryKind.RESERVED
    if "alloc" in name:
        kind = MemoryKind.ALLOCATED_FIRST_NODE if "node0" in name else MemoryKind.ALLOCATED
    return kind, _UNITS_MIB[found["unit"]]


@dataclass(frozen=True)
class PlanRow:
    """A measured run of a plan. Empty texts and None are what the row does not say; MB are MiB, as
    PyTorch counts them.

    ``stated`` are the numbers that must be those of the plan: gpus, global_batch, micro_batch,
    stages, seq.
    """

    file: Path
    line: int
    plan: Path
    database: Path
    source: str
    model: str
    size: str
    dtype: str
    stated: Mapping[str, int]
    devices_per_node: int
    measured_s: float
    memory_mib: float | None
    memory_kind: MemoryKind | None

    @property
    def where(self) -> str:
        """For the beginning of an error."""
        return f"{self.file}, line {self.line}"


STATED = {
    "gpus": "gpus",
    "num_gpus": "gpus",
    "n_gpus": "gpus",
    "devices": "gpus",
    "global_batch": "global_batch",
    "global_batch_size": "global_batch",
    "micro_batch": "micro_batch",
    "micro_batch_size": "micro_batch",
    "stages": "stages",
    "seq": "seq",
    "seq_length": "seq",
    "sequence_length": "seq",
}


def has_plans(path: Path) -> bool:
    """Whether the first line of a file names a column of plans.

    Raises:
        InputError: the file cannot be read.
    """
    return PLAN in map(_plain, header_of(path))


def read_plan_rows(path: Path) -> tuple[PlanRow | RefusedRow, ...]:
    """The rows of a file that ``has_plans``; one that is none is kept with its reason.

    Raises:
        InputError: a column is missing, or no row can be read; names the line.
    """

    def header(given: Sequence[str]) -> list[str]:
        names = [_plain(name) for name in given]
        if DATABASE not in names:
            names = [DATABASE if name == "device" else name for name in names]
        check_columns(path, names, ((DATABASE,), TIMES), f"{PLAN}, {DATABASE}, {TIMES[0]}")
        return names

    return read_table(path, header, lambda line, cells, _: _row(path, line, cells))


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def _row(path: Path, line: int, cells: Mapping[str, str]) -> PlanRow:
    where = f"{path}, line {line}"

    def number(name: str, most: float = LARGEST) -> float | None:
        """A number above 0; None for an empty cell."""
        if name not in cells:
            return None
        value = number_in(cells[name])
        if value is None or not 0 < value <= most:
            raise InputError(
                f"{where}, column {name} is {cells[name]!r:.60}; give a number above 0, at most "
                f"{most:g}, or leave it empty"
            )
        return value

    times = (number(name, MOST_MEASURED["iteration_s"]) for name in TIMES)
    seconds = next((value for value in times if value is not None), None)
    if seconds is None:
        raise InputError(f"{where} has no measured time; give seconds above 0 in column {TIMES[0]}")
    figures = {name: figure for name in cells if (figure := memory_column(name)) is not None}
    memory = [((number(name) or 0.0) * unit, kind) for name, (kind, unit) in figures.items()]
    stated = {meant: int(value) for name, meant in STATED.items() if (value := number(name))}
    return PlanRow(
        file=path,
        line=line,
        plan=_found(path, cells.get(PLAN, ""), PLAN_FOLDERS, f"{where}, column {PLAN}", "file"),
        database=_found(
            path, cells.get(DATABASE, ""), DATABASE_FOLDERS, f"{where}, column {DATABASE}", "folder"
        ),
        source=cells.get("source", path.name),
        model=cells.get("model", ""),
        size=cells.get("size", ""),
        dtype=cells.get("dtype", cells.get("precision", "")).lower(),
        stated=stated,
        devices_per_node=int(number("gpus_per_node") or DEVICES_PER_NODE),
        measured_s=seconds,
        memory_mib=memory[0][0] if memory else None,
        memory_kind=memory[0][1] if memory else None,
    )


def _found(table: Path, name: str, folders: Sequence[str], where: str, kind: str) -> Path:
    """The file or folder (``kind``) of a name, beside the table or in a folder of plans or
    operators there."""
    is_kind = Path.is_dir if kind == "folder" else Path.is_file
    for folder in (*(table.parent / each for each in folders), Path()):
        try:
            if name and is_kind(folder / name):
                return folder / name
        except (OSError, ValueError):  # a name that the file system cannot hold
            break
    raise InputError(
        f"{where} is {name!r:.200}, which is no {kind} beside the table; give the path of one, "
        "relative to the table"
    )
