"""Operators that stay whole in a trace: RMSNorm, vocabulary-parallel loss, collectives.

Each is a shape function only: nothing is ever executed. Importing this module registers them with
torch. Attention is in ``attention``.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from GraphExtractor.graph import CollectiveGroup
from GraphExtractor.torch_internals import annotate

# of modules that do not say theirs: Raffel et al. 2020 (T5), whose code has this value
RMS_EPSILON = 1e-6
# what torch's ``custom_op`` adds besides (gradients, which ours have from functions around them)
# takes a fifteenth of a trace
_OPERATORS = torch.library.Library("phaze", "FRAGMENT")
OWN_PART = "own_part"  # note on the node of a slice of which every device takes a part of its own


Communication = Callable[..., Any]  # of tensors and the number of devices


def define(name: str, schema: str, shapes: Callable[..., Any]) -> Any:
    """A torch operator ``phaze::name`` that has shapes and is never run."""

    def never_runs(*_: object) -> None:
        raise NotImplementedError(f"phaze::{name} is a shape function for tracing")

    _OPERATORS.define(name + schema)
    _OPERATORS.impl(name, never_runs, "CompositeExplicitAutograd")
    torch.library.register_fake(f"phaze::{name}", shapes, lib=_OPERATORS)
    return getattr(torch.ops.phaze, name).default


class _Kernel(torch.autograd.Function):  # type: ignore[misc]
    """A forward and a backward operator, which reads what is ``saved`` of operands and result."""

    @staticmethod
    def forward(ctx: Any, forward: Any, backward: Any, saved: slice, *operands: Any) -> Any:
        out = forward(*operands)
        ctx.save_for_backward(*(*operands, out)[saved])
        ctx.backward_operator = backward
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        found = ctx.backward_operator(gradient, *ctx.saved_tensors)
        return None, None, None, *(found if isinstance(found, tuple) else (found,))


def differentiable(
    forward: Callable[..., Any], backward: Callable[..., Any], saved: slice = slice(None, -1)
) -> Callable[..., Any]:
    """``forward(*operands)``, whose gradients are ``backward(gradient, *saved)``.

    ``saved`` are those of (*operands, result); results are one tensor, all operands tensors.
    """
    return partial(_Kernel.apply, forward, backward, saved)


def define_collective(name: str, *, grows: int | None = None, shrinks: int | None = None) -> Any:
    """An operator of a tensor and a number of devices.

    Its result has so many times as much along dimension ``grows``, so small a part along
    ``shrinks``.
    """

    def shapes(x: torch.Tensor, devices: int) -> torch.Tensor:
        if grows is None and shrinks is None:
            return torch.empty_like(x)
        shape = list(x.shape)
        if grows is not None:
            shape[grows] *= devices
        if shrinks is not None:
            shape[shrinks] //= devices
        return x.new_empty(shape)

    return define(name, "(Tensor x, int devices) -> Tensor", shapes)


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
    lambda _, exponentials, *rest: exponentials.new_empty(exponentials.shape, dtype=rest[-1]),
)
all_reduce = define_collective("all_reduce")
# sequence dimension: the last but one of (batch, sequence, hidden), also where a model has merged
# it with the batch
_all_gather = define_collective("all_gather", grows=-2)
_reduce_scatter = define_collective("reduce_scatter", shrinks=-2)


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
    """Per-token cross entropy over a split vocabulary: three all-reduces per token (Megatron)."""

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
    """A pair of forward and backward communication, each a function of (*tensors, size)."""

    @staticmethod
    def forward(
        ctx: Any, size: int, forward: Communication, backward: Communication, *tensors: Any
    ) -> Any:
        ctx.size, ctx.backward_communication = size, backward
        return forward(*tensors, size)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        found = ctx.backward_communication(*gradients, ctx.size)
        return None, None, None, *(found if isinstance(found, tuple) else (found,))


def _identity(x: torch.Tensor, _: int) -> torch.Tensor:
    return x.view_as(x)


def own_part(x: torch.Tensor, dimension: int, parts: int, axis: CollectiveGroup) -> torch.Tensor:
    """A device's part of what all devices of an ``axis`` hold, which the trace notes as such."""
    with annotate({OWN_PART: axis.value}):
        return x.narrow(dimension, 0, x.shape[dimension] // parts)


def communicate(
    size: int, forward: Communication, backward: Communication, *tensors: torch.Tensor
) -> Any:
    """``forward(*tensors, size)``, whose gradients go through ``backward(*gradients, size)``."""
    return _Collective.apply(size, forward, backward, *tensors)


def _pair(forward: Communication, backward: Communication) -> Communication:
    return lambda x, tp: communicate(tp, forward, backward, x)


copy_to_group = _pair(_identity, all_reduce)  # Megatron's f: all-reduce backward
reduce_from_group = _pair(all_reduce, _identity)  # Megatron's g: all-reduce forward
# of the sequence, and the other one backward (Korthikanti et al. 2022, section 4.2)
gather_sequence = _pair(_all_gather, _reduce_scatter)
reduce_scatter_sequence = _pair(_reduce_scatter, _all_gather)
split_sequence = _pair(  # this device's part of the sequence forward
    lambda x, tp: own_part(x, -2, tp, CollectiveGroup.TENSOR).clone(), _all_gather
)


def enter_group(x: torch.Tensor, tp: int, sequence_parallel: bool) -> Any:
    """What column-parallel products read: ``x`` as it is at width 1, else gathered or copied."""
    if tp == 1:
        return x
    return gather_sequence(x, tp) if sequence_parallel else copy_to_group(x, tp)


def leave_group(x: torch.Tensor, tp: int, sequence_parallel: bool) -> Any:
    """What row-parallel products of a group make together, or of it this device's tokens."""
    if tp == 1:
        return x
    return reduce_scatter_sequence(x, tp) if sequence_parallel else reduce_from_group(x, tp)


class FusedRmsNorm(torch.nn.Module):  # type: ignore[misc]
    """RMSNorm as a fused kernel runs it, which saves its input and one fp32 statistic per row.

    ``epsilon`` is added to the mean of squares; a trace leaves it out, as it costs nothing.
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
            # transformers has two names
            epsilon = getattr(module, "variance_epsilon", getattr(module, "eps", RMS_EPSILON))
            model.set_submodule(path, FusedRmsNorm(module.weight, epsilon))


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor, tp: int) -> Any:
    """Mean cross entropy in fp32; with tp > 1 of a device's part of the vocabulary."""
    if tp == 1:
        return functional.cross_entropy(logits.float().flatten(0, -2), labels.flatten())
    return _VocabularyParallelLoss.apply(logits, labels, tp).mean()
