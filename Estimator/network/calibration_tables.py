"""Tables of measured collectives, as nccl-tests and the like print them."""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from Estimator.network.cluster import Cluster
from GraphExtractor.graph import CollectiveKind
from phaze_common.errors import InputError
from phaze_common.files import read_text
from phaze_common.ranges import positive_number

SECONDS_PER_MICROSECOND = 1e-6
SIZE_COLUMNS = ("size_bytes", "size")
SECOND_COLUMNS = ("seconds", "time-o")  # out of place, in microseconds, as nccl-tests has it


@dataclass(frozen=True)
class CollectiveSample:
    """A measured collective over ``devices_per_node`` devices of each of ``num_nodes`` nodes; bytes
    of the whole tensor."""

    kind: CollectiveKind
    payload_bytes: float
    num_nodes: int
    devices_per_node: int
    seconds: float

    @property
    def group_size(self) -> int:
        """Devices that take part."""
        return self.num_nodes * self.devices_per_node

    def stride(self, cluster: Cluster) -> int:
        """How far apart they lie on ``cluster``, whose innermost tier is a node.

        Raises: InputError: a node has no such number of devices, or they cannot be spread evenly
            over it.
        """
        node = cluster.tiers[0].group_size
        if node % self.devices_per_node:
            raise InputError(
                f"{self.devices_per_node} devices per node were measured, the nodes of cluster "
                f"{cluster.name} have {node}; "
                "give a cluster whose innermost tier is a node that these divide"
            )
        return 1 if self.num_nodes == 1 else node // self.devices_per_node


def read_collectives(path: Path) -> tuple[CollectiveSample, ...]:
    """Read a CSV with columns op, size_bytes (or size), seconds (or time-o, in us), num_nodes and
    gpus_per_node.

    ``op`` is all_reduce, all_gather or reduce_scatter, with or without the underscore; other
    columns are not read.

    Raises: InputError: the file is missing or not readable, a column is missing, or a value is not
        what its column says.
    """
    samples = []
    for number, row in enumerate(_rows(path), start=2):
        where = f"{path} line {number}"
        sample = CollectiveSample(
            kind=_kind(_text(row, ("op",), where), where),
            payload_bytes=_positive(row, SIZE_COLUMNS, where),
            num_nodes=_count(row, "num_nodes", where),
            devices_per_node=_count(row, "gpus_per_node", where),
            seconds=_seconds(row, where),
        )
        if sample.group_size < 2:
            raise InputError(
                f"{where} is a collective of one device; leave out rows in which nothing is sent"
            )
        samples.append(sample)
    return tuple(samples)


def _rows(path: Path) -> list[dict[str, str | None]]:
    try:
        rows: list[dict[str, str | None]] = list(
            csv.DictReader(io.StringIO(read_text(path, "a CSV file with a header")))
        )
    except csv.Error as error:
        raise InputError(
            f"cannot read {path}: {error}; give the path of a CSV file with a header"
        ) from error
    if not rows:
        raise InputError(
            f"{path} holds no rows; give a CSV file with a header and a row for every measurement"
        )
    return rows


def _text(row: Mapping[str, str | None], columns: tuple[str, ...], where: str) -> str:
    for column in columns:
        value = row.get(column)
        if value:
            return value.strip()
    raise InputError(
        f"{where} has no {' or '.join(columns)}; add the column and fill it in every row"
    )


def _positive(row: Mapping[str, str | None], columns: tuple[str, ...], where: str) -> float:
    return positive_number(_text(row, columns, where), " or ".join(columns), where)


def _count(row: Mapping[str, str | None], column: str, where: str) -> int:
    value = _positive(row, (column,), where)
    if value != int(value):
        raise InputError(f"{where}: {column} is {value}; it must be a whole number")
    return int(value)


def _seconds(row: Mapping[str, str | None], where: str) -> float:
    value = _positive(row, SECOND_COLUMNS, where)
    return value if row.get(SECOND_COLUMNS[0]) else value * SECONDS_PER_MICROSECOND


def _kind(text: str, where: str) -> CollectiveKind:
    kinds = {kind.value.replace("_", ""): kind for kind in CollectiveKind}
    kind = kinds.get(text.lower().replace("_", "").replace("-", ""))
    if kind is None:
        raise InputError(
            f"{where}: op is {text!r}; known are {', '.join(kind.value for kind in CollectiveKind)}"
        )
    return kind
