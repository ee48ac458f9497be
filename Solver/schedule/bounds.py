"""Lower bound on the makespan of a series component, compiled.

Give every operator a weight rho_i such that the weights of any set of operators that can run on
single cores at one instant (pairwise parallel, within the core counts) sum to at most 1. In any
schedule, integrating over the time not spent on all-core operators shows that this time is at least
the sum of rho_i l_i over the single-core operators, so

    makespan >= sum_i min(l'_i, rho_i l_i)        (l_i on one core, l'_i over all cores).

Chains (rho = 1 along a path) and core areas (rho = 1/cores) are special cases. If rho_i = min(l_i,
l'_i) / l_i is such a weighting, running the operators one after another is optimal. Otherwise good
weights are found greedily, the longest single-core operators first: within a percent or two of the
best weights (a linear program) and a hundred times faster.
"""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from Estimator.compiled import borrowing_inner, borrowing_outer
from phaze_common.array_types import FloatArray, IntArray
from Solver.schedule.tables import Cases, Tables

WEIGHTINGS = 3  # weightings kept per instance, for the bound and for pruning
TOLERANCE = 1e-9  # relative; optimal means within it


class BoundScratch(NamedTuple):
    """What bounds of a component of n operators are reckoned in, case by case."""

    path_ends: FloatArray  # (n,)
    serial_weights: FloatArray  # (n,)
    excess: FloatArray  # (n,)
    ones: FloatArray  # (n,), which stay so
    heap: FloatArray  # (4, n): per core type, weights in falling order
    by_length: IntArray  # (n,)
    rho: FloatArray  # (WEIGHTINGS, n), of cases whose weightings are not kept

    @staticmethod
    def of(count: int) -> BoundScratch:
        """For so many operators."""
        path_ends, serial_weights, excess = np.zeros((3, count))
        ones, heap, by_length = np.ones(count), np.zeros((4, count)), np.zeros(count, np.int64)
        rho = np.zeros((WEIGHTINGS, count))
        return BoundScratch(path_ends, serial_weights, excess, ones, heap, by_length, rho)


@borrowing_inner
def sort_descending(keys: FloatArray, ranked: IntArray, order: IntArray) -> None:
    """Write ``ranked`` to ``order`` by falling key, ties in the order given (n is small)."""
    for k in range(len(ranked)):
        place = k
        while place > 0 and keys[order[place - 1]] < keys[ranked[k]]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = ranked[k]


@borrowing_inner
def heaviest_concurrent(
    type_bits: IntArray,
    antichain: IntArray,
    first: int,
    last: int,
    operator: int,
    rho: FloatArray,
    tc: int,
    vc: int,
    heap: FloatArray,
) -> float:
    """Largest weight that can run at once within ``antichain[first:last]``, or beside ``operator``
    (-1: none) there.

    ``heap`` is that of ``BoundScratch``.
    """
    tc_count = vc_count = fused_count = 0
    for z in range(first, last):
        i = antichain[z]
        if i != operator and rho[i] > 0.0:  # others add nothing
            bits = type_bits[i]
            place = tc_count if bits == 1 else vc_count if bits == 2 else fused_count
            while place > 0 and heap[bits, place - 1] < rho[i]:
                heap[bits, place] = heap[bits, place - 1]
                place -= 1
            heap[bits, place] = rho[i]
            if bits == 1:
                tc_count += 1
            elif bits == 2:
                vc_count += 1
            else:
                fused_count += 1
    if operator >= 0:
        tc -= type_bits[operator] & 1
        vc -= type_bits[operator] >> 1
    best = 0.0
    fused_weight = 0.0
    for fused in range(min(fused_count, tc, vc) + 1):
        if fused > 0:
            fused_weight += heap[3, fused - 1]
        weight = fused_weight
        for k in range(min(tc_count, tc - fused)):
            weight += heap[1, k]
        for k in range(min(vc_count, vc - fused)):
            weight += heap[2, k]
        best = max(best, weight)
    return best


@borrowing_inner
def raise_weights(
    t: Tables,
    cap: FloatArray,
    by_length: IntArray,
    rho: FloatArray,
    cores: IntArray,
    heap: FloatArray,
) -> None:
    """Raise each weight as far as the others allow, at most to ``cap``, in the order
    ``by_length``."""
    type_bits, antichain, offsets = t.type_bits, t.antichain, t.antichain_offsets
    containing, containing_offsets = t.containing, t.containing_offsets
    for i in by_length:
        if rho[i] < cap[i]:
            room = cap[i]
            for z in range(containing_offsets[i], containing_offsets[i + 1]):
                k = containing[z]
                first, last = offsets[k], offsets[k + 1]
                together = -rho[i]
                for place in range(first, last):
                    together += rho[antichain[place]]
                if together < 1.0 - room - TOLERANCE:
                    continue  # whatever of these runs at once leaves more room
                concurrent = heaviest_concurrent(
                    type_bits, antichain, first, last, i, rho, cores[0], cores[1], heap
                )
                room = min(room, 1.0 - concurrent)
                if room <= rho[i]:
                    break
            rho[i] = max(rho[i], room)


@borrowing_inner
def weighted_bound(single: FloatArray, shortest: FloatArray, rho: FloatArray) -> float:
    """Lower bound that the weights ``rho`` prove."""
    bound = 0.0
    for i in range(len(rho)):
        bound += min(shortest[i], rho[i] * single[i])
    return bound


@borrowing_inner
def longest_path(t: Tables, shortest: FloatArray, ends: FloatArray) -> float:
    """Length of the longest path; ``ends`` (n,) is scratch."""
    predecessors, offsets = t.predecessors, t.predecessor_offsets
    longest = 0.0
    for i in t.topological:
        ends[i] = 0.0
        for z in range(offsets[i], offsets[i + 1]):
            ends[i] = max(ends[i], ends[predecessors[z]])
        ends[i] += shortest[i]
        longest = max(longest, ends[i])
    return longest


@borrowing_inner
def lower_bound(
    t: Tables,
    single: FloatArray,
    shortest: FloatArray,
    cores: IntArray,
    weights: FloatArray,
    scratch: BoundScratch,
) -> float:
    """Lower bound of one instance, with its weightings written to ``weights`` (WEIGHTINGS, n).

    ``single`` are latencies on one core, ``shortest`` the smaller of that and the one over all
    cores; ``cores`` (2,).
    """
    type_bits, antichain, offsets = t.type_bits, t.antichain, t.antichain_offsets
    count = len(single)
    serial_weights, excess, heap = scratch.serial_weights, scratch.excess, scratch.heap
    by_length = scratch.by_length
    bound = longest_path(t, shortest, scratch.path_ends)
    if len(antichain) == 0:  # too many to list: areas only
        for k in range(WEIGHTINGS):
            share = k / (WEIGHTINGS - 1)
            for i in range(count):
                weights[k, i] = (
                    share * (type_bits[i] & 1) / cores[0]
                    + (1.0 - share) * (type_bits[i] >> 1) / cores[1]
                )
            bound = max(bound, weighted_bound(single, shortest, weights[k]))
        return bound
    serial = 0.0
    for i in range(count):
        serial_weights[i] = shortest[i] / single[i]
        serial += shortest[i]
        excess[i] = 1.0
    worst = 0.0
    for chain in range(len(offsets) - 1):
        first, last = offsets[chain], offsets[chain + 1]
        weight = heaviest_concurrent(
            type_bits, antichain, first, last, -1, serial_weights, cores[0], cores[1], heap
        )
        worst = max(worst, weight)
        for z in range(first, last):
            excess[antichain[z]] = max(excess[antichain[z]], weight)
    if worst <= 1.0 + TOLERANCE:
        return serial
    sort_descending(single, t.topological, by_length)
    for k in range(WEIGHTINGS):
        for i in range(count):
            if k == 0:
                weights[k, i] = 0.0
            elif k == 1:
                weights[k, i] = serial_weights[i] / excess[i]
            else:
                weights[k, i] = (type_bits[i] & 1) / cores[0]
        raise_weights(t, serial_weights, by_length, weights[k], cores, heap)
        bound = max(bound, weighted_bound(single, shortest, weights[k]))
        if bound >= serial * (1.0 - TOLERANCE):
            break
    return bound


@borrowing_outer
def bound_many(
    t: Tables, cases: Cases, lower: FloatArray, weights: FloatArray, scratch: BoundScratch
) -> None:
    """Write the lower bounds (N,) of N cases to ``lower``.

    ``weights`` (N, WEIGHTINGS, n) gets the weightings raised as far as they go, for the search to
    prune with, of cases whose bound is less than one operator after another takes; it is
    (0, WEIGHTINGS, n) where only bounds are wanted.
    """
    by_length = scratch.by_length
    for case in range(len(cases.single)):
        single, cores = cases.single[case], cases.cores[case]
        rho = weights[case] if len(weights) > 0 else scratch.rho
        lower[case] = lower_bound(t, single, cases.shortest[case], cores, rho, scratch)
        if len(weights) == 0 or len(t.antichain) == 0:
            continue
        serial = 0.0
        for shortest in cases.shortest[case]:
            serial += shortest
        if lower[case] < serial * (1.0 - TOLERANCE):
            sort_descending(single, t.topological, by_length)
            for k in range(WEIGHTINGS):
                raise_weights(t, scratch.ones, by_length, rho[k], cores, scratch.heap)
