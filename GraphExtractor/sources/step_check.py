"""What a traced step may not hold: parts, formats and writes that a graph would get wrong."""

import operator as python_operator
from collections.abc import Iterator

import torch
from torch.fx import Node

from GraphExtractor.graph import DTYPE_BYTES
from GraphExtractor.torch_internals import OpOverload
from GraphExtractor.tracing import TracedStep
from GraphExtractor.user_lines import line_of
from GraphExtractor.values import is_view, tensors_of
from phaze_common.errors import InputError


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
