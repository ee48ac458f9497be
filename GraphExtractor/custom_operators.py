"""Operators that stay whole in a trace: RMSNorm, vocabulary-parallel loss, collectives (attention
is in ``attention``).

Each is a shape function only: nothing is ever executed. Importing this module registers them with
torch.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from GraphExtractor.graph import CollectiveGroup
from GraphExtractor.torch_internals import annotate

RMS_EPSILON = (
    1e-6  # of modules that do not say theirs: Raffel et al. 2020 (T5), whose code has this value
)
OWN_PART = "own_part"  # note on the node of a slice of which every device takes a part of its own


def define(name: str, schema: str, shapes: Callable[..., Any]) -> Any:
    """A torch operator ``phaze::name`` that has shapes and is never run."""

    def never_runs(*_: object) -> None:
        raise NotImplementedError(f"phaze::{name} is a shape function for tracing")

    operator = torch.library.custom_op(f"phaze::{name}", never_runs, mutates_args=(), schema=schema)
    operator.register_fake(shapes)
    return operator


_rms_norm = define(
    "rms_norm",
    "(Tensor x, Tensor weight) -> (Tensor, Tensor)",
    lambda x, weight: (torch.empty_like(x), x.new_empty(x.shape[:-1], dtype=torch.float32)),
)
_rms_norm_backward = define(
    "rms_norm_backward",
    "(Tensor gradient, Tensor x, Tensor weight, Tensor statistic) -> (Tensor, Tensor)",
    lambda gradient, x, weight, statistic: (torch.empty_like(x), torch.empty_like(weight)),
)
_cross_entropy = define(
    "cross_entropy",
    "(Tensor logits, Tensor labels) -> (Tensor, Tensor, Tensor, Tensor)",
    lambda logits, labels: (
        *(labels.new_empty(labels.shape, dtype=torch.float32) for _ in range(3)),
        logits.new_empty(logits.shape, dtype=torch.float32),
    ),
)
_cross_entropy_backward = define(
    "cross_entropy_backward",
    "(Tensor gradient, Tensor exponentials, Tensor total, Tensor labels, ScalarType dtype) -> "
    "Tensor",
    lambda gradient, exponentials, total, labels, dtype: exponentials.new_empty(
        exponentials.shape, dtype=dtype
    ),
)
all_reduce = define("all_reduce", "(Tensor x, int tp) -> Tensor", lambda x, tp: torch.empty_like(x))
# sequence dimension: the last but one of (batch, sequence, hidden), also where a model has merged
# it with the batch
_all_gather = define(
    "all_gather",
    "(Tensor x, int tp) -> Tensor",
    lambda x, tp: x.new_empty(*x.shape[:-2], x.shape[-2] * tp, x.shape[-1]),
)
_reduce_scatter = define(
    "reduce_scatter",
    "(Tensor x, int tp) -> Tensor",
    lambda x, tp: x.new_empty(*x.shape[:-2], x.shape[-2] // tp, x.shape[-1]),
)


class _RmsNorm(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, _: float) -> Any:
        out, statistic = _rms_norm(x, weight)
        ctx.save_for_backward(x, weight, statistic)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return *_rms_norm_backward(gradient, *ctx.saved_tensors), None


class _VocabularyParallelLoss(torch.autograd.Function):  # type: ignore[misc]
    """Per-token cross entropy over vocabulary-sharded logits: three all-reduces of one value per
    token (Megatron)."""

    @staticmethod
    def forward(ctx: Any, logits: Any, labels: Any, tp: int) -> Any:
        maximum, total, target, exponentials = _cross_entropy(logits, labels)
        maximum, total, target = (all_reduce(value, tp) for value in (maximum, total, target))
        ctx.save_for_backward(exponentials, total, labels)
        ctx.dtype = logits.dtype
        return total.log() + maximum - target

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return _cross_entropy_backward(gradient, *ctx.saved_tensors, ctx.dtype), None, None


class _Collective(torch.autograd.Function):  # type: ignore[misc]
    """A pair of forward and backward communication, each given as a function of (tensor, tp)."""

    @staticmethod
    def forward(
        ctx: Any, x: Any, tp: int, forward: Callable[..., Any], backward: Callable[..., Any]
    ) -> Any:
        ctx.tp, ctx.backward_communication = tp, backward
        return forward(x, tp)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return ctx.backward_communication(gradient, ctx.tp), None, None, None


def _identity(x: torch.Tensor, _: int) -> torch.Tensor:
    return x.view_as(x)


def own_part(x: torch.Tensor, dimension: int, parts: int, axis: CollectiveGroup) -> torch.Tensor:
    """A device's part of what all devices of an ``axis`` hold; the trace, which is that of the
    first one, notes that it is so."""
    with annotate({OWN_PART: axis.value}):
        return x.narrow(dimension, 0, x.shape[dimension] // parts)


def _own_sequence(x: torch.Tensor, tp: int) -> torch.Tensor:
    return own_part(x, -2, tp, CollectiveGroup.TENSOR).clone()


def communicate(
    x: torch.Tensor, size: int, forward: Callable[..., Any], backward: Callable[..., Any]
) -> Any:
    """``forward(x, size)``, whose gradient goes through ``backward(gradient, size)``."""
    return _Collective.apply(x, size, forward, backward)


def copy_to_group(x: torch.Tensor, tp: int) -> Any:
    """Megatron's f: identity forward, all-reduce backward."""
    return _Collective.apply(x, tp, _identity, all_reduce)


def reduce_from_group(x: torch.Tensor, tp: int) -> Any:
    """Megatron's g: all-reduce forward, identity backward."""
    return _Collective.apply(x, tp, all_reduce, _identity)


def gather_sequence(x: torch.Tensor, tp: int) -> Any:
    """All-gather the sequence dimension forward, reduce-scatter it backward (Korthikanti et al.
    2022, section 4.2)."""
    return _Collective.apply(x, tp, _all_gather, _reduce_scatter)


def reduce_scatter_sequence(x: torch.Tensor, tp: int) -> Any:
    """Reduce-scatter the sequence dimension forward, all-gather it backward."""
    return _Collective.apply(x, tp, _reduce_scatter, _all_gather)


def split_sequence(x: torch.Tensor, tp: int) -> Any:
    """Keep this device's part of the sequence forward, all-gather backward."""
    return _Collective.apply(x, tp, _own_sequence, _all_gather)


class FusedRmsNorm(torch.nn.Module):  # type: ignore[misc]
    """RMSNorm as a fused kernel runs it: reads and saves its input as it is, plus one fp32
    statistic per row.

    ``epsilon`` is added to the mean of squares; a trace, whose costs it does not change, leaves it
    out.
    """

    def __init__(self, weight: torch.nn.Parameter, epsilon: float = RMS_EPSILON) -> None:
        super().__init__()
        self.weight, self.epsilon = weight, epsilon

    def forward(self, x: torch.Tensor) -> Any:
        """Normalise the last dimension."""
        return _RmsNorm.apply(x, self.weight, self.epsilon)


def fuse_norms(model: torch.nn.Module, norm: type[torch.nn.Module]) -> None:
    """Put ``FusedRmsNorm`` in the place of all modules of class ``norm``."""
    for path, module in list(model.named_modules()):
        if isinstance(module, norm):
            epsilon = getattr(
                module, "variance_epsilon", getattr(module, "eps", RMS_EPSILON)
            )  # transformers has two names
            model.set_submodule(path, FusedRmsNorm(module.weight, epsilon))


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor, tp: int) -> Any:
    """Mean cross entropy in fp32; with tp > 1 the logits' last dimension is this device's part of
    the vocabulary."""
    if tp == 1:
        return functional.cross_entropy(logits.float().flatten(0, -2), labels.flatten())
    return _VocabularyParallelLoss.apply(logits, labels, tp).mean()
