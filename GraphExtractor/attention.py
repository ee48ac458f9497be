"""Attention as one operator, or as separate products, in the place of every implementation a model
may ask for."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional
from torch.nn.modules import transformer

from GraphExtractor.context_parallel import UNSHARED, SharedTokens, gather_keys
from GraphExtractor.custom_operators import define
from GraphExtractor.graph import Attention, KeyExchange
from GraphExtractor.head_exchange import heads_for_tokens, own_heads, tokens_for_heads
from GraphExtractor.torch_internals import annotate
from phaze_common.errors import InputError

logger = logging.getLogger(__name__)
_OURS = "_phaze_mask"
_PRICED = frozenset(
    {"is_causal", "position_bias", "s_aux", "softcap", "sliding_window"}
)  # of what models tell their attention


def _attention_shapes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any, **__: Any) -> Any:
    batch, heads, rows, _ = q.shape
    # the output in (batch, sequence, head, width) order, so that merging the heads is a view
    return q.new_empty(batch, rows, heads, v.shape[-1]), q.new_empty(
        batch, heads, rows, dtype=torch.float32
    )


def _attention_backward_shapes(
    gradient: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    causal: bool,
    dropout: float,
    *others: Any,
) -> Any:
    bias, sinks = (*others, None, None)[:2]
    learned = (q.new_empty(0) if each is None else torch.empty_like(each) for each in (bias, sinks))
    return *map(torch.empty_like, (q, k, v)), *learned


# bias is added to the scores, sinks (one per head) are scores of nothing beside them; window is
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
    """Saves q, k, v, the bias, the sinks, the output and one fp32 log-sum-exp per row (Dao et al.
    2022)."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Any,
        k: Any,
        v: Any,
        bias: Any,
        sinks: Any,
        causal: bool,
        dropout: float,
        *others: Any,
    ) -> Any:
        with annotate({"core_attention": True}):
            out, lse = _attention(q, k, v, causal, dropout, bias, sinks, *others)
        ctx.save_for_backward(q, k, v, out, lse, bias, sinks)
        ctx.settings = causal, dropout, others
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        *saved, bias, sinks = ctx.saved_tensors
        causal, dropout, others = ctx.settings
        d_q, d_k, d_v, *learned = _attention_backward(
            gradient, *saved, causal, dropout, bias, sinks, *others
        )
        needed = ctx.needs_input_grad[3:5]
        unneeded = (None,) * (2 + len(others))
        return (
            d_q,
            d_k,
            d_v,
            *(each if need else None for each, need in zip(learned, needed, strict=True)),
            *unneeded,
        )


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
    """Separate products, scaling, cap, bias, mask, softmax and dropout, with the scores in
    memory."""
    if k.shape[1] != q.shape[1]:  # grouped-query attention: repeat keys and values
        repeats = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    q, (k, v) = (
        q.contiguous(),
        gather_keys(k.contiguous(), v.contiguous(), shared.by(KeyExchange.GATHER)),
    )
    with annotate({"core_attention": True, "causal": scores.causal}):
        logits = torch.matmul(q, k.transpose(-1, -2))
        if scores.scale != 1:
            logits = logits * scores.scale
        if scores.cap is not None:
            logits = torch.tanh(logits / scores.cap) * scores.cap
        if scores.bias is not None:
            logits = logits + scores.bias
        if scores.causal or scores.window is not None:
            logits = (
                logits.tril()
            )  # stands for the mask: same traffic, and no mask tensor, as in a fused mask kernel
        weights = functional.dropout(_softmax(logits, scores.sinks), scores.dropout)
        return torch.matmul(weights, v).transpose(1, 2).contiguous()


def _softmax(logits: Any, sinks: Any) -> Any:
    """Softmax over the keys and, where there are any, the sink of the head, whose part is
    dropped."""
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
    """What is added to the scores; a mask of another type than float leaves scores out, which costs
    nothing."""
    mask = mask if isinstance(mask, torch.Tensor) and mask.is_floating_point() else None
    if mask is None or position_bias is None:
        return position_bias if mask is None else mask
    return mask + position_bias


def register_attention(attention: Attention, shared: SharedTokens = UNSHARED) -> str:
    """Make our attention known to Hugging Face models and return the name it goes by.

    A device's queries meet the keys and values of all devices that share its sequences. The name is
    deliberately not registered as a mask interface, so that models build no mask tensor: what a
    model's attention is told (``is_causal``, ``sliding_window``) says what its mask is.
    """
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
        mask = attention_mask  # by the name that models may give it by
        for name, value in settings.items():
            if (
                name not in _PRICED
                and isinstance(value, torch.Tensor)
                and value.requires_grad
                and name not in left_out
            ):
                left_out.add(name)
                logger.warning(
                    "%s of %s is left out of the attention that is priced",
                    name,
                    type(module).__name__,
                )
        told, window = settings.get("is_causal"), settings.get("sliding_window")
        scores = Scores(
            causal=mask is None
            and bool(getattr(module, "is_causal", True) if told is None else told),
            dropout=dropout,
            scale=scaling or q.shape[-1] ** -0.5,
            bias=_added(mask, settings.get("position_bias")),
            sinks=settings.get("s_aux"),
            # the keys of a window are fewer than sliding_window away from the row's own, as in
            # transformers' flash attention
            window=window - 1
            if isinstance(window, int)
            and mask is None
            and 0 < window < k.shape[-2] * shared.devices
            else None,
            cap=settings.get("softcap"),
        )
        return _attend(attention, q, k, v, shared, scores), None

    name = (
        "phaze_tiled" if attention is Attention.FLASH else "phaze_eager"
    )  # a name with "flash" in it loads flash kernels
    name += f"_{shared.exchange}_{shared.devices}" if shared.devices > 1 else ""
    AttentionInterface.register(name, routed)
    return name


def with_masks(name: str) -> str:
    """The attention of this ``name`` for models whose own code reads the mask (an indexer, windows
    in chunks); returns its name.

    Such a model gets one, of shape (batch, 1, queries, keys): 0 where a key may be seen, the least
    number elsewhere. Attention that is handed just this mask is as it is without one.
    """
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    attend = AttentionInterface()[name]

    def masked(
        batch_size: int,
        q_length: int,
        kv_length: int,
        dtype: torch.dtype = torch.float32,
        **settings: Any,
    ) -> Any:
        seen = torch.zeros(batch_size, 1, q_length, kv_length, dtype=dtype)
        if "allow_is_bidirectional_skip" not in settings:
            later = torch.ones(q_length, kv_length, dtype=torch.bool).triu(1 + kv_length - q_length)
            seen = seen.masked_fill(later, torch.finfo(dtype).min)
        setattr(seen, _OURS, True)
        return seen

    def routed(
        module: Any,
        q: Any,
        k: Any,
        v: Any,
        attention_mask: Any = None,
        *others: Any,
        **settings: Any,
    ) -> Any:
        return attend(
            module,
            q,
            k,
            v,
            None if getattr(attention_mask, _OURS, False) else attention_mask,
            *others,
            **settings,
        )

    AttentionInterface.register(f"{name}_masked", routed)
    AttentionMaskInterface.register(f"{name}_masked", masked)
    return f"{name}_masked"


@contextmanager
def whole_operators(attention: Attention, shared: SharedTokens = UNSHARED) -> Iterator[None]:
    """While active, ``scaled_dot_product_attention`` and ``dropout`` of torch stay whole in the
    trace, as on a GPU."""

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
    originals = (
        functional.scaled_dot_product_attention,
        functional.dropout,
        transformer._detect_is_causal_mask,
    )
    _patch(attend, drop, is_causal_mask)
    try:
        yield
    finally:
        _patch(*originals)


def _patch(attend: Any, drop: Any, is_causal_mask: Any) -> None:
    functional.scaled_dot_product_attention, functional.dropout = attend, drop
    transformer._detect_is_causal_mask = is_causal_mask
