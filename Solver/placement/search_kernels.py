"""Compiled best-first search over the cases of a placement problem, for one accelerator or many.

Every case has a lower bound; the case with the least one is refined (cheap bound, bound with the exact bottleneck, all cuts)
until no bound is below the best plan found. Within a case the trade of largest load against largest parameter sum (the gradient
synchronisation of the fullest stage) is closed by interval branch and bound over the cap on parameter sums.
"""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from Solver.placement.cases import MIXED, Cases
from Solver.placement.kernels import (
    EPSILON,
    Stage,
    drops_help,
    exact_bottleneck,
    first_at_least,
    greatest,
    greedy_bottleneck,
    inner,
    least_transfers,
    next_load,
    outer,
)
from Solver.placement.problem import FloatArray, IntArray

FRESH, BOTTLENECK_KNOWN = 0, 1
STACK_SIZE = 256


class Chains(NamedTuple):
    """The variants' layers without their latencies: prefix sums (variants, layers + 1), links (variants, tiers, layers + 1)."""

    parameters: FloatArray
    saved: FloatArray
    kept: FloatArray  # see ``Stage``
    workspace: FloatArray
    entering: FloatArray
    leaving: FloatArray
    tied: FloatArray  # (variants,)
    caps: FloatArray  # sorted distinct parameter sums of stages, all variants after another
    first_cap: IntArray  # (variants + 1,)
    least_held: FloatArray  # (cases,): no cut has a smaller largest parameter sum
    least_transfers_s: FloatArray  # (cases,): no cut has a smaller transfer sum
    same_transfers: IntArray  # (cases,): 1 where every cut has that transfer sum
    hbm_bytes: float


class Found(NamedTuple):
    """A plan as the search knows it; ``line`` is -1 where there is none."""

    seconds: float
    case: int
    line: int
    load: float
    held: float


@inner
def line_seconds(cases: Cases, case: int, load: float, held: float) -> tuple[float, int]:
    """Cheapest data-parallel degree of a case for a largest load and parameter sum, as (seconds, line)."""
    best, line = np.inf, -1
    for k in range(cases.first_line[case], cases.first_line[case + 1]):
        seconds = cases.weight[k] * load + cases.per_parameter_s[k] * held + cases.fixed_s[k]
        if seconds < best:
            best, line = seconds, k
    return best, line


@inner
def load_limit(cases: Cases, case: int, held: float, seconds: float) -> float:
    """Largest load with which some line of the case stays within ``seconds``, given at least ``held`` parameters."""
    limit = -1.0
    for k in range(cases.first_line[case], cases.first_line[case + 1]):
        room = seconds - cases.per_parameter_s[k] * held - cases.fixed_s[k]
        if room >= 0.0:
            if cases.weight[k] == 0.0:
                return np.inf
            limit = max(limit, room / cases.weight[k])
    return limit


@inner
def case_work(cases: Cases, chains: Chains, case: int, work: FloatArray) -> FloatArray:
    """Prefix sums of compute seconds with the weight gathers of the case."""
    gather, fixed = cases.gather_s[case], cases.gather_fixed_s[case]
    if gather == 0.0 and fixed == 0.0:
        return work
    variant = cases.variant[case]
    with_gathers = np.empty_like(work)
    for layer in range(len(work)):
        with_gathers[layer] = work[layer] + gather * chains.parameters[variant, layer] + fixed * layer
    if cases.stages[case] == 1:
        with_gathers[-1] -= gather * chains.tied[variant]
    return with_gathers


@inner
def one_stage(cases: Cases, chains: Chains, case: int, work: FloatArray) -> Found:
    """The plan without a pipeline: tied parameters are held once."""
    variant = cases.variant[case]
    held = chains.parameters[variant, -1] - chains.tied[variant]
    load = case_work(cases, chains, case, work)[-1]
    seconds, line = line_seconds(cases, case, load, held)
    return Found(seconds + load, case, line, load, held)


@outer
def stage_costs(cases: Cases, chains: Chains, case: int, work: FloatArray) -> Stage:
    """Assemble what the cutting kernels need of a case."""
    variant, layers = cases.variant[case], chains.workspace.shape[1]
    mixed = cases.tier[case] == MIXED
    tiers = cases.link_tiers[cases.links[case]] if mixed else np.full(layers + 1, cases.tier[case])
    return Stage(
        case_work(cases, chains, case, work),
        chains.parameters[variant],
        chains.saved[variant],
        chains.kept[variant],
        chains.workspace[variant],
        chains.entering[variant],
        chains.leaving[variant],
        tiers,
        cases.in_flight[case],
        cases.resident_bytes[case],
        chains.hbm_bytes,
    )


@inner
def bottleneck(chain: Stage, stages: int, greedy: bool, cap: float, lower: float, upper: float) -> tuple[float, float]:
    """Least possible largest load, by the fast method where it is exact."""
    if greedy:
        return greedy_bottleneck(chain, stages, cap, lower, upper)
    return exact_bottleneck(chain, stages, cap, upper)


@inner
def evaluate_cap(
    cases: Cases, chains: Chains, case: int, chain: Stage, load: float, held: float, least_s: float, best: Found
) -> Found:
    """Best plan with parameter sums up to ``held`` and loads from ``load`` up, if it beats ``best``."""
    busy = chain.work[-1]
    stages = cases.stages[case]
    seconds, line = line_seconds(cases, case, load, held)
    if chains.same_transfers[case]:
        if busy + least_s + seconds < best.seconds:
            return Found(busy + least_s + seconds, case, line, load, held)
        return best
    ends = np.empty((stages + 1, len(chain.work)), np.int64)
    while busy + least_s + seconds < best.seconds:
        transfers = least_transfers(chain, stages, load, held, ends)
        if busy + transfers + seconds < best.seconds:
            best = Found(busy + transfers + seconds, case, line, load, held)
        load = next_load(chain, load, load_limit(cases, case, held, best.seconds - busy - least_s))
        if load == np.inf:
            break
        seconds, line = line_seconds(cases, case, load, held)
    return best


@inner
def close_case(
    cases: Cases, chains: Chains, case: int, chain: Stage, greedy: bool, load: float, held: float, best: Found
) -> Found:
    """Best plan of a case if it beats ``best``; (load, held) is the bottleneck without a cap."""
    variant, stages, busy = cases.variant[case], cases.stages[case], chain.work[-1]
    first, last = chains.first_cap[variant], chains.first_cap[variant + 1]
    caps = chains.caps[first:last]
    least_s = chains.least_transfers_s[case]
    if not chains.same_transfers[case]:
        upper = load_limit(cases, case, chains.least_held[case], best.seconds - busy - least_s)
        ends = np.empty((stages + 1, len(chain.work)), np.int64)
        least_s = max(least_s, least_transfers(chain, stages, upper, np.inf, ends))
        if least_s == np.inf:
            return best
    low_stack, high_stack, load_stack = np.empty(STACK_SIZE, np.int64), np.empty(STACK_SIZE, np.int64), np.empty(STACK_SIZE)
    low_stack[0] = first_at_least(caps, chains.least_held[case] / EPSILON)
    # Smaller sums than the cap come for free, unless a larger one could save transfers.
    tighten = chains.same_transfers[case] == 1
    high_stack[0] = first_at_least(caps, held / EPSILON) if tighten else len(caps) - 1
    load_stack[0] = load
    best = evaluate_cap(cases, chains, case, chain, load, caps[high_stack[0]], least_s, best)
    top = 1
    while top > 0:  # caps[low..high-1] are open; with any of them the largest load is at least ``load``
        top -= 1
        low, high, load = low_stack[top], high_stack[top], load_stack[top]
        if low >= high:
            continue
        seconds, _ = line_seconds(cases, case, load, caps[low])
        if busy + least_s + seconds >= best.seconds:
            continue
        middle = (low + high - 1) // 2
        upper = load_limit(cases, case, caps[low], best.seconds - busy - least_s)
        middle_load, middle_held = bottleneck(chain, stages, greedy, caps[middle], load, upper)
        low_stack[top], high_stack[top], load_stack[top] = middle + 1, high, load
        top += 1
        if middle_load < np.inf:
            reached = min(first_at_least(caps, middle_held / EPSILON), middle) if tighten else middle
            best = evaluate_cap(cases, chains, case, chain, middle_load, caps[reached], least_s, best)
            low_stack[top], high_stack[top], load_stack[top] = low, reached, middle_load
            top += 1
    return best


@inner
def least_bound(bounds: FloatArray, still_open: IntArray, remaining: int, limit: float) -> tuple[int, int]:
    """Case with the least bound among the first ``remaining`` open ones; those whose bound reaches ``limit`` are dropped."""
    best, kept = still_open[0] if remaining else 0, 0
    for k in range(remaining):
        case = still_open[k]
        if bounds[case] * EPSILON < limit:
            still_open[kept] = case
            kept += 1
            if kept == 1 or bounds[case] < bounds[best]:
                best = case
    return best, kept


@outer
def solve(cases: Cases, chains: Chains, work: FloatArray, incumbent_s: float, bound_only: bool) -> tuple[Found, float]:
    """Best plan under ``incumbent_s`` and a lower bound on all plans (equal unless ``bound_only``).

    ``work`` (variants, layers + 1) are prefix sums of forward, backward and recomputation seconds of one accelerator.
    """
    count, layers = len(cases.variant), chains.workspace.shape[1]
    best = Found(incumbent_s, -1, -1, np.inf, np.inf)
    bounds, lower = np.empty(count), np.empty(count)
    state = np.full(count, FRESH)
    tiers = chains.entering.shape[1]
    greedy_exact = np.empty((len(work), tiers), np.bool_)
    longest = np.zeros(len(work))
    for variant in range(len(work)):
        for tier in range(tiers):
            greedy_exact[variant, tier] = drops_help(work[variant], chains.entering[variant, tier], chains.leaving[variant, tier])
        for layer in range(layers):
            longest[variant] = max(longest[variant], work[variant, layer + 1] - work[variant, layer])
    for case in range(count):
        variant = cases.variant[case]
        busy = work[variant, -1] + chains.least_transfers_s[case]
        if cases.gather_s[case] > 0.0 or cases.gather_fixed_s[case] > 0.0:
            held = chains.parameters[variant, -1] - chains.tied[variant]
            busy += cases.gather_s[case] * held + cases.gather_fixed_s[case] * layers
        lower[case] = max(longest[variant], busy / cases.stages[case])
        bounds[case] = busy + line_seconds(cases, case, lower[case], chains.least_held[case])[0]
    still_open, remaining = np.arange(count), count
    while True:
        case, remaining = least_bound(bounds, still_open, remaining, best.seconds)
        if remaining == 0:
            return best, best.seconds
        variant = cases.variant[case]
        if cases.stages[case] == 1:
            found = one_stage(cases, chains, case, work[variant])
            bounds[case] = np.inf
            if found.seconds < best.seconds:
                best = found
            continue
        if bound_only and state[case] == BOTTLENECK_KNOWN:
            return best, bounds[case]
        chain = stage_costs(cases, chains, case, work[variant])
        greedy = cases.tier[case] != MIXED and greedy_exact[variant, max(cases.tier[case], 0)]
        busy = chain.work[-1]
        least_s = chains.least_transfers_s[case]
        upper = load_limit(cases, case, chains.least_held[case], best.seconds - busy - least_s)
        load, held = bottleneck(chain, cases.stages[case], greedy, np.inf, lower[case] / EPSILON, upper)
        if load == np.inf:
            bounds[case] = np.inf
        elif state[case] == FRESH:
            state[case], lower[case] = BOTTLENECK_KNOWN, load
            bounds[case] = busy + least_s + line_seconds(cases, case, load, chains.least_held[case])[0]
        else:
            best = close_case(cases, chains, case, chain, greedy, load, held, best)
            bounds[case] = np.inf


@outer
def solve_rows(
    cases: Cases,
    chains: Chains,
    seconds: FloatArray,
    sequence: IntArray,
    rows: IntArray,
    incumbent_s: FloatArray,
    bound_only: bool,
    bound_s: FloatArray,
    line: IntArray,
    case: IntArray,
) -> None:
    """``solve`` for accelerators ``rows`` of ``seconds`` (accelerators, variants, distinct layers); fills the last arrays."""
    variants, layers = seconds.shape[1], len(sequence)
    work = np.zeros((variants, layers + 1))
    for k in range(len(rows)):
        for variant in range(variants):
            for layer in range(layers):
                work[variant, layer + 1] = work[variant, layer] + seconds[rows[k], variant, sequence[layer]]
        found, bound_s[k] = solve(cases, chains, work, incumbent_s[k], bound_only)
        line[k], case[k] = found.line, found.case


@outer
def cases_that_fit(cases: Cases, chains: Chains) -> IntArray:
    """1 for the cases that have a cut within memory, whatever the latencies, else 0."""
    layers = chains.workspace.shape[1]
    fits = np.zeros(len(cases.variant), np.int64)
    needed = np.zeros(layers + 1, np.int64)  # stages, by limit on what is in flight; 0 where not known
    last_variant, last_resident = -1, -1.0
    for case in range(len(fits)):
        variant, stages, resident = cases.variant[case], cases.stages[case], cases.resident_bytes[case]
        if stages == 1:
            fits[case] = one_stage_memory(chains, variant, resident) <= chains.hbm_bytes * EPSILON
            continue
        # Fewer than ``stages`` in flight is a limit; otherwise the position in the pipeline is.
        in_flight = cases.in_flight[case] if cases.in_flight[case] < stages else layers
        if variant != last_variant or resident != last_resident:
            needed.fill(0)
            last_variant, last_resident = variant, resident
        if needed[in_flight] == 0:
            needed[in_flight] = stages_needed(chains, variant, in_flight, resident, chains.hbm_bytes)
        fits[case] = needed[in_flight] <= stages
    return fits


@inner
def one_stage_memory(chains: Chains, variant: int, resident: float) -> float:
    """Bytes of all layers together; tied parameters are held once."""
    held = chains.parameters[variant, -1] - chains.tied[variant]
    return held * resident + chains.saved[variant, -1] + greatest(chains.workspace[variant], chains.workspace.shape[1])


@inner
def stages_needed(chains: Chains, variant: int, in_flight: int, resident: float, hbm_bytes: float) -> int:
    """Least number of stages (two or more) whose memory suffices; more than there are layers where none does."""
    layers = chains.workspace.shape[1]
    parameters, workspace = chains.parameters[variant], chains.workspace[variant]
    saved, kept = chains.saved[variant], chains.kept[variant]
    end = layers
    for position in range(1, layers + 1):
        start, space = end, 0.0
        while start > 0:
            space = max(space, workspace[start - 1])
            memory = (parameters[end] - parameters[start - 1]) * resident + space
            if memory + min(position, in_flight) * (saved[end] - kept[start - 1]) > hbm_bytes * EPSILON:
                break
            start -= 1
        if start == 0:
            return max(position, 2)
        if start == end:
            break
        end = start
    return layers + 1


@outer
def least_memory(cases: Cases, chains: Chains) -> float:
    """Smallest device memory, within 0.01 %, in which some case has a cut; infinity where there are no cases."""
    best = np.inf
    for case in range(len(cases.variant)):
        variant, stages, resident = cases.variant[case], cases.stages[case], cases.resident_bytes[case]
        whole = one_stage_memory(chains, variant, resident)
        if stages == 1:
            best = min(best, whole)
            continue
        most_saved = chains.saved[variant, -1] + greatest(chains.saved[variant] - chains.kept[variant], chains.saved.shape[1])
        lower, upper = 0.0, min(best, whole + chains.tied[variant] * resident + stages * most_saved)
        middle = upper * (1.0 - 1e-4)  # most cases do not improve on the best so far
        while upper - lower > 1e-4 * upper:
            if stages_needed(chains, variant, cases.in_flight[case], resident, middle) <= stages:
                upper = middle
            else:
                lower = middle
            middle = 0.5 * (lower + upper)
        best = upper
    return best
