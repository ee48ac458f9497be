"""Seconds and joules that all layers of a graph take at least on every chip, from sums of the prices of its cores.

One number per chip and recomputation mode: what a micro-batch takes at least to pass forward and backward through all layers, one
after another. Per operator a chip's price joins those of its tensor cores and of its vector cores, which are few; so a million
chips cost as much as some thousand schedules (``Solver.schedule.beside``).
"""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from Common.threads import threads
from Estimator.chips.latency_table import LatencyTable
from Estimator.chips.part_prices import Lookup
from Estimator.chips.signatures import sent_bytes
from Estimator.chips.tensor_core import CorePrices
from GraphExtractor.graph import ModelGraph, OperatorGraph, Recompute
from Plans.compiled import outer
from Solver.schedule.beside import Beside, beside
from Solver.schedule.problem import CoreType
from Solver.search.network_times import PassNetwork, schedule_structure

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

ROWS_PER_TASK = 65536


class _Kind(IntEnum):
    """Passes that recomputation modes add up differently."""

    ENDS = 0  # forward and backward of the first and the last layer, which keep their activations
    FORWARD = 1
    BACKWARD = 2
    BACKWARD_SELECTIVE = 3


PASSES = {
    Recompute.NONE: (1.0, 1.0, 1.0, 0.0),
    Recompute.SELECTIVE: (1.0, 1.0, 0.0, 1.0),
    Recompute.FULL: (1.0, 2.0, 1.0, 0.0),
}  # how often each ``_Kind`` runs


@dataclass(frozen=True, eq=False)
class LeastWork:
    """By kind of pass what all layers take at least, arrays of shape (kinds, chips)."""

    pass_s: FloatArray
    pass_j: FloatArray

    def seconds(self, mode: Recompute) -> FloatArray:
        """Of a micro-batch on one device under ``mode``, shape (chips,): no less than without recomputation, which adds work."""
        seconds: FloatArray = np.maximum(np.array(PASSES[mode]) @ self.pass_s, np.array(PASSES[Recompute.NONE]) @ self.pass_s)
        return seconds

    def joules(self, mode: Recompute) -> FloatArray:
        """The same in joules."""
        return np.array(PASSES[mode]) @ self.pass_j


@dataclass(frozen=True, eq=False)
class CoreWork:
    """What all layers take at least of the cores alone, without recomputation: seconds of tensor and of vector cores that add up.

    Arrays of shape (2, tensor cores) and (2, vector cores): once with fused operators as long as their products, once as long as
    their vector work. ``tensor_j`` and ``vector_j`` are joules, (tensor cores,) and (vector cores,).
    """

    tensor_s: FloatArray
    vector_s: FloatArray
    tensor_j: FloatArray
    vector_j: FloatArray

    def times(self, factor: float) -> CoreWork:
        """So many times as much."""
        return CoreWork(*(factor * getattr(self, each.name) for each in fields(self)))

    def or_less(self, other: CoreWork) -> CoreWork:
        """The lesser of both, core by core."""
        return CoreWork(*(np.minimum(getattr(self, each.name), getattr(other, each.name)) for each in fields(self)))


def core_work(graph: ModelGraph, table: LatencyTable, panels: int) -> CoreWork:
    """Of ``graph`` on the cores of ``table``, whatever the network: a weaker bound than ``least_work`` for any pair of cores."""
    sums = _Sums(table, PassNetwork(lambda collective: 0.0, panels))
    for operators, kind, repeats in _passes(graph):
        if kind is not _Kind.BACKWARD_SELECTIVE:
            sums.add(operators, kind, repeats)
    return sums.of_cores()


def least_work(graph: ModelGraph, table: LatencyTable, network: PassNetwork) -> LeastWork:
    """What no schedule of ``graph`` goes below on the chips of ``table``, whose prices may be bounds themselves."""
    chips = table.accelerators
    sums = _Sums(table, network)
    for operators, kind, repeats in _passes(graph):
        sums.add(operators, kind, repeats)
    pass_s, pass_j = np.zeros((2, len(_Kind), len(chips)))
    arrays = sums.arrays()
    cores = (chips.tc_index, chips.vc_index, chips.num_tc, chips.num_vc, sums.network_of)

    def fill(part: slice) -> None:
        _fill_seconds(*arrays, *(each[part] for each in cores), pass_s[:, part])

    with ThreadPoolExecutor(threads()) as pool:
        for done in [pool.submit(fill, slice(first, first + ROWS_PER_TASK)) for first in range(0, len(chips), ROWS_PER_TASK)]:
            done.result()
    sent_j = sums.sent_bytes[:, None] * table.sent_j_per_byte
    for kind in _Kind:
        pass_j[kind] = sums.tensor_j[kind][chips.tc_index] + sums.vector_j[kind][chips.vc_index] + sent_j[kind][chips.variant]
    return LeastWork(pass_s, pass_j)


def _passes(graph: ModelGraph) -> Iterator[tuple[OperatorGraph, _Kind, int]]:
    """Every distinct pass with how many layers have it."""
    middle, ends = list(graph.sequence), []
    if len(middle) > 1:
        middle, ends = middle[1:-1], [middle[0], middle[-1]]
    for index in dict.fromkeys(graph.sequence):
        layer = graph.layers[index]
        for operators in (layer.forward, layer.backward) if index in ends else ():
            yield operators, _Kind.ENDS, ends.count(index)
        if index in middle:
            yield layer.forward, _Kind.FORWARD, middle.count(index)
            yield layer.backward, _Kind.BACKWARD, middle.count(index)
            yield layer.backward_graph(Recompute.SELECTIVE), _Kind.BACKWARD_SELECTIVE, middle.count(index)


@dataclass(eq=False)
class _Group:
    """Operators of a pass beside which as much may run: sums of their prices on all cores, weighted by how often they run."""

    kind: _Kind
    beside: Beside
    tensor_s: FloatArray  # (tensor cores,), of operators without vector work
    vector_s: FloatArray  # (vector cores,), of operators without products
    waiting_s: FloatArray  # (networks,)
    fused: dict[tuple[int, int], float] = field(default_factory=dict)  # how often: places of products and of their vector work


class _Sums:
    """Sums of prices of operators by what may run beside them, and the largest ratios of prices on all cores and on one."""

    def __init__(self, table: LatencyTable, network: PassNetwork) -> None:
        self._table, self._network = table, network
        self._tensor_cores, self._vector_cores = len(table.accelerators.tensor_cores), len(table.accelerators.vector_cores)
        self._of_networks, self.network_of = network.distinct(len(table.accelerators))
        self._groups: dict[tuple[_Kind, Beside], _Group] = {}
        self._tensor_all = np.minimum(table.tensor.all_s, table.tensor.single_s)
        self._vector_all = np.minimum(table.vector.all_s, table.vector.single_s)
        self.tensor_share = np.zeros(self._tensor_cores)  # the most that an operator's seconds on all cores are of those on one
        self.vector_share = np.zeros(self._vector_cores)
        self.fused_share = np.zeros(self._vector_cores)
        self.tensor_j = np.zeros((len(_Kind), self._tensor_cores))
        self.vector_j = np.zeros((len(_Kind), self._vector_cores))
        self.sent_bytes = np.zeros(len(_Kind))

    def add(self, operators: OperatorGraph, kind: _Kind, repeats: int) -> None:
        """A pass that so many layers have."""
        if not operators.operators:
            return
        table, panels = self._table, self._network.panels
        at = Lookup.of(operators, table.work, table.accelerators, np.zeros(0, np.int64))
        structure = schedule_structure(operators)
        waiting = [place for place, each in enumerate(operators.operators) if each.collective is not None]
        waits_s = dict(zip(waiting, self._network.collectives_s(operators, self._of_networks), strict=True))
        self.sent_bytes[kind] += repeats * sum(sent_bytes(each) for each in operators.operators)
        for place, around in enumerate(beside(structure, frozenset(waiting))):
            group = self._group(kind, around)
            if place in waits_s:
                group.waiting_s += repeats * waits_s[place]
                continue
            tensor, element, merges = int(at.tensor[place]), int(at.element[place]), int(at.merges[place])
            self._add_joules(kind, repeats, tensor, element, merges)
            if merges >= 0:
                group.vector_s += repeats * self._vector_all[merges]
                self._widen("fused_share", table.vector, self._vector_all, merges)
            if structure.core_types[place] is CoreType.VC:
                group.vector_s += repeats * self._vector_all[element]
                self._widen("vector_share", table.vector, self._vector_all, element)
                continue
            self._widen("tensor_share", table.tensor, self._tensor_all, tensor)
            if panels > 1 and at.product[place] >= 0:
                own, alone = self._tensor_all[tensor], self._tensor_all[int(at.product[place])]
                self._widen("tensor_share", table.tensor, self._tensor_all, int(at.product[place]))
                group.tensor_s += repeats * (own + (panels - 1) * alone) / panels
            elif element < 0:
                group.tensor_s += repeats * self._tensor_all[tensor]
            else:
                self._widen("fused_share", table.vector, self._vector_all, element)
                if at.recurrent[place]:
                    group.tensor_s += repeats * self._tensor_all[tensor]
                    group.vector_s += repeats * self._vector_all[element]
                else:
                    group.fused[tensor, element] = group.fused.get((tensor, element), 0.0) + repeats

    def _group(self, kind: _Kind, around: Beside) -> _Group:
        around = Beside(1, 0, 0) if around.alone else around
        if (kind, around) not in self._groups:
            tensor_s, vector_s = np.zeros(self._tensor_cores), np.zeros(self._vector_cores)
            self._groups[kind, around] = _Group(kind, around, tensor_s, vector_s, np.zeros(len(self._of_networks)))
        return self._groups[kind, around]

    def _widen(self, name: str, prices: CorePrices, all_s: FloatArray, work: int) -> None:
        """Let a share cover that of ``work``."""
        single_s = prices.single_s[work]
        shares = np.divide(all_s[work], single_s, out=np.zeros_like(single_s), where=single_s > 0.0)
        setattr(self, name, np.maximum(getattr(self, name), shares))

    def _add_joules(self, kind: _Kind, repeats: int, tensor: int, *elements: int) -> None:
        of_tensor, of_vector = self._table.tensor, self._table.vector
        if tensor >= 0:
            self.tensor_j[kind] += repeats * np.minimum(of_tensor.all_j[tensor], of_tensor.single_j[tensor])
        for element in elements:
            if element >= 0:
                self.vector_j[kind] += repeats * np.minimum(of_vector.all_j[element], of_vector.single_j[element])

    def of_cores(self) -> CoreWork:
        """Sums of all groups, each over the most that may run beside it on any chip."""
        tensor_s, vector_s = np.zeros((2, self._tensor_cores)), np.zeros((2, self._vector_cores))
        for group in self._groups.values():
            most = group.beside.tensor * min(max(self.tensor_share.max(initial=0.0), self.fused_share.max(initial=0.0)), 1.0)
            most += group.beside.waiting + group.beside.vector * min(self.vector_share.max(initial=0.0), 1.0)
            busy = max(most, 1.0)
            tensor_s += group.tensor_s / busy
            vector_s += group.vector_s / busy
            for (product, tail), count in group.fused.items():
                tensor_s[0] += count / busy * self._tensor_all[product]
                vector_s[1] += count / busy * self._vector_all[tail]
        return CoreWork(tensor_s, vector_s, self.tensor_j.sum(axis=0), self.vector_j.sum(axis=0))

    def arrays(self) -> tuple[NDArray[np.float64] | IntArray, ...]:
        """What the compiled loop over chips takes."""
        groups = list(self._groups.values())
        fused = [(group, pair, count) for group, each in enumerate(groups) for pair, count in each.fused.items()]
        tensor = np.stack([each.tensor_s for each in groups], axis=1)
        vector = np.stack([each.vector_s for each in groups], axis=1)
        limits = np.array([(each.beside.tensor, each.beside.vector, each.beside.waiting) for each in groups], dtype=np.int64)
        products = np.ascontiguousarray(self._tensor_all[[pair[0] for _, pair, _ in fused]].T)
        tails = np.ascontiguousarray(self._vector_all[[pair[1] for _, pair, _ in fused]].T)
        return (
            np.ascontiguousarray(tensor),
            np.ascontiguousarray(vector),
            np.stack([each.waiting_s for each in groups], axis=1),
            np.array([int(each.kind) for each in groups], dtype=np.int64),
            limits,
            products,
            tails,
            np.array([count for _, _, count in fused], dtype=np.float64),
            np.array([group for group, _, _ in fused], dtype=np.int64),
            np.minimum(self.tensor_share, 1.0),
            np.minimum(self.vector_share, 1.0),
            np.minimum(self.fused_share, 1.0),
        )


@outer
def _fill_seconds(
    tensor_s: FloatArray,
    vector_s: FloatArray,
    waiting_s: FloatArray,
    kinds: IntArray,
    limits: IntArray,
    products_s: FloatArray,
    tails_s: FloatArray,
    counts: FloatArray,
    group_of: IntArray,
    tensor_share: FloatArray,
    vector_share: FloatArray,
    fused_share: FloatArray,
    tc_index: IntArray,
    vc_index: IntArray,
    num_tc: IntArray,
    num_vc: IntArray,
    network_of: IntArray,
    pass_s: FloatArray,
) -> None:
    """Add to ``pass_s`` (kinds, chips) the seconds of every group over the most that may run beside its operators."""
    groups = waiting_s.shape[1]
    sums = np.empty(groups)
    for chip in range(pass_s.shape[1]):
        tc, vc, network = tc_index[chip], vc_index[chip], network_of[chip]
        for group in range(groups):
            sums[group] = tensor_s[tc, group] + vector_s[vc, group] + waiting_s[network, group]
        for fused in range(len(counts)):
            sums[group_of[fused]] += counts[fused] * max(products_s[tc, fused], tails_s[vc, fused])
        of_tensor = max(tensor_share[tc], fused_share[vc])
        for group in range(groups):
            waiting = min(limits[group, 2], num_vc[chip])
            others = min(limits[group, 1], num_vc[chip] - waiting)
            busy = min(limits[group, 0], num_tc[chip]) * of_tensor + waiting + others * vector_share[vc]
            pass_s[kinds[group], chip] += sums[group] / max(busy, 1.0)
