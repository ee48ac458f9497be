"""Seconds of matrix products on the processors of a device: tiles, waves, and what memory delivers.

The output is cut into tiles, a wave is as many tiles as there are processors, and the last wave
takes as long as a full one (NVIDIA, Matrix Multiplication Background User's Guide, sections 3 and
4). Long products with few tiles split k over processors and add the parts up in memory. Of the
tiles and splits the fastest is taken, as the library's heuristics would.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from Estimator.devices.device import Device
from Estimator.devices.recipes import operand_bytes, unit_of
from Estimator.devices.software import AttentionKernel, GroupedProducts
from GraphExtractor.graph import Gemm
from GraphExtractor.score_mask import ScoreMask

SPLITS = (1, 2, 4, 8)
SHORTEST_SPLIT = 256  # steps of k a split must keep
PARTIAL_SUM_BYTES = 8  # fp32, written and read
# NVIDIA, Matrix Multiplication Background User's Guide, section 2.1
ALIGNED_BYTES = 16


@dataclass(frozen=True)
class ProductTime:
    """``arithmetic_s`` of the matrix units and ``traffic_s`` of the memory; the longer one is the
    product's time."""

    arithmetic_s: float
    traffic_s: float

    @property
    def seconds(self) -> float:
        """Both proceed at once."""
        return max(self.arithmetic_s, self.traffic_s)


def product_time(
    gemm: Gemm,
    device: Device,
    number_format: str,
    element_bytes: int,
    sustained: bool = True,
    *,
    added: bool = False,
    heads: bool = False,
    year: int | None = None,
) -> ProductTime:
    """Time of ``gemm`` without launch; ``sustained`` at the clock of a training run, else as
    measured alone.

    The library is that of the ``year``, None: that which the device is described with.

    One that is ``added`` to what is in memory reads that too; of ``heads`` are those of unfused
    attention.
    """
    engine = device.matrix
    share = engine.batched_bandwidth.value if gemm.batch > 1 else _alone_bandwidth(device)
    operands = operand_bytes(number_format, element_bytes) * (gemm.m * gemm.k + gemm.k * gemm.n)
    operands += element_bytes * (1 + added) * gemm.m * gemm.n
    operands *= float(gemm.batch)
    reached = engine.reached(number_format, sustained, year)
    best, best_s = None, math.inf
    for time in _tilings(gemm, device, number_format, reached, operands, share):
        if best is None or time.seconds < best_s:
            best, best_s = time, time.seconds
    assert best is not None  # a device has tiles (checked when it is read)
    if heads and engine.unaligned is not None and is_unaligned(gemm, element_bytes):
        slowest_s = 2 * gemm.macs / engine.unaligned.value
        return ProductTime(max(best.arithmetic_s, slowest_s), best.traffic_s)
    return best


def is_unaligned(gemm: Gemm, element_bytes: int) -> bool:
    """Whether rows of operands or result do not start at multiples of 16 bytes."""
    return any(each * element_bytes % ALIGNED_BYTES for each in (gemm.k, gemm.n))


def grouped_time(
    gemm: Gemm,
    device: Device,
    number_format: str,
    element_bytes: int,
    kernel: GroupedProducts,
    *,
    sum_bytes: float | None = None,
    year: int | None = None,
) -> ProductTime:
    """Time of the products of several experts with weights of their own, without launch; its
    ``traffic_s`` is that of all.

    Tiles of all experts share waves, but products start and end one by one: of arithmetic and
    traffic the shorter does not run all beside the longer. Products that add to sums in memory move
    ``sum_bytes`` of each element of the result.
    """
    stated = device.matrix.exposed
    exposed = (kernel.exposed if stated is None else stated).value
    result_bytes = element_bytes if sum_bytes is None else sum_bytes
    read_bytes = operand_bytes(number_format, element_bytes)
    operands = float(read_bytes * gemm.batch * (gemm.m * gemm.k + gemm.k * gemm.n))
    operands += result_bytes * gemm.batch * gemm.m * gemm.n
    reached = device.matrix.reached(number_format, sustained=True, year=year)
    share, best = _alone_bandwidth(device), None
    for time in _tilings(gemm, device, number_format, reached, operands, share):
        whole_s = time.seconds + exposed * min(time.arithmetic_s, time.traffic_s)
        if best is None or whole_s < best.traffic_s:
            best = ProductTime(time.arithmetic_s, whole_s)
    assert best is not None
    return best


def _alone_bandwidth(device: Device) -> float:
    """Part of the memory bandwidth at which one product reads its operands."""
    stated = device.matrix.operand_bandwidth
    return (device.memory.efficiency if stated is None else stated).value


def _tilings(
    gemm: Gemm, device: Device, number_format: str, reached: float, operands: float, share: float
) -> Iterator[ProductTime]:
    """Times with each tile and split of k, at ``reached`` of the peak; ``operands`` are bytes that
    move at a ``share`` of the bandwidth."""
    engine = device.matrix
    bytes_per_s = device.memory.bandwidth.value * share
    processors = int(engine.processors.value)
    flops_per_s = device.peak_flops(number_format) / processors * reached
    measured = engine.measured_products(number_format)
    if measured is not None:
        fill = measured.fill.value
    else:
        fill = engine.fill.value * fill_factor(device, number_format)
    partial_bytes = PARTIAL_SUM_BYTES * gemm.batch * gemm.m * gemm.n
    for tile in engine.tiles:
        tile_flops_per_s = flops_per_s * tile.efficiency
        tiles = gemm.batch * math.ceil(gemm.m / tile.m) * math.ceil(gemm.n / tile.n)
        for split in SPLITS:
            if split > 1 and tiles >= processors:
                break
            steps = max(gemm.k / split, min(gemm.k, SHORTEST_SPLIT)) + fill
            waves = math.ceil(tiles * split / processors)
            arithmetic_s = waves * 2 * tile.m * tile.n * steps / tile_flops_per_s
            added_up = split if split > 1 else 0
            yield ProductTime(arithmetic_s, (operands + partial_bytes * added_up) / bytes_per_s)


def fill_factor(device: Device, number_format: str) -> float:
    """Steps of k in a format that take as long as one in 16 bits: a tile starts and ends in
    seconds, not in steps."""
    peak = device.matrix.peak
    usual = next((peak[each].value for each in ("bfloat16", "float16") if each in peak), None)
    return 1.0 if usual is None else peak[unit_of(number_format)].value / usual


NARROW = 64  # columns of a head
# keys as which the start, the end and the masked parts of a row's tiles count where attention has
# a window: median of 716 measured kernels of FlashAttention and TensorRT-LLM on seven devices,
# windows of 128 and 1,024 (ai-dynamo/aiconfigurator 095f58a); 707 others: 30 % off in the mean
WINDOW_KEYS = 553


def attention_time(
    gemms: Sequence[Gemm],
    device: Device,
    number_format: str,
    traffic_bytes: float,
    mask: ScoreMask | None,
    backward: bool,
    kernel: AttentionKernel | None = None,
) -> ProductTime:
    """Fused attention: its products at the efficiency of the fused kernel, half of them where the
    mask is causal.

    Dao 2023 (FlashAttention-2, section 4.1) measures forward 50-73 % and backward 44-63 % of an
    A100's peak, and counts half of the FLOPs of causal attention: what its tiles on the diagonal
    compute in vain is part of the efficiency. Of a window it is what the mask leaves, and
    ``WINDOW_KEYS`` of each row besides. The ``kernel`` is FlashAttention-2 unless another is named;
    it pads heads to a width that it has. Narrow heads have more softmax for each product.
    """
    engine = device.matrix
    share = attention_share(device, kernel, backward)
    left = 1.0
    if mask is not None:
        beyond = WINDOW_KEYS / mask.columns if mask.window is not None else 0.0
        left = min(mask.share + beyond, 0.5 if mask.causal else 1.0)
    if engine.attention_narrow is not None and gemms[0].k <= NARROW:
        share *= engine.attention_narrow.value
    # the first product, of scores, sums over a head
    padding = 1.0 if kernel is None else kernel.padding(gemms[0].k)
    flops = 2 * sum(gemm.macs for gemm in gemms) * left * padding
    reached = engine.reached(number_format, sustained=True)
    return ProductTime(
        flops / (device.peak_flops(number_format) * reached * share),
        traffic_bytes / (device.memory.stream_bytes_per_s()),
    )


def attention_share(device: Device, kernel: AttentionKernel | None, backward: bool) -> float:
    """What a kernel of fused attention reaches of the device's ``efficiency``.

    As the device states it, else in the proportion to FlashAttention-2 that the kernel is known
    for.
    """
    engine = device.matrix
    usual = engine.attention_backward if backward else engine.attention_forward
    if kernel is None:
        return usual.value
    if kernel.name in engine.attention_kernels:
        own = engine.attention_kernels[kernel.name]
        return (own.backward if backward else own.forward).value
    return usual.value * (kernel.backward if backward else kernel.forward).value
