"""Off-chip traffic of fused attention (FlashAttention, Dao et al. 2022): scores stay on the chip,
tile by tile.

Forward keeps a tile of queries with its accumulators and streams keys and values past it; backward
keeps a tile of keys and values with their gradients and streams queries, output gradients and the
accumulated query gradients. What is streamed is read again for every tile, unless it stays in the
buffer as a whole. From a buffer so small that this would move more than the scores themselves, they
are kept in memory after all, as if attention were not fused.

What a mask leaves out is skipped tile by tile, as kernels do: of what streams past a tile, only the
rows that meet it in a score that is left. The tiles are as even as they can be (``ceil(i * rows /
passes)``), so that a larger buffer never moves more.

Of attention in pieces (``Estimator.ring_attention``) each has its part of the keys: nothing stays
in the buffer from one to the next, and a tile of keys ends where a piece does.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from Estimator.chips.score_tiles import met_columns, met_rows
from Estimator.chips.systolic import divide_up
from Estimator.chips.tiling import ACCUMULATOR_BYTES
from GraphExtractor.graph import Gemm
from GraphExtractor.score_mask import ScoreMask
from phaze_common.array_types import FloatArray

STATISTICS_BYTES = 8  # running maximum and sum of a row of scores, fp32
FORWARD_PRODUCTS = 2  # QK^T and AV; backward has five


def attention_traffic(
    gemms: Sequence[Gemm],
    compulsory_bytes: float,
    capacity_bytes: FloatArray,
    element_bytes: int,
    mask: ScoreMask | None = None,
    pieces: int = 1,
) -> tuple[FloatArray, FloatArray]:
    """Bytes of the queries, loaded first, and of everything else, for each buffer capacity (both
    shaped like it).

    ``gemms[0]`` is QK^T: (batch x heads, queries, head size, keys). ``compulsory_bytes`` is what
    moves in any case; both are of one of so many ``pieces``. ``mask`` says which scores are left of
    all of them.
    """
    scores = gemms[0]
    head = scores.k
    backward = len(gemms) > FORWARD_PRODUCTS
    if not backward:
        kept_rows, streamed_rows = scores.m, scores.n
        value_head = gemms[-1].n
        kept_row: float = (
            head * element_bytes + (value_head + 1) * ACCUMULATOR_BYTES + STATISTICS_BYTES
        )
        streamed_row: float = (head + value_head) * element_bytes
        streamed_again = streamed_row
    else:
        kept_rows, streamed_rows = scores.n, scores.m
        value_head = gemms[1].n
        kept_row = (head + value_head) * (element_bytes + ACCUMULATOR_BYTES) + ACCUMULATOR_BYTES
        streamed_row = (
            (head + value_head) * element_bytes + head * ACCUMULATOR_BYTES + STATISTICS_BYTES
        )
        # the query gradients are read and written
        streamed_again = streamed_row + head * ACCUMULATOR_BYTES
    tile = np.maximum(np.floor((capacity_bytes - 2 * streamed_row) / kept_row), 1)
    passes = np.where(
        streamed_rows * streamed_row + kept_row <= capacity_bytes, 1.0, divide_up(kept_rows, tile)
    )
    rows_again = _streamed_again(passes, streamed_rows, mask, pieces, keys_kept=backward)
    again = rows_again * scores.batch * streamed_again
    scores_bytes = pieces * scores.batch * scores.m * scores.n * element_bytes
    # every product moves them, and the softmax moves them back
    again = np.minimum(again, 2 * len(gemms) * scores_bytes)
    queries = min(compulsory_bytes, scores.batch * scores.m * head * element_bytes)
    return np.full_like(passes, pieces * queries), pieces * (compulsory_bytes - queries) + again


def _streamed_again(
    passes: FloatArray, streamed_rows: int, mask: ScoreMask | None, pieces: int, *, keys_kept: bool
) -> FloatArray:
    """Rows streamed beyond once each by every piece, of all pieces, for each number of ``passes``
    of one."""
    if mask is None:
        return (passes - 1) * (pieces * streamed_rows)
    distinct, index = np.unique(passes * pieces if keys_kept else passes, return_inverse=True)
    streamed = np.array(
        [streamed_rows_past(mask, int(each), keys_kept=keys_kept) for each in distinct]
    )
    again: FloatArray = np.maximum(streamed - pieces * streamed_rows, 0.0)[
        index.reshape(passes.shape)
    ]
    return again


@lru_cache(maxsize=4096)  # of thousands of chips many have a buffer of one size
def streamed_rows_past(mask: ScoreMask, passes: int, *, keys_kept: bool) -> int:
    """Keys that stream past all of ``passes`` even tiles of a device's queries, or queries past
    those of the keys.

    Where a device has two chunks more tiles can stream less, because their ends happen to lie
    better: those are taken then. As every row of the streamed side meets at least as many tiles as
    its scores fill, only few numbers of tiles can be better.
    """
    side = mask.columns if keys_kept else mask.rows
    least = _past_tiles(mask, side, passes, keys_kept=keys_kept)
    for more in range(passes + 1, side + 1 if mask.devices > 1 else 0):
        if mask.left >= least * -(-side // more):
            break
        least = min(least, _past_tiles(mask, side, more, keys_kept=keys_kept))
    return least


def _past_tiles(mask: ScoreMask, side: int, tiles: int, *, keys_kept: bool) -> int:
    bounds = -(-np.arange(tiles + 1, dtype=np.int64) * side // tiles)
    return int((met_rows(mask, bounds) if keys_kept else met_columns(mask, bounds)).sum())
