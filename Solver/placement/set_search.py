"""Compiled best-first search over the cases of a placement problem whose layers branch, for one accelerator or many.

As ``search_kernels`` for chains: the case with the least bound is refined until no bound is below the best plan found. A case
is closed by branch and bound over boxes of (largest load, largest parameter sum), in each of which the transfers are least.
"""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from Solver.placement.cases import MIXED, Cases
from Solver.placement.kernels import inner, outer
from Solver.placement.objective import TOLERANCE
from Solver.placement.problem import FloatArray, IntArray
from Solver.placement.relaxation import least_largest_loads
from Solver.placement.search_kernels import BOTTLENECK_KNOWN, FRESH, STACK_SIZE, Found, least_bound, line_seconds, load_limit
from Solver.placement.set_kernels import Box, SetCosts, bottlenecks, least_transfers_of_sets, open_stages, tightened

KIN_KNOWN = 2  # beside ``FRESH`` and ``BOTTLENECK_KNOWN``


class Prices(NamedTuple):
    """What memory and links cost in some cases, arrays (cases,) or (kins,)."""

    tier: IntArray  # of all links, or MIXED
    links: IntArray  # row of ``Cases.link_tiers`` where MIXED
    resident_bytes: FloatArray
    gather_s: FloatArray
    gather_fixed_s: FloatArray


class LayerSets(NamedTuple):
    """The variants' layers without their latencies, over the sets and stages of a lattice."""

    first: IntArray  # (sets + 1,), see ``SetCosts``
    part: IntArray
    sizes: IntArray
    space: FloatArray  # (variants, stages)
    parameters: FloatArray  # (variants, sets)
    saved: FloatArray
    saved_from: FloatArray
    entering: FloatArray  # (variants, tiers, sets)
    leaving: FloatArray
    tied: FloatArray  # (variants,)
    least_held: FloatArray  # (cases,): no plan has a smaller largest parameter sum
    least_transfers_s: FloatArray  # (cases,): no plan has a smaller transfer sum
    family: IntArray  # (cases,): cases of one family differ in their number of stages alone
    kin: IntArray  # (cases,): a wider family, all of whose cases lie between these two
    most_lenient: Prices  # of each kin
    most_severe: Prices
    hbm_bytes: float


@outer
def set_costs(cases: Cases, sets: LayerSets, case: int, most: int, work: FloatArray) -> SetCosts:
    """Assemble what the kernels need of a case with up to ``most`` stages; ``work`` (sets,) is its variant's."""
    prices = Prices(cases.tier, cases.links, cases.resident_bytes, cases.gather_s, cases.gather_fixed_s)
    return _costs_at(cases, sets, case, most, work, prices, case)


@inner
def _costs_at(cases: Cases, sets: LayerSets, case: int, most: int, work: FloatArray, prices: Prices, row: int) -> SetCosts:
    """As ``set_costs`` at the prices in a row."""
    variant = cases.variant[case]
    entering, leaving = np.empty((len(work), most + 1)), np.empty((len(work), most + 1))
    for position in range(most + 1):
        tier = cases.link_tiers[prices.links[row], position] if prices.tier[row] == MIXED else prices.tier[row]
        entering[:, position] = sets.entering[variant, tier]
        leaving[:, position] = sets.leaving[variant, tier]
    return SetCosts(
        sets.first,
        sets.part,
        sets.space[variant],
        sets.sizes,
        work + prices.gather_s[row] * sets.parameters[variant] + prices.gather_fixed_s[row] * sets.sizes,
        sets.parameters[variant],
        sets.saved[variant],
        sets.saved_from[variant],
        entering,
        leaving,
        cases.in_flight[case] if cases.in_flight[case] < cases.stages[case] else most,
        prices.resident_bytes[row],
        sets.hbm_bytes,
    )


@inner
def _same(one: Prices, other: Prices, row: int) -> bool:
    return (
        one.tier[row] == other.tier[row]
        and one.resident_bytes[row] == other.resident_bytes[row]
        and one.gather_s[row] == other.gather_s[row]
        and one.gather_fixed_s[row] == other.gather_fixed_s[row]
    )


@inner
def busy_seconds(cases: Cases, sets: LayerSets, case: int, work: FloatArray) -> float:
    """Seconds that all stages compute and gather weights; tied parameters are held once where there is one stage."""
    variant = cases.variant[case]
    held = sets.parameters[variant, -1] - (sets.tied[variant] if cases.stages[case] == 1 else 0.0)
    return work[-1] + cases.gather_s[case] * held + cases.gather_fixed_s[case] * sets.sizes[-1]


@inner
def close_case_of_sets(
    cases: Cases, sets: LayerSets, case: int, costs: SetCosts, load: float, least_s: float, best: Found
) -> Found:
    """Best plan of a case if it beats ``best``; no plan has a largest load below ``load``."""
    stages, busy, held = cases.stages[case], costs.work[-1], sets.least_held[case]
    if best.seconds == np.inf:  # what can beat nothing is everything: begin with the least load there can be
        few = open_stages(costs, stages, load, costs.parameters[-1])
        transfers, largest, most, _ = least_transfers_of_sets(costs, few, stages, load, costs.parameters[-1])
        if transfers < np.inf:
            seconds, line = line_seconds(cases, case, largest, most)
            best = Found(busy + transfers + seconds, case, line, largest, most)
    room = best.seconds - busy - least_s
    limit = min(load_limit(cases, case, held, room), busy + costs.entering.max() + costs.leaving.max())
    cap = min(held_limit(cases, case, load, room), costs.parameters[-1])
    candidates = open_stages(costs, stages, limit, cap)
    stack = np.empty((STACK_SIZE, 4))
    stack[0] = (load, limit, held, cap)
    stack[1] = (load, load, held, cap)  # last in, first out
    top = 2
    while top > 0:
        top -= 1
        box = Box(stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3])
        if busy + least_s + line_seconds(cases, case, box.least_load, box.least_held)[0] >= best.seconds:
            continue
        box = tightened(costs, candidates, box)
        if box.least_load == np.inf or box.least_held == np.inf:
            continue
        at_least = line_seconds(cases, case, box.least_load, box.least_held)[0]
        if busy + least_s + at_least >= best.seconds:
            continue
        transfers, largest, most, _ = least_transfers_of_sets(costs, candidates, stages, box.most_load, box.most_held)
        if transfers == np.inf:
            continue
        seconds, line = line_seconds(cases, case, largest, most)
        if busy + transfers + seconds < best.seconds:
            best = Found(busy + transfers + seconds, case, line, largest, most)
        if busy + transfers + at_least >= best.seconds * (1.0 - TOLERANCE):
            continue
        by_load = line_seconds(cases, case, box.most_load, box.least_held)[0] - at_least
        by_held = line_seconds(cases, case, box.least_load, box.most_held)[0] - at_least
        # Halve what matters more, the cheaper half last; what stays together are values that are all but equal.
        wide = box.most_load > box.least_load * (1.0 + 4.0 * TOLERANCE)
        deep = box.most_held > box.least_held * (1.0 + 4.0 * TOLERANCE)
        if wide and (by_load >= by_held or not deep):
            middle = 0.5 * (box.least_load + box.most_load)
            stack[top] = (middle, box.most_load, box.least_held, box.most_held)
            stack[top + 1] = (box.least_load, middle, box.least_held, box.most_held)
            top += 2
        elif deep:
            middle = 0.5 * (box.least_held + box.most_held)
            stack[top] = (box.least_load, box.most_load, middle, box.most_held)
            stack[top + 1] = (box.least_load, box.most_load, box.least_held, middle)
            top += 2
    return best


@inner
def held_limit(cases: Cases, case: int, load: float, seconds: float) -> float:
    """Largest parameter sum with which some line of the case stays within ``seconds``, given at least a load of ``load``."""
    limit = -1.0
    for k in range(cases.first_line[case], cases.first_line[case + 1]):
        room = seconds - cases.weight[k] * load - cases.fixed_s[k]
        if room >= 0.0:
            if cases.per_parameter_s[k] == 0.0:
                return np.inf
            limit = max(limit, room / cases.per_parameter_s[k])
    return limit


@outer
def solve_sets(
    cases: Cases, sets: LayerSets, work: FloatArray, floors: FloatArray, incumbent_s: float, bound_only: bool
) -> tuple[Found, float]:
    """Best plan under ``incumbent_s`` and a lower bound on all plans (equal unless ``bound_only``).

    ``work`` (variants, sets) are compute seconds of one accelerator, ``floors`` (variants, stages + 1) what the largest load
    cannot be below with that number of stages.
    """
    count, most = len(cases.variant), floors.shape[1] - 1
    best = Found(incumbent_s, -1, -1, np.inf, np.inf)
    least_transfers_s, least_held = sets.least_transfers_s, sets.least_held
    busy, lower, bounds = np.empty(count), np.empty(count), np.empty(count)
    state = np.full(count, FRESH)
    families, kins = (sets.family.max() + 1, len(sets.most_severe.tier)) if count else (0, 0)
    known, loads = np.zeros(families, np.bool_), np.empty((families, most + 1))
    kin_known, at_least, at_most = np.zeros(kins, np.bool_), np.empty((kins, most + 1)), np.empty((kins, most + 1))
    for case in range(count):
        stages = cases.stages[case]
        busy[case] = busy_seconds(cases, sets, case, work[cases.variant[case]])
        lower[case] = max(floors[cases.variant[case], stages], (busy[case] + least_transfers_s[case]) / stages)
        bounds[case] = busy[case] + least_transfers_s[case] + line_seconds(cases, case, lower[case], least_held[case])[0]
    still_open, remaining = np.arange(count), count
    while True:
        case, remaining = least_bound(bounds, still_open, remaining, best.seconds)
        if remaining == 0:
            return best, best.seconds
        variant, stages, family, kin = cases.variant[case], cases.stages[case], sets.family[case], sets.kin[case]
        if stages == 1:
            held = sets.parameters[variant, -1] - sets.tied[variant]
            seconds, line = line_seconds(cases, case, busy[case], held)
            bounds[case] = np.inf
            if busy[case] + seconds < best.seconds:
                best = Found(busy[case] + seconds, case, line, busy[case], held)
            continue
        if bound_only and state[case] != FRESH:
            return best, bounds[case]
        if state[case] != BOTTLENECK_KNOWN:
            if not kin_known[kin]:  # what holds for all of its kin is cheaper than each by itself
                at_least[kin] = bottlenecks(_costs_at(cases, sets, case, most, work[variant], sets.most_lenient, kin), most)
                at_most[kin] = at_least[kin]
                if not _same(sets.most_lenient, sets.most_severe, kin):
                    at_most[kin] = bottlenecks(_costs_at(cases, sets, case, most, work[variant], sets.most_severe, kin), most)
                kin_known[kin] = True
            if at_least[kin, stages] == at_most[kin, stages]:
                state[case], lower[case] = BOTTLENECK_KNOWN, at_least[kin, stages]
            elif state[case] == FRESH:
                state[case], lower[case] = KIN_KNOWN, max(lower[case], at_least[kin, stages])
            else:
                if not known[family]:
                    end = stages if cases.tier[case] == MIXED else most
                    loads[family, : end + 1] = bottlenecks(set_costs(cases, sets, case, end, work[variant]), end)
                    known[family] = True
                state[case], lower[case] = BOTTLENECK_KNOWN, loads[family, stages]
            bounds[case] = busy[case] + least_transfers_s[case] + line_seconds(cases, case, lower[case], least_held[case])[0]
        else:
            costs = set_costs(cases, sets, case, stages, work[variant])
            best = close_case_of_sets(cases, sets, case, costs, lower[case], least_transfers_s[case], best)
            bounds[case] = np.inf


@outer
def solve_rows_of_sets(
    cases: Cases,
    sets: LayerSets,
    seconds: FloatArray,
    sequence: IntArray,
    repeats: FloatArray,
    rows: IntArray,
    incumbent_s: FloatArray,
    bound_only: bool,
    bound_s: FloatArray,
    line: IntArray,
    case: IntArray,
) -> None:
    """``solve_sets`` for accelerators ``rows`` of ``seconds`` (accelerators, variants, distinct layers); fills the last arrays.

    ``repeats`` (sets, distinct layers) counts the layers of each kind in each set.
    """
    variants = seconds.shape[1]
    most = cases.stages.max() if len(cases.stages) else 0
    work, floors = np.empty((variants, len(repeats))), np.empty((variants, most + 1))
    for k in range(len(rows)):
        for variant in range(variants):
            for each in range(len(repeats)):
                work[variant, each] = 0.0
                for layer in range(repeats.shape[1]):
                    work[variant, each] += repeats[each, layer] * seconds[rows[k], variant, layer]
            floors[variant] = least_largest_loads(seconds[rows[k], variant][sequence], most)
        found, bound_s[k] = solve_sets(cases, sets, work, floors, incumbent_s[k], bound_only)
        line[k], case[k] = found.line, found.case
