"""Cycles of a matrix product on one systolic array, in closed form.

Rows x columns processing elements hold one operand (a *fold* of it) while another streams through.
It is double-buffered: the next fold loads while the current one streams, so that filling and
draining is paid once. SCALE-Sim 3 has no such buffer, and its folds load, stream and drain each by
itself, so it takes as long for a single fold and longer for several; ZigZag has the buffer and no
filling or draining. ``tests/Estimator/test_other_cost_models.py`` has what comes out.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from Estimator.chips.accelerator import Dataflow
from phaze_common.array_types import FloatArray


@dataclass(frozen=True, eq=False)
class SystolicTime:
    """Cycles of ``folds`` folds: ``steady`` while streaming, ``fill`` once for loading, skew and
    drain; broadcast shapes."""

    steady: FloatArray
    fill: FloatArray


def divide_up(amount: ArrayLike, parts: ArrayLike) -> FloatArray:
    """Ceiling of ``amount / parts``."""
    return np.ceil(np.asarray(amount, dtype=np.float64) / np.asarray(parts, dtype=np.float64))


def _fold(
    dataflow: Dataflow,
    m: ArrayLike,
    k: ArrayLike,
    n: ArrayLike,
    rows: ArrayLike,
    columns: ArrayLike,
) -> tuple[FloatArray, FloatArray]:
    """Number of folds and cycles each streams."""
    if dataflow is Dataflow.WEIGHT_STATIONARY:
        return divide_up(k, rows) * divide_up(n, columns), np.asarray(m, dtype=np.float64)
    if dataflow is Dataflow.INPUT_STATIONARY:
        return divide_up(k, rows) * divide_up(m, columns), np.asarray(n, dtype=np.float64)
    return divide_up(m, rows) * divide_up(n, columns), np.asarray(k, dtype=np.float64)


def pipelined_time(
    dataflow: Dataflow,
    batch: ArrayLike,
    m: ArrayLike,
    k: ArrayLike,
    n: ArrayLike,
    rows: ArrayLike,
    columns: ArrayLike,
    rows_per_cycle: float = 1.0,
) -> SystolicTime:
    """Double-buffered: a fold takes as long as it streams, or as the next stationary tile (or the
    last result) needs to move."""
    folds, stream = _fold(dataflow, m, k, n, rows, columns)
    move = divide_up(rows, rows_per_cycle)
    steady = (np.asarray(batch) * folds - 1) * np.maximum(stream, move) + stream
    skew = np.asarray(rows, dtype=np.float64) + np.asarray(columns) - 2
    return SystolicTime(steady, skew if dataflow is Dataflow.OUTPUT_STATIONARY else skew + move)
