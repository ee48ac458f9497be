"""Ways to spread one product over the cores of an accelerator: parts along batch, m, k and n."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from Estimator.accelerator import IntArray
from GraphExtractor.graph import Gemm


@dataclass(frozen=True, eq=False)
class Splits:
    """S ways to cut a product into ``batch * m * k * n`` parts; arrays of shape (S,), ascending in the number of parts.

    The first is not to cut it at all. ``cores`` is the number of parts, each for one core.
    """

    batch: IntArray
    m: IntArray
    k: IntArray
    n: IntArray
    cores: IntArray


def part_counts(num_cores: IntArray) -> list[int]:
    """Numbers of parts worth trying along one dimension: all divisors of the core counts at hand."""
    counts = np.arange(1, int(num_cores.max()) + 1)
    divides_any = np.any([count % counts == 0 for count in num_cores], axis=0)
    return [int(count) for count in counts[divides_any]]


def enumerate_splits(gemm: Gemm, counts: list[int], most_cores: int) -> Splits:
    """All combinations of ``counts`` along the four dimensions on at most ``most_cores`` cores.

    A count is left out where the one before it already cuts the dimension into single rows.
    """

    def useful(dimension: int) -> IntArray:
        return np.array(
            [count for count, before in zip(counts, [0, *counts], strict=False) if before < dimension], dtype=np.int64
        )

    choices = np.array([[1, 1, 1, 1]], dtype=np.int64)
    for axis, dimension in enumerate((gemm.batch, gemm.m, gemm.k, gemm.n)):
        parts = useful(dimension)
        choices = np.repeat(choices, len(parts), axis=0)
        choices[:, axis] = np.tile(parts, len(choices) // len(parts))
        choices = choices[choices.prod(axis=1) <= most_cores]
    choices = choices[np.argsort(choices.prod(axis=1), kind="stable")]
    batch, m, k, n = choices.T
    return Splits(batch, m, k, n, choices.prod(axis=1))
