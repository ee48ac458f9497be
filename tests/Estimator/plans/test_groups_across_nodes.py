"""Groups that start in the middle of a node, and numbers that must count what is really trained."""

import numpy as np
import pytest

from Estimator.hardware_files import load_cluster
from Estimator.network.collectives import collective_s
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import layer_groups
from Estimator.plans.policy import training_policy
from Estimator.plans.rates import Messages
from Estimator.plans.uniform_plans import UniformPlans
from GraphExtractor.graph import CollectiveKind
from phaze_common.choices import GroupOrder
from tests.builders.training_cases import device_model, graph_for, iteration_of, plan_of

CLUSTER = load_cluster("dgx_a100")
GIGABYTE = 1e9


def test_a_group_across_a_node_boundary_costs_more_than_one_inside() -> None:
    inside, across = (
        collective_s(CollectiveKind.ALL_REDUCE, GIGABYTE, 3, 2, CLUSTER, first) for first in (0, 6)
    )
    assert across > 5 * inside  # devices 6, 8 and 10: one port of the first node


def test_aligned_groups_cost_the_same_wherever_they_are() -> None:
    for size, stride in [(8, 1), (4, 2), (16, 1), (32, 8), (2, 4)]:
        first, later = (
            collective_s(CollectiveKind.ALL_GATHER, GIGABYTE, size, stride, CLUSTER, start)
            for start in (0, 64)
        )
        assert later == first


def test_on_a_network_of_one_tier_the_groups_of_all_plans_of_a_shape_cost_the_same() -> None:
    flat = load_cluster("phaze_icml24")
    shape = plan_of(tp=2, pp=1, dp=1, ep=4, global_batch_size=96)
    pp, dp = (each.ravel() for each in np.meshgrid(np.arange(1, 7), 4 * np.arange(1, 5)))
    inner, none = np.arange(len(pp)) % 2 == 0, np.zeros_like(pp)
    batches = np.full(len(pp), 96)
    plans = UniformPlans(shape, pp, dp, none, np.ones_like(pp), batches, inner, none > 0)
    groups = {layer_groups(plans.plan(place), flat) for place in range(len(plans))}
    assert set(plans.by_groups(flat)) == groups
    assert len(groups) == 1
    assert len(plans.by_groups(CLUSTER)) > 1


def test_blocks_counted_one_by_one_agree_with_the_closed_form() -> None:
    """A group of a whole node's stride that starts one device later sees the same blocks."""
    for size, stride in [(16, 8), (4, 4), (64, 2), (8, 8)]:
        aligned, shifted = (
            collective_s(CollectiveKind.ALL_REDUCE, GIGABYTE, size, stride, CLUSTER, start)
            for start in (0, 1)
        )
        assert shifted == pytest.approx(aligned)


def test_the_slowest_replica_sets_the_price_of_a_message() -> None:
    """tp 2, pp 3: replica 1 holds devices 6 to 11, so its first message leaves the node of replica
    0's."""
    plan = plan_of(
        tp=2,
        pp=3,
        dp=5,
        global_batch_size=5,
        group_order=GroupOrder.PIPELINE_INNER,
        sequence_parallel=True,
    )
    alone = plan_of(
        tp=2,
        pp=3,
        dp=1,
        global_batch_size=5,
        group_order=GroupOrder.PIPELINE_INNER,
        sequence_parallel=True,
    )

    def first_message_s(plan: UniformPlan) -> float:
        messages = Messages(plan, CLUSTER)
        return float(messages.seconds(np.full(2, 1e7), messages.boundary_tiers())[0])

    assert first_message_s(plan) > 5 * first_message_s(alone)


def test_samples_that_fill_up_the_last_micro_batches_are_not_counted() -> None:
    whole, ragged = (
        plan_of(micro_batch_size=1, global_batch_size=batch, dp=4) for batch in (12, 9)
    )
    predicted = [
        iteration_of(graph_for(plan), plan, device_model(), CLUSTER) for plan in (whole, ragged)
    ]
    assert predicted[0].iteration_s == pytest.approx(predicted[1].iteration_s)
    assert predicted[1].samples_per_s * predicted[1].iteration_s == pytest.approx(9)
    assert predicted[1].model_flops_utilization == pytest.approx(
        predicted[0].model_flops_utilization * 9 / 12
    )


@pytest.mark.parametrize(("stage", "bytes_per_parameter"), [(0, 0), (1, 0), (2, 2), (3, 6)])
def test_a_sharded_layer_at_work_is_whole(stage: int, bytes_per_parameter: float) -> None:
    (own, beside), wider = training_policy("adam", stage).whole_bytes
    assert own + beside == bytes_per_parameter and not wider.any()
