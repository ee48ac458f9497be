"""The scalar that a step of somebody else's model minimises."""

from typing import Any

import torch

from GraphExtractor.torch_internals import pytree
from phaze_common.errors import InputError


def own_loss(output: Any) -> torch.Tensor | None:
    """The loss that an output carries: itself, its ``loss``, or the one scalar in it."""
    if _is_scalar(output):
        return output
    named = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if _is_scalar(named):
        return named
    scalars = [each for each in tensors_in(output) if _is_scalar(each)]
    return scalars[0] if len(scalars) == 1 else None


def mean_of(output: Any, path: str) -> torch.Tensor:
    """Sum of the means of all floating-point tensors of an output.

    Raises: InputError: there are none.
    """
    means = [tensor.mean() for tensor in tensors_in(output) if tensor.is_floating_point()]
    if not means:
        raise InputError(
            f"the output of the model in {path} ({type(output).__name__}) holds no floating-point "
            "tensor to take a loss from; return one, or write loss(output)"
        )
    return torch.stack(means).sum() if len(means) > 1 else means[0]


def checked_loss(loss: object, path: str) -> torch.Tensor:
    """``loss``, if a step can minimise it.

    Raises: InputError: it is no floating-point scalar, or depends on no parameter.
    """
    if not isinstance(loss, torch.Tensor):
        raise InputError(
            f"loss() in {path} returns {type(loss).__name__}; return a tensor with one "
            "floating-point value"
        )
    if loss.numel() != 1 or not loss.is_floating_point():
        shape = tuple(loss.shape)
        raise InputError(
            f"the loss in {path} is {loss.dtype} of shape {shape}; return a tensor with one "
            "floating-point value"
        )
    # a trace of the forward pass alone has no gradients
    if torch.is_grad_enabled() and not loss.requires_grad:
        raise InputError(
            f"the loss in {path} depends on no parameter; compute it from the output, without "
            "detach() or no_grad()"
        )
    return loss.reshape(())


def tensors_in(output: Any) -> list[torch.Tensor]:
    """All tensors of an output, also of one that is a record of named fields."""
    leaves = pytree.tree_leaves(output if isinstance(output, dict | list | tuple) else [output])
    found = [each for each in leaves if isinstance(each, torch.Tensor)]
    if not found and hasattr(output, "__dict__"):
        found = [each for each in vars(output).values() if isinstance(each, torch.Tensor)]
    return found


def _is_scalar(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() == 1 and value.is_floating_point()
