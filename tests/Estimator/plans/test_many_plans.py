"""Many plans at once cost what each of them costs alone."""

import itertools
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Estimator.devices.files import load_software
from Estimator.devices.operator_cost import DeviceModel
from Estimator.hardware_files import load_cluster
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.device_costs import DeviceCosts
from Estimator.plans.groups import layer_groups
from Estimator.plans.iteration import price_iteration
from Estimator.plans.layer_costs import LayerCosts
from Estimator.plans.many import PreparedPlans, evaluate_many
from Estimator.plans.rates import Machine, device_machine
from Estimator.plans.results import Status
from Estimator.plans.uniform_plans import UniformPlans
from GraphExtractor.graph import ModelGraph, Recompute
from phaze_common.choices import ExpertWidth
from phaze_common.errors import InputError
from tests.builders.training_cases import device_model, expert_graph_for, graph_for, plan_of

LAYERS = 12
MEMORY_BYTES = {
    "megatron_2022": 2.2e9,
    "megatron_core": 3.2e9,
    "pytorch_fsdp": 2.2e9,
    "megatron_deepspeed_bf16": 3.7e9,
}  # some fit
CLUSTERS = ("dgx_a100", "phaze_icml24", "tpu_v4", "rail_optimised")
SHAPES = (
    plan_of(),
    plan_of(recompute=Recompute.FULL),
    plan_of(tp=2, sequence_parallel=True, overlap_tensor=True),
    plan_of(tp=2, recompute=Recompute.SELECTIVE),
)
Row = tuple[
    int, int, int, int, int, bool, bool
]  # pp, dp, ZeRO stage, chunks per stage, global batch, stages inner, overlap


def plans_of(shape: UniformPlan, rows: list[Row]) -> UniformPlans:
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return UniformPlans(shape, *columns)


@lru_cache
def model_of(software: str) -> DeviceModel:
    return DeviceModel(device_model().device, load_software(software), "float16")


@lru_cache
def priced_shape(shape: UniformPlan, software: str, cluster: str) -> tuple[LayerCosts, Machine]:
    model, network = model_of(software), load_cluster(cluster)
    graph: ModelGraph = graph_for(shape, LAYERS)
    return DeviceCosts(model, network).layer_costs(
        graph, shape.recompute, layer_groups(shape, network)
    ), device_machine(model, network, MEMORY_BYTES[software])


def check_all(plans: UniformPlans, costs: LayerCosts, machine: Machine) -> None:
    found = evaluate_many(plans, costs, machine)
    for index in range(len(plans)):
        alone = price_iteration(plans.plan(index), costs, machine)
        told = plans.plan(index)
        assert found.iteration_s[index] == pytest.approx(alone.iteration_s, rel=1e-9), told
        assert found.memory_bytes[index] == pytest.approx(alone.memory_bytes, rel=1e-9), told
        assert found.step_s[index] == pytest.approx(alone.breakdown.optimizer_s, rel=1e-9), told
        assert found.feasible[index] == (alone.status is Status.FEASIBLE), told


@st.composite
def rows_of(draw: st.DrawFn) -> list[Row]:
    rows = []
    for _ in range(draw(st.integers(1, 8))):
        pp = draw(st.sampled_from([1, 2, 3, 4, 6, 12, 5]))
        chunks = draw(
            st.sampled_from([v for v in (1, 2, 3, 5, 6) if v == 1 or (pp > 1 and v * pp <= LAYERS)])
        )
        micro_batches = draw(st.integers(1, 9)) * pp if chunks > 1 else draw(st.integers(1, 40))
        dp = draw(st.integers(1, 40))
        spare = draw(
            st.integers(0, dp - 1 if micro_batches > 1 else 0)
        )  # the last micro-batches may be smaller
        booleans = draw(st.booleans()), draw(st.booleans())
        rows.append(
            (pp, dp, draw(st.integers(0, 3)), chunks, micro_batches * dp - spare, *booleans)
        )
    return rows


@settings(max_examples=60)
@given(
    rows=rows_of(),
    shape=st.sampled_from(SHAPES),
    software=st.sampled_from(list(MEMORY_BYTES)),
    cluster=st.sampled_from(CLUSTERS),
)
def test_each_costs_what_it_costs_alone(
    rows: list[Row], shape: UniformPlan, software: str, cluster: str
) -> None:
    check_all(plans_of(shape, rows), *priced_shape(shape, software, cluster))


@pytest.mark.some(2)
@pytest.mark.parametrize("cluster", ["dgx_a100", "phaze_icml24", "rail_optimised"])
@pytest.mark.parametrize("software", ["megatron_2022", "megatron_core"])
def test_all_plans_of_a_shape_cost_what_they_cost_alone(cluster: str, software: str) -> None:
    """Thousands of plans of one call, which share groups, cuts and schedules; every 7th priced
    alone."""
    rows: list[Row] = []
    axes = itertools.product(
        (1, 2, 3, 4, 6),
        (1, 2, 3, 5, 8, 16, 31),
        range(4),
        (1, 2, 3),
        (48, 96, 97),
        (False, True),
        (False, True),
    )
    for pp, dp, zero, chunks, batch, order, overlap in axes:
        many = -(-batch // dp)
        if chunks == 1 or (pp > 1 and pp * chunks <= LAYERS and many % pp == 0):
            rows.append((pp, dp, zero, chunks, batch, order, overlap))
    assert len(rows) > 2000
    plans = plans_of(SHAPES[2], rows)
    costs, machine = priced_shape(SHAPES[2], software, cluster)
    found = evaluate_many(plans, costs, machine)
    assert 0 < found.feasible.sum() < len(rows)
    for index in range(0, len(rows), 7):
        alone = price_iteration(plans.plan(index), costs, machine)
        assert found.iteration_s[index] == pytest.approx(alone.iteration_s, rel=1e-9), rows[index]
        assert found.memory_bytes[index] == pytest.approx(alone.memory_bytes, rel=1e-9), rows[index]


@pytest.mark.some(1)
@pytest.mark.parametrize("cluster", ["dgx_a100", "phaze_icml24"])
def test_experts_divided_among_replicas(cluster: str) -> None:
    whole = {"sequence_parallel": True, "etp": ExpertWidth.ONE}
    for tp, cp, ep, more in ((1, 1, 1, {}), (1, 1, 4, {}), (2, 2, 4, {}), (2, 1, 4, whole)):
        shape = plan_of(eager=False, tp=tp, cp=cp, ep=ep, **more)
        axes = itertools.product(
            (1, 2, 4), (4, 8, 12), range(4), (1, 2), (False, True), (False, True)
        )
        rows = [
            (pp, dp, zero, v, 48, order, late)
            for pp, dp, zero, v, order, late in axes
            if v == 1 or (pp == 2 and dp != 12)
        ]
        plans, model, network = (
            plans_of(shape, rows),
            model_of("megatron_core"),
            load_cluster(cluster),
        )
        for order in (
            False,
            True,
        ):  # where experts lie decides what their exchanges take, so also the costs of layers
            chosen = plans.some(
                np.flatnonzero((plans.pipeline_inner == order) & (plans.pp == 2) & (plans.dp == 4))
            )
            first = chosen.plan(0)
            costs = DeviceCosts(model, network).layer_costs(
                expert_graph_for(first), Recompute.NONE, layer_groups(first, network)
            )
            check_all(plans, costs, device_machine(model, network, 2e8))


def test_some_of_them_cost_the_same_as_all() -> None:
    costs, machine = priced_shape(SHAPES[0], "megatron_2022", "dgx_a100")
    rows: list[Row] = [(pp, dp, 1, 1, 64, False, True) for pp in (4, 1, 2) for dp in (8, 2)]
    prepared = PreparedPlans(plans_of(SHAPES[0], rows), costs.sizes, costs.crossing, machine)
    whole, part = prepared.priced(costs, 0), prepared.priced(costs, 0, np.array([4, 1]))
    assert part.iteration_s.tolist() == whole.iteration_s[[4, 1]].tolist()
    assert np.isfinite(whole.iteration_s).all()
    assert (
        len(
            evaluate_many(
                plans_of(SHAPES[0], rows).some(np.array([], dtype=np.int64)), costs, machine
            ).step_s
        )
        == 0
    )


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ((1, 0, 0, 1, 8, False, False), "dp is 0"),
        ((1, 9, 0, 1, 8, False, False), "global batch of at least 9"),
        ((2, 1, 4, 1, 8, False, False), "zero_stage is 4"),
        ((13, 1, 0, 1, 8, False, False), "plan 1 has 13 stages"),
        ((3, 1, 0, 2, 8, False, False), "plan 1 is interleaved.*8 micro-batches"),
        ((1, 1, 0, 2, 8, False, False), "plan 1 is interleaved"),
        ((2, 4096, 0, 1, 4096, False, False), "needs 8192 devices"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(row: Row, says: str) -> None:
    costs, machine = priced_shape(SHAPES[0], "megatron_2022", "dgx_a100")
    with pytest.raises(InputError, match=says):
        evaluate_many(plans_of(SHAPES[0], [(1, 1, 0, 1, 8, False, False), row]), costs, machine)


def test_plans_that_are_not_balanced_are_refused() -> None:
    costs, machine = priced_shape(SHAPES[0], "megatron_2022", "dgx_a100")
    for odd in (replace(SHAPES[0], gpipe=True), replace(SHAPES[0], stage_layers=(14,))):
        with pytest.raises(InputError, match="one by one"):
            evaluate_many(plans_of(odd, [(1, 1, 0, 1, 8, False, False)]), costs, machine)
