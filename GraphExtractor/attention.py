"""Attention as one operator, or as separate products, in the place of every implementation a model may ask for."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx.traceback import annotate
from torch.nn import functional
from torch.nn.modules import transformer

from GraphExtractor.context_parallel import gather_keys
from GraphExtractor.custom_operators import define
from GraphExtractor.graph import Attention

logger = logging.getLogger(__name__)
_LEFT_OUT = ("softcap", "s_aux")  # what some models give their attention besides: a cap of the scores, sinks


def _attention_shapes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, dropout: float, bias: Any = None) -> Any:
    batch, heads, rows, _ = q.shape
    # the output in (batch, sequence, head, width) order, so that merging the heads is a view
    return q.new_empty(batch, rows, heads, v.shape[-1]), q.new_empty(batch, heads, rows, dtype=torch.float32)


_attention = define(
    "attention",
    "(Tensor q, Tensor k, Tensor v, bool causal, float dropout, Tensor? bias=None) -> (Tensor, Tensor)",
    _attention_shapes,
)
_attention_backward = define(
    "attention_backward",
    "(Tensor gradient, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, bool causal, float dropout, Tensor? bias=None)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    lambda gradient, q, k, v, out, lse, causal, dropout, bias=None: (
        *map(torch.empty_like, (q, k, v)),
        q.new_empty(0) if bias is None else torch.empty_like(bias),
    ),
)


class _FlashAttention(torch.autograd.Function):  # type: ignore[misc]
    """Saves q, k, v, the bias, the output and one fp32 log-sum-exp per row (Dao et al. 2022)."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, causal: bool, dropout: float, bias: Any) -> Any:
        with annotate({"core_attention": True}):
            out, lse = _attention(q, k, v, causal, dropout, bias)
        ctx.save_for_backward(q, k, v, out, lse, bias)
        ctx.settings = causal, dropout
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        *saved, bias = ctx.saved_tensors
        d_q, d_k, d_v, d_bias = _attention_backward(gradient, *saved, *ctx.settings, bias)
        return d_q, d_k, d_v, None, None, d_bias if ctx.needs_input_grad[5] else None


def _flash(q: Any, k: Any, v: Any, causal: bool, dropout: float, cp: int, bias: Any = None) -> Any:
    """Attention output of shape (batch, sequence, head, width)."""
    return _FlashAttention.apply(q, *gather_keys(k, v, cp), causal, dropout, bias)


def _eager(q: Any, k: Any, v: Any, causal: bool, dropout: float, cp: int, scale: float, bias: Any = None) -> Any:
    """Separate products, scaling, bias, mask, softmax and dropout, with the scores in memory."""
    if k.shape[1] != q.shape[1]:  # grouped-query attention: repeat keys and values
        repeats = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    q, (k, v) = q.contiguous(), gather_keys(k.contiguous(), v.contiguous(), cp)
    with annotate({"core_attention": True, "causal": causal}):
        scores = torch.matmul(q, k.transpose(-1, -2))
        if scale != 1:
            scores = scores * scale
        if bias is not None:
            scores = scores + bias
        if causal:
            scores = scores.tril()  # stands for the mask: same traffic, and no mask tensor, as in a fused mask kernel
        weights = functional.dropout(torch.softmax(scores, -1), dropout)
        return torch.matmul(weights, v).transpose(1, 2).contiguous()


def register_attention(attention: Attention, cp: int = 1) -> str:
    """Make our attention known to Hugging Face models and return the name it goes by.

    With ``cp`` > 1 a device's queries meet the keys and values of all devices that share its sequences. The name is
    deliberately not registered as a mask interface, so that models build no mask tensor.
    """
    from transformers import AttentionInterface

    left_out: set[str] = set()  # so that a model of many layers is warned of once

    def routed(
        module: Any, q: Any, k: Any, v: Any, mask: Any = None, dropout: float = 0.0, scaling: float | None = None, **settings: Any
    ) -> Any:
        told, bias = settings.get("is_causal"), settings.get("position_bias")
        causal = bool(getattr(module, "is_causal", True) if told is None else told)
        for name in _LEFT_OUT:
            if settings.get(name) is not None and name not in left_out:
                left_out.add(name)
                logger.warning("%s of %s is left out of the attention that is priced", name, type(module).__name__)
        if attention is Attention.FLASH:
            return _flash(q, k, v, causal, dropout, cp, bias), None
        return _eager(q, k, v, causal, dropout, cp, scaling or q.shape[-1] ** -0.5, bias), None

    name = "phaze_tiled" if attention is Attention.FLASH else "phaze_eager"  # a name with "flash" in it loads flash kernels
    name += f"_{cp}" if cp > 1 else ""
    AttentionInterface.register(name, routed)
    return name


@contextmanager
def whole_operators(attention: Attention, cp: int = 1) -> Iterator[None]:
    """While active, ``scaled_dot_product_attention`` and ``dropout`` of torch stay whole in the trace, as on a GPU."""

    def attend(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, **settings: Any
    ) -> Any:
        scale = settings.get("scale") or query.shape[-1] ** -0.5
        bias = attn_mask if attn_mask is not None and attn_mask.is_floating_point() else None  # any other mask costs nothing
        if attention is Attention.FLASH:
            return _flash(query, key, value, is_causal, dropout_p, cp, bias).transpose(1, 2)
        return _eager(query, key, value, is_causal, dropout_p, cp, scale, bias).transpose(1, 2)

    def drop(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return torch.native_dropout(input, p, True)[0] if training and p > 0 else input

    def is_causal_mask(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
        return bool(is_causal)  # what a mask says is in its values, which a trace does not have

    # patching is the only way in: a TorchFunctionMode is off inside nn.MultiheadAttention
    originals = functional.scaled_dot_product_attention, functional.dropout, transformer._detect_is_causal_mask
    _patch(attend, drop, is_causal_mask)
    try:
        yield
    finally:
        _patch(*originals)


def _patch(attend: Any, drop: Any, is_causal_mask: Any) -> None:
    functional.scaled_dot_product_attention, functional.dropout = attend, drop
    transformer._detect_is_causal_mask = is_causal_mask
