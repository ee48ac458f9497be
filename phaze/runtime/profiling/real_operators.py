"""What operators that a trace keeps whole do when they are run: attention, norms and losses, by
torch's own kernels.

A trace has shapes only for them (``GraphExtractor.custom_operators``). Dropout is off, as it is
where plans are trained. Backward operators run those of torch's operators that the gradient of the
forward one is made of, without the graph of gradients, which whole passes tell of; what they read
of the forward pass is made at the first call and kept, since an operator is always run on the same
tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg
from torch.nn import functional

from GraphExtractor.forward_trace import plain_attention
from GraphExtractor.torch_internals import make_fx

Function = Callable[..., Any]


class _Gradient:
    """Gradients of ``function`` for its first ``inputs`` arguments; called with the gradient of its
    result before them."""

    def __init__(self, function: Function, inputs: int) -> None:
        self._function, self._inputs = function, inputs
        self._made: Function | None = None

    def __call__(self, gradient: Any, *arguments: Any) -> Any:
        if self._made is None:
            self._made = self._prepared(
                gradient, arguments[: self._inputs], arguments[self._inputs :]
            )
        return self._made(gradient)

    def _prepared(
        self, gradient: Any, leaves: tuple[Any, ...], others: tuple[Any, ...]
    ) -> Function:
        """A function of the gradient that runs what depends on it, on what the rest gives now."""

        def both(of_result: Any, *given: Any) -> Any:
            with torch.enable_grad():
                inputs = tuple(each.detach().requires_grad_() for each in given)
                return torch.autograd.grad(self._function(*inputs, *others), inputs, of_result)

        traced = make_fx(both)(gradient, *leaves)
        of_result, *given = [node for node in traced.graph.nodes if node.op == "placeholder"]
        values, module, backward = dict(zip(given, leaves, strict=True)), torch.nn.Module(), Graph()
        copies: dict[Node, Node] = {of_result: backward.placeholder(of_result.name)}

        def read(node: Node) -> Node:
            if node not in copies:
                setattr(module, node.name, values[node])
                copies[node] = backward.get_attr(node.name)
            return copies[node]

        for node in traced.graph.nodes:
            if node.op == "get_attr":
                values[node] = getattr(traced, node.target)
            elif node.op == "output":
                backward.output(map_arg(node.args[0], read))
            elif node.op == "call_function" and any(
                each in copies and each not in values for each in node.all_input_nodes
            ):
                copies[node] = backward.node_copy(node, read)
            elif node.op == "call_function":
                inputs, settings = map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = node.target(*inputs, **settings)
        run: Function = GraphModule(module, backward).forward
        return run


def _attention(q: Any, k: Any, v: Any, bias: Any, causal: bool, scale: float | None = None) -> Any:
    """(batch, rows, heads, width) of queries, keys and values of (batch, heads, rows, width);
    ``bias`` is added to the scores."""
    grouped = q.shape[1] != k.shape[1]
    return plain_attention(
        q, k, v, bias, is_causal=causal, scale=scale, enable_gqa=grouped
    ).transpose(1, 2)


def register_torch_attention() -> str:
    """Make torch's fused attention known to Hugging Face models, with their biases, and return the
    name it goes by."""
    from transformers import AttentionInterface

    def routed(
        module: Any,
        q: Any,
        k: Any,
        v: Any,
        mask: Any = None,
        dropout: float = 0.0,
        scaling: float | None = None,
        **settings: Any,
    ) -> Any:
        is_causal, bias = settings.get("is_causal"), settings.get("position_bias")
        causal = (
            mask is None
            and bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
            and q.shape[-2] == k.shape[-2]
        )
        added = bias if mask is None else mask if bias is None else mask + bias
        return _attention(q, k, v, added, causal, scaling), None

    name = "phaze_torch"
    AttentionInterface.register(name, routed)
    return name


def _check_scores(sinks: Any = None, window: Any = None, capped: bool = False, *_: Any) -> None:
    if sinks is not None or window is not None or capped:
        raise NotImplementedError("attention with sinks, windows or capped scores")


def _attention_forward() -> Function:
    def forward(
        q: Any, k: Any, v: Any, causal: bool, dropout: float, bias: Any = None, *others: Any
    ) -> Any:
        _check_scores(*others)
        return _attention(q, k, v, bias, causal), None

    return forward


def _attention_backward() -> Function:
    gradients_of, with_bias = _Gradient(_attention, 3), _Gradient(_attention, 4)

    def backward(
        gradient: Any,
        q: Any,
        k: Any,
        v: Any,
        out: Any,
        lse: Any,
        causal: bool,
        dropout: float,
        bias: Any = None,
        *others: Any,
    ) -> Any:
        _check_scores(*others)
        if bias is None:
            return *gradients_of(gradient, q, k, v, None, causal), None, None
        return *with_bias(gradient, q, k, v, bias, causal), None

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
    """Of one device's part of the vocabulary: the maximum, the sum of exponentials, the label's
    logit, and the exponentials."""
    scores = logits.float()
    maximum = scores.amax(-1)
    exponentials = (scores - maximum.unsqueeze(-1)).exp()
    inside = (labels >= 0) & (labels < logits.shape[-1])
    target = (
        scores.gather(-1, labels.clamp(0, logits.shape[-1] - 1).unsqueeze(-1)).squeeze(-1) - maximum
    )
    return maximum, exponentials.sum(-1), target.masked_fill(~inside, 0.0), exponentials


def _cross_entropy_backward(
    gradient: Any, exponentials: Any, total: Any, labels: Any, dtype: Any
) -> Any:
    softmax = exponentials / total.unsqueeze(-1)
    index = labels.clamp(0, softmax.shape[-1] - 1).unsqueeze(-1)
    softmax.scatter_add_(-1, index, torch.full_like(index, -1, dtype=softmax.dtype))
    return (softmax * gradient.unsqueeze(-1)).to(dtype)


def _without_dropout(x: Any, *_: Any) -> Any:
    return x, None


def _gradient_without_dropout(gradient: Any, *_: Any) -> Any:
    return gradient


WITHOUT_DROPOUT: Mapping[Any, Function] = MappingProxyType(
    {
        torch.ops.aten.native_dropout.default: _without_dropout,
        torch.ops.aten.native_dropout_backward.default: _gradient_without_dropout,
    }
)  # operators of torch that are traced, but do nothing where plans are trained
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
