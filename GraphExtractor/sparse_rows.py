"""Embedding tables whose module says ``sparse=True``: their gradient is of the rows read alone.

What such gradients take of memory, network and optimizer is explained in
``Estimator.plans.stage_price``. Sums of bags of rows (``EmbeddingBag``) are one operator, which
reads the rows and writes the sums. Importing this module registers the operators with torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any
from unittest.mock import patch

import torch
from torch.nn import functional

from GraphExtractor.custom_operators import define

# beside the sums: the bag of every lookup, and of every bag its size and the lookup of a maximum,
# as torch has them
_bag = define(
    "bag",
    "(Tensor weight, Tensor ids, Tensor offsets, int bags) -> (Tensor, Tensor, Tensor, Tensor)",
    lambda weight, ids, offsets, bags: (
        weight.new_empty(bags, weight.shape[1]),
        torch.empty_like(ids),
        *(ids.new_empty(bags) for _ in range(2)),
    ),
)
# of the table's shape for autograd; what is written are the rows (see ``ValueTable``)
_rows_gradient = define(
    "rows_gradient",
    "(Tensor gradient, Tensor ids, int rows, Tensor[] of_bags) -> Tensor",
    lambda gradient, ids, rows, of_bags: gradient.new_empty(rows, gradient.shape[-1]),
)


def rows_read(table_rows: int, lookups: int) -> int:
    """Rows of a table that ``lookups`` of it touch at most."""
    return min(table_rows, lookups)


class _Rows(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, weight: Any, ids: Any) -> Any:
        ctx.save_for_backward(ids)
        ctx.rows = weight.shape[0]
        return torch.embedding(weight, ids)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (ids,) = ctx.saved_tensors
        return _rows_gradient(gradient, ids, ctx.rows, []), None


class _Bags(torch.autograd.Function):  # type: ignore[misc]
    """Saves what torch's ``_embedding_bag`` does, whose gradient is sparse or not."""

    @staticmethod
    def forward(ctx: Any, weight: Any, ids: Any, offsets: Any, bags: int) -> Any:
        out, *of_bags = _bag(weight, ids, offsets, bags)
        ctx.save_for_backward(ids, offsets, *of_bags)
        ctx.rows = weight.shape[0]
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        ids, *of_bags = ctx.saved_tensors
        return _rows_gradient(gradient, ids, ctx.rows, of_bags), None, None, None


@contextmanager
def sparse_gradients() -> Iterator[None]:
    """While active, lookups with sparse gradients are traced as such; torch's are no tensors."""
    embedding, embedding_bag = functional.embedding, functional.embedding_bag
    look_up_of, bags_of = signature(embedding).bind, signature(embedding_bag).bind

    def look_up(*arguments: Any, **named: Any) -> Any:
        given = look_up_of(*arguments, **named).arguments
        if given.get("sparse") and given.get("max_norm") is None:
            return _Rows.apply(given["weight"], given["input"])
        return embedding(*arguments, **named)

    def look_up_bags(*arguments: Any, **named: Any) -> Any:
        given = bags_of(*arguments, **named).arguments
        unusual = given.get("max_norm"), given.get("per_sample_weights")
        summed = given.get("mode", "mean") in ("sum", "mean")
        if not given.get("sparse") or not summed or unusual != (None, None):
            return embedding_bag(*arguments, **named)
        ids, weight, offsets = given["input"], given["weight"], given.get("offsets")
        if offsets is None:  # one bag per row
            starts = torch.arange(0, ids.numel(), ids.shape[1], device=ids.device)
            return _Bags.apply(weight, ids.flatten(), starts, ids.shape[0])
        bags = offsets.shape[0] - int(given.get("include_last_offset", False))
        return _Bags.apply(weight, ids, offsets, bags)

    with (
        patch.object(functional, "embedding", look_up),
        patch.object(functional, "embedding_bag", look_up_bags),
    ):
        yield
