"""What an operator costs on a device: seconds limited by arithmetic, by memory, and seconds of the host that issues it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from Estimator.devices.device import Device, Software
from Estimator.devices.functions import traffic_bytes
from Estimator.devices.gemm import ProductTime, attention_time, product_time
from GraphExtractor.graph import DTYPE_BYTES, Operator, OperatorKind, Phase, Yields

SOFTMAX = ("softmax", "softmax_backward")
REDUCED_FORMATS = {"float8": "bfloat16"}  # formats of weight products only: all else runs in this one


@dataclass(frozen=True)
class KernelTime:
    """Seconds of a device (``arithmetic_s`` where that is the limit, ``memory_s`` else) and of its host."""

    arithmetic_s: float = 0.0
    memory_s: float = 0.0
    host_s: float = 0.0

    @property
    def device_s(self) -> float:
        """Seconds on the device."""
        return self.arithmetic_s + self.memory_s

    def __add__(self, other: KernelTime) -> KernelTime:
        return KernelTime(self.arithmetic_s + other.arithmetic_s, self.memory_s + other.memory_s, self.host_s + other.host_s)

    def times(self, factor: float) -> KernelTime:
        """``factor`` of these one after another."""
        return KernelTime(self.arithmetic_s * factor, self.memory_s * factor, self.host_s * factor)


class DeviceModel:
    """Prices operators on one device under one framework. Collectives only cost their issue here: the network prices them."""

    def __init__(self, device: Device, software: Software, number_format: str) -> None:
        device.peak_flops(number_format)
        self.device = device
        self.software = software
        self.number_format = number_format
        self._price = lru_cache(maxsize=None)(self._priced)

    def accumulation_time(self, parameters: int) -> KernelTime:
        """Adding the weight gradients of a micro-batch to those of the ones before it."""
        return KernelTime(memory_s=self.software.accumulation.value * parameters / self.device.memory.stream_bytes_per_s())

    def operator_time(self, operator: Operator) -> KernelTime:
        """Time of one operator."""
        return self._price(operator)

    def _priced(self, operator: Operator) -> KernelTime:
        if operator.kind is OperatorKind.COLLECTIVE:
            return KernelTime(host_s=self.software.host_issue.value)
        if operator.kind is OperatorKind.ATTENTION:
            return self._attention(operator)
        if operator.gemms:
            return self._product(operator)
        return self._streamed(operator)

    def _product(self, operator: Operator) -> KernelTime:
        """Products, and the kernels of the tails that the matrix library does not fuse."""
        element_bytes = _element_bytes(operator)
        number_format = self.number_format
        of_weights = operator.parameter_bytes or operator.yields is Yields.WEIGHT_GRADIENT  # batches are experts, else heads
        if number_format in REDUCED_FORMATS and operator.gemms[0].batch > 1 and not of_weights:
            number_format = REDUCED_FORMATS[number_format]
        total = KernelTime()
        for gemm in operator.gemms:
            total += self._kernel(product_time(gemm, self.device, number_format, element_bytes))
        tails = [work for work in operator.vector if work.function not in self.software.fused_tails]
        if tails:
            raw = element_bytes * sum(gemm.batch * gemm.m * gemm.n for gemm in operator.gemms)
            products = element_bytes * sum(gemm.batch * (gemm.m * gemm.k + gemm.k * gemm.n) for gemm in operator.gemms)
            others = max(operator.bytes_read + operator.bytes_written - products, raw)
            if operator.bytes_written >= 2 * raw:  # the product itself is kept too: the tail does not write it
                others -= raw
            total += self._stream(raw + others, tuple(work.function for work in tails))
        return total

    def _attention(self, operator: Operator) -> KernelTime:
        number_format = REDUCED_FORMATS.get(self.number_format, self.number_format)
        traffic = operator.bytes_read + operator.bytes_written
        backward = operator.phase is Phase.BACKWARD
        return self._kernel(attention_time(operator.gemms, self.device, number_format, traffic, operator.causal, backward))

    def _streamed(self, operator: Operator) -> KernelTime:
        """Kernels that move their operands once; a dropout behind a reduction is a kernel of its own."""
        functions = tuple(work.function for work in operator.vector)
        traffic = float(operator.bytes_read + operator.bytes_written)
        if operator.kind is OperatorKind.REDUCTION and functions:
            if operator.reads and operator.reads[0].shape:
                row_bytes = operator.reads[0].shape[-1] * _element_bytes(operator)
                traffic += operator.reads[0].bytes * self.device.reads_again(functions[0], row_bytes)
            if functions[0] in SOFTMAX:
                return self._softmax(operator, functions)
        return self._stream(traffic, functions)

    def _softmax(self, operator: Operator, functions: tuple[str, ...]) -> KernelTime:
        """Softmax of scores kept in memory, or its gradient, and the dropout of its result."""
        element_bytes, elements, software = _element_bytes(operator), operator.vector[0].elements, self.software
        total = KernelTime()
        if "dropout" in functions:
            total += self._stream(traffic_bytes("dropout", elements, element_bytes), ("dropout",))
        rows = math.prod(operator.reads[0].shape[:-2])
        if rows % int(software.fused_softmax_multiple.value):
            kernels = int(software.unfused_softmax_kernels.value)
            moved = elements * software.unfused_softmax_bytes[operator.phase.value].value
            return total + self._stream(moved / kernels, ()).times(kernels)
        function = f"causal_{functions[0]}" if operator.causal and software.masked_softmax else functions[0]
        return total + self._stream(traffic_bytes(function, elements, element_bytes), (function,))

    def _stream(self, traffic_bytes: float, functions: tuple[str, ...]) -> KernelTime:
        seconds = traffic_bytes / self.device.memory.stream_bytes_per_s(functions)
        return KernelTime(memory_s=seconds + self.device.launch.gap.value, host_s=self.software.host_issue.value)

    def _kernel(self, time: ProductTime) -> KernelTime:
        gap, host_s = self.device.launch.gap.value, self.software.host_issue.value
        if time.arithmetic_s >= time.traffic_s:
            return KernelTime(arithmetic_s=time.arithmetic_s + gap, host_s=host_s)
        return KernelTime(time.arithmetic_s, time.traffic_s - time.arithmetic_s + gap, host_s)


def _element_bytes(operator: Operator) -> int:
    """Bytes of an element of the operator's first operand."""
    operands = operator.reads or operator.writes
    return DTYPE_BYTES[operands[0].dtype] if operands else DTYPE_BYTES["bfloat16"]
