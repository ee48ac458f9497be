"""A profiled machine as a device and as a cluster: what everything above the operators asks of
them.

The constants of the device are what the best measured operators reach, so that peaks are rates that
were seen; operators that nothing measured is like are priced by these constants. The cluster is one
tier, its latency and bandwidth fitted to the measured exchanges (least squares of the logarithm of
predicted over measured seconds).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from Estimator.chips.technology import Quantity
from Estimator.devices.device import (
    Device,
    Evidence,
    Launch,
    MatrixEngine,
    Memory,
    ProfileSource,
    Scans,
    Tile,
)
from Estimator.network.cluster import Cluster, Tier
from Estimator.network.collectives import collective_s
from Estimator.profiled.database import ProfileDatabase, read_database
from Estimator.profiled.fits import Rates
from Estimator.profiled.machine import MACHINE
from Estimator.profiled.rows import CollectiveRow, Exchange, OperatorRow, dtype_of
from GraphExtractor.graph import CollectiveKind, OperatorKind, Phase
from phaze_common.array_types import FloatArray
from phaze_common.errors import InputError

SOFTWARE = "pytorch_eager"
STREAMS = frozenset({OperatorKind.ELEMENTWISE, OperatorKind.MOVE})
MATRIX = frozenset({OperatorKind.GEMM, OperatorKind.CONV})
# of the output of a product on one processor: what vectors of two registers hold, and never
# mattered beside measurements
TILE = 16
WITHOUT_ATTENTION = 0.5  # of the rate of products, where no attention was measured
SHARED_BYTES_PER_S = 1e9  # between processes whose exchanges nobody measured
SHARED_LATENCY_S = 1e-4


def profiled_device(text: str | Path) -> Device:
    """The machine of a database as a device.

    Raises:
        InputError: as ``read_database``, or no product was measured; says what to do.
    """
    database = read_database(text)
    machine, folder = database.machine, str(database.folder / MACHINE)
    peaks = _peaks(database)
    if not peaks:
        raise InputError(
            f"{database.folder} has no measured matrix product; go on with 'phaze profile "
            f"--output {database.folder}'"
        )
    peak = max(peaks.values())
    source = f"the best of {len(database.operators)} operators measured on {machine.description}"

    def best(value: float, unit: str) -> Quantity:
        return Quantity(value, unit, source)

    forward, backward = (_attention_share(database.operators, phase, peaks) for phase in Phase)
    whole = Quantity(1.0, "fraction", "of what was measured")
    return Device(
        name=machine.name,
        title=f"{machine.description} (profiled)",
        aliases=(),
        evidence=Evidence.MEASURED,
        cluster=folder,
        software=SOFTWARE,
        matrix=MatrixEngine(
            peak={dtype: best(rate, "FLOP/s") for dtype, rate in peaks.items()},
            processors=Quantity(1, "count", "operators were measured whole"),
            efficiency=whole,
            sustained=whole,
            fill=Quantity(0, "steps of k", "none"),
            tiles=(Tile(TILE, TILE, 1.0),),
            batched_bandwidth=whole,
            attention_forward=best(forward, "fraction"),
            attention_backward=best(backward, "fraction"),
        ),
        memory=Memory(
            capacity=Quantity(machine.memory_bytes, "bytes", "as the machine says"),
            bandwidth=best(long_stream(database.operators).bytes_per_s, "bytes/s"),
            efficiency=whole,
            cache=Quantity(1, "bytes", "not asked for"),
        ),
        launch=Launch(gap=Quantity(0, "s", "part of what was measured"), alone={}, floor={}),
        scans=Scans(
            best(peak, "FLOP/s"), Quantity(1e-6, "s", "assumption: a step of a loop in Python")
        ),
        profile=ProfileSource(str(database.folder), database.digest),
    )


def rates_of(database: ProfileDatabase, number_format: str) -> Rates:
    """What the work of operators is measured by."""
    peaks = _peaks(database)
    stream = long_stream(database.operators)
    return Rates(
        peaks.get(number_format) or max(peaks.values()), stream.bytes_per_s, stream.long_bytes
    )


def measured_formats(database: ProfileDatabase) -> tuple[str, ...]:
    """Number formats in which products were measured."""
    return tuple(_peaks(database))


def _peaks(database: ProfileDatabase) -> dict[str, float]:
    peaks: dict[str, float] = {}
    for row in database.operators:
        if row.operator.kind in MATRIX:
            dtype = dtype_of(row.operator)
            peaks[dtype] = max(peaks.get(dtype, 0.0), row.operator.flops / row.timing.seconds)
    return dict(sorted(peaks.items()))


@dataclass(frozen=True)
class LongStream:
    """Bandwidth of element-wise work over long arrays, which are of so many bytes and more."""

    bytes_per_s: float
    long_bytes: float


def long_stream(rows: Iterable[OperatorRow]) -> LongStream:
    """That of the fastest among the rows that move at least half of the most; where there is none,
    of rows of other kinds."""
    found = tuple(rows)
    streams = [row for row in found if row.operator.kind in STREAMS] or list(found)
    moved = [
        (row.operator.bytes_read + row.operator.bytes_written, row.timing.seconds)
        for row in streams
    ]
    most = max(size for size, _ in moved)
    return LongStream(
        max(size / seconds for size, seconds in moved if 2 * size >= most), float(most)
    )


def _attention_share(rows: Iterable[OperatorRow], phase: Phase, peaks: dict[str, float]) -> float:
    """Part of the rate of products that the best attention reaches."""
    shares = [
        row.operator.flops
        / row.timing.seconds
        / peaks.get(dtype_of(row.operator), max(peaks.values()))
        for row in rows
        if row.operator.kind is OperatorKind.ATTENTION and row.operator.phase is phase
    ]
    return min(max(shares, default=WITHOUT_ATTENTION), 1.0)


def profiled_cluster(text: str | Path) -> Cluster:
    """As many of the machine of a database as it says, joined as its exchanges measured.

    Raises:
        InputError: as ``read_database``.
    """
    database = read_database(text)
    machine = database.machine
    bandwidth, latency_s = SHARED_BYTES_PER_S, SHARED_LATENCY_S
    if database.collectives:
        bandwidth, latency_s = _fitted(database.collectives)
    tier = Tier("processes", max(machine.devices, 2), bandwidth, latency_s)
    return Cluster(machine.name, machine.devices, (tier,))


def _fitted(rows: tuple[CollectiveRow, ...]) -> tuple[float, float]:
    """Bandwidth and latency of the textbook's algorithms (``Estimator.network.textbook``) over one
    tier."""
    from scipy.optimize import least_squares

    largest = max(row.group_size for row in rows)
    seconds = np.array([row.timing.seconds for row in rows])

    def predicted(logarithms: FloatArray) -> FloatArray:
        bandwidth, latency_s = np.exp(logarithms)
        cluster = Cluster(
            "fit", largest, (Tier("processes", largest, float(bandwidth), float(latency_s)),)
        )
        return np.array(
            [
                row.payload_bytes / bandwidth + latency_s
                if row.kind is Exchange.SEND
                else collective_s(
                    CollectiveKind(row.kind.value), row.payload_bytes, row.group_size, 1, cluster
                )
                for row in rows
            ]
        )

    start = np.log(
        [max(row.payload_bytes / row.timing.seconds for row in rows), float(seconds.min())]
    )
    found = least_squares(
        lambda x: np.log(predicted(x) / seconds), start, loss="soft_l1", f_scale=0.3
    )
    bandwidth, latency_s = np.exp(found.x)
    return float(bandwidth), float(latency_s)
