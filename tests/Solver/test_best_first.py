"""The loop of best-first searches against looking at every candidate."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze_common.array_types import FloatArray, IntArray
from Solver.best_first import Level, Once, best_first

VALUES = st.lists(st.integers(0, 9), min_size=1, max_size=12)


class Nested:
    """Candidates with values, a tighter and a weaker bound; levels tell which they wait at."""

    def __init__(self, values: list[int], seed: int) -> None:
        random = np.random.default_rng(seed)
        self.values = np.array(values, dtype=float)
        tight = self.values + random.integers(0, 3, len(values))
        self.bounds = tight + random.integers(0, 3, len(values))
        self.tight, self.waits = tight, np.zeros(len(values), np.int64)
        self.best, self.evaluated = -math.inf, list[int]()
        self.levels: list[Level] = [Bounding(self), Evaluating(self)]


class Bounding:
    deferred = False

    def __init__(self, search: Nested) -> None:
        self.search = search

    def bound(self, candidates: IntArray) -> FloatArray:
        search = self.search
        return np.where(search.waits[candidates] == 0, search.bounds[candidates], -np.inf)

    def refine(self, candidates: IntArray) -> int:
        self.search.waits[candidates] = 1
        return 0


class Evaluating:
    deferred = True

    def __init__(self, search: Nested) -> None:
        self.search = search

    def bound(self, candidates: IntArray) -> FloatArray:
        search = self.search
        return np.where(search.waits[candidates] == 1, search.tight[candidates], -np.inf)

    def refine(self, candidates: IntArray) -> int:
        search = self.search
        search.waits[candidates] = 2
        search.best = max(search.best, float(search.values[candidates].max()))
        search.evaluated += candidates.tolist()
        return len(candidates)


@given(VALUES, st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 3))
def test_the_best_of_all_is_found_and_nothing_left_is_better(
    values: list[int], seed: int, at_once: int, growth: int
) -> None:
    search = Nested(values, seed)
    every = np.arange(len(values))
    found = best_first(
        every, search.levels, lambda: search.best + 0.5, at_once=at_once, growth=growth
    )
    assert search.best == max(values) and found.complete
    assert found.open_bound <= search.best
    left = np.setdiff1d(every, search.evaluated)
    assert (search.values[left] <= found.open_bound).all()
    assert found.refined[1] == len(search.evaluated) == len(set(search.evaluated))


@given(VALUES, st.integers(0, 2**32))
def test_all_that_is_as_good_is_evaluated_whatever_was_known_before(
    values: list[int], seed: int
) -> None:
    search = Nested(values, seed)
    known = int(np.random.default_rng(seed).integers(len(values)))
    search.levels[1].refine(np.array([known]))
    best_first(np.arange(len(values)), search.levels, lambda: search.best)
    best = {place for place, value in enumerate(values) if value == max(values)}
    assert best <= set(search.evaluated)


def test_candidates_come_by_falling_bounds_and_ties_by_index() -> None:
    order: list[int] = []
    level = Once(np.array([1.0, 3.0, 3.0, 2.0, -np.inf]), lambda each: order.extend(each.tolist()))
    found = best_first(np.arange(5), [level], lambda: -math.inf)
    assert order == [1, 2, 3, 0] and found.refined == (4,)
    assert found.complete and found.open_bound == -math.inf


@pytest.mark.parametrize("most", [0, 1, 2])
def test_a_search_that_gives_up_says_what_is_left(most: int) -> None:
    level = Once(np.array([3.0, 2.0, 1.0]), lambda each: None)
    found = best_first(np.arange(3), [level], lambda: 0.0, most_evaluations=most)
    assert not found.complete and found.refined == (most,)
    assert found.open_bound == [3.0, 2.0, 1.0][most]
