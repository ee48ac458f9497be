"""What ZeRO costs beyond its traffic: gathers that hide in part, copies, whole gradients reduced or
kept twice."""

from dataclasses import replace

import pytest

from Estimator.chips.technology import Quantity
from Estimator.devices.files import load_device, load_software
from Estimator.devices.operator_cost import DeviceModel
from Estimator.devices.software import Software
from Estimator.hardware_files import load_cluster
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.device_costs import DeviceCosts
from Estimator.plans.groups import layer_groups
from Estimator.plans.iteration import price_iteration
from Estimator.plans.rates import device_machine
from Estimator.plans.results import Iteration
from phaze_common.choices import Precision, Recompute
from tests.builders.training_cases import graph_for, plan_of

FSDP, DEEPSPEED = load_software("pytorch_fsdp"), load_software("megatron_deepspeed_bf16")


def priced(plan: UniformPlan, software: Software) -> Iteration:
    cluster, model = (
        load_cluster("dgx_a100"),
        DeviceModel(load_device("a100_80gb"), software, "bfloat16"),
    )
    costs = DeviceCosts(model, cluster).layer_costs(
        graph_for(plan), plan.recompute, layer_groups(plan, cluster)
    )
    return price_iteration(plan, costs, device_machine(model, cluster))


def sharded(hidden: float, copies: float) -> Software:
    assert FSDP.sharding is not None
    of = replace(
        FSDP.sharding,
        hidden=Quantity(hidden, "fraction", "test"),
        copies=Quantity(copies, "bytes", "test"),
    )
    return replace(FSDP, sharding=of)


def plan(stage: int) -> UniformPlan:
    return replace(plan_of(), dp=8, zero_stage=stage, global_batch_size=64, overlap_gradients=True)


def test_gathers_hide_in_part_and_only_those_of_stage_three() -> None:
    times = [priced(plan(3), sharded(hidden, 0.0)).iteration_s for hidden in (1.0, 0.5, 0.25)]
    assert times == sorted(times) and times[0] < times[2]
    assert times[0] == pytest.approx(
        priced(plan(3), replace(FSDP, sharding=None)).iteration_s, rel=1e-12
    )
    for stage in (0, 1, 2):
        assert priced(plan(stage), sharded(0.25, 8.0)) == priced(
            plan(stage), replace(FSDP, sharding=None)
        )


def test_copies_of_gathered_weights_take_their_traffic() -> None:
    none, some = (priced(plan(3), sharded(1.0, copies)) for copies in (0.0, 6.0))
    late = replace(
        plan(3), overlap_gradients=False
    )  # then all of it shows, in the forward and in the backward pass
    shown = (
        priced(late, sharded(1.0, 6.0)).iteration_s - priced(late, sharded(1.0, 0.0)).iteration_s
    )
    parameters = sum(stage.parameters for stage in none.stages)
    bandwidth = DeviceModel(load_device("a100_80gb"), FSDP, "bfloat16").stream_bytes_per_s
    assert shown == pytest.approx(late.micro_batches * 2 * 6.0 * parameters / bandwidth, rel=1e-9)
    assert none.iteration_s < some.iteration_s <= none.iteration_s + shown * (1 + 1e-9)


def test_parts_of_every_device_keep_the_host_and_large_layers_are_gathered_once_more() -> None:
    """Four collectives a layer and pass; the layers here have more than a thousand parameters."""
    late = replace(plan(3), overlap_gradients=False)
    base = replace(FSDP, sharding=None)
    of = replace(sharded(1.0, 0.0).sharding, collectives=Quantity(4.0, "count", "test"))
    apart = replace(FSDP, sharding=replace(of, part=Quantity(1e-5, "s", "test")))
    once = priced(late, replace(FSDP, sharding=of))
    layers = len(graph_for(late).sequence)
    added_s = priced(late, apart).iteration_s - once.iteration_s
    # of gathers in both passes and of scattered gradients, by eight devices
    assert added_s == pytest.approx(late.micro_batches * layers * 3 * 4 * 8 * 1e-5, rel=1e-6)
    assert priced(late, base).iteration_s < once.iteration_s  # each of them starts anew
    small = replace(FSDP, sharding=replace(of, live=Quantity(1e3, "count", "test")))
    assert priced(late, small).iteration_s == once.iteration_s  # nothing is recomputed
    again = replace(late, recompute=Recompute.FULL)
    assert priced(again, small).iteration_s > priced(again, replace(FSDP, sharding=of)).iteration_s


def test_gradients_that_are_reduced_whole_take_longer_and_those_kept_twice_more_memory() -> None:
    base = replace(DEEPSPEED, reduces_all=False, second_gradient=None)
    stage_one = replace(plan(1), overlap_gradients=False, precision=Precision.BF16)
    whole, scattered = priced(stage_one, replace(base, reduces_all=True)), priced(stage_one, base)
    assert whole.breakdown.data_communication_s > scattered.breakdown.data_communication_s
    assert priced(plan(0), replace(base, reduces_all=True)) == priced(plan(0), base)
    twice = priced(stage_one, replace(base, second_gradient=Quantity(2.0, "bytes", "test")))
    parameters = twice.stages[0].parameters
    assert twice.memory_bytes - scattered.memory_bytes == pytest.approx(2.0 * parameters)


def test_gradients_have_the_bytes_of_the_precision_where_the_framework_says_so() -> None:
    two = Quantity(2.0, "bytes", "test")
    software = replace(FSDP, gradient_bytes_of={"fp16": two})
    assert (
        software.gradient_bytes_in(Precision.FP16) == 2.0
        and software.gradient_bytes_in(Precision.BF16) == 4.0
    )
    halves = (
        priced(replace(plan(0), precision=Precision.FP16), software),
        priced(replace(plan(0), precision=Precision.FP16), FSDP),
    )
    assert halves[0].breakdown.data_communication_s < halves[1].breakdown.data_communication_s


def test_products_of_blocks_alone_run_in_fp8() -> None:
    """Embedding and head take what they do in bf16 (Transformer Engine, fp8_autocast around the
    blocks)."""
    cluster, software = load_cluster("dgx_h100"), load_software("megatron_core_2024")
    each = {}
    for number_format in ("bfloat16", "float8"):
        model = DeviceModel(load_device("h100"), software, number_format)
        alone = replace(
            plan_of(eager=False),
            precision=Precision.FP8 if number_format == "float8" else Precision.BF16,
        )
        graph = graph_for(alone)
        each[number_format] = DeviceCosts(model, cluster).layer_costs(
            graph, alone.recompute, layer_groups(alone, cluster)
        )
    first, last = each["bfloat16"].sizes.sequence[0], each["bfloat16"].sizes.sequence[-1]
    block = each["bfloat16"].sizes.sequence[1]
    for name in ("forward", "backward"):
        in_bf16, in_fp8 = (getattr(costs, name).arithmetic_s[0] for costs in each.values())
        assert in_fp8[first] == in_bf16[first] and in_fp8[last] == in_bf16[last] > 0.0
        assert in_fp8[block] < in_bf16[block]
    saved = [costs.sizes.saved_bytes for costs in each.values()]
    assert saved[1][block] < saved[0][block]


def test_weights_that_are_gathered_behind_the_step_show_wholly() -> None:
    beside, behind = (priced(plan(1), replace(FSDP, gathers_beside=each)) for each in (True, False))
    shown, hidden = (
        behind.breakdown.data_communication_s - beside.breakdown.data_communication_s,
        beside.breakdown.hidden_data_communication_s - behind.breakdown.hidden_data_communication_s,
    )
    assert shown > 0 and shown == pytest.approx(behind.iteration_s - beside.iteration_s, rel=1e-6)
    assert hidden > 0
    alone = replace(plan(1), overlap_gradients=False)  # nothing is beside anything
    assert priced(alone, replace(FSDP, gathers_beside=False)) == priced(alone, FSDP)
