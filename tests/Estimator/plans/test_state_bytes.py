"""Number formats of training state: bytes as published, and what narrower ones save in memory,
traffic and messages."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Estimator.devices.files import load_device, load_software
from Estimator.devices.operator_cost import DeviceModel
from Estimator.hardware_files import load_cluster
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.policy import check_formats, optimizer_state, policy_under, training_policy
from Estimator.plans.results import Iteration
from Estimator.plans.state_bytes import StateBytes
from Estimator.plans.state_formats import StateFormats
from phaze_common.choices import MomentDtype, Optimizer, Precision, StateDtype
from phaze_common.errors import InputError
from tests.builders.training_cases import graph_for, iteration_of, plan_of

MEGATRON = (
    "megatron_2021",
    "megatron_2022",
    "megatron_core_2023",
    "megatron_core_2024",
    "megatron_core",
)
FRAMEWORK, DEEPSPEED = load_software("megatron_core"), load_software("megatron_deepspeed_bf16")
# weight, gradient, optimizer state, and traffic of a step (Rajbhandari et al. 2020; what updates
# read and write)
PUBLISHED = {
    ("adam", Precision.BF16): (2, 2, 12, 28),
    ("sgd", Precision.BF16): (2, 2, 0, 6),
    ("sgd_momentum", Precision.BF16): (2, 2, 4, 14),
    ("adam", Precision.FP32): (4, 4, 8, 28),
    ("sgd", Precision.FP32): (4, 4, 0, 12),
    ("sgd_momentum", Precision.FP32): (4, 4, 4, 20),
}
stated = st.builds(
    StateFormats,
    st.none() | st.sampled_from(StateDtype),
    st.none() | st.sampled_from(MomentDtype),
    st.none() | st.sampled_from(StateDtype),
    st.booleans(),
)


def priced(formats: StateFormats, **given: object) -> Iteration:
    given = {
        "dp": 4,
        "micro_batch_size": 1,
        "global_batch_size": 8,
        "precision": Precision.FP8,
    } | given
    plan = plan_of(eager=False, state_formats=formats, **given)
    model = DeviceModel(load_device("h100"), FRAMEWORK, "float8")
    return iteration_of(graph_for(plan), plan, model, load_cluster("dgx_h100"))


@pytest.mark.parametrize(("optimizer", "precision"), PUBLISHED)
def test_bytes_are_those_of_the_papers(optimizer: str, precision: Precision) -> None:
    state = training_policy(optimizer, 0, precision).state
    assert (state.weight, state.gradient, state.optimizer, state.step) == PUBLISHED[
        optimizer, precision
    ]


def test_megatron_keeps_two_bytes_less_of_a_gradient_where_it_is_told() -> None:
    """``--grad-reduce-in-bf16``, and all that its precision-aware optimizer can keep in fewer
    bits."""
    plan = UniformPlan(precision=Precision.BF16)
    assert policy_under(FRAMEWORK, plan).state == StateBytes(2.0, 4.0, 4.0, 8.0)
    told = StateFormats(StateDtype.BF16, MomentDtype.FP8, StateDtype.FP16)
    assert policy_under(FRAMEWORK, replace(plan, state_formats=told)).state == StateBytes(
        2.0, 2.0, 2.0, 2.0
    )
    held = replace(plan, precision=Precision.FP8, state_formats=StateFormats(fp8_weights=True))
    assert policy_under(FRAMEWORK, held).state == StateBytes(1.0, 4.0, 4.0, 8.0, wider=1.0)


@pytest.mark.parametrize(
    ("software", "precision", "published"),
    [
        *((name, Precision.BF16, (4.0, 0.0)) for name in MEGATRON),
        *((name, Precision.FP16, (2.0, 0.0)) for name in MEGATRON),
        *((name, Precision.FP32, (4.0, 0.0)) for name in MEGATRON),
        ("megatron_core", Precision.FP8, (4.0, 0.0)),
        ("megatron_deepspeed_bf16", Precision.BF16, (4.0, 2.0)),
        ("megatron_deepspeed_bf16", Precision.FP16, (2.0, 0.0)),
    ],
)
def test_gradients_are_as_wide_as_programs_keep_them(
    software: str, precision: Precision, published: tuple[float, float]
) -> None:
    """Megatron-LM's arguments.py of 2021 to 2025: those of bf16 weights are added up in fp32, of
    fp16 weights in fp16.

    DeepSpeed's BF16_Optimizer, which keeps those of a pass beside its fp32 sums, is for bf16 alone.
    """
    state = policy_under(load_software(software), UniformPlan(precision=precision)).state
    assert (state.gradient, state.second_gradient) == published


def test_weights_of_the_main_format_are_updated_in_place() -> None:
    plan = UniformPlan(
        precision=Precision.BF16, state_formats=StateFormats(main_weight_dtype=StateDtype.BF16)
    )
    assert policy_under(FRAMEWORK, plan).state.main_weight == 0.0
    assert policy_under(FRAMEWORK, replace(plan, precision=Precision.FP8)).state.main_weight == 0.0
    beside = replace(
        plan, precision=Precision.FP8, state_formats=replace(plan.state_formats, fp8_weights=True)
    )
    assert policy_under(FRAMEWORK, beside).state.main_weight == 2.0  # of weights held in fp8


def test_sums_as_narrow_as_the_gradients_of_a_pass_are_these() -> None:
    plan = UniformPlan(precision=Precision.BF16)
    assert policy_under(DEEPSPEED, plan).state.second_gradient == 2.0
    narrow = replace(plan, state_formats=StateFormats(StateDtype.BF16))
    assert policy_under(DEEPSPEED, narrow).state.second_gradient == 0.0


@settings(max_examples=40, deadline=None)
@given(formats=stated, zero=st.integers(0, 3), tp=st.sampled_from([1, 2]))
def test_fewer_bits_never_cost_more(formats: StateFormats, zero: int, tp: int) -> None:
    """Each format in fewer bits alone saves memory, or costs nothing: neither in bytes nor in
    seconds."""
    narrow: dict[str, object] = {"gradient_dtype": StateDtype.BF16, "moment_dtype": MomentDtype.FP8}
    before = priced(formats, zero_stage=zero, tp=tp)
    for name, value in narrow.items():
        after = priced(replace(formats, **{name: value}), zero_stage=zero, tp=tp)  # type: ignore[arg-type]
        assert after.memory_bytes <= before.memory_bytes * (1 + 1e-12)
        assert after.breakdown.optimizer_s <= before.breakdown.optimizer_s * (1 + 1e-12)
        data = (
            each.breakdown.data_communication_s + each.breakdown.hidden_data_communication_s
            for each in (after, before)
        )
        assert next(data) <= next(data) * (1 + 1e-12)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_what_is_saved_is_the_difference_of_the_bytes(zero: int) -> None:
    """Of weights in fp8 the matrices of the blocks alone: embedding, head, norms and biases stay in
    bf16."""
    copies, parameters = 4, priced(StateFormats(), zero_stage=zero).stages[0].parameters
    graph = graph_for(plan_of(eager=False))
    matrices = sum(graph.layers[index].matmul_parameter_count for index in graph.sequence[1:-1])
    assert 0 < matrices < parameters
    before = priced(StateFormats(), zero_stage=zero).stages[0].parameter_state_bytes
    for formats, saved, of, sharded_from in (
        (StateFormats(StateDtype.BF16), 2.0, parameters, 2),
        (StateFormats(moment_dtype=MomentDtype.FP8), 6.0, parameters, 1),
        (StateFormats(main_weight_dtype=StateDtype.FP16), 2.0, parameters, 1),
        (StateFormats(fp8_weights=True), 1.0, matrices, 3),
    ):
        after = priced(formats, zero_stage=zero).stages[0].parameter_state_bytes
        part = copies if zero >= sharded_from else 1
        assert before - after == pytest.approx(saved * of / part, rel=1e-9)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"state_formats": StateFormats(fp8_weights=True)}, "give precision fp8"),
        (
            {
                "precision": Precision.FP32,
                "state_formats": StateFormats(main_weight_dtype=StateDtype.BF16),
            },
            "leave main_weight_dtype out",
        ),
        (
            {"optimizer": "sgd", "state_formats": StateFormats(moment_dtype=MomentDtype.BF16)},
            "give optimizer adam",
        ),
    ],
)
def test_formats_that_cannot_be_are_refused_with_a_remedy(
    plan: dict[str, object], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        check_formats(UniformPlan(**plan))  # type: ignore[arg-type]


def test_every_optimizer_has_its_state_and_every_format_its_words() -> None:
    assert all(optimizer_state(each.value).moments >= 0 for each in Optimizer)
    every = StateFormats(StateDtype.BF16, MomentDtype.FP8, StateDtype.FP16, fp8_weights=True)
    assert str(every).count(" in ") == len(fields(StateFormats)) == len(every.settings())
    assert not StateFormats() and not str(StateFormats())
