"""What must hold of AMPeD's times whatever the training: sums, scaling, and that more of anything
is never slower."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.third_party.amped_cases import LEFT_OUT, configuration
from third_party.amped.breakdown import Breakdown, breakdown
from third_party.amped.corrections import NAMES, applied
from third_party.amped.matrices import MatDims, gemms, mat_dims
from third_party.amped.rules import build_table
from third_party.amped.times import TimeQuantities

QUICK = settings(suppress_health_check=[HealthCheck.too_slow], max_examples=40)
KEPT = st.sampled_from([(), NAMES, ("group_volumes",), ("bubble", "sharding")])


@st.composite
def trainings(draw: st.DrawFn) -> dict[str, Any]:
    """Changes of the small training that can be divided by their degrees."""
    size = st.sampled_from([1, 2, 3, 4])
    tensor_inside, tensor_between, stages_inside, stages_between, data_inside, data_between = (
        draw(size) for _ in range(6)
    )
    tp, pp, dp = (
        tensor_inside * tensor_between,
        stages_inside * stages_between,
        data_inside * data_between,
    )
    heads = tp * draw(size)
    return {
        **{
            "intra_node_tensor_parallel_degree": tensor_inside,
            "inter_node_tensor_parallel_degree": tensor_between,
        },
        **{
            "intra_node_pipeline_parallel_degree": stages_inside,
            "inter_node_pipeline_parallel_degree": stages_between,
        },
        **{
            "intra_node_data_parallel_degree": data_inside,
            "inter_node_data_parallel_degree": data_between,
        },
        **{"number_of_accelerators_per_node": tensor_inside * stages_inside * data_inside},
        **{
            "attention_heads": heads,
            "dimensionality": 3 * heads,
            "layers": pp * draw(size),
            "batch_size": dp * draw(size) * 2,
        },
        **{"hidden_layer_dimension_MLP_1": LEFT_OUT, "hidden_layer_dimension_MLP_2": LEFT_OUT},
        **{
            "decoder_flag": draw(st.sampled_from([0, 1])),
            "number_of_experts": draw(st.sampled_from([1, 4, 64])),
        },
        **{
            "zero_stage": draw(st.integers(0, 3)),
            "weight_precision": draw(st.sampled_from([8, 16, 32])),
        },
        **{"r_non_overlapping": draw(st.sampled_from([0.0, 0.5, 1.0]))},
    }


def table(
    changes: dict[str, Any], kept: tuple[str, ...] = (), instead: dict[str, float] | None = None
) -> TimeQuantities:
    return build_table(configuration(**changes), applied(kept), instead)


def parts(result: Breakdown) -> float:
    names = (
        "Total computation time (s)",
        "Total communication time (s)",
        "Waiting Time due to pipeline bubbles (s)",
    )
    return sum(result[name] for name in names)


@QUICK
@given(trainings(), KEPT)
def test_the_breakdown_adds_up(changes: dict[str, Any], kept: tuple[str, ...]) -> None:
    result = breakdown(table(changes, kept))
    assert all(line.value >= 0 for line in result.lines)
    assert parts(result) == pytest.approx(result["Total time to train (s)"], rel=1e-12)
    passes = ("forward pass", "backward pass", "weight updates")
    assert sum(result[f"Computation time {each} (s)"] for each in passes) == pytest.approx(
        result["Total computation time (s)"]
    )
    for direction, short in (("forward", "FW"), ("backward", "BW")):
        name = f"Communication time {direction} pass"
        of_pass = [line.value for line in result.lines if line.label.startswith(f"{name}:")]
        assert len(of_pass) == 4
        total = sum(of_pass) + result[f"MoE {short} pass communication overhead time (s)"]
        assert total == pytest.approx(
            result[f"Total communication time {direction} pass (s)"], rel=1e-12
        )
    gradients = [
        result[f"Communication time: all-reduce gradients for DP {place} node (s)"]
        for place in ("intra", "inter")
    ]
    assert sum(gradients) == result["Communication time: all-reduce gradients for DP total (s)"]
    achieved, peak = result["TFLOP/sec/GPU"], result["TFLOP/sec/GPU (peak)"]
    assert kept == NAMES or achieved <= peak * 0.5 * (1 + 1e-12)  # the small training's efficiency


@QUICK
@given(trainings(), KEPT, st.sampled_from([2, 3, 10]))
def test_more_tokens_take_proportionally_longer(
    changes: dict[str, Any], kept: tuple[str, ...], times: int
) -> None:
    one, many = (
        breakdown(table({**changes, "tokens_to_train": 3200 * each}, kept)) for each in (1, times)
    )
    rates = {"total TFLOPS/sec", "TFLOP/sec/GPU", "TFLOP/sec/GPU (peak)"}
    for line in one.lines:
        assert many[line.label] == pytest.approx(
            line.value * (1 if line.label in rates else times), rel=1e-9
        ), line.label


@QUICK
@given(
    trainings(),
    KEPT,
    st.sampled_from(
        [
            *(
                "bandwidth_per_network_card",
                "inter_accelerator_bandwidth",
                "frequency",
                "number_of_cores",
            ),
            *(
                "functional_unit_hardware_8bit_MAC_per_cycle",
                "non_linear_functional_units_per_core",
                "efficiency",
            ),
        ]
    ),
)
def test_more_of_anything_is_never_slower(
    changes: dict[str, Any], kept: tuple[str, ...], name: str
) -> None:
    before = table(changes, kept)
    seconds = before.number("total_time_to_train")
    after = table(changes, kept, {name: before.number(name) * 2})
    assert after.number("total_time_to_train") <= seconds
    assert after.number("total_time_to_train") >= seconds / 2 * (1 - 1e-12)


@QUICK
@given(
    trainings(),
    KEPT,
    st.sampled_from(
        ["inter_node_latency", "inter_accelerator_latency", "electrical_oversub_factor"]
    ),
)
def test_a_slower_network_is_never_quicker(
    changes: dict[str, Any], kept: tuple[str, ...], name: str
) -> None:
    before = table(changes, kept)
    seconds = before.number("total_time_to_train")
    after = table(changes, kept, {name: before.number(name) * 2})
    assert after.number("total_time_to_train") >= seconds


@QUICK
@given(trainings())
def test_more_of_zero_needs_no_more_memory(changes: dict[str, Any]) -> None:
    memory = [
        table({**changes, "zero_stage": stage}).number("total_required_memory_per_accelerator")
        for stage in range(4)
    ]
    assert memory == sorted(memory, reverse=True)


@QUICK
@given(trainings(), st.sampled_from([0, 1]))
def test_the_products_of_a_layer_are_its_operations(changes: dict[str, Any], decoder: int) -> None:
    whole = table({**changes, "decoder_flag": decoder})
    expected = whole.number("total_attention_sublayer_MAC_operations") + whole.number(
        "total_MLP_sublayer_MAC_operations"
    )
    assert sum(each.macs for each in gemms(whole)) == pytest.approx(expected, rel=1e-12)


def test_matrix_dimensions_for_deepflow() -> None:
    """Of a replica of 2, averaged over 2 stages: 32 tokens / 4 = 8 rows."""
    small = build_table(configuration(), ())
    lines = ["24 6 6", "8 3 8", "8 4 6", "8 6 6", "8 6 24", "8 24 6"]
    assert mat_dims(small, MatDims.PLAIN).splitlines() == lines
    rows, inner, columns = zip(*(map(int, line.split()) for line in lines), strict=True)
    macs = sum(a * b * c for a, b, c in zip(rows, inner, columns, strict=True))
    assert macs * 4 == small.number("total_attention_sublayer_MAC_operations") + small.number(
        "total_MLP_sublayer_MAC_operations"
    )
    published = mat_dims(small, MatDims.TRAINING, ("matrix_dimensions",)).splitlines()
    assert [line.split()[:3] for line in published[4:]] == [["8", "6", "6"], ["8", "6", "24"]]
    names = ["X.W=KQV", "Q.K=R", "R.V=Z", "Z.W=O", "O.WL1=O1", "O1.WL2=O2"]
    assert [line.split()[3:] for line in published] == [
        [split, name] for split, name in zip(["CR"] * 4 + ["RC"] * 2, names, strict=True)
    ]
