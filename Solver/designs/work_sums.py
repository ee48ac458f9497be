"""Sums of the prices of operators on the cores of chips, by what may run beside them: what passes
through layers take at least (``Solver.schedule.concurrency``)."""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from Estimator.chips.latency_table import LatencyTable
from Estimator.chips.part_prices import Lookup
from Estimator.chips.signatures import sent_bytes
from Estimator.chips.tensor_core import CorePrices
from Estimator.compiled import inlined, outer
from GraphExtractor.graph import OperatorGraph
from phaze_common.array_types import FloatArray, IntArray
from phaze_common.threads import threads
from Solver.designs.network_times import PassNetwork, schedule_structure
from Solver.schedule.concurrency import Concurrency, concurrency_of, longest_chain
from Solver.schedule.problem import CoreType

ROWS_PER_TASK = 65536
# of the longest vector work of a pass, on average of all cores: less is left out, which many cores
# do not shorten
NEGLIGIBLE = 0.03


class PassKind(IntEnum):
    """Passes that recomputation adds up differently; the most frequent layer's by themselves."""

    ENDS = 0  # forward and backward of the first and the last layer, which keep their activations
    FORWARD = 1
    BACKWARD = 2
    BACKWARD_SELECTIVE = 3
    FREQUENT_FORWARD = 4
    FREQUENT_BACKWARD = 5
    FREQUENT_BACKWARD_SELECTIVE = 6


@dataclass(eq=False)
class _Group:
    """Operators of a pass beside which as much may run: sums of prices times how often they run."""

    kind: PassKind
    concurrency: Concurrency
    tensor_s: FloatArray  # (tensor cores,), of operators without vector work
    vector_s: FloatArray  # (vector cores,), of operators without products
    # (vector cores,), of vector work that follows products of the same operator
    attached_s: FloatArray
    waiting_s: FloatArray  # (networks,)
    # How often: places of products and of their vector work
    fused: dict[tuple[int, int], float] = field(default_factory=dict)


class _Cores:
    """Prices of works on the cores of one type: arrays of shape (works, cores)."""

    def __init__(self, prices: CorePrices) -> None:
        self.one_s = prices.single_s
        self.all_s = np.minimum(prices.all_s, prices.single_s)
        self.least_j = np.minimum(prices.all_j, prices.single_j)

    def widen(self, share: FloatArray, work: int) -> None:
        """Let the ``share`` that all cores take of the seconds of one cover that of ``work``."""
        one_s = self.one_s[work]
        mine = np.divide(self.all_s[work], one_s, out=np.zeros_like(one_s), where=one_s > 0.0)
        np.maximum(share, np.minimum(mine, 1.0), out=share)


class WorkSums:
    """Sums of prices of operators by what may run beside them, and largest shares of one core.

    Arrays have shape (kinds of passes, cores). ``tensor_share`` and so on are the most that an
    operator's seconds on all cores are of those on one; ``network_of`` is the place of each chip's
    network, (chips,)."""

    def __init__(self, table: LatencyTable, network: PassNetwork) -> None:
        self._table, self._network = table, network
        self._tensor, self._vector = _Cores(table.tensor), _Cores(table.vector)
        self._of_networks, self.network_of = network.distinct(len(table.accelerators))
        self._groups: dict[tuple[PassKind, Concurrency], _Group] = {}
        tensor_cores = len(PassKind), len(table.accelerators.tensor_cores)
        vector_cores = len(PassKind), len(table.accelerators.vector_cores)
        self.tensor_share, self.unfused_share, self.tensor_j = np.zeros((3, *tensor_cores))
        self.vector_share, self.fused_share, self.vector_j = np.zeros((3, *vector_cores))
        self.sent_bytes = np.zeros(len(PassKind))

    def add(self, operators: OperatorGraph, kind: PassKind, repeats: int) -> None:
        """A pass that so many layers have."""
        if not operators.operators:
            return
        at = Lookup.of(operators, self._table.work, self._table.accelerators, np.zeros(0, np.int64))
        structure, each = schedule_structure(operators), operators.operators
        waiting = [place for place, one in enumerate(each) if one.collective is not None]
        collectives_s = self._network.collectives_s(operators, self._of_networks)
        waits_s = dict(zip(waiting, collectives_s, strict=True))
        self.sent_bytes[kind] += repeats * sum(sent_bytes(one) for one in each)
        chain = longest_chain(structure, {place: float(waits_s[place].mean()) for place in waiting})
        vector_s = {
            place: float(self._vector.all_s[int(at.element[place])].mean())
            for place, core_type in enumerate(structure.core_types)
            if core_type is CoreType.VC and place not in waits_s
        }
        negligible_s = NEGLIGIBLE * max(vector_s.values(), default=0.0)
        for place, around in enumerate(concurrency_of(structure, frozenset(waiting), chain)):
            if place in chain:
                self._group(kind, around).waiting_s += repeats * waits_s[place]
            if place in waits_s:
                continue
            self._add_joules(at, place, kind, repeats)
            if vector_s.get(place, np.inf) < negligible_s:
                continue
            group, element = self._group(kind, around), int(at.element[place])
            self._add_attached(at, place, group, repeats)
            if place in vector_s:
                group.vector_s += repeats * self._vector.all_s[element]
                self._vector.widen(self.vector_share[kind], element)
            else:
                self._add_products(at, place, group, repeats)

    def _group(self, kind: PassKind, around: Concurrency) -> _Group:
        around = Concurrency(0, 0, 0) if around.alone else around
        if (kind, around) not in self._groups:
            tensor_s, waiting_s = self.tensor_share.shape[1], len(self._of_networks)
            vector_s, attached_s = np.zeros((2, self.vector_share.shape[1]))
            self._groups[kind, around] = _Group(
                kind, around, np.zeros(tensor_s), vector_s, attached_s, np.zeros(waiting_s)
            )
        return self._groups[kind, around]

    def _add_joules(self, at: Lookup, place: int, kind: PassKind, repeats: int) -> None:
        if at.tensor[place] >= 0:
            self.tensor_j[kind] += repeats * self._tensor.least_j[at.tensor[place]]
        for element in (at.element[place], at.merges[place]):
            if element >= 0:
                self.vector_j[kind] += repeats * self._vector.least_j[element]

    def _add_attached(self, at: Lookup, place: int, group: _Group, repeats: int) -> None:
        merges = int(at.merges[place])
        if merges >= 0:
            group.attached_s += repeats * self._vector.all_s[merges]
            self._vector.widen(self.fused_share[group.kind], merges)

    def _add_products(self, at: Lookup, place: int, group: _Group, repeats: int) -> None:
        """Products, in panels or not, with the vector work that is fused to them."""
        kind, panels, all_s = group.kind, self._network.panels, self._tensor.all_s
        tensor, element, product = (int(x[place]) for x in (at.tensor, at.element, at.product))
        in_panels, recurrent = panels > 1 and product >= 0, bool(at.recurrent[place])
        shares = [self.tensor_share[kind]]
        if in_panels or element < 0 or recurrent:
            shares.append(self.unfused_share[kind])
        for share in shares:
            for work in (tensor, product) if in_panels else (tensor,):
                self._tensor.widen(share, work)
        if in_panels:
            group.tensor_s += repeats * (all_s[tensor] + (panels - 1) * all_s[product]) / panels
            return
        if element < 0 or recurrent:
            group.tensor_s += repeats * all_s[tensor]
        if element >= 0:
            self._vector.widen(self.fused_share[kind], element)
            if recurrent:
                group.attached_s += repeats * self._vector.all_s[element]
            else:
                group.fused[tensor, element] = group.fused.get((tensor, element), 0.0) + repeats

    def of_products(self) -> tuple[FloatArray, FloatArray]:
        """As ``of_cores``, once: products beside products alone, vector work beside none."""
        tensor_s, vector_s = self._no_seconds(1)
        for group in self._groups.values():
            kind, around = group.kind, group.concurrency
            product_s = group.tensor_s + sum(
                count * self._tensor.all_s[product] for (product, _), count in group.fused.items()
            )
            tensor_s[kind] += product_s / np.maximum(around.tensor * self.tensor_share[kind], 1.0)
            if not around.tensor:
                busy = np.maximum(around.vector * self.vector_share[kind], 1.0)
                vector_s[kind] += group.vector_s / busy
        return tensor_s, vector_s

    def of_cores(self) -> tuple[FloatArray, FloatArray]:
        """Sums by kind of pass, over the most that may run beside on any chip, of tensor and of
        vector cores; (kinds, 2, cores).

        Once with fused operators as long as their products, once as long as their vector work."""
        tensor_s, vector_s = self._no_seconds(2)
        for group in self._groups.values():
            shares = self.tensor_share, self.fused_share, self.vector_share
            of_tensor, of_fused, of_vector = (each[group.kind].max(initial=0.0) for each in shares)
            around = group.concurrency
            busy = max(around.tensor * max(of_tensor, of_fused) + around.vector * of_vector, 1.0)
            tensor_s[group.kind] += group.tensor_s / busy
            vector_s[group.kind] += (group.vector_s + group.attached_s) / busy
            for (product, tail), count in group.fused.items():
                tensor_s[group.kind, 0] += count / busy * self._tensor.all_s[product]
                vector_s[group.kind, 1] += count / busy * self._vector.all_s[tail]
        return tensor_s, vector_s

    def _no_seconds(self, ways: int) -> tuple[FloatArray, FloatArray]:
        kinds, tensor_cores = self.tensor_share.shape
        shape = kinds, ways, self.vector_share.shape[1]
        return np.zeros((kinds, ways, tensor_cores)), np.zeros(shape)

    def of_chips(self) -> FloatArray:
        """Seconds of every kind of pass on every chip, (kinds, chips)."""
        each = self._table.accelerators
        chips = _Chips(each.tc_index, each.vc_index, each.num_tc, each.num_vc, self.network_of)
        pass_s = np.zeros((len(PassKind), len(each)))
        shares = self.tensor_share, self.unfused_share, self.vector_share, self.fused_share
        by_core = _Shares(*(np.ascontiguousarray(share.T) for share in shares))
        groups, fused = self._group_sums(), self._fused_sums()

        def fill(part: slice) -> None:
            mine = _Chips(*(column[part] for column in chips))
            _fill_seconds(groups, fused, by_core, mine, pass_s[:, part])

        with ThreadPoolExecutor(threads()) as pool:
            starts = range(0, len(each), ROWS_PER_TASK)
            parts = [slice(first, first + ROWS_PER_TASK) for first in starts]
            for done in [pool.submit(fill, part) for part in parts]:
                done.result()
        return pass_s

    def _group_sums(self) -> _GroupSums:
        groups = list(self._groups.values())
        names = ("tensor_s", "vector_s", "attached_s", "waiting_s")
        sums = [np.stack([getattr(each, name) for each in groups], axis=1) for name in names]
        kinds = np.array([int(each.kind) for each in groups], dtype=np.int64)
        around = [
            (each.concurrency.tensor, each.concurrency.vector, each.concurrency.waiting)
            for each in groups
        ]
        columns = *sums, kinds, np.array(around, dtype=np.int64)
        return _GroupSums(*map(np.ascontiguousarray, columns))

    def _fused_sums(self) -> _FusedSums:
        groups = enumerate(self._groups.values())
        fused = [(place, *item) for place, each in groups for item in each.fused.items()]
        products, tails = ([pair[which] for _, pair, _ in fused] for which in range(2))
        tensor, vector = self._tensor, self._vector
        prices = tensor.all_s[products], vector.all_s[tails]
        on_one = tensor.one_s[products], vector.one_s[tails]
        counts = np.array([count for _, _, count in fused], dtype=np.float64)
        group_of = np.array([place for place, _, _ in fused], dtype=np.int64)
        columns = *(each.T for each in (*prices, *on_one)), counts, group_of
        return _FusedSums(*map(np.ascontiguousarray, columns))


class _GroupSums(NamedTuple):
    """Fields of groups, shape (cores or networks, groups); kinds (groups,), limits (groups, 3)."""

    tensor_s: FloatArray
    vector_s: FloatArray
    attached_s: FloatArray
    waiting_s: FloatArray
    kinds: IntArray
    limits: IntArray


class _FusedSums(NamedTuple):
    """Fused operators: seconds on all cores and on one, shape (cores, fused), and how often each
    runs in which group, (fused,)."""

    products_s: FloatArray
    tails_s: FloatArray
    products_one_s: FloatArray
    tails_one_s: FloatArray
    counts: FloatArray
    group_of: IntArray


class _Shares(NamedTuple):
    """Largest seconds on all cores of those on one, shape (cores, kinds of passes)."""

    tensor: FloatArray
    unfused: FloatArray
    vector: FloatArray
    fused: FloatArray


class _Chips(NamedTuple):
    """Cores, how many of them, and networks of chips, shape (chips,)."""

    tc: IntArray
    vc: IntArray
    num_tc: IntArray
    num_vc: IntArray
    network: IntArray


@outer
def _fill_seconds(
    groups: _GroupSums, fused: _FusedSums, shares: _Shares, chips: _Chips, pass_s: FloatArray
) -> None:
    """Fill ``pass_s`` (kinds, chips) with the most of some sums, by what has its whole weight
    (``Solver.schedule.concurrency``).

    All work of cores, with collectives the rest; work of tensor cores, with vector work and
    collectives the rest; the same with fused operators as long as their products; or collectives,
    with nothing beside them."""
    count, passes = groups.waiting_s.shape[1], pass_s.shape[0]
    of_products, of_fused, of_pairs = np.empty(count), np.empty(count), np.empty(passes)
    sums = np.empty((4, passes))
    for chip in range(pass_s.shape[1]):
        tc, vc = chips.tc[chip], chips.vc[chip]
        of_products[:], of_fused[:] = groups.tensor_s[tc], groups.tensor_s[tc]
        of_pairs[:], sums[:] = shares.unfused[tc], 0.0
        _add_fused(groups.kinds, fused, tc, vc, of_products, of_fused, of_pairs)
        for group in range(count):
            _add_group(groups, shares, chips, chip, group, of_products, of_fused, of_pairs, sums)
        for kind in range(passes):
            with_work, with_products = max(sums[0, kind], sums[1, kind]), sums[2, kind]
            pass_s[kind, chip] = max(with_work, with_products, sums[3, kind])


@inlined
def _add_fused(
    kinds: IntArray,
    fused: _FusedSums,
    tc: int,
    vc: int,
    of_products: FloatArray,
    of_fused: FloatArray,
    of_pairs: FloatArray,
) -> None:
    """Add fused operators by group, and widen the share of each kind of pass by theirs."""
    for each in range(len(fused.counts)):
        product_s, tail_s = fused.products_s[tc, each], fused.tails_s[vc, each]
        group, longer_s = fused.group_of[each], max(product_s, tail_s)
        of_products[group] += fused.counts[each] * product_s
        of_fused[group] += fused.counts[each] * longer_s
        one_s = max(fused.products_one_s[tc, each], fused.tails_one_s[vc, each])
        if longer_s > of_pairs[kinds[group]] * one_s:
            of_pairs[kinds[group]] = min(longer_s / one_s, 1.0)


@inlined
def _add_group(
    groups: _GroupSums,
    shares: _Shares,
    chips: _Chips,
    chip: int,
    group: int,
    of_products: FloatArray,
    of_fused: FloatArray,
    of_pairs: FloatArray,
    sums: FloatArray,
) -> None:
    """Add a group to the four ``sums`` (4, kinds) of its kind of pass."""
    tc, vc, kind = chips.tc[chip], chips.vc[chip], groups.kinds[group]
    wait_s, vector_s = groups.waiting_s[chips.network[chip], group], groups.vector_s[vc, group]
    work_s = of_fused[group] + vector_s + groups.attached_s[vc, group]
    tensor_limit, vector_limit, waiting_limit = groups.limits[group]
    if tensor_limit + vector_limit + waiting_limit == 0:  # nothing runs beside them
        for way in range(4):
            sums[way, kind] += work_s + wait_s
    else:
        waiting = min(waiting_limit, chips.num_vc[chip])
        vector = min(vector_limit, chips.num_vc[chip] - waiting) * shares.vector[vc, kind]
        tensor = min(tensor_limit, chips.num_tc[chip])
        every = tensor * max(shares.tensor[tc, kind], shares.fused[vc, kind]) + vector
        sums[0, kind] += work_s / max(every, 1.0) + wait_s * max(1.0 - every, 0.0)
        pairs, products = tensor * of_pairs[kind], tensor * shares.tensor[tc, kind]
        beside = max(vector + waiting, 1.0)
        left_s = vector_s / beside + wait_s / beside
        sums[1, kind] += of_fused[group] / max(pairs, 1.0) + left_s * max(1.0 - pairs, 0.0)
        product_s = of_products[group] / max(products, 1.0) + left_s * max(1.0 - products, 0.0)
        sums[2, kind] += product_s
        sums[3, kind] += wait_s if waiting > 0 else product_s
