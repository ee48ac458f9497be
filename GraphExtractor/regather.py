"""Sequence parallelism keeps parts: what a block has gathered is dropped after its forward pass and gathered again in backward.

Korthikanti et al. 2022, section 4.2.2: only the device's own part of a column-parallel linear's input is kept; an additional
all-gather before the weight gradient brings the rest back. The input gradient does not need it, so the two can overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch.fx import Node

from GraphExtractor.tracing import NodeOrigin, TracedStep
from GraphExtractor.values import is_view


def gather_again(step: TracedStep) -> TracedStep:
    """The step with every gathered tensor that the backward pass reads gathered once more; its graph is changed in place."""
    origins = dict(step.origins)
    for gathered in [node for node in step.graph.nodes if node in origins and _is_forward_gather(node, origins)]:
        views = tuple(_views(gathered, origins))
        readers = sorted({user for view in views for user in view.users if _runs_backward(user, origins)})
        if not readers:
            continue
        with step.graph.inserting_before(readers[0]):
            again: dict[Node, Node] = {}
            for node in views:
                again[node] = step.graph.node_copy(node, lambda argument, made=again: made.get(argument, argument))
                origin = origins[node]
                origins[again[node]] = NodeOrigin(origin.layer, origin.module, True, False, gathered, again=True)
        for reader in readers:
            for node in views:
                reader.replace_input_with(node, again[node])
    return replace(step, origins=origins)


def _is_forward_gather(node: Node, origins: dict[Node, NodeOrigin]) -> bool:
    return node.target is torch.ops.phaze.all_gather.default and not origins[node].backward


def _runs_backward(node: Node, origins: dict[Node, NodeOrigin]) -> bool:
    return node in origins and origins[node].backward


def _views(node: Node, origins: dict[Node, NodeOrigin]) -> Iterator[Node]:
    """A node and the forward views of it, makers first."""
    yield node
    for user in node.users:
        if user in origins and not origins[user].backward and is_view(user):
            yield from _views(user, origins)
