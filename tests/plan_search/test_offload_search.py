"""Searches over what is kept in host memory against every plan there is, on random models, hardware and spaces."""

import numpy as np
import pytest
from offload_cases import hosted_case
from test_best_plan import parts_of

from Plans.iteration import price_iteration
from Plans.many import evaluate_many
from Plans.results import Status
from Solver.plan_search.best_plan import PlanStatus

CLOSE = 1 + 1e-9


@pytest.mark.parametrize(("seed", "tables"), [(seed, seed % 2 == 1) for seed in range(900, 912)])
def test_bounds_and_best_plans_are_those_of_enumeration(seed: int, tables: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for tried in parts_of(hosted_case(seed, most_layers=4, tables=tables), monkeypatch):
        found, every = tried.plans.best(), tried.enumerated
        true_s = np.array([each.iteration_s for each in every])
        assert np.all(tried.plans.bounds_s <= true_s * CLOSE)
        assert np.all(found.plan_bounds_s <= true_s * CLOSE)
        assert np.all(np.isinf(true_s[found.status == PlanStatus.INFEASIBLE]))
        assert found.bound_s == pytest.approx(found.iteration_s, rel=1e-11)
        assert found.iteration_s == pytest.approx(true_s.min(), rel=1e-9)
        if found.plan is not None:
            iteration = price_iteration(found.plan, tried.part.costs, tried.machine, tried.row)
            assert iteration.status is Status.FEASIBLE
            assert iteration.iteration_s == pytest.approx(found.iteration_s, rel=1e-9)
            assert found.plan.offload == tried.part.plans.plans.shape.offload


@pytest.mark.parametrize("seed", range(920, 926))
def test_many_plans_at_once_cost_what_each_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for tried in parts_of(hosted_case(seed, most_layers=5), monkeypatch):
        plans, costs = tried.part.plans.plans, tried.part.costs
        deep = plans.pp * plans.interleave <= max(len(costs.graph.sequence) - 2, 1)
        plans = plans.some(np.flatnonzero((deep | (plans.pp == 1)) & (plans.pp * plans.interleave > 0)))
        found = evaluate_many(plans, costs, tried.machine, tried.row)
        for index in range(len(plans)):
            alone = price_iteration(plans.plan(index), costs, tried.machine, tried.row)
            assert found.iteration_s[index] == pytest.approx(alone.iteration_s, rel=1e-9)
            assert found.memory_bytes[index] == pytest.approx(alone.memory_bytes, rel=1e-9)
            assert bool(found.feasible[index]) == (alone.status is Status.FEASIBLE)
