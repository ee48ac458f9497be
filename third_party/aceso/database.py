"""Aceso's folders as they are: operators in microseconds and MiB, collectives in milliseconds,
GiB/s between devices."""

import csv
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from phaze_common.errors import InputError
from phaze_common.files import read_text
from phaze_common.suggestions import nearest

from .models import Model

OPERATOR_COLUMNS = (
    *("op_name", "forward-compute", "backward-compute", "input_size", "output_size"),
    *("weights", "activations", "fwd_reserved", "bwd_reserved"),
)
SENTINEL = 1e7  # written for all values of an operator that failed while it was profiled
COLLECTIVE_SENTINEL_MS = 1e6  # written for sizes that did not fit
BANDWIDTH_SIZES = 11  # 1, 2, 4 ... 1024 MiB
US_PER_MS = 1000.0
_OPERATOR_FILE = re.compile(r"_mbs(\d{1,6})_tp(\d{1,4})_algo(\d{1,2})\.csv$")
_COLLECTIVE_FILE = re.compile(
    r"_(all_gather|all_reduce|reduce_scatter|all_to_all)_(\d{1,4})gpus\.csv$"
)

Values = NDArray[np.float64]


class Field(IntEnum):
    """Places of the values of an operator: microseconds, then MiB per device."""

    FORWARD = 0
    BACKWARD = 1
    INPUT = 2
    OUTPUT = 3
    WEIGHTS = 4
    ACTIVATIONS = 5
    FORWARD_RESERVED = 6
    BACKWARD_RESERVED = 7


@dataclass(frozen=True)
class Collective:
    """Measured microseconds of one collective over a number of devices, by whole MiB."""

    name: str
    devices: int
    us_by_mib: Mapping[int, float]

    def us(self, size_mib: float) -> float:
        """Microseconds for a size as Aceso looks it up: its whole MiB, or one MiB less; infinite
        where neither was measured."""
        for key in (int(f"{size_mib:.0f}"), int(f"{size_mib - 1:.0f}")):
            found = self.us_by_mib.get(key)
            if found is not None:
                return found
        return math.inf


@dataclass(frozen=True)
class Database:
    """Profiled operators and network of one machine, for one model.

    Attributes: names: operators in the order of the files, one row each. micro_batch_sizes,
        tensor_parallel, algorithms: what was profiled, ascending. values: (8 fields, operator,
        micro-batch size, tensor parallel width, algorithm), in us and MiB per device; not a number
            where nothing was measured.
        within_node, between_nodes: GiB/s for 1, 2, 4 ... 1024 MiB.
    """

    folder: Path
    model: Model
    names: tuple[str, ...]
    micro_batch_sizes: tuple[int, ...]
    tensor_parallel: tuple[int, ...]
    algorithms: tuple[int, ...]
    values: Values
    collectives: Mapping[tuple[str, int], Collective]
    within_node: tuple[float, ...]
    between_nodes: tuple[float, ...]

    def of(self, samples: int, tp: int, algorithm: int = 0) -> Values:
        """(8 fields, operators) at this micro-batch size, width and algorithm, which were
        profiled."""
        size, width = self.micro_batch_sizes.index(samples), self.tensor_parallel.index(tp)
        return self.values[:, :, size, width, self.algorithms.index(algorithm)]

    def measured(self, samples: int, width: int) -> bool:
        """Whether all operators were measured at this micro-batch size and width (by the first
        algorithm)."""
        if samples not in self.micro_batch_sizes or width not in self.tensor_parallel:
            return False
        return bool(np.isfinite(self.of(samples, width, self.algorithms[0])).all())

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """With which micro-batch size, width and algorithm no operator was measured, though with
        each of these by itself some."""
        missing = np.argwhere(~np.isfinite(self.values).any(axis=(0, 1)))
        return tuple(
            f"micro-batch {self.micro_batch_sizes[size]} at width {self.tensor_parallel[width]}, "
            f"algorithm {self.algorithms[way]}"
            for size, width, way in missing.tolist()
        )

    def transfer_us(self, size_mib: float, *, between_nodes: bool) -> float:
        """Microseconds from one stage to the next, with Aceso's choice of the measured size (half
        the real one)."""
        if size_mib <= 0:
            return 0.0
        bandwidths = self.between_nodes if between_nodes else self.within_node
        at = int(math.log(size_mib, 2))
        at = at - 1 if at >= 1 else at
        return size_mib / (bandwidths[min(at, len(bandwidths) - 1)] * 0.001)


def read_database(folder: Path, model: Model) -> Database:
    """The measurements of a model in a folder. Raises InputError: there is no such folder, it holds
    another model, or a file in it is damaged."""
    if not folder.is_dir():
        raise InputError(
            f"{folder} is not a folder; give the folder of profiled operators (files "
            "*_mbs*_tp*_algo*.csv)"
        )
    prefix = f"{model.family.name}_{model.files_size}"
    files = _matching(folder, prefix, _OPERATOR_FILE)
    if not files:
        names_of = (path.name for path in folder.glob("*_algo*.csv"))
        held = sorted(
            {_OPERATOR_FILE.sub("", each) for each in names_of if _OPERATOR_FILE.search(each)}
        )
        instead = nearest(prefix, held, "it holds " + (", ".join(held) or "none"))
        raise InputError(f"{folder} holds no measurements of {prefix}; {instead}")
    sizes, widths, algorithms = (tuple(sorted({key[at] for key in files})) for at in range(3))
    tables = {key: _operators(path) for key, path in files.items()}
    names = max((tuple(table) for table in tables.values()), key=len)
    for key, table in tables.items():
        if tuple(table) != names:
            raise InputError(
                f"{files[key]} lists other operators than the files beside it; profile {prefix} "
                "again into one folder"
            )
    values = np.full((len(Field), len(names), len(sizes), len(widths), len(algorithms)), np.nan)
    for (size, width, algorithm), table in tables.items():
        at = sizes.index(size), widths.index(width), algorithms.index(algorithm)
        values[:, :, at[0], at[1], at[2]] = np.array(list(table.values())).T
    within = _bandwidths(folder / "p2p_intra_node.csv")
    between = folder / "p2p_inter_node.csv"
    collectives = _collectives(folder, f"prim_{prefix}")
    bandwidths = within, _bandwidths(between) if between.exists() else within
    return Database(
        folder, model, names, sizes, widths, algorithms, values, collectives, *bandwidths
    )


def _matching(folder: Path, prefix: str, pattern: re.Pattern[str]) -> dict[tuple[int, ...], Path]:
    found = {}
    for path in sorted(folder.glob(f"{prefix}_*.csv")):
        match = pattern.fullmatch(path.name, len(prefix))
        if match is not None:
            found[tuple(map(int, match.groups()))] = path
    return found


def _rows(path: Path, wanted: str) -> list[list[str]]:
    return [row for row in csv.reader(read_text(path, wanted).splitlines()) if row]


def _number(text: str, path: Path, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise InputError(
            f"{path} has {text.strip()!r} for {what}; it must be a number of at least 0"
        )
    return value


def _operators(path: Path) -> dict[str, list[float]]:
    """The eight values of every operator of a file; not a number for one that failed."""
    header, *rows = _rows(path, "an operator table") or [[]]
    if tuple(cell.strip() for cell in header) != OPERATOR_COLUMNS:
        raise InputError(
            f"{path} does not begin with the columns {', '.join(OPERATOR_COLUMNS)}; give a folder "
            "that Aceso profiled"
        )
    table: dict[str, list[float]] = {}
    for row in rows:
        if len(row) < 1 + len(Field) or row[0] in table:
            raise InputError(
                f"{path} has a damaged or repeated row for {row[0]!r}; profile this file again"
            )
        named = zip(row[1:], OPERATOR_COLUMNS[1:], strict=False)
        numbers = [_number(cell, path, f"{name} of {row[0]}") for cell, name in named]
        failed = any(number >= SENTINEL for number in numbers)
        table[row[0]] = [math.nan] * len(Field) if failed else numbers
    if not table:
        raise InputError(f"{path} holds no operators; profile this file again")
    return table


def _collectives(folder: Path, prefix: str) -> dict[tuple[str, int], Collective]:
    found = {}
    for path in sorted(folder.glob(f"{prefix}_*gpus.csv")):
        match = _COLLECTIVE_FILE.fullmatch(path.name, len(prefix))
        if match is None:
            continue
        name, devices = match[1], int(match[2])
        us = {}
        for row in _rows(path, "a table of a collective")[1:]:
            size, ms = (_number(cell, path, "a size or time") for cell in (*row, "", "")[:2])
            if ms < COLLECTIVE_SENTINEL_MS:
                us[int(size)] = ms * US_PER_MS
        found[name, devices] = Collective(name, devices, us)
    return found


def _bandwidths(path: Path) -> tuple[float, ...]:
    rows = _rows(path, "the bandwidths between two devices")
    if len(rows) < 2 or len(rows[1]) != BANDWIDTH_SIZES:
        raise InputError(
            f"{path} does not hold {BANDWIDTH_SIZES} bandwidths, of 1, 2, 4 ... 1024 MiB; measure "
            "it again"
        )
    numbers = tuple(_number(cell, path, "a bandwidth") for cell in rows[1])
    if min(numbers) <= 0:
        raise InputError(f"{path} has a bandwidth of 0; measure it again")
    return numbers
