"""Searches over what is kept in host memory against every plan there is, on random models, hardware
and spaces."""

import numpy as np
import pytest
from test_best_plan import parts_of

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.iteration import price_iteration
from Estimator.plans.layer_costs import LayerCosts
from Estimator.plans.many import evaluate_many
from Estimator.plans.pricing import PricedPlan
from Estimator.plans.rates import Machine
from Estimator.plans.results import Status
from Solver.paths.layer_graph import edges_between
from Solver.plans.cut_levels import PlanStatus
from tests.builders.offload_cases import hosted_case
from tests.builders.random_searches import every_cut

CLOSE = 1 + 1e-9


@pytest.mark.some(4)
@pytest.mark.parametrize("seed", range(900, 908))
def test_bounds_and_best_plans_are_those_of_enumeration(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of hardware that accumulates gradients and of hardware that does not; where much fits, and
    where little does."""
    kind = {
        "configurations": 1 + seed % 2,
        "tables": seed % 4 > 1,
        "memory": 1.0 if seed % 2 else 0.35,
    }
    for tried in parts_of(hosted_case(seed, most_layers=4, **kind), monkeypatch):
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


@pytest.mark.some(1)
@pytest.mark.parametrize("seed", range(920, 924))
def test_many_plans_at_once_cost_what_each_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for tried in parts_of(hosted_case(seed, most_layers=5), monkeypatch):
        plans, costs = tried.part.plans.plans, tried.part.costs
        deep = plans.pp * plans.interleave <= max(len(costs.graph.sequence) - 2, 1)
        plans = plans.some(
            np.flatnonzero((deep | (plans.pp == 1)) & (plans.pp * plans.interleave > 0))
        )
        found = evaluate_many(plans, costs, tried.machine, tried.row)
        for index in range(len(plans)):
            alone = price_iteration(plans.plan(index), costs, tried.machine, tried.row)
            assert found.iteration_s[index] == pytest.approx(alone.iteration_s, rel=1e-9)
            assert found.memory_bytes[index] == pytest.approx(alone.memory_bytes, rel=1e-9)
            assert bool(found.feasible[index]) == (alone.status is Status.FEASIBLE)


@pytest.mark.parametrize("seed", range(930, 934))
def test_a_host_without_room_is_not_used(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for tried in parts_of(hosted_case(seed, host_memory=4e3, most_layers=4), monkeypatch):
        found, arrays = tried.plans.best(), tried.part.plans.plans
        plain = np.flatnonzero(arrays.interleave == 1)
        true_s = [
            least_with_room(arrays.plan(index), tried.part.costs, tried.machine)
            for index in plain.tolist()
        ]
        assert np.all(found.plan_bounds_s[plain] <= np.array(true_s) * CLOSE)
        assert found.iteration_s <= min(true_s, default=np.inf) * CLOSE
        if found.plan is None:
            continue
        iteration = price_iteration(found.plan, tried.part.costs, tried.machine, tried.row)
        assert iteration.status is Status.FEASIBLE
        assert iteration.iteration_s == pytest.approx(found.iteration_s, rel=1e-9)
        if found.plan.interleave == 1:
            assert found.iteration_s == pytest.approx(min(true_s), rel=1e-9)


def least_with_room(plan: UniformPlan, costs: LayerCosts, machine: Machine) -> float:
    """Seconds of the best cut whose stages could each keep as many micro-batches' activations as
    the first one."""
    best_s, in_flight = np.inf, min(plan.pp, plan.micro_batches)
    for cut in every_cut(plan, len(costs.graph.sequence), edges_between(costs.graph.tensors)):
        priced = PricedPlan(cut, costs, machine)
        moved = priced.sizes.offloaded_bytes
        parameters = priced.host_bytes - moved * np.minimum(
            np.arange(plan.pp, 0, -1), plan.micro_batches
        )
        room = (parameters + in_flight * moved <= machine.host_bytes * CLOSE).all()
        if room and float(priced.memory_bytes.sum(axis=0).max()) <= machine.memory_bytes * CLOSE:
            best_s = min(best_s, float(priced.finished_s().max()) + priced.step_s)
    return best_s
