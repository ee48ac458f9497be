"""Which layer every traced operator belongs to.

A layer module makes a layer each time it runs. What runs between layer modules (embeddings, final
norms, heads, additions of skip connections) is grouped by the layers its data comes from, so that
nothing is tied together that does not depend on each other: the embedding of a decoder is a layer
of its own beside its encoder. Such a group is a layer where it has parameters, or brings branches
together; else it joins the layer it follows.

Layers can be cut inside, wherever a single tensor passes: between attention and feed-forward, say.
A cut lies behind an operator when all that the layer does later needs just one value of what it did
before, and nothing that came into the layer and was read before (the residual stream, while a
branch beside it runs), unless layers behind this one need that too. Of the cuts between two
products with weights the last counts, so that every part has products of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from torch.fx import Node

from GraphExtractor.layer_modules import LayerModule


@dataclass(frozen=True)
class LayerPlace:
    """A layer of a trace: its name, the path of its module ("": between modules), and its part."""

    name: str
    path: str
    part: int = 0


@dataclass(frozen=True)
class Stamp:
    """Where a forward node was traced: ``inside`` or behind a ``run`` (0: before the first)."""

    run: int
    inside: bool
    module: str


@dataclass(frozen=True)
class Segments:
    """The layers of a trace in execution order, and the position of every forward node's layer."""

    places: tuple[LayerPlace, ...]
    layer: Mapping[Node, int]


@dataclass(frozen=True)
class _Group:
    """Nodes between layer modules whose data comes from the same runs (bits of ``sources``)."""

    run: int
    sources: int


def segments(
    stamps: Mapping[Node, Stamp], runs: Sequence[LayerModule], parameters: frozenset[Node]
) -> Segments:
    """Divide forward nodes, in order, into layers; ``runs[i]`` is the module of run i + 1."""
    sources = _Sources(stamps, len(runs), parameters)
    groups: dict[_Group, list[Node]] = {}
    # made from nothing but parameters and constants: they go with what reads them first
    late: list[Node] = []
    for node, stamp in stamps.items():
        if stamp.inside:
            continue
        if stamp.run and node not in sources.data:
            late.append(node)
        else:
            groups.setdefault(_Group(stamp.run, sources.of[node]), []).append(node)
    weights = parameters | frozenset(late)
    with_parameters = {
        group
        for group, nodes in groups.items()
        if any(weights.intersection(node.all_input_nodes) for node in nodes)
    }
    keys: list[_Group | int] = []  # layers in execution order: groups, and runs by number
    for run in range(len(runs) + 1):
        keys += [run] if run else []
        layers = [
            group
            for group in groups
            if group.run == run
            and not _joins(group, sources, with_parameters)
            and (group.sources or run == 0 or group in with_parameters)
        ]
        # groups behind the same run feed each other only from fewer sources to more
        layers.sort(key=lambda group: group.sources.bit_count())
        keys += layers
    position = {key: index for index, key in enumerate(keys)}
    layer = {node: position[stamp.run] for node, stamp in stamps.items() if stamp.inside}
    for group, nodes in groups.items():
        if group in position:
            layer.update(dict.fromkeys(nodes, position[group]))
        elif group.sources:
            layer.update(dict.fromkeys(nodes, position[group.run]))
        else:
            late += nodes
    for node in sorted(late, reverse=True):
        users = [layer[user] for user in node.users if user in layer]
        layer[node] = min(users, default=position.get(stamps[node].run, 0))
    places = [_place(key, runs, groups, stamps, parameters, last=key == keys[-1]) for key in keys]
    return Segments(tuple(places), layer)


class _Sources:
    """The runs that every node's data comes from, as bits; a run's results come from it too.

    ``data`` are the nodes made from more than parameters and constants.
    """

    def __init__(
        self, stamps: Mapping[Node, Stamp], runs: int, parameters: frozenset[Node]
    ) -> None:
        self.of: dict[Node, int] = {}
        self.run = [0] * (runs + 1)
        self.data: set[Node] = set()
        for node, stamp in stamps.items():
            found = 0
            for source in node.all_input_nodes:
                made = stamps.get(source)
                if made is not None:
                    found |= self.run[made.run] | 1 << made.run if made.inside else self.of[source]
                if source in self.data or (source.op == "placeholder" and source not in parameters):
                    self.data.add(node)
            if stamp.inside:
                self.run[stamp.run] |= found & ~(1 << stamp.run)
            self.of[node] = found


def _joins(group: _Group, sources: _Sources, with_parameters: set[_Group]) -> bool:
    """Whether a group only goes on with the run it follows."""
    if group in with_parameters or not group.sources >> group.run & 1 or not group.run:
        return False
    return not group.sources & ~(sources.run[group.run] | 1 << group.run)


def _place(
    key: _Group | int,
    runs: Sequence[LayerModule],
    groups: Mapping[_Group, Sequence[Node]],
    stamps: Mapping[Node, Stamp],
    parameters: frozenset[Node],
    *,
    last: bool,
) -> LayerPlace:
    if isinstance(key, int):
        return LayerPlace(runs[key - 1].name, runs[key - 1].path)
    if key.run == 0:
        return LayerPlace("embedding" if runs else "model", "")
    if last:
        return LayerPlace("head", "")
    nodes = groups[key]
    named = [node for node in nodes if parameters.intersection(node.all_input_nodes)]
    modules = [stamps[node].module for node in (*named, *nodes)]
    return LayerPlace(next(filter(None, modules), "joint"), "")


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
