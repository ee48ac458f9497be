"""Ways to spread one product over the cores of an accelerator: parts along batch, m, k and n."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from GraphExtractor.graph import Gemm
from phaze_common.array_types import IntArray

EVERY_COUNT_TO = 256  # parts; of more, counts of a dimension are those of ``_coarse``


@dataclass(frozen=True, eq=False)
class Splits:
    """S ways to cut a product into ``parts = batch * m * k * n`` of them, ascending in ``parts``;
    arrays of shape (S,).

    The first is not to cut it at all. Each part is for one core, so that more cores can do all that
    fewer can: which ways there are does not depend on the number of cores, only how many of them
    that number reaches. ``doubling`` marks those whose four counts are powers of two.
    """

    batch: IntArray
    m: IntArray
    k: IntArray
    n: IntArray
    parts: IntArray
    doubling: NDArray[np.bool_]

    def ending(self, num_cores: int) -> int:
        """How many of the ways have a core of ``num_cores`` for every part."""
        return int(np.searchsorted(self.parts, num_cores, side="right"))


def enumerate_splits(gemm: Gemm, num_cores: int) -> Splits:
    """The ways to split ``gemm`` over at most ``num_cores`` cores."""
    sizes = gemm.batch, gemm.m, gemm.k, gemm.n
    # numbers of cores between two powers of two share them
    splits = _splits(*sizes, 1 << (num_cores - 1).bit_length())
    end = splits.ending(num_cores)
    if end == len(splits.parts):
        return splits
    return Splits(*(each[:end] for each in vars(splits).values()))


@lru_cache(maxsize=256)  # chips that differ in rates alone ask again for the same
def _splits(batch: int, m: int, k: int, n: int, most: int) -> Splits:
    """All with at most ``most`` parts.

    Of at most ``EVERY_COUNT_TO`` parts these are all: of the counts that cut a dimension into parts
    of one size the smallest has them with the fewest cores, and others are left out. Of more they
    are those of the coarser counts.
    """
    sizes = batch, m, k, n
    every = _combinations(
        [_distinct(size, min(most, EVERY_COUNT_TO)) for size in sizes], min(most, EVERY_COUNT_TO)
    )
    if most > EVERY_COUNT_TO:
        coarse = _combinations([_coarse(size, most) for size in sizes], most)
    else:
        coarse = every[:0]
    counts = np.concatenate([every, coarse[coarse.prod(axis=1) > EVERY_COUNT_TO]])
    counts = counts[np.argsort(counts.prod(axis=1), kind="stable")]
    of_batch, of_m, of_k, of_n = counts.T.copy()
    splits = Splits(
        of_batch, of_m, of_k, of_n, counts.prod(axis=1), ((counts & (counts - 1)) == 0).all(axis=1)
    )
    for each in vars(splits).values():
        each.flags.writeable = False
    return splits


def _distinct(size: int, most: int) -> list[int]:
    """The smallest count of parts, at most ``most``, for every size that the largest part of a
    dimension can have."""
    counts = np.arange(1, min(size, most) + 1)
    largest = -(-size // counts)
    return [int(count) for count in counts[np.diff(largest, prepend=largest[0] + 1) != 0]]


def _coarse(size: int, most: int) -> list[int]:
    """Counts of parts up to ``most`` without other factors than two and three, or five or eleven
    times a power of two.

    Numbers of cores that chips have are made of them, such as 432 and 528. Left out are those after
    one that already cuts the dimension into single rows.
    """
    of_two = [1 << power for power in range(most.bit_length())]
    of_three = [3**power for power in range(most.bit_length())]
    made = {two * other for two in of_two for other in (*of_three, 5, 11)}
    counts = sorted(count for count in made if count <= most)
    return [count for count, before in zip(counts, [0, *counts], strict=False) if before < size]


def _combinations(choices: list[list[int]], most: int) -> IntArray:
    """A count from each of ``choices`` whose product is at most ``most``, shape (combinations,
    dimensions)."""
    found = np.ones((1, len(choices)), dtype=np.int64)
    for axis, counts in enumerate(choices):
        found = np.repeat(found, len(counts), axis=0)
        found[:, axis] = np.tile(np.array(counts, dtype=np.int64), len(found) // len(counts))
        found = found[found.prod(axis=1) <= most]
    return found
