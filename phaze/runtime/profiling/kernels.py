"""The operators of a training graph as functions that run: the traced nodes behind each, on tensors
of the machine.

A fused operator runs its nodes one after another, as torch does, with the views through which it
reads. What it reads is random, of the sizes, strides and types of the trace; integers (positions of
tokens, rows of a table) are what the model's own nodes make them.
"""

from __future__ import annotations

import operator as python_operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from GraphExtractor.extract import traced_blocks
from GraphExtractor.forward_trace import numbered
from GraphExtractor.fusion import fuse
from GraphExtractor.graph import GraphKey, Operator, OperatorKind
from GraphExtractor.layers import GraphBuilder
from GraphExtractor.linking import linked
from GraphExtractor.models.base import ModelFamily
from GraphExtractor.operators import readers, traced_operators
from GraphExtractor.torch_internals import FakeTensor
from GraphExtractor.tracing import TracedStep
from GraphExtractor.values import ValueTable, is_bookkeeping, is_view
from phaze.runtime.profiling.real_operators import REAL_OPERATORS, WITHOUT_DROPOUT
from phaze_common.errors import PhazeError

WHOLE = "phaze"  # namespace of the operators that a trace keeps whole


class NotRunnableError(PhazeError):
    """An operator that a trace knows by its shapes alone, which nothing here runs."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """An operator of a graph, the traced nodes that it is made of, and its layer.

    ``layer`` is the layer's name, ``block`` the path of its module ("" of what runs between
    modules).
    """

    operator: Operator
    nodes: tuple[Node, ...]
    tensors: Tensors
    layer: str = ""
    block: str = ""

    def prepared(self) -> Callable[[], object]:
        """A function that runs it once, on tensors that are made now.

        Raises:
            NotRunnableError: a node of it has no implementation.
        """
        graph, mapped, given = Graph(), dict[Node, Node](), list[Any]()
        closure = set(self._closure())

        def copied(node: Node) -> Node:
            if node not in mapped:
                if node in closure:
                    mapped[node] = _copied(graph, node, copied)
                else:
                    mapped[node] = graph.placeholder(f"given_{len(given)}")
                    given.append(self.tensors.of(node))
            return mapped[node]

        outside = dict.fromkeys(
            each
            for node in self.nodes_in_order(closure)
            for each in node.all_input_nodes
            if each not in closure
        )
        for node in outside:  # placeholders come first
            copied(node)
        for node in self.nodes_in_order(closure):
            copied(node)
        graph.output(tuple(mapped[node] for node in self.nodes))
        module = GraphModule(torch.nn.Module(), graph)
        return partial(type(module).forward, module, *given)

    def nodes_in_order(self, nodes: set[Node]) -> Iterator[Node]:
        """``nodes`` as the trace has them."""
        return (node for node in self.tensors.step.graph.nodes if node in nodes)

    def _closure(self) -> Iterator[Node]:
        """Its own nodes, and the views and parts of results of its own through which they read."""
        pending, seen = list(self.nodes), set(self.nodes)
        own = frozenset(self.nodes)
        while pending:
            node = pending.pop()
            yield node
            for each in node.all_input_nodes:
                if each in seen or each.op != "call_function":
                    continue
                part = each.target is python_operator.getitem and each.args[0] in own
                if part or (
                    each.target is not python_operator.getitem
                    and is_view(each)
                    and not is_bookkeeping(each)
                ):
                    seen.add(each)
                    pending.append(each)


def _copied(graph: Graph, node: Node, mapped: Callable[[Node], Node]) -> Node:
    if getattr(node.target, "namespace", "") != WHOLE:
        copied = graph.node_copy(node, mapped)
        copied.target = WITHOUT_DROPOUT.get(node.target, node.target)
        return copied
    name = node.target._schema.name.split("::")[1]
    if name not in REAL_OPERATORS:
        raise NotRunnableError(f"{name} is traced by its shapes, and nothing here runs it")
    arguments = torch.fx.node.map_arg((node.args, node.kwargs), mapped)
    return graph.call_function(_laid_out(REAL_OPERATORS[name](), node.meta["val"]), *arguments)


def _laid_out(function: Callable[..., Any], expected: Any) -> Callable[..., Any]:
    """``function``, its results with the strides of the trace, without moving anything: what they
    are does not matter here."""

    def run(*arguments: Any) -> Any:
        result = function(*arguments)
        if not isinstance(result, tuple):
            return _with_strides(result, expected)
        return tuple(_with_strides(each, like) for each, like in zip(result, expected, strict=True))

    return run


def _with_strides(made: Any, like: Any) -> Any:
    if (
        not isinstance(made, torch.Tensor)
        or not isinstance(like, torch.Tensor)
        or made.stride() == like.stride()
    ):
        return made
    return made.as_strided(like.shape, like.stride(), made.storage_offset())


class Tensors:
    """Makes the tensors of a traced step, each once as long as it is asked for."""

    def __init__(self, step: TracedStep, inputs: Mapping[str, Any], device: str) -> None:
        self.step, self._inputs, self._device = step, inputs, device

    def of(self, node: Node) -> Any:
        """The value of ``node``."""
        if node in self.step.inputs:
            return self._inputs[self.step.inputs[node]].to(self._device)
        value = node.meta.get("val")
        if node.op == "get_attr":
            return self._constant(node)
        if (
            node.op == "placeholder"
            or not isinstance(value, torch.Tensor)
            or value.dtype.is_floating_point
        ):
            return self._like(value)
        return self._computed(node)

    def _like(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(self._like(each) for each in value)
        if not isinstance(value, torch.Tensor):
            return value
        if value.dtype is torch.bool:
            return torch.ones(value.shape, dtype=torch.bool, device=self._device)
        made = torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device=self._device
        )
        return made.zero_() if not value.dtype.is_floating_point else made.normal_()

    def _constant(self, node: Node) -> Any:
        owner = self.step.graph.owning_module
        value = getattr(owner, str(node.target), None) if owner is not None else None
        if isinstance(value, torch.Tensor) and not _is_fake(value):
            return value.to(self._device)
        return self._like(node.meta.get("val", value))

    def _computed(self, node: Node) -> Any:
        """Integers, which are places in other tensors: run for real, on what leads to them."""
        if getattr(node.target, "namespace", "") == WHOLE:
            return self._like(node.meta["val"])
        arguments, settings = torch.fx.node.map_arg((node.args, node.kwargs), self.of)
        settings = {
            key: self._device if key == "device" else value for key, value in settings.items()
        }
        return node.target(*arguments, **settings)


def _is_fake(tensor: Any) -> bool:
    return isinstance(tensor, FakeTensor)


def kernels_of(key: GraphKey, family: ModelFamily, device: str) -> tuple[Kernel, ...]:
    """One kernel for each operator of the blocks that are traced for ``key``, forward pass first,
    layer after layer.

    Raises:
        InputError: as ``GraphExtractor.extract.extract_graph``.
    """
    step = linked(traced_blocks(key, family))
    tensors = Tensors(step, real_inputs(key, family), device)
    names = numbered([place.name for place in step.places])
    return tuple(
        Kernel(operator, nodes, tensors, names[layer], step.places[layer].path)
        for layer, operator, nodes in _operators(step)
        if _runs_alone(operator)
    )


def _runs_alone(operator: Operator) -> bool:
    return operator.kind is not OperatorKind.COLLECTIVE and not operator.streamed


def _operators(step: TracedStep) -> Iterator[tuple[int, Operator, tuple[Node, ...]]]:
    """Layer, operator and nodes, layer after layer, forward pass first."""
    values = ValueTable(step)
    traced = traced_operators(step, values)
    users = readers(traced)
    results = frozenset(values[node] for node in step.gradients.values())
    for layer in range(step.layer_count):
        here = [each for each in traced if each.layer == layer]
        passes = [
            fuse(tuple(each for each in here if each.backward == backward), users)
            for backward in (False, True)
        ]
        builder = GraphBuilder(users, results, passes[0])
        for groups in passes:
            for operator, group in zip(builder.graph(groups).operators, groups, strict=True):
                yield layer, operator, tuple(member.node for member in group.members)


def real_inputs(key: GraphKey, family: ModelFamily) -> dict[str, Any]:
    """Inputs of one micro-batch: the model's own, integers spread over a device's part of the
    vocabulary.

    So tables are read all over.
    """
    generator = torch.Generator().manual_seed(0)
    inputs = family.inputs(key)
    most = max(family.vocabulary // key.tp, 1)
    return {
        name: torch.randint(0, most, value.shape, generator=generator, dtype=value.dtype)
        if value.dtype in (torch.int64, torch.int32)
        else value.normal_(generator=generator)
        if value.dtype.is_floating_point
        else value
        for name, value in inputs.items()
    }
