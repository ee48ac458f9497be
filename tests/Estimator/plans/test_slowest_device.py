"""What waiting for the slowest of several devices costs, and what a host does between two
iterations."""

from dataclasses import replace

import numpy as np
import pytest

from Estimator.chips.technology import Quantity
from Estimator.devices.files import load_device, load_software
from Estimator.devices.operator_cost import DeviceModel
from Estimator.hardware_files import load_cluster
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.device_costs import DeviceCosts
from Estimator.plans.groups import layer_groups
from Estimator.plans.iteration import price_iteration
from Estimator.plans.rates import Machine, device_machine, straggler_excess
from Estimator.plans.results import Iteration
from phaze_common.choices import Recompute
from tests.builders.training_cases import graph_for, plan_of

CLUSTER, DEVICE = load_cluster("dgx_a100"), load_device("a100_80gb")
SOFTWARE = load_software("megatron_2022")
MODEL = DeviceModel(DEVICE, SOFTWARE, "bfloat16")
MACHINE = device_machine(MODEL, CLUSTER)
ALIKE = replace(MACHINE, variation=0.0)


def priced(plan: UniformPlan, machine: Machine, model: DeviceModel = MODEL) -> Iteration:
    costs = DeviceCosts(model, CLUSTER).layer_costs(
        graph_for(plan), plan.recompute, layer_groups(plan, CLUSTER)
    )
    return price_iteration(plan, costs, machine)


def arithmetic_s(plan: UniformPlan) -> float:
    """Seconds that arithmetic takes of a micro-batch in all layers."""
    costs = DeviceCosts(MODEL, CLUSTER).layer_costs(
        graph_for(plan), plan.recompute, layer_groups(plan, CLUSTER)
    )
    layers = list(costs.sizes.sequence)
    return float(
        sum(
            each.arithmetic_s[0][layers].sum()
            for each in (costs.forward, costs.recompute, costs.backward)
        )
    )


@pytest.mark.parametrize("devices", [2, 5, 10, 100, 1000])
def test_the_slowest_is_the_largest_of_so_many_normal_times(devices: int) -> None:
    drawn = (
        np.random.default_rng(0)
        .normal(1.0, MACHINE.variation, (20_000, devices))
        .max(axis=1)
        .mean()
    )
    assert 1.0 + float(straggler_excess(MACHINE, devices)) == pytest.approx(
        drawn, abs=0.05 * MACHINE.variation
    )


def test_one_device_waits_for_none_and_more_wait_longer() -> None:
    longer = straggler_excess(MACHINE, np.array([1, 2, 8, 64, 4096]))
    assert longer[0] == 0.0 and (np.diff(longer) > 0.0).all() and longer[-1] < 4 * MACHINE.variation
    assert straggler_excess(MACHINE, np.array([0, 2])).tolist() == [0.0, longer[1]]  # none to wait
    alone = replace(plan_of(), dp=1, global_batch_size=8)
    assert priced(alone, MACHINE) == priced(alone, ALIKE)


@pytest.mark.parametrize("recompute", list(Recompute))
@pytest.mark.parametrize("dp", [2, 8])
def test_arithmetic_takes_longer_and_nothing_else_does(dp: int, recompute: Recompute) -> None:
    plan = replace(
        plan_of(), dp=dp, global_batch_size=8 * dp, overlap_gradients=False, recompute=recompute
    )
    model = DeviceModel(
        DEVICE, replace(SOFTWARE, host_issue=Quantity(0.0, "s", "test")), "bfloat16"
    )
    varied, alike = (priced(plan, each, model) for each in (MACHINE, ALIKE))
    longer_s = plan.micro_batches * arithmetic_s(plan) * float(straggler_excess(MACHINE, dp))
    assert varied.iteration_s - alike.iteration_s == pytest.approx(longer_s, rel=1e-9)
    of_products = varied.breakdown.arithmetic_s + varied.breakdown.recompute_s
    assert (
        of_products - alike.breakdown.arithmetic_s - alike.breakdown.recompute_s
        == pytest.approx(longer_s, rel=1e-9)
    )
    assert varied.breakdown.memory_bound_s == alike.breakdown.memory_bound_s


def test_what_the_host_does_between_iterations_is_added_once() -> None:
    plan = replace(plan_of(), dp=2, pp=2, global_batch_size=16)
    more = replace(SOFTWARE, between_iterations=Quantity(0.25, "s", "test"))
    none, some = (
        priced(plan, replace(MACHINE, software=each))
        for each in (replace(SOFTWARE, between_iterations=None), more)
    )
    assert some.iteration_s - none.iteration_s == pytest.approx(0.25, rel=1e-12)
    assert some.breakdown.launch_s - none.breakdown.launch_s == pytest.approx(0.25, rel=1e-9)
