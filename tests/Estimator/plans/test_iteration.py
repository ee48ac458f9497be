"""Iterations add up, follow from the simulation, and move the way physics says."""

from dataclasses import replace

import numpy as np
import pytest

from Estimator.devices.files import load_software
from Estimator.devices.operator_cost import DeviceModel, PassStarts
from Estimator.hardware_files import load_cluster
from Estimator.network.collectives import collective_s
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.device_costs import DeviceCosts
from Estimator.plans.groups import layer_groups
from Estimator.plans.iteration import price_iteration
from Estimator.plans.rates import device_machine
from Estimator.plans.results import Iteration, Status
from GraphExtractor.graph import CollectiveKind, Recompute
from phaze_common.choices import GroupOrder, Precision
from phaze_common.errors import InputError
from tests.builders.training_cases import SEQUENCE, device_model, graph_for, iteration_of, plan_of

PLANS = [
    plan_of(micro_batch_size=2, global_batch_size=8),
    plan_of(micro_batch_size=1, global_batch_size=16, tp=2, dp=2, recompute=Recompute.FULL),
    plan_of(
        micro_batch_size=1,
        global_batch_size=8,
        tp=2,
        pp=2,
        sequence_parallel=True,
        recompute=Recompute.SELECTIVE,
    ),
    plan_of(micro_batch_size=1, global_batch_size=16, pp=3, dp=2, zero_stage=1),
    plan_of(micro_batch_size=1, global_batch_size=16, pp=2, dp=2, interleave=3, zero_stage=2),
    plan_of(
        micro_batch_size=1,
        global_batch_size=8,
        pp=2,
        dp=4,
        gpipe=True,
        group_order=GroupOrder.PIPELINE_INNER,
    ),
    plan_of(micro_batch_size=1, global_batch_size=32, dp=16, zero_stage=3, overlap_gradients=True),
    plan_of(micro_batch_size=1, global_batch_size=8, pp=2, stage_layers=(2, 6), eager=False),
]


def priced(plan: UniformPlan, host_issue_s: float | None = 0.0) -> Iteration:
    return iteration_of(
        graph_for(plan), plan, device_model(host_issue_s=host_issue_s), load_cluster("dgx_a100")
    )


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_the_breakdown_adds_up_to_the_iteration(plan: UniformPlan) -> None:
    for host_issue_s in (0.0, 70e-6):
        iteration = priced(plan, host_issue_s)
        assert iteration.breakdown.total_s == pytest.approx(iteration.iteration_s, rel=1e-12)
        assert min(vars(iteration.breakdown).values()) >= 0.0
        tokens = plan.micro_batches * plan.dp * plan.micro_batch_size * SEQUENCE
        assert iteration.tokens_per_s * iteration.iteration_s == pytest.approx(tokens)
        assert iteration.devices == plan.tp * plan.pp * plan.dp
        assert 0 < iteration.model_flops_utilization <= iteration.hardware_flops_utilization < 1


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_passes_of_a_pipeline_begin_behind_waits(plan: UniformPlan) -> None:
    cluster, model, starts = (
        load_cluster("dgx_a100"),
        device_model(host_issue_s=0.0),
        PassStarts(1e-3, 2e-3),
    )
    costs = DeviceCosts(model, cluster).layer_costs(
        graph_for(plan), plan.recompute, layer_groups(plan, cluster)
    )
    machine = device_machine(model, cluster)
    queued, waiting = (
        price_iteration(plan, costs, each)
        for each in (machine, replace(machine, pass_starts=starts))
    )
    waits = plan.interleave if plan.pp > 1 else 0
    for before, after in zip(queued.stages, waiting.stages, strict=True):
        assert after.forward_s - before.forward_s == pytest.approx(1e-3 * waits, abs=1e-9)
        assert after.backward_s - before.backward_s == pytest.approx(2e-3 * waits, abs=1e-9)
    assert waiting.breakdown.total_s == pytest.approx(waiting.iteration_s, rel=1e-12)
    assert (waiting.iteration_s > queued.iteration_s) == (plan.pp > 1)


@pytest.mark.parametrize(
    ("recompute", "layers"), [(Recompute.NONE, 0), (Recompute.SELECTIVE, 6), (Recompute.FULL, 6)]
)
def test_recomputed_layers_take_longer_than_their_operators_twice(
    recompute: Recompute, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, cluster, model = (
        plan_of(recompute=recompute),
        load_cluster("dgx_a100"),
        device_model(host_issue_s=0.0),
    )
    before = iteration_of(graph_for(plan), plan, model, cluster)
    monkeypatch.setattr(DeviceModel, "run_again_s", 1.0)  # as on a machine that was profiled
    after = iteration_of(graph_for(plan), plan, model, cluster)
    assert layers in (
        0,
        len(graph_for(plan).sequence) - 2,
    )  # embedding and head are never recomputed
    assert after.stages[0].backward_s - before.stages[0].backward_s == pytest.approx(
        layers, rel=1e-9
    )
    assert after.breakdown.recompute_s - before.breakdown.recompute_s == pytest.approx(
        layers * plan.micro_batches, rel=1e-9
    )


def test_one_device_takes_what_its_kernels_take_one_after_another() -> None:
    plan = plan_of(micro_batch_size=2, global_batch_size=6)
    model = device_model(host_issue_s=0.0)
    graph = graph_for(plan)
    kernels = sum(
        model.operator_time(operator).device_s
        for index in graph.sequence
        for operator in (
            *graph.layers[index].forward.operators,
            *graph.layers[index].backward.operators,
        )
    )
    parameters = sum(
        graph.layers[index].parameter_count - graph.layers[index].tied_count
        for index in graph.sequence
    )
    memory = model.device.memory
    step_s = 28 * parameters / (memory.bandwidth.value * memory.efficiency.value)
    between_s = model.software.between_iterations
    assert between_s is not None and priced(plan).breakdown.optimizer_s == pytest.approx(step_s)
    assert priced(plan).iteration_s == pytest.approx(3 * kernels + step_s + between_s.value)


def test_a_slow_host_decides_where_kernels_are_small() -> None:
    plan = plan_of(micro_batch_size=1, global_batch_size=4)
    free, gap_s = priced(plan, 0.0), device_model().device.launch.gap.value
    between_s = device_model().software.between_iterations
    assert between_s is not None
    kernels = (free.breakdown.launch_s - between_s.value) / plan.micro_batches / gap_s
    assert kernels == pytest.approx(round(kernels)) and kernels > 100
    slow, slower = priced(plan, 1e-3), priced(plan, 2e-3)
    assert slower.breakdown.launch_s > slow.breakdown.launch_s > 0.8 * slow.iteration_s
    assert slower.iteration_s == pytest.approx(2 * slow.iteration_s, rel=0.05)


def test_equal_stages_take_m_plus_p_minus_1_slots() -> None:
    """Narayanan et al. 2021, section 2.2.1; the pieces of an iteration besides the pipeline are
    small here."""
    plan = plan_of(micro_batch_size=1, global_batch_size=12, pp=2)
    iteration = priced(plan)
    slots = [stage.forward_s + stage.backward_s for stage in iteration.stages]
    assert iteration.pipeline is not None
    behind_s = iteration.pipeline.optimizer_s + iteration.pipeline.between_s
    loads = iteration.iteration_s - behind_s - iteration.breakdown.data_communication_s
    assert sum(slots) + 11 * min(slots) <= loads
    assert (
        loads - iteration.breakdown.pipeline_communication_s <= sum(slots) + 11 * max(slots) + 1e-12
    )


def test_full_recomputation_adds_the_forward_pass_of_the_blocks_and_keeps_their_inputs_only() -> (
    None
):
    kept = plan_of(micro_batch_size=2, global_batch_size=2)
    again = replace(kept, recompute=Recompute.FULL)
    model, cluster = device_model(host_issue_s=0.0), load_cluster("dgx_a100")
    costs = DeviceCosts(model, cluster).layer_costs(
        graph_for(kept), Recompute.NONE, layer_groups(kept, cluster)
    )
    blocks_s = costs.forward.device_s[0, list(costs.sizes.sequence[1:-1])].sum()
    none, full = priced(kept), priced(again)
    assert full.iteration_s - none.iteration_s == pytest.approx(blocks_s)
    assert full.breakdown.recompute_s == pytest.approx(blocks_s)
    assert full.stages[0].activation_bytes < 0.5 * none.stages[0].activation_bytes
    assert full.model_tflops_per_device * full.iteration_s == pytest.approx(
        none.model_tflops_per_device * none.iteration_s
    )
    assert full.hardware_tflops_per_device > full.model_tflops_per_device


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_zero_shards_what_it_says(stage: int) -> None:
    """Rajbhandari et al. 2020, figure 1, for mixed-precision Adam: 2 + 2 + 12 bytes a parameter."""
    plan = plan_of(micro_batch_size=1, global_batch_size=8, dp=8, zero_stage=stage)
    only = priced(plan).stages[0]
    per_parameter = {0: 16.0, 1: 4 + 12 / 8, 2: 2 + 14 / 8, 3: 16 / 8}[stage]
    assert only.parameter_state_bytes == pytest.approx(per_parameter * only.parameters)


def test_gradients_are_reduced_once_and_hidden_where_the_framework_overlaps() -> None:
    plan = plan_of(micro_batch_size=1, global_batch_size=64, dp=16)
    iteration = priced(plan)
    parameters = iteration.stages[0].parameters
    whole_s = collective_s(
        CollectiveKind.ALL_REDUCE, 2.0 * parameters, 16, 1, load_cluster("dgx_a100")
    )
    assert iteration.breakdown.data_communication_s == pytest.approx(whole_s)
    assert iteration.breakdown.hidden_data_communication_s == 0.0
    overlapped = priced(replace(plan, overlap_gradients=True)).breakdown
    assert (
        overlapped.data_communication_s + overlapped.hidden_data_communication_s
        == pytest.approx(whole_s)
    )
    assert 0 < overlapped.data_communication_s < whole_s


def test_stages_of_a_pipeline_hold_the_micro_batches_in_flight() -> None:
    plan = plan_of(micro_batch_size=1, global_batch_size=8, pp=4, stage_layers=(2, 2, 2, 2))
    stages = priced(plan).stages
    graph = graph_for(plan)
    block = graph.layers[graph.sequence[1]].saved.none
    assert stages[1].activation_bytes == pytest.approx(3 * 2 * block)
    assert stages[2].activation_bytes == pytest.approx(2 * 2 * block)


def test_allocators_hold_more_than_tensors_which_is_reserved_and_has_to_fit() -> None:
    """Of the framework's ``fragmentation`` and ``reserved_memory`` nothing is allocated, and all of
    it counts against memory."""
    plan = plan_of(micro_batch_size=1, global_batch_size=8, pp=2)
    software = load_software("megatron_2022")
    assert software.fragmentation is not None
    for stage in priced(plan).stages:
        allocated = stage.parameter_state_bytes + stage.activation_bytes + stage.workspace_bytes
        spare = software.fragmentation.value * (stage.activation_bytes + stage.workspace_bytes)
        assert stage.allocated_bytes == pytest.approx(allocated, rel=1e-12)
        assert stage.reserved_bytes == pytest.approx(
            spare + software.reserved_memory.value, rel=1e-9
        )
        assert stage.memory_bytes == pytest.approx(allocated + stage.reserved_bytes, rel=1e-12)
    found = priced(plan)
    assert found.allocated_bytes < found.memory_bytes
    model = device_model(memory_bytes=(found.allocated_bytes + found.memory_bytes) / 2)
    assert (
        iteration_of(graph_for(plan), plan, model, load_cluster("dgx_a100")).status
        is Status.INFEASIBLE
    )


def test_faster_links_and_larger_memories_never_hurt() -> None:
    plan = plan_of(micro_batch_size=1, global_batch_size=16, tp=4, pp=2, dp=2)
    graph, model = graph_for(plan), device_model(host_issue_s=0.0)
    cluster = load_cluster("dgx_a100")
    faster = replace(
        cluster,
        tiers=tuple(
            replace(tier, bandwidth_bytes_per_s=2 * tier.bandwidth_bytes_per_s)
            for tier in cluster.tiers
        ),
    )
    assert (
        iteration_of(graph, plan, model, faster).iteration_s
        < iteration_of(graph, plan, model, cluster).iteration_s
    )
    fits = iteration_of(graph, plan, model, cluster)
    assert fits.status is Status.FEASIBLE
    needed = max(stage.memory_bytes for stage in fits.stages)
    assert (
        iteration_of(graph, plan, device_model(memory_bytes=needed * 1.001), cluster).status
        is Status.FEASIBLE
    )
    tight = iteration_of(graph, plan, device_model(memory_bytes=needed * 0.999), cluster)
    assert tight.status is Status.INFEASIBLE
    assert "needs" in tight.reason


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"dp": 0}, "at least 1"),
        ({"dp": 9, "global_batch_size": 8}, "global batch of at least 9"),
        (
            {"gpipe": True, "interleave": 2, "pp": 2, "global_batch_size": 2},
            "gpipe runs 1 chunk per stage",
        ),
        ({"zero_stage": 4}, "zero_stage"),
        ({"ep": 2}, "experts"),
        ({"pp": 2, "stage_layers": (1, 2, 5)}, "stage_layers has 3"),
        ({"pp": 2, "stage_layers": (1, 2)}, "adds up to 3"),
        ({"pp": 7}, "pp x interleave is 7, for 6 blocks"),
        ({"pp": 3, "interleave": 2, "global_batch_size": 4}, "multiples of pp 3"),
        ({"dp": 8192, "global_batch_size": 8192}, "8192 devices"),
        ({"precision": Precision.FP8}, "float8"),
    ],
)
def test_wrong_plans_are_refused_with_one_sentence(wrong: dict[str, object], says: str) -> None:
    plan = plan_of(**wrong)
    with pytest.raises(InputError, match=says):
        model = device_model()
        if plan.precision is Precision.FP8:
            type(model)(model.device, model.software, plan.precision.matrix_format)
        iteration_of(graph_for(plan_of()), plan, model, load_cluster("dgx_a100"))


def test_a_pipeline_across_nodes_waits_longer_for_its_messages() -> None:
    inside = plan_of(micro_batch_size=1, global_batch_size=8, pp=2)
    across = replace(inside, dp=8, global_batch_size=64)
    seconds = [priced(plan).breakdown.pipeline_communication_s for plan in (inside, across)]
    assert seconds[1] > 2 * seconds[0] > 0
    assert np.isfinite(seconds).all()


def test_only_micro_batches_behind_the_first_add_their_gradients_up() -> None:
    model = device_model(host_issue_s=0.0)
    adding = type(model)(
        model.device,
        replace(load_software("megatron_2021"), host_issue=model.software.host_issue),
        "float16",
    )
    plan = plan_of(micro_batch_size=1, global_batch_size=4)
    graph, cluster = graph_for(plan), load_cluster("dgx_a100")
    parameters = sum(graph.layers[index].parameter_count for index in graph.sequence)
    once, fused = (iteration_of(graph, plan, each, cluster).iteration_s for each in (adding, model))
    assert once - fused == pytest.approx(3 * adding.accumulation_time(parameters).memory_s)
