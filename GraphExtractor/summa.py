"""Linear layers divided along two axes of devices (SUMMA, van de Geijn & Watts 1997), as one traced
operator per product.

Device (r, c) of ``tp2`` rows and ``tp`` columns holds tokens r of the input's columns c,
(tokens/tp2, in/tp), the weight's outputs c of its inputs r, (out/tp, in/tp2), and makes tokens r of
the outputs c. What is summed over is cut into tp · tp2 blocks: block (c, r) of the input is on
column c, that of the weight on row r (of a size that tp · tp2 does not divide, into smaller ones
that both have as many of). Panel by panel, of one block or several, columns broadcast their part of
the input along the rows and rows their part of the weight along the columns, and each device adds
up the products of what it received. Backward, the input gradient takes panels of the weight, and
its own panels are reduced to the column that they belong to; the weight gradient takes panels of
the input, and its own are reduced to their row, complete over all rows. No device ever holds a
whole operand. The panels are ``Operator.streamed``: how many there are is chosen where they are
priced.
"""

from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from GraphExtractor.custom_operators import define
from GraphExtractor.graph import Collective, CollectiveGroup, CollectiveKind, Gemm, OperatorKind
from GraphExtractor.products import Work
from GraphExtractor.values import Use

_product = define(
    "summa",
    "(Tensor x, Tensor weight, int tp, int tp2) -> Tensor",
    lambda x, weight, tp, tp2: x.new_empty(*x.shape[:-1], weight.shape[0]),
)
_input_gradient = define(
    "summa_input_gradient",
    "(Tensor gradient, Tensor weight, int tp, int tp2) -> Tensor",
    lambda gradient, weight, tp, tp2: gradient.new_empty(
        *gradient.shape[:-1], weight.shape[1] * tp2 // tp
    ),
)
_weight_gradient = define(
    "summa_weight_gradient",
    "(Tensor gradient, Tensor x, int tp, int tp2) -> Tensor",
    lambda gradient, x, tp, tp2: gradient.new_empty(gradient.shape[-1], x.shape[-1] * tp // tp2),
)
_NAMES = ("summa", "summa_input_gradient", "summa_weight_gradient")


class _Summa(torch.autograd.Function):  # type: ignore[misc]
    """Keeps the device's own parts of the operands."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, tp: int, tp2: int) -> Any:
        ctx.save_for_backward(x, weight)
        ctx.axes = tp, tp2
        return _product(x, weight, tp, tp2)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, weight = ctx.saved_tensors
        of_x = _input_gradient(gradient, weight, *ctx.axes) if ctx.needs_input_grad[0] else None
        return of_x, _weight_gradient(gradient, x, *ctx.axes), None, None


class SummaLinear(torch.nn.Module):  # type: ignore[misc]
    """One device's part of a linear layer: weight (out/tp, in/tp2), bias (out/tp) or none."""

    def __init__(
        self, weight: torch.nn.Parameter, bias: torch.nn.Parameter | None, tp: int, tp2: int
    ) -> None:
        super().__init__()
        self.weight, self.bias, self.tp, self.tp2 = weight, bias, tp, tp2

    def forward(self, x: torch.Tensor) -> Any:
        """Tokens (..., in/tp) to (..., out/tp)."""
        out = _Summa.apply(x, self.weight, self.tp, self.tp2)
        return out if self.bias is None else out + self.bias


def summa_work(node: Node, name: str) -> Work | None:
    """What one device does of a product in panels; None for any other operator.

    Panels that are received come before those that are reduced, and an axis of one device has none.
    """
    if name not in _NAMES:
        return None
    left, right = (argument.meta["val"].shape for argument in node.args[:2])
    tokens, (tp, tp2) = left[:-1].numel(), node.args[2:]
    gemm = {
        "summa": Gemm(1, tokens, left[-1] * tp, right[0]),
        "summa_input_gradient": Gemm(1, tokens, left[-1], right[-1] * tp2),
        "summa_weight_gradient": Gemm(1, left[-1], tokens, right[-1] * tp),
    }[name]
    along_rows = CollectiveGroup.TENSOR, tp
    along_columns = CollectiveGroup.TENSOR2, tp2
    panels = {
        "summa": (
            (CollectiveKind.BROADCAST, 0, along_rows),
            (CollectiveKind.BROADCAST, 1, along_columns),
        ),
        "summa_input_gradient": (
            (CollectiveKind.BROADCAST, 1, along_columns),
            (CollectiveKind.REDUCE, None, along_rows),
        ),
        "summa_weight_gradient": (
            (CollectiveKind.BROADCAST, 1, along_rows),
            (CollectiveKind.REDUCE, None, along_columns),
        ),
    }[name]
    streamed = tuple(
        Collective(
            kind, _bytes(node if operand is None else node.args[operand]) * devices, devices, group
        )
        for kind, operand, (group, devices) in panels
        if devices > 1
    )
    return Work(OperatorKind.GEMM, (gemm,), streamed=streamed)


def _bytes(node: Node) -> int:
    tensor = node.meta["val"]
    return int(tensor.numel() * tensor.element_size())


def received_panels(node: Node, name: str, uses: tuple[Use, ...]) -> tuple[Use, ...]:
    """What a product in panels reads of other devices' parts of its operands."""
    if name not in _NAMES:
        return ()
    tp, tp2 = node.args[2:]
    parts = {
        "summa": (tp, tp2),
        "summa_input_gradient": (1, tp2),
        "summa_weight_gradient": (1, tp),
    }[name]
    others = dict(zip(node.args[:2], parts, strict=True))
    return tuple(
        replace(use, shape=(*use.shape[:-1], use.shape[-1] * (others[use.view] - 1)))
        for use in uses
        if others[use.view] > 1
    )
