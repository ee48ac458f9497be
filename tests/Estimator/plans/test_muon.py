"""Muon: which matrices its step orthogonalises, what that takes, and how replicas share it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from Estimator.devices.files import load_device, load_software
from Estimator.devices.operator_cost import DeviceModel
from Estimator.hardware_files import load_cluster
from Estimator.plans.checkpoint import checkpoint_bytes
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.device_costs import DeviceCosts
from Estimator.plans.groups import layer_groups
from Estimator.plans.iteration import price_iteration
from Estimator.plans.layer_costs import LayerCosts, ends_of
from Estimator.plans.many import evaluate_many
from Estimator.plans.offload import Offload
from Estimator.plans.orthogonal import matrix_s, weight_matrices
from Estimator.plans.policy import check_formats, training_policy
from Estimator.plans.rates import Machine, device_machine
from Estimator.plans.uniform_plans import UniformPlans
from GraphExtractor.graph import ModelGraph, Recompute
from phaze_common.choices import Dispatcher, ExpertWidth, Precision
from phaze_common.errors import InputError
from tests.conftest import Extract

MODELS = {
    "llama2-7b": ({}, {"tp": 4}, {"tp": 4, "sequence_parallel": True}),
    "qwen3-30b-a3b": (
        {"ep": 8},
        {"ep": 8, "tp": 2},
        {"ep": 8, "tp": 2, "sequence_parallel": True, "etp": ExpertWidth.ONE},
    ),
    "moonlight-16b-a3b": ({"ep": 8}, {"ep": 8, "tp": 2, "sequence_parallel": True}),
}
MODEL = DeviceModel(load_device("h100"), load_software("megatron_core"), "bfloat16")
CLUSTER = load_cluster("dgx_h100")
PLAN = UniformPlan(optimizer="muon", dp=8, zero_stage=1, global_batch_size=64)


def blocks_of(graph: ModelGraph) -> list[int]:
    ends = ends_of(graph)
    return [index for index in range(len(graph.layers)) if index not in ends]


@pytest.mark.parametrize("name", MODELS)
def test_matrices_are_all_weights_of_products_whole_however_they_are_divided(
    name: str, extracted: Extract
) -> None:
    found = []
    for given in MODELS[name]:
        graph = extracted(name, 1, 1024, **given)
        every = [list(weight_matrices(graph.layers[i], graph.key)) for i in blocks_of(graph)]
        found.append([sorted((m.smaller, m.larger, m.count) for m in each) for each in every])
        if graph.key.tp == 1:
            for place, matrices in zip(blocks_of(graph), every, strict=True):
                layer = graph.layers[place]
                elements = {True: 0, False: 0}
                for each in matrices:
                    elements[each.of_experts] += each.smaller * each.larger * each.count
                assert elements[False] == layer.matmul_parameter_count
                assert elements[True] == layer.expert_parameter_count
    shapes = [[[(small, large) for small, large, _ in each] for each in one] for one in found]
    assert all(each == shapes[0] for each in shapes[1:])


def costs_of(graph: ModelGraph, plan: UniformPlan) -> tuple[LayerCosts, Machine]:
    costs = DeviceCosts(MODEL, CLUSTER).layer_costs(
        graph, Recompute.NONE, layer_groups(plan, CLUSTER)
    )
    return costs, device_machine(MODEL, CLUSTER)


def optimizer_s(graph: ModelGraph, plan: UniformPlan) -> float:
    return price_iteration(plan, *costs_of(graph, plan)).breakdown.optimizer_s


def test_replicas_share_whole_matrices(extracted: Extract) -> None:
    graph = extracted("llama2-7b", 1, 1024)
    products = {(4096, 4096): 4, (4096, 11008): 3}
    layers = sum(graph.sequence.count(place) for place in blocks_of(graph))
    each_s = {shape: matrix_s(MODEL, *shape) for shape in products}
    all_s = layers * sum(count * each_s[shape] for shape, count in products.items())
    most_s = max(each_s.values())

    def more_s(dp: int, zero_stage: int) -> float:
        plan = replace(PLAN, dp=dp, zero_stage=zero_stage, global_batch_size=dp)
        muon, adam = (optimizer_s(graph, replace(plan, optimizer=o)) for o in ("muon", "adam"))
        # without what Adam's second moment of matrices takes
        blocks = sum(graph.layers[each].matmul_parameter_count for each in graph.sequence[1:-1])
        moved = 2 * 4 * blocks / MODEL.stream_bytes_per_s / (dp if zero_stage else 1)
        return muon - (adam - moved)

    assert more_s(8, 0) == pytest.approx(all_s)
    assert more_s(8, 1) == pytest.approx(all_s / 8)
    assert more_s(2048, 1) == pytest.approx(most_s) and all_s / 2048 < most_s


def test_flops_decide_where_the_host_is_ahead() -> None:
    flops = 5 * (4 * 8192**2 * 28672 + 2 * 8192**3)
    seconds = matrix_s(MODEL, 8192, 28672)
    assert 0.4 * 989e12 < flops / seconds < 0.8 * 989e12
    assert matrix_s(MODEL, 512, 512) == pytest.approx(26 * 8e-6)


def test_state_is_one_moment_of_matrices_and_two_of_the_rest(extracted: Extract) -> None:
    muon, adam = (training_policy(optimizer, 0).state for optimizer in ("muon", "adam"))
    assert (muon.moments, muon.more_moments, adam.moments) == (4.0, 4.0, 8.0)
    graph = extracted("qwen3-30b-a3b", 1, 1024, ep=8)
    plan = replace(PLAN, ep=8)
    state = [
        price_iteration(each, *costs_of(graph, each)).stages[0].parameter_state_bytes
        for each in (replace(plan, optimizer="adam"), plan)
    ]
    layers = [graph.layers[each] for each in graph.sequence[1:-1]]
    dense = sum(each.matmul_parameter_count for each in layers)
    experts = sum(each.expert_parameter_count for each in layers)
    assert state[0] - state[1] == pytest.approx(4 * (dense / 8 + experts))
    kept = [
        checkpoint_bytes(each, costs_of(graph, each)[0])
        for each in (replace(plan, optimizer="adam"), plan)
    ]
    assert kept[0] - kept[1] == pytest.approx(4 * (dense + 8 * experts))


def test_many_plans_cost_what_each_does(extracted: Extract) -> None:
    graph = extracted("qwen3-30b-a3b", 1, 1024, ep=8)
    costs, machine = costs_of(graph, replace(PLAN, ep=8))
    for zero in (0, 1, 2, 3):
        for dp, pp in ((8, 2), (16, 4)):
            plan = replace(PLAN, ep=8, dp=dp, pp=pp, zero_stage=zero)
            one = price_iteration(plan, costs, machine)
            many = evaluate_many(UniformPlans.of(plan, overlap_gradients=True), costs, machine)
            assert many.iteration_s[0] == pytest.approx(
                price_iteration(replace(plan, overlap_gradients=True), costs, machine).iteration_s,
                rel=1e-12,
            )
            assert one.breakdown.optimizer_s > 0.02


def test_offload_and_chips_without_a_price_are_refused(extracted: Extract) -> None:
    with pytest.raises(InputError, match="stays on the device"):
        check_formats(replace(PLAN, offload=Offload(optimizer=0.5)))
    graph = extracted("llama2-7b", 1, 1024)
    costs, machine = costs_of(graph, PLAN)
    with pytest.raises(InputError, match="known of devices that exist"):
        price_iteration(PLAN, costs, replace(machine, orthogonalises=False))


def test_pairs_of_nvidia_take_two_to_four_percent_longer(extracted: Extract) -> None:
    """Kimi K2 on 256 GB300 (1,051 TFLOP/s with AdamW, 1,029 of the model with Muon) and
    Qwen3-30B-A3B on 8 (713, 686): developer.nvidia.com, Muon with Megatron-Bridge 26.02, with
    batches of that release's recipes."""
    model = DeviceModel(
        load_device("gb300"), load_software("megatron_core"), Precision.MXFP8.matrix_format
    )
    cluster = load_cluster("gb300_nvl72")
    cases = {
        "qwen3-30b-a3b": (
            UniformPlan(dp=8, ep=8, micro_batch_size=4, global_batch_size=512),
            713 / 686,
        ),
        "kimi-k2": (
            UniformPlan(
                dp=64, pp=4, interleave=4, ep=64, micro_batch_size=2, global_batch_size=4096
            ),
            1051 / 1029,
        ),
    }
    for name, (bare, measured) in cases.items():
        plan = replace(bare, dispatcher=Dispatcher.HYBRIDEP)
        graph = extracted(name, plan.micro_batch_size, 4096, ep=plan.ep)
        made = DeviceCosts(model, cluster).layer_costs(
            graph, Recompute.NONE, layer_groups(plan, cluster)
        )
        machine = device_machine(model, cluster)
        seconds = [
            price_iteration(replace(plan, zero_stage=1, optimizer=each), made, machine).iteration_s
            for each in ("adam", "muon")
        ]
        assert seconds[1] / seconds[0] == pytest.approx(measured, abs=0.01)
    assert np.isfinite(seconds).all()
