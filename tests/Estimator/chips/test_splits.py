"""Ways to spread a product over cores, against the counts that the manual names."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest

from Estimator.chips.splits import enumerate_splits
from GraphExtractor.graph import Gemm

FEW = 256  # parts, up to which every count that makes a smaller part is tried


def smaller_parts(size: int) -> set[int]:
    """Counts that make the largest part of a dimension smaller than one part less does."""
    return {
        count
        for count in range(1, size + 1)
        if count == 1 or -(-size // count) < -(-size // (count - 1))
    }


def named(count: int) -> bool:
    """Whether a count has no other factors than two and three, or is five or eleven times a power
    of two."""
    while count % 2 == 0:
        count //= 2
    if count in (5, 11):
        return True
    while count % 3 == 0:
        count //= 3
    return count == 1


@pytest.mark.parametrize("cores", [256, 300, 528, 1024])
@pytest.mark.parametrize(
    "gemm", [Gemm(1, 1000, 7, 40), Gemm(12, 197, 64, 5), Gemm(2, 512, 512, 1)], ids=str
)
def test_splits_are_those_that_the_manual_says(gemm: Gemm, cores: int) -> None:
    sizes = gemm.batch, gemm.m, gemm.k, gemm.n
    found = enumerate_splits(gemm, cores)
    made = list(
        zip(*(each.tolist() for each in (found.batch, found.m, found.k, found.n)), strict=True)
    )
    assert len(set(made)) == len(made)
    few = {each for each in made if prod(each) <= FEW}
    assert few == {
        each for each in product(*map(sorted, map(smaller_parts, sizes))) if prod(each) <= FEW
    }
    choices = [
        [count for count in range(1, cores + 1) if named(count) and single_rows(count, size)]
        for size in sizes
    ]
    many = {each for each in made if prod(each) > FEW}
    assert many == {
        (b, m, k, n)
        for b, m in product(*choices[:2])
        if b * m <= cores
        for k, n in product(*choices[2:])
        if FEW < b * m * k * n <= cores
    }


def single_rows(count: int, size: int) -> bool:
    """Whether no smaller count that is named already cuts ``size`` into single rows."""
    return not any(named(each) and each >= size for each in range(1, count))
