"""Dominance against its definition."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from Solver.pareto import better_is_larger, dominated_by, nondominated

# few distinct values, so that ties and duplicates are common
points = st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=25).map(
    lambda rows: np.array(rows, dtype=float)
)


def dominates(one, other):
    return bool(np.all(one >= other) and np.any(one > other))


@settings(deadline=None)
@given(points)
def test_the_front_is_what_no_point_dominates_without_duplicates(values):
    kept = values[nondominated(values)]
    undominated = {
        tuple(value) for value in values if not any(dominates(other, value) for other in values)
    }
    assert {tuple(value) for value in kept} == undominated
    assert len(kept) == len(undominated)


@settings(deadline=None)
@given(points, points)
def test_dominated_points_are_those_some_front_member_equals_or_exceeds(values, front):
    expected = [any(np.all(member >= value) for member in front) for value in values]
    assert dominated_by(values, front).tolist() == expected


def test_smaller_area_and_energy_are_better():
    values = better_is_larger(
        np.array([1.0, 1.0, 2.0]), np.array([2.0, 1.0, 3.0]), np.array([1.0, 1.0, 1.0])
    )
    assert nondominated(values).tolist() == [False, True, True]
