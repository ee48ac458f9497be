"""What the host takes of a layer, by its parts, and what CUDA graphs take off it."""

import pytest

from Estimator.devices.files import load_device, load_software
from Estimator.devices.operator_cost import DeviceModel
from Estimator.hardware_files import load_cluster
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.device_costs import DeviceCosts
from Estimator.plans.groups import layer_groups
from Estimator.plans.host_parts import REPLAYED, HostPart, host_parts, parts_of
from Estimator.plans.layer_costs import LayerCosts
from GraphExtractor import extract
from GraphExtractor.graph import LayerGraph, ModelGraph, Recompute
from phaze_common.choices import CudaGraphs
from phaze_common.recompute_modules import Recomputation, RecomputedModules, RecomputeModule
from tests.builders.training_cases import expert_graph_for, graph_for, plan_of

CLUSTER = load_cluster("dgx_h100")
MODEL = DeviceModel(load_device("h100"), load_software("megatron_core"), "bfloat16")
PLAN = plan_of(eager=False, dp=8, ep=4, global_batch_size=16)
DENSE = plan_of(eager=False, dp=8, global_batch_size=16)


def costs_of(
    graph: ModelGraph, plan: UniformPlan, mode: Recomputation = Recompute.NONE, **given: object
) -> LayerCosts:
    shape = plan_of(eager=False, **(vars(plan) | given))
    return DeviceCosts(MODEL, CLUSTER).layer_costs(graph, mode, layer_groups(shape, CLUSTER))


def block_of(graph: ModelGraph) -> LayerGraph:
    """The block that most layers are, with experts where there are any."""
    return graph.layers[graph.sequence[-2]]


def host_s(costs: LayerCosts) -> tuple[float, float]:
    """Seconds of the host for the passes through all layers."""
    layers = costs.sizes.distinct
    return float(costs.forward.host_s[0, layers].sum()), float(
        costs.backward.host_s[0, layers].sum()
    )


def test_a_layer_with_experts_has_attention_router_and_experts() -> None:
    layer = block_of(expert_graph_for(PLAN))
    parts = host_parts(layer)
    named = {each.name: parts[each.id] for each in layer.forward.operators}
    for name, part in named.items():
        if "attn" in name or name.startswith("input_layernorm"):
            assert part is HostPart.ATTENTION, name
        elif "gather_rows" in name or "all_to_all" in name or "experts.bmm" in name:
            assert part is HostPart.EXPERTS, name
        elif "router" in name:
            assert part is HostPart.ROUTER, name
    backward = parts_of(layer.backward.operators, layer)
    of_experts = [
        each.name
        for each, part in zip(layer.backward.operators, backward, strict=True)
        if part is HostPart.EXPERTS
    ]
    assert any("bmm.dw" in name for name in of_experts)
    assert {*backward} == {HostPart.ATTENTION, HostPart.ROUTER, HostPart.EXPERTS}


def test_a_layer_without_experts_has_no_router() -> None:
    layer = block_of(graph_for(DENSE))
    assert {*host_parts(layer).values()} == {HostPart.ATTENTION, HostPart.REST}
    assert {*parts_of(layer.backward.operators, layer)} == {HostPart.ATTENTION, HostPart.REST}


def test_a_layer_with_experts_takes_the_host_what_no_operator_shows() -> None:
    grouped = MODEL.software.grouped
    assert grouped is not None
    assert grouped.routing is not None
    assert grouped.dispatch is not None
    graph = expert_graph_for(PLAN)
    experts = sum(graph.layers[index].expert_parameter_count > 0 for index in graph.sequence)
    assert experts
    shown = [0.0, 0.0]
    for index in graph.sequence:
        layer = graph.layers[index]
        for which, each in enumerate((layer.forward, layer.backward)):
            shown[which] += sum(MODEL.operator_time(one).host_s for one in each.operators)
    unseen_s = experts * (grouped.routing.value + grouped.dispatch.value)
    found = host_s(costs_of(graph, PLAN))
    assert found == pytest.approx((shown[0] + unseen_s, shown[1] + unseen_s))
    dense = host_s(costs_of(graph_for(DENSE), DENSE))
    assert sum(found) / len(graph.sequence) > 3 * sum(dense) / len(graph_for(DENSE).sequence)


def test_experts_that_are_run_again_take_the_host_again() -> None:
    graph = expert_graph_for(PLAN)
    forward = costs_of(graph, PLAN).forward.host_s[0]
    again = costs_of(graph, PLAN, Recompute.FULL)
    place = again.sizes.sequence[-2]
    block = costs_of(graph, PLAN).sizes.sequence[-2]
    assert again.recompute.host_s[0, place] == pytest.approx(forward[block])


@pytest.mark.parametrize("experts", [True, False])
def test_graphs_that_replay_more_leave_the_host_less(experts: bool) -> None:
    plan = PLAN if experts else DENSE
    graph = (expert_graph_for if experts else graph_for)(plan)
    left = {each: sum(host_s(costs_of(graph, plan, cuda_graphs=each))) for each in CudaGraphs}
    for less in CudaGraphs:
        for more in CudaGraphs:
            if {*REPLAYED[less]} <= {*REPLAYED[more]}:
                assert left[more] <= left[less] * (1 + 1e-12)
    assert left[CudaGraphs.ITERATION] == 0.0
    assert left[CudaGraphs.LAYER] > 0.0  # embedding and head
    assert left[CudaGraphs.ATTENTION] < left[CudaGraphs.NONE]
    assert (left[CudaGraphs.ROUTER] < left[CudaGraphs.NONE]) == experts


def test_graphs_change_nothing_but_the_host() -> None:
    graph = expert_graph_for(PLAN)
    before, after = (
        costs_of(graph, PLAN, cuda_graphs=each) for each in (CudaGraphs.NONE, CudaGraphs.LAYER)
    )
    for name in ("forward", "backward", "recompute"):
        one, other = getattr(before, name), getattr(after, name)
        assert (one.device_s == other.device_s).all()
        assert (one.products_s == other.products_s).all()


def test_experts_that_all_tokens_meet_take_the_host_no_dispatch_again() -> None:
    plan = plan_of(eager=False, dp=8, ep=4, global_batch_size=16)
    graph = extract.extract_graph(plan.graph_key("deepseek-v2-4-layers", 256))
    grouped = MODEL.software.grouped
    assert grouped is not None and grouped.routing is not None and grouped.dispatch is not None
    unseen_s = grouped.routing.value + grouped.dispatch.value
    taken = {}
    for module in (RecomputeModule.SHARED_EXPERTS, RecomputeModule.EXPERTS):
        again = costs_of(graph, plan, RecomputedModules((module,)))
        taken[module] = float(again.recompute.host_s[0, again.sizes.sequence[-2]])
    assert 0.0 < taken[RecomputeModule.SHARED_EXPERTS] < unseen_s
    assert taken[RecomputeModule.EXPERTS] > unseen_s


def test_in_fp8_kernels_of_single_experts_take_the_device_but_in_graphs_of_iterations() -> None:
    graph = expert_graph_for(PLAN)
    formats = {
        each: DeviceCosts(
            DeviceModel(load_device("h100"), load_software("megatron_core"), each), CLUSTER
        )
        for each in ("bfloat16", "float8")
    }

    def device_s(number_format: str, graphs: CudaGraphs) -> float:
        shape = plan_of(eager=False, **(vars(PLAN) | {"cuda_graphs": graphs}))
        costs = formats[number_format].layer_costs(
            graph, Recompute.NONE, layer_groups(shape, CLUSTER)
        )
        block = costs.sizes.sequence[-2]
        return float(costs.forward.device_s[0, block] + costs.backward.device_s[0, block])

    none, iteration = CudaGraphs.NONE, CudaGraphs.ITERATION
    assert device_s("bfloat16", none) == device_s("bfloat16", iteration)
    device = load_device("h100")
    experts, kernels, gap_s = 8 // 4, 4, 3e-6  # of a device; as its files and software's say
    own_s = 6 * experts * kernels * gap_s  # of two products forward, and twice as many backward
    # rows in the order of experts are copied into padded ones and back, in both passes
    rows = next(
        each.writes[0]
        for each in graph.layers[graph.sequence[-2]].forward.operators
        if "gather_rows" in each.name
    )
    own_s += 4 * 2 * rows.bytes / device.memory.stream_bytes_per_s() + 4 * gap_s
    assert device_s("float8", none) - device_s("float8", iteration) == pytest.approx(own_s)
