"""Products of experts with weights of their own: what they take beside plain products, and beside
measured ones."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import mean, median

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from Estimator.devices.device import Device
from Estimator.devices.files import device_names, load_device, load_software
from Estimator.devices.gemm import grouped_time, product_time
from Estimator.devices.operator_cost import DeviceModel
from GraphExtractor.graph import Gemm, Operand, OperandRole, Operator, OperatorKind, Phase, Yields

MEGATRON = load_software("megatron_core")
assert MEGATRON.grouped is not None
KERNEL = MEGATRON.grouped
SIZES = st.one_of(st.integers(1, 300), st.sampled_from([768, 1024, 2048, 7168]))
GROUPED = st.builds(Gemm, st.integers(2, 64), SIZES, SIZES, SIZES)
CLOSE = 1 + 1e-12

device = lru_cache(maxsize=None)(load_device)


def format_of(name: str) -> str:
    return "bfloat16" if "bfloat16" in device(name).matrix.peak else "float16"


def seconds(gemm: Gemm, name: str, sum_bytes: float | None = None) -> float:
    on = device(name)
    return grouped_time(gemm, on, format_of(name), 2, KERNEL, sum_bytes=sum_bytes).seconds


@given(name=st.sampled_from(device_names()), gemm=GROUPED)
def test_experts_are_never_faster_than_one_product_of_all_their_rows(name: str, gemm: Gemm) -> None:
    together = replace(gemm, batch=1, m=gemm.batch * gemm.m)
    plain = product_time(together, device(name), format_of(name), 2)
    assert plain.seconds <= seconds(gemm, name) * CLOSE


@given(
    name=st.sampled_from(device_names()),
    gemm=GROUPED,
    dimension=st.sampled_from(["batch", "m", "k", "n"]),
    more=st.integers(1, 300),
)
def test_more_experts_and_more_rows_never_take_less(
    name: str, gemm: Gemm, dimension: str, more: int
) -> None:
    larger = replace(gemm, **{dimension: getattr(gemm, dimension) + more})
    assert seconds(gemm, name) <= seconds(larger, name) * CLOSE


@given(name=st.sampled_from(device_names()), gemm=GROUPED)
def test_one_expert_is_a_plain_product_but_for_what_does_not_overlap(name: str, gemm: Gemm) -> None:
    one = replace(gemm, batch=1)
    plain = product_time(one, device(name), format_of(name), 2)
    stated = device(name).matrix.exposed or KERNEL.exposed
    most_s = plain.seconds + stated.value * min(plain.arithmetic_s, plain.traffic_s)
    assert plain.seconds <= seconds(one, name) * CLOSE
    assert seconds(one, name) <= most_s * CLOSE


def operator(yields: Yields, *, of_weights: bool = True, experts: int = 8) -> Operator:
    """Gate and up projection of experts with 256 rows each, or its gradients."""
    rows, inner, hidden = 256, 1536, 2048
    gemm = Gemm(experts, rows, hidden, inner)
    if yields is Yields.WEIGHT_GRADIENT:
        gemm = Gemm(experts, hidden, rows, inner)
    role = OperandRole.PARAMETER if of_weights else OperandRole.ACTIVATION
    weights = (Operand((experts, hidden, inner), "bfloat16", role),)
    activations = (Operand((experts, rows, hidden), "bfloat16", OperandRole.ACTIVATION),)
    phase = Phase.FORWARD if yields is Yields.OUTPUT else Phase.BACKWARD
    reads = activations if yields is Yields.WEIGHT_GRADIENT else (*activations, *weights)
    return Operator(0, "mlp.experts.bmm", OperatorKind.GEMM, phase, yields, (gemm,), reads=reads)


def model(software: str = "megatron_core") -> DeviceModel:
    return DeviceModel(device("h100"), load_software(software), "bfloat16")


def test_the_host_issues_a_product_of_each_expert() -> None:
    assert KERNEL.issue is not None
    for experts in (2, 64):
        found = model().operator_time(operator(Yields.OUTPUT, experts=experts))
        least_s = MEGATRON.host_issue.value  # of any product
        assert found.host_s == pytest.approx(max(experts * KERNEL.issue.value, least_s))
    # one kernel of torch, and none of experts
    alone_s = load_software("pytorch_fsdp").host_issue.value
    assert model("pytorch_fsdp").operator_time(operator(Yields.OUTPUT)).host_s == alone_s
    heads = operator(Yields.OUTPUT, of_weights=False)
    assert model().operator_time(heads).host_s == MEGATRON.host_issue.value


def test_gradients_of_experts_are_added_to_sums_in_fp32_where_products_add() -> None:
    on = device("h100")
    gemm = operator(Yields.WEIGHT_GRADIENT).gemms[0]
    found = model().operator_time(operator(Yields.WEIGHT_GRADIENT))
    summed = grouped_time(gemm, on, "bfloat16", 2, KERNEL, sum_bytes=8, year=MEGATRON.year)
    assert found.arithmetic_s + found.memory_s == pytest.approx(summed.seconds)
    written = grouped_time(gemm, on, "bfloat16", 2, KERNEL, year=MEGATRON.year)
    apart = model("pytorch_fsdp").operator_time(operator(Yields.WEIGHT_GRADIENT))
    assert apart.arithmetic_s + apart.memory_s == pytest.approx(written.seconds)
    assert summed.seconds > 1.5 * written.seconds


def test_tokens_are_permuted_at_the_rate_that_is_stated() -> None:
    rows = Operand((4096, 2048), "bfloat16", OperandRole.ACTIVATION)
    made = Operator(
        *(0, "mlp.gather_rows", OperatorKind.GATHER, Phase.FORWARD, Yields.OUTPUT),
        reads=(rows,),
        writes=(rows,),
    )
    assert made.permutes_rows
    found, bandwidth = model().operator_time(made), device("h100").memory.bandwidth.value
    assert found.memory_s == pytest.approx(2 * rows.bytes / (KERNEL.permutation.value * bandwidth))
    looked_up = replace(made, name="embed_tokens.embedding")
    assert model().operator_time(looked_up).memory_s < found.memory_s


# Measured on one site each (SimuMax): relative to plain products there.


@dataclass(frozen=True)
class Measured:
    """Products of ``gemm`` in bf16, with results of so many bytes where they are sums."""

    gemm: Gemm
    sum_bytes: float | None
    seconds: float


def measured(path: Path, peak: str) -> Iterator[Measured]:
    """Products of one kind of operation: "matmul" or "group_matmul"."""
    table = json.loads(path.read_text())["accelerator"]["op"][peak]
    for key, efficiency in table["accurate_efficient_factor"].items():
        stated = dict(each.split("=") for each in key.split(", "))
        sum_bytes = None
        if peak == "matmul":
            gemm = Gemm(*(int(stated[each]) for each in ("b", "m", "k", "n")))
            if gemm.batch > 1 or gemm.m < 1000 or stated["accumulate"] == "True":
                continue
        else:
            experts, rows, n, k = (int(stated[each]) for each in ("ng", "M", "N", "K"))
            gemm = Gemm(experts, rows, k, n)
            if stated["stage"] == "bwd_grad_act":
                gemm = Gemm(experts, rows, n, k)
            if stated["stage"] == "bwd_grad_w":
                gemm = Gemm(experts, n, rows, k)
                sum_bytes = 8.0 if stated["main_grad_dtype"] == "fp32" else 4.0
        seconds = 2 * gemm.macs / (efficiency * table["tflops"] * 1e12)
        yield Measured(gemm, sum_bytes, seconds)


def of_site(on: Device, path: Path) -> float:
    """Seconds of plain products as they are priced over those measured: the median."""
    return median(
        product_time(each.gemm, on, "bfloat16", 2, year=MEGATRON.year).seconds / each.seconds
        for each in measured(path, "matmul")
    )


@pytest.mark.parametrize(
    ("name", "file", "most"), [("b200", "b200_bf16_ceperm", 0.13), ("a100_80gb", "a100_pcie", 0.1)]
)
def test_products_of_experts_are_those_measured_as_far_as_plain_ones_are(
    name: str, file: str, most: float, shared_data: Path
) -> None:
    path, on = shared_data / "simumax" / f"{file}.json", device(name)
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    assert KERNEL.issue is not None
    site, found = of_site(on, path), []
    for each in measured(path, "group_matmul"):
        time = grouped_time(
            each.gemm, on, "bfloat16", 2, KERNEL, sum_bytes=each.sum_bytes, year=MEGATRON.year
        )
        issued_s = each.gemm.batch * KERNEL.issue.value
        found.append(max(time.seconds / site, issued_s) / each.seconds - 1)
    assert len(found) >= 12
    assert mean(map(abs, found)) < most
    assert abs(mean(found)) < most


# Fused layers of experts of inference in CUTLASS kernels (aiconfigurator): of an L40S and a GB200
# nothing was fitted to.


@pytest.mark.parametrize(
    ("name", "measured_as"),
    [(each, each) for each in ("gb200", "l40s")]
    + [("b200", "b200_sxm"), ("h100", "h100_sxm"), ("h200", "h200_sxm")],
)
def test_fused_layers_of_experts_are_those_measured(
    name: str, measured_as: str, shared_data: Path
) -> None:
    path, on = shared_data / "kernels_2026" / "grouped_gemm.parquet", device(name)
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    table = pd.read_parquet(path)
    table = table[
        (table.device_name == measured_as)
        & (table.distribution == "balanced")
        & (table.moe_dtype == "bfloat16")
        & table.kernel_source.str.contains("cutlass")
        # as in training: most experts on a device, none cut into strips, no fixed costs
        & (table.moe_ep_size <= 2)
        & (table.inter_size // table.moe_tp_size >= 256)
        & (table.latency >= 0.2)
    ]
    found = []
    for row in table.itertuples():
        experts, inner = row.num_experts // row.moe_ep_size, row.inter_size // row.moe_tp_size
        routed, hidden = row.num_tokens * row.topk // row.moe_ep_size, row.hidden_size
        products = (
            Gemm(experts, -(-routed // experts), hidden, 2 * inner),
            Gemm(experts, -(-routed // experts), inner, hidden),
        )
        moved = 2 * (3 * routed * inner + routed * hidden + routed // row.topk * hidden)
        predicted_s = moved / on.memory.stream_bytes_per_s() + 4 * on.launch.gap.value
        predicted_s += sum(
            grouped_time(each, on, "bfloat16", 2, KERNEL).seconds for each in products
        )
        found.append(predicted_s / (row.latency * 1e-3) - 1)
    assert len(found) > 15
    assert abs(median(found)) < 0.15
    assert mean(map(abs, found)) < 0.2
