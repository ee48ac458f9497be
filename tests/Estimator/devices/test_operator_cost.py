"""What operators of a graph cost on a device under a framework: which kernels run and how much each
moves."""

from dataclasses import replace

import pytest

from Estimator.devices.files import load_device, load_software
from Estimator.devices.gemm import product_time
from Estimator.devices.operator_cost import DeviceModel, KernelTime
from Estimator.devices.software import Software
from GraphExtractor.graph import (
    Collective,
    CollectiveKind,
    Gemm,
    Operand,
    OperandRole,
    Operator,
    OperatorKind,
    Phase,
    VectorWork,
    Yields,
)
from tests.builders.operators_by_hand import attention_operator, ring_operator

DEVICE = load_device("a100_80gb")
MEMORY, GAP_S = DEVICE.memory, DEVICE.launch.gap.value
SCORES = (2, 16, 512, 512)
ELEMENTS = 2 * 16 * 512 * 512


def model_of(software: str = "megatron_2022", number_format: str = "float16") -> DeviceModel:
    return DeviceModel(DEVICE, load_software(software), number_format)


def tensor(*shape: int) -> Operand:
    return Operand(shape, "float16", OperandRole.ACTIVATION)


def operator(kind: OperatorKind, **given: object) -> Operator:
    return Operator(0, "it", kind, Phase.FORWARD, Yields.OUTPUT, **given)  # type: ignore[arg-type]


def softmax(
    causal: bool, dropout: bool, shape: tuple[int, ...] = SCORES, phase: Phase = Phase.FORWARD
) -> Operator:
    function = "softmax" if phase is Phase.FORWARD else "softmax_backward"
    works = (
        VectorWork(function, ELEMENTS),
        *((VectorWork("dropout", ELEMENTS),) if dropout else ()),
    )
    scores = tensor(*shape)
    made = operator(
        OperatorKind.REDUCTION,
        vector=works,
        reads=(scores,),
        writes=(scores,),
        core_attention=True,
        causal=causal,
    )
    return replace(made, phase=phase)


def streamed_s(traffic_bytes: float, function: str) -> float:
    return traffic_bytes / (MEMORY.bandwidth.value * MEMORY.efficiency_of((function,)))


def host_kernels(time: KernelTime, software: Software) -> float:
    return time.host_s / software.host_issue.value


def test_a_product_is_one_kernel_and_its_fused_tail_is_free() -> None:
    gemm = Gemm(1, 4096, 4096, 4096)
    plain = operator(
        OperatorKind.GEMM,
        gemms=(gemm,),
        reads=(tensor(4096, 4096), tensor(4096, 4096)),
        writes=(tensor(4096, 4096),),
    )
    biased = replace(plain, vector=(VectorWork("add", 4096 * 4096),))
    model = model_of()
    time = model.operator_time(plain)
    assert time.device_s == pytest.approx(product_time(gemm, DEVICE, "float16", 2).seconds + GAP_S)
    assert (time.memory_s, time.launch_s) == (0.0, GAP_S)
    assert model.operator_time(biased) == model.operator_time(plain)
    assert host_kernels(model.operator_time(plain), model.software) == 1


def in_panels(gemm: Gemm, yields: Yields) -> Operator:
    """Of a 2D layout on four columns and one row of devices."""
    phase = Phase.FORWARD if yields is Yields.OUTPUT else Phase.BACKWARD
    plain = operator(
        OperatorKind.GEMM,
        gemms=(gemm,),
        reads=(tensor(gemm.m, gemm.k), tensor(gemm.k, gemm.n)),
        writes=(tensor(gemm.m, gemm.n),),
        vector=(VectorWork("gelu", gemm.m * gemm.n),),
    )
    return replace(
        plain,
        phase=phase,
        yields=yields,
        streamed=(Collective(CollectiveKind.BROADCAST, 2**20, 4),),
    )


@pytest.mark.parametrize("panels", [2, 4, 16])
@pytest.mark.parametrize("sizes", [(4096, 4096, 4096), (256, 8192, 512)])
def test_a_product_in_panels_is_as_many_products_which_are_added_up(
    panels: int, sizes: tuple[int, int, int]
) -> None:
    m, k, n = sizes
    whole, model = in_panels(Gemm(1, m, k, n), Yields.OUTPUT), model_of()
    one, part = (
        model.operator_time(whole, 1),
        product_time(Gemm(1, m, k // panels, n), DEVICE, "float16", 2),
    )
    found = model.operator_time(whole, panels)
    assert one.device_s == model.operator_time(replace(whole, streamed=())).device_s
    added_s = (
        2 * m * n / (MEMORY.bandwidth.value * MEMORY.efficiency.value)
    )  # reads what there is so far
    tail_s = one.device_s - product_time(whole.gemms[0], DEVICE, "float16", 2).seconds - GAP_S
    later_s = max(part.arithmetic_s, part.traffic_s + added_s)
    assert found.device_s == pytest.approx(
        part.seconds + (panels - 1) * later_s + panels * GAP_S + tail_s
    )
    messages = max(panels, 4)  # a panel of several columns comes from each
    assert host_kernels(found, model.software) == pytest.approx(panels + 1 + messages)


@pytest.mark.parametrize("yields", [Yields.INPUT_GRADIENT, Yields.WEIGHT_GRADIENT])
def test_panels_of_gradients_are_columns_that_nothing_is_added_to(yields: Yields) -> None:
    whole, model = in_panels(Gemm(1, 1024, 2048, 4096), yields), model_of()
    part_s = product_time(Gemm(1, 1024, 2048, 512), DEVICE, "float16", 2).seconds
    tail_s = model.operator_time(whole).device_s
    tail_s -= product_time(whole.gemms[0], DEVICE, "float16", 2).seconds + GAP_S
    assert model.operator_time(whole, 8).device_s == pytest.approx(8 * (part_s + GAP_S) + tail_s)


def test_only_products_that_stream_have_panels() -> None:
    model, alone = (
        model_of(),
        replace(in_panels(Gemm(1, 512, 512, 512), Yields.OUTPUT), streamed=()),
    )
    assert model.operator_time(alone, 8) == model.operator_time(alone)


def test_an_activation_behind_a_product_is_a_kernel_that_reads_and_writes() -> None:
    gemm, elements = Gemm(1, 4096, 1024, 4096), 4096 * 4096
    # the product itself is saved for the backward pass: both it and the activation are written
    kept = operator(
        OperatorKind.GEMM,
        gemms=(gemm,),
        vector=(VectorWork("add", elements), VectorWork("gelu", elements)),
        reads=(tensor(4096, 1024), tensor(1024, 4096)),
        writes=(tensor(4096, 4096), tensor(4096, 4096)),
    )
    time, model = model_of().operator_time(kept), model_of()
    assert time.memory_s == pytest.approx(streamed_s(2 * 2 * elements, "gelu"))
    assert host_kernels(time, model.software) == 2


def test_a_masked_softmax_reads_half_of_the_scores() -> None:
    megatron, fsdp = model_of(), model_of("pytorch_fsdp")
    masked = megatron.operator_time(softmax(causal=True, dropout=False)).memory_s
    assert masked == pytest.approx(streamed_s(1.5 * 2 * ELEMENTS, "causal_softmax"))
    assert megatron.operator_time(softmax(causal=False, dropout=False)).memory_s == pytest.approx(
        streamed_s(2 * 2 * ELEMENTS, "softmax")
    )
    assert fsdp.operator_time(softmax(causal=True, dropout=False)).memory_s > masked


def test_dropout_of_probabilities_is_a_kernel_with_a_mask() -> None:
    model = model_of()
    without, with_dropout = (
        model.operator_time(softmax(causal=True, dropout=each)) for each in (False, True)
    )
    assert with_dropout.memory_s - without.memory_s == pytest.approx(
        streamed_s(5 * ELEMENTS, "dropout")
    )
    assert host_kernels(with_dropout, model.software) == 2


@pytest.mark.parametrize("phase", list(Phase))
def test_softmax_falls_apart_where_the_fused_kernel_does_not_fit(phase: Phase) -> None:
    """Megatron-LM's kernel wants micro-batch x heads to be a multiple of 4."""
    model = model_of()
    fused = model.operator_time(softmax(True, False, (1, 4, 512, 512), phase))
    apart = model.operator_time(softmax(True, False, (1, 2, 512, 512), phase))
    assert host_kernels(apart, model.software) == model.software.unfused_softmax_kernels.value
    assert apart.memory_s > 5 * fused.memory_s


def test_causal_attention_skips_half_of_the_scores() -> None:
    gemms = (Gemm(32, 2048, 128, 2048), Gemm(32, 2048, 2048, 128))
    whole = operator(
        OperatorKind.ATTENTION,
        gemms=gemms,
        reads=(tensor(2, 2048, 16, 128),),
        writes=(tensor(2, 2048, 16, 128),),
    )
    times = [
        model_of().operator_time(each).arithmetic_s for each in (whole, replace(whole, causal=True))
    ]
    assert times[0] == pytest.approx(2 * times[1])


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("devices", [2, 4, 16])
def test_every_piece_around_a_ring_is_a_kernel_and_all_but_the_first_are_merged(
    devices: int, backward: bool
) -> None:
    """By hand: 8 heads of 64, 512 queries, as many keys in each piece."""
    model, rows, elements = model_of(), 512, 8 * 512 * 64
    ring = ring_operator(0, devices, rows, backward=backward)
    whole = attention_operator(
        0, 1, 8, rows, 64, backward
    )  # a piece is attention of the device's own keys
    statistics = 4 * 8 * rows
    of_keys = (
        2 * elements * (2 + 2 + 2)
    )  # gradients of keys and values, as they travel; what is of queries is summed in fp32
    merged = elements * (2 + 4 + 4) + (of_keys if backward else 3 * statistics)
    merge_s = merged / (MEMORY.bandwidth.value * MEMORY.efficiency.value) + GAP_S
    arithmetic_s = model.operator_time(whole).arithmetic_s
    traffic_s = streamed_s(whole.bytes_read + whole.bytes_written + statistics, "add")
    piece_s = max(arithmetic_s, traffic_s) + GAP_S
    found, pieces = model.operator_time(ring), model.piece_times(ring)
    assert (pieces.first_s, pieces.other_s - pieces.first_s) == pytest.approx((piece_s, merge_s))
    assert found.device_s == pytest.approx(devices * piece_s + (devices - 1) * merge_s)
    assert (found.arithmetic_s, found.launch_s) == pytest.approx(
        (devices * arithmetic_s, (2 * devices - 1) * GAP_S)
    )
    sent = 2 * (devices - 1) + 1 if backward else devices - 1
    assert host_kernels(found, model.software) == pytest.approx(2 * devices - 1 + sent)


def test_a_causal_mask_leaves_every_piece_around_a_ring_half_of_its_scores() -> None:
    whole = ring_operator(0, 4, 2048)
    times = [
        model_of().operator_time(each).arithmetic_s for each in (whole, replace(whole, causal=True))
    ]
    assert times[0] == pytest.approx(2 * times[1])


def test_without_balance_a_device_meets_whole_pieces_around_a_ring() -> None:
    """Of n pieces that of a device's own tokens alone is half masked, where the last is waited
    for."""
    ring, model = replace(ring_operator(0, 4, 2048), causal=True), model_of()
    other = DeviceModel(model.device, replace(model.software, balanced_rings=False), "float16")
    balanced, found = (each.operator_time(ring).arithmetic_s for each in (model, other))
    assert found == pytest.approx(balanced * (2 * 4 - 1) / 4)


def test_fp8_speeds_up_products_with_weights_alone() -> None:
    device = load_device("h100")
    weights = operator(
        OperatorKind.GEMM,
        gemms=(Gemm(1, 8192, 8192, 8192),),
        reads=(tensor(8192, 8192),),
        writes=(tensor(8192, 8192),),
    )
    scores = operator(
        OperatorKind.GEMM,
        gemms=(Gemm(64, 2048, 512, 2048),),
        reads=(tensor(64, 2048, 512),),
        writes=(tensor(64, 2048, 2048),),
    )
    bf16, fp8 = (
        DeviceModel(device, load_software("megatron_core"), each) for each in ("bfloat16", "float8")
    )
    assert 1.5 < bf16.operator_time(weights).device_s / fp8.operator_time(weights).device_s < 2.0
    assert bf16.operator_time(scores) == fp8.operator_time(scores)


@pytest.mark.parametrize("backward", [False, True])
def test_a_divided_norm_reaches_what_the_whole_one_reaches(backward: bool) -> None:
    """Each kernel moves its operands at the bandwidth of the norm's one kernel; rows are read once
    by each."""
    whole = "layer_norm_backward" if backward else "layer_norm"
    assert MEMORY.functions[whole] != MEMORY.efficiency
    rows, model = tensor(4096, 1024), model_of()
    reads = (rows, rows) if backward else (rows,)
    for part, kind in (("sums", OperatorKind.REDUCTION), ("apply", OperatorKind.ELEMENTWISE)):
        kernel = operator(
            kind, vector=(VectorWork(f"{whole}_{part}", 4096 * 1024),), reads=reads, writes=(rows,)
        )
        traffic = kernel.bytes_read + kernel.bytes_written
        assert model.operator_time(kernel).memory_s == pytest.approx(streamed_s(traffic, whole))
        assert (
            streamed_s(traffic, f"{whole}_{part}")
            == streamed_s(traffic, whole)
            != streamed_s(traffic, "add")
        )


def test_gradients_are_added_up_where_the_framework_uses_kernels_for_it() -> None:
    moved = {
        name: model_of(name).accumulation_time(10**9).memory_s
        for name in ("megatron_2021", "megatron_2022")
    }
    assert moved["megatron_2022"] == 0.0
    assert moved["megatron_2021"] == pytest.approx(
        6e9 / (MEMORY.bandwidth.value * MEMORY.efficiency.value)
    )


def test_heads_whose_rows_start_anywhere_are_multiplied_without_tensor_cores() -> None:
    """Rows of 108 elements of two bytes start at no multiples of 16 bytes, of 104 they do."""
    unaligned = DEVICE.matrix.unaligned
    assert unaligned is not None

    def seconds(width: int, core_attention: bool = True) -> float:
        scores = Gemm(batch=16, m=512, k=width, n=512)
        made = operator(
            OperatorKind.GEMM,
            gemms=(scores,),
            reads=(tensor(16, 512, width), tensor(16, width, 512)),
            writes=(tensor(16, 512, 512),),
            core_attention=core_attention,
        )
        return model_of().operator_time(made).arithmetic_s

    assert seconds(108) == pytest.approx(2 * 16 * 512 * 512 * 108 / unaligned.value)
    assert seconds(104) < seconds(112) < seconds(108) / 3
    assert seconds(108, core_attention=False) <= seconds(112, core_attention=False)


def test_a_host_that_waits_for_every_kernel_issues_those_of_an_operator_one_by_one() -> None:
    software = load_software("megatron_2021")
    assert software.blocked_issue is not None
    for blocks, issue in ((False, 0.0), (True, software.blocked_issue.value)):
        model = DeviceModel(DEVICE, replace(software, blocks=blocks), "float16")
        made = operator(
            OperatorKind.GEMM,
            gemms=(Gemm(batch=1, m=512, k=512, n=512),),
            reads=(tensor(512, 512), tensor(512, 512)),
            writes=(tensor(512, 512),),
        )
        assert model.operator_time(made).launch_s == pytest.approx(GAP_S + issue)
