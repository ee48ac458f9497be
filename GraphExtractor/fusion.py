"""Fusing element-wise tails into the operator that makes their input, as an epilogue does.

A fused operator keeps all vector work of its members; only the memory round trip of values nobody
else reads is saved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from GraphExtractor.graph import Operand, OperandRole, OperatorKind, Yields
from GraphExtractor.operators import TracedOperator
from GraphExtractor.values import Source, Value

Readers = Mapping[Value, tuple[TracedOperator, ...]]
_TAIL_KINDS = frozenset({OperatorKind.ELEMENTWISE, OperatorKind.MOVE})


@dataclass(frozen=True)
class Group:
    """Traced operators executed as one, in order."""

    members: tuple[TracedOperator, ...]

    @property
    def head(self) -> TracedOperator:
        """The matrix product, if there is one, else what is not element-wise, else the first."""
        products = [member for member in self.members if member.gemms]
        others = [member for member in self.members if member.kind not in _TAIL_KINDS]
        return (*products, *others, *self.members)[0]

    @property
    def made(self) -> frozenset[Value]:
        """Values the members make."""
        return frozenset(value for member in self.members for value in member.outputs)

    def reads(self) -> tuple[Operand, ...]:
        """Operands from outside; views of one value count at most as it; and what is received."""
        made = self.made
        shapes: dict[Value, list[tuple[int, ...]]] = {}
        for use in dict.fromkeys(use for member in self.members for use in member.uses):
            if use.value not in made:
                shapes.setdefault(use.value, []).append(use.shape)
        found = []
        for value, seen in shapes.items():
            small = len(seen) == 1 or sum(map(math.prod, seen)) < value.elements
            found += [_operand(value, shape) for shape in (seen if small else [value.shape])]
        received = (use for member in self.members for use in member.received)
        return (*found, *(_operand(use.value, use.shape) for use in received))

    def written(self, readers: Readers, results: frozenset[Value]) -> tuple[Value, ...]:
        """Values that leave the group: read elsewhere (in either pass), or results of the step."""
        nodes = {member.node for member in self.members}
        return tuple(
            value
            for member in self.members
            for value in member.outputs
            if value in results
            or any(reader.node not in nodes for reader in readers.get(value, ()))
        )

    def writes(self, readers: Readers, results: frozenset[Value]) -> tuple[Operand, ...]:
        """Operands of ``written``."""
        return tuple(_operand(value, value.shape) for value in self.written(readers, results))


def _operand(value: Value, shape: tuple[int, ...]) -> Operand:
    role = OperandRole.GRADIENT if value.gradient else OperandRole.ACTIVATION
    if value.source is Source.PARAMETER:
        role = OperandRole.PARAMETER
    # integers are positions of tokens
    elif value.node.op == "get_attr" and not value.dtype.startswith("int"):
        role = OperandRole.CONSTANT
    return Operand(shape, value.dtype, role)


def fuse(operators: tuple[TracedOperator, ...], readers: Readers) -> tuple[Group, ...]:
    """Group the operators of one layer and pass, in an executable order.

    An operator absorbs the readers of a value it makes when all of them (within the pass) are
    element-wise, belong to the same layer, are no larger than the value, and joining them closes no
    cycle. Collectives, products whose results devices add up piece by piece, and the border of the
    core attention, which selective recomputation runs on its own, are never crossed. Last, a bias
    gradient joins the weight-gradient product that reads the same output gradient, as the epilogue
    of GEMM libraries does (cuBLASLt BGRAD).
    """
    fusion = _Fusion(operators, readers)
    # late producers first: an addition joins the product that completes it
    for traced in reversed(operators):
        for value in traced.outputs:
            fusion.try_absorb(traced, value)
    for traced in operators:
        if traced.kind is OperatorKind.REDUCTION and traced.yields is Yields.WEIGHT_GRADIENT:
            fusion.try_join_product(traced)
    return fusion.ordered()


class _Fusion:
    """Groups of operators, numbered, in an executable order: ``slots``, with ``rank`` in it."""

    def __init__(self, operators: tuple[TracedOperator, ...], readers: Readers) -> None:
        self.operators = {traced.node: traced for traced in operators}
        self.readers = readers
        self.group = {traced.node: index for index, traced in enumerate(operators)}
        self.members = {index: [traced] for index, traced in enumerate(operators)}
        self.position = dict(self.group)
        self.followers: dict[int, set[int]] = {index: set() for index in self.members}
        for traced in operators:
            for value in traced.outputs:
                for reader in readers.get(value, ()):
                    if reader.node in self.operators and reader.node is not traced.node:
                        self.followers[self.group[traced.node]].add(self.group[reader.node])
        self.leaders: dict[int, set[int]] = {index: set() for index in self.members}
        for index, followers in self.followers.items():
            for follower in followers:
                self.leaders[follower].add(index)
        self.slots: list[int | None] = list(self.members)
        self.rank = dict(zip(self.members, self.members, strict=True))

    def try_absorb(self, producer: TracedOperator, value: Value) -> None:
        consumers = [
            reader for reader in self.readers.get(value, ()) if reader.backward == producer.backward
        ]
        if not consumers or producer.kind is OperatorKind.COLLECTIVE or producer.adds_up_pieces:
            return
        for reader in consumers:
            if reader.node not in self.operators or not _may_follow(producer, value, reader):
                return
        own = self.group[producer.node]
        joining = {self.group[reader.node] for reader in consumers} - {own}
        if any(each.kind not in _TAIL_KINDS for group in joining for each in self.members[group]):
            return
        self._merge(own, joining)

    def try_join_product(self, bias_gradient: TracedOperator) -> None:
        sources = {use.value for use in bias_gradient.uses}
        for product in self.operators.values():
            reads = {use.value for use in product.uses}
            gradient = product.yields is Yields.WEIGHT_GRADIENT
            if product.gemms and gradient and sources <= reads:
                self._merge(self.group[product.node], {self.group[bias_gradient.node]})
                return

    def _merge(self, own: int, joining: set[int]) -> None:
        """Join groups unless that closes a cycle."""
        joined = {own, *joining}
        if len(joined) == 1 or self._lead_around(joined):
            return
        ranks = [self.rank[group] for group in joined]
        sides = (self.followers, self.leaders), (self.leaders, self.followers)
        for group in joined - {own}:
            self.members[own] += self.members.pop(group)
            for neighbours, back in sides:
                for other in neighbours.pop(group):
                    back[other].discard(group)
                    if other not in joined:
                        neighbours[own].add(other)
                        back[other].add(own)
            self.slots[self.rank.pop(group)] = None
        self.group.update((traced.node, own) for traced in self.members[own])
        self._order(min(ranks), max(ranks))

    def _lead_around(self, joined: set[int]) -> bool:
        """Whether a path leads from one of the groups to another through others between them."""
        last = max(self.rank[group] for group in joined)
        pending = [other for group in joined for other in self.followers[group] - joined]
        seen = set(pending)
        while pending:
            for other in self.followers[pending.pop()]:
                if other in joined:
                    return True
                if other not in seen and self.rank[other] < last:
                    seen.add(other)
                    pending.append(other)
        return False

    def _order(self, first: int, last: int) -> None:
        """Put the groups from rank ``first`` to ``last`` into an executable order again."""
        inside = [group for group in self.slots[first : last + 1] if group is not None]
        among = set(inside)
        waiting = {group: len(self.leaders[group] & among) for group in inside}
        ready = [group for group in inside if not waiting[group]]
        self.slots[first : last + 1] = [None] * (last + 1 - first)
        for rank in range(first, first + len(inside)):
            group = ready.pop(0)
            self.slots[rank], self.rank[group] = group, rank
            for follower in self.followers[group]:
                if follower in waiting:
                    waiting[follower] -= 1
                    if not waiting[follower]:
                        ready.append(follower)

    def ordered(self) -> tuple[Group, ...]:
        for members in self.members.values():
            members.sort(key=lambda traced: self.position[traced.node])
        first = {index: self.position[each[0].node] for index, each in self.members.items()}
        waiting = {group: len(leaders) for group, leaders in self.leaders.items()}
        ready = [(first[group], group) for group, count in waiting.items() if not count]
        heapify(ready)
        order = []
        while ready:  # of those that wait for no other the one that begins first
            _, group = heappop(ready)
            order.append(Group(tuple(self.members[group])))
            for follower in self.followers[group]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    heappush(ready, (first[follower], follower))
        return tuple(order)


def _may_follow(producer: TracedOperator, value: Value, reader: TracedOperator) -> bool:
    return (
        reader.kind in _TAIL_KINDS
        and reader.core_attention == producer.core_attention
        and all(use.value.elements <= value.elements for use in reader.uses)
    )
