"""Shards within groups of replicas: bytes and seconds against those of the collectives by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from Estimator.devices.files import load_device, load_software
from Estimator.devices.operator_cost import DeviceModel
from Estimator.hardware_files import load_cluster
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import DeviceGroups, GroupLevel, GroupNetwork
from Estimator.plans.many_rates import plan_rates
from Estimator.plans.plan import check_plan
from Estimator.plans.rates import device_machine
from Estimator.plans.stage_price import ALL_GATHER, DENSE, REDUCE_SCATTER, GroupRates
from Estimator.quantity import Quantity
from GraphExtractor.graph import CollectiveKind
from phaze_common.errors import InputError
from tests.builders.training_cases import graph_for, iteration_of, plan_of

MODEL = DeviceModel(load_device("h100"), load_software("megatron_core"), "bfloat16")
CLUSTER = load_cluster("dgx_h100")
NODE = 8


def plan_with(**given: object) -> UniformPlan:
    usual = {"dp": 4 * NODE, "micro_batch_size": 1, "global_batch_size": 64, "zero_stage": 1}
    return plan_of(**usual | {"overlap_gradients": False} | given)


def seconds_of(rates: GroupRates, kind: int, payload_bytes: float) -> float:
    """Of a collective over dense parameters, level by level."""
    total_s, left_bytes = 0.0, payload_bytes
    for level, size in enumerate(rates.sizes[DENSE]):
        each_s = (
            rates.fixed_s[kind, DENSE, level] + rates.per_byte_s[kind, DENSE, level] * left_bytes
        )
        total_s += float(each_s.min(axis=-1).max())
        left_bytes /= size
    return total_s


@pytest.mark.parametrize(("zero", "divided"), [(1, 12.0), (2, 14.0), (3, 16.0)])
def test_each_group_holds_all_shards(zero: int, divided: float) -> None:
    """2 + 2 + 12 bytes a parameter in fp16, of which ZeRO divides so many."""
    for groups in (1, 4):
        plan = plan_with(zero_stage=zero, shard_groups=groups)
        (stage,) = iteration_of(graph_for(plan), plan, MODEL, CLUSTER).stages
        each = 16.0 - divided + divided / (4 * NODE / groups)
        assert stage.parameter_state_bytes == pytest.approx(each * stage.parameters, rel=1e-9)


def test_gradients_are_scattered_within_a_node_and_summed_between_nodes() -> None:
    """Weights are gathered within it alone."""
    payload = 1e9
    rates = plan_rates(plan_with(shard_groups=4), device_machine(MODEL, CLUSTER)).groups
    node = GroupNetwork(DeviceGroups((GroupLevel(NODE, 1),), (0,)), CLUSTER)
    nodes = GroupNetwork(DeviceGroups((GroupLevel(4, NODE),), (0,)), CLUSTER)
    assert seconds_of(rates, ALL_GATHER, payload) == pytest.approx(
        node.seconds(CollectiveKind.ALL_GATHER, payload)
    )
    assert seconds_of(rates, REDUCE_SCATTER, payload) == pytest.approx(
        node.seconds(CollectiveKind.REDUCE_SCATTER, payload)
        + nodes.seconds(CollectiveKind.ALL_REDUCE, payload / NODE)
    )


def test_weights_that_are_gathered_for_every_pass_come_sooner_from_the_own_node() -> None:
    whole, own = (plan_with(zero_stage=3, shard_groups=each, micro_batch_size=1) for each in (1, 4))
    machine = device_machine(MODEL, CLUSTER)
    far, near = (plan_rates(each, machine).groups for each in (whole, own))
    assert seconds_of(near, ALL_GATHER, 1e9) < seconds_of(far, ALL_GATHER, 1e9)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"shard_groups": 3}, "does not divide dp 32; .* or more replicas with --devices"),
        ({"shard_groups": 2, "zero_stage": 0}, "nothing is sharded"),
        ({"shard_groups": 32}, "each of the 32 replicas has all that ZeRO divides"),
        ({"shard_groups": 0}, "at least 1"),
    ],
)
def test_groups_that_cannot_be_are_refused(given: dict[str, int], said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_plan(replace(plan_with(), **given))


@pytest.mark.parametrize(
    ("zero", "groups", "shards"), [(1, 1, 32), (1, 4, 8), (2, 1, 32), (0, 1, 0), (3, 1, 0)]
)
def test_shards_that_are_sent_one_by_one_take_the_host_each(
    zero: int, groups: int, shards: int
) -> None:
    issue = Quantity(2e-3, "s", "here")
    other = DeviceModel(MODEL.device, replace(MODEL.software, shard_issue=issue), "bfloat16")
    plan = plan_with(zero_stage=zero, shard_groups=groups)
    graph = graph_for(plan)
    usual, one_by_one = (iteration_of(graph, plan, each, CLUSTER) for each in (MODEL, other))
    taken_s = one_by_one.iteration_s - usual.iteration_s
    assert taken_s == pytest.approx(2e-3 * shards, abs=1e-12)
    longer_s = one_by_one.breakdown.launch_s - usual.breakdown.launch_s
    assert longer_s == pytest.approx(taken_s, abs=1e-12)
    assert one_by_one.breakdown.total_s == pytest.approx(one_by_one.iteration_s)
