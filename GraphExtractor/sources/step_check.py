"""What a traced step may not hold: parts, number formats and writes that a training graph could
only get wrong."""

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
    for node in step.graph.nodes:
        if node.op != "call_function" or node.target is python_operator.getitem:
            continue
        if not isinstance(node.target, OpOverload):
            raise InputError(
                _refused(
                    step,
                    node,
                    model,
                    "runs a part of the model that a graph cannot show; write it out",
                )
            )
        for tensor in tensors_of(node.meta["val"]):
            if tensor.layout is not torch.strided:
                raise InputError(
                    _refused(
                        step,
                        node,
                        model,
                        f"makes a tensor of layout {tensor.layout}; use dense tensors",
                    )
                )
            if str(tensor.dtype).removeprefix("torch.") not in DTYPE_BYTES:
                raise InputError(
                    _refused(
                        step,
                        node,
                        model,
                        f"computes in {tensor.dtype}; use {', '.join(DTYPE_BYTES)}",
                    )
                )
    for node in _hidden_writes(step.graph):
        raise InputError(
            _refused(
                step,
                node,
                model,
                "writes into a part of a tensor in place; make it with torch.cat, torch.where or "
                "a mask",
            )
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
    """In-place operators whose result is read again through a node that does not lead through
    them."""
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
        later = [
            user
            for node in same_data
            if order[node] < order[write]
            for user in node.users
            if order[user] > order[write]
        ]
        if any(not _writes(user) or user.users for user in later if user not in same_data):
            yield write


def _writes(node: Node) -> bool:
    """Whether an operator changes an argument that is more than bookkeeping."""
    written = node.args[0] if node.target._schema.is_mutable else None
    return isinstance(written, Node) and any(
        tensor.is_floating_point() for tensor in tensors_of(written.meta["val"])
    )


def _base(node: Node) -> Node:
    while node.op == "call_function" and (
        node.target is python_operator.getitem or _is_plain_view(node)
    ):
        if node.target is python_operator.getitem and not is_view(node):
            return node
        node = node.all_input_nodes[0]
    return node


def _is_plain_view(node: Node) -> bool:
    return isinstance(node.target, OpOverload) and is_view(node)
