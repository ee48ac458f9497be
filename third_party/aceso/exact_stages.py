"""The fastest stage of given operators within the memory limit: labels along its operators, with a
proof.

A label is a way to run the operators so far: its time and everything that decides the memory in the
end. It is dropped where a rest of any multiplier shows that it cannot end below the time that is
asked for, and where another with the same last choice is as fast and cannot end with more memory.
Where labels are too many, those that are slower by a little and need less memory stand for the
faster ones too; how much that may hide is kept with them, so that the bound stays one.
"""

from typing import NamedTuple

import numpy as np

from .compiled import Floats, Integers, inner, outer
from .multiplier_paths import MOST_TRIED, Weighed, copy_way, raise_bound
from .spaces import NEVER, StageArrays
from .stage_paths import Stretch, fill_rests, least_reserved

ROOM = 4096  # labels at first
KEPT_RESTS = 3  # multipliers of the memory limit whose rests are kept for the labels
# How far above the bound labels are looked at, first and each further time.
FIRST_SLACK, MORE_SLACK = 5e-4, 3.0
# Of a label; LOW: no way that it stands for is faster.
US, LOW, MIB, WEIGHT, FORWARD, BACKWARD, SEGMENT, PEAK = range(8)
TIE = 1e-9


class ExactStage(NamedTuple):
    """No stage is faster than ``least_us`` (or than what was asked for); the fastest found takes
    ``us``, NEVER where none was."""

    least_us: float
    us: float
    choice: Integers
    recomputed: Integers
    labels: int


class Rests(NamedTuple):
    """What shows that a label cannot end in time.

    ``rests``: the least that can follow, by ``terms`` (any number, 3): weight of time, multiplier,
    and part of the weights that counts as reserved. ``forward``, ``backward``: MiB that any way to
    run the stage reserves.
    """

    rests: Floats
    terms: Floats
    forward: float
    backward: float


@outer
def exact_stage(
    space: StageArrays,
    stretch: Stretch,
    densities: Floats,
    most_us: float,
    many: int,
    most_labels: int,
) -> ExactStage:
    """The fastest stage below ``most_us``.

    Labels of one last choice beyond ``many`` are thinned; beyond ``most_labels`` of all together no
    more are looked at (0: what the multipliers tell is all).
    """
    n = len(stretch.rows)
    widths, choices = space.send_us.shape[2], space.base_us.shape[1]
    best, way = np.zeros((2, n), np.int64), np.zeros((2, n), np.int64)
    best_us, bound, count = NEVER, 0.0, 0
    forward, backward = least_reserved(space, stretch)
    rests = np.empty((n, widths, choices, 2))
    tried = np.empty((2 * MOST_TRIED, 3))
    dearest = densities[-1] / (stretch.behind + 1)
    for heavier in range(2):
        weighed = Weighed(forward + backward, float(heavier), dearest, most_us)
        count, best_us = raise_bound(rests, space, stretch, weighed, tried, count, best, best_us)
        for i in range(count):
            bound = max(bound, tried[i, 2])
        if bound > most_us:
            return ExactStage(bound, best_us, best[0], best[1], 0)
    if best_us <= bound * (1 + TIE) or not most_labels:
        return ExactStage(min(bound, best_us), best_us, best[0], best[1], 0)
    kept = np.empty((KEPT_RESTS + 2, n, widths, choices, 2))
    terms = np.zeros((KEPT_RESTS + 2, 3))
    for j in range(KEPT_RESTS):
        top = 0
        for i in range(count):
            if tried[i, 2] > tried[top, 2]:
                top = i
        terms[j, 0], terms[j, 1], terms[j, 2] = 1.0, tried[top, 0], tried[top, 1]
        tried[top, 2] = -NEVER
    terms[KEPT_RESTS, 0] = 1.0  # time alone
    terms[KEPT_RESTS + 1, 1] = 1.0  # memory alone
    for j in range(KEPT_RESTS + 2):
        keep = terms[j, 1] * (stretch.behind + 1)
        heavy = terms[j, 1] * (space.weight_copies + terms[j, 2])
        fill_rests(kept[j], space, stretch, terms[j, 0], keep, heavy)
    known = Rests(kept, terms, forward, backward)
    slack, labels = FIRST_SLACK, 0
    while True:  # most labels are within a little of the bound: look no further than needed
        most = min(most_us, best_us, bound * (1.0 + slack))
        low, us, more = _labels(space, stretch, known, (bound, most), many, most_labels, way)
        labels += more
        bound = max(bound, min(low, best_us))
        if us < best_us:
            best_us = us
            copy_way(way, best)
        if us < NEVER or more > most_labels or most >= min(most_us, best_us):
            return ExactStage(min(bound, best_us), best_us, best[0], best[1], labels)
        slack *= MORE_SLACK


@inner
def _labels(
    space: StageArrays,
    stretch: Stretch,
    known: Rests,
    between_us: tuple[float, float],
    many: int,
    most_labels: int,
    way: Integers,
) -> tuple[float, float, int]:
    """Lower bound and fastest time of all ways ``between_us``; writes the fastest ``way`` (2,
    operators)."""
    n = len(stretch.rows)
    bound, most_us = between_us
    widths, choices = known.rests.shape[2], known.rests.shape[3]
    states = widths * choices * 2
    u = stretch.rows[0]
    made, made_state = np.empty((ROOM, 8)), np.empty(ROOM, np.int64)
    made_parent = np.empty(ROOM, np.int64)
    held_state, held_parent, held = np.empty(ROOM, np.int64), np.empty(ROOM, np.int64), 0
    begin = np.zeros(n + 1, np.int64)
    size = 0
    new = np.zeros(8)
    for c in range(choices):
        for r in range(2):
            first_us = space.base_us[u, c] + space.receive_us[stretch.receives, u, c]
            new[US] = new[LOW] = first_us + r * space.recompute_us[u, c]
            new[WEIGHT] = space.weights[u, c]
            new[MIB] = (stretch.behind + 1) * (space.activations[u, c] + space.inputs[u, c])
            new[MIB] += space.weight_copies * new[WEIGHT]
            new[FORWARD] = max(known.forward, space.forward_reserved[u, c] if n > 1 else 0.0)
            new[BACKWARD] = max(known.backward, space.backward_reserved[u, c] if n > 1 else 0.0)
            if _may_end(new, known, (0, space.width[c], c, r), stretch.limit_mib, most_us):
                _set(made, size, new)
                made_state[size] = (space.width[c] * choices + c) * 2 + r
                made_parent[size] = 0
                size += 1
    total = 0
    width = most_us - bound
    now, count = made, size
    for k in range(n):
        if k:
            v, p = stretch.rows[k], stretch.pairs[k]
            size = 0
            for i in range(count):
                state = held_state[begin[k - 1] + i]
                r, c, t = state % 2, (state // 2) % choices, state // (2 * choices)
                for d in range(choices):
                    if space.base_us[v, d] + space.resharding_us[p, c, d] > most_us:
                        continue
                    for s in range(2):
                        _extend(new, now[i], space, stretch, k, (c, r, d, s))
                        if not _may_end(new, known, (k, t, d, s), stretch.limit_mib, most_us):
                            continue
                        if size == len(made):
                            made, made_state = _longer(made), _longer_list(made_state)
                            made_parent = _longer_list(made_parent)
                        _set(made, size, new)
                        made_state[size] = (t * choices + d) * 2 + s
                        made_parent[size] = i
                        size += 1
        kept, count = _undominated(made, made_state, size, states, many, width)
        total += size
        if total > most_labels:
            return bound, NEVER, total
        now = np.empty((count, 8))
        while held + count > len(held_state):
            held_state, held_parent = _longer_list(held_state), _longer_list(held_parent)
        for i in range(count):
            for x in range(8):
                now[i, x] = made[kept[i], x]
            held_state[held + i], held_parent[held + i] = made_state[kept[i]], made_parent[kept[i]]
        begin[k] = held
        held += count
    low, us, best = most_us, NEVER, -1
    for i in range(count):
        state = held_state[begin[n - 1] + i]
        t, c = state // (2 * choices), (state // 2) % choices
        sent = space.send_us[stretch.sends, stretch.rows[n - 1], t, c]
        reserved = max(now[i, FORWARD] + now[i, BACKWARD], now[i, WEIGHT])
        # what it stands for ends with no less memory
        if now[i, MIB] + now[i, PEAK] + reserved <= stretch.limit_mib:
            low = min(low, now[i, LOW] + sent)
            if now[i, US] + sent < us:
                us, best = now[i, US] + sent, i
    if best >= 0:
        for k in range(n - 1, -1, -1):
            state = held_state[begin[k] + best]
            way[0, k], way[1, k] = (state // 2) % choices, state % 2
            best = held_parent[begin[k] + best]
    return low, us, total


@inner
def _set(labels: Floats, at: int, new: Floats) -> None:
    for x in range(8):
        labels[at, x] = new[x]


@inner
def _longer(labels: Floats) -> Floats:
    more = np.empty((2 * len(labels), 8))
    for i in range(len(labels)):
        for x in range(8):
            more[i, x] = labels[i, x]
    return more


@inner
def _longer_list(values: Integers) -> Integers:
    more = np.empty(2 * len(values), np.int64)
    for i in range(len(values)):
        more[i] = values[i]
    return more


@inner
def _extend(
    new: Floats, old: Floats, space: StageArrays, stretch: Stretch, k: int, ways: tuple[int, ...]
) -> None:
    """The label after operator ``k``; ``ways``: choice and flag of the operator before it, then its
    own."""
    c, r, d, s = ways
    u, v, p = stretch.rows[k - 1], stretch.rows[k], stretch.pairs[k]
    own = space.resharding_us[p, c, d] + space.base_us[v, d] + s * space.recompute_us[v, d]
    for x in range(8):
        new[x] = old[x]
    new[US] += own
    new[LOW] += own
    new[WEIGHT] += space.weights[v, d]
    kept = (stretch.behind + 1) * space.activations[v, d]
    new[MIB] += kept + space.weight_copies * space.weights[v, d]
    if k < len(stretch.rows) - 1:
        new[FORWARD] = max(old[FORWARD], space.forward_reserved[v, d])
        new[BACKWARD] = max(old[BACKWARD], space.backward_reserved[v, d])
    if r and s:
        new[SEGMENT] += space.activations[u, c]
        if not space.before_layer[p]:
            new[MIB] -= (stretch.behind + 1) * space.activations[u, c]
        if space.plain[u] and (space.before_layer[p] or k + 1 == len(stretch.rows)):
            new[PEAK], new[SEGMENT] = max(old[PEAK], new[SEGMENT]), 0.0
    else:
        new[PEAK], new[SEGMENT] = max(old[PEAK], old[SEGMENT]), 0.0


@inner
def _may_end(
    label: Floats, known: Rests, at: tuple[int, ...], limit_mib: float, most_us: float
) -> bool:
    """Whether some rest may lead to an end within the limit and below ``most_us``; ``at``:
    operator, width of the first one, choice and flag."""
    k, t, c, r = at
    held = label[FORWARD] + label[BACKWARD]
    for j in range(len(known.terms)):
        clock, multiplier, heavier = known.terms[j, 0], known.terms[j, 1], known.terms[j, 2]
        reserved = label[WEIGHT] if heavier else held
        value = known.rests[j, k, t, c, r] + clock * label[LOW]
        value += multiplier * (label[MIB] + label[PEAK] + reserved - limit_mib)
        if value > clock * most_us * (1.0 - TIE) + (1.0 - clock) * 1e-6:
            return False
    return True


@inner
def _undominated(
    labels: Floats, state: Integers, size: int, states: int, many: int, width: float
) -> tuple[Integers, int]:
    """Which labels stay, and how many, per state by time; lowers ``LOW`` of those that stand for
    others."""
    begin = np.zeros(states + 1, np.int64)
    for i in range(size):
        begin[state[i] + 1] += 1
    for i in range(states):
        begin[i + 1] += begin[i]
    at = begin.copy()
    order, spare = np.empty(size, np.int64), np.empty(size, np.int64)
    for i in range(size):
        order[at[state[i]]] = i
        at[state[i]] += 1
    kept = np.empty(size, np.int64)
    count = 0
    for one in range(states):
        _sort(order, spare, begin[one], begin[one + 1], labels)
        first = count
        for x in range(begin[one], begin[one + 1]):
            i = order[x]
            dominated = False
            for y in range(count - 1, first - 1, -1):
                if _no_more_memory(labels, kept[y], i):
                    labels[kept[y], LOW] = min(labels[kept[y], LOW], labels[i, LOW])
                    dominated = True
                    break
            if not dominated:
                kept[count] = i
                count += 1
        near = width / many
        while count - first > many and near <= 4.0 * width:
            count = _thinned(labels, kept, first, count, near)
            near *= 2.0
    return kept, count


@inner
def _sort(order: Integers, spare: Integers, begin: int, end: int, labels: Floats) -> None:
    run = 1
    while run < end - begin:
        for left in range(begin, end, 2 * run):
            middle, right = min(left + run, end), min(left + 2 * run, end)
            i, j = left, middle
            for x in range(left, right):
                if i < middle and (j >= right or labels[order[i], US] <= labels[order[j], US]):
                    spare[x] = order[i]
                    i += 1
                else:
                    spare[x] = order[j]
                    j += 1
        for x in range(begin, end):
            order[x] = spare[x]
        run *= 2


@inner
def _thinned(labels: Floats, kept: Integers, first: int, count: int, near: float) -> int:
    """Let slower labels stand for faster ones that are within ``near`` us; returns the new
    count."""
    write = count
    for x in range(count - 1, first - 1, -1):
        i = kept[x]
        stands = False
        for y in range(write, min(count, write + 8)):
            other = kept[y]
            if labels[other, US] - labels[i, US] <= near and _no_more_memory(labels, other, i):
                labels[other, LOW] = min(labels[other, LOW], labels[i, LOW])
                stands = True
                break
        if not stands:
            write -= 1
            kept[write] = i
    for x in range(write, count):
        kept[first + x - write] = kept[x]
    return first + count - write


@inner
def _no_more_memory(labels: Floats, one: int, other: int) -> bool:
    peak = max(
        0.0, labels[one, PEAK] - labels[other, PEAK], labels[one, SEGMENT] - labels[other, SEGMENT]
    )
    blocks = max(0.0, labels[one, FORWARD] - labels[other, FORWARD])
    blocks += max(0.0, labels[one, BACKWARD] - labels[other, BACKWARD])
    blocks = max(blocks, labels[one, WEIGHT] - labels[other, WEIGHT])
    return bool(labels[one, MIB] - labels[other, MIB] + peak + blocks <= TIE)
