"""Experts divided over replicas: who holds what, what is exchanged and synchronised, and what it
takes of time and memory."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Estimator.hardware_files import load_cluster
from Estimator.network.collectives import collective_s
from Estimator.plans.assignment import Assignment
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.device_costs import DeviceCosts
from Estimator.plans.groups import GroupLevel, LayerGroups, copy_levels, divided_levels
from Estimator.plans.plan import check_plan
from Estimator.plans.results import Iteration
from Estimator.plans.uniform_plans import ORDERS
from GraphExtractor.graph import CollectiveGroup, CollectiveKind, Recompute
from phaze_common.choices import ExpertWidth, GroupOrder
from phaze_common.errors import InputError, PhazeError
from tests.builders.training_cases import device_model, expert_graph_for, iteration_of, plan_of

CLUSTER = load_cluster("dgx_a100")
ADAM = 16.0  # bytes of a parameter: weight 2, gradient 2, optimizer 12


def priced(plan: UniformPlan) -> Iteration:
    return iteration_of(expert_graph_for(plan), plan, device_model(host_issue_s=0.0), CLUSTER)


def plan_with(**given: object) -> UniformPlan:
    return plan_of(eager=False, **({"global_batch_size": 16, "overlap_gradients": False} | given))


def counts(plan: UniformPlan) -> tuple[int, int]:
    """Parameters of experts on a device, and the others; the whole model on one stage."""
    graph = expert_graph_for(plan)
    experts = sum(graph.layers[index].expert_parameter_count for index in graph.sequence)
    return experts, sum(graph.layers[index].parameter_count for index in graph.sequence) - experts


def members(start: int, levels: tuple[GroupLevel, ...]) -> list[int]:
    found = [start]
    for level in levels:
        found = [first + offset for offset in level.offsets for first in found]
    return sorted(found)


@given(
    tp=st.sampled_from([1, 2]),
    cp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 3]),
    dp=st.sampled_from([1, 2, 6]),
    order=st.sampled_from(ORDERS[:2]),
    whole_experts=st.booleans(),
    data=st.data(),
)
def test_groups_divide_the_devices_that_hold_the_same(
    tp: int, cp: int, pp: int, dp: int, order: GroupOrder, whole_experts: bool, data: st.DataObject
) -> None:
    """All devices are in exactly one group of each kind; of those that divide experts no two hold
    the same ones. Whole experts are divided over tensor-parallel devices too."""
    width = ExpertWidth.ONE if whole_experts else ExpertWidth.SAME
    etp = 1 if whole_experts else tp
    sharing = cp * dp * tp // etp
    ep = data.draw(
        st.sampled_from([degree for degree in range(1, sharing + 1) if sharing % degree == 0])
    )
    plan = plan_with(tp=tp, cp=cp, pp=pp, dp=dp, ep=ep, etp=width, group_order=order)
    check_plan(plan)
    stages = (GroupLevel(plan.pp, plan.stage_stride), GroupLevel(plan.tp, 1))
    of_experts = (stages[0], GroupLevel(etp, 1))
    (divided, between), copies = divided_levels(plan), copy_levels(plan)
    for levels, others, size in (
        (copies, stages, cp * dp),
        (divided, (*of_experts, *between), ep),
        (between, (*of_experts, *divided), sharing // ep),
    ):
        found = [members(start, levels) for start in members(0, others)]
        assert size == len(found[0])
        assert sorted(device for group in found for device in group) == list(range(plan.devices))
    tensor = (GroupLevel(tp // etp, 1),)
    whole = {frozenset(members(start, (*tensor, *copies))) for start in members(0, of_experts)}
    for start in members(0, (*of_experts, *between)):
        mine = members(start, divided)
        assert sum(group.issuperset(mine) for group in whole) == 1
        for other in members(0, (*of_experts, *divided)):
            assert len(set(members(other, between)) & set(mine)) <= 1


def test_the_devices_that_divide_experts_are_neighbours() -> None:
    assert divided_levels(plan_with(tp=2, dp=8, ep=4)) == ((GroupLevel(4, 2),), (GroupLevel(2, 8),))
    inner = plan_with(tp=2, pp=3, cp=2, dp=4, ep=4, group_order=GroupOrder.PIPELINE_INNER)
    assert divided_levels(inner) == ((GroupLevel(2, 2), GroupLevel(2, 12)), (GroupLevel(2, 24),))


def test_whole_experts_are_shared_by_tensor_parallel_devices_first() -> None:
    """As the groups of Megatron-Core's ``RankGenerator(tp=1, ep=ep, ...)``."""
    plan = plan_with(tp=4, dp=4, ep=8, etp=ExpertWidth.ONE)
    assert divided_levels(plan) == ((GroupLevel(8, 1),), (GroupLevel(2, 8),))
    few = plan_with(
        tp=4, pp=2, dp=4, ep=2, etp=ExpertWidth.ONE, group_order=GroupOrder.PIPELINE_INNER
    )
    assert divided_levels(few) == ((GroupLevel(2, 1),), (GroupLevel(2, 2), GroupLevel(4, 8)))


@pytest.mark.parametrize("zero_stage", [0, 1, 3])
@pytest.mark.parametrize("ep", [1, 2, 8])
def test_whole_experts_have_copies_of_their_own_number(zero_stage: int, ep: int) -> None:
    """Of tp 2 x dp 4 devices ep share the experts: 8 / ep hold the same, whatever tp divides."""
    plan = plan_with(
        tp=2, dp=4, ep=ep, etp=ExpertWidth.ONE, sequence_parallel=True, zero_stage=zero_stage
    )
    experts, others = counts(plan)
    (stage,) = priced(plan).stages
    kept = {0: 16.0, 1: 4.0, 3: 0.0}[zero_stage]
    assert experts == counts(plan_with())[0] // ep
    assert stage.parameter_state_bytes == pytest.approx(
        (kept + (ADAM - kept) / 4) * others + (kept + (ADAM - kept) / (8 / ep)) * experts
    )


def test_gradients_of_whole_experts_are_reduced_over_their_copies() -> None:
    plan = plan_with(tp=2, dp=4, ep=4, etp=ExpertWidth.ONE, sequence_parallel=True)
    experts, others = counts(plan)
    wanted_s = collective_s(CollectiveKind.ALL_REDUCE, 2.0 * others, 4, 2, CLUSTER)
    wanted_s += collective_s(CollectiveKind.ALL_REDUCE, 2.0 * experts, 2, 4, CLUSTER)
    assert priced(plan).breakdown.data_communication_s == pytest.approx(wanted_s)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"tp": 2, "dp": 2, "ep": 8, "etp": ExpertWidth.ONE},
            "does not divide the tp 2 x dp 2 x cp 1 = 4",
        ),
        (
            {"tp": 2, "etp": ExpertWidth.ONE, "group_order": Assignment.parsed("tp2")},
            "group_order is tp2, which does not say where whole experts lie",
        ),
    ],
)
def test_whole_experts_that_cannot_be_are_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        check_plan(plan_with(**given))


@pytest.mark.parametrize(("dp", "cp", "ep"), [(4, 1, 3), (2, 2, 8), (1, 1, 2)])
def test_degrees_that_do_not_divide_the_replicas_are_refused(dp: int, cp: int, ep: int) -> None:
    with pytest.raises(
        InputError, match=rf"ep is {ep}.*dp {dp} x cp {cp} = {dp * cp}.*divisor of {dp * cp}"
    ):
        check_plan(plan_with(dp=dp, cp=cp, ep=ep))


def test_costs_are_refused_for_groups_of_another_size() -> None:
    plan = plan_with(dp=4, ep=4)
    with pytest.raises(
        PhazeError, match=r"groups of \(1, 1, 4, 1\) devices is priced for groups of \(1, 1, 1, 1\)"
    ):
        DeviceCosts(device_model(), CLUSTER).layer_costs(
            expert_graph_for(plan), Recompute.NONE, LayerGroups()
        )


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
def test_a_device_holds_its_experts_and_shards_them_over_their_replicas(zero_stage: int) -> None:
    plan = plan_with(dp=8, ep=4, zero_stage=zero_stage)
    experts, others = counts(plan)
    (stage,) = priced(plan).stages
    kept = {0: 16.0, 1: 4.0, 2: 2.0, 3: 0.0}[zero_stage]
    assert experts == counts(plan_with(dp=8))[0] // 4
    assert stage.parameters == experts + others
    assert stage.parameter_state_bytes == pytest.approx(
        (kept + (ADAM - kept) / 8) * others + (kept + (ADAM - kept) / 2) * experts
    )


def test_gradients_of_experts_are_reduced_over_fewer_replicas() -> None:
    plan = plan_with(tp=2, dp=8, ep=4)
    experts, others = counts(plan)
    wanted_s = collective_s(CollectiveKind.ALL_REDUCE, 2.0 * others, 8, 2, CLUSTER)
    wanted_s += collective_s(CollectiveKind.ALL_REDUCE, 2.0 * experts, 2, 8, CLUSTER)
    assert priced(plan).breakdown.data_communication_s == pytest.approx(wanted_s)
    alone = plan_with(tp=2, dp=4, ep=4)
    only_others_s = collective_s(CollectiveKind.ALL_REDUCE, 2.0 * counts(alone)[1], 4, 2, CLUSTER)
    assert priced(alone).breakdown.data_communication_s == pytest.approx(only_others_s)


def test_the_optimizer_updates_a_devices_own_experts() -> None:
    plan = plan_with(dp=4, ep=4, zero_stage=1)
    experts, others = counts(plan)
    memory = device_model().device.memory
    per_parameter_s = 28 / (memory.bandwidth.value * memory.efficiency.value)
    assert priced(plan).breakdown.optimizer_s == pytest.approx(
        per_parameter_s * (others / 4 + experts)
    )


@pytest.mark.parametrize(
    ("plan", "stride"),
    [
        (plan_with(dp=4, ep=4), 1),
        (plan_with(tp=2, dp=4, ep=2), 2),
        (
            plan_with(
                tp=2, dp=4, ep=2, pp=2, stage_layers=(5, 1), group_order=GroupOrder.PIPELINE_INNER
            ),
            4,
        ),
    ],
)
def test_exchanges_take_their_seconds_of_every_pass(plan: UniformPlan, stride: int) -> None:
    """Two forward and two backward in each of three blocks with experts, one after another, all on
    the stage that decides."""
    payload = 2 * 256 * 2 * 512  # two rows of 512 for each of 256 tokens, bf16
    exchange_s = collective_s(CollectiveKind.ALL_TO_ALL, payload, plan.ep, stride, CLUSTER)
    found = priced(plan).breakdown
    assert found.expert_communication_s == pytest.approx(plan.micro_batches * 3 * 4 * exchange_s)
    again = priced(replace(plan, recompute=Recompute.FULL)).breakdown
    assert again.expert_communication_s == pytest.approx(1.5 * found.expert_communication_s)
    assert found.total_s == pytest.approx(priced(plan).iteration_s)


def test_the_work_of_all_devices_is_that_of_the_active_parameters() -> None:
    """Model FLOPs do not depend on how experts are divided, nor do tokens."""
    whole, divided = (priced(plan_with(dp=4, ep=ep)) for ep in (1, 4))
    assert divided.model_tflops_per_device * divided.iteration_s == pytest.approx(
        whole.model_tflops_per_device * whole.iteration_s
    )
    assert divided.tokens_per_s * divided.iteration_s == pytest.approx(16 * 256)
    graph = expert_graph_for(plan_with())
    assert not any(
        operator.collective and operator.collective.group is CollectiveGroup.EXPERT
        for layer in graph.layers
        for operator in layer.forward.operators
    )
