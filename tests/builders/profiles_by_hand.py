"""Hand-made databases of measured operators, so that tests need no measurement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from Estimator.profiled.database import (
    ProfileDatabase,
    append_collective,
    append_operator,
    append_passes,
    read_database,
)
from Estimator.profiled.machine import Clock, DeviceKind, MachineRecord, write_machine
from Estimator.profiled.rows import CollectiveRow, Exchange, OperatorRow, PassRow, Timing, anonymous
from GraphExtractor.graph import (
    Gemm,
    Operand,
    OperandRole,
    Operator,
    OperatorKind,
    Phase,
    VectorWork,
    Yields,
)

PEAK, BANDWIDTH, START_S = 1e11, 1e10, 2e-6  # of the machine that these databases tell of
MACHINE = MachineRecord(
    name="by_hand",
    description="a machine of 0.1 TFLOP/s",
    device_kind=DeviceKind.CPU,
    memory_bytes=8e9,
    devices=8,
    threads=1,
    clock=Clock.THREAD,
    date="2026-01-01",
    versions={"torch": "0"},
)


def product(
    m: int, k: int, n: int, phase: Phase = Phase.FORWARD, dtype: str = "float32"
) -> Operator:
    """A matrix product without a tail."""
    left, right, out = (
        Operand(shape, dtype, OperandRole.ACTIVATION) for shape in ((m, k), (k, n), (m, n))
    )
    gemms = (Gemm(1, m, k, n),)
    yields = Yields.OUTPUT if phase is Phase.FORWARD else Yields.INPUT_GRADIENT
    return Operator(
        0, "", OperatorKind.GEMM, phase, yields, gemms=gemms, reads=(left, right), writes=(out,)
    )


def stream(function: str, elements: int, dtype: str = "float32") -> Operator:
    """Element-wise work over an array."""
    operand, work = (
        Operand((elements,), dtype, OperandRole.ACTIVATION),
        (VectorWork(function, elements),),
    )
    kind = OperatorKind.ELEMENTWISE
    return Operator(
        0, "", kind, Phase.FORWARD, Yields.OUTPUT, vector=work, reads=(operand,), writes=(operand,)
    )


def seconds_of(operator: Operator) -> float:
    """What the machine takes."""
    return (
        START_S + operator.flops / PEAK + (operator.bytes_read + operator.bytes_written) / BANDWIDTH
    )


def row(operator: Operator, seconds: float | None = None) -> OperatorRow:
    """A measurement of it, of the machine's own seconds unless told."""
    timing = Timing(seconds_of(operator) if seconds is None else seconds, 1e-8, 10)
    return OperatorRow(anonymous(operator), timing, 0.0, 1, "by_hand", 1, 16)


OPERATORS = (
    *(product(size, 64, 128) for size in (16, 64, 256)),
    *(product(size, 64, 128, Phase.BACKWARD) for size in (16, 256)),
    *(stream("add", size) for size in (2**10, 2**14, 2**22)),
    *(stream("gelu", size) for size in (2**10, 2**16)),
)
COLLECTIVES = tuple(
    CollectiveRow(
        Exchange.ALL_REDUCE,
        size,
        group,
        1,
        Timing(1e-4 + 2 * (group - 1) / group * size / 1e9, 1e-6, 9),
    )
    for size in (2**12, 2**20, 2**24)
    for group in (2, 4)
)
PASSES = tuple(
    PassRow(
        phase, 10, alone_s, Timing(1.1 * alone_s + 10 * 5e-6, 1e-6, 9), "float32", "by_hand", 1, 16
    )
    for phase in Phase
    for alone_s in (1e-4, 1e-3)
)


def written(
    folder: Path,
    rows: Sequence[OperatorRow] = tuple(map(row, OPERATORS)),
    collectives: Sequence[CollectiveRow] = COLLECTIVES,
    passes: Sequence[PassRow] = (),
    changed: Callable[[MachineRecord], MachineRecord] = lambda machine: machine,
) -> ProfileDatabase:
    """A database of these rows."""
    folder.mkdir(parents=True, exist_ok=True)
    write_machine(folder, replace(changed(MACHINE)))
    for each in rows:
        append_operator(folder, each)
    for exchange in collectives:
        append_collective(folder, exchange)
    for one in passes:
        append_passes(folder, [one])
    return read_database(folder)
