"""Operators that every profile measures besides those of a model: square products and streams of
several sizes.

They tell the best rate of products and the bandwidth of long arrays also where a model has neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from Estimator.profiled.machine import DeviceKind
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

SQUARES = {DeviceKind.CPU: (128, 512, 1024), DeviceKind.CUDA: (512, 2048, 4096, 8192)}
STREAMS = {
    DeviceKind.CPU: (2**12, 2**16, 2**20, 2**24),
    DeviceKind.CUDA: (2**16, 2**20, 2**24, 2**28),
}  # elements


@dataclass(frozen=True, eq=False)
class Probe:
    """An operator, and a function that makes what runs it."""

    operator: Operator
    prepared: Callable[[], Callable[[], object]]


def probes(device_kind: DeviceKind, dtype: str) -> Iterator[Probe]:
    """All of them, on tensors of ``dtype``."""
    for size in SQUARES[device_kind]:
        yield _product(size, dtype, device_kind.value)
    for elements in STREAMS[device_kind]:
        yield _addition(elements, dtype, device_kind.value)


def _product(size: int, dtype: str, device: str) -> Probe:
    square = Operand((size, size), dtype, OperandRole.ACTIVATION)
    weight = Operand((size, size), dtype, OperandRole.PARAMETER)
    gemms = (Gemm(1, size, size, size),)
    operator = Operator(
        0,
        "",
        OperatorKind.GEMM,
        Phase.FORWARD,
        Yields.OUTPUT,
        gemms=gemms,
        reads=(square, weight),
        writes=(square,),
    )

    def prepared() -> Callable[[], object]:
        left, right = (
            torch.randn(size, size, device=device).to(getattr(torch, dtype)) for _ in range(2)
        )
        return lambda: torch.mm(left, right)

    return Probe(operator, prepared)


def _addition(elements: int, dtype: str, device: str) -> Probe:
    operand = Operand((elements,), dtype, OperandRole.ACTIVATION)
    work = (VectorWork("add", elements),)
    operator = Operator(
        0,
        "",
        OperatorKind.ELEMENTWISE,
        Phase.FORWARD,
        Yields.OUTPUT,
        vector=work,
        reads=(operand, operand),
        writes=(operand,),
    )

    def prepared() -> Callable[[], object]:
        left, right = (
            torch.randn(elements, device=device).to(getattr(torch, dtype)) for _ in range(2)
        )
        result = torch.empty_like(left)
        return lambda: torch.add(left, right, out=result)

    return Probe(operator, prepared)
