"""What the backward pass runs again: gathered tensors, and parts that a model's code checkpoints.

Sequence and context parallelism save parts (Korthikanti et al. 2022, section 4.2.2): only the
device's own part of a column-parallel linear's input is saved; an additional all-gather before the
weight gradient brings the rest back. The input gradient does not need it, so the two can overlap.
The keys and values of a context-parallel group are treated alike, before attention's backward
operator.

A checkpointed part is traced as any other code, and every node of it knows which calls of
``torch.utils.checkpoint`` it runs in. Here copies of its nodes are put before the first gradient
that needs one of its results, as torch runs it again (Chen et al. 2016): up to the last tensor that
autograd saves, or the whole of it where the checkpoint is a reentrant one. A checkpoint within
another saves its inputs alone, which the outer one makes again, and runs again by itself.
"""

from __future__ import annotations

import operator
import operator as python_operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch.fx import Node

from GraphExtractor.checkpoints import CHECKPOINTS, Checkpoint
from GraphExtractor.tracing import NodeOrigin, TracedStep
from GraphExtractor.values import is_view

_Path = tuple[Checkpoint, ...]


def with_parts_again(step: TracedStep) -> TracedStep:
    """The step with every checkpointed part run again in backward; changes the graph in place."""
    paths = _paths(step)
    if not paths:
        return step
    rewriting = _Rewriting(step, paths, dict(step.origins))
    checkpoints = {each for path in paths.values() for each in path}
    for checkpoint in sorted(checkpoints, key=lambda each: each.number):
        rewriting.run_again(checkpoint)
    return replace(step, origins=rewriting.origins)


def _paths(step: TracedStep) -> dict[Node, _Path]:
    """Checkpoints of every forward node, outermost first; communication is with what it follows."""
    found: dict[Node, _Path] = {}
    for node in step.graph.nodes:
        if node not in step.origins or step.origins[node].backward:
            continue
        notes = node.meta.get("custom")
        before = next((found[each] for each in node.all_input_nodes if each in found), ())
        path = before if notes is None else notes.get(CHECKPOINTS, ())
        if path:
            found[node] = path
    return found


@dataclass(frozen=True)
class _Rewriting:
    step: TracedStep
    paths: dict[Node, _Path]
    origins: dict[Node, NodeOrigin]
    # copies of the nodes that ran again
    made: dict[Checkpoint, dict[Node, Node]] = field(default_factory=dict)

    def run_again(self, checkpoint: Checkpoint) -> None:
        """Put copies of a part's nodes into the backward pass, for its gradients to read."""
        order = {node: number for number, node in enumerate(self.step.graph.nodes)}
        inside = [node for node in order if checkpoint in self.paths.get(node, ())]
        place = {node: number for number, node in enumerate(inside)}
        origins = self.origins
        of_inner = [
            node for node, each in origins.items() if each.backward and each.forward in place
        ]
        gradients = [
            node
            for node in of_inner
            if self.paths[origins[node].forward][-1] is checkpoint and not origins[node].again
        ]
        again = self._made_around(inside, checkpoint)
        waiting = [
            node
            for node in of_inner
            if any(each in place or each in again for each in node.all_input_nodes)
        ]
        if not waiting:
            return
        with self.step.graph.inserting_before(min(waiting, key=order.__getitem__)):
            copies: dict[Node, Node] = {}
            for node in inside[: self._last(checkpoint, inside, place, gradients)]:
                copy = self.step.graph.node_copy(node, lambda each: again.get(each, each))
                origins[copy] = replace(origins[node], backward=True, forward=node, again=True)
                again[node] = copies[node] = copy
        self.made[checkpoint] = copies
        for reader in gradients:  # what others read of the results of a part is saved for them
            for node in [each for each in reader.all_input_nodes if each in again]:
                reader.replace_input_with(node, again[node])

    def _made_around(self, inside: Sequence[Node], checkpoint: Checkpoint) -> dict[Node, Node]:
        """What the checkpoints around one have made again."""
        path = self.paths[inside[0]]
        around = (self.made.get(each, {}) for each in path[: path.index(checkpoint)])
        return {node: copy for each in around for node, copy in each.items()}

    def _last(
        self,
        checkpoint: Checkpoint,
        inside: Sequence[Node],
        place: dict[Node, int],
        gradients: Sequence[Node],
    ) -> int:
        """How many of the nodes of a part run again."""
        if not checkpoint.stops_early:
            return len(inside)
        ends = [self._saved(gradient, place) for gradient in gradients]
        begun: dict[_Path, int] = {}  # of checkpoints within
        for node in reversed(inside):
            if self.paths[node][-1] is not checkpoint:
                begun[self.paths[node]] = place[node]
        return max((*begun.values(), *ends), default=0)

    def _saved(self, gradient: Node, place: dict[Node, int]) -> int:
        """How many nodes of a part have run when autograd has saved what a gradient reads.

        What an operator reads is saved before it runs, what it writes behind it.
        """
        reads = [
            each
            for each in gradient.all_input_nodes
            if each not in self.origins or not self.origins[each].backward
        ]
        if not reads:
            return 0
        forward = self.origins[gradient].forward
        assert forward is not None  # one of the part
        inside = [each for each in reads if each in place]
        written = forward in map(_maker, inside)
        return max(place[forward] + written, *(place[each] + 1 for each in inside), 0)


def _maker(node: Node) -> Node:
    """The operator behind a part of a result, or a view of it."""
    while node.op == "call_function" and (node.target is python_operator.getitem or is_view(node)):
        node = node.all_input_nodes[0]
    return node


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
