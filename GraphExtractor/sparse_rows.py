"""Embedding tables whose module says ``sparse=True``: their gradient is that of the rows that were
read, and no other.

What such gradients take of memory, network and optimizer is told in
``Estimator.plans.stage_price``. Sums of bags of rows (``EmbeddingBag``) are one operator, which
reads the rows and writes the sums. Importing this module registers the operators with torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
_rows_gradient = (
    define(  # of the table's shape for autograd; what is written are the rows (see ``ValueTable``)
        "rows_gradient",
        "(Tensor gradient, Tensor ids, int rows, Tensor[] of_bags) -> Tensor",
        lambda gradient, ids, rows, of_bags: gradient.new_empty(rows, gradient.shape[-1]),
    )
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
    """While active, lookups with sparse gradients are traced as what they are; torch would make
    tensors of a sparse layout."""
    embedding, embedding_bag = functional.embedding, functional.embedding_bag

    def look_up(
        input: Any,
        weight: Any,
        padding_idx: Any = None,
        max_norm: Any = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Any:
        if sparse and max_norm is None:
            return _Rows.apply(weight, input)
        return embedding(
            input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse
        )

    def look_up_bags(
        input: Any,
        weight: Any,
        offsets: Any = None,
        max_norm: Any = None,
        norm_type: float = 2,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        per_sample_weights: Any = None,
        include_last_offset: bool = False,
        padding_idx: Any = None,
    ) -> Any:
        if sparse and max_norm is None and mode in ("sum", "mean") and per_sample_weights is None:
            if offsets is None:  # one bag per row
                starts = torch.arange(0, input.numel(), input.shape[1], device=input.device)
                return _Bags.apply(weight, input.flatten(), starts, input.shape[0])
            return _Bags.apply(weight, input, offsets, offsets.shape[0] - int(include_last_offset))
        settings = (
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            per_sample_weights,
            include_last_offset,
            padding_idx,
        )
        return embedding_bag(input, weight, offsets, max_norm, *settings)

    with (
        patch.object(functional, "embedding", look_up),
        patch.object(functional, "embedding_bag", look_up_bags),
    ):
        yield
