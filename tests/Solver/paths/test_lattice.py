"""Sets of layers that the last stages can hold, and the stages between them, against their
definitions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from Solver.paths.lattice import MOST_STAGES, lattice_of
from Solver.paths.layer_graph import Edge, is_chain, runs


def towers(*lengths: int, joint: bool = False) -> tuple[Edge, ...]:
    """Chains beside each other, one after another in execution order, with a last layer that needs
    them all if ``joint``."""
    starts = np.cumsum([0, *lengths]).tolist()
    steps = [
        (k, k + 1) for start, stop in itertools.pairwise(starts) for k in range(start, stop - 1)
    ]
    ends = [(stop - 1, starts[-1]) for stop in starts[1:]] if joint else []
    return tuple(sorted([*steps, *ends]))


LAYERS = 5
EVERY_EDGE = [(start, end) for start in range(LAYERS) for end in range(start + 1, LAYERS)]
EDGES = st.sets(st.sampled_from(EVERY_EDGE)).map(lambda each: tuple(sorted(each)))


@given(EDGES)
def test_sets_are_all_that_hold_what_needs_their_layers(edges: tuple[Edge, ...]) -> None:
    found = lattice_of(LAYERS, edges)
    every = itertools.product([False, True], repeat=LAYERS)
    closed = {each for each in every if all(each[end] or not each[start] for start, end in edges)}
    assert {tuple(each) for each in found.members.tolist()} == closed
    assert len(found.members) == len(closed)
    assert found.omitted == ""
    assert found.chain == is_chain(LAYERS, edges)
    assert not found.members[0].any() and found.members[-1].all()


@given(EDGES)
def test_stages_are_all_pairs_of_sets_within_each_other(edges: tuple[Edge, ...]) -> None:
    found = lattice_of(LAYERS, edges)
    pairs = list(zip(found.whole.tolist(), found.part.tolist(), strict=True))
    expected = {
        (whole, part)
        for whole, part in itertools.permutations(range(len(found.members)), 2)
        if np.all(found.members[part] <= found.members[whole])
    }
    assert set(pairs) == expected and len(pairs) == len(expected)
    assert all(part < whole for whole, part in pairs)


def test_skip_connections_leave_a_chain() -> None:
    assert is_chain(4, ((0, 1), (0, 3), (1, 2), (2, 3)))
    assert not is_chain(4, ((0, 1), (0, 3), (2, 3)))


@pytest.mark.thorough
def test_of_too_many_sets_some_are_kept_and_the_others_named() -> None:
    some = lattice_of(61, towers(*[3] * 20, joint=True))
    assert some.omitted.endswith("considered were those that cut the execution order anywhere")
    assert len(some.members) == 62
    long = lattice_of(400, ())
    assert long.omitted.endswith(
        "considered were those that cut the execution order after every 2 layers"
    )
    assert long.members.sum(axis=1).tolist() == list(range(0, 401, 2))


@pytest.mark.parametrize("lengths", [(20, 20, 20), (30, 30)])
def test_long_branches_are_cut_between_runs_of_layers(lengths: tuple[int, ...]) -> None:
    edges = towers(*lengths, joint=True)
    layers = sum(lengths) + 1
    some = lattice_of(layers, edges)
    assert f"more than {MOST_STAGES:,} possible stages" in some.omitted
    assert "the branches between runs of" in some.omitted
    assert len(some.part) <= MOST_STAGES
    suffixes = {tuple([False] * start + [True] * (layers - start)) for start in range(layers + 1)}
    assert suffixes <= {tuple(each) for each in some.members.tolist()}
    for each in some.members:
        assert all(each[end] or not each[start] for start, end in edges)


def test_runs_end_where_layers_branch_or_meet_and_skips_do_not_count() -> None:
    assert runs(7, ((0, 1), (0, 3), (1, 2), (2, 5), (3, 4), (4, 5), (5, 6))) == [
        [0],
        [1, 2],
        [3, 4],
        [5, 6],
    ]
    assert runs(3, ((0, 1), (1, 2), (0, 2))) == [[0, 1, 2]]
    assert runs(3, ()) == [[0], [1], [2]]
