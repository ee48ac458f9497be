"""What a layer keeps for its backward pass, and the temporaries it needs beyond that, exactly as the traced graph has it.

A tensor is counted once, however many views of it are kept; parameters and buffers are not counted. A tensor kept by one
layer counts there, even if the layer before made it (a layer's input belongs to the layer that saves it); a tensor that
several layers keep or read, such as rotary tables, counts at its maker.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from torch.fx import Node

from GraphExtractor.fusion import Group, Readers
from GraphExtractor.graph import SavedBytes
from GraphExtractor.operators import TracedOperator
from GraphExtractor.values import Source, Value


@dataclass(frozen=True)
class Keeping:
    """Values one layer keeps under each recomputation mode."""

    none: frozenset[Value]
    selective: frozenset[Value]
    full: frozenset[Value]

    def bytes(self) -> SavedBytes:
        """Sizes of the three sets."""
        return SavedBytes(*(sum(value.bytes for value in kept) for kept in (self.none, self.selective, self.full)))


def keeping(operators: tuple[TracedOperator, ...], readers: Readers, layer_count: int) -> tuple[Keeping, ...]:
    """What each layer keeps."""
    by_node = {traced.node: traced for traced in operators}
    kept: list[set[Value]] = [set() for _ in range(layer_count)]
    entering: list[set[Value]] = [set() for _ in range(layer_count)]
    for value, users in readers.items():
        if value.backward or value.source is Source.PARAMETER or value.node.op == "get_attr":
            continue
        made_in = by_node[value.maker].layer if value.maker else None
        savers = sorted({user.layer for user in users if user.backward})
        if savers:
            kept[savers[0] if len(savers) == 1 or made_in is None else made_in].add(value)
        elsewhere = sorted({user.layer for user in users if not user.backward and user.layer != made_in})
        if elsewhere and value.source is not Source.CONSTANT:
            entering[elsewhere[0] if len(elsewhere) == 1 or made_in is None else made_in].add(value)
    return tuple(
        Keeping(frozenset(kept[layer]), _selective(kept[layer], layer, operators, readers, by_node), frozenset(entering[layer]))
        for layer in range(layer_count)
    )


def _selective(
    kept: Collection[Value],
    layer: int,
    operators: tuple[TracedOperator, ...],
    readers: Readers,
    by_node: Mapping[Node, TracedOperator],
) -> frozenset[Value]:
    core = [traced for traced in operators if traced.layer == layer and traced.core_attention]
    made = {value for traced in core for value in traced.outputs}
    inputs = {use.value for traced in core for use in traced.uses if use.value not in made}
    needed_elsewhere = {
        value
        for value in made
        for user in readers.get(value, ())
        if user.backward and not (user.forward and by_node[user.forward].core_attention)
    }
    return frozenset(value for value in {*kept, *inputs} if value not in made or value in needed_elsewhere)


def peak_temporaries(groups: tuple[Group, ...], readers: Readers, held: frozenset[Value]) -> int:
    """Largest sum of bytes live at once while one layer's pass runs in order, beyond what is ``held`` anyway.

    Tensors coming from other layers live until their last use, tensors leaving the layer until its end.
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
    return max((sum(v.bytes for v in born if born[v] <= step <= dies[v]) for step in range(len(groups))), default=0)
