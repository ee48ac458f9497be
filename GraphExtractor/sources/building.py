"""Modules of other people: built without weights, devices, casts and kernels, and their loss."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.utils.checkpoint
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from GraphExtractor.checkpoints import checkpointed
from GraphExtractor.torch_internals import FakeTensor, pytree, unset_fake_temporarily
from phaze_common.errors import InputError

_CHECKPOINT = torch.utils.checkpoint.checkpoint
_CHECKPOINT_NAMES = ("checkpoint", "torch_utils_checkpoint")
_DEVICES = ("cuda", "mps", "xpu", "hpu", "npu")
_MATRIX_PRODUCTS = ("matmul", "mm", "bmm")


class _OnCpu(TorchFunctionMode):  # type: ignore[misc]
    """Makes on the CPU what code puts on an accelerator: tensors are shapes anyway."""

    def __torch_function__(
        self, function: Any, _: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        if function is torch.Tensor.cuda:
            return arguments[0]
        return function(
            *map(_on_cpu, arguments),
            **{key: _on_cpu(value) for key, value in (named or {}).items()},
        )


_PRODUCTS = frozenset(
    {
        functional.linear,
        torch.Tensor.__matmul__,
        *(getattr(torch, name) for name in ("einsum", "addmm", "baddbmm")),
        *(getattr(torch, name) for name in ("conv1d", "conv2d", "conv3d")),
        *(getattr(owner, name) for owner in (torch, torch.Tensor) for name in _MATRIX_PRODUCTS),
    }
)


class MixedProducts(TorchFunctionMode):  # type: ignore[misc]
    """Products of operands in different precisions as autocast runs them, in the training's."""

    def __torch_function__(
        self, function: Any, _: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        if function in _PRODUCTS:
            leaves = pytree.tree_leaves((arguments, named))
            tensors = [each for each in leaves if isinstance(each, torch.Tensor)]
            if len({each.dtype for each in tensors if each.is_floating_point()}) > 1:
                arguments, named = pytree.tree_map_only(
                    torch.Tensor, _in_training_precision, (arguments, named)
                )
        return function(*arguments, **(named or {}))


_TRANSFORMS = {getattr(torch.fft, name) for name in torch.fft.__all__ if name != "Tensor"}
_TRANSFORMS |= {torch.stft}


class _WideTransforms(TorchFunctionMode):  # type: ignore[misc]
    """Fourier transforms in float32: torch has none in bfloat16."""

    def __torch_function__(
        self, function: Any, _: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        if function in _TRANSFORMS:
            arguments, named = pytree.tree_map_only(torch.Tensor, _in_float32, (arguments, named))
        return function(*arguments, **(named or {}))


def _in_training_precision(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.get_default_dtype()) if tensor.is_floating_point() else tensor


def _in_float32(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype == torch.bfloat16 else tensor


def _on_cpu(value: Any) -> Any:
    kind = value.type if isinstance(value, torch.device) else value
    device = isinstance(kind, str) and kind.partition(":")[0] in _DEVICES
    return torch.device("cpu") if device else value


@contextmanager
def shapes_only() -> Iterator[None]:
    """While active, weights are not initialised, modules stay where and as they are, nothing is
    compiled, and checkpoints are seen.

    Precision is what a study says, not what the code does.
    """
    names = [name for name in dir(torch.nn.init) if name.endswith("_") and not name.startswith("_")]
    with ExitStack() as stack:
        for owner, name, replacement in (
            *((torch.nn.init, name, lambda tensor, *_, **__: tensor) for name in names),
            (torch.nn.Module, "_apply", lambda module, *_, **__: module),
            (torch, "compile", _uncompiled),
            *((module, name, checkpointed) for module, name in _holding_checkpoint()),
            *((torch, name, _by_value(name)) for name in ("cond", "while_loop")),
        ):
            stack.enter_context(patch.object(owner, name, replacement))
        with _OnCpu(), _WideTransforms():
            yield


def _uncompiled(model: Any = None, **_: Any) -> Any:
    return (lambda function: function) if model is None else model


def _by_value(name: str) -> Callable[..., Any]:
    def refused(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"torch.{name} chooses what runs by the value of a tensor")

    return refused


def _holding_checkpoint() -> Iterator[tuple[Any, str]]:
    """Modules of other people that have torch's function under a name of theirs."""
    for module in [torch.utils.checkpoint, *sys.modules.values()]:
        for name in _CHECKPOINT_NAMES:
            if getattr(module, "__dict__", {}).get(name) is _CHECKPOINT:
                yield module, name


def built_on_fake(build: Callable[[], Any]) -> Any:
    """What ``build()`` returns, under the active fake mode; with fake tensors in any case.

    Code that needs values while it builds (a list of rates, say) is given real ones, in as little
    memory as possible.
    """
    try:
        return build()
    except Exception:  # noqa: BLE001 - code that needs values: whatever is wrong comes up again
        pass
    try:
        with unset_fake_temporarily(), torch.device("meta"):
            model = build()
    except Exception:  # noqa: BLE001 - as above
        with unset_fake_temporarily():
            model = build()
    if isinstance(model, torch.nn.Module):
        _make_fake(model)
    return model


def _make_fake(model: torch.nn.Module) -> None:
    """Replace the tensors of a module by fake ones on the CPU in place; what is tied stays tied."""
    made: dict[int, Any] = {}

    def fake(tensor: Any) -> Any:
        if not isinstance(tensor, torch.Tensor) or isinstance(tensor, FakeTensor):
            return tensor
        if id(tensor) not in made:
            empty = torch.empty(tensor.shape, dtype=tensor.dtype)
            if isinstance(tensor, torch.nn.Parameter):
                empty = torch.nn.Parameter(empty, tensor.requires_grad)
            made[id(tensor)] = empty
        return made[id(tensor)]

    for module in model.modules():
        for tensors in (module._parameters, module._buffers, vars(module)):
            tensors.update({name: fake(value) for name, value in tensors.items()})


def as_fake(value: Any, dtype: torch.dtype) -> Any:
    """A tensor as a fake one; floating-point inputs are in ``dtype``, that of the training."""
    if value.is_floating_point() and value.dtype != dtype:
        return torch.empty(value.shape, dtype=dtype)
    return value if isinstance(value, FakeTensor) else torch.empty(value.shape, dtype=value.dtype)


def made_on_fake(make: Callable[[], Any]) -> Any:
    """What ``make()`` returns under the active fake mode, or outside it where code needs values."""
    try:
        return make()
    except Exception:  # noqa: BLE001 - whatever is wrong comes up again
        with unset_fake_temporarily():
            return make()


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
