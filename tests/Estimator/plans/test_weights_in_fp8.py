"""Weights held in fp8 and what is gathered ahead: by stages, in plans priced one by one and
together, against sums by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from Estimator.devices.files import load_device, load_software
from Estimator.devices.operator_cost import DeviceModel
from Estimator.hardware_files import load_cluster
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.device_costs import DeviceCosts
from Estimator.plans.groups import layer_groups
from Estimator.plans.iteration import price_iteration
from Estimator.plans.layer_costs import layer_sizes
from Estimator.plans.many import evaluate_many
from Estimator.plans.offload import Offload
from Estimator.plans.policy import TrainingPolicy, training_policy
from Estimator.plans.rates import device_machine
from Estimator.plans.state_formats import AS_USUAL, StateFormats
from Estimator.plans.uniform_plans import UniformPlans
from GraphExtractor.graph import AS_TRACED, Keeping, OperandRole, Recompute
from phaze_common.choices import Precision
from tests.builders.training_cases import graph_for, iteration_of, plan_of

MODEL, CLUSTER = (
    DeviceModel(load_device("h100"), load_software("megatron_core"), "float8"),
    load_cluster("dgx_h100"),
)
IN_FP8 = StateFormats(fp8_weights=True)


def plan_with(**given: object) -> UniformPlan:
    settings = {
        "dp": 4,
        "micro_batch_size": 1,
        "global_batch_size": 16,
        "precision": Precision.FP8,
        "eager": False,
    }
    return plan_of(**(settings | given))


def matrices(plan: UniformPlan) -> list[int]:
    """Parameters of every layer that products of blocks read."""
    graph = graph_for(plan)
    ends = {0, len(graph.sequence) - 1}
    return [
        0 if place in ends else graph.layers[index].matmul_parameter_count
        for place, index in enumerate(graph.sequence)
    ]


@pytest.mark.parametrize("zero", [0, 1, 3])
@pytest.mark.parametrize("pp", [1, 2])
def test_stages_save_a_byte_of_every_matrix_of_their_blocks(zero: int, pp: int) -> None:
    usual = plan_with(pp=pp, zero_stage=zero)
    held = replace(usual, state_formats=IN_FP8)
    before, after = (
        iteration_of(graph_for(usual), plan, MODEL, CLUSTER).stages for plan in (usual, held)
    )
    sizes = usual.stage_layers or [
        len(part) for part in np.array_split(np.arange(len(matrices(usual))), pp)
    ]
    starts = np.cumsum([0, *sizes])
    for stage, (first, end) in enumerate(pairwise(starts)):
        saved = sum(matrices(usual)[first:end]) / (4 if zero == 3 else 1)
        assert before[stage].parameter_state_bytes - after[
            stage
        ].parameter_state_bytes == pytest.approx(saved, rel=1e-9)


@pytest.mark.parametrize("formats", [AS_USUAL, IN_FP8])
@pytest.mark.parametrize("zero", [2, 3])
def test_a_layer_at_work_is_whole_beside_the_one_gathered_ahead(
    zero: int, formats: StateFormats
) -> None:
    """By hand on one stage: temporaries and gradient of the layer, its weights and those of its
    neighbour on either side."""
    plan = plan_with(zero_stage=zero, state_formats=formats)
    graph = graph_for(plan)
    costs = DeviceCosts(MODEL, CLUSTER).layer_costs(
        graph, plan.recompute, layer_groups(plan, CLUSTER)
    )
    sizes = costs.sizes.allocated
    places = range(len(graph.sequence))
    weights = [
        2 * graph.layers[index].parameter_count - (held if formats else 0)
        for index, held in zip(graph.sequence, matrices(plan), strict=True)
    ]
    gathered = [
        weights[at] + max(weights[near] for near in (at - 1, at + 1) if near in places)
        if zero == 3
        else 0
        for at in places
    ]
    wanted = max(
        sizes.workspace_bytes[sizes.sequence[at]]
        + 4 * sizes.parameters[sizes.sequence[at]]
        + gathered[at]
        for at in places
    )
    priced = price_iteration(plan, costs, device_machine(MODEL, CLUSTER))
    library = MODEL.software.library_memory
    wanted += 0.0 if library is None else library.value
    assert priced.allocated_bytes - priced.stages[
        0
    ].parameter_state_bytes - sizes.all_saved_bytes == pytest.approx(wanted)


@pytest.mark.parametrize("formats", [AS_USUAL, IN_FP8])
def test_plans_priced_together_cost_what_each_costs_alone(formats: StateFormats) -> None:
    shape = plan_with(state_formats=formats)
    rows = [(pp, 4, zero, 1, 16, False, False) for pp, zero in product((1, 2), range(4))]
    plans = UniformPlans(shape, *(np.array(column) for column in zip(*rows, strict=True)))
    graph, machine = graph_for(shape), device_machine(MODEL, CLUSTER)
    costs = DeviceCosts(MODEL, CLUSTER).layer_costs(
        graph, shape.recompute, layer_groups(shape, CLUSTER)
    )
    together = evaluate_many(plans, costs, machine)
    alone = [price_iteration(plans.plan(index), costs, machine) for index in range(len(plans))]
    assert together.iteration_s == pytest.approx([each.iteration_s for each in alone], rel=1e-12)
    assert together.memory_bytes == pytest.approx([each.memory_bytes for each in alone], rel=1e-12)


def test_weights_in_host_memory_are_as_wide_as_on_the_device() -> None:
    usual = plan_with(offload=Offload(weights=1.0))
    held = replace(usual, state_formats=IN_FP8)
    before, after = (
        iteration_of(graph_for(usual), plan, MODEL, CLUSTER).stages[0].host_bytes
        for plan in (usual, held)
    )
    assert before - after == pytest.approx(sum(matrices(usual)), rel=1e-9)


def test_the_head_keeps_its_input_in_bf16() -> None:
    """It runs outside of fp8, as the embedding does: nothing that it keeps is in one byte."""
    graph = graph_for(plan_with())
    traced, in_fp8 = (
        layer_sizes(graph, Recompute.NONE, keeping=each)
        for each in (AS_TRACED, Keeping(in_fp8=True))
    )
    less = traced.saved_bytes - in_fp8.saved_bytes
    head, block = traced.sequence[-1], traced.sequence[1]
    assert graph.layers[graph.sequence[-1]].saved.less_in_fp8.none > 0
    assert (
        less[head] == 0
        and less[block] == graph.layers[graph.sequence[1]].saved.less_in_fp8.none > 0
    )


def test_gathering_weight_by_weight_holds_the_largest_of_a_layer() -> None:
    """Two bytes of it and of its neighbour's, and four of its gradient."""
    plan = plan_with(zero_stage=3)
    graph = graph_for(plan)
    whole, single = (
        layer_sizes(graph, plan.recompute, keeping=Keeping(by_weight=each))
        for each in (False, True)
    )
    per_parameter = np.array([[[6.0, 2.0], [6.0, 2.0], [0.0, 0.0]]])
    of_layers, of_weights = (each.working_bytes(per_parameter) for each in (whole, single))
    for at, index in enumerate(graph.sequence):
        layer = graph.layers[index]
        largest = max(
            math.prod(operand.shape)
            for each in layer.forward.operators
            for operand in each.reads
            if operand.role is OperandRole.PARAMETER
        )
        temporaries = whole.workspace_bytes[whole.sequence[at]]
        assert of_layers[0][at, 0] - temporaries == 6 * layer.parameter_count
        assert of_weights[0][at, 0] - temporaries == pytest.approx(6 * largest)
        assert of_weights[1][at, 0] == pytest.approx(2 * largest)


@pytest.mark.parametrize(("zero", "gathered", "kept"), [(3, True, 0), (3, False, 4), (1, True, 1)])
def test_what_is_gathered_from_the_optimizers_copy_is_not_kept_besides(
    zero: int, gathered: bool, kept: int
) -> None:
    state = training_policy("adam", 0, Precision.FP8, IN_FP8).state
    policy = TrainingPolicy(replace(state, gathered=gathered), zero)
    held, sent, _, _ = policy.wide(np.array(4), Offload(), 1e12)
    assert held == (state.wider / kept if kept else 0.0)
    assert sent == state.wider


def test_weights_in_fp8_are_no_larger_than_others_where_none_are_kept() -> None:
    software = replace(load_software("pytorch_fsdp_compiled"), gathers_main_weights=True)
    model = DeviceModel(load_device("h100"), software, "float8")
    usual = plan_with(zero_stage=3)
    before, after = (
        iteration_of(graph_for(usual), plan, model, CLUSTER).stages[0].parameter_state_bytes
        for plan in (usual, replace(usual, state_formats=IN_FP8))
    )
    assert after == pytest.approx(before, rel=1e-9)
