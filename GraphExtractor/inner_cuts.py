"""Layers cut inside, wherever a single tensor passes: between attention and feed-forward, say.

A cut lies behind an operator when all that the layer does later needs just one value of what it did
before, and nothing that came into the layer and was read before (the residual stream, while a
branch beside it runs), unless layers behind this one need that too. Of the cuts between two
products with weights the last counts, so that every part has products of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from torch.fx import Node

from GraphExtractor.segments import LayerPlace, Segments, Stamp


def with_inner_cuts(
    found: Segments, stamps: Mapping[Node, Stamp], parameters: frozenset[Node]
) -> Segments:
    """The layers of ``found`` that are modules in parts; ``stamps`` are forward nodes in order."""
    nodes = _Nodes(stamps, parameters, found.layer)
    members: list[list[Node]] = [[] for _ in found.places]
    for node in stamps:
        members[found.layer[node]].append(node)
    places: list[LayerPlace] = []
    layer: dict[Node, int] = {}
    for place, mine in zip(found.places, members, strict=True):
        parts = nodes.parts(mine) if place.path else [mine]
        named = _names(place, parts, stamps, nodes)
        for number, part in enumerate(parts):
            layer.update(dict.fromkeys(part, len(places)))
            places.append(replace(place, name=named[number], part=number))
    return Segments(tuple(places), layer)


class _Nodes:
    """Forward nodes: those made from data, those made from weights alone, and who reads them."""

    def __init__(
        self, stamps: Mapping[Node, Stamp], parameters: frozenset[Node], layer: Mapping[Node, int]
    ) -> None:
        self.stamps, self.layer = stamps, layer
        self.weights = set(parameters)
        self.data: set[Node] = set()
        for node in stamps:
            sources = node.all_input_nodes
            given = {each for each in sources if each.op == "placeholder"} - parameters
            if given or any(source in self.data for source in sources):
                self.data.add(node)
            elif any(source in self.weights for source in sources):
                self.weights.add(node)

    def is_product(self, node: Node) -> bool:
        """Whether it multiplies data with a matrix of weights (or convolves with one)."""
        weights = (source for source in node.all_input_nodes if source in self.weights)
        return node in self.data and any(_dimensions(source) > 1 for source in weights)

    def reads_weights(self, node: Node) -> bool:
        """Whether it reads data and weights."""
        return node in self.data and any(each in self.weights for each in node.all_input_nodes)

    def parts(self, members: Sequence[Node]) -> list[list[Node]]:
        """The nodes of a layer by their part; what weights alone make goes with its reader."""
        place = {node: position for position, node in enumerate(members)}
        cuts = self._cuts(members, place)
        part = {node: sum(at > cut for cut in cuts) for node, at in place.items()}
        for node in reversed(members):
            if node in self.weights:
                users = [part[user] for user in node.users if user in part]
                part[node] = min(users, default=part[node])
        numbers = range(len(cuts) + 1)
        return [[node for node in members if part[node] == number] for number in numbers]

    def _cuts(self, members: Sequence[Node], place: Mapping[Node, int]) -> list[int]:
        """Positions behind which the layer is cut."""
        products = [position for position, node in enumerate(members) if self.is_product(node)]
        open_until = self._open_until(members, place)
        # values of the layer that are read behind a position, as differences
        crossing = [0] * (len(members) + 1)
        for node, position in place.items():
            last = max((place[user] for user in node.users if user in place), default=position)
            if node not in self.weights and last > position:
                crossing[position] += 1
                crossing[last] -= 1
        # of each gap between products, by the number of products before it
        cuts: dict[int, int] = {}
        passing = before = 0
        for position in range(len(members)):
            passing += crossing[position]
            before += before < len(products) and products[before] == position
            if passing == 1 and not open_until[position] and 0 < before < len(products):
                cuts[before] = position
        return list(cuts.values())

    def _open_until(self, members: Sequence[Node], place: Mapping[Node, int]) -> list[int]:
        """How many values from outside are read both up to a position and behind it."""
        reads: dict[Node, list[int]] = {}
        for node in members:
            for source in node.all_input_nodes:
                if source not in place and source in self.data:
                    reads.setdefault(source, []).append(place[node])
        mine = self.layer[members[0]] if members else 0
        steps = [0] * (len(members) + 1)
        for source, positions in reads.items():
            if all(self.layer[user] <= mine for user in source.users if user in self.layer):
                steps[positions[0]] += 1
                steps[positions[-1]] -= 1
        return list(accumulate(steps[:-1]))


def _dimensions(node: Node) -> int:
    value = node.meta.get("val")
    return value.dim() if hasattr(value, "dim") else 0


def _names(
    place: LayerPlace, parts: Sequence[Iterable[Node]], stamps: Mapping[Node, Stamp], nodes: _Nodes
) -> list[str]:
    """Names of a layer's parts: the module that most of its weights are read in, or a number."""
    if len(parts) == 1:
        return [place.name]
    paths = [
        [
            stamps[node].module.removeprefix(place.path).strip(".").split(".")
            for node in part
            if nodes.reads_weights(node)
        ]
        for part in parts
    ]
    every = [path for found in paths for path in found]
    shared = 0  # words that all paths begin with, short of their last ones
    while every and all(len(path) > shared + 1 for path in every):
        if len({path[shared] for path in every}) > 1:
            break
        shared += 1
    names = []
    for number, found in enumerate(paths):
        words = [next((word for word in path[shared:] if not word.isdigit()), "") for path in found]
        common = Counter(filter(None, words)).most_common(1)
        names.append(common[0][0] if common else f"part{number}")
    often = Counter(names)
    return [
        f"{place.name}.{name}" + (f"{number}" if often[name] > 1 else "")
        for number, name in enumerate(names)
    ]
