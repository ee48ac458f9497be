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

from phaze.validation.csv_lines import CsvLine, csv_lines
from phaze.validation.measured_runs import MOST_MEASURED, refuse_where_none_is_read
from phaze.validation.published_numbers import number_in
from phaze.validation.published_row import RefusedRow
from phaze_common.errors import InputError
from phaze_common.files import read_text

PLAN, DATABASE = "plan", "database"
TIMES = ("measured_s", "measured_iter_time_s", "measured_iteration_s", "iteration_s")
WANTED = "a CSV file of measured runs of plans"
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
    first = next(csv_lines(read_text(path, "a CSV file of measured runs")), CsvLine(1, ()))
    return PLAN in [_plain(name) for name in first.cells]


def read_plan_rows(path: Path) -> tuple[PlanRow | RefusedRow, ...]:
    """The rows of a file that ``has_plans``; one that is none is kept with its reason.

    Raises:
        InputError: a column is missing, or no row can be read; names the line.
    """
    lines = csv_lines(read_text(path, WANTED))
    names = [_plain(name) for name in next(lines, CsvLine(1, ())).cells]
    if DATABASE not in names:
        names = [DATABASE if name == "device" else name for name in names]
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise InputError(f"{path}, line 1 names column {twice[0]} twice; name it once")
    if DATABASE not in names or not set(TIMES) & set(names):
        lacking = DATABASE if DATABASE not in names else " or ".join(TIMES)
        raise InputError(f"{path}, line 1 names column {PLAN} but lacks column {lacking}; add it")
    rows = [_read(path, line, names) for line in lines]
    if not rows:
        raise InputError(f"{path} has a header but no runs; add a line per run")
    refuse_where_none_is_read(rows)
    return tuple(rows)


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_")


def _read(path: Path, line: CsvLine, names: Sequence[str]) -> PlanRow | RefusedRow:
    wrong, cells = (
        line.wrong,
        {name: cell.strip() for name, cell in zip(names, line.cells, strict=False)},
    )
    if not wrong and len(line.cells) > len(names):
        wrong = (
            f"has {len(line.cells)} cells for {len(names)} columns; put text with commas in quotes"
        )
    try:
        if wrong:
            raise InputError(f"{path}, line {line.number} {wrong}")
        return _row(path, line.number, cells)
    except InputError as error:
        return RefusedRow(
            line.number, cells.get("source", "") or path.name, cells.get("model", ""), str(error)
        )


def _row(path: Path, number: int, cells: Mapping[str, str]) -> PlanRow:
    where = f"{path}, line {number}"
    longest = MOST_MEASURED["measured_iter_time_s"]
    seconds = next(
        (value for name in TIMES if (value := _number(cells, name, where, longest)) is not None),
        None,
    )
    if seconds is None:
        raise InputError(f"{where} has no measured time; give seconds above 0 in column {TIMES[0]}")
    memory = [
        (value * column[1], column[0])
        for name in cells
        if (column := memory_column(name)) is not None
        and (value := _number(cells, name, where)) is not None
    ]
    stated: dict[str, int] = {}
    for name, meant in STATED.items():
        value = _number(cells, name, where)
        if value is not None:
            stated[meant] = int(value)
    per_node = _number(cells, "gpus_per_node", where)
    return PlanRow(
        file=path,
        line=number,
        plan=_found(
            path, cells.get(PLAN, ""), PLAN_FOLDERS, f"{where}, column {PLAN}", folder=False
        ),
        database=_found(
            path,
            cells.get(DATABASE, ""),
            DATABASE_FOLDERS,
            f"{where}, column {DATABASE}",
            folder=True,
        ),
        source=cells.get("source", "") or path.name,
        model=cells.get("model", ""),
        size=cells.get("size", ""),
        dtype=(cells.get("dtype", "") or cells.get("precision", "")).lower(),
        stated=stated,
        devices_per_node=DEVICES_PER_NODE if per_node is None else int(per_node),
        measured_s=seconds,
        memory_mib=memory[0][0] if memory else None,
        memory_kind=memory[0][1] if memory else None,
    )


def _number(cells: Mapping[str, str], name: str, where: str, most: float = LARGEST) -> float | None:
    """A number above 0; None for an empty cell."""
    text = cells.get(name, "")
    if not text:
        return None
    value = number_in(text)
    if value is None or not 0 < value <= most:
        raise InputError(
            f"{where}, column {name} is {text!r:.60}; give a number above 0, at most {most:g}, or "
            "leave it empty"
        )
    return value


def _found(table: Path, name: str, folders: Sequence[str], where: str, *, folder: bool) -> Path:
    """The file or folder of a name, beside the table or in a folder of plans or operators there."""
    kind = "folder" if folder else "file"
    for beside in (*(table.parent / each for each in folders), Path()):
        path = beside / name
        try:
            if name and (path.is_dir() if folder else path.is_file()):
                return path
        except (OSError, ValueError):  # a name that the file system cannot hold
            break
    raise InputError(
        f"{where} is {name!r:.200}, which is no {kind} beside the table; give the path of one, "
        "relative to the table"
    )
