"""What a layer keeps for its backward pass, and the temporaries it needs beyond that, exactly as
the traced graph has it.

A layer keeps what its backward operators read, whoever made it: its own results, its inputs, tables
and masks. A tensor counts once, however many views of it are kept; parameters and buffers do not
count. What several layers keep is told besides, since layers on one device keep it once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.fx import Node

from GraphExtractor.fusion import Group, Readers
from GraphExtractor.graph import LessBytes, OperatorKind, SavedBytes, SharedTensor, Yields
from GraphExtractor.operators import TracedOperator
from GraphExtractor.values import Source, Value


@dataclass(frozen=True)
class Kept:
    """Values one layer keeps under each recomputation mode."""

    none: frozenset[Value]
    selective: frozenset[Value]
    full: frozenset[Value]

    def bytes(self) -> SavedBytes:
        """Sizes of the three sets, and of what the last two lack of the first."""
        none, selective, full = map(_bytes, (self.none, self.selective, self.full))
        return SavedBytes(
            none, selective, full, _bytes(self.none - self.selective), _bytes(self.none - self.full)
        )


def _bytes(values: frozenset[Value]) -> int:
    return sum(value.bytes for value in values)


@dataclass(frozen=True)
class Shared:
    """A tensor that several layers of a trace keep, and the ``readers`` among the layers that did
    not make it."""

    tensor: SharedTensor
    readers: tuple[int, ...]


def keeping(
    operators: tuple[TracedOperator, ...], readers: Readers, layer_count: int
) -> tuple[Kept, ...]:
    """What each layer keeps."""
    by_node = {traced.node: traced for traced in operators}
    made_again = {
        traced.forward for traced in operators if traced.backward and traced.yields is Yields.OUTPUT
    }
    kept: list[set[Value]] = [set() for _ in range(layer_count)]
    selective: list[set[Value]] = [set() for _ in range(layer_count)]
    entering: list[set[Value]] = [set() for _ in range(layer_count)]
    for value, users in readers.items():
        if value.backward or value.source is Source.PARAMETER or value.node.op == "get_attr":
            continue
        maker = by_node[value.maker] if value.maker else None
        for user in users:
            own = maker is not None and maker.layer == user.layer
            if user.backward:
                kept[user.layer].add(value)
                if not (
                    own and _of_core(value.maker, by_node) and _of_core(user.forward, by_node)
                ):  # which core makes again
                    selective[user.layer].add(value)
                continue
            if user.core_attention and not (
                maker is not None and (maker.core_attention or maker.node in made_again)
            ):
                selective[user.layer].add(value)
            if value.source is not Source.CONSTANT and not own:
                entering[user.layer].add(value)
    return tuple(
        Kept(*map(frozenset, sets)) for sets in zip(kept, selective, entering, strict=True)
    )


def _of_core(node: Node | None, by_node: Mapping[Node, TracedOperator]) -> bool:
    return node is not None and by_node[node].core_attention


def less_in_fp8(layer: int, kept: Kept, readers: Readers) -> LessBytes:
    """What ``layer`` keeps less where inputs of products are kept in fp8, one byte each.

    What nothing but products read again is kept so alone, whatever else reads it keeps it as it is
    too. What sequence-parallel devices gather for a product they keep, and gather, in the product's
    format (Transformer Engine, ``LayerNormLinear``).
    """

    def less(values: frozenset[Value]) -> int:
        total = 0
        for value in values:
            again = [
                user for user in readers.get(value, ()) if user.backward and user.layer == layer
            ]
            products = [_multiplies(user, readers) for user in again]
            total += (
                (value.bytes - value.elements)
                if all(products) and again
                else -value.elements
                if any(products)
                else 0
            )
        return total

    return LessBytes(less(kept.none), less(kept.selective))


def _multiplies(operator: TracedOperator, readers: Readers) -> bool:
    """Whether it is a product, or gathers what nothing but products read."""
    if operator.kind is OperatorKind.COLLECTIVE:
        users = [user for made in operator.outputs for user in readers.get(made, ())]
        return bool(users) and all(_multiplies(user, readers) for user in users)
    return operator.kind is OperatorKind.GEMM and not operator.core_attention


def less_joined(
    layer: int, kept: Kept, operators: tuple[TracedOperator, ...], readers: Readers
) -> LessBytes:
    """What ``layer`` keeps less where element-wise operators behind one another are one kernel.

    That is what such an operator made of nothing but what is kept, and nothing but such operators
    read again. What was drawn at random (a dropout's mask) nobody makes again.
    """
    makers = {
        value: traced for traced in operators if not traced.backward for value in traced.outputs
    }

    def less(values: frozenset[Value]) -> int:
        total = 0
        for value in values:
            maker = makers.get(value)
            again = [
                user for user in readers.get(value, ()) if user.backward and user.layer == layer
            ]
            if (
                maker is None
                or _draws(maker)
                or any(each.kind is not OperatorKind.ELEMENTWISE for each in (maker, *again))
            ):
                continue
            if all(
                use.value in values or use.value.source is Source.PARAMETER for use in maker.uses
            ):
                total += value.bytes
        return total

    return LessBytes(less(kept.none), less(kept.selective))


def _draws(operator: TracedOperator) -> bool:
    return torch.Tag.nondeterministic_seeded in operator.node.target.tags


def shared(
    operators: tuple[TracedOperator, ...], readers: Readers, kept: Sequence[Kept]
) -> tuple[Shared, ...]:
    """What more than one layer keeps, in the order in which it is first read."""
    by_node = {traced.node: traced for traced in operators}
    keepers: dict[Value, tuple[list[int], list[int], list[int]]] = {}
    for layer, each in enumerate(kept):
        for mode, values in enumerate((each.none, each.selective, each.full)):
            for value in values:
                keepers.setdefault(value, ([], [], []))[mode].append(layer)
    found = []
    for value in readers:
        if value in keepers and len({layer for layers in keepers[value] for layer in layers}) > 1:
            source = by_node[value.maker].layer if value.maker else None
            others = tuple(sorted({user.layer for user in readers[value]} - {source}))
            found.append(
                Shared(SharedTensor(source, value.bytes, *map(tuple, keepers[value])), others)
            )
    return tuple(found)


def peak_temporaries(groups: tuple[Group, ...], readers: Readers, held: frozenset[Value]) -> int:
    """Largest sum of bytes live at once while one layer's pass runs in order, beyond what is
    ``held`` anyway.

    Tensors coming from other layers live until their last use, tensors leaving the layer until its
    end.
    """
    inside = {member.node for group in groups for member in group.members}
    born: dict[Value, int] = {}
    dies: dict[Value, int] = {}
    for step, group in enumerate(groups):
        made = group.made
        for value in {use.value for member in group.members for use in member.uses} - made:
            if value.source is Source.OPERATOR and value not in held:
                born.setdefault(value, 0)
                dies[value] = max(dies.get(value, 0), step)
        for value in group.written(readers, frozenset()):
            if value not in held:
                born[value] = step
                leaves = any(user.node not in inside for user in readers.get(value, ()))
                dies[value] = len(groups) if leaves else step
    return max(
        (sum(v.bytes for v in born if born[v] <= step <= dies[v]) for step in range(len(groups))),
        default=0,
    )
