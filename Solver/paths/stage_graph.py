"""The stages that a model's layers can be cut into, as a graph: nodes are what is left to place,
edges are stages, of which most are like others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from Estimator.plans.cuts import Crossing, crossing
from Estimator.plans.layer_costs import LayerSizes
from Estimator.plans.stage_totals import StageSizes, stage_sizes
from Estimator.plans.uniform_plans import numbered
from GraphExtractor.graph import ModelGraph
from phaze_common.array_types import FloatArray, IntArray
from Solver.paths.lattice import Lattice, lattice_of
from Solver.paths.layer_graph import edges_between


class Stages(NamedTuple):
    """Edges of the graph: edge e takes what ``whole[e]`` has and ``part[e]`` lacks. Nodes are sets
    of layers, small to large.

    The edges of node s are ``first[s]`` to ``first[s + 1]``; ``to_end[s]`` and ``from_start[s]``
    are those that hold all of node s, and all but node s (-1: none). ``depth[s]`` layers are in
    node s. In a ``chain`` stages grow as ``part`` shrinks. Stages with the same ``kind`` (edges,)
    take and hold the same but for their messages, so that what they cost has shape (kinds,).
    """

    first: IntArray
    whole: IntArray
    part: IntArray
    to_end: IntArray
    from_start: IntArray
    depth: IntArray
    chain: bool
    kind: IntArray


@dataclass(frozen=True, eq=False)
class StageGraph:
    """The stages of ``graph`` under one recomputation mode, with the sizes of every kind;
    ``tied_parameters`` are all layers' together."""

    graph: ModelGraph
    lattice: Lattice
    stages: Stages
    sizes: StageSizes
    crossing: Crossing  # into every node
    tied_parameters: float
    examples: IntArray  # (kinds,): an edge of each

    @property
    def nodes(self) -> int:
        """Sets of layers."""
        return len(self.lattice.members)

    @cached_property
    def ends(self) -> IntArray:
        """``whole``, ``part`` and ``kind`` of every stage, shape (edges, 3)."""
        return np.stack([self.stages.whole, self.stages.part, self.stages.kind], axis=1)

    @cached_property
    def spans(self) -> IntArray:
        """``first``, ``to_end`` and ``depth`` of every node, and one more for where the last one's
        stages end."""
        to_end, depth = (np.append(each, -1) for each in (self.stages.to_end, self.stages.depth))
        return np.stack([self.stages.first, to_end, depth], axis=1)

    def layers_of(self, nodes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Layers of the stages between successive ``nodes``, the first of which holds all layers
        and the last none."""
        members = self.lattice.members
        return tuple(
            tuple(np.flatnonzero(members[whole] & ~members[part]).tolist())
            for whole, part in pairwise(nodes)
        )

    def offloading(self, part: float) -> StageGraph:
        """The same stages where so great a ``part`` of the activations is in host memory."""
        if part == 0.0:
            return self
        return replace(self, sizes=self.sizes.offloading(part))

    @cached_property
    def _ends_of_examples(self) -> tuple[IntArray, IntArray]:
        return self.stages.whole[self.examples], self.stages.part[self.examples]

    @cached_property
    def _held(self) -> FloatArray:
        return self.lattice.members.astype(np.float64)

    def times(self, layers: FloatArray) -> FloatArray:
        """Seconds of every kind on each configuration, (configurations, 19, kinds), from those of
        the layers, ``time_columns`` (configurations, layers, 19)."""
        sums, (whole, part) = self._held @ layers, self._ends_of_examples
        of_examples = sums[:, whole] - sums[:, part]
        return np.ascontiguousarray(np.maximum(of_examples, 0.0).swapaxes(1, 2))


def stage_graph(graph: ModelGraph, sizes: LayerSizes, whole_bytes: FloatArray) -> StageGraph:
    """The stages of ``graph``; all there can be, unless its layers branch too much
    (``lattice.omitted``).

    ``whole_bytes`` (K, 3, 2) is what a device holds unsharded per parameter of a layer at work
    (``Estimator.plans.rates.whole_bytes``).
    """
    lattice = lattice_of(len(graph.sequence), edges_between(graph.tensors))
    nodes, whole = len(lattice.members), lattice.whole
    to_end, from_start = np.full(nodes, -1), np.full(nodes, -1)
    edges = np.arange(len(whole))
    to_end[whole[lattice.part == 0]] = edges[lattice.part == 0]
    from_start[lattice.part[whole == nodes - 1]] = edges[whole == nodes - 1]
    depth = lattice.members.sum(axis=1)
    _, examples, kind = np.unique(
        _kinds(lattice, whole, sizes), return_index=True, return_inverse=True
    )
    stages = Stages(
        lattice.first, whole, lattice.part, to_end, from_start, depth, lattice.chain, kind
    )
    crosses = crossing(graph.tensors, lattice.members)
    members = lattice.members[whole[examples]] & ~lattice.members[lattice.part[examples]]
    tied = float(sizes.tied_parameters[list(sizes.sequence)].sum())
    found = stage_sizes(sizes, members, whole_bytes)
    return StageGraph(graph, lattice, stages, found, crosses, tied, examples)


def _kinds(lattice: Lattice, whole: IntArray, sizes: LayerSizes) -> IntArray:
    """A number for every stage, the same of stages with as many layers of each kind, as many that
    save each shared tensor, and layers of the same kinds one after another, as these decide what is
    gathered ahead; shape (edges,)."""
    layers, part = sizes.distinct, lattice.part
    held = lattice.members.astype(np.float32)  # counts them exactly
    of_nodes = held @ np.column_stack([np.eye(len(sizes.parameters))[layers], sizes.shared_by])
    counts = of_nodes[whole] - of_nodes[part]
    following, pair = np.unique(
        layers[:-1] * len(sizes.parameters) + layers[1:], return_inverse=True
    )
    of_pairs = np.eye(len(following), dtype=np.float32)[pair.reshape(-1)]
    if lattice.chain:  # a pair of layers is in a stage if its first one is behind what is left
        together = (held[:, :-1] * held[:, 1:]) @ of_pairs
        pairs = together[whole] - (held[:, 1:] @ of_pairs)[part]
    else:
        members = lattice.members[whole] & ~lattice.members[part]
        pairs = (members[:, :-1] & members[:, 1:]) @ of_pairs
    return numbered([*counts.T.astype(np.int64), *(pairs.T > 0).astype(np.int64)])
