"""DiLoCo: sites that exchange what they learned every so many iterations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from Estimator.devices.files import load_device, load_software
from Estimator.devices.operator_cost import DeviceModel
from Estimator.hardware_files import load_cluster
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.device_costs import DeviceCosts
from Estimator.plans.groups import layer_groups
from Estimator.plans.iteration import price_iteration
from Estimator.plans.many import evaluate_many
from Estimator.plans.plan import check_plan
from Estimator.plans.rates import device_machine
from Estimator.plans.results import Iteration
from Estimator.plans.uniform_plans import UniformPlans
from GraphExtractor.graph import Recompute
from phaze_common.choices import MomentDtype
from phaze_common.errors import InputError
from tests.conftest import Extract

MODEL = DeviceModel(load_device("h100"), load_software("megatron_core"), "bfloat16")
CLUSTER = load_cluster("dgx_h100")
PLAN = UniformPlan(dp=64, zero_stage=1, global_batch_size=128, overlap_gradients=True)
SITES = replace(PLAN, sites=4, outer_steps=100, site_gbit_per_s=10.0)


@pytest.fixture
def priced(extracted: Extract):  # type: ignore[no-untyped-def]
    graph = extracted("llama2-7b", 1, 4096)

    def price(plan: UniformPlan) -> Iteration:
        costs = DeviceCosts(MODEL, CLUSTER).layer_costs(
            graph, Recompute.NONE, layer_groups(plan, CLUSTER)
        )
        machine = device_machine(MODEL, CLUSTER)
        found = price_iteration(plan, costs, machine)
        many = evaluate_many(UniformPlans.of(plan, overlap_gradients=True), costs, machine)
        assert many.iteration_s[0] == pytest.approx(found.iteration_s, rel=1e-12)
        assert many.memory_bytes[0] == pytest.approx(found.stages[0].memory_bytes, rel=1e-12)
        return found

    return price


def test_an_iteration_bears_its_part_of_the_exchange(priced) -> None:  # type: ignore[no-untyped-def]
    alone, found = priced(PLAN), priced(SITES)
    parameters = found.stages[0].parameters
    # around a ring of four sites, all parameters through a link of 1.25 GB/s, every 100 iterations
    sent_s = 2 * 3 / 4 * parameters * 4 / 1.25e9
    step_s = 24 * parameters / 64 / MODEL.stream_bytes_per_s
    assert found.breakdown.site_communication_s == pytest.approx((sent_s + step_s) / 100)
    more_s = found.iteration_s - alone.iteration_s
    assert more_s == pytest.approx(found.breakdown.site_communication_s)
    assert alone.breakdown.site_communication_s == 0.0
    assert found.breakdown.optimizer_s == pytest.approx(alone.breakdown.optimizer_s)
    state = found.stages[0].parameter_state_bytes - alone.stages[0].parameter_state_bytes
    assert state == pytest.approx(8 * parameters / 64)


def test_fewer_exchanges_of_less_over_more_take_less(priced) -> None:  # type: ignore[no-untyped-def]
    def shown_s(**changes: object) -> float:
        return priced(replace(SITES, **changes)).breakdown.site_communication_s  # type: ignore[arg-type, no-any-return]

    whole_s = shown_s()
    assert shown_s(outer_steps=500) == pytest.approx(whole_s / 5)
    assert shown_s(outer_dtype=MomentDtype.FP8) == pytest.approx(whole_s / 4, rel=0.01)
    assert shown_s(site_gbit_per_s=100.0) == pytest.approx(whole_s / 10, rel=0.01)
    assert shown_s(sites=2) == pytest.approx(whole_s * (1 / 2) / (3 / 4), rel=0.01)
    # all devices of a site share its link, however few hold a shard
    groups = shown_s(shard_groups=8)
    assert groups == pytest.approx(whole_s, rel=0.01)
    deeper = priced(replace(SITES, dp=16, pp=4)).breakdown.site_communication_s
    assert whole_s < deeper < 1.5 * whole_s  # the slowest stage has more than its part


@pytest.mark.parametrize("given", [{"sites": 0}, {"outer_steps": 0}, {"site_gbit_per_s": 0.0}])
def test_what_is_no_exchange_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(InputError, match=next(iter(given))):
        check_plan(replace(SITES, **given))  # type: ignore[arg-type]
