"""A database as the tables that constants of devices and clusters are fitted to."""

from __future__ import annotations

from collections.abc import Iterator

from Estimator.devices.calibration_tables import MeasuredOperator, OperatorTable, measured_function
from Estimator.devices.functions import TENSORS_MOVED
from Estimator.devices.isolated import IsolatedOperator
from Estimator.network.calibration_tables import CollectiveSample
from Estimator.profiled.database import ProfileDatabase
from Estimator.profiled.rows import OperatorRow, dtype_of
from GraphExtractor.graph import DTYPE_BYTES, CollectiveKind, OperatorKind, Phase
from phaze_common.errors import InputError

FITTED = frozenset(
    {CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER}
)


def operator_table(database: ProfileDatabase) -> OperatorTable:
    """Products without tails, and kernels of one function whose traffic is known.

    Raises:
        InputError: the database has none.
    """
    rows = tuple(
        each for row in database.operators for each in _measured(row, f"{database.folder}")
    )
    if not rows:
        raise InputError(
            f"{database.folder} has no product and no function that a device is fitted to; "
            "profile a model into it"
        )
    return OperatorTable(database.machine.name, rows)


def _measured(row: OperatorRow, where: str) -> Iterator[MeasuredOperator]:
    operator, seconds, dtype = row.operator, row.timing.seconds, dtype_of(row.operator)
    if operator.kind is OperatorKind.GEMM and not operator.vector:
        batched = "batched_gemm" if operator.gemms[0].batch > 1 else "gemm"
        launch = batched if operator.phase is Phase.FORWARD else f"{batched}_backward"
        isolated = IsolatedOperator(launch, dtype, DTYPE_BYTES[dtype], products=operator.gemms)
        yield MeasuredOperator(isolated, seconds, where)
    elif (
        not operator.gemms
        and len(operator.vector) == 1
        and operator.reads
        and operator.reads[0].shape
    ):
        (work,), length = operator.vector, operator.reads[0].shape[-1]
        if work.function in TENSORS_MOVED and work.elements % length == 0:
            yield measured_function(
                work.function, work.elements // length, length, dtype, seconds, where
            )


def collective_samples(database: ProfileDatabase) -> tuple[CollectiveSample, ...]:
    """The collectives whose constants are fitted."""
    return tuple(
        CollectiveSample(
            CollectiveKind(row.kind.value),
            row.payload_bytes,
            row.nodes,
            row.group_size // row.nodes,
            row.timing.seconds,
        )
        for row in database.collectives
        if row.kind.value in FITTED
    )
