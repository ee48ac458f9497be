"""What operators that a trace keeps whole do when they are run: attention, norms and losses, by torch's own kernels.

A trace has shapes only for them (``GraphExtractor.custom_operators``). Backward operators run the gradient of the forward one,
whose graph is made at the first call and kept, since an operator is always run on the same tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch.nn import functional

Function = Callable[..., Any]


class _Gradient:
    """Gradients of ``function`` for its first ``inputs`` arguments; called with the gradient of its result before them."""

    def __init__(self, function: Function, inputs: int) -> None:
        self._function, self._inputs = function, inputs
        self._made: tuple[Any, tuple[Any, ...]] | None = None

    def __call__(self, gradient: Any, *arguments: Any) -> Any:
        if self._made is None:
            leaves = tuple(each.detach().requires_grad_() for each in arguments[: self._inputs])
            with torch.enable_grad():
                self._made = self._function(*leaves, *arguments[self._inputs :]), leaves
        result, leaves = self._made
        return torch.autograd.grad(result, leaves, gradient, retain_graph=True)


def _attention(q: Any, k: Any, v: Any, bias: Any, causal: bool, dropout: float, scale: float | None = None) -> Any:
    """(batch, rows, heads, width) of queries, keys and values of (batch, heads, rows, width); ``bias`` is added to the scores."""
    if bias is not None and causal:
        hidden = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1)
        bias, causal = bias.masked_fill(hidden, float("-inf")), False
    grouped = q.shape[1] != k.shape[1]
    out = functional.scaled_dot_product_attention(q, k, v, bias, dropout, causal, scale=scale, enable_gqa=grouped)
    return out.transpose(1, 2)


def register_torch_attention() -> str:
    """Make torch's fused attention known to Hugging Face models, with their biases, and return the name it goes by."""
    from transformers import AttentionInterface

    def routed(
        module: Any, q: Any, k: Any, v: Any, mask: Any = None, dropout: float = 0.0, scaling: float | None = None, **settings: Any
    ) -> Any:
        told, bias = settings.get("is_causal"), settings.get("position_bias")
        causal = (
            mask is None and bool(getattr(module, "is_causal", True) if told is None else told) and q.shape[-2] == k.shape[-2]
        )
        added = bias if mask is None else mask if bias is None else mask + bias
        return _attention(q, k, v, added, causal, dropout, scaling), None

    name = "phaze_torch"
    AttentionInterface.register(name, routed)
    return name


def _check_scores(sinks: Any = None, window: Any = None, capped: bool = False, *_: Any) -> None:
    if sinks is not None or window is not None or capped:
        raise NotImplementedError("attention with sinks, windows or capped scores")


def _attention_forward() -> Function:
    def forward(q: Any, k: Any, v: Any, causal: bool, dropout: float, bias: Any = None, *others: Any) -> Any:
        _check_scores(*others)
        return _attention(q, k, v, bias, causal, dropout), None

    return forward


def _attention_backward() -> Function:
    gradients_of, with_bias = _Gradient(_attention, 3), _Gradient(_attention, 4)

    def backward(
        gradient: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, causal: bool, dropout: float, bias: Any = None, *others: Any
    ) -> Any:
        _check_scores(*others)
        if bias is None:
            return *gradients_of(gradient, q, k, v, None, causal, dropout), None, None
        return *with_bias(gradient, q, k, v, bias, causal, dropout), None

    return backward


def _rms_norm(x: Any, weight: Any) -> Any:
    return functional.rms_norm(x, weight.shape, weight)


def _rms_norm_backward() -> Function:
    gradient_of = _Gradient(_rms_norm, 2)
    return lambda gradient, x, weight, statistic: gradient_of(gradient, x, weight)


def _swiglu(x: Any) -> Any:
    gate, value = x.chunk(2, -1)
    return functional.silu(gate) * value


def _swiglu_backward() -> Function:
    gradient_of = _Gradient(_swiglu, 1)
    return lambda gradient, x: gradient_of(gradient, x)[0]


def _cross_entropy(logits: Any, labels: Any) -> Any:
    """Of one device's part of the vocabulary: the maximum, the sum of exponentials, the label's logit, and the exponentials."""
    scores = logits.float()
    maximum = scores.amax(-1)
    exponentials = (scores - maximum.unsqueeze(-1)).exp()
    inside = (labels >= 0) & (labels < logits.shape[-1])
    target = scores.gather(-1, labels.clamp(0, logits.shape[-1] - 1).unsqueeze(-1)).squeeze(-1) - maximum
    return maximum, exponentials.sum(-1), target.masked_fill(~inside, 0.0), exponentials


def _cross_entropy_backward(gradient: Any, exponentials: Any, total: Any, labels: Any, dtype: Any) -> Any:
    softmax = exponentials / total.unsqueeze(-1)
    index = labels.clamp(0, softmax.shape[-1] - 1).unsqueeze(-1)
    softmax.scatter_add_(-1, index, torch.full_like(index, -1, dtype=softmax.dtype))
    return (softmax * gradient.unsqueeze(-1)).to(dtype)


REAL_OPERATORS: Mapping[str, Callable[[], Function]] = MappingProxyType(
    {
        "attention": _attention_forward,
        "attention_backward": _attention_backward,
        "rms_norm": lambda: lambda x, weight: (_rms_norm(x, weight), None),
        "rms_norm_backward": _rms_norm_backward,
        "swiglu": lambda: _swiglu,
        "swiglu_backward": _swiglu_backward,
        "cross_entropy": lambda: _cross_entropy,
        "cross_entropy_backward": lambda: _cross_entropy_backward,
    }
)  # name of a whole operator -> makes what runs it, with a state of its own
