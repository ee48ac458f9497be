"""Traffic between a memory and the buffer below it, as a function of the buffer's capacity.

An (m, k) by (k, n) product is computed tile by tile, reducing over k innermost so that partial sums
never leave the buffer. Three ways to use the buffer (loop orders), the streamed tiles two deep:

* keep rows of A: A is read once, B once per row panel;   * keep columns of B: B once, A once per
  column panel;
* keep a tile of C: A is read once per column of tiles, B once per row of tiles.

Panel heights are the largest that fit. C tiles have a power-of-two side (or the whole dimension)
and the largest other side that fits. Capacity only enlarges tiles, so a larger buffer never costs
traffic and a larger product never saves any.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from Estimator.chips.systolic import divide_up
from phaze_common.array_types import FloatArray

ACCUMULATOR_BYTES = 4.0  # fp32 partial sums


@dataclass(frozen=True, eq=False)
class Traffic:
    """Bytes per operand and candidate tiling: arrays (candidates, ...); infinite where a candidate
    does not fit."""

    a: FloatArray
    b: FloatArray
    c: FloatArray

    @property
    def total(self) -> FloatArray:
        """Bytes of all operands."""
        return self.a + self.b + self.c


def tile_traffic(
    m: ArrayLike, k: ArrayLike, n: ArrayLike, capacity_bytes: ArrayLike, element_bytes: int
) -> Traffic:
    """Traffic of the candidate tilings of one product; the arguments broadcast against each other
    (not over candidates).

    The smallest tiling (one element of C) always counts as fitting: an array cannot work on less.
    """
    m, k, n, capacity = np.broadcast_arrays(
        *(np.asarray(each, dtype=np.float64) for each in (m, k, n, capacity_bytes))
    )
    a_reads, b_reads = [], []
    panel = np.floor((capacity - 2 * k * element_bytes) / (k * element_bytes + ACCUMULATOR_BYTES))
    fits = np.where(panel >= 1, 1.0, np.inf)
    panel = np.maximum(panel, 1)
    a_reads += [fits, divide_up(n, panel) * fits]
    b_reads += [divide_up(m, panel) * fits, fits]
    sides = 2.0 ** np.arange(1 + np.ceil(np.log2(max(m.max(), n.max()))))
    side = sides.reshape(-1, *(1 for _ in m.shape))
    for first, second, first_reads, second_reads in (
        (m, n, b_reads, a_reads),
        (n, m, a_reads, b_reads),
    ):
        one = np.minimum(side, first)
        other = np.floor(
            (capacity - 2 * one * element_bytes) / (ACCUMULATOR_BYTES * one + 2 * element_bytes)
        )
        other = np.where(one == 1, np.maximum(other, 1), other)
        fits = np.where(other >= 1, 1.0, np.inf)
        first_reads += list(divide_up(first, one) * fits)
        second_reads += list(divide_up(second, np.maximum(other, 1)) * fits)
    a = np.stack(a_reads) * (m * k * element_bytes)
    b = np.stack(b_reads) * (k * n * element_bytes)
    return Traffic(a, b, np.broadcast_to(m * n * element_bytes, a.shape))
