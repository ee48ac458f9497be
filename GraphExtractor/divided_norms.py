"""Normalisations of a divided dimension: local sums, a small all-reduce of them, the rest local.

Of every token one sum (RMSNorm: of squares) or two (LayerNorm: and of the values) are added up in
fp32, forward before anything is normalised and backward before the input gradient; the learned
factors and their gradients are each device's own.
"""

from typing import Any

import torch
from torch.fx import Node

from GraphExtractor.custom_operators import all_reduce, define
from GraphExtractor.graph import OperatorKind, VectorWork
from GraphExtractor.products import Work
from GraphExtractor.values import argument

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
