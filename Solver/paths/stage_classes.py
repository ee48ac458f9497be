"""Stages that cost the same wherever they stand: their layers are alike, in order, and so is what
they keep together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from Estimator.plans.cuts import Crossing, crossing
from GraphExtractor.graph import ModelGraph, Recompute
from phaze_common.array_types import IntArray
from phaze_common.recompute_modules import Recomputation
from Solver.paths.lattice import Lattice, lattice_of
from Solver.paths.layer_graph import edges_between


@dataclass(frozen=True, eq=False)
class StageClasses:
    """The stages of a model, edges of ``lattice``, by class.

    ``class_of`` (edges,) numbers the classes, ``layers`` are those of one stage of each class, in
    execution order. ``crossing`` is that of the model's first graph, into every node.
    """

    lattice: Lattice
    class_of: IntArray
    layers: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.layers)

    def crossing(self, graph: ModelGraph) -> Crossing:
        """What crosses into every node, on a device of the stage before, arrays of shape
        (nodes,)."""
        return crossing(graph.tensors, self.lattice.members)


def stage_classes(graphs: Sequence[ModelGraph], modes: Sequence[Recomputation]) -> StageClasses:
    """Classes of the stages of a model that was traced as ``graphs`` and is recomputed in one of
    ``modes``."""
    first = graphs[0]
    lattice = lattice_of(len(first.sequence), edges_between(first.tensors))
    ends = {0, len(first.sequence) - 1}
    kinds = [(index, place in ends) for place, index in enumerate(first.sequence)]
    kept = _kept_together(graphs, modes)
    numbers: dict[object, int] = {}  # of a class by all that its stages have in common
    layers: list[tuple[int, ...]] = []
    class_of = np.empty(len(lattice.part), np.int64)
    members = lattice.members
    for edge, (whole, part) in enumerate(zip(lattice.whole, lattice.part, strict=True)):
        own = tuple(np.flatnonzero(members[whole] & ~members[part]).tolist())
        place = {layer: number for number, layer in enumerate(own)}
        patterns = []
        for kind, keepers in kept or ():
            inside = tuple(tuple(place[at] for at in each if at in place) for each in keepers)
            if any(inside):
                patterns.append((kind, inside))
        key: object = edge
        if kept is not None:
            own_kinds = tuple(kinds[layer] for layer in own)
            key = own_kinds, tuple(np.diff(own) == 1), tuple(sorted(patterns))
        if key not in numbers:
            numbers[key] = len(layers)
            layers.append(own)
        class_of[edge] = numbers[key]
    return StageClasses(lattice, class_of, tuple(layers))


def _kept_together(
    graphs: Sequence[ModelGraph], modes: Sequence[Recomputation]
) -> list[tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]] | None:
    """Of every tensor that layers keep together its bytes in each graph, and the layers that keep
    it under each mode.

    None where graphs differ in which layers these are.
    """
    every = (Recompute.NONE, *modes)

    def keepers_in(graph: ModelGraph) -> list[tuple[tuple[int, ...], ...]]:
        return [tuple(tuple(sorted(each.kept_by(mode))) for mode in every) for each in graph.shared]

    keepers = [keepers_in(graph) for graph in graphs]
    if any(each != keepers[0] for each in keepers[1:]):
        return None
    return [
        (tuple(graph.shared[number].bytes for graph in graphs), each)
        for number, each in enumerate(keepers[0])
    ]
