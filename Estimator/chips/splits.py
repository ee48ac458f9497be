"""Ways to spread one product over the cores of an accelerator: parts along batch, m, k and n."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from Estimator.chips.accelerator import IntArray
from GraphExtractor.graph import Gemm


@dataclass(frozen=True, eq=False)
class Splits:
    """S ways to cut a product into ``batch * m * k * n`` parts, arrays of shape (S,). The first is not to cut it at all.

    ``of_num[i]`` are those for the i-th number of cores, ascending in the number of parts, each of which is for one core.
    """

    batch: IntArray
    m: IntArray
    k: IntArray
    n: IntArray
    of_num: tuple[IntArray, ...]


def enumerate_splits(gemm: Gemm, num_cores: IntArray) -> Splits:
    """The splits of ``gemm`` for each number of cores; those for one number do not depend on which others there are."""
    own = [_splits_on(gemm, int(num)) for num in num_cores]
    distinct, index = np.unique(np.concatenate(own), axis=0, return_inverse=True)
    batch, m, k, n = distinct.T
    ends = np.cumsum([len(each) for each in own])
    return Splits(batch, m, k, n, tuple(np.split(index.reshape(-1), ends[:-1])))


@lru_cache(maxsize=4096)  # chips that differ in rates alone ask again for the same
def _splits_on(gemm: Gemm, num: int) -> IntArray:
    """Combinations of part counts along the four dimensions with at most ``num`` parts, shape (splits, 4).

    Tried are the divisors of ``num`` and powers of two, but for those after one that already cuts the dimension into single rows.
    """
    upward = np.arange(1, num + 1)
    counts = upward[(num % upward == 0) | (upward & (upward - 1) == 0)].tolist()
    choices = np.array([[1, 1, 1, 1]], dtype=np.int64)
    for axis, dimension in enumerate((gemm.batch, gemm.m, gemm.k, gemm.n)):
        parts = [count for count, before in zip(counts, [0, *counts], strict=False) if before < dimension]
        choices = np.repeat(choices, len(parts), axis=0)
        choices[:, axis] = np.tile(np.array(parts, dtype=np.int64), len(choices) // len(parts))
        choices = choices[choices.prod(axis=1) <= num]
    splits = choices[np.argsort(choices.prod(axis=1), kind="stable")]
    splits.flags.writeable = False
    return splits
