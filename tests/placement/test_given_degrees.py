"""Plans with a given number of stages or replicas, against brute force over every plan that has it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from placement_instances import adam, all_plans, batch_of, flat_cluster, random_case
from Solver.placement import lower_bounds_s, place, place_batch
from Solver.placement.problem import LayerTimes, PlacementProblem, PlanVariant

from GraphExtractor.graph import Recompute
from Plans.results import Status


def least_s(problem, times, pp, dp):
    """Least iteration time over the plans that have the given degrees; inf where there is none."""
    plans = (plan for plan in all_plans(problem, times) if pp in {None, plan.pp} and dp in {None, plan.dp})
    return min((plan.iteration_s for plan in plans), default=np.inf)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10_000),
    tiers=st.sampled_from([1, 2]),
    pp=st.sampled_from([None, 1, 2, 3, 4, 7]),
    dp=st.sampled_from([None, 1, 2, 3, 5]),
    free_links=st.booleans(),
)
def test_given_degrees_equal_brute_force(seed, tiers, pp, dp, free_links):
    problem, times = random_case(seed, tiers=tiers, most_layers=5)
    if free_links:  # without transfers fewer stages cost no more, so a solver must not take fewer than it is asked for
        nothing = np.zeros_like(problem.variants[0].cut_bytes)
        variants = tuple(replace(each, cut_bytes=nothing, cut_gradient_bytes=nothing) for each in problem.variants)
        problem = replace(problem, variants=variants)
    expected = least_s(problem, times, pp, dp)
    asked = replace(problem, pp=pp, dp=dp)
    placement = place(asked, times)
    batch = batch_of(times)
    assert lower_bounds_s(asked, batch)[0] <= expected * (1 + 1e-9)
    if np.isinf(expected):
        assert placement.status is Status.INFEASIBLE and placement.reason
        return
    assert placement.iteration_s == pytest.approx(expected, rel=1e-9)
    assert pp in {None, placement.pp} and dp in {None, placement.dp}
    assert place_batch(asked, batch, np.array([0])).iteration_s[0] == pytest.approx(expected, rel=1e-9)


def test_fewer_stages_are_no_answer_even_where_they_cost_no_more():
    nothing = np.zeros(3)
    variant = PlanVariant(1, Recompute.NONE, nothing, np.array([1.0, 0.1, 0.1]), nothing, nothing, nothing, 0.0)
    times = LayerTimes(np.ones((1, 3)), np.ones((1, 3)), np.zeros((1, 3)))
    problem = PlacementProblem((variant,), flat_cluster(3, 1.0), 2.5, 1.0, 8, adam())
    two, three = (place(replace(problem, pp=pp), times) for pp in (2, 3))
    assert two.pp == 2 and two.status is Status.OPTIMAL
    assert three.status is Status.INFEASIBLE and "no cut into 3 stages fits" in three.reason
    assert place(replace(problem, pp=3, hbm_bytes=3.5), times).pp == 3


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"pp": 4}, "4 stages were asked for, but there are 3 layers"),
        ({"dp": 9}, "9 replicas were asked for, but there are 8 micro-batches"),
        ({"pp": 2, "dp": 2}, "tp 1 x pp 2 x dp 2 needs 4 devices, the cluster has 3"),
    ],
)
def test_what_there_is_no_room_for_is_said(asked, reason):
    ones = np.ones(3)
    variant = PlanVariant(1, Recompute.NONE, ones, ones, ones, np.array([0.0, 1.0, 1.0]), np.array([0.0, 1.0, 1.0]), 0.0)
    problem = PlacementProblem((variant,), flat_cluster(3, 1.0), 100.0, 1.0, 8, adam())
    found = place(replace(problem, **asked), LayerTimes(ones[None], ones[None], ones[None]))
    assert found.status is Status.INFEASIBLE and reason in found.reason
