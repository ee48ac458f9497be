"""The plan search against brute force over every plan and every cut, and the bound it prunes by."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from Solver.plan_search.search import search_plans
from Solver.plan_search.stages import best_stages
from training_cases import device_model, graph_for, plan_of

from Common.errors import InputError
from Estimator.devices.operator_cost import DeviceModel
from Estimator.hardware_files import load_cluster
from Estimator.network.cluster import with_devices
from GraphExtractor.graph import Recompute
from Plans.iteration import predict
from Plans.layer_costs import layer_costs
from Plans.plan import TrainingPlan
from Plans.pricing import PlanPricer, overlap_of
from Plans.results import Prediction, Status
from Solver.plan_search import stages
from Solver.plan_search.bounds import iteration_bound_s
from Solver.plan_search.space import PlanSpace

CLUSTER = load_cluster("dgx_a100")
BLOCKS = 6


def every_cut(plan: TrainingPlan) -> list[TrainingPlan]:
    """The plan with every cut of embedding, blocks and head into its stages; blocks only between the end stages."""
    if plan.interleave > 1 or plan.pp == 1:
        return [plan]
    counts = [range(1 if 0 < stage < plan.pp - 1 else 0, BLOCKS + 1) for stage in range(plan.pp)]
    cuts = [cut for cut in product(*counts) if sum(cut) == BLOCKS]
    return [replace(plan, stage_layers=(cut[0] + 1, *cut[1:-1], cut[-1] + 1)) for cut in cuts]


def fastest(plan: TrainingPlan, model: DeviceModel) -> Prediction | None:
    predictions = [predict(graph_for(plan), cut, model, CLUSTER) for cut in every_cut(plan)]
    feasible = [each for each in predictions if each.status is not Status.INFEASIBLE]
    return min(feasible, key=lambda each: each.iteration_s, default=None)


def pricer_of(plan: TrainingPlan, model: DeviceModel) -> PlanPricer:
    graph = graph_for(plan)
    return PlanPricer(graph, plan, model, CLUSTER, layer_costs(graph, plan.recompute, model, CLUSTER))


SHAPES = st.builds(
    plan_of,
    tp=st.sampled_from([1, 2]),
    micro_batch_size=st.sampled_from([1, 2]),
    recompute=st.sampled_from(list(Recompute)),
    pp=st.integers(2, 4),
    dp=st.sampled_from([1, 2, 8]),
    zero_stage=st.sampled_from([0, 1, 3]),
    global_batch_size=st.sampled_from([16, 24, 64]),
    overlap_gradients=st.booleans(),
)
HOSTS = st.sampled_from([0.0, 2e-5, 7e-5])


@settings(max_examples=40)
@given(plan=SHAPES, host_issue_s=HOSTS)
def test_stages_are_the_best_of_all_cuts(plan: TrainingPlan, host_issue_s: float) -> None:
    model = device_model(host_issue_s=host_issue_s)
    found = best_stages(pricer_of(plan, model), float("inf"))
    wanted = fastest(plan, model)
    assert wanted is not None and found.prediction is not None
    assert found.prediction.iteration_s == pytest.approx(wanted.iteration_s, rel=1e-9)
    assert found.bound_s == pytest.approx(wanted.iteration_s, rel=1e-9)


@settings(max_examples=40)
@given(plan=SHAPES, host_issue_s=HOSTS)
def test_no_cut_beats_the_bound(plan: TrainingPlan, host_issue_s: float) -> None:
    model = device_model(host_issue_s=host_issue_s)
    bound_s = iteration_bound_s(plan, pricer_of(plan, model).costs, overlap_of(plan, model))
    wanted = fastest(plan, model)
    assert wanted is not None
    assert bound_s <= wanted.iteration_s * (1 + 1e-12)
    assert bound_s > 0.5 * wanted.iteration_s or plan.dp > 1  # synchronisation is not in the bound


@settings(max_examples=20)
@given(plan=SHAPES, share=st.floats(0.3, 1.0))
def test_memory_decides_between_cuts(plan: TrainingPlan, share: float) -> None:
    roomy = predict(graph_for(plan), plan, device_model(), CLUSTER)
    model = device_model(memory_bytes=roomy.memory_bytes * share)
    found, wanted = best_stages(pricer_of(plan, model), float("inf")), fastest(plan, model)
    if wanted is None:
        assert found.prediction is None
        assert found.bound_s == float("inf")
    else:
        assert found.prediction is not None
        assert found.prediction.iteration_s == pytest.approx(wanted.iteration_s, rel=1e-9)


def test_too_many_cuts_give_an_answer_and_an_honest_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(pp=4, micro_batch_size=1, global_batch_size=6)
    model = device_model(host_issue_s=0.0)
    monkeypatch.setattr(stages, "MOST_CUTS", 3)
    found, wanted = best_stages(pricer_of(plan, model), float("inf")), fastest(plan, model)
    assert wanted is not None and found.prediction is not None
    assert found.bound_s <= wanted.iteration_s <= found.prediction.iteration_s


def space_of(devices: int, **given: object) -> PlanSpace:
    base = plan_of(global_batch_size=16)
    defaults = {
        "tp_widths": (1, 2),
        "micro_batch_sizes": (1, 2),
        "recompute": (Recompute.NONE, Recompute.FULL),
        "sequence_parallel": (False, True),
        "interleave": (1, 3),
        "zero_stages": (0, 1),
    }
    return PlanSpace(devices=devices, base=base, sequence_length=256, **(defaults | given))  # type: ignore[arg-type]


@pytest.mark.parametrize("devices", [1, 4, 8, 16])
def test_the_search_finds_the_best_plan_and_accounts_for_all(devices: int) -> None:
    space, model = space_of(devices), device_model(host_issue_s=1e-5)
    result = search_plans(space, graph_for, model, CLUSTER, lambda done: None)
    plans = [plan for shape in space.shapes() for plan in space.plans(shape, BLOCKS, CLUSTER)]
    best = min((each for plan in plans if (each := fastest(plan, model))), key=lambda each: each.iteration_s)
    assert result.status is Status.OPTIMAL and result.optimal
    assert result.prediction is not None and result.plan is not None
    assert result.prediction.iteration_s == pytest.approx(best.iteration_s, rel=1e-9)
    assert result.counts.complete and result.counts.space == len(plans) == len(result.points)
    assert result.plan.devices == devices
    again = predict(graph_for(result.plan), result.plan, model, CLUSTER)
    assert again.iteration_s == pytest.approx(result.prediction.iteration_s, rel=1e-12)


def test_nothing_fits_in_no_memory_and_the_reason_is_said() -> None:
    result = search_plans(space_of(4), graph_for, device_model(memory_bytes=1e6), CLUSTER, lambda done: None)
    assert result.status is Status.INFEASIBLE
    assert result.plan is None and not result.optimal
    assert result.counts.infeasible == result.counts.space > 0
    assert "GB" in result.reason


def test_widths_that_the_devices_do_not_have_are_passed_over() -> None:
    cluster = with_devices(CLUSTER, 2)
    wide, narrow = (
        search_plans(space_of(2, tp_widths=widths), graph_for, device_model(), cluster, lambda done: None)
        for widths in ((1, 2, 4), (1, 2))
    )
    assert wide.counts == narrow.counts
    assert wide.prediction == narrow.prediction


def test_a_space_without_plans_is_refused() -> None:
    with pytest.raises(InputError, match="no plan uses 7 devices"):
        search_plans(space_of(7, tp_widths=(2,)), graph_for, device_model(), CLUSTER, lambda done: None)


def test_interleaved_plans_have_equal_chunks_and_whole_rounds() -> None:
    space = space_of(4, interleave=(1, 2, 3))
    plans = [plan for shape in space.shapes() for plan in space.plans(shape, BLOCKS, CLUSTER)]
    chunked = [plan for plan in plans if plan.interleave > 1]
    assert {(plan.pp, plan.interleave) for plan in chunked} == {(2, 3)}
    assert all(plan.micro_batches % plan.pp == 0 for plan in chunked)
    assert len(plans) == len(set(plans))
