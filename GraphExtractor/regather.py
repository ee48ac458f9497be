"""Sequence and context parallelism keep parts: what was gathered is gathered again in backward.

Korthikanti et al. 2022, section 4.2.2: only the device's own part of a column-parallel linear's
input is kept; an additional all-gather before the weight gradient brings the rest back. The input
gradient does not need it, so the two can overlap. The keys and values of a context-parallel group
are treated alike, before attention's backward operator.
"""

import operator
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch.fx import Node

from GraphExtractor.tracing import NodeOrigin, TracedStep
from GraphExtractor.values import is_view


def gather_again(step: TracedStep) -> TracedStep:
    """The step with what the backward pass reads gathered once more; changes the graph in place."""
    origins = dict(step.origins)

    def runs(node: Node, *, backward: bool) -> bool:
        return node in origins and origins[node].backward is backward

    def views_of(node: Node) -> Iterator[Node]:
        """A node, its single results, and the forward views of them, makers first."""
        yield node
        for user in node.users:
            looks = user.target is operator.getitem or (user in origins and is_view(user))
            if looks and runs(user, backward=False):
                yield from views_of(user)

    gathers = torch.ops.phaze.all_gather.default, torch.ops.phaze.all_gather_keys.default
    for gathered in [node for node in step.graph.nodes if node.target in gathers]:
        views = tuple(views_of(gathered)) if runs(gathered, backward=False) else ()
        users = {user for view in views for user in view.users if runs(user, backward=True)}
        readers = sorted(users)
        if not readers:
            continue
        with step.graph.inserting_before(readers[0]):
            again: dict[Node, Node] = {}
            for node in views:
                again[node] = step.graph.node_copy(
                    node, lambda each, made=again: made.get(each, each)
                )
                origin = origins[node]
                origins[again[node]] = NodeOrigin(
                    origin.layer, origin.module, True, False, gathered, again=True
                )
        for reader in readers:
            for node in views:
                reader.replace_input_with(node, again[node])
    return replace(step, origins=origins)
