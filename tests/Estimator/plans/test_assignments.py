"""Axes that share out the tiers of a network: written, checked, and priced as the order of groups
that puts devices there too."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from Estimator.hardware_files import load_cluster
from Estimator.plans.assignment import Assignment, check_assignment, fitting, splits
from Estimator.plans.groups import Rectangle, layer_groups, replicas
from Estimator.plans.plan import check_cluster
from phaze_common.choices import GroupOrder
from phaze_common.errors import InputError
from tests.builders.training_cases import device_model, graph_for, iteration_of, plan_of

CLUSTER = load_cluster("dgx_a100")  # nodes of 8
parts = st.integers(1, 16)


@given(data=st.data(), tiers=st.integers(1, 4))
def test_what_is_written_is_read(data: st.DataObject, tiers: int) -> None:
    axes = [tuple(data.draw(parts) for _ in range(tiers)) for _ in range(6)]
    assigned = Assignment(*axes)
    assert Assignment.parsed(str(assigned)).over(tiers) == assigned
    assert Assignment.FORM.pattern.fullmatch(str(assigned))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "tp4.tp2/dp4",
            "tier 1 of 'tp4.tp2/dp4' names tp twice; .*the second axis of a 2d layout is written "
            "row",
        ),
        ("tp4/dp2.dp1", "tier 2 of 'tp4/dp2.dp1' names dp twice; name an axis once in a tier"),
        (
            "tp4.xp2/dp4",
            "tier 1 of 'tp4.xp2/dp4' holds 'xp2', which is no axis .tp, row, cp, dp, pp, ep. with "
            "its number",
        ),
        ("tp4//dp4", "tier 2 of 'tp4//dp4' is empty; write 1"),
        ("tp4/dp4/", "tier 3 of 'tp4/dp4/' is empty; write 1"),
        ("", "tier 1 of '' is empty; write 1"),
        ("/".join(["tp2"] * 11), "assigns axes to 11 tiers, and no network has more than 10"),
        *(
            (text, "is no axis .* with its number of devices")
            for text in ("tp", "tp4,dp2", "tp0", "tp-1", "4tp", "tp2:4", "tp2.1")
        ),
    ],
)
def test_other_texts_are_refused_with_their_reason(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Assignment.parsed(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tp4.dp2/dp8", r"pp is 4, but .* assigns 1 x 1 = 1 of it; make them equal"),
        ("tp4.dp4/dp4.pp4", r"puts 16 devices into each nvswitch, which holds 8"),
        (
            "tp4/dp16.pp4/cp1/1",
            r"to 4 tiers, but the 4,096 devices of dgx_a100 lie in 2: nvswitch and infiniband; "
            r"assign them to 2 tiers",
        ),
        ("tp4.dp2/dp8.pp64", r"pp is 4, but"),
        ("tp4.dp2.ep4/dp8.pp4", r"ep is 1, but"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, message: str) -> None:
    degrees = {"tp": 4, "tp2": 1, "cp": 1, "ep": 1, "dp": 16, "pp": 4}
    with pytest.raises(InputError, match=message):
        check_assignment(Assignment.parsed(text), degrees, CLUSTER)


def test_devices_beyond_the_cluster_are_refused() -> None:
    plan = plan_of(dp=1024, global_batch_size=1024, group_order=Assignment.parsed("1/dp1024"))
    with pytest.raises(
        InputError,
        match="1/dp1024 needs 8,185 devices, dgx_a100 has 4,096; fill the inner tiers better",
    ):
        check_cluster(plan, CLUSTER)


@given(degree=st.integers(1, 96), tiers=st.integers(1, 3))
def test_splits_are_all_products(degree: int, tiers: int) -> None:
    found = splits(degree, tiers)
    assert len(set(found)) == len(found) and all(np.prod(each) == degree for each in found)
    every = (
        np.stack(np.meshgrid(*[np.arange(1, degree + 1)] * tiers), -1).reshape(-1, tiers)
        if degree <= 24
        else None
    )
    assert every is None or len(found) == int((every.prod(axis=1) == degree).sum())
    assert all(parts[0][0] <= 8 for parts in fitting((degree,), (8, 10**6)))


# an order of groups, and the assignment that puts every device of it in the same place
SAME = [
    ({"tp": 2, "dp": 4}, GroupOrder.DATA_INNER, "tp2.dp4"),
    ({"tp": 2, "dp": 16, "pp": 2}, GroupOrder.DATA_INNER, "tp2.dp4/dp4.pp2"),
    ({"tp": 2, "dp": 16, "pp": 2}, GroupOrder.PIPELINE_INNER, "tp2.pp2.dp2/dp8"),
    ({"tp": 1, "dp": 8, "pp": 4}, GroupOrder.PIPELINE_INNER, "pp4.dp2/dp4"),
    ({"tp": 2, "cp": 2, "dp": 4, "pp": 2}, GroupOrder.PIPELINE_INNER, "tp2.cp2.pp2/dp4"),
    ({"tp": 2, "cp": 8, "dp": 2}, GroupOrder.DATA_INNER, "tp2.cp4/cp2.dp2"),
]


@pytest.mark.parametrize(("degrees", "order", "text"), SAME)
@pytest.mark.parametrize("zero_stage", [0, 1, 3])
def test_an_order_of_groups_is_one_of_the_assignments(
    degrees: dict[str, int], order: GroupOrder, text: str, zero_stage: int
) -> None:
    ordered = plan_of(**degrees, zero_stage=zero_stage, global_batch_size=64, group_order=order)
    assigned = replace(ordered, group_order=Assignment.parsed(text))
    assert layer_groups(assigned, CLUSTER) == layer_groups(ordered, CLUSTER)
    assert replicas(assigned, CLUSTER) == replicas(ordered, CLUSTER)
    graph, model = graph_for(replace(ordered, cp=1)), device_model()
    if ordered.cp == 1:
        first, second = (iteration_of(graph, plan, model, CLUSTER) for plan in (ordered, assigned))
        assert first == second


def test_an_assignment_is_priced_where_no_order_goes() -> None:
    """Half of a node for tensor parallelism, the other half for stages: neither replicas nor stages
    have a node to themselves."""
    plan = plan_of(
        tp=2, dp=4, pp=4, global_batch_size=64, group_order=Assignment.parsed("tp2.dp2.pp2/dp2.pp2")
    )
    assert replicas(plan, CLUSTER).levels == (Rectangle((2, 2)),)
    others = [
        replace(plan, group_order=order)
        for order in (GroupOrder.DATA_INNER, GroupOrder.PIPELINE_INNER)
    ]
    graph, model = graph_for(plan), device_model()
    seconds = [iteration_of(graph, each, model, CLUSTER).iteration_s for each in (plan, *others)]
    assert len(set(seconds)) == 3
