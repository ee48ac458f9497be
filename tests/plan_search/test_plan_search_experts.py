"""Plans of a model with blocks of two kinds, whose experts may be divided, against brute force over every plan and every cut."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from Solver.plan_search.run import PlanRun
from Solver.plan_search.search import search_plans
from Solver.plan_search.stages import best_stages
from Studies.adapters import plan_search
from training_cases import device_model, expert_graph_for, plan_of

from Common.errors import InputError
from Estimator.devices.operator_cost import DeviceModel
from Estimator.hardware_files import load_cluster
from GraphExtractor.graph import Recompute
from Plans.groups import expert_groups
from Plans.iteration import predict
from Plans.layer_costs import layer_costs
from Plans.plan import TrainingPlan
from Plans.pricing import PlanPricer, overlap_of
from Plans.results import Prediction, Status
from Reporter.plan_search_tables import plan_search_tables
from Solver.plan_search import stages
from Solver.plan_search.bounds import iteration_bound_s
from Solver.plan_search.space import PlanSpace
from Studies.resolve import resolve

CLUSTER = load_cluster("dgx_a100")
BLOCKS = 4  # one dense, then three with experts


def every_cut(plan: TrainingPlan) -> list[TrainingPlan]:
    if plan.interleave > 1 or plan.pp == 1:
        return [plan]
    counts = [range(1 if 0 < stage < plan.pp - 1 else 0, BLOCKS + 1) for stage in range(plan.pp)]
    cuts = [cut for cut in product(*counts) if sum(cut) == BLOCKS]
    return [replace(plan, stage_layers=(cut[0] + 1, *cut[1:-1], cut[-1] + 1)) for cut in cuts]


def fastest(plan: TrainingPlan, model: DeviceModel) -> Prediction | None:
    predictions = [predict(expert_graph_for(plan), cut, model, CLUSTER) for cut in every_cut(plan)]
    feasible = [each for each in predictions if each.status is not Status.INFEASIBLE]
    return min(feasible, key=lambda each: each.iteration_s, default=None)


def pricer_of(plan: TrainingPlan, model: DeviceModel) -> PlanPricer:
    graph = expert_graph_for(plan)
    return PlanPricer(graph, plan, model, CLUSTER, layer_costs(graph, plan.recompute, model, CLUSTER, expert_groups(plan)))


PLANS = st.builds(
    plan_of,
    eager=st.just(False),
    recompute=st.sampled_from(list(Recompute)),
    pp=st.integers(2, 4),
    dp=st.sampled_from([4, 8]),
    ep=st.sampled_from([1, 4]),
    zero_stage=st.sampled_from([0, 1, 3]),
    global_batch_size=st.sampled_from([16, 24, 64]),
    overlap_gradients=st.booleans(),
)


@settings(max_examples=30)
@given(plan=PLANS, host_issue_s=st.sampled_from([0.0, 2e-5]))
def test_stages_are_the_best_of_all_cuts_and_none_beats_the_bound(plan: TrainingPlan, host_issue_s: float) -> None:
    model = device_model(host_issue_s=host_issue_s)
    pricer = pricer_of(plan, model)
    found, wanted = best_stages(pricer, float("inf")), fastest(plan, model)
    assert wanted is not None and found.prediction is not None
    assert found.prediction.iteration_s == pytest.approx(wanted.iteration_s, rel=1e-9)
    assert found.bound_s == pytest.approx(wanted.iteration_s, rel=1e-9)
    assert iteration_bound_s(plan, pricer.costs, overlap_of(plan, model)) <= wanted.iteration_s * (1 + 1e-12)


@settings(max_examples=20)
@given(plan=PLANS, share=st.floats(0.3, 1.0))
def test_memory_decides_between_cuts(plan: TrainingPlan, share: float) -> None:
    roomy = predict(expert_graph_for(plan), plan, device_model(), CLUSTER)
    model = device_model(memory_bytes=roomy.memory_bytes * share)
    found, wanted = best_stages(pricer_of(plan, model), float("inf")), fastest(plan, model)
    assert (found.prediction is None) == (wanted is None)
    if found.prediction is not None and wanted is not None:
        assert found.prediction.iteration_s == pytest.approx(wanted.iteration_s, rel=1e-9)


def test_too_many_cuts_give_an_answer_and_an_honest_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(eager=False, pp=3, global_batch_size=6)
    model = device_model(host_issue_s=0.0)
    monkeypatch.setattr(stages, "MOST_CUTS", 2)
    found, wanted = best_stages(pricer_of(plan, model), float("inf")), fastest(plan, model)
    assert wanted is not None and found.prediction is not None
    assert found.bound_s <= wanted.iteration_s <= found.prediction.iteration_s


def space_of(devices: int, **given: object) -> PlanSpace:
    base = plan_of(eager=False, global_batch_size=16)
    defaults = {
        "tp_widths": (1,),
        "ep_degrees": (1, 2, 4),
        "micro_batch_sizes": (1,),
        "recompute": (Recompute.NONE, Recompute.FULL),
        "sequence_parallel": (False,),
        "interleave": (1, 2),
        "zero_stages": (0, 1),
    }
    return PlanSpace(devices=devices, base=base, sequence_length=256, **(defaults | given))  # type: ignore[arg-type]


@pytest.mark.parametrize(("devices", "gigabytes"), [(4, 80), (16, 80), (8, 4.0)])
def test_the_search_finds_the_best_plan_and_accounts_for_all(devices: int, gigabytes: float) -> None:
    space, model = space_of(devices), device_model(memory_bytes=gigabytes * 1e9, host_issue_s=1e-5)
    result = search_plans(space, expert_graph_for, model, CLUSTER, lambda done: None)
    plans = [plan for shape in space.shapes() for plan in space.plans(shape, BLOCKS, CLUSTER)]
    assert {plan.ep for plan in plans} == {1, 2, 4} and all(plan.dp % plan.ep == 0 for plan in plans)
    best = min((each for plan in plans if (each := fastest(plan, model))), key=lambda each: each.iteration_s)
    assert result.status is Status.OPTIMAL and result.optimal
    assert result.prediction is not None
    assert result.prediction.iteration_s == pytest.approx(best.iteration_s, rel=1e-9)
    assert result.counts.complete and result.counts.space == len(plans) == len(result.points)


def test_a_small_memory_divides_the_experts() -> None:
    """A device with all experts needs 3.0 GB, one with a quarter of them 2.5 GB."""
    whole, divided = (
        best_stages(pricer_of(plan_of(eager=False, dp=8, ep=ep, global_batch_size=16), device_model(2.7e9)), float("inf"))
        for ep in (1, 4)
    )
    assert whole.prediction is None and "parameters alone need 2.9 GB" in whole.reason
    assert divided.prediction is not None


MIXTRAL = {"model": "mixtral-8x7b", "device": "h100", "devices": 32}


def test_degrees_that_divide_experts_and_devices_are_searched() -> None:
    assert plan_search(resolve({}, MIXTRAL)).space.ep_degrees == (1, 2, 4, 8)
    assert plan_search(resolve({}, MIXTRAL | {"devices": 20})).space.ep_degrees == (1, 2, 4)
    assert plan_search(resolve({}, MIXTRAL | {"ep": "8"})).space.ep_degrees == (8,)
    assert plan_search(resolve({}, MIXTRAL | {"model": "llama2"})).space.ep_degrees == (1,)
    assert all(shape.tp * shape.ep <= 32 for shape in plan_search(resolve({}, MIXTRAL)).space.shapes())


@pytest.mark.parametrize(("given", "says"), [({"ep": "3"}, "8 experts"), ({"model": "llama2", "ep": "2"}, "no experts")])
def test_degrees_that_do_not_divide_the_experts_are_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        plan_search(resolve({}, MIXTRAL | given))


def test_the_table_of_plans_shows_the_degree() -> None:
    request = plan_search(resolve({}, MIXTRAL))
    result = search_plans(space_of(4), expert_graph_for, device_model(), CLUSTER, lambda done: None)
    shown = plan_search_tables(PlanRun(request, result, ()))[-2]
    assert "ep" in [str(column.header) for column in shown.columns]
