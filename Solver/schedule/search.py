"""Exact search for the best schedule of a series component, compiled: depth-first branch and bound
over event times.

A schedule is a sequence of operators that run alone (in their faster mode) and of *blocks*,
stretches without an instant at which nothing is in progress, in which two or more operators run on
single cores. At each event (start, or end of an operator) the search starts further ready operators
or advances to the next end; between blocks it may also run one operator alone, or all that remain.
Every rule keeps at least one optimal schedule:

* an operator with nothing to follow runs alone only at the very end (moved there, nothing is
  delayed);
* of interchangeable operators the one ready first, and followed by more, starts first (swap them);
* do not advance past the end of an operator that was ready and fits (start it: its cores are free
  until it ends);
* an operator that was ready while a core of its type(s) stayed free may not start before all those
  cores have been busy (start it earlier instead); such operators are *barred*;
* a lower bound of what remains reaches the incumbent: weights of ``bounds``, longest paths, and a
  table of exhausted states (a transposition table by what has started and what is running) that
  proves a cost to go; an entry holds for states no further along, whose barred operators include
  its own (with the same residual times unless it had none: barring refers to when cores become
  free).
"""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from Estimator.compiled import borrowing_inner, borrowing_outer, inlined
from phaze_common.array_types import BoolArray, FloatArray, IntArray
from Solver.schedule.bounds import TOLERANCE, sort_descending
from Solver.schedule.tables import Cases, Tables, Timings

BUCKET_SIZE = 8  # entries of the table that a state may be in
ENTRIES = 1 << 13
ONE = np.int64(1)
NONE = np.int64(0)

# Columns of ``sets``, a row for each event from the start to here, and of the table's ``states``.
# READY: what could start now. CHOSEN: place in ``priority`` of what was started at this clock to
# get here (-1: a new event). OPTION: the next to try (0..n-1 start, n advance, n+1..2n run alone;
# -1: the row is new). BUCKET: first slot of the table. LONE: one operator is running, which has
# just started and is no block yet.
STARTED, RUNNING, BARRED, READY, CHOSEN, OPTION, BUCKET, LONE = range(8)
ENTRY_BITS = np.int64(16)  # of a slot, below the case that its entry is of
ENTRY = (np.int64(1) << ENTRY_BITS) - 1
# Places of the lowest bits of words, by the highest six bits of these times a de Bruijn sequence
DE_BRUIJN = np.int64(0x03F79D71B4CB0A89)
PLACES = np.empty(64, np.int64)
PLACES[[(0x03F79D71B4CB0A89 << place & (1 << 64) - 1) >> 58 for place in range(64)]] = range(64)
# Columns of ``times``, with the same rows; from REST on sums of ``least`` over what is not started.
CLOCK, NEXT_END, REST = range(3)
# Rows of ``latency``: seconds of operators, and of the longest path after each and from its start.
SINGLE, SHORTEST, AFTER, FROM = range(4)


class Exhausted(NamedTuple):
    """The table of exhausted states, shared by the cases of one structure.

    ``slots`` (entries,) are the cases and entries of states by their hash, those of a case before
    others of a bucket. Entries of a case are the first ones, so that few are near each other:
    ``states`` (entries, 3) are sets, ``cost_to_go`` (entries,) proven, ``residuals`` (entries, n)
    what running operators had left.
    """

    slots: IntArray
    states: IntArray
    cost_to_go: FloatArray
    residuals: FloatArray

    @staticmethod
    def of(count: int) -> Exhausted:
        """A new one, for so many operators."""
        slots, states = np.zeros(ENTRIES, np.int64), np.zeros((ENTRIES, BARRED + 1), np.int64)
        return Exhausted(slots, states, np.zeros(ENTRIES), np.zeros((ENTRIES, count)))


class SearchScratch(NamedTuple):
    """What cases of n operators are searched in, one after another."""

    sets: IntArray  # (3 n + 5, 8)
    times: FloatArray  # (3 n + 5, REST + weightings + 1)
    latency: FloatArray  # (4, n)
    least: FloatArray  # (weightings + 1, n): what operators add to bounds, and to the serial length
    priority: IntArray  # (n,)
    earlier: IntArray  # (n,): bitmasks of what starts no later than each operator
    end: FloatArray  # (n,)
    begun: FloatArray  # (n,)
    alone: BoolArray  # (n,)
    of_types: IntArray  # (4,): bitmasks of what could run on each set of types of cores

    @staticmethod
    def of(weightings: int, count: int) -> SearchScratch:
        """For so many operators, under so many weightings."""
        rows = 3 * count + 5
        sets, times = np.zeros((rows, 8), np.int64), np.zeros((rows, REST + weightings + 1))
        latency, least = np.zeros((4, count)), np.zeros((weightings + 1, count))
        priority, earlier = np.zeros((2, count), np.int64)
        end, begun, alone = np.zeros(count), np.zeros(count), np.zeros(count, np.bool_)
        of_types = np.zeros(4, np.int64)
        return SearchScratch(
            sets, times, latency, least, priority, earlier, end, begun, alone, of_types
        )


@inlined
def lowest(word: np.int64) -> np.int64:
    """Place of the lowest bit of ``word``, which has one."""
    return PLACES[((word & -word) * DE_BRUIJN) >> np.int64(58) & np.int64(63)]


@borrowing_inner
def serial_from(
    topological: IntArray,
    started: int,
    clock: float,
    single: FloatArray,
    shortest: FloatArray,
    start: FloatArray,
    all_mode: BoolArray,
) -> float:
    """Append the operators not in ``started`` one after another from ``clock``; returns the end."""
    for i in topological:
        if not (started >> i & 1):
            start[i] = clock
            all_mode[i] = shortest[i] < single[i]
            clock += shortest[i]
    return clock


@borrowing_inner
def fill_latency(t: Tables, single: FloatArray, shortest: FloatArray, latency: FloatArray) -> None:
    """Operators' seconds and longest paths, shape (4, n)."""
    for i in range(len(single)):  # a row at once takes the compiler seconds
        latency[SINGLE, i], latency[SHORTEST, i], latency[AFTER, i] = single[i], shortest[i], 0.0
    for k in range(len(single) - 1, -1, -1):
        j = t.topological[k]
        latency[FROM, j] = latency[AFTER, j] + shortest[j]
        for z in range(t.predecessor_offsets[j], t.predecessor_offsets[j + 1]):
            i = t.predecessors[z]
            latency[AFTER, i] = max(latency[AFTER, i], latency[FROM, j])


@borrowing_inner
def fill_earlier(
    allowed: IntArray, single: FloatArray, shortest: FloatArray, earlier: IntArray
) -> None:
    """Bitmasks of what starts no later than each operator: of those ``allowed`` its equals."""
    for i in range(len(single)):
        earlier[i] = 0
        for j in range(len(single)):
            if allowed[i] >> j & 1 and single[i] == single[j] and shortest[i] == shortest[j]:
                earlier[i] |= ONE << j


@borrowing_inner
def fill_least(
    weights: FloatArray, single: FloatArray, shortest: FloatArray, least: FloatArray
) -> None:
    """What each operator adds to each bound, and to the serial length: (weightings + 1, n)."""
    weightings = len(weights)
    for i in range(len(single)):
        for k in range(weightings):
            least[k, i] = min(shortest[i], weights[k, i] * single[i])
        least[weightings, i] = shortest[i]


@inlined
def is_bounded(
    sets: IntArray,
    times: FloatArray,
    d: int,
    latency: FloatArray,
    weights: FloatArray,
    priority: IntArray,
    end: FloatArray,
    cutoff: float,
) -> bool:
    """Whether weights or longest paths prove that a state leads to nothing below ``cutoff``."""
    now, running, started, bounded = times[d, CLOCK], sets[d, RUNNING], sets[d, STARTED], False
    for k in range(len(weights)):
        reach, left = now + times[d, REST + k], running
        while left != 0:
            i = lowest(left)
            left &= left - ONE
            reach += weights[k, i] * (end[i] - now)
        if reach >= cutoff:
            bounded = True
            break
    if not bounded:
        for i in priority:
            if not (started >> i & 1):  # the first one has the longest path of all
                bounded = now + latency[FROM, i] >= cutoff
                break
    if not bounded:
        left = running
        while left != 0:
            i = lowest(left)
            left &= left - ONE
            if end[i] + latency[AFTER, i] >= cutoff:
                bounded = True
                break
    return bounded


@inlined
def bucket_of(started: np.int64, running: np.int64, entries: int) -> np.int64:
    """First slot of those that a state may be in."""
    mixed = (started * np.int64(-7046029254386353131)) ^ (running * np.int64(-4417276706812531889))
    mixed ^= mixed >> 29
    return (mixed & np.int64(0x7FFFFFFFFFFFFFFF)) % (entries // BUCKET_SIZE) * BUCKET_SIZE


@inlined
def is_dominated(
    slots: IntArray,
    states: IntArray,
    cost_to_go: FloatArray,
    residuals: FloatArray,
    generation: np.int64,
    sets: IntArray,
    d: int,
    now: float,
    end: FloatArray,
    cutoff: float,
) -> bool:
    """Whether the table proves that a state leads to nothing below ``cutoff``."""
    dominated = False
    for slot in range(sets[d, BUCKET], sets[d, BUCKET] + BUCKET_SIZE):
        if slots[slot] >> ENTRY_BITS != generation:
            break
        z = slots[slot] & ENTRY
        if (
            states[z, STARTED] == sets[d, STARTED]
            and states[z, RUNNING] == sets[d, RUNNING]
            and (states[z, BARRED] & ~sets[d, BARRED]) == 0
            and now + cost_to_go[z] >= cutoff
        ):
            dominated, others = True, sets[d, RUNNING]
            while others != 0:
                i = lowest(others)
                others &= others - ONE
                left = end[i] - now
                if residuals[z, i] > left or (states[z, BARRED] != 0 and residuals[z, i] != left):
                    dominated = False
                    break
            if dominated:
                break
    return dominated


@inlined
def slot_for(slots: IntArray, cost_to_go: FloatArray, generation: np.int64, first: int) -> int:
    """The slot of a bucket to overwrite: one of another case, or of the least cost to go."""
    found = first
    for slot in range(first, first + BUCKET_SIZE):
        if slots[slot] >> ENTRY_BITS != generation:
            found = slot
            break
        if cost_to_go[slots[slot] & ENTRY] < cost_to_go[slots[found] & ENTRY]:
            found = slot
    return found


@inlined
def ready_operators(
    type_bits: IntArray,
    of_types: IntArray,
    before: IntArray,
    cores: IntArray,
    started: np.int64,
    running: np.int64,
) -> np.int64:
    """Operators that could start now; ``of_types`` (4,) are those that cores of no type, of the
    first, of the second and of both suffice for."""
    free_tc, free_vc, ready, left = cores[0], cores[1], NONE, running
    while left != 0:
        i = lowest(left)
        left &= left - ONE
        free_tc -= type_bits[i] & 1
        free_vc -= type_bits[i] >> 1
    fitting = (1 if free_tc > 0 else 0) | (2 if free_vc > 0 else 0)
    finished = started & ~running
    left = of_types[fitting] & ~started
    while left != 0:
        i = lowest(left)
        left &= left - ONE
        if (before[i] & ~finished) == 0:
            ready |= ONE << i
    return ready


@inlined
def some_would_end(single: FloatArray, ready: np.int64, now: float, next_end: float) -> bool:
    """Whether a ready operator would end before time advances."""
    found = False
    while ready != 0:
        i = lowest(ready)
        ready &= ready - ONE
        if now + single[i] <= next_end:
            found = True
            break
    return found


@inlined
def still_running(end: FloatArray, running: np.int64, now: float) -> np.int64:
    """Those ``running`` that end after ``now``."""
    left = running
    while left != 0:
        i = lowest(left)
        left &= left - ONE
        if end[i] <= now:
            running &= ~(ONE << i)
    return running


@inlined
def push(
    sets: IntArray,
    times: FloatArray,
    least: FloatArray,
    d: int,
    i: int,
    clock: float,
    running: np.int64,
    barred: np.int64,
) -> None:
    """Append an event, with operator ``i`` started (-1: none)."""
    started = sets[d, STARTED]
    if i >= 0:
        started |= ONE << i
    sets[d + 1, STARTED], sets[d + 1, RUNNING], sets[d + 1, BARRED] = started, running, barred
    sets[d + 1, CHOSEN], sets[d + 1, OPTION], sets[d + 1, LONE] = -1, -1, 0
    times[d + 1, CLOCK] = clock
    for k in range(len(least)):
        times[d + 1, REST + k] = times[d, REST + k] - (least[k, i] if i >= 0 else 0.0)


@borrowing_inner
def search(
    t: Tables,
    single: FloatArray,
    shortest: FloatArray,
    cores: IntArray,
    weights: FloatArray,
    bound: float,
    node_limit: int,
    table: Exhausted,
    generation: np.int64,
    start: FloatArray,
    all_mode: BoolArray,
    scratch: SearchScratch,
) -> tuple[float, float]:
    """Best makespan and proven lower bound; the schedule goes to ``start`` and ``all_mode``.

    Entries of this case in ``table`` are told by its ``generation``.
    """
    weightings, n = weights.shape
    type_bits, before, followed = t.type_bits, t.before, t.followed
    slots, states, residuals = table.slots, table.states, table.residuals
    cost_to_go, entries = table.cost_to_go, NONE
    incumbent = serial_from(t.topological, 0, 0.0, single, shortest, start, all_mode)
    epsilon = TOLERANCE * incumbent
    if bound >= incumbent - epsilon:
        return incumbent, bound
    sets, times, latency, least = scratch.sets, scratch.times, scratch.latency, scratch.least
    priority, earlier = scratch.priority, scratch.earlier
    end, begun, alone = scratch.end, scratch.begun, scratch.alone
    fill_latency(t, single, shortest, latency)
    # ties as in the topological order, so that interchangeable operators stay in order
    sort_descending(latency[FROM], t.topological, priority)
    fill_earlier(t.earlier, single, shortest, earlier)
    fill_least(weights, single, shortest, least)
    full, of_types = (ONE << n) - 1, scratch.of_types
    for fitting in range(4):
        of_types[fitting] = 0
        for i in range(n):
            if (type_bits[i] & ~fitting) == 0:
                of_types[fitting] |= ONE << i
    for column in range(8):
        sets[0, column] = 0
    sets[0, CHOSEN] = sets[0, OPTION] = -1
    times[0, CLOCK] = 0.0
    for k in range(weightings + 1):
        times[0, REST + k] = 0.0
        for i in range(n):
            times[0, REST + k] += least[k, i]
    for i in range(n):
        end[i] = begun[i] = 0.0
        alone[i] = False
    nodes = d = 0
    while d >= 0:
        now, started, running = times[d, CLOCK], sets[d, STARTED], sets[d, RUNNING]
        if sets[d, OPTION] < 0:
            sets[d, OPTION] = 0
            nodes += 1
            if running == 0 and now + times[d, REST + weightings] < incumbent - epsilon:
                incumbent = serial_from(
                    t.topological, started, now, single, shortest, start, all_mode
                )
                for i in range(n):
                    if started >> i & 1:
                        start[i] = begun[i]
                        all_mode[i] = alone[i] and shortest[i] < single[i]
            if nodes > node_limit or incumbent <= bound + epsilon:
                return incumbent, bound
            cutoff = incumbent - epsilon
            hopeless = started == full and running == 0
            if not hopeless:
                hopeless = is_bounded(sets, times, d, latency, weights, priority, end, cutoff)
            if not hopeless and sets[d, CHOSEN] < 0:
                sets[d, BUCKET] = bucket_of(started, running, len(slots))
                hopeless = is_dominated(
                    slots, states, cost_to_go, residuals, generation, sets, d, now, end, cutoff
                )
            if hopeless:
                d -= 1
                continue
            sets[d, READY] = ready_operators(type_bits, of_types, before, cores, started, running)
            next_end, left = np.inf, running
            while left != 0:
                i = lowest(left)
                left &= left - ONE
                next_end = min(next_end, end[i])
            times[d, NEXT_END] = next_end
        ready, pushed = sets[d, READY], False
        while not pushed and sets[d, OPTION] <= 2 * n:
            option = sets[d, OPTION]
            if option < n and ready & ~sets[d, BARRED] == 0:
                option = n  # none of those can start
            if option > n and (running != 0 or ready == 0 or sets[d, CHOSEN] >= 0):
                option = 2 * n + 1  # none can run alone
            sets[d, OPTION] = option + 1
            if option < n:
                i = priority[option]
                if (
                    option > sets[d, CHOSEN]
                    and (ready & ~sets[d, BARRED]) >> i & 1
                    and (earlier[i] & ~started) == 0
                    and now + single[i] + latency[AFTER, i] < incumbent - epsilon
                ):
                    pushed = True
                    begun[i], end[i], alone[i] = now, now + single[i], False
                    push(sets, times, least, d, i, now, running | ONE << i, sets[d, BARRED])
                    sets[d + 1, CHOSEN], sets[d + 1, LONE] = option, running == 0
            elif option == n:
                next_end = times[d, NEXT_END]
                if running != 0 and sets[d, LONE] == 0:
                    pushed = not some_would_end(single, ready, now, next_end)
                    if pushed:
                        left = still_running(end, running, next_end)
                        push(sets, times, least, d, -1, next_end, left, ready)
            elif running == 0 and sets[d, CHOSEN] < 0:
                i = priority[option - n - 1]
                if followed[i] and ready >> i & 1 and (earlier[i] & ~started) == 0:
                    pushed = True
                    begun[i], alone[i] = now, True
                    push(sets, times, least, d, i, now + shortest[i], NONE, NONE)
        if pushed:
            d += 1
            continue
        if sets[d, CHOSEN] < 0:
            slot = slot_for(slots, cost_to_go, generation, sets[d, BUCKET])
            if slots[slot] >> ENTRY_BITS != generation:
                slots[slot] = generation << ENTRY_BITS | entries
                entries += ONE
            entry, left = slots[slot] & ENTRY, running
            for column in range(BARRED + 1):
                states[entry, column] = sets[d, column]
            cost_to_go[entry] = incumbent - now
            while left != 0:
                i = lowest(left)
                left &= left - ONE
                residuals[entry, i] = end[i] - now
        d -= 1
    return incumbent, incumbent


@borrowing_outer
def search_many(
    t: Tables,
    cases: Cases,
    weights: FloatArray,
    node_limit: int,
    found: Timings,
    table: Exhausted,
    scratch: SearchScratch,
) -> None:
    """Solve N cases into ``found``, whose ``lower`` is what their ``weights`` (N, weightings, n)
    prove so far; ``table`` is a new one."""
    for case in range(len(cases.single)):
        found.makespan[case], found.lower[case] = search(
            t,
            cases.single[case],
            cases.shortest[case],
            cases.cores[case],
            weights[case],
            found.lower[case],
            node_limit,
            table,
            np.int64(case + 1),
            found.start[case],
            found.all_mode[case],
            scratch,
        )
