"""Operators that stay whole in a trace: fused attention, RMSNorm, vocabulary-parallel loss, tensor-parallel collectives.

Each is a shape function only: nothing is ever executed. Importing this module registers them with torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx.traceback import annotate
from torch.nn import functional

from GraphExtractor.graph import Attention


def _define(name: str, schema: str, shapes: Callable[..., Any]) -> Any:
    def never_runs(*_: object) -> None:
        raise NotImplementedError(f"phaze::{name} is a shape function for tracing")

    operator = torch.library.custom_op(f"phaze::{name}", never_runs, mutates_args=(), schema=schema)
    operator.register_fake(shapes)
    return operator


def _attention_shapes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, dropout: float, bias: Any = None) -> Any:
    batch, heads, rows, _ = q.shape
    # the output in (batch, sequence, head, width) order, so that merging the heads is a view
    return q.new_empty(batch, rows, heads, v.shape[-1]), q.new_empty(batch, heads, rows, dtype=torch.float32)


_attention = _define(
    "attention",
    "(Tensor q, Tensor k, Tensor v, bool causal, float dropout, Tensor? bias=None) -> (Tensor, Tensor)",
    _attention_shapes,
)
_attention_backward = _define(
    "attention_backward",
    "(Tensor gradient, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, bool causal, float dropout, Tensor? bias=None)"
    " -> (Tensor, Tensor, Tensor)",
    lambda gradient, q, k, v, *_: (torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)),
)
_rms_norm = _define(
    "rms_norm",
    "(Tensor x, Tensor weight) -> (Tensor, Tensor)",
    lambda x, weight: (torch.empty_like(x), x.new_empty(x.shape[:-1], dtype=torch.float32)),
)
_rms_norm_backward = _define(
    "rms_norm_backward",
    "(Tensor gradient, Tensor x, Tensor weight, Tensor statistic) -> (Tensor, Tensor)",
    lambda gradient, x, weight, statistic: (torch.empty_like(x), torch.empty_like(weight)),
)
_cross_entropy = _define(
    "cross_entropy",
    "(Tensor logits, Tensor labels) -> (Tensor, Tensor, Tensor, Tensor)",
    lambda logits, labels: (
        *(labels.new_empty(labels.shape, dtype=torch.float32) for _ in range(3)),
        logits.new_empty(logits.shape, dtype=torch.float32),
    ),
)
_cross_entropy_backward = _define(
    "cross_entropy_backward",
    "(Tensor gradient, Tensor exponentials, Tensor total, Tensor labels, ScalarType dtype) -> Tensor",
    lambda gradient, exponentials, total, labels, dtype: exponentials.new_empty(exponentials.shape, dtype=dtype),
)
_all_reduce = _define("all_reduce", "(Tensor x, int tp) -> Tensor", lambda x, tp: torch.empty_like(x))
# sequence dimension: the last but one of (batch, sequence, hidden), also where a model has merged it with the batch
_all_gather = _define(
    "all_gather", "(Tensor x, int tp) -> Tensor", lambda x, tp: x.new_empty(*x.shape[:-2], x.shape[-2] * tp, x.shape[-1])
)
_reduce_scatter = _define(
    "reduce_scatter", "(Tensor x, int tp) -> Tensor", lambda x, tp: x.new_empty(*x.shape[:-2], x.shape[-2] // tp, x.shape[-1])
)


class _FlashAttention(torch.autograd.Function):  # type: ignore[misc]
    """Saves q, k, v, the output and one fp32 log-sum-exp per row (Dao et al. 2022); a bias is a constant."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, causal: bool, dropout: float, bias: Any) -> Any:
        with annotate({"core_attention": True}):
            out, lse = _attention(q, k, v, causal, dropout, bias)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.settings = causal, dropout, bias
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return *_attention_backward(gradient, *ctx.saved_tensors, *ctx.settings), None, None, None


class _RmsNorm(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any) -> Any:
        out, statistic = _rms_norm(x, weight)
        ctx.save_for_backward(x, weight, statistic)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return _rms_norm_backward(gradient, *ctx.saved_tensors)


class _VocabularyParallelLoss(torch.autograd.Function):  # type: ignore[misc]
    """Per-token cross entropy over vocabulary-sharded logits: three all-reduces of one value per token (Megatron)."""

    @staticmethod
    def forward(ctx: Any, logits: Any, labels: Any, tp: int) -> Any:
        maximum, total, target, exponentials = _cross_entropy(logits, labels)
        maximum, total, target = (_all_reduce(value, tp) for value in (maximum, total, target))
        ctx.save_for_backward(exponentials, total, labels)
        ctx.dtype = logits.dtype
        return total.log() + maximum - target

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return _cross_entropy_backward(gradient, *ctx.saved_tensors, ctx.dtype), None, None


class _Collective(torch.autograd.Function):  # type: ignore[misc]
    """A pair of forward and backward communication, each given as a function of (tensor, tp)."""

    @staticmethod
    def forward(ctx: Any, x: Any, tp: int, forward: Callable[..., Any], backward: Callable[..., Any]) -> Any:
        ctx.tp, ctx.backward_communication = tp, backward
        return forward(x, tp)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return ctx.backward_communication(gradient, ctx.tp), None, None, None


def _identity(x: torch.Tensor, _: int) -> torch.Tensor:
    return x.view_as(x)


def _own_part(x: torch.Tensor, tp: int) -> torch.Tensor:
    return x.narrow(-2, 0, x.shape[-2] // tp).clone()


def copy_to_group(x: torch.Tensor, tp: int) -> Any:
    """Megatron's f: identity forward, all-reduce backward."""
    return _Collective.apply(x, tp, _identity, _all_reduce)


def reduce_from_group(x: torch.Tensor, tp: int) -> Any:
    """Megatron's g: all-reduce forward, identity backward."""
    return _Collective.apply(x, tp, _all_reduce, _identity)


def gather_sequence(x: torch.Tensor, tp: int) -> Any:
    """All-gather the sequence dimension forward, reduce-scatter it backward (Korthikanti et al. 2022, section 4.2)."""
    return _Collective.apply(x, tp, _all_gather, _reduce_scatter)


def reduce_scatter_sequence(x: torch.Tensor, tp: int) -> Any:
    """Reduce-scatter the sequence dimension forward, all-gather it backward."""
    return _Collective.apply(x, tp, _reduce_scatter, _all_gather)


def split_sequence(x: torch.Tensor, tp: int) -> Any:
    """Keep this device's part of the sequence forward, all-gather backward."""
    return _Collective.apply(x, tp, _own_part, _all_gather)


class FusedRmsNorm(torch.nn.Module):  # type: ignore[misc]
    """RMSNorm as a fused kernel runs it: reads and saves its input as it is, plus one fp32 statistic per row."""

    def __init__(self, weight: torch.nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: torch.Tensor) -> Any:
        """Normalise the last dimension."""
        return _RmsNorm.apply(x, self.weight)


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor, tp: int) -> Any:
    """Mean cross entropy in fp32; with tp > 1 the logits' last dimension is this device's part of the vocabulary."""
    if tp == 1:
        return functional.cross_entropy(logits.float().flatten(0, -2), labels.flatten())
    return _VocabularyParallelLoss.apply(logits, labels, tp).mean()


def _flash(q: Any, k: Any, v: Any, causal: bool, dropout: float, bias: Any = None) -> Any:
    """Attention output of shape (batch, sequence, head, width)."""
    return _FlashAttention.apply(q, k, v, causal, dropout, bias)


def _eager(q: Any, k: Any, v: Any, causal: bool, dropout: float, scale: float, bias: Any = None) -> Any:
    """Separate products, scaling, bias, mask, softmax and dropout, with the scores in memory."""
    if k.shape[1] != q.shape[1]:  # grouped-query attention: repeat keys and values
        repeats = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    with annotate({"core_attention": True, "causal": causal}):
        scores = torch.matmul(q, k.transpose(-1, -2)) * scale
        if bias is not None:
            scores = scores + bias
        if causal:
            scores = scores.tril()  # stands for the mask: same traffic, and no mask tensor, as in a fused mask kernel
        weights = functional.dropout(torch.softmax(scores, -1), dropout)
        return torch.matmul(weights, v).transpose(1, 2).contiguous()


def register_attention(attention: Attention) -> str:
    """Make our attention known to Hugging Face models and return the name it goes by.

    The name is deliberately not registered as a mask interface, so that models build no mask tensor.
    """
    from transformers import AttentionInterface

    def routed(
        module: Any, q: Any, k: Any, v: Any, mask: Any, dropout: float = 0.0, scaling: float | None = None, **_: Any
    ) -> Any:
        causal = bool(getattr(module, "is_causal", True))
        if attention is Attention.FLASH:
            return _flash(q, k, v, causal, dropout), None
        return _eager(q, k, v, causal, dropout, scaling or q.shape[-1] ** -0.5), None

    name = "phaze_tiled" if attention is Attention.FLASH else "phaze_eager"  # a name with "flash" in it loads flash kernels
    AttentionInterface.register(name, routed)
    return name


@contextmanager
def whole_operators(attention: Attention) -> Iterator[None]:
    """While active, ``scaled_dot_product_attention`` and ``dropout`` of torch stay whole in the trace, as on a GPU."""

    def attend(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, **settings: Any
    ) -> Any:
        scale = settings.get("scale") or query.shape[-1] ** -0.5
        bias = attn_mask if attn_mask is not None and attn_mask.is_floating_point() else None  # any other mask costs nothing
        if attention is Attention.FLASH:
            return _flash(query, key, value, is_causal, dropout_p, bias).transpose(1, 2)
        return _eager(query, key, value, is_causal, dropout_p, scale, bias).transpose(1, 2)

    def drop(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return torch.native_dropout(input, p, True)[0] if training and p > 0 else input

    # patching is the only way in: a TorchFunctionMode is off inside nn.MultiheadAttention
    originals = functional.scaled_dot_product_attention, functional.dropout
    _patch(attend, drop)
    try:
        yield
    finally:
        _patch(*originals)


def _patch(attend: Any, drop: Any) -> None:
    functional.scaled_dot_product_attention, functional.dropout = attend, drop
