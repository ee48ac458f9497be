"""What a systolic array skips of the products of masked attention, fold by fold.

Each product of fused attention works on every score once: QK^T and dP make them, AV, dQ, dV and dK
sum over them. An array holds a tile of two of a product's dimensions and streams the third. Where
both dimensions of the scores are held, folds without a score that is left are skipped; where one
streams, a fold streams only the part of it that meets the tile it holds. Of devices that share a
sequence that with most scores is priced: a tile of its rows may hold the end of one chunk and the
beginning of the other.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from Estimator.chips.accelerator import Dataflow
from GraphExtractor.score_mask import ScoreMask
from phaze_common.array_types import FloatArray, IntArray


@dataclass(frozen=True)
class ScoreAxes:
    """The dimensions m, k and n of a product that are rows and columns of the scores, as positions
    0, 1 and 2."""

    rows: int
    columns: int


QK, AV, SUM_OVER_ROWS = ScoreAxes(0, 2), ScoreAxes(0, 1), ScoreAxes(1, 0)
FORWARD: tuple[ScoreAxes, ...] = (QK, AV)
# the scores again, dV, dP, dQ and dK
BACKWARD: tuple[ScoreAxes, ...] = (QK, SUM_OVER_ROWS, QK, AV, SUM_OVER_ROWS)


@dataclass(frozen=True, eq=False)
class Executed:
    """Parts of a product that distinct arrays execute, shape (arrays,): of its cycles, and of its
    multiplications and bytes."""

    cycles: FloatArray
    work: FloatArray


def executed(
    mask: ScoreMask | None,
    axes: ScoreAxes,
    dataflow: Dataflow,
    rows: IntArray,
    columns: IntArray,
    move: FloatArray,
) -> Executed:
    """What arrays of ``rows`` x ``columns``, which need ``move`` cycles for the next tile, execute
    of one product."""
    if mask is None:
        return Executed(np.ones(len(rows)), np.ones(len(rows)))
    pairs = [
        _executed(mask, axes, dataflow, int(row), int(column), float(cycles))
        for row, column, cycles in zip(
            rows, columns, np.broadcast_to(move, rows.shape), strict=True
        )
    ]
    cycles, work = np.array(pairs).T
    return Executed(cycles, work)


@lru_cache(maxsize=16384)  # arrays of one size are asked about for every operator alike
def _executed(
    mask: ScoreMask, axes: ScoreAxes, dataflow: Dataflow, rows: int, columns: int, move: float
) -> tuple[float, float]:
    tile = {
        Dataflow.OUTPUT_STATIONARY: (rows, 0, columns),
        Dataflow.WEIGHT_STATIONARY: (0, rows, columns),
        Dataflow.INPUT_STATIONARY: (columns, rows, 0),
    }[dataflow]
    row_tile, column_tile = tile[axes.rows], tile[axes.columns]
    if row_tile and column_tile:
        share = met_tiles(mask, row_tile, column_tile) / (
            -(-mask.rows // row_tile) * -(-mask.columns // column_tile)
        )
        return share, share
    if row_tile:
        met, whole = met_columns(mask, _bounds(mask.rows, row_tile)), float(mask.columns)
    else:
        met, whole = met_rows(mask, _bounds(mask.columns, column_tile)), float(mask.rows)
    return float(np.maximum(met, move).mean() / max(whole, move)), float(met.mean() / whole)


def met_tiles(mask: ScoreMask, row_tile: int, column_tile: int) -> int:
    """Tiles of the device with most scores that have a score which is left."""
    first, end = spans_of_rows(mask, _bounds(mask.rows, row_tile))
    first, end = (
        first // column_tile,
        np.where(end > first, (end - 1) // column_tile + 1, first // column_tile),
    )
    return int(_united(first, end).sum())


def met_columns(mask: ScoreMask, bounds: IntArray) -> IntArray:
    """Columns with a score that is left in each tile of the device's rows, which reach from one of
    ``bounds`` to the next."""
    return _united(*spans_of_rows(mask, bounds))


def met_rows(mask: ScoreMask, bounds: IntArray) -> IntArray:
    """Rows of the device with a score that is left in each tile of the columns, from one of
    ``bounds`` to the next."""
    first = np.maximum(bounds[:-1] - mask.behind, 0)
    end = np.minimum(bounds[1:] + mask.before, mask.columns)
    met = np.zeros(len(first), dtype=np.int64)
    for start, last in mask.chunks:
        met += np.maximum(np.minimum(end, last) - np.maximum(first, start), 0)
    return met


def spans_of_rows(mask: ScoreMask, bounds: IntArray) -> tuple[IntArray, IntArray]:
    """First column that each tile of the device's rows meets, and the one behind its last: shape
    (chunks, tiles).

    Where a tile has no row of a chunk they are the same.
    """
    spans, passed = [], 0
    for start, last in mask.chunks:
        rows = np.clip(bounds - passed, 0, last - start) + start
        first = np.maximum(rows[:-1] - mask.before, 0)
        end = np.minimum(rows[1:] + mask.behind, mask.columns)
        spans.append((first, np.where(rows[1:] > rows[:-1], end, first)))
        passed += last - start
    firsts, ends = zip(*spans, strict=True)
    return np.stack(firsts), np.stack(ends)


def _united(first: IntArray, end: IntArray) -> IntArray:
    """How many positions the spans of one or two chunks hold together, shape (tiles,)."""
    sizes: IntArray = (end - first).sum(axis=0)
    if len(first) == 1:
        return sizes
    shared: IntArray = np.maximum(np.minimum(end[0], end[1]) - np.maximum(first[0], first[1]), 0)
    return sizes - shared


def _bounds(side: int, tile: int) -> IntArray:
    """Where tiles begin, and where the last one ends."""
    return np.append(np.arange(0, side, tile, dtype=np.int64), side)
