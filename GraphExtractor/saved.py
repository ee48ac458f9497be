"""What a layer keeps for its backward pass, and the temporaries it needs beyond that, exactly as the traced graph has it.

A tensor is counted once, however many views of it are kept; parameters and buffers are not counted. A tensor kept by one
layer counts there, even if the layer before made it (a layer's input belongs to the layer that saves it); a tensor that
several layers keep or read, such as rotary tables, counts at its maker.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from torch.fx import Node

from GraphExtractor.fusion import Group, Readers
from GraphExtractor.graph import SavedBytes, Yields
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
    made_again = {traced.forward for traced in operators if traced.backward and traced.yields is Yields.OUTPUT}
    kept: list[set[Value]] = [set() for _ in range(layer_count)]
    of_core: list[set[Value]] = [set() for _ in range(layer_count)]  # what core attention reads from outside
    entering: list[set[Value]] = [set() for _ in range(layer_count)]

    def count(users: Iterable[TracedOperator], layers: list[set[Value]], value: Value, maker: TracedOperator | None) -> None:
        found = sorted({user.layer for user in users})
        if found:
            layers[found[0] if len(found) == 1 or maker is None else maker.layer].add(value)

    for value, users in readers.items():
        if value.backward or value.source is Source.PARAMETER or value.node.op == "get_attr":
            continue
        maker = by_node[value.maker] if value.maker else None
        forward = [user for user in users if not user.backward]
        count((user for user in users if user.backward), kept, value, maker)
        if maker is None or not (maker.core_attention or maker.node in made_again):
            count((user for user in forward if user.core_attention), of_core, value, maker)
        if value.source is not Source.CONSTANT:
            count((user for user in forward if maker is None or user.layer != maker.layer), entering, value, maker)
    return tuple(
        Keeping(frozenset(kept[layer]), _selective(kept[layer], readers, by_node) | of_core[layer], frozenset(entering[layer]))
        for layer in range(layer_count)
    )


def _selective(kept: Collection[Value], readers: Readers, by_node: Mapping[Node, TracedOperator]) -> frozenset[Value]:
    """What core attention does not make again, or something else in the backward pass needs."""

    def of_core(node: Node | None) -> bool:
        return node is not None and by_node[node].core_attention

    return frozenset(
        value
        for value in kept
        if not of_core(value.maker) or any(user.backward and not of_core(user.forward) for user in readers.get(value, ()))
    )


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
