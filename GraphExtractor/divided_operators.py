"""Operators of a 2D layout: linear layers and normalisations of a divided dimension.

Linear layers are divided along two axes of devices (SUMMA, van de Geijn & Watts 1997), each product
one traced operator. Device (r, c) of ``tp2`` rows and ``tp`` columns holds tokens r of the input's
columns c, (tokens/tp2, in/tp), the weight's outputs c of its inputs r, (out/tp, in/tp2), and makes
tokens r of the outputs c. What is summed over is cut into tp · tp2 blocks: block (c, r) of the
input is on column c, that of the weight on row r (of a size that tp · tp2 does not divide, into
smaller ones that both have as many of). Panel by panel, of one block or several, columns broadcast
their part of the input along the rows and rows their part of the weight along the columns, and each
device adds up the products of what it received. Backward, the input gradient takes panels of the
weight, and its own panels are reduced to the column that they belong to; the weight gradient takes
panels of the input, and its own are reduced to their row, complete over all rows. No device ever
holds a whole operand. The panels are ``Operator.streamed``: how many there are is chosen where they
are priced.

Of every token one sum (RMSNorm: of squares) or two (LayerNorm: and of the values) are added up in
fp32 in a small all-reduce, forward before anything is normalised and backward before the input
gradient; the learned factors and their gradients are each device's own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Node

from GraphExtractor.custom_operators import all_reduce, define
from GraphExtractor.graph import (
    Collective,
    CollectiveGroup,
    CollectiveKind,
    Gemm,
    OperatorKind,
    VectorWork,
)
from GraphExtractor.products import Work
from GraphExtractor.values import Use, argument

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


@dataclass(frozen=True)
class _Panels:
    """A product in panels: its shape on a device of ``tp`` columns and ``tp2`` rows, what is sent.

    ``moved`` are the collectives, with the operand that they bring (None: the result that they
    add up); ``parts`` are the devices that each operand comes from.
    """

    gemm: Gemm
    moved: tuple[tuple[CollectiveKind, int | None, CollectiveGroup, int], ...]
    parts: tuple[int, int]

    @staticmethod
    def of(node: Node, name: str) -> _Panels:
        left, right = (argument.meta["val"].shape for argument in node.args[:2])
        tokens, (tp, tp2) = left[:-1].numel(), node.args[2:]
        rows, columns = (CollectiveGroup.TENSOR, tp), (CollectiveGroup.TENSOR2, tp2)
        send, add_up = CollectiveKind.BROADCAST, CollectiveKind.REDUCE
        if name == "summa":
            gemm = Gemm(1, tokens, left[-1] * tp, right[0])
            return _Panels(gemm, ((send, 0, *rows), (send, 1, *columns)), (tp, tp2))
        if name == "summa_input_gradient":
            gemm = Gemm(1, tokens, left[-1], right[-1] * tp2)
            return _Panels(gemm, ((send, 1, *columns), (add_up, None, *rows)), (1, tp2))
        gemm = Gemm(1, left[-1], tokens, right[-1] * tp)
        return _Panels(gemm, ((send, 1, *rows), (add_up, None, *columns)), (1, tp))


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
    panels = _Panels.of(node, name)
    streamed = []
    for kind, operand, group, devices in panels.moved:
        if devices > 1:
            tensor = (node if operand is None else node.args[operand]).meta["val"]
            payload = int(tensor.numel() * tensor.element_size()) * devices
            streamed.append(Collective(kind, payload, devices, group))
    return Work(OperatorKind.GEMM, (panels.gemm,), streamed=tuple(streamed))


def received_panels(node: Node, name: str, uses: tuple[Use, ...]) -> tuple[Use, ...]:
    """What a product in panels reads of other devices' parts of its operands."""
    if name not in _NAMES:
        return ()
    others = dict(zip(node.args[:2], _Panels.of(node, name).parts, strict=True))
    return tuple(
        replace(use, shape=(*use.shape[:-1], use.shape[-1] * (others[use.view] - 1)))
        for use in uses
        if others[use.view] > 1
    )


_sums = define(
    "norm_sums",
    "(Tensor x, int numbers) -> Tensor",
    lambda x, numbers: x.new_empty(*x.shape[:-1], numbers, dtype=torch.float32),
)
_apply = define(
    "norm_apply",
    "(Tensor x, Tensor sums, Tensor weight, Tensor? bias, int width, float epsilon) -> Tensor",
    lambda x, *_: torch.empty_like(x),
)
# gradients of the factors beside the sums that the input gradient needs
_gradient_sums = define(
    "norm_gradient_sums",
    "(Tensor gradient, Tensor x, Tensor sums, Tensor weight, int width, float epsilon) -> "
    "(Tensor, Tensor, Tensor)",
    lambda _, x, sums, weight, *others: (
        torch.empty_like(sums),
        *(torch.empty_like(weight) for _ in range(2)),
    ),
)
_gradient_apply = define(
    "norm_gradient_apply",
    "(Tensor gradient, Tensor x, Tensor sums, Tensor gradient_sums, Tensor weight, int width, "
    "float epsilon) -> Tensor",
    lambda gradient, *_: torch.empty_like(gradient),
)


class _DividedNorm(torch.autograd.Function):  # type: ignore[misc]
    """Keeps its input and the sums."""

    @staticmethod
    def forward(
        ctx: Any, x: Any, weight: Any, bias: Any, tp: int, numbers: int, epsilon: float
    ) -> Any:
        ctx.settings = x.shape[-1] * tp, epsilon
        ctx.tp, ctx.biased = tp, bias is not None
        sums = all_reduce(_sums(x, numbers), tp)
        ctx.save_for_backward(x, sums, weight)
        return _apply(x, sums, weight, bias, *ctx.settings)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, sums, weight = ctx.saved_tensors
        gradient_sums, of_weight, of_bias = _gradient_sums(gradient, x, sums, weight, *ctx.settings)
        of_x = _gradient_apply(
            gradient, x, sums, all_reduce(gradient_sums, ctx.tp), weight, *ctx.settings
        )
        return of_x, of_weight, of_bias if ctx.biased else None, None, None, None


class DividedNorm(torch.nn.Module):  # type: ignore[misc]
    """A LayerNorm of which a device has width/tp, or a RMSNorm, which has no mean and no bias."""

    def __init__(
        self,
        weight: torch.nn.Parameter,
        bias: torch.nn.Parameter | None,
        tp: int,
        epsilon: float,
        *,
        centred: bool,
    ) -> None:
        super().__init__()
        self.weight, self.bias, self.tp, self.epsilon = weight, bias, tp, epsilon
        self.numbers = 2 if centred else 1

    def forward(self, x: torch.Tensor) -> Any:
        """Normalise the last dimension, of which x (..., width/tp) is this device's part."""
        return _DividedNorm.apply(x, self.weight, self.bias, self.tp, self.numbers, self.epsilon)


# kernel -> kind, and the part of the norm's function that it is
_PARTS = {
    "norm_sums": (OperatorKind.REDUCTION, "{norm}_sums"),
    "norm_apply": (OperatorKind.ELEMENTWISE, "{norm}_apply"),
    "norm_gradient_sums": (OperatorKind.REDUCTION, "{norm}_backward_sums"),
    "norm_gradient_apply": (OperatorKind.ELEMENTWISE, "{norm}_backward_apply"),
}


def norm_work(node: Node, name: str) -> Work | None:
    """The work of a kernel of a divided norm; None for any other operator."""
    if name not in _PARTS:
        return None
    kind, function = _PARTS[name]
    if name == "norm_sums":
        numbers = argument(node, "numbers")
    else:
        numbers = argument(node, "sums").meta["val"].shape[-1]
    elements = argument(node, "x").meta["val"].numel()
    norm = "layer_norm" if numbers == 2 else "rms_norm"
    return Work(kind, (), (VectorWork(function.format(norm=norm), elements),))
