"""Seconds and joules that all layers of a graph take at least on every chip, from sums of the
prices of its cores.

One number per chip and recomputation mode: what a micro-batch takes at least to pass forward and
backward through all layers, one after another. Per operator a chip's price joins those of its
tensor cores and of its vector cores, which are few; so a million chips cost as much as some
thousand schedules (``Solver.schedule.beside``)."""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from enum import IntEnum

import numpy as np

from Estimator.chips.latency_table import LatencyTable
from Estimator.chips.part_prices import Lookup
from Estimator.chips.signatures import sent_bytes
from Estimator.chips.tensor_core import CorePrices
from Estimator.plans.compiled import outer
from GraphExtractor.graph import ModelGraph, OperatorGraph, Recompute
from phaze_common.array_types import FloatArray, IntArray
from phaze_common.threads import threads
from Solver.designs.network_times import PassNetwork, schedule_structure
from Solver.plans.least_iterations import Work
from Solver.schedule.beside import Beside, beside, longest_chain
from Solver.schedule.problem import CoreType

ROWS_PER_TASK = 65536
# of the longest vector work of a pass, on average of all cores: less is left out, which many cores
# do not shorten
NEGLIGIBLE = 0.03


class _Kind(IntEnum):
    """Passes that recomputation adds up differently; the most frequent layer's by themselves."""

    ENDS = 0  # forward and backward of the first and the last layer, which keep their activations
    FORWARD = 1
    BACKWARD = 2
    BACKWARD_SELECTIVE = 3
    FREQUENT_FORWARD = 4
    FREQUENT_BACKWARD = 5
    FREQUENT_BACKWARD_SELECTIVE = 6


# How often each ``_Kind`` runs
PASSES = {
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

    def of_micro_batch(self, mode: Recompute) -> Work:
        """On one device under ``mode``: no less than without recomputation, which adds work."""
        asked, least = (COUNTED * PASSES[each] @ self.pass_s for each in (mode, Recompute.NONE))
        whole_s, alike_s, _ = np.maximum(asked, least)
        return Work(whole_s, alike_s, self.pass_s[_Kind.FREQUENT_FORWARD])

    def joules(self, mode: Recompute) -> FloatArray:
        """The same in joules, shape (chips,)."""
        return np.array(PASSES[mode]) @ self.pass_j


@dataclass(frozen=True, eq=False)
class CoreWork:
    """What all layers take at least of the cores alone, without recomputation: seconds of tensor
    and of vector cores that add up.

    Arrays of shape (3, 3, tensor cores) and (3, 3, vector cores): by field of ``Work`` once with
    fused operators as long as their products, once as long as their vector work, once without what
    may run beside products (``_Sums.of_products``). ``tensor_j`` and ``vector_j`` are joules,
    (tensor cores,) and (vector cores,)."""

    tensor_s: FloatArray
    vector_s: FloatArray
    tensor_j: FloatArray
    vector_j: FloatArray

    def times(self, factor: float) -> CoreWork:
        """So many times as much."""
        return CoreWork(*(factor * getattr(self, each.name) for each in fields(self)))

    def or_less(self, other: CoreWork) -> CoreWork:
        """The lesser of both, core by core."""
        return CoreWork(
            *(
                np.minimum(getattr(self, each.name), getattr(other, each.name))
                for each in fields(self)
            )
        )

    def on(self, tc_index: IntArray, vc_index: IntArray) -> tuple[Work, FloatArray]:
        """Seconds and joules (chips,) of chips with these cores."""
        seconds = (self.tensor_s[..., tc_index] + self.vector_s[..., vc_index]).max(axis=1)
        return Work(*seconds), self.tensor_j[tc_index] + self.vector_j[vc_index]


def core_work(graph: ModelGraph, table: LatencyTable, panels: int) -> CoreWork:
    """Of ``graph`` on the cores of ``table``, whatever the network: weaker than ``least_work``."""
    network = PassNetwork(lambda collective: 0.0, panels)
    sums = _Sums(table, network)
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
    sums = _Sums(table, network)
    for operators, kind, repeats in _passes(graph):
        sums.add(operators, kind, repeats)
    pass_s, pass_j = sums.of_chips(), np.zeros((len(_Kind), len(chips)))
    sent_j = sums.sent_bytes[:, None] * table.sent_j_per_byte
    for kind in _Kind:
        pass_j[kind] = (
            sums.tensor_j[kind][chips.tc_index]
            + sums.vector_j[kind][chips.vc_index]
            + sent_j[kind][chips.variant]
        )
    return LeastWork(pass_s, pass_j)


def most_frequent(graph: ModelGraph) -> int:
    """The layer that most are, the first and the last left out; -1 where there are no others."""
    return max(Counter(graph.sequence[1:-1]).items(), key=lambda each: each[1], default=(-1, 0))[0]


def _passes(graph: ModelGraph) -> Iterator[tuple[OperatorGraph, _Kind, int]]:
    """Every distinct pass with how many layers have it."""
    middle, ends = list(graph.sequence), []
    if len(middle) > 1:
        middle, ends = middle[1:-1], [middle[0], middle[-1]]
    frequent = most_frequent(graph)
    for index in dict.fromkeys(graph.sequence):
        layer = graph.layers[index]
        for operators in (layer.forward, layer.backward) if index in ends else ():
            yield operators, _Kind.ENDS, ends.count(index)
        if index in middle:
            count = middle.count(index)
            more = _Kind.FREQUENT_FORWARD - _Kind.FORWARD if index == frequent else 0
            yield layer.forward, _Kind(_Kind.FORWARD + more), count
            yield layer.backward, _Kind(_Kind.BACKWARD + more), count
            yield (
                layer.backward_graph(Recompute.SELECTIVE),
                _Kind(_Kind.BACKWARD_SELECTIVE + more),
                count,
            )


@dataclass(eq=False)
class _Group:
    """Operators of a pass beside which as much may run: sums of prices times how often they run."""

    kind: _Kind
    beside: Beside
    tensor_s: FloatArray  # (tensor cores,), of operators without vector work
    vector_s: FloatArray  # (vector cores,), of operators without products
    # (vector cores,), of vector work that follows products of the same operator
    attached_s: FloatArray
    waiting_s: FloatArray  # (networks,)
    # How often: places of products and of their vector work
    fused: dict[tuple[int, int], float] = field(default_factory=dict)


class _Sums:
    """Sums of prices of operators by what may run beside them, and largest shares of one core."""

    def __init__(self, table: LatencyTable, network: PassNetwork) -> None:
        self._table, self._network = table, network
        self._tensor_cores = len(table.accelerators.tensor_cores)
        self._vector_cores = len(table.accelerators.vector_cores)
        self._of_networks, self.network_of = network.distinct(len(table.accelerators))
        self._groups: dict[tuple[_Kind, Beside], _Group] = {}
        self._tensor_one, self._vector_one = table.tensor.single_s, table.vector.single_s
        self._tensor_all = np.minimum(table.tensor.all_s, self._tensor_one)
        self._vector_all = np.minimum(table.vector.all_s, self._vector_one)
        # By kind the most that an operator's seconds on all cores are of those on one.
        self.tensor_share, self.unfused_share = np.zeros((2, len(_Kind), self._tensor_cores))
        self.vector_share, self.fused_share = np.zeros((2, len(_Kind), self._vector_cores))
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
        waiting = [
            place for place, each in enumerate(operators.operators) if each.collective is not None
        ]
        waits_s = dict(
            zip(waiting, self._network.collectives_s(operators, self._of_networks), strict=True)
        )
        self.sent_bytes[kind] += repeats * sum(sent_bytes(each) for each in operators.operators)
        chain = longest_chain(
            structure, {place: float(seconds.mean()) for place, seconds in waits_s.items()}
        )
        alone = [
            place
            for place, each in enumerate(structure.core_types)
            if each is CoreType.VC and place not in waits_s
        ]
        vector_s = {
            place: float(self._vector_all[int(at.element[place])].mean()) for place in alone
        }
        negligible_s = NEGLIGIBLE * max(vector_s.values(), default=0.0)
        for place, around in enumerate(beside(structure, frozenset(waiting), chain)):
            if place in waits_s:
                if place in chain:
                    self._group(kind, around).waiting_s += repeats * waits_s[place]
                continue
            tensor = int(at.tensor[place])
            element = int(at.element[place])
            merges = int(at.merges[place])
            self._add_joules(kind, repeats, tensor, element, merges)
            if vector_s.get(place, np.inf) < negligible_s:
                continue
            group = self._group(kind, around)
            if merges >= 0:
                group.attached_s += repeats * self._vector_all[merges]
                self._widen(self.fused_share[kind], table.vector, self._vector_all, merges)
            if place in vector_s:
                group.vector_s += repeats * self._vector_all[element]
                self._widen(self.vector_share[kind], table.vector, self._vector_all, element)
                continue
            self._widen(self.tensor_share[kind], table.tensor, self._tensor_all, tensor)
            in_panels = panels > 1 and at.product[place] >= 0
            if in_panels or element < 0 or at.recurrent[place]:
                self._widen(self.unfused_share[kind], table.tensor, self._tensor_all, tensor)
            if in_panels:
                own, alone_s = self._tensor_all[tensor], self._tensor_all[int(at.product[place])]
                for share in (self.tensor_share[kind], self.unfused_share[kind]):
                    self._widen(share, table.tensor, self._tensor_all, int(at.product[place]))
                group.tensor_s += repeats * (own + (panels - 1) * alone_s) / panels
            elif element < 0:
                group.tensor_s += repeats * self._tensor_all[tensor]
            else:
                self._widen(self.fused_share[kind], table.vector, self._vector_all, element)
                if at.recurrent[place]:
                    group.tensor_s += repeats * self._tensor_all[tensor]
                    group.attached_s += repeats * self._vector_all[element]
                else:
                    group.fused[tensor, element] = group.fused.get((tensor, element), 0.0) + repeats

    def _group(self, kind: _Kind, around: Beside) -> _Group:
        around = Beside(0, 0, 0) if around.alone else around
        if (kind, around) not in self._groups:
            tensor_s = np.zeros(self._tensor_cores)
            (vector_s, attached_s) = np.zeros((2, self._vector_cores))
            waiting_s = np.zeros(len(self._of_networks))
            self._groups[kind, around] = _Group(
                kind, around, tensor_s, vector_s, attached_s, waiting_s
            )
        return self._groups[kind, around]

    def _widen(self, share: FloatArray, prices: CorePrices, all_s: FloatArray, work: int) -> None:
        """Let the ``share`` of each core cover that of ``work``, which is at most all."""
        single_s = prices.single_s[work]
        mine = np.divide(all_s[work], single_s, out=np.zeros_like(single_s), where=single_s > 0.0)
        np.maximum(share, np.minimum(mine, 1.0), out=share)

    def _add_joules(self, kind: _Kind, repeats: int, tensor: int, *elements: int) -> None:
        of_tensor, of_vector = self._table.tensor, self._table.vector
        if tensor >= 0:
            self.tensor_j[kind] += repeats * np.minimum(
                of_tensor.all_j[tensor], of_tensor.single_j[tensor]
            )
        for element in elements:
            if element >= 0:
                self.vector_j[kind] += repeats * np.minimum(
                    of_vector.all_j[element], of_vector.single_j[element]
                )

    def of_products(self) -> tuple[FloatArray, FloatArray]:
        """As ``of_cores``, once: products beside products alone, vector work beside none."""
        tensor_s, vector_s = self._no_seconds(1)
        for group in self._groups.values():
            product_s = group.tensor_s + sum(
                count * self._tensor_all[product] for (product, _), count in group.fused.items()
            )
            tensor_s[group.kind] += product_s / np.maximum(
                group.beside.tensor * self.tensor_share[group.kind], 1.0
            )
            if not group.beside.tensor:
                vector_s[group.kind] += group.vector_s / np.maximum(
                    group.beside.vector * self.vector_share[group.kind], 1.0
                )
        return tensor_s, vector_s

    def of_cores(self) -> tuple[FloatArray, FloatArray]:
        """Sums by kind of pass, over the most that may run beside on any chip, of tensor and of
        vector cores; (kinds, 2, cores).

        Once with fused operators as long as their products, once as long as their vector work."""
        tensor_s, vector_s = self._no_seconds(2)
        for group in self._groups.values():
            shares = (
                each[group.kind].max(initial=0.0)
                for each in (self.tensor_share, self.fused_share, self.vector_share)
            )
            of_tensor, of_fused, of_vector = shares
            most = group.beside.tensor * max(of_tensor, of_fused) + group.beside.vector * of_vector
            busy = max(most, 1.0)
            tensor_s[group.kind] += group.tensor_s / busy
            vector_s[group.kind] += (group.vector_s + group.attached_s) / busy
            for (product, tail), count in group.fused.items():
                tensor_s[group.kind, 0] += count / busy * self._tensor_all[product]
                vector_s[group.kind, 1] += count / busy * self._vector_all[tail]
        return tensor_s, vector_s

    def _no_seconds(self, ways: int) -> tuple[FloatArray, FloatArray]:
        tensor_s, vector_s = (
            np.zeros((len(_Kind), ways, cores))
            for cores in (self._tensor_cores, self._vector_cores)
        )
        return tensor_s, vector_s

    def of_chips(self) -> FloatArray:
        """Seconds of every kind of pass on every chip, (kinds, chips)."""
        chips, arrays = self._table.accelerators, self._arrays()
        pass_s = np.zeros((len(_Kind), len(chips)))
        cores = (chips.tc_index, chips.vc_index, chips.num_tc, chips.num_vc, self.network_of)

        def fill(part: slice) -> None:
            _fill_seconds(*arrays, *(each[part] for each in cores), pass_s[:, part])

        with ThreadPoolExecutor(threads()) as pool:
            starts = range(0, len(chips), ROWS_PER_TASK)
            for done in [
                pool.submit(fill, slice(first, first + ROWS_PER_TASK)) for first in starts
            ]:
                done.result()
        return pass_s

    def _arrays(self) -> tuple[FloatArray | IntArray, ...]:
        """What the compiled loop over chips takes."""
        groups = list(self._groups.values())
        fused = [
            (group, pair, count)
            for group, each in enumerate(groups)
            for pair, count in each.fused.items()
        ]
        of_cores = (
            np.ascontiguousarray(np.stack([getattr(each, name) for each in groups], axis=1))
            for name in ("tensor_s", "vector_s", "attached_s", "waiting_s")
        )
        limits = np.array(
            [(each.beside.tensor, each.beside.vector, each.beside.waiting) for each in groups],
            dtype=np.int64,
        )
        of_product, of_tail = ([pair[place] for _, pair, _ in fused] for place in range(2))
        of_fused = (
            self._tensor_all[of_product],
            self._vector_all[of_tail],
            self._tensor_one[of_product],
            self._vector_one[of_tail],
        )
        return (
            *of_cores,
            np.array([int(each.kind) for each in groups], dtype=np.int64),
            limits,
            *(np.ascontiguousarray(each.T) for each in of_fused),
            np.array([count for _, _, count in fused], dtype=np.float64),
            np.array([group for group, _, _ in fused], dtype=np.int64),
            *(
                np.ascontiguousarray(each.T)
                for each in (
                    self.tensor_share,
                    self.unfused_share,
                    self.vector_share,
                    self.fused_share,
                )
            ),
        )


@outer
def _fill_seconds(
    tensor_s: FloatArray,
    vector_s: FloatArray,
    attached_s: FloatArray,
    waiting_s: FloatArray,
    kinds: IntArray,
    limits: IntArray,
    products_s: FloatArray,
    tails_s: FloatArray,
    products_one_s: FloatArray,
    tails_one_s: FloatArray,
    counts: FloatArray,
    group_of: IntArray,
    tensor_share: FloatArray,
    unfused_share: FloatArray,
    vector_share: FloatArray,
    fused_share: FloatArray,
    tc_index: IntArray,
    vc_index: IntArray,
    num_tc: IntArray,
    num_vc: IntArray,
    network_of: IntArray,
    pass_s: FloatArray,
) -> None:
    """Fill ``pass_s`` (kinds, chips) with the most of some sums, by what has its whole weight
    (``Solver.schedule.beside``).

    All work of cores, with collectives the rest; work of tensor cores, with vector work and
    collectives the rest; the same with fused operators as long as their products; or collectives,
    with nothing beside them."""
    groups, passes = waiting_s.shape[1], pass_s.shape[0]
    of_products, of_fused, of_pairs = np.empty(groups), np.empty(groups), np.empty(passes)
    sums = np.empty((4, passes))
    for chip in range(pass_s.shape[1]):
        tc, vc, network = tc_index[chip], vc_index[chip], network_of[chip]
        of_products[:] = tensor_s[tc]
        of_fused[:] = tensor_s[tc]
        of_pairs[:] = unfused_share[tc]
        sums[:] = 0.0
        for fused in range(len(counts)):
            product_s, tail_s, group = products_s[tc, fused], tails_s[vc, fused], group_of[fused]
            of_products[group] += counts[fused] * product_s
            of_fused[group] += counts[fused] * max(product_s, tail_s)
            one_s, kind = max(products_one_s[tc, fused], tails_one_s[vc, fused]), kinds[group]
            if max(product_s, tail_s) > of_pairs[kind] * one_s:
                of_pairs[kind] = min(max(product_s, tail_s) / one_s, 1.0)
        for group in range(groups):
            kind, wait_s = kinds[group], waiting_s[network, group]
            work_s = of_fused[group] + vector_s[vc, group] + attached_s[vc, group]
            # Nothing runs beside them
            if limits[group, 0] + limits[group, 1] + limits[group, 2] == 0:
                for way in range(4):
                    sums[way, kind] += work_s + wait_s
                continue
            waiting = min(limits[group, 2], num_vc[chip])
            vector = min(limits[group, 1], num_vc[chip] - waiting) * vector_share[vc, kind]
            tensor = min(limits[group, 0], num_tc[chip])
            every = tensor * max(tensor_share[tc, kind], fused_share[vc, kind]) + vector
            sums[0, kind] += work_s / max(every, 1.0) + wait_s * max(1.0 - every, 0.0)
            pairs, products = tensor * of_pairs[kind], tensor * tensor_share[tc, kind]
            beside = max(vector + waiting, 1.0)
            left_s = vector_s[vc, group] / beside + wait_s / beside
            sums[1, kind] += of_fused[group] / max(pairs, 1.0) + left_s * max(1.0 - pairs, 0.0)
            product_s = of_products[group] / max(products, 1.0) + left_s * max(1.0 - products, 0.0)
            sums[2, kind] += product_s
            sums[3, kind] += wait_s if waiting > 0 else product_s
        for kind in range(passes):
            pass_s[kind, chip] = max(
                max(sums[0, kind], sums[1, kind]), max(sums[2, kind], sums[3, kind])
            )
