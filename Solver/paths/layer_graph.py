"""Which layers need which: the order that the tensors between layers leave open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from GraphExtractor.graph import LayerTensor

Edge = tuple[int, int]  # producer and consumer, by their place in execution order


def edges_between(tensors: Iterable[LayerTensor]) -> tuple[Edge, ...]:
    """The (producer, consumer) pairs of ``tensors``, sorted."""
    return tuple(sorted({(each.source, end) for each in tensors for end in each.destinations}))


def is_chain(layers: int, edges: Iterable[Edge]) -> bool:
    """Whether the edges leave one order of the layers only, whatever else they skip over.

    All edges lead forwards in execution order, so a path from one layer to the next can only be an
    edge between the two.
    """
    return {(layer, layer + 1) for layer in range(layers - 1)} <= set(edges)


def runs(layers: int, edges: Iterable[Edge]) -> list[list[int]]:
    """The layers grouped into unbranched runs: within one, each layer has one direct predecessor
    and one direct successor.

    Edges that a longer path makes superfluous (skip connections) do not count. The runs partition
    the layers.
    """
    after = [0] * layers
    for source, end in edges:
        after[source] |= 1 << end
    beyond = [0] * layers  # everything that needs the layer, as bits
    direct = list(after)
    for layer in reversed(range(layers)):
        for end in _bits(after[layer]):
            direct[layer] &= ~beyond[end]
            beyond[layer] |= 1 << end | beyond[end]
    before = [0] * layers
    for layer in range(layers):
        for end in _bits(direct[layer]):
            before[end] += 1
    grouped: dict[int, list[int]] = {}  # by last layer
    for layer in range(layers):
        previous = [last for last in grouped if direct[last] == 1 << layer and before[layer] == 1]
        run = grouped.pop(previous[0]) if previous else []
        grouped[layer] = [*run, layer]
    return sorted(grouped.values())


def edges_between_groups(groups: Sequence[int], edges: Iterable[Edge]) -> list[Edge]:
    """The edges between groups of layers, each given as bits, that ``edges`` between their layers
    make."""
    home = {layer: group for group, layers in enumerate(groups) for layer in _bits(layers)}
    between = {(home[source], home[end]) for source, end in edges}
    return sorted(edge for edge in between if edge[0] != edge[1])


def _bits(mask: int) -> Iterable[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
