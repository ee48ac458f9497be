"""Attention as one operator, or as separate products, in the place of a model's own."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import torch
from torch.nn import functional
from torch.nn.modules import transformer

from GraphExtractor.context_parallel import (
    UNSHARED,
    SharedTokens,
    gather_keys,
    heads_for_tokens,
    own_heads,
    tokens_for_heads,
)
from GraphExtractor.custom_operators import define
from GraphExtractor.graph import Attention, KeyExchange
from GraphExtractor.models_listing import keep_listing
from GraphExtractor.torch_internals import annotate
from phaze_common.errors import InputError

logger = logging.getLogger(__name__)
_OURS = "_phaze_mask"
# of the settings that models give their attention, those that are priced
_PRICED = frozenset({"is_causal", "position_bias", "s_aux", "softcap", "sliding_window"})


def _attention_shapes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any, **__: Any) -> Any:
    batch, heads, rows, _ = q.shape
    # the output in (batch, sequence, head, width) order, so that merging the heads is a view
    return q.new_empty(batch, rows, heads, v.shape[-1]), q.new_empty(
        batch, heads, rows, dtype=torch.float32
    )


def _attention_backward_shapes(_: Any, *operands: Any) -> Any:
    bias, sinks = (*operands[7:], None, None)[:2]  # behind q, k, v, out, lse, causal and dropout
    empty = operands[0].new_empty(0)
    learned = (empty if each is None else torch.empty_like(each) for each in (bias, sinks))
    return *map(torch.empty_like, operands[:3]), *learned


# bias is added to the scores, sinks (one per head) are scores of nothing besides; window is
# that of ``graph.Operator``; keys and values are those of one of ``ring`` devices, which pass them
# on
_SETTINGS = (
    "bool causal, float dropout, Tensor? bias=None, Tensor? sinks=None, int? window=None, "
    "bool capped=False, int ring=1"
)
_attention = define(
    "attention",
    f"(Tensor q, Tensor k, Tensor v, {_SETTINGS}) -> (Tensor, Tensor)",
    _attention_shapes,
)
_attention_backward = define(
    "attention_backward",
    f"(Tensor gradient, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, {_SETTINGS})"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _attention_backward_shapes,
)


@dataclass(frozen=True)
class Scores:
    """What becomes of the scores of a product of queries and keys before their softmax.

    They are scaled, capped (``cap * tanh(scores / cap)``), added to a ``bias`` that broadcasts
    against them, and masked: ``causal``, and beyond ``window`` tokens before a row's own (where not
    causal: or behind it). ``sinks`` (heads,) take their part of the softmax.
    """

    causal: bool
    dropout: float
    scale: float
    bias: Any = None
    sinks: Any = None
    window: int | None = None
    cap: float | None = None


class _FlashAttention(torch.autograd.Function):  # type: ignore[misc]
    """Saves q, k, v, bias, sinks, output and an fp32 log-sum-exp per row (Dao et al. 2022)."""

    @staticmethod
    def forward(ctx: Any, *operands: Any) -> Any:
        q, k, v, bias, sinks, causal, dropout, *others = operands
        with annotate({"core_attention": True}):
            out, lse = _attention(q, k, v, causal, dropout, bias, sinks, *others)
        ctx.save_for_backward(q, k, v, out, lse, bias, sinks)
        ctx.settings = causal, dropout, others
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        *saved, bias, sinks = ctx.saved_tensors
        causal, dropout, others = ctx.settings
        d_q, d_k, d_v, d_bias, d_sinks = _attention_backward(
            gradient, *saved, causal, dropout, bias, sinks, *others
        )
        biased, sunk = ctx.needs_input_grad[3:5]
        learned = d_bias if biased else None, d_sinks if sunk else None
        return d_q, d_k, d_v, *learned, *(None,) * (2 + len(others))


def _flash(q: Any, k: Any, v: Any, shared: SharedTokens, scores: Scores) -> Any:
    """Attention output of shape (batch, sequence, head, width)."""
    square = q.shape[-2] == k.shape[-2]  # no kernel is known to skip what another mask leaves out
    causal, window = scores.causal and square, scores.window if square else None
    k, v = gather_keys(k, v, shared.by(KeyExchange.GATHER))
    ring = shared.by(KeyExchange.RING)
    settings = window, scores.cap is not None, *((ring,) if ring > 1 else ())
    return _FlashAttention.apply(
        q, k, v, scores.bias, scores.sinks, causal, scores.dropout, *settings
    )


def _eager(q: Any, k: Any, v: Any, shared: SharedTokens, scores: Scores) -> Any:
    """Separate products, scaling, cap, bias, mask, softmax and dropout of scores in memory."""
    if k.shape[1] != q.shape[1]:  # grouped-query attention: repeat keys and values
        repeats = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    q = q.contiguous()
    k, v = gather_keys(k.contiguous(), v.contiguous(), shared.by(KeyExchange.GATHER))
    with annotate({"core_attention": True, "causal": scores.causal}):
        logits = torch.matmul(q, k.transpose(-1, -2))
        if scores.scale != 1:
            logits = logits * scores.scale
        if scores.cap is not None:
            logits = torch.tanh(logits / scores.cap) * scores.cap
        if scores.bias is not None:
            logits = logits + scores.bias
        if scores.causal or scores.window is not None:
            # stands for the mask: same traffic, and no mask tensor, as in a fused mask kernel
            logits = logits.tril()
        weights = functional.dropout(_softmax(logits, scores.sinks), scores.dropout)
        return torch.matmul(weights, v).transpose(1, 2).contiguous()


def _softmax(logits: Any, sinks: Any) -> Any:
    """Softmax over the keys and, if there is one, the sink of the head, whose part is dropped."""
    if sinks is None:
        return torch.softmax(logits, -1)
    column = sinks.reshape(1, -1, 1, 1).expand(logits.shape[0], -1, logits.shape[-2], 1)
    return torch.softmax(torch.cat([logits, column], -1), -1)[..., :-1]


def _attend(
    attention: Attention, q: Any, k: Any, v: Any, shared: SharedTokens, scores: Scores
) -> Any:
    attend = _flash if attention is Attention.FLASH else _eager
    devices = shared.by(KeyExchange.ULYSSES)
    if devices == 1:
        return attend(q, k, v, shared, scores)
    if scores.bias is not None and scores.bias.shape[-2] not in (1, q.shape[-2] * devices):
        raise InputError(
            "biases of the scores that differ by query are there for the queries of one device "
            "only, and ulysses gives it those of all; use exchange gather or ring"
        )
    scores = replace(
        scores, bias=own_heads(scores.bias, -3, devices), sinks=own_heads(scores.sinks, 0, devices)
    )
    q, k, v = heads_for_tokens(q, k, v, devices)
    return tokens_for_heads(attend(q, k, v, UNSHARED, scores), devices)


def _added(mask: Any, position_bias: Any) -> Any:
    """What is added to the scores; a mask that is no float leaves scores out, which is free."""
    mask = mask if isinstance(mask, torch.Tensor) and mask.is_floating_point() else None
    if mask is None or position_bias is None:
        return position_bias if mask is None else mask
    return mask + position_bias


def register_attention(attention: Attention, shared: SharedTokens = UNSHARED) -> str:
    """Make our attention known to Hugging Face models and return the name it goes by.

    A device's queries meet the keys and values of all devices that share its sequences. The name is
    deliberately not registered as a mask interface, so that models build no mask tensor: what a
    model gives its attention (``is_causal``, ``sliding_window``) says what its mask is.
    """
    keep_listing()
    from transformers import AttentionInterface

    left_out: set[str] = set()  # so that a model of many layers is warned of once

    def routed(
        module: Any,
        q: Any,
        k: Any,
        v: Any,
        attention_mask: Any = None,
        dropout: float = 0.0,
        scaling: float | None = None,
        **settings: Any,
    ) -> Any:
        for name, value in settings.items():
            learned = isinstance(value, torch.Tensor) and value.requires_grad
            if learned and name not in _PRICED and name not in left_out:
                left_out.add(name)
                kind = type(module).__name__
                logger.warning("%s of %s is left out of the attention that is priced", name, kind)
        masked = attention_mask is not None
        causal, window = settings.get("is_causal"), settings.get("sliding_window")
        causal = getattr(module, "is_causal", True) if causal is None else causal
        if not isinstance(window, int) or masked or not 0 < window < k.shape[-2] * shared.devices:
            window = None
        scores = Scores(
            causal=not masked and bool(causal),
            dropout=dropout,
            scale=scaling or q.shape[-1] ** -0.5,
            bias=_added(attention_mask, settings.get("position_bias")),
            sinks=settings.get("s_aux"),
            # transformers' windows count the row's own key too
            window=None if window is None else window - 1,
            cap=settings.get("softcap"),
        )
        return _attend(attention, q, k, v, shared, scores), None

    # a name with "flash" in it loads flash kernels
    name = "phaze_tiled" if attention is Attention.FLASH else "phaze_eager"
    name += f"_{shared.exchange}_{shared.devices}" if shared.devices > 1 else ""
    AttentionInterface.register(name, routed)
    return name


def with_masks(name: str) -> str:
    """The attention of this ``name`` for models whose code reads the mask; returns its name.

    Such a model (with an indexer, or windows in chunks) gets a mask of shape (batch, 1, queries,
    keys): 0 where a key may be seen, the least number elsewhere. Attention that is given just this
    mask is as it is without one.
    """
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    attend = AttentionInterface()[name]

    def masked(batch_size: int, q_length: int, kv_length: int, **settings: Any) -> Any:
        dtype = settings.get("dtype", torch.float32)
        seen = torch.zeros(batch_size, 1, q_length, kv_length, dtype=dtype)
        if "allow_is_bidirectional_skip" not in settings:
            later = torch.ones(q_length, kv_length, dtype=torch.bool).triu(1 + kv_length - q_length)
            seen = seen.masked_fill(later, torch.finfo(dtype).min)
        setattr(seen, _OURS, True)
        return seen

    def routed(
        module: Any, q: Any, k: Any, v: Any, attention_mask: Any = None, *more: Any, **settings: Any
    ) -> Any:
        mask = None if getattr(attention_mask, _OURS, False) else attention_mask
        return attend(module, q, k, v, mask, *more, **settings)

    AttentionInterface.register(f"{name}_masked", routed)
    AttentionMaskInterface.register(f"{name}_masked", masked)
    return f"{name}_masked"


@contextmanager
def whole_operators(attention: Attention, shared: SharedTokens = UNSHARED) -> Iterator[None]:
    """While active, torch's attention and dropout stay whole in the trace, as on a GPU."""

    def attend(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **settings: Any,
    ) -> Any:
        scale = settings.get("scale") or query.shape[-1] ** -0.5
        scores = Scores(is_causal, dropout_p, scale, _added(attn_mask, None))
        return _attend(attention, query, key, value, shared, scores).transpose(1, 2)

    def drop(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return torch.native_dropout(input, p, True)[0] if training and p > 0 else input

    def is_causal_mask(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
        return bool(is_causal)  # what a mask says is in its values, which a trace does not have

    # patching is the only way in: a TorchFunctionMode is off inside nn.MultiheadAttention
    with (
        patch.object(functional, "scaled_dot_product_attention", attend),
        patch.object(functional, "dropout", drop),
        patch.object(transformer, "_detect_is_causal_mask", is_causal_mask),
    ):
        yield
