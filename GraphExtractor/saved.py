"""What a layer saves for its backward pass, and the temporaries it needs beyond that.

A layer saves what its backward operators read, whoever made it: its own results, its inputs, tables
and masks. A tensor counts once, however many views of it are saved; parameters and buffers do not
count. What several layers save is said besides, since layers on one device save it once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch.fx import Node

from GraphExtractor.fusion import Group, Readers
from GraphExtractor.graph import LessBytes, OperatorKind, SavedBytes, SharedTensor, Yields
from GraphExtractor.operators import TracedOperator
from GraphExtractor.values import Source, Value


@dataclass(frozen=True)
class SavedValues:
    """Values one layer saves under each recomputation mode."""

    none: frozenset[Value]
    selective: frozenset[Value]
    full: frozenset[Value]

    def bytes(self) -> SavedBytes:
        """Sizes of the three sets, and of what the last two lack of the first."""
        none, selective, full = map(_bytes, (self.none, self.selective, self.full))
        restored = _bytes(self.none - self.selective), _bytes(self.none - self.full)
        return SavedBytes(none, selective, full, *restored)


def _bytes(values: frozenset[Value]) -> int:
    return sum(value.bytes for value in values)


@dataclass(frozen=True)
class SharedValue:
    """A tensor that several layers save, and the ``readers`` among those that did not make it."""

    tensor: SharedTensor
    readers: tuple[int, ...]


def saved_values(
    operators: tuple[TracedOperator, ...], readers: Readers, layer_count: int
) -> tuple[SavedValues, ...]:
    """What each layer saves."""
    by_node = {traced.node: traced for traced in operators}
    backward = (traced for traced in operators if traced.backward)
    made_again = {each.forward for each in backward if each.yields is Yields.OUTPUT}

    def of_core(node: Node | None) -> bool:
        return node is not None and by_node[node].core_attention

    everything, selective, entering = ([set[Value]() for _ in range(layer_count)] for _ in range(3))
    for value, users in readers.items():
        if value.backward or value.source is Source.PARAMETER or value.node.op == "get_attr":
            continue
        maker = by_node[value.maker] if value.maker else None
        restored = maker is not None and (maker.core_attention or maker.node in made_again)
        for user in users:
            own = maker is not None and maker.layer == user.layer
            if user.backward:
                everything[user.layer].add(value)
                # what core attention makes for itself it makes again
                if not (own and of_core(value.maker) and of_core(user.forward)):
                    selective[user.layer].add(value)
                continue
            if user.core_attention and not restored:
                selective[user.layer].add(value)
            if value.source is not Source.CONSTANT and not own:
                entering[user.layer].add(value)
    sets = zip(everything, selective, entering, strict=True)
    return tuple(SavedValues(*map(frozenset, each)) for each in sets)


def _read_again(value: Value, layer: int, readers: Readers) -> list[TracedOperator]:
    return [user for user in readers.get(value, ()) if user.backward and user.layer == layer]


def less_in_fp8(layer: int, saved: SavedValues, readers: Readers) -> LessBytes:
    """What ``layer`` saves less where inputs of products are saved in fp8, one byte each.

    What nothing but products read again is saved so alone, whatever else reads it saves it as it is
    too. What sequence-parallel devices gather for a product they save, and gather, in the product's
    format (Transformer Engine, ``LayerNormLinear``).
    """

    def less(values: frozenset[Value]) -> int:
        total = 0
        for value in values:
            again = _read_again(value, layer, readers)
            products = [_multiplies(user, readers) for user in again]
            if any(products):
                total += (value.bytes if all(products) else 0) - value.elements
        return total

    return LessBytes(less(saved.none), less(saved.selective))


def _multiplies(operator: TracedOperator, readers: Readers) -> bool:
    """Whether it is a product, or gathers what nothing but products read."""
    if operator.kind is OperatorKind.COLLECTIVE:
        users = [user for made in operator.outputs for user in readers.get(made, ())]
        return bool(users) and all(_multiplies(user, readers) for user in users)
    return operator.kind is OperatorKind.GEMM and not operator.core_attention


def less_joined(
    layer: int, saved: SavedValues, operators: tuple[TracedOperator, ...], readers: Readers
) -> LessBytes:
    """What ``layer`` saves less where element-wise operators behind one another are one kernel.

    That is what such an operator made of nothing but what is saved, and nothing but such operators
    read again. What was drawn at random (a dropout's mask) nobody makes again.
    """
    makers = {
        value: traced for traced in operators if not traced.backward for value in traced.outputs
    }

    def less(values: frozenset[Value]) -> int:
        total = 0
        for value in values:
            maker = makers.get(value)
            if maker is None or torch.Tag.nondeterministic_seeded in maker.node.target.tags:
                continue
            joined = (maker, *_read_again(value, layer, readers))
            sources = (use.value for use in maker.uses)
            if all(each.kind is OperatorKind.ELEMENTWISE for each in joined) and all(
                each in values or each.source is Source.PARAMETER for each in sources
            ):
                total += value.bytes
        return total

    return LessBytes(less(saved.none), less(saved.selective))


def shared_values(
    operators: tuple[TracedOperator, ...], readers: Readers, saved: Sequence[SavedValues]
) -> tuple[SharedValue, ...]:
    """What more than one layer saves, in the order in which it is first read."""
    layer_of = {traced.node: traced.layer for traced in operators}
    modes: list[dict[Value, list[int]]] = [{value: [] for value in readers} for _ in range(3)]
    for layer, each in enumerate(saved):
        for mode, values in zip(modes, (each.none, each.selective, each.full), strict=True):
            for value in values:
                mode[value].append(layer)
    found = []
    for value, users in readers.items():
        layers = [tuple(mode[value]) for mode in modes]
        if len(set().union(*layers)) > 1:
            source = layer_of[value.maker] if value.maker else None
            others = tuple(sorted({user.layer for user in users} - {source}))
            found.append(SharedValue(SharedTensor(source, value.bytes, *layers), others))
    return tuple(found)


def live_temporaries(
    groups: tuple[Group, ...], readers: Readers, held: frozenset[Value]
) -> Iterator[int]:
    """Bytes live at once in a layer's pass, beyond what is ``held`` anyway, at each of ``groups``.

    Tensors from other layers live until their last use, tensors leaving the layer until its end.
    """
    inside = {member.node for group in groups for member in group.members}
    born: dict[Value, int] = {}
    dies: dict[Value, int] = {}
    for step, group in enumerate(groups):
        uses = {use.value for member in group.members for use in member.uses} - group.made
        for value in uses - held:
            if value.source is Source.OPERATOR:
                born.setdefault(value, 0)
                dies[value] = max(dies.get(value, 0), step)
        for value in group.written(readers, frozenset()):
            if value not in held:
                born[value] = step
                leaves = any(user.node not in inside for user in readers.get(value, ()))
                dies[value] = len(groups) if leaves else step
    changes = [0] * (len(groups) + 2)
    for value, first in born.items():
        changes[first] += value.bytes
        changes[dies[value] + 1] -= value.bytes
    return accumulate(changes[: len(groups)])
