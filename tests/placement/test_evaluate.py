"""The evaluator against the formulas written out by hand."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from placement_instances import adam, all_plans, flat_cluster, random_case
from Solver.placement import balanced_cuts, evaluate_plan, stage_memory
from Solver.placement.policy import training_policy
from Solver.placement.problem import GroupOrder, LayerTimes, PlacementProblem, PlanVariant

from Common.errors import InputError
from Estimator.network.cluster import Cluster, Tier
from GraphExtractor.graph import Recompute
from Plans.results import Status


def small_problem(zero_stage: int = 0) -> tuple[PlacementProblem, LayerTimes]:
    variant = PlanVariant(
        tp=2,
        recompute=Recompute.FULL,
        parameter_count=np.array([10.0, 20.0, 30.0, 15.0]),
        saved_bytes=np.array([1.0, 2.0, 3.0, 4.0]),
        workspace_bytes=np.array([5.0, 50.0, 6.0, 7.0]),
        cut_bytes=np.array([0.0, 100.0, 200.0, 300.0]),
        cut_gradient_bytes=np.array([0.0, 40.0, 0.0, 60.0]),
        tied_parameter_count=10.0,
    )
    problem = PlacementProblem((variant,), flat_cluster(16, 1000.0, 0.25), 1e4, 500.0, 9, adam(zero_stage))
    times = LayerTimes(np.array([[1.0, 2.0, 3.0, 4.0]]), np.array([[2.0, 4.0, 6.0, 9.0]]), np.array([[0.5, 1.0, 1.5, 2.0]]))
    return problem, times


def test_two_stages_by_hand() -> None:
    problem, times = small_problem()
    plan = evaluate_plan(problem, times, 0, 4, (2,))
    # Nine micro-batches over four pipelines: three. Activations cross the cut (200 bytes), no gradients do.
    first, last = 1 + 2 + 2 + 4 + 0.5 + 1, 3 + 4 + 6 + 9 + 1.5 + 2 + (200 / 1000 + 0.25)
    sync = min(2 * 3 / 4 * 2 * 45 / 1000 + 2 * 3 * 0.25, 2 * (2 * 45 / 1000 + 2 * 0.25))  # ring, tree
    tied = 10 * 2 / 1000 + 2 * 0.25
    assert [stage.load_s for stage in plan.stages] == pytest.approx([first, last])
    assert plan.iteration_s == pytest.approx(first + last + 2 * last + sync + tied + 28 * 45 / 500)
    assert plan.micro_batches_per_pipeline == 3
    assert [stage.memory_bytes for stage in plan.stages] == pytest.approx([16 * 30 + 2 * 3 + 50, 16 * 45 + 7 + 7])
    assert plan.breakdown is not None
    assert plan.breakdown.bubble_s == pytest.approx(first)
    assert plan.breakdown.stage_transfer_s == pytest.approx(3 * 0.45)
    assert plan.breakdown.gradient_sync_s == pytest.approx(sync + tied)
    assert plan.breakdown.recompute_s == pytest.approx(3 * 3.5)


def test_one_stage_holds_tied_parameters_once() -> None:
    problem, times = small_problem()
    plan = evaluate_plan(problem, times, 0, 1, ())
    assert plan.iteration_s == pytest.approx(9 * 36 + 28 * 65 / 500)
    assert plan.stages[0].memory_bytes == pytest.approx(16 * 65 + 10 + 50)


@pytest.mark.parametrize(("zero_stage", "resident"), [(0, 16.0), (1, 4 + 3.0), (2, 2 + 0.5 + 3.0), (3, 4.0)])
def test_zero_divides_what_it_divides(zero_stage: int, resident: float) -> None:
    problem, times = small_problem(zero_stage)
    plan = evaluate_plan(problem, times, 0, 4, (2,))
    assert stage_memory(problem, plan)[0].parameter_state_bytes == pytest.approx(30 * resident)
    breakdown = plan.breakdown
    assert breakdown is not None
    assert breakdown.optimizer_s == pytest.approx(28 * 45 / 500 / (1 if zero_stage == 0 else 4))


@pytest.mark.parametrize(("optimizer", "resident"), [("adam", 16.0), ("sgd", 4.0), ("sgd_momentum", 8.0)])
def test_optimizers_keep_their_bytes_per_parameter(optimizer: str, resident: float) -> None:
    problem, times = small_problem()
    problem = replace(problem, policy=training_policy(optimizer, 0))
    memory = stage_memory(problem, evaluate_plan(problem, times, 0, 4, (2,)))
    assert [stage.parameter_state_bytes for stage in memory] == pytest.approx([30 * resident, 45 * resident])


def test_zero_3_gathers_weights_for_every_micro_batch() -> None:
    problem, times = small_problem(3)
    free = replace(problem, cluster=flat_cluster(16, 1000.0))
    plain = replace(free, policy=adam(2))
    stages = evaluate_plan(free, times, 0, 4, (2,)).stages
    gathers = [
        stage.load_s - other.load_s for stage, other in zip(stages, evaluate_plan(plain, times, 0, 4, (2,)).stages, strict=True)
    ]
    assert gathers == pytest.approx([2 * 3 / 4 * 2 * held / 1000 for held in (30, 45)])


@pytest.mark.parametrize(("zero_stage", "reductions", "gathers"), [(0, 1, 1), (1, 1, 1), (2, 3, 1), (3, 3, 2 * 3)])
def test_sharded_gradients_are_reduced_for_every_micro_batch(zero_stage: int, reductions: int, gathers: int) -> None:
    """Three micro-batches in each pipeline; ZeRO-3 gathers the weights twice for each instead of once at the end."""
    problem, times = small_problem(zero_stage)
    free = replace(problem, cluster=flat_cluster(16, 1000.0), variants=(replace(problem.variants[0], tied_parameter_count=0.0),))
    breakdown = evaluate_plan(free, times, 0, 4, (2,)).breakdown
    assert breakdown is not None
    assert breakdown.gradient_sync_s == pytest.approx((reductions + gathers) * 3 / 4 * 2 * 45 / 1000)


@pytest.mark.parametrize("seed", range(40))
def test_breakdown_adds_up_and_memory_is_explained(seed: int) -> None:
    problem, times = random_case(seed, tiers=1 + seed % 2, most_layers=4)
    for plan in all_plans(problem, times):
        assert plan.breakdown is not None
        parts = [getattr(plan.breakdown, field.name) for field in fields(plan.breakdown)]
        assert min(parts) >= 0.0
        assert sum(parts) == pytest.approx(plan.iteration_s, rel=1e-12)
        memory = [each.total_bytes for each in stage_memory(problem, plan)]
        assert memory == pytest.approx([stage.memory_bytes for stage in plan.stages])
        assert plan.stages[0].first_layer == 0
        assert [stage.first_layer for stage in plan.stages[1:]] == [stage.last_layer + 1 for stage in plan.stages[:-1]]


def test_inner_links_are_used_by_the_inner_groups() -> None:
    problem, times = small_problem()
    tiered = replace(problem, cluster=Cluster("nodes", 16, (Tier("node", 4, 1000.0, 0.0), Tier("all", 16, 10.0, 0.0))))
    data_inner = evaluate_plan(tiered, times, 0, 2, (2,), GroupOrder.DATA_INNER)
    pipeline_inner = evaluate_plan(tiered, times, 0, 2, (2,), GroupOrder.PIPELINE_INNER)
    assert data_inner.breakdown is not None
    assert pipeline_inner.breakdown is not None
    assert data_inner.breakdown.stage_transfer_s == pytest.approx(100 * pipeline_inner.breakdown.stage_transfer_s)
    assert data_inner.breakdown.gradient_sync_s < pipeline_inner.breakdown.gradient_sync_s
    assert evaluate_plan(tiered, times, 0, 2, (2,)).iteration_s == min(data_inner.iteration_s, pipeline_inner.iteration_s)


def test_plan_that_does_not_fit_is_priced_and_says_why() -> None:
    problem, times = small_problem()
    tight = replace(problem, hbm_bytes=600.0)
    plan = evaluate_plan(tight, times, 0, 4, (2,))
    assert plan.status is Status.INFEASIBLE
    assert plan.reason.startswith("stage 2 of 2 needs")
    assert plan.iteration_s == evaluate_plan(problem, times, 0, 4, (2,)).iteration_s
    assert "needs 32 devices" in evaluate_plan(problem, times, 0, 8, (2,)).reason


@pytest.mark.parametrize(
    ("layers", "pp", "sizes"), [(26, 8, [4, 3, 3, 3, 3, 3, 3, 4]), (26, 5, [6, 5, 5, 5, 5]), (6, 1, [6]), (4, 2, [2, 2])]
)
def test_balanced_cuts_spread_blocks_evenly(layers: int, pp: int, sizes: list[int]) -> None:
    bounds = [0, *balanced_cuts(layers, pp), layers]
    assert np.diff(bounds).tolist() == sizes


def test_wrong_plans_are_refused() -> None:
    problem, times = small_problem()
    with pytest.raises(InputError, match="increasing layers below 4"):
        evaluate_plan(problem, times, 0, 1, (3, 2))
    with pytest.raises(InputError, match="give 1 to 2 stages"):
        balanced_cuts(4, 3)
