"""Graphs of sizes between two that were traced, where a part of them follows no law from the first.

How devices exchange keys changes what attention does, and nothing of the other layers. A part of a
model that leaves the law of its sizes, as an embedding whose gradient is a sum over samples from
the second on, so is the same in graphs of both exchanges: as these have it between the ends, where
it is equal at both ends. All other parts follow their own law, as they do there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from GraphExtractor.graph import GraphKey, ModelGraph
from GraphExtractor.size_laws import SAMPLES, SizeLaw


def graphs_between(
    keys: Sequence[GraphKey], ends: tuple[ModelGraph, ModelGraph], beside: Sequence[ModelGraph]
) -> list[ModelGraph] | None:
    """The graphs of ``keys``, which differ in their micro-batch size, without the first and the
    last, which are ``ends``; ``beside`` are all those of another exchange. None where a part
    follows neither its law nor them."""
    made = []
    numbers_of_layers = {len(each.layers) for each in (*ends, *beside)}
    if len(numbers_of_layers) > 1:
        return None
    for place in range(numbers_of_layers.pop() + 1):
        low, high = (_part(each, place) for each in ends)
        found = _between(keys, low, high, [_part(each, place) for each in beside])
        if found is None:
            return None
        made.append(found)
    *layers, rest = made
    return [
        replace(graph, key=key, layers=tuple(each[number].layers[0] for each in layers))
        for number, (key, graph) in enumerate(zip(keys[1:-1], rest, strict=True))
    ]


def _between(
    keys: Sequence[GraphKey], low: ModelGraph, high: ModelGraph, beside: Sequence[ModelGraph]
) -> list[ModelGraph] | None:
    """A part between its ends, as ``graphs_between``."""
    law = SizeLaw.through(SAMPLES, beside[0], beside[-1])
    if law is None or not all(map(law.holds_for, beside[1:-1])):
        same = all(
            replace(mine, key=theirs.key) == theirs
            for mine, theirs in ((low, beside[0]), (high, beside[-1]))
        )
        return list(beside[1:-1]) if same else None
    own = SizeLaw.through(SAMPLES, low, high)
    found = [own.at(key.micro_batch_size) for key in keys[1:-1]] if own is not None else [None]
    there = [each for each in found if each is not None]
    return there if len(there) == len(found) else None


def _part(graph: ModelGraph, place: int) -> ModelGraph:
    """The layer at ``place`` alone; behind the last, all but the layers."""
    if place == len(graph.layers):
        return replace(graph, layers=())
    return replace(graph, layers=(graph.layers[place],), sequence=(), tensors=(), shared=())
