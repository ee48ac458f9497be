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
  table of exhausted states (started, running) that proves a cost to go; an entry holds for states
  no further along, whose barred operators include its own (with the same residual times unless it
  had none: barring refers to when cores become free).
"""

# mypy: disable-error-code="untyped-decorator,no-any-return"

import numpy as np
from numpy.typing import NDArray

from Estimator.plans.compiled import outer
from Solver.schedule.tables import Floats, Ints, Tables

WAYS = 8  # entries per bucket of the table of exhausted states
SLOTS = 1 << 13
ONE = np.int64(1)


@outer
def serial_from(
    topological: Ints,
    started: int,
    clock: float,
    single: Floats,
    shortest: Floats,
    start: Floats,
    all_mode: NDArray[np.bool_],
) -> float:
    """Append the operators not in ``started`` one after another from ``clock``; returns the end."""
    for i in topological:
        if not (started >> i & 1):
            start[i] = clock
            all_mode[i] = shortest[i] < single[i]
            clock += shortest[i]
    return clock


@outer
def search(
    t: Tables,
    single: Floats,
    shortest: Floats,
    cores: Ints,
    weights: Floats,
    bound: float,
    tolerance: float,
    node_limit: int,
    stamp: int,
    keys: Ints,
    cost_to_go: Floats,
    residuals: Floats,
    start: Floats,
    all_mode: NDArray[np.bool_],
) -> tuple[float, float, int]:
    """Best makespan, proven lower bound and nodes visited; the schedule goes to ``start`` and
    ``all_mode``.

    ``keys`` (slots, 4: started, running, barred, stamp), ``cost_to_go`` and ``residuals`` (slots,
    n) are the table, shared by the instances of one structure, told apart by ``stamp``.
    """
    weightings, n = weights.shape
    type_bits, before, topological, followed = t.type_bits, t.before, t.topological, t.followed
    incumbent = serial_from(topological, 0, 0.0, single, shortest, start, all_mode)
    epsilon = tolerance * incumbent
    if bound >= incumbent - epsilon:
        return incumbent, bound, 0
    tail = np.zeros(n)  # longest path after each operator
    path = np.zeros(n)  # and from its start
    for k in range(n - 1, -1, -1):
        j = topological[k]
        path[j] = tail[j] + shortest[j]
        for z in range(t.predecessor_offsets[j], t.predecessor_offsets[j + 1]):
            i = t.predecessors[z]
            tail[i] = max(tail[i], path[j])
    priority = np.empty(
        n, np.int64
    )  # ties as in the topological order, so that interchangeable operators stay in order
    for k in range(n):
        place = k
        while place > 0 and path[priority[place - 1]] < path[topological[k]]:
            priority[place] = priority[place - 1]
            place -= 1
        priority[place] = topological[k]
    earlier = np.zeros(n, np.int64)
    for i in range(n):
        for j in range(n):
            if t.earlier[i] >> j & 1 and single[i] == single[j] and shortest[i] == shortest[j]:
                earlier[i] |= ONE << j
    least = np.empty((weightings + 1, n))  # contribution to each bound, and to the serial length
    for i in range(n):
        for k in range(weightings):
            least[k, i] = min(shortest[i], weights[k, i] * single[i])
        least[weightings, i] = shortest[i]
    full = (ONE << n) - 1
    buckets = len(cost_to_go) // WAYS

    depth_limit = 3 * n + 5
    clock = np.zeros(depth_limit)
    started = np.zeros(depth_limit, np.int64)
    running = np.zeros(depth_limit, np.int64)
    barred = np.zeros(depth_limit, np.int64)
    chosen = np.full(
        depth_limit, -1
    )  # priority position of the operator started at this clock to get here, -1 at a new event
    option = np.zeros(
        depth_limit, np.int64
    )  # next to try: 0..n-1 start, n advance, n+1..2n run alone
    fresh = np.ones(depth_limit, np.bool_)
    lone = np.zeros(depth_limit, np.bool_)  # one operator running, just started: not a block yet
    bucket = np.zeros(depth_limit, np.int64)
    ready = np.zeros(
        depth_limit, np.int64
    )  # not started, predecessors finished, a core of each type it needs free
    next_end = np.zeros(depth_limit)
    rest = np.zeros(
        (depth_limit, weightings + 1)
    )  # sums of ``least`` over the operators not started
    for k in range(weightings + 1):
        for i in range(n):
            rest[0, k] += least[k, i]
    end = np.zeros(n)
    begun = np.zeros(n)
    alone = np.zeros(n, np.bool_)
    nodes = 0
    d = 0
    while d >= 0:
        now = clock[d]
        in_progress = running[d]
        finished = started[d] & ~in_progress
        if fresh[d]:
            fresh[d] = False
            option[d] = 0
            nodes += 1
            if in_progress == 0 and now + rest[d, weightings] < incumbent - epsilon:
                incumbent = serial_from(
                    topological, started[d], now, single, shortest, start, all_mode
                )
                for i in range(n):
                    if started[d] >> i & 1:
                        start[i] = begun[i]
                        all_mode[i] = alone[i] and shortest[i] < single[i]
            if nodes > node_limit or incumbent <= bound + epsilon:
                return incumbent, bound, nodes
            cutoff = incumbent - epsilon
            hopeless = started[d] == full and in_progress == 0
            for k in range(weightings):
                reach = now + rest[d, k]
                for i in range(n):
                    if in_progress >> i & 1:
                        reach += weights[k, i] * (end[i] - now)
                if reach >= cutoff:
                    hopeless = True
                    break
            if not hopeless:
                for i in range(n):
                    if in_progress >> i & 1:
                        if end[i] + tail[i] >= cutoff:
                            hopeless = True
                            break
                    elif not (started[d] >> i & 1) and now + path[i] >= cutoff:
                        hopeless = True
                        break
            if not hopeless and chosen[d] < 0:
                mixed = (started[d] * np.int64(-7046029254386353131)) ^ (
                    in_progress * np.int64(-4417276706812531889)
                )
                mixed ^= mixed >> 29
                bucket[d] = (mixed & np.int64(0x7FFFFFFFFFFFFFFF)) % buckets * WAYS
                for z in range(bucket[d], bucket[d] + WAYS):
                    if (
                        keys[z, 3] == stamp
                        and keys[z, 0] == started[d]
                        and keys[z, 1] == in_progress
                        and (keys[z, 2] & ~barred[d]) == 0
                        and now + cost_to_go[z] >= cutoff
                    ):
                        hopeless = True
                        for i in range(n):
                            if in_progress >> i & 1:
                                left = end[i] - now
                                if residuals[z, i] > left or (
                                    keys[z, 2] != 0 and residuals[z, i] != left
                                ):
                                    hopeless = False
                                    break
                        if hopeless:
                            break
            if hopeless:
                d -= 1
                continue
            free_tc = cores[0]
            free_vc = cores[1]
            next_end[d] = np.inf
            for i in range(n):
                if in_progress >> i & 1:
                    free_tc -= type_bits[i] & 1
                    free_vc -= type_bits[i] >> 1
                    next_end[d] = min(next_end[d], end[i])
            fitting = (1 if free_tc > 0 else 0) | (2 if free_vc > 0 else 0)
            ready[d] = 0
            for i in range(n):
                if (
                    not (started[d] >> i & 1)
                    and (before[i] & ~finished) == 0
                    and (type_bits[i] & ~fitting) == 0
                ):
                    ready[d] |= ONE << i
        child = d + 1
        pushed = False
        while not pushed and option[d] <= 2 * n:
            position = option[d]
            option[d] += 1
            if position < n:
                i = priority[position]
                if (
                    position > chosen[d]
                    and (ready[d] & ~barred[d]) >> i & 1
                    and (earlier[i] & ~started[d]) == 0
                    and now + single[i] + tail[i] < incumbent - epsilon
                ):
                    pushed = True
                    begun[i] = now
                    end[i] = now + single[i]
                    alone[i] = False
                    clock[child] = now
                    started[child] = started[d] | ONE << i
                    running[child] = in_progress | ONE << i
                    barred[child] = barred[d]
                    chosen[child] = position
                    lone[child] = in_progress == 0
            elif position == n:
                if in_progress != 0 and not lone[d]:
                    pushed = True
                    for i in range(n):
                        if ready[d] >> i & 1 and now + single[i] <= next_end[d]:
                            pushed = False
                            break
                    if pushed:
                        i = -1
                        clock[child] = next_end[d]
                        started[child] = started[d]
                        running[child] = in_progress
                        for j in range(n):
                            if in_progress >> j & 1 and end[j] <= next_end[d]:
                                running[child] &= ~(ONE << j)
                        barred[child] = ready[d]
                        chosen[child] = -1
                        lone[child] = False
            elif in_progress == 0 and chosen[d] < 0:
                i = priority[position - n - 1]
                if followed[i] and ready[d] >> i & 1 and (earlier[i] & ~started[d]) == 0:
                    pushed = True
                    begun[i] = now
                    alone[i] = True
                    clock[child] = now + shortest[i]
                    started[child] = started[d] | ONE << i
                    running[child] = 0
                    barred[child] = 0
                    chosen[child] = -1
                    lone[child] = False
            if pushed:
                fresh[child] = True
                for k in range(weightings + 1):
                    rest[child, k] = rest[d, k] - (least[k, i] if i >= 0 else 0.0)
        if pushed:
            d = child
        else:
            if chosen[d] < 0:
                slot = bucket[d]
                for z in range(bucket[d], bucket[d] + WAYS):
                    if keys[z, 3] != stamp:
                        slot = z
                        break
                    if cost_to_go[z] < cost_to_go[slot]:
                        slot = z
                keys[slot, 0] = started[d]
                keys[slot, 1] = in_progress
                keys[slot, 2] = barred[d]
                keys[slot, 3] = stamp
                cost_to_go[slot] = incumbent - now
                for i in range(n):
                    residuals[slot, i] = end[i] - now
            d -= 1
    return incumbent, incumbent, nodes


@outer
def search_many(
    t: Tables,
    single: Floats,
    shortest: Floats,
    cores: Ints,
    weights: Floats,
    tolerance: float,
    node_limit: int,
    makespan: Floats,
    lower: Floats,
    start: Floats,
    all_mode: NDArray[np.bool_],
) -> None:
    """Solve N instances: ``single``, ``shortest`` (N, n), ``cores`` (N, 2), ``weights`` (N,
    weightings, n), bounds in ``lower``.

    Writes ``makespan`` and the proven ``lower`` (N,), ``start`` and ``all_mode`` (N, n).
    """
    keys = np.zeros((SLOTS, 4), np.int64)
    cost_to_go = np.zeros(SLOTS)
    residuals = np.zeros((SLOTS, single.shape[1]))
    for case in range(len(single)):
        makespan[case], lower[case], _ = search(
            t,
            single[case],
            shortest[case],
            cores[case],
            weights[case],
            lower[case],
            tolerance,
            node_limit,
            case + 1,
            keys,
            cost_to_go,
            residuals,
            start[case],
            all_mode[case],
        )
