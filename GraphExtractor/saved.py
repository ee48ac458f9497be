"""What a layer keeps for its backward pass, and the temporaries it needs beyond that, exactly as the traced graph has it.

A layer keeps what its backward operators read, whoever made it: its own results, its inputs, tables and masks. A tensor
counts once, however many views of it are kept; parameters and buffers do not count. What several layers keep is told besides,
since layers on one device keep it once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch.fx import Node

from GraphExtractor.fusion import Group, Readers
from GraphExtractor.graph import SavedBytes, SharedTensor, Yields
from GraphExtractor.operators import TracedOperator
from GraphExtractor.values import Source, Value


@dataclass(frozen=True)
class Keeping:
    """Values one layer keeps under each recomputation mode."""

    none: frozenset[Value]
    selective: frozenset[Value]
    full: frozenset[Value]

    def bytes(self) -> SavedBytes:
        """Sizes of the three sets, and of what the last two lack of the first."""
        kept = self.none, self.selective, self.full, self.none - self.selective, self.none - self.full
        return SavedBytes(*(sum(value.bytes for value in values) for values in kept))


@dataclass(frozen=True)
class Shared:
    """A tensor that several layers of a trace keep, and the ``readers`` among the layers that did not make it."""

    tensor: SharedTensor
    readers: tuple[int, ...]


def keeping(operators: tuple[TracedOperator, ...], readers: Readers, layer_count: int) -> tuple[Keeping, ...]:
    """What each layer keeps."""
    by_node = {traced.node: traced for traced in operators}
    made_again = {traced.forward for traced in operators if traced.backward and traced.yields is Yields.OUTPUT}
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
                if not (own and _of_core(value.maker, by_node) and _of_core(user.forward, by_node)):  # which core makes again
                    selective[user.layer].add(value)
                continue
            if user.core_attention and not (maker is not None and (maker.core_attention or maker.node in made_again)):
                selective[user.layer].add(value)
            if value.source is not Source.CONSTANT and not own:
                entering[user.layer].add(value)
    return tuple(Keeping(*map(frozenset, sets)) for sets in zip(kept, selective, entering, strict=True))


def _of_core(node: Node | None, by_node: Mapping[Node, TracedOperator]) -> bool:
    return node is not None and by_node[node].core_attention


def shared(operators: tuple[TracedOperator, ...], readers: Readers, kept: Sequence[Keeping]) -> tuple[Shared, ...]:
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
            found.append(Shared(SharedTensor(source, value.bytes, *map(tuple, keepers[value])), others))
    return tuple(found)


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
