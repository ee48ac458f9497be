"""Writes into a part of a tensor as the operators they are, and what a step may not hold.

A trace notes such a write at the part alone; whoever reads the whole tensor afterwards seems to
read what was there before. Here every such write becomes a functional operator on the part and a
scatter of it into the whole (``slice_scatter`` and its like), which later readers read. What cannot
be turned round so is left as it is, for ``check_step`` to refuse.
"""

from __future__ import annotations

import operator as python_operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import Node

from GraphExtractor.fake_mode import mode_of
from GraphExtractor.graph import DTYPE_BYTES
from GraphExtractor.torch_internals import OpOverload
from GraphExtractor.tracing import TracedStep, drop_unread
from GraphExtractor.user_lines import line_of
from GraphExtractor.values import is_view, tensors_of
from phaze_common.errors import InputError

# of a step: a loop that fills a tensor token by token would be priced as that many copies of it
MOST_WRITES = 64
_aten = torch.ops.aten
_OF_VALUES = ("val", "tensor_meta")  # what a node knows of its tensors


def with_whole_writes(step: TracedStep) -> TracedStep:
    """The step in which no write into a part of a tensor is hidden from later readers."""
    writes = [node for node in step.graph.nodes if _hidden(node)]
    if not writes or len(writes) > MOST_WRITES:
        return step
    rewriting = _Rewriting(step)
    for write in writes:
        rewriting.replace(write)
    drop_unread(step.graph, products_too=False)
    results = next(node for node in step.graph.nodes if node.op == "output").args[0]
    alive = set(step.graph.nodes)
    named = zip(step.parameters.values(), results, strict=True)
    gradients = {
        name: result
        for name, result in named
        if isinstance(result, Node) and name in step.gradients
    }
    origins = {node: origin for node, origin in rewriting.origins.items() if node in alive}
    return replace(step, origins=origins, gradients=gradients)


def _hidden(node: Node) -> bool:
    """Whether a node writes into a view of a tensor, or into a tensor with views."""
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return False
    written, schema = node.args[0] if node.args else None, node.target._schema
    if not schema.is_mutable or not schema.name.endswith("_") or not isinstance(written, Node):
        return False
    if not any(tensor.is_floating_point() for tensor in tensors_of(written.meta["val"])):
        return False
    return _is_tensor_view(written) or any(_is_tensor_view(user) for user in written.users)


def _is_tensor_view(node: Node) -> bool:
    calls = node.op == "call_function" and node.target is not python_operator.getitem
    return calls and is_view(node)


class _Rewriting:
    def __init__(self, step: TracedStep) -> None:
        self.graph = step.graph
        self.origins = dict(step.origins)

    def replace(self, write: Node) -> None:
        """Put a functional operator and scatters in the place of ``write``, where possible."""
        functional = _functional(write.target)
        written = write.args[0]
        chain = [written]
        while _is_tensor_view(chain[-1]):
            chain.append(chain[-1].all_input_nodes[0])
        if functional is None or any(view.target not in _SCATTERS for view in chain[:-1]):
            return
        nodes = list(self.graph.nodes)
        later = set(nodes[nodes.index(write) + 1 :])
        base = chain[-1]
        with self.graph.inserting_after(write):
            changed = self._made(write, functional, write.args, write.kwargs)
        last, value = changed, changed
        for view in chain[:-1]:
            for target, arguments in _SCATTERS[view.target](view, value):
                with self.graph.inserting_after(last):
                    last = value = self._made(write, target, arguments, {})
        self._read_again(base, value, last, later, write)
        write.replace_all_uses_with(changed)
        moved = {
            node: replace(origin, forward=changed)
            for node, origin in self.origins.items()
            if origin.forward is write
        }
        self.origins |= moved
        self.graph.erase_node(write)

    def _read_again(self, old: Node, new: Node, last: Node, later: set[Node], write: Node) -> None:
        """Let ``later`` readers of ``old``, and of views taken of it before, read ``new``."""
        for user in list(old.users):
            if user in later:
                user.replace_input_with(old, new)
            elif user is not write and _is_tensor_view(user) and self._read_later(user, later):
                arguments = (new, *user.args[1:])
                with self.graph.inserting_after(last):
                    again = self._made(user, user.target, arguments, user.kwargs)
                self._read_again(user, again, again, later, write)

    def _read_later(self, view: Node, later: set[Node]) -> bool:
        return any(
            user in later or (_is_tensor_view(user) and self._read_later(user, later))
            for user in view.users
        )

    def _made(self, like: Node, target: Any, arguments: Any, named: Any) -> Node:
        """A node of the graph that stands where ``like`` does."""
        node = self.graph.call_function(target, arguments, named)
        node.meta = {key: each for key, each in like.meta.items() if key not in _OF_VALUES}
        own, own_named = torch.fx.node.map_arg(
            (tuple(arguments), dict(named)), lambda operand: operand.meta["val"]
        )
        with mode_of(next(tensors_of(like.meta["val"]))):
            node.meta["val"] = target(*own, **own_named)
        self.origins[node] = self.origins[like]
        return node


def _functional(target: Any) -> Any:
    """The operator that does the same without writing, if there is one."""
    packet = getattr(_aten, target._schema.name.split("::")[1].removesuffix("_"), None)
    return getattr(packet, target._overloadname, None) if packet is not None else None


_Steps = list[tuple[Any, tuple[Any, ...]]]


def _shape(node: Node) -> list[int]:
    return list(node.meta["val"].shape)


def _into(scatter: Any) -> Callable[[Node, Node], _Steps]:
    return lambda view, value: [(scatter, (view.args[0], value, *view.args[1:]))]


def _back(inverse: Callable[[Node], tuple[Any, ...]], target: Any) -> Callable[..., _Steps]:
    return lambda view, value: [(target, (value, *inverse(view)))]


def _of_old_shape(view: Node) -> tuple[Any, ...]:
    return (_shape(view.args[0]),)


def _nothing(view: Node) -> tuple[Any, ...]:
    return ()


def _inverse(view: Node) -> tuple[Any, ...]:
    dims = [dim % len(_shape(view)) for dim in view.args[1]]
    return ([dims.index(dim) for dim in range(len(dims))],)


_SCATTERS: Mapping[Any, Callable[[Node, Node], _Steps]] = MappingProxyType(
    {
        _aten.slice.Tensor: _into(_aten.slice_scatter.default),
        _aten.select.int: _into(_aten.select_scatter.default),
        _aten.as_strided.default: _into(_aten.as_strided_scatter.default),
        _aten.view.default: _back(_of_old_shape, _aten.reshape.default),
        _aten.reshape.default: _back(_of_old_shape, _aten.reshape.default),
        _aten.t.default: _back(_nothing, _aten.t.default),
        _aten.transpose.int: _back(lambda view: tuple(view.args[1:]), _aten.transpose.int),
        _aten.permute.default: _back(_inverse, _aten.permute.default),
        _aten.unsqueeze.default: _back(lambda view: (view.args[1],), _aten.squeeze.dim),
        _aten.alias.default: _back(_nothing, _aten.alias.default),
        _aten.detach.default: _back(_nothing, _aten.detach.default),
    }
)


def check_step(step: TracedStep, model: str) -> None:
    """Refuse a step of a model that nobody described where its graph would not tell the truth."""

    def refused(node: Node, why: str) -> InputError:
        return InputError(_refused(step, node, model, why))

    for node in step.graph.nodes:
        if node.op != "call_function" or node.target is python_operator.getitem:
            continue
        if not isinstance(node.target, OpOverload):
            raise refused(node, "runs a part of the model that a graph cannot show; write it out")
        for tensor in tensors_of(node.meta["val"]):
            if tensor.layout is not torch.strided:
                raise refused(node, f"makes a tensor of layout {tensor.layout}; use dense tensors")
            if str(tensor.dtype).removeprefix("torch.") not in DTYPE_BYTES:
                raise refused(node, f"computes in {tensor.dtype}; use {', '.join(DTYPE_BYTES)}")
    for node in _hidden_writes(step.graph):
        raise refused(
            node,
            "writes into a part of a tensor in place; make it with torch.cat, torch.where or a "
            "mask",
        )


def _refused(step: TracedStep, node: Node, model: str, why: str) -> str:
    origin = step.origins.get(node)
    name = node.target._schema.name if isinstance(node.target, OpOverload) else str(node.target)
    forward = origin.forward if origin and origin.forward else node
    where = f" in module {origin.module}" if origin and origin.module else ""
    return (
        f"torch operator {name.replace('::', '.')}{where} at "
        f"{line_of(forward, model) or model} {why}"
    )


def _hidden_writes(graph: torch.fx.Graph) -> Iterator[Node]:
    """In-place operators whose result is read again through a node that leads around them."""
    order = {node: position for position, node in enumerate(graph.nodes)}
    views: dict[Node, list[Node]] = {}
    writes: list[Node] = []
    for node in graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, OpOverload):
            continue
        if _writes(node):
            writes.append(node)
        elif is_view(node):
            views.setdefault(_base(node), []).append(node)
    for write in writes:
        written = write.args[0]
        base = _base(written)
        same_data = [base, *views.get(base, ())]
        before = (node for node in same_data if order[node] < order[write])
        users = (user for node in before for user in node.users if order[user] > order[write])
        later = [user for user in users if user not in same_data]
        if any(not _writes(user) or user.users for user in later):
            yield write


def _writes(node: Node) -> bool:
    """Whether an operator changes an argument that is more than bookkeeping."""
    written = node.args[0] if node.target._schema.is_mutable else None
    return isinstance(written, Node) and any(
        tensor.is_floating_point() for tensor in tensors_of(written.meta["val"])
    )


def _base(node: Node) -> Node:
    while node.op == "call_function":
        if node.target is not python_operator.getitem and not isinstance(node.target, OpOverload):
            return node
        if not is_view(node):
            return node
        node = node.all_input_nodes[0]
    return node
