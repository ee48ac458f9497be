"""Bounds on many configurations at once against those of each plan on each of them, and points that
are closed at once against the search over all plans."""

from __future__ import annotations

import numpy as np
import pytest

from Solver.plans import row_loads
from Solver.plans.best_plan import ConfigurationPlans
from Solver.plans.row_loads import RowLoads
from tests.builders.random_searches import random_case
from tests.Solver.plans.test_best_plan import parts_of


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(760, 775))
def test_the_least_bound_of_each_configuration_is_that_of_its_plans(
    seed: int, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, case = np.random.default_rng(seed), random_case(seed, configurations=3, most_layers=4)
    monkeypatch.setattr(row_loads, "MOST_HELD", 1)  # one configuration after another
    for tried in parts_of(case, monkeypatch):
        plans, costs, memory_bytes = tried.part.plans, tried.part.costs, tried.machine.memory_bytes
        rows = np.arange(case.hardware.count)
        weights = np.ones((1, len(plans)))
        if weighted:
            weights = random.uniform(0.5, 2.0, (len(rows), len(plans)))
            weights[random.uniform(size=weights.shape) < 0.2] = np.inf
        expected = []
        for row, mine in zip(
            rows.tolist(), np.broadcast_to(weights, (len(rows), len(plans))), strict=True
        ):
            each = ConfigurationPlans(plans, costs, row, memory_bytes, mine)
            expected.append(each.bounds_s.min(initial=np.inf))
        together = RowLoads.of(plans, costs, rows, memory_bytes).least_s(weights, memory_bytes)
        assert together.tolist() == expected
        if not weighted:
            parts = RowLoads.in_parts(plans, costs, rows, memory_bytes)
            apart = [each.least_s(weights, memory_bytes) for each in parts]
            assert len(apart) == len(rows) and np.concatenate(apart).tolist() == expected


@pytest.mark.parametrize("seed", range(775, 790))
def test_what_a_hint_closes_at_once_a_search_over_all_plans_finds_too(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the best plan for a hint, one of another configuration, and an incumbent as good."""
    case, hint = random_case(seed, configurations=2, most_layers=4), None
    for tried in parts_of(case, monkeypatch):
        free = tried.plans.best()
        if free.plan is None:
            continue
        other, hint = (
            hint if hint and hint[0] is tried.part else (None, None),
            (tried.part, free.hint),
        )
        for first in (free.hint, other[1]):
            for incumbent_s in (np.inf, free.iteration_s, free.iteration_s * 1.01):
                found = tried.plans.fastest(incumbent_s, first, None)
                every = tried.plans.best(incumbent_s, first)
                assert found.plan == every.plan and found.hint == every.hint
                assert found.iteration_s == every.iteration_s
                assert found.bound_s == every.bound_s
                assert found.memory_bytes == every.memory_bytes


def test_bounds_that_say_enough_are_above_it_and_the_others_exact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = 0
    cases = (random_case(seed, most_layers=6) for seed in range(790, 800))
    for tried in (tried for case in cases for tried in parts_of(case, monkeypatch)):
        exact_s = tried.plans.bounds_s
        for enough_s in np.unique(exact_s[np.isfinite(exact_s)]).tolist():
            found_s = tried.plans._bounded(enough_s)
            same = found_s == exact_s
            assert np.all(same | ((found_s > enough_s) & (exact_s > enough_s)))
            assert np.all(found_s <= exact_s * (1.0 + 1e-9))
            ended += int(np.sum(~same))
    assert ended
