"""Buffer tilings against brute force over all tiles."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from Estimator.chips.fastest_splits import fill_least_traffic
from Estimator.chips.tiling import tile_traffic

ELEMENT = 2
SIZES = st.integers(1, 400)
CAPACITIES = st.integers(64, 200_000)


def least_traffic(m: int, k: int, n: int, capacity: float) -> float:
    return float(tile_traffic(m, k, n, capacity, ELEMENT).total.min())


def simulated_traffic(m: int, k: int, n: int, tm: int, tk: int, tn: int, order: str) -> int:
    """Bytes moved by walking the tiles in loop order, reduction innermost: a tile that stays in
    place is not read again."""
    counts = {"m": math.ceil(m / tm), "n": math.ceil(n / tn), "k": math.ceil(k / tk)}
    sizes = {"m": (m, tm), "n": (n, tn), "k": (k, tk)}

    def extent(axis: str, index: int) -> int:
        size, tile = sizes[axis]
        return min(tile, size - index * tile)

    total, held_a, held_b = m * n * ELEMENT, None, None
    for indices in itertools.product(*(range(counts[axis]) for axis in order)):
        at = dict(zip(order, indices, strict=True))
        if held_a != (at["m"], at["k"]):
            held_a = (at["m"], at["k"])
            total += extent("m", at["m"]) * extent("k", at["k"]) * ELEMENT
        if held_b != (at["k"], at["n"]):
            held_b = (at["k"], at["n"])
            total += extent("k", at["k"]) * extent("n", at["n"]) * ELEMENT
    return total


@pytest.mark.parametrize(("m", "k", "n"), [(12, 9, 10), (5, 16, 11), (16, 4, 16), (1, 12, 9)])
@pytest.mark.parametrize("capacity", [60, 120, 250, 500, 2000])
def test_close_to_the_best_of_all_tiles(m: int, k: int, n: int, capacity: int) -> None:
    best = math.inf
    for tm, tk, tn in itertools.product(range(1, m + 1), range(1, k + 1), range(1, n + 1)):
        # what a step needs at once; the candidates reserve a second slice of what streams
        if tm * tk * ELEMENT + tk * tn * ELEMENT + tm * tn * 4 <= capacity:
            best = min(
                best, *(simulated_traffic(m, k, n, tm, tk, tn, order) for order in ("mnk", "nmk"))
            )
    chosen = least_traffic(m, k, n, capacity)
    assert best <= chosen
    assert chosen <= 1.6 * best
    if capacity == 2000:
        assert chosen == best == (m * k + k * n + m * n) * ELEMENT


@given(SIZES, SIZES, SIZES, CAPACITIES)
def test_never_below_compulsory_and_met_when_all_fits(
    m: int, k: int, n: int, capacity: int
) -> None:
    compulsory = (m * k + k * n + m * n) * ELEMENT
    assert least_traffic(m, k, n, capacity) >= compulsory
    assert least_traffic(m, k, n, 1e9) == compulsory


@given(SIZES, SIZES, SIZES, CAPACITIES, CAPACITIES)
def test_larger_buffer_never_costs_traffic(m: int, k: int, n: int, one: int, other: int) -> None:
    assert least_traffic(m, k, n, max(one, other)) <= least_traffic(m, k, n, min(one, other))


@given(SIZES, SIZES, SIZES, CAPACITIES, st.sampled_from("mkn"), st.integers(0, 300))
def test_larger_product_never_saves_traffic(
    m: int, k: int, n: int, capacity: int, axis: str, more: int
) -> None:
    larger = {"m": m, "k": k, "n": n}
    larger[axis] += more
    assert least_traffic(**larger, capacity=capacity) >= least_traffic(m, k, n, capacity)


def test_arguments_broadcast() -> None:
    traffic = tile_traffic(np.array([[8], [64]]), 32, 48, np.array([256, 4096, 65536]), ELEMENT)
    assert traffic.total.shape[1:] == (2, 3)
    assert traffic.total[:, 1, 2].min() == least_traffic(64, 32, 48, 65536)


def test_the_least_of_many_products_is_that_of_their_tilings() -> None:
    random = np.random.default_rng(0)
    m, k, n = 2.0 ** random.uniform(0, 14, (3, 300)) // 1
    capacities = np.array([1.0, 64.0, 1000.0, 4096.0, 300_000.0, 2.0**22])
    least = np.empty((len(m), len(capacities)))
    fill_least_traffic(m, k, n, capacities, ELEMENT, least)
    every = tile_traffic(m[:, None], k[:, None], n[:, None], capacities, ELEMENT)
    assert np.array_equal(least, every.total.min(axis=0))
