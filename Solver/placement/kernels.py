"""Compiled inner loops of the chain solver.

Conventions: layers 0..n-1; prefix sums have n + 1 entries; ``entering[i]`` is the transfer into a stage that starts at layer i
and ``leaving[i]`` the one into a stage that ends before layer i (0 at the ends of the chain); positions count stages from the end
of the pipeline, 1 being the last. ``cap`` limits the parameters, ``limit`` the load of every stage. Infinity means that there is
no such cut. Values within ``EPSILON`` of each other are equal.
"""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from Solver.placement.objective import TOLERANCE
from Solver.placement.problem import FloatArray, IntArray

outer = njit(cache=True, nogil=True)
# Called from compiled code only; without wrappers for Python these compile in half the time.
inner = njit(cache=True, nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)

EPSILON = 1.0 + TOLERANCE
STEPS_BEFORE_BISECTION = 4


class Stage(NamedTuple):
    """What one variant's stages cost in one case; prefix sums of shape (layers + 1,), transfers of shape (tiers, layers + 1)."""

    work: FloatArray
    parameters: FloatArray
    saved: FloatArray
    kept: FloatArray  # ``saved`` as the start of a stage counts: less what it copies from before
    workspace: FloatArray  # (layers,)
    entering: FloatArray
    leaving: FloatArray
    tiers: IntArray  # (layers + 1,): tier of the link into the stage at each position
    in_flight: int
    resident_bytes: float
    hbm_bytes: float


@inner
def greatest(values: FloatArray, count: int) -> float:
    """Largest of the first ``count`` values, which are not negative."""
    most = 0.0
    for k in range(count):
        most = max(most, values[k])
    return most


@inner
def first_at_least(values: FloatArray, least: float) -> int:
    """Index of the first of the sorted ``values`` that reaches ``least``."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        if values[middle] < least:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def greedy_cut(chain: Stage, stages: int, limit: float, cap: float) -> tuple[bool, float, float, float]:
    """Fill stages from the end of the chain as far as ``limit``, ``cap`` and memory let each go (at most ``stages``).

    Exact where dropping a layer never lengthens a stage and all links are alike: reaching further with the last stages then
    never hurts the others. Returns (all layers placed, largest load, largest parameter sum, least limit that changes anything).
    """
    entering, leaving = chain.entering[chain.tiers[1]], chain.leaving[chain.tiers[1]]
    work, parameters, saved, kept = chain.work, chain.parameters, chain.saved, chain.kept
    slack, cap_slack, hbm_slack = limit * EPSILON, cap * EPSILON, chain.hbm_bytes * EPSILON
    next_limit, largest, most = np.inf, 0.0, 0.0
    end = len(work) - 1
    for position in range(1, stages + 1):
        in_flight = min(position, chain.in_flight)
        start, space = end, 0.0
        blocked = False
        while start > 0:
            first = start - 1
            space = max(space, chain.workspace[first])
            held = parameters[end] - parameters[first]
            if held > cap_slack:
                break
            if held * chain.resident_bytes + in_flight * (saved[end] - kept[first]) + space > hbm_slack:
                break
            load = work[end] - work[first] + leaving[end] + entering[first]
            if load > slack:
                next_limit = min(next_limit, load)
                blocked = True
                break
            start = first
        if blocked:  # the first stage receives nothing, so it may reach layer 0 though it cannot reach layer 1
            load = work[end] + leaving[end]
            if load > slack:
                next_limit = min(next_limit, load)
            elif parameters[end] <= cap_slack:
                space = greatest(chain.workspace, end)
                if parameters[end] * chain.resident_bytes + in_flight * saved[end] + space <= hbm_slack:
                    start = 0
        if start == end:
            return False, largest, most, next_limit
        largest = max(largest, work[end] - work[start] + leaving[end] + entering[start])
        most = max(most, parameters[end] - parameters[start])
        if start == 0:
            return True, largest, most, next_limit
        end = start
    return False, largest, most, next_limit


@inner
def greedy_bottleneck(chain: Stage, stages: int, cap: float, lower: float, upper: float) -> tuple[float, float]:
    """Least possible largest load with at most ``stages`` stages, and the largest parameter sum of such a cut.

    ``lower`` must be a lower bound of the answer; answers above ``upper`` are not looked for and reported as infinity.
    """
    best, held = np.inf, 0.0
    step = 0
    while lower <= upper and lower < best:
        placed, load, most, lower_next = greedy_cut(chain, stages, lower, cap)
        if placed:
            return load, most
        lower = lower_next
        step += 1
        if step > STEPS_BEFORE_BISECTION and lower < min(upper, best):
            middle = min(2.0 * lower, 0.5 * (lower + min(upper, best)))
            placed, load, most, lower_next = greedy_cut(chain, stages, middle, cap)
            if placed:
                best, held = load, most
            else:
                lower = lower_next
    return best, held


@inner
def exact_bottleneck(chain: Stage, stages: int, cap: float, upper: float) -> tuple[float, float]:
    """As ``greedy_bottleneck`` by dynamic programming, for any transfers and with exactly ``stages`` stages."""
    layers = len(chain.workspace)
    best, after = np.full(layers + 1, np.inf), np.full(layers + 1, np.inf)
    held, held_after = np.zeros(layers + 1), np.zeros(layers + 1)
    after[layers] = 0.0
    for position in range(1, stages + 1):
        entering, leaving = chain.entering[chain.tiers[position]], chain.leaving[chain.tiers[position - 1]]
        in_flight = min(position, chain.in_flight)
        best.fill(np.inf)
        for start in range(stages - position, layers - position + 1 if position < stages else 1):
            space = 0.0
            for end in range(start + 1, layers - position + 2):
                space = max(space, chain.workspace[end - 1])
                most = chain.parameters[end] - chain.parameters[start]
                work = chain.work[end] - chain.work[start]
                memory = most * chain.resident_bytes + in_flight * (chain.saved[end] - chain.kept[start]) + space
                if most > cap * EPSILON or memory > chain.hbm_bytes * EPSILON or work > upper * EPSILON:
                    break
                load = max(after[end], work + entering[start] + leaving[end])
                if load < best[start] and load <= upper * EPSILON:
                    best[start] = load
                    held[start] = max(most, held_after[end])
        best, after = after, best
        held, held_after = held_after, held
    return after[0], held_after[0]


@outer
def least_transfers(chain: Stage, stages: int, limit: float, cap: float, ends: IntArray) -> float:
    """Least sum of transfer seconds over the links of exactly ``stages`` stages.

    ``ends[position, start]`` (stages + 1, layers + 1) becomes the end of the stage that starts there in such a cut.
    """
    layers = len(chain.workspace)
    best, after = np.full(layers + 1, np.inf), np.full(layers + 1, np.inf)
    after[layers] = 0.0
    for position in range(1, stages + 1):
        entering, leaving = chain.entering[chain.tiers[position]], chain.leaving[chain.tiers[position - 1]]
        out, into = chain.leaving[chain.tiers[position]], entering
        in_flight = min(position, chain.in_flight)
        best.fill(np.inf)
        for start in range(stages - position, layers - position + 1 if position < stages else 1):
            space = 0.0
            for end in range(start + 1, layers - position + 2):
                space = max(space, chain.workspace[end - 1])
                most = chain.parameters[end] - chain.parameters[start]
                work = chain.work[end] - chain.work[start]
                memory = most * chain.resident_bytes + in_flight * (chain.saved[end] - chain.kept[start]) + space
                if most > cap * EPSILON or memory > chain.hbm_bytes * EPSILON or work > limit * EPSILON:
                    break
                if work + entering[start] + leaving[end] <= limit * EPSILON:
                    transfers = after[end] + into[start] + out[start]
                    if transfers < best[start]:
                        best[start] = transfers
                        ends[position, start] = end
        best, after = after, best
    return after[0]


@inner
def next_load(chain: Stage, load: float, upper: float) -> float:
    """Least load above ``load`` that a stage can have on any of the case's links; infinity where none is within ``upper``."""
    layers = len(chain.workspace)
    least = np.inf
    for start in range(layers):
        for end in range(start + 1, layers + 1):
            work = chain.work[end] - chain.work[start]
            if work > upper:
                break
            for before in range(len(chain.entering)):
                for behind in range(len(chain.leaving)):
                    candidate = work + chain.entering[before, start] + chain.leaving[behind, end]
                    if candidate > load * EPSILON and candidate < least:
                        least = candidate
    return least if least <= upper else np.inf


@inner
def drops_help(work: FloatArray, entering: FloatArray, leaving: FloatArray) -> bool:
    """Whether dropping a layer never lengthens a stage (layer 0 and the last one excepted), as ``greedy_cut`` needs."""
    layers = len(work) - 1
    for layer in range(1, layers - 1):
        seconds = work[layer + 1] - work[layer]
        if entering[layer + 1] - entering[layer] > seconds or leaving[layer] - leaving[layer + 1] > seconds:
            return False
    return True


@outer
def least_largest_sums(sums: FloatArray) -> FloatArray:
    """Least possible largest stage sum for every number of stages (index 0 unused), from prefix sums of non-negative values."""
    layers = len(sums) - 1
    least = np.zeros(layers + 1)
    least[1] = sums[-1]
    for stages in range(2, layers + 1):
        lower, upper = sums[-1] / stages, least[stages - 1]
        while lower < upper * (1.0 - TOLERANCE):
            # Fill stages up to ``middle``: the largest sum reached is a new upper end, the least one refused a new lower end.
            middle, refused, largest, used, start = 0.5 * (lower + upper), np.inf, 0.0, 1, 0
            for end in range(1, layers + 1):
                if sums[end] - sums[start] > middle:
                    refused = min(refused, sums[end] - sums[start])
                    used, start = used + 1, end - 1
                    if sums[end] - sums[start] > middle:
                        used, refused = layers + 1, min(refused, sums[end] - sums[start])
                        break
                largest = max(largest, sums[end] - sums[start])
            if used <= stages:
                upper = largest
            else:
                lower = refused
        least[stages] = upper
    return least
