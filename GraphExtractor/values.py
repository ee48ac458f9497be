"""Tensors behind the nodes of a trace: views resolved to their data, bookkeeping left out."""

import math
import operator as python_operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property
from typing import Any

import torch
from torch.fx import Node

from GraphExtractor.graph import DTYPE_BYTES
from GraphExtractor.sparse_rows import rows_read
from GraphExtractor.tracing import TracedStep

_ALLOCATIONS = frozenset({"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"})
# return their input although their schema does not say so
_VIEWS_TOO = frozenset({"_unsafe_view", "lift_fresh_copy"})


class Source(Enum):
    """Where a tensor comes from."""

    OPERATOR = auto()
    PARAMETER = auto()
    INPUT = auto()
    CONSTANT = auto()  # buffers, and results of bookkeeping


@dataclass(frozen=True, eq=False)  # there is one of a node, and sets of them are many
class Value:
    """A tensor with memory of its own; ``maker`` is the node that writes it, if any.

    ``backward`` is made in the backward pass: a ``gradient``, or an activation made again.
    """

    node: Node
    source: Source
    shape: tuple[int, ...]
    dtype: str
    maker: Node | None = None
    backward: bool = False
    gradient: bool = False

    @cached_property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @cached_property
    def bytes(self) -> int:
        """Size in bytes."""
        return self.elements * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True)
class Use:
    """A value as an operator reads it through ``view``: ``shape`` is the part touched."""

    value: Value
    shape: tuple[int, ...]
    view: Node

    @property
    def elements(self) -> int:
        """Number of elements touched."""
        return math.prod(self.shape)


def operator_name(node: Node) -> str:
    """Name of the torch operator without namespace, overload and in-place underscore."""
    name: str = node.target._schema.name.split("::")[1]
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def argument(node: Node, name: str) -> Any:
    """Argument of an operator by its name in the schema, or the schema's default."""
    for position, declared in enumerate(node.target._schema.arguments):
        if declared.name == name:
            if position < len(node.args) and not declared.kwarg_only:
                return node.args[position]
            return node.kwargs.get(name, declared.default_value)
    raise KeyError(name)


class ValueTable:
    """Resolves nodes of a traced step to the values behind them."""

    def __init__(self, step: TracedStep) -> None:
        self._step = step
        self._values: dict[Node, Value] = {}

    def __getitem__(self, node: Node) -> Value:
        """Value behind a node, views resolved."""
        if node not in self._values:
            self._values[node] = self._resolve(node)
        return self._values[node]

    def _resolve(self, node: Node) -> Value:
        if node in self._step.parameters:
            return _value(node, Source.PARAMETER)
        if node in self._step.inputs:
            return _value(node, Source.INPUT)
        if node.op != "call_function":
            return _value(node, Source.CONSTANT)
        if node.target is python_operator.getitem:
            maker = node.args[0]
            if is_bookkeeping(maker):
                return _value(node, Source.CONSTANT)
            return self[maker] if is_view(maker) else self._made(node, maker)
        if is_view(node):
            return self[node.all_input_nodes[0]]
        if is_bookkeeping(node):
            return _value(node, Source.CONSTANT)
        return self._made(node, node)

    def _made(self, node: Node, maker: Node) -> Value:
        origin = self._step.origins[node]
        return replace(
            _value(node, Source.OPERATOR, maker),
            backward=origin.backward,
            gradient=origin.backward and not origin.again,
        )

    def uses(self, node: Node) -> tuple[Use, ...]:
        """What an operator reads; scalars are left out."""
        found: dict[tuple[Node, tuple[int, ...]], Use] = {}
        for argument in node.all_input_nodes:
            value = self[argument]
            shape = tuple(argument.meta["val"].shape)
            shape = shape if math.prod(shape) <= value.elements else value.shape
            if value.elements > 1:
                found.setdefault((argument, shape), Use(value, shape, argument))
        return tuple(found.values())

    def outputs(self, node: Node) -> tuple[Value, ...]:
        """What an operator writes."""
        if isinstance(node.meta["val"], torch.Tensor):
            return (self[node],)
        return tuple(self[user] for user in node.users if user.target is python_operator.getitem)


def _value(node: Node, source: Source, maker: Node | None = None) -> Value:
    tensor = node.meta["val"]
    shape = tuple(tensor.shape)
    if maker is not None and operator_name(maker) == "rows_gradient":
        shape = (rows_read(shape[0], maker.args[1].meta["val"].numel()), shape[1])
    return Value(node, source, shape, str(tensor.dtype).removeprefix("torch."), maker)


def is_view(node: Node) -> bool:
    """Whether a node only looks at existing data (its result may be a list of views)."""
    if node.target is python_operator.getitem:
        return is_view(node.args[0])
    return bool(node.target.is_view) or operator_name(node) in _VIEWS_TOO


def is_bookkeeping(node: Node) -> bool:
    """Whether a node only allocates, or computes nothing but integers or scalars."""
    read = (each.meta["val"] for each in node.all_input_nodes)
    tensors = [tensor for value in (node.meta["val"], *read) for tensor in tensors_of(value)]
    numbers = [each for each in tensors if each.dtype.is_floating_point or each.dtype.is_complex]
    scalars = all(tensor.numel() <= 1 for tensor in tensors)
    return not numbers or scalars or operator_name(node) in _ALLOCATIONS


def tensors_of(value: Any) -> Iterator[Any]:
    """All tensors of a node's value."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors_of(part)
