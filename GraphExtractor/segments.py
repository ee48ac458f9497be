"""Which layer every traced operator belongs to.

A layer module makes a layer each time it runs. What runs between layer modules (embeddings, final
norms, heads, additions of skip connections) is grouped by the layers its data comes from, so that
nothing is tied together that does not depend on each other: the embedding of a decoder is a layer
of its own beside its encoder. Such a group is a layer where it has parameters, or brings branches
together; else it joins the layer it follows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
