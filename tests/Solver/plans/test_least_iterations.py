"""Lines that bound all plans of a shape by the work of their layers, against every cut of every
plan."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from test_best_plan import CLOSE, Tried, parts_of

from Estimator.plans.layer_costs import PassCosts
from Solver.designs.shape_bounds_on_chips import like_layers
from Solver.plans.least_iterations import LeastIterations, Work, least_iterations, least_of
from tests.builders.random_searches import random_case


def work_of(tried: Tried) -> Work:
    """What the layers of a configuration take, those that are most alike by themselves."""
    plans = tried.part.plans
    rows = tried.part.costs.rows(np.array([tried.row]))
    return Work.of(rows, like_layers(plans.graph, plans.sizes))


@pytest.mark.some(6)
@pytest.mark.parametrize("seed", range(800, 840))
def test_no_plan_is_below_the_lines_of_its_shape(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(seed)
    for tried in parts_of(random_case(seed, configurations=2, most_layers=7), monkeypatch):
        lines, work = lines_of(tried), work_of(tried)
        (bound_s,) = lines.seconds(work)
        assert bound_s <= min(each.iteration_s for each in tried.enumerated) * CLOSE
        for _ in range(5):  # less of anything bounds no less work
            less = Work(
                *(getattr(work, each.name) * random.uniform(0.0, 1.0) for each in fields(Work))
            )
            assert lines.seconds(less) <= bound_s * CLOSE
        both_s = least_of([lines, replace(lines, constant_s=lines.constant_s + 1.0)]).seconds(work)
        assert both_s == pytest.approx(np.array([bound_s]), rel=1e-12)


def test_lines_come_close_to_what_plans_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where work and not messages decides: on average of random shapes, whose few layers differ."""
    ratios = []
    for seed in range(840, 846):
        for tried in parts_of(random_case(seed, configurations=2, most_layers=7), monkeypatch):
            costs = tried.part.costs
            much = replace(
                costs,
                **{
                    name: scaled(getattr(costs, name), 1e4)
                    for name in ("forward", "recompute", "backward")
                },
            )
            long = Tried(replace(tried.part, costs=much), tried.row, tried.machine)
            least_s = min(each.iteration_s for each in long.enumerated)
            if np.isfinite(least_s):
                ratios.append(float(lines_of(long).seconds(work_of(long))[0]) / least_s)
    assert len(ratios) > 20 and np.mean(ratios) > 0.7 and max(ratios) <= CLOSE


def scaled(costs: PassCosts, factor: float) -> PassCosts:
    return PassCosts(*(getattr(costs, each.name) * factor for each in fields(PassCosts)))


def lines_of(tried: Tried) -> LeastIterations:
    plans = tried.part.plans
    return least_iterations(
        plans, tried.machine.memory_bytes, like_layers(plans.graph, plans.sizes)
    )


def test_fewer_lines_are_no_higher_and_hardly_lower() -> None:
    random = np.random.default_rng(5)
    for _ in range(20):
        more, alike, sync_s, constant_s = random.uniform(0.0, 1.0, (4, 400)) * np.array(
            [[30.0], [30.0], [2.0], [0.5]]
        )
        hidden, hiding = random.uniform(0.0, 0.5, (2, 400))
        fixed = random.choice([1.0, 2.0], 400)
        even, others = more + fixed, np.ones(400)
        every = LeastIterations(even, fixed, alike, sync_s, hidden, hiding, others, constant_s)
        whole_s = random.uniform(2.0, 4.0, 300)
        alike_s = whole_s * random.uniform(0.5, 1.0, 300)
        work = Work(whole_s, alike_s, alike_s * random.uniform(0.2, 0.5, 300))
        passes_s = np.maximum(
            even[:, None] * whole_s, fixed[:, None] * whole_s + alike[:, None] * alike_s
        )
        shown_s = (
            sync_s[:, None]
            - hidden[:, None] * (alike_s - work.forward_s)
            - hiding[:, None] * alike_s
            - (whole_s - alike_s)
        )
        exact_s = (passes_s + np.maximum(shown_s, 0.0) + constant_s[:, None]).min(axis=0)
        lowest = every.lowest()
        assert 0 < len(lowest) < 400
        order = np.argsort(lowest.constant_s, kind="stable")
        assert (order == np.arange(len(order))).all()
        few_s = every.seconds(work)
        assert (few_s <= exact_s * CLOSE).all() and few_s == pytest.approx(exact_s, rel=0.08)
