"""Splits of all values of a traced step that follow from the splits of some parameters."""

from __future__ import annotations

import operator as python_operator
from collections.abc import Iterator
from functools import partial

import torch
from torch.fx import Node

from GraphExtractor.derived_sharding.facts import StepFacts
from GraphExtractor.derived_sharding.product_rules import Context
from GraphExtractor.derived_sharding.rules import REARRANGING, result_of, waiting_sum
from GraphExtractor.derived_sharding.specs import (
    MIXED,
    PARTIAL,
    REPLICATED,
    Demand,
    Obstacle,
    Result,
    Shard,
    Spec,
    shape_of,
)
from GraphExtractor.values import is_view, operator_name


class Propagation:
    """Splits of values, made node by node from ``seeds``: parameters and expanded values.

    ``base`` holds what is settled; ``slices`` are whole operands of which an operator reads the
    device's own part, which is free; ``summed`` are partial values that are summed where they are
    made, so that every reader sees them whole.
    """

    def __init__(
        self,
        facts: StepFacts,
        base: Propagation | None = None,
        summed: frozenset[Node] = frozenset(),
    ) -> None:
        self.facts = facts
        self.base = base
        self.summed = summed
        self.seeds: dict[Node, Shard] = {}
        self.results: dict[Node, Result] = {}
        self.slices: dict[tuple[Node, Node], Shard] = {}

    def result(self, node: Node) -> Result:
        """Split of a node's result or results."""
        if node in self.results:
            return self.results[node]
        return self.base.result(node) if self.base else REPLICATED

    def spec(self, node: Node) -> Spec:
        """Split of the only tensor of a node."""
        result = self.result(node)
        if isinstance(result, tuple):
            raise TypeError(f"{node} has several results")
        return REPLICATED if node in self.summed else result

    def seed(self, node: Node) -> Shard | None:
        """Split a parameter was given."""
        return self.seeds.get(node) or (self.base.seed(node) if self.base else None)

    def seen(self, reader: Node, operand: Node) -> Spec:
        """Split of an operand as ``reader`` gets it: own parts taken, partial values summed."""
        if (reader, operand) in self.slices:
            return self.slices[reader, operand]
        result = self.result(operand)
        return result if isinstance(result, Shard) else REPLICATED

    def owed(self, reader: Node, operand: Node) -> Spec:
        """Split of an operand; of its own layer ``reader`` may read sums not yet taken."""
        spec = self.spec(operand)
        owed = self.facts.layer(operand) == self.facts.layer(reader)
        return spec if isinstance(spec, Shard) or owed else REPLICATED

    def waiting(self, node: Node) -> Spec | None:
        """Result of a node that works on sums still to be taken, None of others."""
        return waiting_sum(node, lambda operand: self.owed(node, operand))

    def evaluate(self, node: Node) -> Result:
        """Split of a node's results; own parts of whole operands are taken where that is allowed.

        Raises: Demand: an operand would have to be split. Obstacle: the operator cannot run on the
            parts it is given.
        """
        if (seed := self.seed(node)) is not None:
            return seed
        if node.op != "call_function":
            return REPLICATED
        if node.target is python_operator.getitem:
            several = self.result(node.args[0])
            return several[node.args[1]] if isinstance(several, tuple) else REPLICATED
        if (waiting := self.waiting(node)) is not None:
            return waiting
        for operand in node.all_input_nodes:
            self.slices.pop((node, operand), None)
        while True:
            try:
                result = result_of(node, self._context(node))
                break
            except Demand as demand:
                # own parts of whole values are free where no gradient flows back
                free = self.facts.is_backward(node) or demand.operand not in self.facts.learned
                if not free or self.seen(node, demand.operand) is not REPLICATED:
                    raise
                self.slices[node, demand.operand] = demand.shard
        self._check_in_place(node)
        return result

    def _context(self, node: Node) -> Context:
        forward = self.facts.step.origins[node].forward
        sliced: Result = REPLICATED
        if forward is not None and forward.target is torch.ops.aten.slice.Tensor:
            sliced = self.result(forward.args[0])
        backward = self.facts.is_backward(node)
        return Context(partial(self.seen, node), backward, sliced, self.facts.weights)

    def _check_in_place(self, node: Node) -> None:
        """What is changed in place must be what others read, not a part cut out or a sum taken."""
        if not node.target._schema.is_mutable:
            return
        reader, changed, own = node, node.args[0], True
        while True:
            own = own and self.seen(reader, changed) == self.result(changed)
            later = (
                user for user in changed.users if self.facts.order[user] > self.facts.order[node]
            )
            if not own and any(later):
                raise Obstacle("changes a value in place that is read again")
            if changed.op != "call_function" or not is_view(changed):
                return
            reader, changed = changed, changed.all_input_nodes[0]

    def complete(self) -> None:
        """Propagate through the whole step; raises Demand or Obstacle where seeds do not fit."""
        for node in self.facts.order:
            if node.op != "output":
                self.results[node] = self.evaluate(node)

    def pending(self) -> frozenset[Node]:
        """Values read as sums still to be taken; a rearranged one where it was made."""
        found: set[Node] = set()
        for node, result in self.results.items():
            owed = result in (PARTIAL, MIXED) and node not in self.summed
            if owed and not all(self._waits(user, node) for user in node.users):
                found.add(self._made(node))
        return frozenset(found)

    def _waits(self, reader: Node, node: Node) -> bool:
        if reader.op != "call_function" or reader.target is python_operator.getitem:
            return False
        return self.waiting(reader) is not None and self.owed(reader, node) is not REPLICATED

    def _made(self, node: Node) -> Node:
        """Where the partial value behind a rearranged one was made."""
        while node.target is not python_operator.getitem and operator_name(node) in REARRANGING:
            maker = node.all_input_nodes[0]
            if self.spec(maker) is not PARTIAL:
                break
            node = maker
        return node


def splits(propagation: Propagation) -> Iterator[tuple[Node, Shard]]:
    """All values that are split, with their splits."""
    for node, result in propagation.results.items():
        for spec in result if isinstance(result, tuple) else (result,):
            if isinstance(spec, Shard):
                yield node, spec


def is_broadcast(node: Node, shard: Shard) -> bool:
    """Whether a node repeats its operand along the split dimension: a part is a shorter one."""
    if node.op != "call_function" or node.target is not torch.ops.aten.expand.default:
        return False
    dim = shard.dim - len(shape_of(node)) + len(shape_of(node.args[0]))
    return dim < 0 or shape_of(node.args[0])[dim] == 1
