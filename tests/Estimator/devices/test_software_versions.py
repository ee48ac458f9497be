"""What software of another year, eager frameworks and reduced formats cost on the same device."""

from dataclasses import replace

import pytest

from Estimator.devices.device import Device
from Estimator.devices.files import load_device, load_software
from Estimator.devices.functions import traffic_bytes
from Estimator.devices.gemm import attention_share, attention_time, product_time
from Estimator.devices.operator_cost import DeviceModel
from Estimator.devices.software import NEWEST, Software
from Estimator.hardware_files import hardware_names
from GraphExtractor.graph import (
    Gemm,
    Operand,
    OperandRole,
    Operator,
    OperatorKind,
    Phase,
    VectorWork,
    Yields,
)
from GraphExtractor.score_mask import ScoreMask
from tests.builders.operators_by_hand import attention_operator

H100, A100 = load_device("h100"), load_device("a100_80gb")
CORE = load_software("megatron_core")
LARGE = Gemm(1, 8192, 8192, 8192)


def tensor(*shape: int) -> Operand:
    return Operand(shape, "bfloat16", OperandRole.ACTIVATION)


def product(gemm: Gemm = LARGE, yields: Yields = Yields.OUTPUT, *vector: VectorWork) -> Operator:
    reads = (tensor(gemm.m, gemm.k), tensor(gemm.k, gemm.n))
    return Operator(
        0,
        "it",
        OperatorKind.GEMM,
        Phase.FORWARD,
        yields,
        gemms=(gemm,),
        vector=vector,
        reads=reads,
        writes=(tensor(gemm.m, gemm.n),),
    )


def seconds(
    device: Device, software: Software, operator: Operator, number_format: str = "bfloat16"
) -> float:
    return DeviceModel(device, software, number_format).operator_time(operator).device_s


@pytest.mark.parametrize("number_format", ["bfloat16", "float8"])
def test_libraries_of_before_reach_less_on_a_device_that_was_young(number_format: str) -> None:
    bare = replace(CORE, quantisation=None)
    by_year = [
        seconds(H100, replace(bare, year=year), product(), number_format)
        for year in (2022, 2023, 2024, 2025, NEWEST)
    ]
    assert (
        by_year == sorted(by_year, reverse=True)
        and by_year[0] == by_year[1] > by_year[3] >= by_year[4]
    )
    oldest, stated = (
        H100.matrix.libraries[0].products[number_format].value,
        product_time(LARGE, H100, number_format, 2).arithmetic_s,
    )
    assert product_time(LARGE, H100, number_format, 2, year=2023).arithmetic_s == pytest.approx(
        stated / oldest
    )
    assert seconds(A100, replace(bare, year=2021), product()) == seconds(
        A100, bare, product()
    )  # it was not young


def test_attention_takes_the_kernel_of_the_framework() -> None:
    triton, flash, cudnn = load_software("llm_foundry_2023"), load_software("pytorch_fsdp"), CORE
    assert (
        triton.attention is not None and flash.attention is not None and cudnn.attention is not None
    )
    attention = attention_operator(0, 2, 16, 1024, 128)
    for device in (A100, H100):
        mine = attention_share(device, triton.attention, backward=False)
        assert mine == pytest.approx(
            device.matrix.attention_forward.value * triton.attention.forward.value
        )
        assert seconds(device, triton, attention) > seconds(
            device, replace(triton, attention=None), attention
        )
    stated = H100.matrix.attention_kernels["cudnn"]
    assert (
        attention_share(H100, cudnn.attention, backward=True) == stated.backward.value
    )  # as the device says
    assert (
        attention_share(A100, cudnn.attention, backward=True)
        == A100.matrix.attention_backward.value
    )


def test_an_eager_framework_runs_each_function_behind_a_product_by_itself() -> None:
    eager = load_software("pytorch_fsdp")
    joined = replace(eager, eager=False)
    elements = LARGE.m * LARGE.n
    rotary = tuple(VectorWork(function, elements) for function in ("mul", "copy", "mul", "add"))
    alone = seconds(A100, eager, product()), seconds(A100, joined, product())
    assert alone[0] == alone[1]
    assert seconds(A100, joined, product(LARGE, Yields.OUTPUT, *rotary)) == alone[1]
    moved_s = (
        sum(traffic_bytes(work.function, elements, 2) for work in rotary)
        / A100.memory.stream_bytes_per_s()
    )
    more_s = seconds(A100, eager, product(LARGE, Yields.OUTPUT, *rotary)) - alone[0]
    assert more_s == pytest.approx(moved_s + len(rotary) * A100.launch.gap.value)


def test_a_first_bias_is_the_librarys_also_where_kernels_are_eager() -> None:
    eager, elements = load_software("pytorch_fsdp"), LARGE.m * LARGE.n
    added, residual = VectorWork("add", elements), VectorWork("add", elements)
    biased = product(LARGE, Yields.OUTPUT, added, residual)
    biased = replace(biased, reads=(*biased.reads, tensor(LARGE.n), tensor(LARGE.m, LARGE.n)))
    one_s = (
        traffic_bytes("add", elements, 2) / A100.memory.stream_bytes_per_s() + A100.launch.gap.value
    )
    assert seconds(A100, eager, biased) - seconds(A100, eager, product()) == pytest.approx(one_s)


def test_inputs_of_products_in_fp8_are_cast_once_each() -> None:
    assert CORE.quantisation is not None
    bare, cast = replace(CORE, quantisation=None), LARGE.m * LARGE.k * CORE.quantisation.value
    cast_s = cast / H100.memory.stream_bytes_per_s() + H100.launch.gap.value
    for yields, times in (
        (Yields.OUTPUT, 1),
        (Yields.INPUT_GRADIENT, 1),
        (Yields.WEIGHT_GRADIENT, 0),
    ):
        operator = product(LARGE, yields)
        more_s = seconds(H100, CORE, operator, "float8") - seconds(H100, bare, operator, "float8")
        assert more_s == pytest.approx(times * cast_s, abs=1e-12)
        assert seconds(H100, CORE, operator) == seconds(H100, bare, operator)


def test_a_host_that_waits_for_every_kernel_adds_its_time() -> None:
    waits = DeviceModel(A100, replace(CORE, blocks=True), "bfloat16").operator_time(product())
    ahead = DeviceModel(A100, CORE, "bfloat16").operator_time(product())
    assert waits.host_s == 0.0 and waits.device_s == pytest.approx(ahead.device_s + ahead.host_s)


@pytest.mark.parametrize("name", hardware_names("software"))
def test_software_never_has_libraries_newer_than_its_name_says(name: str) -> None:
    software = load_software(name)
    stated = [int(part) for part in name.split("_") if part.isdecimal()]
    assert not stated or software.year == stated[0]


@pytest.mark.parametrize(
    ("width", "computed"), [(64, 64), (72, 96), (80, 96), (128, 128), (144, 160), (320, 320)]
)
def test_heads_are_padded_to_a_width_that_the_kernel_has(width: int, computed: int) -> None:
    flash = load_software("pytorch_fsdp").attention
    assert flash is not None
    scores, values = (
        Gemm(batch=16, m=2048, n=2048, k=width),
        Gemm(batch=16, m=2048, n=width, k=2048),
    )
    taken, bare = (
        attention_time([scores, values], A100, "bfloat16", 0.0, None, False, each)
        for each in (flash, None)
    )
    assert taken.arithmetic_s == pytest.approx(bare.arithmetic_s * computed / width, rel=1e-12)


def test_functions_that_a_framework_makes_of_several_kernels_move_what_all_of_these_do() -> None:
    composed = load_software("pytorch_fsdp")
    rows = (tensor(4096, 4096),)
    norm = replace(product(), kind=OperatorKind.REDUCTION, gemms=(), reads=rows, writes=rows)
    norm = replace(norm, vector=(VectorWork("rms_norm", 4096 * 4096),))
    one, several = (
        DeviceModel(H100, each, "bfloat16").operator_time(norm)
        for each in (replace(composed, composed={}), composed)
    )
    made = composed.composed["rms_norm"]
    assert several.memory_s == pytest.approx(
        made.bytes.value * 4096 * 4096 / H100.memory.stream_bytes_per_s(), rel=1e-12
    )
    assert several.memory_s > 5 * one.memory_s
    assert several.launch_s == pytest.approx(made.kernels.value * one.launch_s)
    assert several.host_s == pytest.approx(made.kernels.value * one.host_s)


@pytest.mark.parametrize(
    ("device", "heads", "width", "tokens", "window", "measured_s"),
    # forward of one sequence in bf16 (ai-dynamo/aiconfigurator 095f58a, attention of vLLM 0.24)
    [
        ("gb200", 256, 64, 4096, 128, 2.219e-4),
        ("gb200", 256, 64, 4096, None, 7.705e-4),
        ("gb200", 128, 128, 8192, 128, 3.163e-4),
        ("gb300", 256, 64, 4096, 128, 1.949e-4),
        ("gb300", 256, 64, 4096, None, 5.648e-4),
    ],
)
def test_attention_within_a_window_takes_as_long_as_measured(
    device: str, heads: int, width: int, tokens: int, window: int | None, measured_s: float
) -> None:
    engine = load_device(device)
    scores, values = (
        Gemm(batch=heads, m=tokens, n=tokens, k=width),
        Gemm(batch=heads, m=tokens, n=width, k=tokens),
    )
    mask = ScoreMask(tokens, tokens, causal=True, window=window)
    taken = attention_time([scores, values], engine, "bfloat16", 0.0, mask, False)
    assert taken.arithmetic_s == pytest.approx(measured_s, rel=0.35)
