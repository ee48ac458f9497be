"""What runs beside the exchange of tokens with experts, and what of it shows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Estimator.hardware_files import load_cluster
from Estimator.network.dispatchers import Routing
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.device_costs import DeviceCosts, routing_of
from Estimator.plans.groups import DeviceGroups, GroupNetwork, Rectangle, layer_groups
from Estimator.plans.many import evaluate_many
from Estimator.plans.pricing import PricedPlan
from Estimator.plans.rates import device_machine, exchange_rates
from Estimator.plans.results import Breakdown, Iteration
from Estimator.plans.uniform_plans import UniformPlans
from GraphExtractor.graph import CollectiveKind, Recompute
from phaze_common.choices import Dispatcher, ExpertOverlap
from tests.builders.training_cases import device_model, expert_graph_for, iteration_of, plan_of

CLUSTER = load_cluster("dgx_a100")
MODEL = device_model(host_issue_s=0.0)
SLOW = replace(
    CLUSTER,
    tiers=tuple(
        replace(tier, bandwidth_bytes_per_s=tier.bandwidth_bytes_per_s / 200)
        for tier in CLUSTER.tiers
    ),
)  # where there is more to exchange than to compute


def plan_with(**given: object) -> UniformPlan:
    usual = {"ep": 4, "dp": 4, "global_batch_size": 64, "overlap_gradients": False}
    return plan_of(eager=False, **(usual | given))


def priced(plan: UniformPlan, cluster=CLUSTER) -> Iteration:  # type: ignore[no-untyped-def]
    return iteration_of(expert_graph_for(plan), plan, MODEL, cluster)


def exchanged_s(breakdown: Breakdown) -> float:
    return breakdown.expert_communication_s + breakdown.hidden_expert_communication_s


@pytest.mark.parametrize("cluster", [CLUSTER, SLOW])
@pytest.mark.parametrize("dispatcher", list(Dispatcher))
@pytest.mark.parametrize("overlap", [ExpertOverlap.BATCHES, ExpertOverlap.DELAYED])
def test_what_is_hidden_is_what_the_iteration_gains(
    overlap: ExpertOverlap,
    dispatcher: Dispatcher,
    cluster,  # type: ignore[no-untyped-def]
) -> None:
    plain = priced(plan_with(dispatcher=dispatcher, overlap_experts=ExpertOverlap.NONE), cluster)
    beside = priced(plan_with(dispatcher=dispatcher, overlap_experts=overlap), cluster)
    hidden_s = beside.breakdown.hidden_expert_communication_s
    assert hidden_s > 0.0 and plain.breakdown.hidden_expert_communication_s == 0.0
    assert exchanged_s(beside.breakdown) == pytest.approx(exchanged_s(plain.breakdown))
    assert beside.iteration_s == pytest.approx(plain.iteration_s - hidden_s)


def test_of_one_micro_batch_nothing_hides() -> None:
    alone = plan_with(global_batch_size=4, overlap_experts=ExpertOverlap.BATCHES)
    assert priced(alone) == priced(replace(alone, overlap_experts=ExpertOverlap.NONE))


def test_without_devices_for_experts_nothing_is_exchanged() -> None:
    plan = plan_with(ep=1, dispatcher=Dispatcher.DEEPEP, overlap_experts=ExpertOverlap.BATCHES)
    assert priced(plan) == priced(plan_with(ep=1))


def test_the_first_forward_and_the_last_backward_pass_are_beside_none() -> None:
    """On one stage, where exchanges are short beside passes: but for these all of the exchange
    hides, save for the processors that it takes."""
    plan = plan_with(dispatcher=Dispatcher.DEEPEP, overlap_experts=ExpertOverlap.BATCHES)
    found, many = priced(plan).breakdown, plan.micro_batches
    taken = 20 / 108  # processors that DeepEP takes, of those of an A100
    hidden = found.hidden_expert_communication_s / exchanged_s(found)
    assert hidden == pytest.approx((1 - 1 / many) * (1 - taken))


def test_more_to_exchange_than_to_compute_shows() -> None:
    """Forward exchanges beside backward passes and backward ones beside forward passes."""
    plan = plan_with(overlap_experts=ExpertOverlap.BATCHES, dispatcher=Dispatcher.DEEPEP)
    graph = expert_graph_for(plan)
    costs = DeviceCosts(MODEL, SLOW).layer_costs(graph, plan.recompute, layer_groups(plan, SLOW))
    forward, back = (
        each.device_s[0][costs.sizes.distinct].sum() - each.expert_s[0][costs.sizes.distinct].sum()
        for each in (costs.forward, costs.backward)
    )
    ahead, behind = (
        each.expert_s[0][costs.sizes.distinct].sum() for each in (costs.forward, costs.backward)
    )
    assert ahead > back and behind > forward
    taken = 20 / 108
    shown_s = max(ahead - back, taken * ahead) + max(behind - forward, taken * behind)
    many = plan.micro_batches
    assert priced(plan, SLOW).breakdown.expert_communication_s == pytest.approx(
        (many - 1) * shown_s + ahead + behind
    )


def test_delayed_weight_gradients_hide_no_less_where_forward_passes_are_short() -> None:
    batches, delayed = (
        priced(plan_with(overlap_experts=each), SLOW)
        for each in (ExpertOverlap.BATCHES, ExpertOverlap.DELAYED)
    )
    assert delayed.iteration_s <= batches.iteration_s * (1 + 1e-9)


def test_shared_experts_hide_at_most_what_they_take() -> None:
    plain, beside = (
        priced(plan_with(overlap_experts=each), SLOW)
        for each in (ExpertOverlap.NONE, ExpertOverlap.SHARED)
    )
    gained_s = plain.iteration_s - beside.iteration_s
    shared = [
        operator
        for layer in expert_graph_for(plan_with()).layers
        for operator in (*layer.forward.operators, *layer.backward.operators)
        if ".shared_expert" in operator.name
    ]
    blocks = 3  # with experts
    many = plan_with().micro_batches
    takes_s = many * blocks * sum(MODEL.operator_time(each).device_s for each in shared)
    assert 0 < gained_s <= takes_s * (1 + 1e-9)


def test_a_pipeline_that_fills_and_drains_exchanges_without_hiding() -> None:
    """The stages' work being alike, pp passes of each direction one after another show whole."""
    plan = plan_with(pp=2, overlap_experts=ExpertOverlap.BATCHES, dispatcher=Dispatcher.DEEPEP)
    for batch in (8, 64, 640):
        one = replace(plan, global_batch_size=batch)
        found = priced(one).breakdown
        hidden = found.hidden_expert_communication_s / exchanged_s(found)
        many = one.micro_batches
        assert hidden == pytest.approx((1 - 2 / (many + 1)) * (1 - 20 / 108))
    assert exchange_rates(plan, device_machine(MODEL, CLUSTER)).beside


def test_all_forward_passes_first_leave_none_of_both_kinds_together() -> None:
    plan = plan_with(pp=2, gpipe=True, overlap_experts=ExpertOverlap.BATCHES)
    assert priced(plan).breakdown.hidden_expert_communication_s == 0.0


@settings(max_examples=20)
@given(
    overlap=st.sampled_from(list(ExpertOverlap)),
    dispatcher=st.sampled_from(list(Dispatcher)),
    rows=st.lists(
        st.tuples(
            st.sampled_from([1, 2, 4]),
            st.sampled_from([4, 8, 12]),
            st.integers(0, 3),
            st.integers(1, 9),
            st.booleans(),
        ),
        min_size=1,
        max_size=6,
    ),
)
def test_many_plans_cost_what_they_cost_alone(
    overlap: ExpertOverlap, dispatcher: Dispatcher, rows: list[tuple[int, int, int, int, bool]]
) -> None:
    shape = plan_with(overlap_experts=overlap, dispatcher=dispatcher, recompute=Recompute.SELECTIVE)
    columns = [(pp, dp, zero, 1, many * dp, False, beside) for pp, dp, zero, many, beside in rows]
    plans = UniformPlans(shape, *map(np.array, zip(*columns, strict=True)))
    graph, machine = expert_graph_for(shape), device_machine(MODEL, CLUSTER)
    costs = DeviceCosts(MODEL, CLUSTER).layer_costs(
        graph, shape.recompute, layer_groups(plans.plan(0), CLUSTER)
    )
    found = evaluate_many(plans, costs, machine)
    for index in range(len(plans)):
        alone = PricedPlan(plans.plan(index), costs, machine).iteration_s
        assert found.iteration_s[index] == pytest.approx(alone, rel=1e-9)


def test_graphs_show_to_how_many_experts_tokens_go() -> None:
    assert routing_of(expert_graph_for(plan_with())) == Routing(2.0)
    assert routing_of(expert_graph_for(plan_with(tp=2, sequence_parallel=True))) == Routing(2.0)
    assert routing_of(expert_graph_for(plan_with(ep=1))) == Routing()


def test_gathering_all_tokens_costs_what_its_collectives_do() -> None:
    network = GroupNetwork(DeviceGroups((Rectangle((8, 2)),), (0,)), CLUSTER)
    rows_bytes, routing = 1e8, Routing(8.0)
    gathered_bytes = rows_bytes / 8 * 16
    both = CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER
    expected_s = sum(network.seconds(kind, gathered_bytes) for kind in both) / 2
    found_s = network.exchange_s(rows_bytes, Dispatcher.ALLGATHER, routing, in_fp8=False)
    assert found_s == pytest.approx(expected_s)


@pytest.mark.parametrize("dispatcher", list(Dispatcher))
def test_in_fp8_half_of_the_bytes_are_about_half(dispatcher: Dispatcher) -> None:
    cluster = replace(CLUSTER, library=None)  # which copies when it gathers
    network = GroupNetwork(DeviceGroups((Rectangle((8, 4)),), (0,)), cluster)

    def of(payload_bytes: float, *, in_fp8: bool) -> float:
        return network.exchange_s(payload_bytes, dispatcher, Routing(8.0, 4), in_fp8=in_fp8)

    long_bytes = 1e11  # where starts count for nothing
    ratio = of(long_bytes, in_fp8=True) / of(long_bytes, in_fp8=False)
    assert ratio == pytest.approx((1 + (1 + 4 / 128) / 2) / 2, rel=1e-3)
