"""Seconds and joules that all layers of a graph take at least on every chip, from sums of the
prices of its cores.

One number per chip and recomputation mode: what a micro-batch takes at least to pass forward and
backward through all layers, one after another. Per operator a chip's price joins those of its
tensor cores and of its vector cores, which are few; so a million chips cost as much as some
thousand schedules (``Solver.schedule.concurrency``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from Estimator.chips.latency_table import LatencyTable
from GraphExtractor.graph import ModelGraph, OperatorGraph, Recompute
from phaze_common.array_types import FloatArray, IntArray, fieldwise
from phaze_common.recompute_modules import Recomputation
from Solver.designs.network_times import PassNetwork
from Solver.designs.work_sums import PassKind, WorkSums
from Solver.plans.least_iterations import Work

# How often each ``PassKind`` runs
PASSES: Mapping[Recomputation, tuple[float, ...]] = {  # modules are recomputed on devices alone
    Recompute.NONE: (1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0),
    Recompute.SELECTIVE: (1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0),
    Recompute.FULL: (1.0, 2.0, 1.0, 0.0, 2.0, 1.0, 0.0),
}
# By ``Work``
COUNTED = np.array(
    [(1, 1, 1, 1, 1, 1, 1), (0, 0, 0, 0, 1, 1, 1), (0, 0, 0, 0, 1, 0, 0)], dtype=np.float64
)


@dataclass(frozen=True, eq=False)
class LeastWork:
    """By kind of pass what all layers take at least, arrays of shape (kinds, chips)."""

    pass_s: FloatArray
    pass_j: FloatArray

    def of_micro_batch(self, mode: Recomputation) -> Work:
        """On one device under ``mode``: no less than without recomputation, which adds work."""
        asked, least = (COUNTED * PASSES[each] @ self.pass_s for each in (mode, Recompute.NONE))
        whole_s, alike_s, _ = np.maximum(asked, least)
        return Work(whole_s, alike_s, self.pass_s[PassKind.FREQUENT_FORWARD])

    def joules(self, mode: Recomputation) -> FloatArray:
        """The same in joules, shape (chips,)."""
        return np.array(PASSES[mode]) @ self.pass_j


@dataclass(frozen=True, eq=False)
class CoreWork:
    """What all layers take at least of the cores alone, without recomputation: seconds of tensor
    and of vector cores that add up.

    Arrays of shape (3, 3, tensor cores) and (3, 3, vector cores): by field of ``Work`` once with
    fused operators as long as their products, once as long as their vector work, once without what
    may run beside products (``WorkSums.of_products``). ``tensor_j`` and ``vector_j`` are joules,
    (tensor cores,) and (vector cores,)."""

    tensor_s: FloatArray
    vector_s: FloatArray
    tensor_j: FloatArray
    vector_j: FloatArray

    def times(self, factor: float) -> CoreWork:
        """So many times as much."""
        return fieldwise(lambda each: factor * each, self)

    def or_less(self, other: CoreWork) -> CoreWork:
        """The lesser of both, core by core."""
        return fieldwise(np.minimum, self, other)

    def on(self, tc_index: IntArray, vc_index: IntArray) -> tuple[Work, FloatArray]:
        """Seconds and joules (chips,) of chips with these cores."""
        seconds = (self.tensor_s[..., tc_index] + self.vector_s[..., vc_index]).max(axis=1)
        return Work(*seconds), self.tensor_j[tc_index] + self.vector_j[vc_index]


def core_work(graph: ModelGraph, table: LatencyTable, panels: int) -> CoreWork:
    """Of ``graph`` on the cores of ``table``, whatever the network: weaker than ``least_work``."""
    network = PassNetwork(lambda collective: 0.0, panels)
    sums = WorkSums(table, network)
    for operators, kind, repeats in _passes(graph):
        if PASSES[Recompute.NONE][kind]:
            sums.add(operators, kind, repeats)
    tensor_s, vector_s = (
        np.concatenate(each, axis=1)
        for each in zip(sums.of_cores(), sums.of_products(), strict=True)
    )
    return CoreWork(
        np.einsum("fk,kij->fij", COUNTED, tensor_s),
        np.einsum("fk,kij->fij", COUNTED, vector_s),
        sums.tensor_j.sum(axis=0),
        sums.vector_j.sum(axis=0),
    )


def least_work(graph: ModelGraph, table: LatencyTable, network: PassNetwork) -> LeastWork:
    """What no schedule of ``graph`` goes below on the chips of ``table``, which may hold bounds."""
    chips = table.accelerators
    sums = WorkSums(table, network)
    for operators, kind, repeats in _passes(graph):
        sums.add(operators, kind, repeats)
    pass_s, pass_j = sums.of_chips(), np.zeros((len(PassKind), len(chips)))
    sent_j = sums.sent_bytes[:, None] * table.sent_j_per_byte
    for kind in PassKind:
        pass_j[kind] = (
            sums.tensor_j[kind][chips.tc_index]
            + sums.vector_j[kind][chips.vc_index]
            + sent_j[kind][chips.variant]
        )
    return LeastWork(pass_s, pass_j)


def most_frequent(graph: ModelGraph) -> int:
    """The layer that most are, the first and the last left out; -1 where there are no others."""
    return max(Counter(graph.sequence[1:-1]).items(), key=lambda each: each[1], default=(-1, 0))[0]


def _passes(graph: ModelGraph) -> Iterator[tuple[OperatorGraph, PassKind, int]]:
    middle, ends = list(graph.sequence), []
    if len(middle) > 1:
        middle, ends = middle[1:-1], [middle[0], middle[-1]]
    frequent = most_frequent(graph)
    for index in dict.fromkeys(graph.sequence):
        layer = graph.layers[index]
        for operators in (layer.forward, layer.backward) if index in ends else ():
            yield operators, PassKind.ENDS, ends.count(index)
        if index in middle:
            count = middle.count(index)
            more = PassKind.FREQUENT_FORWARD - PassKind.FORWARD if index == frequent else 0
            yield layer.forward, PassKind(PassKind.FORWARD + more), count
            yield layer.backward, PassKind(PassKind.BACKWARD + more), count
            yield (
                layer.backward_graph(Recompute.SELECTIVE),
                PassKind(PassKind.BACKWARD_SELECTIVE + more),
                count,
            )
