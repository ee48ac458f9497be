"""A function whose results are computed again in the backward pass, from what it was given.

Torch's own checkpoint hands every tensor that is saved to hooks, and its choice of operators every
operator to one: 0.3 to 1.3 ms for a small layer on a processor, as much as the layer. Here the
forward pass saves nothing but its operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import torch


def recomputing(
    function: Callable[..., Any], operands: Sequence[Any], differentiable: Sequence[bool] = (True,)
) -> tuple[Any, ...]:
    """The results of ``function``, of which those that are ``differentiable`` have gradients; of
    more results than these, none.

    It must be given every tensor that is to get a gradient, and give the same results each time.
    """
    results: tuple[Any, ...] = _Recomputed.apply(function, tuple(differentiable), *operands)
    return results


class _Recomputed(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any, function: Callable[..., Any], differentiable: tuple[bool, ...], *operands: Any
    ) -> tuple[Any, ...]:
        ctx.function = function
        ctx.others = tuple(None if isinstance(each, torch.Tensor) else each for each in operands)
        ctx.tensors = tuple(
            place for place, each in enumerate(operands) if isinstance(each, torch.Tensor)
        )
        ctx.save_for_backward(*(operands[place] for place in ctx.tensors))
        ctx.set_materialize_grads(False)
        results = tuple(function(*operands))
        made = [
            (each, has)
            for each, has in zip_longest(results, differentiable, fillvalue=False)
            if isinstance(each, torch.Tensor)
        ]
        ctx.mark_non_differentiable(*(each for each, has in made if not has))
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        operands = list(ctx.others)
        for place, value in zip(ctx.tensors, ctx.saved_tensors, strict=True):
            operands[place] = value.detach().requires_grad_(value.requires_grad)
        with torch.enable_grad():
            results = ctx.function(*operands)
        ends = [
            (made, gradient)
            for made, gradient in zip(results, gradients, strict=True)
            if gradient is not None
        ]
        wanted = [place for place in ctx.tensors if operands[place].requires_grad]
        found = torch.autograd.grad(
            [made for made, _ in ends],
            [operands[place] for place in wanted],
            [each for _, each in ends],
            allow_unused=True,
        )
        of_operands: list[torch.Tensor | None] = [None] * len(operands)
        for place, each in zip(wanted, found, strict=True):
            of_operands[place] = each
        return None, None, *of_operands
