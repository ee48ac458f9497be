"""What an operator costs on a device: seconds of arithmetic, those memory adds, of its launch, and
of the host that issues it."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import MappingProxyType

import numpy as np

from Estimator.cost_model import OperatorCostModel, OperatorCosts, PieceTimes, PricedOperators
from Estimator.devices.device import Device
from Estimator.devices.functions import PARALLEL_SCANS, SCAN_OPERATIONS, traffic_bytes
from Estimator.devices.gemm import ProductTime, attention_time, grouped_time, product_time
from Estimator.devices.recipes import REDUCED, WIDE, recipes
from Estimator.devices.software import Software
from Estimator.ring_attention import ring_merge, ring_messages, ring_piece
from GraphExtractor.graph import (
    DTYPE_BYTES,
    Gemm,
    Operator,
    OperatorGraph,
    OperatorKind,
    Phase,
    VectorWork,
    Yields,
)
from GraphExtractor.score_mask import mask_of
from phaze_common.array_types import FloatArray, IntArray
from phaze_common.choices import Precision
from phaze_common.errors import InputError
from phaze_common.files import content_key
from phaze_common.records import to_json

SOFTMAX = ("softmax", "softmax_backward")
# formats of weight products only: all else runs in this one
REDUCED_FORMATS = MappingProxyType(dict.fromkeys(REDUCED, WIDE))


@dataclass(frozen=True)
class KernelTime:
    """Seconds of a device, and of its host, which runs ahead of it.

    ``memory_s`` is what the traffic of kernels that memory limits takes beyond their arithmetic,
    ``launch_s`` the gap before every kernel.
    """

    arithmetic_s: float = 0.0
    memory_s: float = 0.0
    launch_s: float = 0.0
    host_s: float = 0.0

    @property
    def device_s(self) -> float:
        """Seconds on the device."""
        return self.arithmetic_s + self.memory_s + self.launch_s

    def __add__(self, other: KernelTime) -> KernelTime:
        return KernelTime(
            self.arithmetic_s + other.arithmetic_s,
            self.memory_s + other.memory_s,
            self.launch_s + other.launch_s,
            self.host_s + other.host_s,
        )

    def times(self, factor: float) -> KernelTime:
        """``factor`` of these one after another."""
        return KernelTime(
            self.arithmetic_s * factor,
            self.memory_s * factor,
            self.launch_s * factor,
            self.host_s * factor,
        )


@dataclass(frozen=True)
class InPieces:
    """Kernels of an operator: those of its ``first`` piece, of each ``other`` one of ``count``, and
    what follows the last."""

    first: KernelTime
    other: KernelTime = KernelTime()
    count: int = 1
    after: KernelTime = KernelTime()

    @cached_property
    def total(self) -> KernelTime:
        """All of them."""
        return self.first + self.other.times(self.count - 1) + self.after


@dataclass(frozen=True)
class PassStarts:
    """Seconds that a pass of a pipeline's stage takes longer than its operators because the
    processor waited before it."""

    forward_s: float = 0.0
    backward_s: float = 0.0


class DeviceModel(OperatorCostModel):
    """Prices operators on one device under one framework, one after another. Knows no energy."""

    def __init__(self, device: Device, software: Software, number_format: str) -> None:
        device.peak_flops(number_format)
        self.device = device
        self.software = software
        self.number_format = number_format
        self._price = lru_cache(maxsize=None)(self._priced)
        # the same products are part of many operators, which differ in what they read besides
        self._product_time = lru_cache(maxsize=None)(self._time_of_product)

    @property
    def configurations(self) -> int:
        """The one device."""
        return 1

    @property
    def unseen_host_s(self) -> tuple[float, float]:
        """Seconds of the host for a pass through a layer with experts that no operator shows: up to
        the counts of tokens, and behind them."""
        grouped = self.software.grouped
        stated = (None, None) if grouped is None else (grouped.routing, grouped.dispatch)
        routing, dispatch = (0.0 if each is None else each.value for each in stated)
        return routing, dispatch

    @cached_property
    def _precision(self) -> Precision:
        return next(each for each in Precision if each.matrix_format == self.number_format)

    @property
    def fingerprint(self) -> str:
        """Hash of the device, the framework and the number format of products."""
        return content_key(
            to_json(self.device).decode(), to_json(self.software).decode(), self.number_format
        )

    @property
    def outside_blocks(self) -> DeviceModel:
        """What prices embedding and head: frameworks run products of blocks alone in fp8.

        So do Transformer Engine (fp8_autocast around the transformer's blocks) and torchtitan
        (filter_fqns: output).
        """
        reduced = REDUCED_FORMATS.get(self.number_format)
        return self if reduced is None else DeviceModel(self.device, self.software, reduced)

    @property
    def stream_bytes_per_s(self) -> float:
        """Memory bandwidth that copies and element-wise kernels reach."""
        return self.device.memory.stream_bytes_per_s()

    @property
    def pass_starts(self) -> PassStarts:
        """Nothing: a device with a queue of kernels finds them there when its data arrive."""
        return PassStarts()

    @property
    def run_again_s(self) -> float:
        """What a layer that is recomputed takes beyond its operators, which run twice; nothing
        where kernels queue."""
        return 0.0

    @property
    def accumulation_bytes(self) -> float:
        """As the framework does it."""
        return self.software.accumulation.value

    def peak_flops(self, number_format: str) -> FloatArray:
        """As the device states it, shape (1,).

        Raises:
            InputError: the device does not compute in that format.
        """
        return np.array([self.device.peak_flops(number_format)])

    def price(
        self, graph: OperatorGraph, rows: IntArray | slice | None = None, panels: int = 1
    ) -> PricedOperators:
        """See OperatorCostModel; ``rows`` can only choose the one device, or nothing."""
        times = [self.operator_time(operator, panels) for operator in graph.operators]
        copies = len(np.zeros(1)[slice(None) if rows is None else rows])
        arithmetic_s, memory_s, launch_s, host_s = (
            np.tile([getattr(time, name) for time in times], (copies, 1)).astype(np.float64)
            for name in ("arithmetic_s", "memory_s", "launch_s", "host_s")
        )
        return PricedOperators(
            OperatorCosts(arithmetic_s, memory_s, launch_s, host_s, joules=None), on_one_core=None
        )

    def accumulation_time(self, parameters: int) -> KernelTime:
        """Adding the weight gradients of a micro-batch to those of the ones before it."""
        return KernelTime(memory_s=self.accumulation_bytes * parameters / self.stream_bytes_per_s)

    def operator_time(self, operator: Operator, panels: int = 1) -> KernelTime:
        """Time of one operator, of a product beside which others stream as it is run in so many
        ``panels``.

        Every panel is a product by itself, which efficiencies and launches know. So is every piece
        of attention around a ring (Liu et al. 2023): with n devices n kernels of attention, each of
        one n-th of the products and of the scores that a mask leaves, and n - 1 that merge a result
        with those before it (``Estimator.ring_attention``). The host issues what streams too.
        """
        return self._price(operator, panels if operator.streamed else 1).total

    def piece_times(self, operator: Operator, panels: int = 1) -> PieceTimes[float]:
        """Seconds of the pieces of an operator beside which others stream, without what follows the
        last one."""
        pieces = self._price(operator, panels if operator.streamed else 1)
        return PieceTimes(pieces.first.device_s, pieces.other.device_s)

    def _priced(self, operator: Operator, panels: int) -> InPieces:
        if operator.kind is OperatorKind.ATTENTION:
            return self._attention(operator)
        if operator.gemms and operator.kind is not OperatorKind.SCAN:
            return self._product(operator, panels)
        if operator.kind is OperatorKind.COLLECTIVE:
            return InPieces(KernelTime(host_s=self.software.host_issue.value))
        return InPieces(
            self._scan(operator) if operator.kind is OperatorKind.SCAN else self._streamed(operator)
        )

    def _product(self, operator: Operator, panels: int) -> InPieces:
        """Products, and behind them, or the last panel, the kernels of the tails that the matrix
        library does not fuse."""
        element_bytes = _element_bytes(operator)
        number_format = self.number_format
        # batches are experts, else heads
        if (
            number_format in REDUCED_FORMATS
            and operator.gemms[0].batch > 1
            and not operator.grouped
        ):
            number_format = REDUCED_FORMATS[number_format]
        if operator.streamed:
            (gemm,) = operator.gemms
            made = self._in_panels(gemm, operator, panels, number_format, element_bytes)
        else:
            kernels = (
                self._kernel_of(gemm, operator, number_format, element_bytes)
                for gemm in operator.gemms
            )
            made = InPieces(sum(kernels, KernelTime()))
        made = replace(made, after=made.after + self._quantised(operator, number_format))
        if self.software.eager:
            return replace(made, after=made.after + self._one_by_one(operator))
        tails = [work for work in operator.vector if work.function not in self.software.fused_tails]
        if not tails:
            return made
        raw = element_bytes * sum(gemm.batch * gemm.m * gemm.n for gemm in operator.gemms)
        products = element_bytes * sum(
            gemm.batch * (gemm.m * gemm.k + gemm.k * gemm.n) for gemm in operator.gemms
        )
        others = max(operator.bytes_read + operator.bytes_written - products, raw)
        # the product itself is kept too: the tail does not write it
        if operator.bytes_written >= 2 * raw:
            others -= raw
        tail = self._stream(raw + others, tuple(work.function for work in tails))
        return replace(made, after=made.after + tail)

    def _kernel_of(
        self, gemm: Gemm, operator: Operator, number_format: str, element_bytes: int
    ) -> KernelTime:
        """One product, or those of several experts: kernels that the host issues one by one, or
        one."""
        kernel = self.software.grouped
        if kernel is None or not operator.grouped:
            heads = operator.core_attention and gemm.batch > 1
            return self._kernel(self._product_time(gemm, number_format, element_bytes, heads=heads))
        adds = operator.yields is Yields.WEIGHT_GRADIENT and self.software.product_adds
        sum_bytes = 2 * self.software.gradient_bytes_in(self._precision) if adds else None
        time = grouped_time(
            gemm,
            self.device,
            number_format,
            element_bytes,
            kernel,
            sum_bytes=sum_bytes,
            year=self.software.year,
        )
        made = self._kernel(time)
        if gemm is operator.gemms[0]:
            made = replace(made, launch_s=made.launch_s + self.scaling_s(operator))
        if kernel.issue is None or self.software.blocks:
            return made
        return replace(made, host_s=max(gemm.batch * kernel.issue.value, made.host_s))

    def scaling_s(self, operator: Operator) -> float:
        """What small kernels that scale the operands of each expert take of the device."""
        kernel = self.software.grouped
        if kernel is None or kernel.scaling is None or self.number_format not in REDUCED_FORMATS:
            return 0.0
        if operator.kind is not OperatorKind.GEMM or not operator.grouped:
            return 0.0
        experts = sum(gemm.batch for gemm in operator.gemms)
        return kernel.scaling.value * experts * self.device.launch.gap.value

    def _in_panels(
        self, gemm: Gemm, operator: Operator, panels: int, number_format: str, element_bytes: int
    ) -> InPieces:
        """A product in panels of the linear layer's inputs, over which it sums; they are columns of
        both its gradients.

        All panels but the first are added to the sum so far, which is in memory.
        """
        adds = operator.yields is Yields.OUTPUT
        panel = (
            replace(gemm, k=-(-gemm.k // panels)) if adds else replace(gemm, n=-(-gemm.n // panels))
        )
        first = self._kernel(self._product_time(panel, number_format, element_bytes))
        messages = sum(each.messages(panels) for each in operator.streamed)
        issued = KernelTime(host_s=messages * self.software.host_issue.value)
        if panels == 1:
            return InPieces(first, after=issued)
        again = self._kernel(self._product_time(panel, number_format, element_bytes, added=adds))
        return InPieces(first, again, panels, issued)

    def _attention(self, operator: Operator) -> InPieces:
        """Fused attention, one kernel, or one and its merging for every piece that passes around a
        ring."""
        number_format = REDUCED_FORMATS.get(self.number_format, self.number_format)
        backward, piece = operator.phase is Phase.BACKWARD, ring_piece(operator)
        own = self.device, number_format, piece.traffic_bytes
        kernel, mask = self.software.attention, mask_of(operator)
        first = self._kernel(attention_time(piece.gemms, *own, mask, backward, kernel))
        if operator.ring == 1:
            return InPieces(first, after=self._one_by_one(operator))
        merge, other = ring_merge(operator), first
        if not self.software.balanced_rings:  # the slowest device meets earlier tokens alone
            other = self._kernel(attention_time(piece.gemms, *own, None, backward, kernel))
        other += self._stream(merge.traffic_bytes, tuple(work.function for work in merge.vector))
        issued = KernelTime(host_s=ring_messages(operator) * self.software.host_issue.value)
        return InPieces(first, other, operator.ring, issued + self._one_by_one(operator))

    def _scan(self, operator: Operator) -> KernelTime:
        """A recurrence over the tokens.

        Without products it is one kernel, which takes as long as its lanes work, or as its steps
        wait for each other (kernels of selective scans scan many tokens at once). With them, a step
        is a product and a kernel for the gates; the matrix of all steps is read from memory once,
        and again every time where the cache does not hold it.
        """
        scans = self.device.scans
        if scans is None:
            raise InputError(
                f"{self.device.title} does not say how fast recurrences over tokens are, which "
                f"{operator.name} is; give its file "
                "scans: {peak: FLOP/s of the vector units, step: s}"
            )
        work = next(each for each in operator.vector if each.function in SCAN_OPERATIONS)
        operations = sum(
            each.elements * SCAN_OPERATIONS.get(each.function, 1.0) for each in operator.vector
        )
        lanes_s = 2 * operations / scans.peak.value
        moved = operator.bytes_read + operator.bytes_written
        traffic_s = moved / self.device.memory.stream_bytes_per_s()
        if not operator.gemms:
            depth_s = 0.0 if work.function in PARALLEL_SCANS else work.steps * scans.step.value
            arithmetic_s = max(lanes_s, depth_s)
            return self._launched(arithmetic_s, max(traffic_s - arithmetic_s, 0.0))
        (gemm,) = operator.gemms
        element_bytes = _element_bytes(operator)
        number_format = REDUCED_FORMATS.get(self.number_format, self.number_format)
        step = self._product_time(
            replace(gemm, batch=1, dependent=False), number_format, element_bytes
        )
        if gemm.k * gemm.n * element_bytes <= self.device.memory.cache.value:
            step = ProductTime(step.arithmetic_s, 0.0)
        arithmetic_s = gemm.batch * step.arithmetic_s + max(lanes_s, gemm.batch * scans.step.value)
        memory_s = gemm.batch * max(step.traffic_s - step.arithmetic_s, 0.0) + max(
            traffic_s - arithmetic_s, 0.0
        )
        launch_s = 2 * gemm.batch * self.device.launch.gap.value
        return KernelTime(arithmetic_s, memory_s, launch_s, self.software.host_issue.value)

    def _streamed(self, operator: Operator) -> KernelTime:
        """Kernels that move their operands once; a dropout behind a reduction is a kernel of its
        own."""
        functions = tuple(work.function for work in operator.vector)
        traffic = float(operator.bytes_read + operator.bytes_written)
        # at the rate of element-wise kernels, which these are
        if functions and functions[0] in self.software.composed:
            made = self.software.composed[functions[0]]
            each = self._stream(
                made.bytes.value * operator.vector[0].elements / made.kernels.value, ()
            )
            behind = replace(operator, vector=operator.vector[1:])
            return each.times(int(made.kernels.value)) + self._behind_composed(behind)
        if operator.kind is OperatorKind.REDUCTION and functions:
            if operator.reads and operator.reads[0].shape:
                row_bytes = operator.reads[0].shape[-1] * _element_bytes(operator)
                traffic += operator.reads[0].bytes * self.device.reads_again(
                    functions[0], row_bytes
                )
            if functions[0] in SOFTMAX:
                return self._softmax(operator, functions)
            arithmetic_s = self._in_steps(operator)
            if arithmetic_s > 0.0:
                traffic_s = traffic / self.device.memory.stream_bytes_per_s(functions)
                return self._launched(arithmetic_s, max(traffic_s - arithmetic_s, 0.0))
        if operator.permutes_rows and self.software.grouped is not None:
            share = self.software.grouped.permutation.value
            return self._launched(0.0, traffic / (share * self.device.memory.bandwidth.value))
        return self._stream(traffic, functions)

    def _behind_composed(self, operator: Operator) -> KernelTime:
        """Vector work behind a function of several kernels: one by one, or all in one kernel, where
        no library does it within another."""
        if self.software.eager:
            return self._one_by_one(operator)
        size = _element_bytes(operator)
        tails = [
            traffic_bytes(work.function, work.elements, size)
            for work in operator.vector
            if work.function not in self.software.fused_tails
        ]
        functions = tuple(work.function for work in operator.vector)
        return self._stream(max(tails), functions) if tails else KernelTime()

    def _in_steps(self, operator: Operator) -> float:
        """Seconds of vector units in what decomposes, solves or transforms in steps; nothing is
        known of some devices."""
        scans, work = self.device.scans, [each for each in operator.vector if each.steps > 1]
        if scans is None:
            return 0.0
        return sum(
            max(2 * each.elements / scans.peak.value, each.steps * scans.step.value)
            for each in work
        )

    def _softmax(self, operator: Operator, functions: tuple[str, ...]) -> KernelTime:
        """Softmax of scores kept in memory, or its gradient, and the dropout of its result."""
        element_bytes = _element_bytes(operator)
        elements = operator.vector[0].elements
        software = self.software
        total = KernelTime()
        if "dropout" in functions:
            total += self._stream(traffic_bytes("dropout", elements, element_bytes), ("dropout",))
        rows = math.prod(operator.reads[0].shape[:-2])
        if rows % int(software.fused_softmax_multiple.value):
            kernels = int(software.unfused_softmax_kernels.value)
            moved = elements * software.unfused_softmax_bytes[operator.phase.value].value
            return total + self._stream(moved / kernels, ()).times(kernels)
        if operator.causal and software.masked_softmax:
            function = f"causal_{functions[0]}"
        else:
            function = functions[0]
        return total + self._stream(traffic_bytes(function, elements, element_bytes), (function,))

    def _time_of_product(
        self,
        gemm: Gemm,
        number_format: str,
        element_bytes: int,
        *,
        added: bool = False,
        heads: bool = False,
    ) -> ProductTime:
        """With the matrix library of the framework's year."""
        return product_time(
            gemm,
            self.device,
            number_format,
            element_bytes,
            added=added,
            heads=heads,
            year=self.software.year,
        )

    def _quantised(self, operator: Operator, number_format: str) -> KernelTime:
        """Casts of what products in a reduced format read, as its recipe scales them: a layer's
        input, and the gradient of its output, for both products.

        Weights are cast once an iteration, and gradients of weights read what was cast.
        """
        cast = self.software.quantisation
        if (
            cast is None
            or number_format not in REDUCED_FORMATS
            or operator.yields is Yields.WEIGHT_GRADIENT
        ):
            return KernelTime()
        elements = sum(gemm.batch * gemm.m * gemm.k for gemm in operator.gemms)
        moved = cast.value + recipes()[number_format].cast.value
        return self._stream(moved * elements, ())

    def _one_by_one(self, operator: Operator) -> KernelTime:
        """Kernels of what an eager framework does behind a product or attention, each function by
        itself; others join them."""
        if not self.software.eager:
            return KernelTime()
        element_bytes, total = _element_bytes(operator), KernelTime()
        for work in _behind(operator, self.software.fused_tails):
            total += self._stream(
                traffic_bytes(work.function, work.elements, element_bytes), (work.function,)
            )
        return total

    def _stream(self, traffic_bytes: float, functions: tuple[str, ...]) -> KernelTime:
        return self._launched(0.0, traffic_bytes / self.device.memory.stream_bytes_per_s(functions))

    def _kernel(self, time: ProductTime) -> KernelTime:
        return self._launched(time.arithmetic_s, max(time.traffic_s - time.arithmetic_s, 0.0))

    def _launched(self, arithmetic_s: float, memory_s: float) -> KernelTime:
        gap_s, issue_s = self.device.launch.gap.value, self.software.host_issue.value
        if self.software.blocks:
            blocked = self.software.blocked_issue
            issue_s = issue_s if blocked is None else blocked.value
            return KernelTime(arithmetic_s, memory_s, gap_s + issue_s)
        return KernelTime(arithmetic_s, memory_s, gap_s, issue_s)


def _behind(operator: Operator, fused: Collection[str]) -> list[VectorWork]:
    """Vector work that no library does within a product or attention: all of it behind the softmax,
    or all but a first bias."""
    work = list(operator.vector)
    if operator.kind is OperatorKind.ATTENTION:
        last = max(
            (place for place, each in enumerate(work) if each.function in SOFTMAX), default=-1
        )
        # dropout of scores is in the kernel
        return [each for each in work[last + 1 :] if each.elements < work[last].elements]
    if work and work[0].function in fused and _adds_bias(operator):
        return work[1:]
    return work


def _adds_bias(operator: Operator) -> bool:
    """Whether a product reads a vector as long as its rows, which the library adds (cuBLASLt's
    epilogue behind F.linear)."""
    lengths = {gemm.n for gemm in operator.gemms}
    return any(len(each.shape) == 1 and each.shape[0] in lengths for each in operator.reads)


def _element_bytes(operator: Operator) -> int:
    """Bytes of an element of the operator's first operand."""
    operands = operator.reads or operator.writes
    return DTYPE_BYTES[operands[0].dtype] if operands else DTYPE_BYTES["bfloat16"]
