"""Nothing from nothing: what only acts over a group of devices changes no time and no memory where
the group is one device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from Estimator.chips.technology import Quantity
from Estimator.devices.files import load_device, load_software
from Estimator.devices.operator_cost import DeviceModel
from Estimator.devices.software import Sharding, Software
from Estimator.hardware_files import load_cluster
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.device_costs import DeviceCosts
from Estimator.plans.groups import layer_groups
from Estimator.plans.many import evaluate_many
from Estimator.plans.rates import device_machine
from Estimator.plans.results import Iteration
from Estimator.plans.uniform_plans import UniformPlans
from GraphExtractor.graph import ModelGraph, Recompute
from phaze_common.choices import GroupOrder, TensorLayout
from tests.builders.training_cases import expert_graph_for, graph_for, iteration_of, plan_of

CLUSTER = load_cluster("dgx_a100")
FRAMEWORK = load_software("pytorch_fsdp")


@dataclass(frozen=True)
class Alone:
    """A plan with one device along an axis, and what acts over that axis alone: changes of the plan
    and of the software."""

    axis: str
    plan: UniformPlan
    plans: tuple[Mapping[str, Any], ...] = ()
    software: tuple[Mapping[str, Any], ...] = ()
    experts: bool = False


def quantity(value: float, unit: str) -> Quantity:
    return Quantity(value, unit, "test")


COSTLY = Sharding(
    quantity(0.1, "fraction"), quantity(50.0, "bytes")
)  # gathers that hide little and copy much
SHARDED = tuple(
    {"zero_stage": stage, "overlap_gradients": overlap}
    for stage in range(4)
    for overlap in (False, True)
)
ORDERS = tuple(
    {"group_order": order} for order in (GroupOrder.DATA_INNER, GroupOrder.PIPELINE_INNER)
)
CASES = (
    Alone(
        "copies",
        plan_of(tp=2, pp=2, micro_batch_size=1, global_batch_size=8),
        SHARDED,
        ({"sharding": COSTLY}, {"overlap_gradients": False}, {"reduces_all": True}),
    ),
    Alone(
        "copies of one stage", plan_of(micro_batch_size=1, global_batch_size=4), (*SHARDED, *ORDERS)
    ),
    Alone(
        "copies, with the model recomputed",
        plan_of(recompute=Recompute.FULL, global_batch_size=4),
        SHARDED,
    ),
    Alone(
        "tp",
        plan_of(pp=2, dp=2, micro_batch_size=1, global_batch_size=8),
        (
            {"sequence_parallel": True},
            {"overlap_tensor": True},
            {"overlap_tensor": True, "sequence_parallel": True},
        ),
        ({"overlap_tensor": True},),
    ),
    Alone("dp", plan_of(tp=2, pp=2, micro_batch_size=1, global_batch_size=8), ORDERS),
    Alone(
        "pp",
        plan_of(tp=2, dp=2, micro_batch_size=1, global_batch_size=8),
        (*ORDERS, {"gpipe": True}),
        ({"overlap_pipeline": True}, {"whole_warm_up": True}),
    ),
    Alone(
        "interleave",
        plan_of(tp=2, pp=2, dp=2, micro_batch_size=1, global_batch_size=4),
        (),
        ({"overlap_pipeline": True}, {"whole_warm_up": True}),
    ),
    Alone(
        "micro-batches",
        plan_of(tp=2, dp=2, micro_batch_size=1, global_batch_size=2),
        (),
        ({"accumulation": quantity(100.0, "bytes")},),
    ),
    Alone(
        "ep",
        plan_of(eager=False, micro_batch_size=1, global_batch_size=4),
        SHARDED,
        ({"sharding": COSTLY},),
        experts=True,
    ),
    Alone(
        "tp2",
        plan_of(eager=False, micro_batch_size=1, global_batch_size=4),
        ({"layout": TensorLayout.TWO_D},),
    ),
)


def priced(alone: Alone, plan: UniformPlan, software: Software) -> Iteration:
    return iteration_of(
        graph(alone, plan),
        plan,
        DeviceModel(load_device("a100_80gb"), software, "float16"),
        CLUSTER,
    )


def graph(alone: Alone, plan: UniformPlan) -> ModelGraph:
    return expert_graph_for(plan) if alone.experts else graph_for(plan)


def numbers(record: object) -> Iterator[float]:
    if isinstance(record, Mapping):
        for value in record.values():
            yield from numbers(value)
    elif isinstance(record, tuple | list):
        for value in record:
            yield from numbers(value)
    elif isinstance(record, int | float):
        yield float(record)


@pytest.mark.parametrize("alone", CASES, ids=lambda case: case.axis)
def test_policies_over_one_device_change_nothing(alone: Alone) -> None:
    """Neither times nor bytes, in any of the parts, and alike where many plans are priced at
    once."""
    usual = list(numbers(asdict(priced(alone, alone.plan, FRAMEWORK))))
    changes = list(product(({}, *alone.plans), ({}, *alone.software)))
    assert len(changes) > 1
    for of_plan, of_software in changes:
        found = priced(
            alone, replace(alone.plan, **dict(of_plan)), replace(FRAMEWORK, **dict(of_software))
        )
        assert list(numbers(asdict(found))) == pytest.approx(usual, rel=1e-12), (
            of_plan,
            of_software,
        )


@pytest.mark.parametrize("overlap", [False, True])
def test_experts_with_one_copy_each_are_not_sharded(overlap: bool) -> None:
    """Of what ep divides among all copies of the rest nothing more is held while a block is at
    work."""
    plan = plan_of(
        eager=False, ep=8, dp=8, micro_batch_size=1, global_batch_size=8, overlap_gradients=overlap
    )
    model = DeviceModel(load_device("a100_80gb"), FRAMEWORK, "float16")
    for stage in (2, 3):
        sharded = replace(plan, zero_stage=stage)
        found = iteration_of(expert_graph_for(sharded), sharded, model, CLUSTER).stages[0]
        usual = iteration_of(expert_graph_for(plan), plan, model, CLUSTER).stages[0]
        # A block of experts at work holds its dense parameters' gradients and, under ZeRO-3,
        # weights of two blocks whole.
        dense = largest_dense(plan, model)
        assert found.workspace_bytes - usual.workspace_bytes <= dense * (
            4 + (4 if stage == 3 else 0)
        ) * (1 + 1e-9)


def largest_dense(plan: UniformPlan, model: DeviceModel) -> float:
    sizes = costs_of(plan, model).sizes
    return float((sizes.parameters - sizes.expert_parameters).max())


def costs_of(plan: UniformPlan, model: DeviceModel) -> Any:
    graph = expert_graph_for(plan)
    return DeviceCosts(model, CLUSTER).layer_costs(
        graph, plan.recompute, layer_groups(plan, CLUSTER)
    )


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("dp", [2, 3, 8])
@pytest.mark.parametrize("pp", [1, 2])
def test_more_sharding_holds_more_only_of_the_layer_at_work(
    pp: int, dp: int, optimizer: str
) -> None:
    """From ZeRO-2 on the whole gradient of a layer until it is reduced, under ZeRO-3 its weights
    and the next one's too."""
    model = DeviceModel(load_device("a100_80gb"), FRAMEWORK, "float16")
    plan = plan_of(
        pp=pp, dp=dp, micro_batch_size=1, global_batch_size=dp * 2 * pp, optimizer=optimizer
    )
    graph = graph_for(plan)
    costs = DeviceCosts(model, CLUSTER).layer_costs(
        graph, plan.recompute, layer_groups(plan, CLUSTER)
    )
    largest = float(costs.sizes.parameters.max())
    gradient = model.software.gradient_bytes_in(plan.precision)
    buffers = [0.0, 0.0, gradient * largest, (gradient + 2 * 2.0) * largest]
    found = [
        iteration_of(graph, replace(plan, zero_stage=stage), model, CLUSTER) for stage in range(4)
    ]
    for stage in range(1, 4):
        for before, after in zip(found[stage - 1].stages, found[stage].stages, strict=True):
            kept_before, kept_after = (
                each.memory_bytes - each.workspace_bytes for each in (before, after)
            )
            assert kept_after <= kept_before * (1 + 1e-12)
            assert after.workspace_bytes - before.workspace_bytes <= (
                buffers[stage] - buffers[stage - 1]
            ) * (1 + 1e-12)


def test_many_plans_shard_nothing_over_one_device_either() -> None:
    shape = plan_of(tp=2, micro_batch_size=1)
    rows = [(pp, dp, zero) for pp in (1, 2) for dp in (1, 2) for zero in range(4)]
    pp, dp, zero = (np.array(column) for column in zip(*rows, strict=True))
    none = np.zeros(len(rows), np.bool_)
    plans = UniformPlans(shape, pp, dp, zero, np.ones_like(pp), np.full(len(rows), 8), none, none)
    model = DeviceModel(load_device("a100_80gb"), FRAMEWORK, "float16")
    costs = DeviceCosts(model, CLUSTER).layer_costs(
        graph_for(shape), shape.recompute, layer_groups(shape, CLUSTER)
    )
    prices = evaluate_many(plans, costs, device_machine(model, CLUSTER))
    for count in (1, 2):
        alone = (dp == 1) & (pp == count)
        for column in (prices.memory_bytes[alone], prices.iteration_s[alone]):
            assert column == pytest.approx(column[0], rel=1e-12)
    assert len(set(prices.memory_bytes[(dp == 2) & (pp == 1)].tolist())) == 4
