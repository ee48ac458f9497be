"""What a plan moves beside its layers' operators, against what its degrees say by hand."""

from dataclasses import replace

import pytest

from Estimator.devices.files import load_device, load_software
from Estimator.devices.operator_cost import DeviceModel
from Estimator.hardware_files import load_cluster
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.device_costs import DeviceCosts
from Estimator.plans.groups import layer_groups
from Estimator.plans.policy import policy_under
from Estimator.plans.pricing import PricedPlan
from Estimator.plans.rates import device_machine
from Estimator.plans.traffic_besides_operators import TrafficBytes, traffic_besides_operators
from tests.builders.training_cases import graph_for, plan_of

SOFTWARE = load_software("megatron_core")


def priced(plan: UniformPlan) -> PricedPlan:
    cluster, model = (
        load_cluster("dgx_a100"),
        DeviceModel(load_device("a100_80gb"), SOFTWARE, "bfloat16"),
    )
    costs = DeviceCosts(model, cluster).layer_costs(
        graph_for(plan), plan.recompute, layer_groups(plan, cluster)
    )
    return PricedPlan(plan, costs, device_machine(model, cluster))


def beside(plan: UniformPlan) -> TrafficBytes:
    return traffic_besides_operators(priced(plan))


def parameters(plan: UniformPlan) -> float:
    """Of the model on all devices of one replica, tied ones as often as they are kept."""
    case = priced(plan)
    held = float(case.sizes.parameters.sum()) - (case.tied_parameters if plan.pp == 1 else 0.0)
    return held * plan.tp


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_replicas_send_what_sharding_says(stage: int) -> None:
    plan = replace(plan_of(micro_batch_size=1, global_batch_size=32, dp=4), zero_stage=stage)
    often, all_of_them = plan.micro_batches, parameters(plan)
    state = policy_under(SOFTWARE, plan).state
    gradient, weight = state.gradient, state.weight
    sent = {
        0: 2 * gradient,
        1: gradient + weight,
        2: often * gradient + weight,
        3: often * (gradient + 2 * weight),
    }
    assert beside(plan).sent == pytest.approx((4 - 1) * all_of_them * sent[stage])


def test_steps_and_added_gradients_pass_memory() -> None:
    alone = plan_of(micro_batch_size=1, global_batch_size=1)
    state = policy_under(SOFTWARE, alone).state
    assert beside(alone) == TrafficBytes(pytest.approx(state.step * parameters(alone)), 0.0)
    added = priced(replace(alone, global_batch_size=4))
    added = replace(
        added, costs=replace(added.costs, accumulation_s=added.costs.accumulation_s + 1.0)
    )
    seconds = 3 * len(
        added.costs.sizes.sequence
    )  # of each layer a second, of all micro-batches but the first
    assert traffic_besides_operators(added).memory - beside(alone).memory == pytest.approx(
        seconds * added.machine.stream_bytes_per_s
    )
    sharded, whole = (
        replace(plan_of(micro_batch_size=1, global_batch_size=4, dp=4), zero_stage=each)
        for each in (1, 0)
    )
    assert beside(whole).memory == pytest.approx(4 * beside(alone).memory)
    assert beside(sharded).memory == pytest.approx(beside(alone).memory)


def test_stages_send_activations_gradients_and_what_they_tie() -> None:
    plan = plan_of(micro_batch_size=1, global_batch_size=8, pp=2)
    case = priced(plan)
    (activations,), (gradients,) = (
        case.crossing.activation_bytes[1:],
        case.crossing.gradient_bytes[1:],
    )
    tied = (
        2 * case.tied_parameters * case.rates.gradient_bytes
    )  # half of it to the other end and back, by each of the two
    assert beside(plan).sent == pytest.approx(8 * (activations + gradients) + tied)
    two = replace(plan, global_batch_size=16, dp=2)
    assert beside(two).sent == pytest.approx(
        2 * beside(plan).sent + parameters(plan) * 2 * case.rates.gradient_bytes
    )
