"""Megatron tensor parallelism by construction: a model is shrunk to a device's part, then traced.

Column- and row-parallel linears, split heads and a split vocabulary follow Shoeybi et al. 2019,
section 3: one all-reduce per attention and per MLP block, forward (behind the row-parallel linear,
Megatron's g) and backward (at the block's entrance, f). With sequence parallelism (Korthikanti et
al. 2022, section 4.2) all-gather and reduce-scatter take their place and everything between the
blocks works on a part of the sequence (``run_again`` sees to it that only parts are saved).
"""

from collections.abc import Callable, Iterable
from fnmatch import fnmatch
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from torch.nn import functional

from GraphExtractor import custom_operators
from GraphExtractor.graph import GraphKey
from GraphExtractor.models.base import TensorParallelPlan


@runtime_checkable
class ShardsItself(Protocol):
    """A module of ours that knows how it is divided."""

    def shard(self, key: GraphKey) -> None:
        """Shrink to one device's part, in place."""


def shard(
    model: torch.nn.Module, first_block: torch.nn.Module, plan: TensorParallelPlan, key: GraphKey
) -> None:
    """Shrink ``model`` in place to one device's part; call under the fake mode it was built in."""
    if key.tp * key.ep * key.sequence_devices > 1:
        for module in list(model.modules()):
            if isinstance(module, ShardsItself):
                module.shard(key)
    if key.tp == 1:
        return
    sharder = _Megatron(model, key)
    for path, module in list(_within(model)):
        if fnmatch(path, plan.embedding):
            weight = sharder.parts.along(module.weight, 0)
            model.set_submodule(path, _ParallelEmbedding(weight, key.tp))
        elif path == plan.head or _matches(path, plan.column):
            model.set_submodule(path, sharder.linear(module, 0))
        elif _matches(path, plan.row):
            model.set_submodule(path, sharder.linear(module, 1))
        divide_widths(path, module, plan, key.tp)
    sharder.parts.retie(model)
    sharder.communicate(plan)
    if key.sequence_parallel:
        named = [module for path, module in _within(model) if fnmatch(path, plan.first)]
        for first in named or [first_block]:
            first.register_forward_pre_hook(
                _on_input(custom_operators.split_sequence, key.tp), with_kwargs=True
            )


def divide_widths(path: str, module: torch.nn.Module, plan: TensorParallelPlan, tp: int) -> None:
    """Give a module one device's part of the widths that the plan says it knows, or lists of."""
    for pattern, attributes in plan.divided.items():
        for name in attributes if fnmatch(path, pattern) else ():
            width = getattr(module, name)
            whole = width if isinstance(width, list) else [width]
            parts = [each // tp for each in whole]
            setattr(module, name, parts if isinstance(width, list) else parts[0])


def _within(model: torch.nn.Module) -> Iterable[tuple[str, torch.nn.Module]]:
    """The modules of a model by path, without the model itself."""
    return ((path, module) for path, module in model.named_modules() if path)


def _matches(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(path, pattern) for pattern in patterns)


class DividedParameters:
    """One device's parts of parameters; a tied parameter stays tied."""

    def __init__(self, tp: int) -> None:
        self.tp = tp
        self._parts: dict[torch.nn.Parameter, torch.nn.Parameter] = {}

    def of(self, parameter: torch.nn.Parameter, *divisors: int) -> torch.nn.Parameter:
        """The part of a parameter with every dimension divided."""
        if parameter not in self._parts:
            shape = [size // each for size, each in zip(parameter.shape, divisors, strict=True)]
            self._parts[parameter] = torch.nn.Parameter(torch.empty(shape, dtype=parameter.dtype))
        return self._parts[parameter]

    def along(self, parameter: torch.nn.Parameter, dimension: int) -> torch.nn.Parameter:
        """The part of a parameter with one dimension divided by ``tp``."""
        axes = range(parameter.dim())
        return self.of(parameter, *(self.tp if axis == dimension else 1 for axis in axes))

    def retie(self, model: torch.nn.Module) -> None:
        """Give modules that were not replaced the parts of parameters they share with others."""
        for module in model.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                setattr(module, name, self._parts.get(parameter, parameter))


class _Megatron:
    def __init__(self, model: torch.nn.Module, key: GraphKey) -> None:
        self.model, self.tp, self.sequence_parallel = model, key.tp, key.sequence_parallel
        self.parts = DividedParameters(key.tp)

    def linear(self, linear: torch.nn.Module, dimension: int) -> torch.nn.Module:
        """A linear whose outputs (``dimension`` 0) or inputs (1) are divided."""
        transposed = not isinstance(linear, torch.nn.Linear)  # GPT-2's Conv1D keeps (in, out)
        weight = self.parts.along(linear.weight, 1 - dimension if transposed else dimension)
        if dimension == 0:
            bias = self.parts.along(linear.bias, 0) if linear.bias is not None else None
            return _Linear(weight, bias, transposed, None)
        leave = partial(
            custom_operators.leave_group, tp=self.tp, sequence_parallel=self.sequence_parallel
        )
        return _Linear(weight, linear.bias, transposed, leave)

    def communicate(self, plan: TensorParallelPlan) -> None:
        """Put f, or the all-gather of the sequence, at the entrances and before the head."""
        enter = custom_operators.copy_to_group
        if self.sequence_parallel:
            enter = custom_operators.gather_sequence
        hook = _on_input(enter, self.tp)
        gathered_early = self.sequence_parallel and plan.last
        for path, module in _within(self.model):
            if _matches(path, plan.entrances) or (path == plan.head and not gathered_early):
                module.register_forward_pre_hook(hook, with_kwargs=True)
            if gathered_early and path == plan.last:
                module.register_forward_hook(lambda _, __, output: enter(output, self.tp))


def _on_input(communicate: Callable[[Any, int], Any], tp: int) -> Callable[..., Any]:
    def hook(_: torch.nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if arguments:
            return (communicate(arguments[0], tp), *arguments[1:]), named
        return arguments, {**named, "hidden_states": communicate(named["hidden_states"], tp)}

    return hook


class _Linear(torch.nn.Module):  # type: ignore[misc]
    """A linear layer's part; a row-parallel one reduces before it adds the bias."""

    def __init__(
        self,
        weight: torch.nn.Parameter,
        bias: torch.nn.Parameter | None,
        transposed: bool,
        reduce: Callable[[Any], Any] | None,
    ) -> None:
        super().__init__()
        self.weight, self.bias, self.transposed, self.reduce = weight, bias, transposed, reduce

    def forward(self, x: torch.Tensor) -> Any:
        weight = self.weight.t() if self.transposed else self.weight
        if self.reduce is None:
            return functional.linear(x, weight, self.bias)
        out = self.reduce(functional.linear(x, weight))
        return out if self.bias is None else out + self.bias


class _ParallelEmbedding(torch.nn.Module):  # type: ignore[misc]
    """Lookup in a device's part of the vocabulary, then an all-reduce: other ids give zeros."""

    def __init__(self, weight: torch.nn.Parameter, tp: int) -> None:
        super().__init__()
        self.weight, self.tp = weight, tp

    def forward(self, ids: torch.Tensor) -> Any:
        return custom_operators.reduce_from_group(functional.embedding(ids, self.weight), self.tp)
