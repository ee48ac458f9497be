"""The breakdown of an iteration with forward and backward passes apart."""

from dataclasses import fields

import pytest
from test_iteration import PLANS

from Estimator.hardware_files import load_cluster
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.device_costs import DeviceCosts
from Estimator.plans.directions import DirectedPart, directed_parts
from Estimator.plans.groups import layer_groups
from Estimator.plans.iteration import price_iteration
from Estimator.plans.pricing import PricedPlan
from Estimator.plans.rates import device_machine
from Estimator.plans.results import Breakdown, Iteration
from GraphExtractor.graph import Recompute
from tests.builders.training_cases import device_model, graph_for, plan_of


def directed(
    plan: UniformPlan, host_issue_s: float = 0.0
) -> tuple[dict[str, DirectedPart], Iteration, int]:
    """Parts by name, the iteration, and the stage they are told of."""
    model, cluster = device_model(host_issue_s=host_issue_s), load_cluster("dgx_a100")
    costs = DeviceCosts(model, cluster).layer_costs(
        graph_for(plan), plan.recompute, layer_groups(plan, cluster)
    )
    machine = device_machine(model, cluster)
    iteration, priced = price_iteration(plan, costs, machine), PricedPlan(plan, costs, machine)
    parts = directed_parts(priced, iteration.breakdown)
    return {part.name: part for part in parts}, iteration, priced.busiest_stage


@pytest.mark.parametrize("host_issue_s", [0.0, 70e-6])
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_directions_add_up_to_every_part_and_to_the_passes_of_the_stage(
    plan: UniformPlan, host_issue_s: float
) -> None:
    parts, iteration, stage = directed(plan, host_issue_s)
    exposed = [field.name for field in fields(Breakdown) if not field.name.startswith("hidden_")]
    assert list(parts) == [name.removesuffix("_s") for name in exposed]
    for name, part in parts.items():
        assert part.total_s == pytest.approx(
            getattr(iteration.breakdown, f"{name}_s"), rel=1e-12, abs=1e-18
        )
        assert min(part.forward_s, part.backward_s, part.neither_s) >= -1e-15
    passes = [part for name, part in parts.items() if name != "pipeline_communication"]
    report, many = iteration.stages[stage], plan.micro_batches
    assert sum(part.forward_s for part in passes) == pytest.approx(
        many * report.forward_s, rel=1e-9
    )
    assert sum(part.backward_s for part in passes) == pytest.approx(
        many * report.backward_s, rel=1e-9
    )


def test_work_is_where_it_happens() -> None:
    parts, _, _ = directed(
        plan_of(
            micro_batch_size=1, global_batch_size=16, tp=2, pp=2, dp=2, recompute=Recompute.FULL
        )
    )
    assert parts["recompute"].forward_s == 0 and parts["recompute"].backward_s > 0
    assert parts["bubble"].forward_s == parts["optimizer"].backward_s == 0
    assert parts["bubble"].neither_s > 0 and parts["optimizer"].neither_s > 0
    assert parts["arithmetic"].backward_s == pytest.approx(
        2 * parts["arithmetic"].forward_s, rel=0.2
    )
    both = parts["pipeline_communication"]
    assert both.forward_s == pytest.approx(both.backward_s) and both.forward_s > 0
    kept, _, _ = directed(plan_of(micro_batch_size=1, global_batch_size=16, tp=2, pp=2, dp=2))
    sent, once = parts["tensor_communication"], kept["tensor_communication"]
    assert (
        sent.forward_s == once.forward_s and sent.backward_s > 1.3 * once.backward_s
    )  # recomputation sends again


def test_gathers_of_weights_are_in_both_passes_and_gradients_that_wait_in_neither() -> None:
    gathered, _, _ = directed(
        plan_of(micro_batch_size=1, global_batch_size=32, dp=16, zero_stage=3)
    )
    waiting, _, _ = directed(plan_of(micro_batch_size=1, global_batch_size=32, dp=16))
    data = gathered["data_communication"]
    assert data.backward_s > data.forward_s > 0 and data.neither_s == pytest.approx(0, abs=1e-15)
    late = waiting["data_communication"]
    assert late.forward_s == late.backward_s == 0 and late.neither_s > 0
