"""Megatron tensor parallelism by construction: the model is shrunk to one device's part before it
is traced.

Column- and row-parallel linears, split heads and a split vocabulary follow Shoeybi et al. 2019,
section 3: one all-reduce per attention and per MLP block, forward (behind the row-parallel linear,
Megatron's g) and backward (at the block's entrance, f). With sequence parallelism (Korthikanti et
al. 2022, section 4.2) all-gather and reduce-scatter take their place and everything between the
blocks works on a part of the sequence (``regather`` sees to it that also only parts are kept).
"""

from collections.abc import Callable, Iterable
from fnmatch import fnmatch
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
    sharder = _Sharder(model, key)
    for path, module in list(_within(model)):
        if fnmatch(path, plan.embedding):
            sharder.replace(path, _ParallelEmbedding(sharder.part(module.weight, 0), key.tp))
        elif path == plan.head or _matches(path, plan.column):
            sharder.replace(path, sharder.column(module))
        elif _matches(path, plan.row):
            sharder.replace(path, sharder.row(module))
        for pattern, attributes in plan.divided.items():
            if fnmatch(path, pattern):
                for name in attributes:
                    setattr(module, name, divided(getattr(module, name), key.tp))
    sharder.retie()
    sharder.communicate(plan)
    if key.sequence_parallel:
        for first in [module for path, module in _within(model) if fnmatch(path, plan.first)] or [
            first_block
        ]:
            first.register_forward_pre_hook(
                _on_input(custom_operators.split_sequence, key.tp), with_kwargs=True
            )


def divided(width: Any, tp: int) -> Any:
    """One device's part of a width, or of each of several."""
    return [each // tp for each in width] if isinstance(width, list) else width // tp


def _within(model: torch.nn.Module) -> Iterable[tuple[str, torch.nn.Module]]:
    """The modules of a model by path, without the model itself."""
    return ((path, module) for path, module in model.named_modules() if path)


def _matches(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(path, pattern) for pattern in patterns)


class _Sharder:
    def __init__(self, model: torch.nn.Module, key: GraphKey) -> None:
        self.model = model
        self.tp = key.tp
        self.sequence_parallel = key.sequence_parallel
        self.parts: dict[torch.nn.Parameter, torch.nn.Parameter] = {}

    def part(self, parameter: torch.nn.Parameter, dimension: int) -> torch.nn.Parameter:
        """One device's part of a parameter; a tied parameter stays tied."""
        if parameter not in self.parts:
            shape = list(parameter.shape)
            shape[dimension] //= self.tp
            self.parts[parameter] = torch.nn.Parameter(torch.empty(shape, dtype=parameter.dtype))
        return self.parts[parameter]

    def column(self, linear: torch.nn.Module) -> torch.nn.Module:
        transposed = not isinstance(linear, torch.nn.Linear)  # GPT-2's Conv1D keeps (in, out)
        bias = self.part(linear.bias, 0) if linear.bias is not None else None
        return _Linear(self.part(linear.weight, 1 if transposed else 0), bias, transposed, None)

    def row(self, linear: torch.nn.Module) -> torch.nn.Module:
        transposed = not isinstance(linear, torch.nn.Linear)
        reduce = (
            custom_operators.reduce_scatter_sequence
            if self.sequence_parallel
            else custom_operators.reduce_from_group
        )
        return _Linear(
            self.part(linear.weight, 0 if transposed else 1),
            linear.bias,
            transposed,
            lambda x: reduce(x, self.tp),
        )

    def replace(self, path: str, module: torch.nn.Module) -> None:
        self.model.set_submodule(path, module)

    def retie(self) -> None:
        """Give modules outside the plan the parts of the parameters they share with modules inside
        it."""
        for module in self.model.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                setattr(module, name, self.parts.get(parameter, parameter))

    def communicate(self, plan: TensorParallelPlan) -> None:
        """Put f, or the all-gather of the sequence, at the entrances and before the head."""
        enter = (
            custom_operators.gather_sequence
            if self.sequence_parallel
            else custom_operators.copy_to_group
        )
        gathered_early = self.sequence_parallel and plan.last
        for path, module in _within(self.model):
            if _matches(path, plan.entrances) or (path == plan.head and not gathered_early):
                module.register_forward_pre_hook(_on_input(enter, self.tp), with_kwargs=True)
            if gathered_early and path == plan.last:
                module.register_forward_hook(
                    lambda _module, _inputs, output: custom_operators.gather_sequence(
                        output, self.tp
                    )
                )


def _on_input(communicate: Callable[[Any, int], Any], tp: int) -> Callable[..., Any]:
    def hook(
        _: torch.nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
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
    """Lookup in one device's part of the vocabulary, then an all-reduce (ids of other devices give
    zero rows)."""

    def __init__(self, weight: torch.nn.Parameter, tp: int) -> None:
        super().__init__()
        self.weight, self.tp = weight, tp

    def forward(self, ids: torch.Tensor) -> Any:
        return custom_operators.reduce_from_group(functional.embedding(ids, self.weight), self.tp)
