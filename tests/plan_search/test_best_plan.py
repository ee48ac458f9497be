"""The best plan of a shape on one configuration against every cut of every plan, priced one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from random_searches import Case, Enumerated, best_cut, every_plan, every_shape, random_case

from Plans.iteration import price_iteration
from Plans.rates import Machine
from Plans.results import Status
from Solver.cuts import lattice
from Solver.plan_search import best_plan
from Solver.plan_search.best_plan import ConfigurationPlans, PlanStatus
from Solver.search import costs as search_costs
from Solver.search.costs import Part, model_shapes

CLOSE = 1 + 1e-9


@dataclass(frozen=True, eq=False)
class Tried:
    """Plans of one part of a shape on one configuration."""

    part: Part
    row: int
    machine: Machine

    @property
    def plans(self) -> ConfigurationPlans:
        return ConfigurationPlans(self.part.plans, self.part.costs, self.row, self.machine.memory_bytes)

    @property
    def enumerated(self) -> list[Enumerated]:
        """The best cut of every plan."""
        arrays = self.part.plans.plans
        return [best_cut(arrays.plan(index), self.part.costs, self.machine, self.row) for index in range(len(arrays))]


def parts_of(case: Case, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tried]:
    monkeypatch.setattr(search_costs, "load_or_extract", lambda key, *_, **__: case.graph(key))
    for shapes in model_shapes(case.run(), case.problem.models[0]):
        for shape in shapes.shapes:
            for part in shape.parts:
                for row in range(case.hardware.count):
                    yield Tried(part, row, case.hardware.machine(row, float(case.problem.memory_bytes[0])))


@pytest.mark.parametrize("configurations", [1, 2])
@pytest.mark.parametrize("seed", range(700, 725))
def test_plans_bounds_and_statuses_are_those_of_enumeration(
    seed: int, configurations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = random_case(seed, configurations=configurations, most_layers=4)
    for tried in parts_of(case, monkeypatch):
        plans, every = tried.plans, tried.enumerated
        found = plans.best()
        true_s = np.array([each.iteration_s for each in every])
        assert np.all(plans.bounds_s <= true_s * CLOSE)
        assert np.all(found.plan_bounds_s <= true_s * CLOSE)
        known = np.isfinite(found.plan_s)
        assert found.plan_s[known] == pytest.approx(true_s[known], rel=1e-9)
        assert np.all(np.isinf(true_s[found.status == PlanStatus.INFEASIBLE]))
        assert found.bound_s == pytest.approx(found.iteration_s, rel=1e-11)
        least = true_s.min()
        if np.isinf(least):
            assert found.plan is None and np.isinf(found.iteration_s)
            assert np.all(found.status == PlanStatus.INFEASIBLE)
            continue
        assert found.iteration_s == pytest.approx(least, rel=1e-9)
        assert found.plan is not None
        assert found.plan_s.min() == found.iteration_s
        assert found.status[int(found.plan_s.argmin())] == PlanStatus.EVALUATED
        iteration = price_iteration(found.plan, tried.part.costs, tried.machine, tried.row)
        assert iteration.status is Status.FEASIBLE
        assert iteration.iteration_s == pytest.approx(least, rel=1e-9)
        assert iteration.memory_bytes == pytest.approx(found.memory_bytes, rel=1e-12)


@pytest.mark.parametrize("seed", range(730, 740))
def test_an_incumbent_stops_what_cannot_beat_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for tried in parts_of(random_case(seed, most_layers=4), monkeypatch):
        free = tried.plans.best()
        if free.plan is None:
            continue
        true_s = np.array([each.iteration_s for each in tried.enumerated])
        for factor in (0.9, 1.0, 1.1):
            held = tried.plans.best(free.iteration_s * factor, hint=free.hint)
            assert (held.plan is not None) == (factor > 1.0)
            assert np.all(held.plan_bounds_s <= true_s * CLOSE)
            assert held.bound_s <= free.iteration_s * CLOSE
            if held.plan is not None:
                assert held.iteration_s == pytest.approx(free.iteration_s, rel=1e-12)


@pytest.mark.parametrize("seed", range(740, 752))
def test_a_memory_that_holds_a_plan_exactly_holds_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for tried in parts_of(random_case(seed, most_layers=4), monkeypatch):
        found = tried.plans.best()
        if found.plan is None:
            continue
        exact, less = (
            replace(tried, machine=replace(tried.machine, memory_bytes=found.memory_bytes * part)) for part in (1, 0.99)
        )
        again = exact.plans.best()
        assert again.iteration_s == pytest.approx(found.iteration_s, rel=1e-12)
        assert again.plan is not None
        assert price_iteration(again.plan, tried.part.costs, exact.machine, tried.row).status is Status.FEASIBLE
        smaller = less.plans.best()
        assert smaller.plan is None or smaller.memory_bytes <= 0.99 * found.memory_bytes * CLOSE
        assert smaller.iteration_s >= found.iteration_s / CLOSE


def test_too_many_cuts_give_an_answer_and_an_honest_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best_plan, "FIRST_STEPS", 3)
    monkeypatch.setattr(best_plan, "MOST_STEPS", 3)
    unproven = 0
    for seed in range(760, 775):
        for tried in parts_of(random_case(seed, most_layers=5), monkeypatch):
            true_s = np.array([each.iteration_s for each in tried.enumerated])
            found = tried.plans.best()
            assert found.bound_s <= true_s.min() * CLOSE
            assert np.all(found.plan_bounds_s <= true_s * CLOSE)
            assert found.iteration_s >= true_s.min() / CLOSE
            unproven += found.bound_s < found.iteration_s / CLOSE
    assert unproven, "every search was whole, so this test shows nothing"


@pytest.mark.parametrize("stages", [1, 6, 14])
def test_few_sets_of_branching_layers_give_a_plan_that_says_what_was_left_out(
    stages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    omitted = 0
    monkeypatch.setattr(lattice, "MOST_STAGES", stages)
    lattice.lattice_of.cache_clear()
    for seed in range(780, 800):
        for tried in parts_of(random_case(seed, most_layers=4), monkeypatch):
            found, least = tried.plans.best(), min(each.iteration_s for each in tried.enumerated)
            left_out = tried.part.plans.stages.lattice.omitted
            omitted += bool(left_out)
            assert found.iteration_s >= least / CLOSE
            if not left_out and math.isfinite(least):
                assert found.iteration_s == pytest.approx(least, rel=1e-9)
            elif found.plan is not None:
                iteration = price_iteration(found.plan, tried.part.costs, tried.machine)
                assert iteration.iteration_s == pytest.approx(found.iteration_s, rel=1e-9)
    lattice.lattice_of.cache_clear()
    assert omitted


@pytest.mark.parametrize("seed", range(800, 840))
def test_the_space_holds_plans_of_the_definition_once(seed: int) -> None:
    case = random_case(seed)
    (model,) = case.problem.models
    layers, wanted = len(case.models[model.name].sequence), set(every_shape(model.space))
    for shape in model.space.shapes():
        assert shape in wanted
        arrays = model.space.plans(shape, layers, case.hardware.cluster)
        plans = [arrays.plan(index) for index in range(len(arrays))]
        assert len(plans) == len(set(plans))
        assert set(plans) <= set(every_plan(model.space, shape, layers))
        assert [plan.micro_batches for plan in plans] == arrays.micro_batches.tolist()


def test_the_least_replicas_keep_every_number_of_micro_batches() -> None:
    case = random_case(760)
    space = replace(
        case.problem.models[0].space, devices=64, use_all_devices=False, dp_degrees=None, ep_degrees=(1,), tp_widths=(1,)
    )
    cluster = replace(case.hardware.cluster, num_devices=64)
    for shape in space.shapes():
        every, least = (replace(space, least_replicas=few).plans(shape, 6, cluster) for few in (False, True))
        plans = {every.plan(index) for index in range(len(every))}
        kept = [least.plan(index) for index in range(len(least))]
        assert set(kept) <= plans and len(set(kept)) == len(kept)
        assert {plan.micro_batches for plan in kept} == {plan.micro_batches for plan in plans}
        assert min(plan.dp for plan in kept) == min(plan.dp for plan in plans)
