"""What a systolic array skips of the products of masked attention, fold by fold.

Each product of fused attention works on every score once: QK^T and dP make them, AV, dQ, dV and dK sum over them. An array holds
a tile of two of a product's dimensions and streams the third. Where both dimensions of the scores are held, folds without a score
that is left are skipped; where one streams, a fold streams only the part of it that meets the tile it holds.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from Estimator.chips.accelerator import Dataflow, IntArray
from Estimator.chips.technology import FloatArray
from GraphExtractor.score_mask import ScoreMask


@dataclass(frozen=True)
class ScoreAxes:
    """The dimensions m, k and n of a product that are rows and columns of the scores, as positions 0, 1 and 2."""

    rows: int
    columns: int


QK, AV, SUM_OVER_ROWS = ScoreAxes(0, 2), ScoreAxes(0, 1), ScoreAxes(1, 0)
FORWARD: tuple[ScoreAxes, ...] = (QK, AV)
BACKWARD: tuple[ScoreAxes, ...] = (QK, SUM_OVER_ROWS, QK, AV, SUM_OVER_ROWS)  # the scores again, dV, dP, dQ and dK


@dataclass(frozen=True, eq=False)
class Executed:
    """Parts of a product that distinct arrays execute, shape (arrays,): of its cycles, and of its multiplications and bytes."""

    cycles: FloatArray
    work: FloatArray


def executed(
    mask: ScoreMask | None, axes: ScoreAxes, dataflow: Dataflow, rows: IntArray, columns: IntArray, move: FloatArray
) -> Executed:
    """What arrays of ``rows`` x ``columns``, which need ``move`` cycles for the next tile, execute of one product."""
    if mask is None:
        return Executed(np.ones(len(rows)), np.ones(len(rows)))
    pairs = [
        _executed(mask, axes, dataflow, int(row), int(column), float(cycles))
        for row, column, cycles in zip(rows, columns, np.broadcast_to(move, rows.shape), strict=True)
    ]
    cycles, work = np.array(pairs).T
    return Executed(cycles, work)


@lru_cache(maxsize=16384)  # arrays of one size are asked about for every operator alike
def _executed(mask: ScoreMask, axes: ScoreAxes, dataflow: Dataflow, rows: int, columns: int, move: float) -> tuple[float, float]:
    tile = {
        Dataflow.OUTPUT_STATIONARY: (rows, 0, columns),
        Dataflow.WEIGHT_STATIONARY: (0, rows, columns),
        Dataflow.INPUT_STATIONARY: (columns, rows, 0),
    }[dataflow]
    row_tile, column_tile = tile[axes.rows], tile[axes.columns]
    if row_tile and column_tile:
        share = met_tiles(mask, row_tile, column_tile) / (-(-mask.columns // row_tile) * -(-mask.columns // column_tile))
        return share, share
    before, behind = (mask.before, mask.behind) if row_tile else (mask.behind, mask.before)
    part = 1.0 if row_tile else mask.rows / mask.columns  # of the rows that stream past columns a device has its part
    spans = _spans(mask.columns, row_tile or column_tile, before, behind)
    met = part * (spans[1] - spans[0])
    whole = part * mask.columns
    return float(np.maximum(met, move).mean() / max(whole, move)), float(met.mean() / whole)


def met_tiles(mask: ScoreMask, row_tile: int, column_tile: int) -> int:
    """Tiles of the square of a mask with a score that is left."""
    first, end = _spans(mask.columns, row_tile, mask.before, mask.behind)
    return int(((end - 1) // column_tile - first // column_tile + 1).sum())


def _spans(side: int, tile: int, before: int, behind: int) -> tuple[IntArray, IntArray]:
    """First position of the other axis that each tile meets, and the one behind its last."""
    starts = np.arange(0, side, tile, dtype=np.int64)
    return np.maximum(starts - before, 0), np.minimum(np.minimum(starts + tile, side) + behind, side)
