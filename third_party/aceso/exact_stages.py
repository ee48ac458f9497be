"""The fastest stage of given operators within the memory limit: labels along its operators, with a proof.

A label is a way to run the operators so far: its time and everything that decides the memory in the end. It is dropped where a rest
of any multiplier shows that it cannot end below the time that is asked for, and where another with the same last choice is as fast
and cannot end with more memory. Where labels are too many, those that are slower by a little and need less memory stand for the
faster ones too; how much that may hide is kept with them, so that the bound stays one.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from Common.kept_code import compiled
from third_party.aceso.spaces import NEVER, StageArrays
from third_party.aceso.stage_paths import Stretch, best_path, fill_rests, first_value, least_reserved, path_price

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

KEPT_RESTS = 3  # multipliers of the memory limit whose rests are kept for the labels
US, LOW, MIB, WEIGHT, FORWARD, BACKWARD, SEGMENT, PEAK = range(8)  # of a label; LOW: no way that it stands for is faster
TIE = 1e-9


class ExactStage(NamedTuple):
    """No stage is faster than ``least_us`` (or than what was asked for); the fastest found takes ``us``, NEVER where none was."""

    least_us: float
    us: float
    choice: Integers
    again: Integers
    labels: int


@compiled(nogil=True)
def exact_stage(space: StageArrays, stretch: Stretch, densities: Floats, most_us: float, many: int, most_labels: int) -> ExactStage:
    """The fastest stage below ``most_us``; labels of one last choice beyond ``many`` are thinned, beyond ``most_labels`` given up."""
    n = len(stretch.rows)
    widths, choices = space.send_us.shape[2], space.base_us.shape[1]
    best_choice, best_again = np.zeros(n, np.int64), np.zeros(n, np.int64)
    choice, again = np.zeros(n, np.int64), np.zeros(n, np.int64)
    best_us, bound = NEVER, 0.0
    reserved = least_reserved(space, stretch)
    rests = np.empty((n, widths, choices, 2))
    tried = np.empty((2 * len(densities) + 8, 3))  # multiplier, part of the weights that counts as reserved, bound
    count = 0
    refined = 0
    while True:
        if count < 2 * len(densities):
            multiplier = densities[count // 2] / (stretch.behind + 1)
            heavier = float(count % 2)
        elif refined < 8:  # between the best and its neighbours
            multiplier, heavier = _between(tried[:count], refined)
            refined += 1
        else:
            break
        keep = multiplier * (stretch.behind + 1)
        heavy = multiplier * (space.weight_copies + heavier)
        fill_rests(rests, space, stretch, 1.0, keep, heavy)
        value = first_value(rests, space, stretch, 1.0, keep, heavy)
        value -= multiplier * (stretch.limit_mib - (0.0 if heavier else reserved))
        tried[count] = multiplier, heavier, value
        count += 1
        bound = max(bound, value)
        if bound > most_us:
            return ExactStage(bound, best_us, best_choice, best_again, 0)
        best_path(rests, space, stretch, keep, heavy, choice, again)
        us, mib = path_price(space, stretch, choice, again)
        if mib <= stretch.limit_mib and us < best_us:
            best_us = us
            best_choice[:] = choice
            best_again[:] = again
    if best_us <= bound * (1 + TIE):
        return ExactStage(min(bound, best_us), best_us, best_choice, best_again, 0)
    kept = np.empty((KEPT_RESTS + 2, n, widths, choices, 2))
    terms = np.zeros((KEPT_RESTS + 2, 3))  # weight of time, multiplier, part of the weights that counts as reserved
    for j in range(KEPT_RESTS):
        top = 0
        for i in range(count):
            if tried[i, 2] > tried[top, 2]:
                top = i
        terms[j] = 1.0, tried[top, 0], tried[top, 1]
        tried[top, 2] = -NEVER
    terms[KEPT_RESTS, 0] = 1.0  # time alone
    terms[KEPT_RESTS + 1, 1] = 1.0  # memory alone
    for j in range(KEPT_RESTS + 2):
        keep = terms[j, 1] * (stretch.behind + 1)
        fill_rests(kept[j], space, stretch, terms[j, 0], keep, terms[j, 1] * (space.weight_copies + terms[j, 2]))
    most = min(most_us, best_us)
    low, us, labels = _labels(
        space, stretch, kept, terms, reserved, most, bound, many, most_labels, choice, again
    )
    if us < best_us:
        best_us = us
        best_choice[:] = choice
        best_again[:] = again
    return ExactStage(max(bound, min(low, best_us)), best_us, best_choice, best_again, labels)


@compiled(nogil=True)
def _between(tried: Floats, step: int) -> tuple[float, float]:
    """A multiplier between the best one and one beside it."""
    top = 0
    for i in range(len(tried)):
        if tried[i, 2] > tried[top, 2]:
            top = i
    best, heavier = tried[top, 0], tried[top, 1]
    beside = NEVER if step % 2 else 0.0
    for i in range(len(tried)):
        if tried[i, 1] == heavier:
            if step % 2 and best < tried[i, 0] < beside:
                beside = tried[i, 0]
            if step % 2 == 0 and beside < tried[i, 0] < best:
                beside = tried[i, 0]
    if beside == NEVER:
        return 2.0 * best + 1e-6, heavier
    return 0.5 * (best + beside), heavier


@compiled(nogil=True)
def _labels(
    space: StageArrays,
    stretch: Stretch,
    rests: Floats,
    terms: Floats,
    reserved: float,
    most_us: float,
    bound: float,
    many: int,
    most_labels: int,
    choice: Integers,
    again: Integers,
) -> tuple[float, float, int]:
    """Lower bound and fastest time of all ways below ``most_us``; writes the fastest."""
    n = len(stretch.rows)
    widths, choices = rests.shape[2], rests.shape[3]
    states = widths * choices * 2
    u = stretch.rows[0]
    room = 4096
    now, now_state = np.empty((room, 8)), np.empty(room, np.int64)
    count = 0
    new = np.zeros(8)
    for c in range(choices):
        for r in range(2):
            new[US] = space.base_us[u, c] + space.receive_us[stretch.receives, u, c] + r * space.recompute_us[u, c]
            new[LOW] = new[US]
            new[WEIGHT] = space.weights[u, c]
            new[MIB] = (stretch.behind + 1) * (space.activations[u, c] + space.inputs[u, c])
            new[MIB] += space.weight_copies * new[WEIGHT]
            new[FORWARD] = space.forward_reserved[u, c] if n > 1 else 0.0
            new[BACKWARD] = space.backward_reserved[u, c] if n > 1 else 0.0
            if _may_end(new, rests, terms, 0, space.width[c], c, r, reserved, stretch.limit_mib, most_us):
                now[count] = new
                now_state[count] = (space.width[c] * choices + c) * 2 + r
                count += 1
    parents = [np.zeros(0, np.int64)]
    held = [now_state[:count].copy()]
    total = count
    width = most_us - bound
    for k in range(1, n):
        v, p = stretch.rows[k], stretch.pairs[k]
        made, made_state, made_parent = np.empty((room, 8)), np.empty(room, np.int64), np.empty(room, np.int64)
        size = 0
        for i in range(count):
            state = now_state[i]
            r, c, t = state % 2, (state // 2) % choices, state // (2 * choices)
            for d in range(choices):
                if space.base_us[v, d] + space.resharding_us[p, c, d] > most_us:
                    continue
                for s in range(2):
                    _extend(new, now[i], space, stretch, k, c, r, d, s)
                    if not _may_end(new, rests, terms, k, t, d, s, reserved, stretch.limit_mib, most_us):
                        continue
                    if size == room:
                        room *= 2
                        made = _longer(made, room)
                        more_state, more_parent = np.empty(room, np.int64), np.empty(room, np.int64)
                        more_state[:size], more_parent[:size] = made_state, made_parent
                        made_state, made_parent = more_state, more_parent
                    made[size] = new
                    made_state[size] = (t * choices + d) * 2 + s
                    made_parent[size] = i
                    size += 1
        keep = _undominated(made[:size], made_state[:size], states, many, width)
        count = len(keep)
        now, now_state = made[keep], made_state[keep]
        held.append(now_state)
        parents.append(made_parent[keep])
        total += size
        if total > most_labels:
            return bound, NEVER, total
    low, us, best = most_us, NEVER, -1
    for i in range(count):
        state = now_state[i]
        sent = space.send_us[stretch.sends, stretch.rows[n - 1], state // (2 * choices), (state // 2) % choices]
        memory = now[i, MIB] + now[i, PEAK] + max(now[i, FORWARD] + now[i, BACKWARD], now[i, WEIGHT])
        if memory <= stretch.limit_mib:  # what it stands for ends with no less memory
            low = min(low, now[i, LOW] + sent)
            if now[i, US] + sent < us:
                us, best = now[i, US] + sent, i
    if best >= 0:
        for k in range(n - 1, -1, -1):
            state = held[k][best]
            choice[k], again[k] = (state // 2) % choices, state % 2
            if k:
                best = parents[k][best]
    return low, us, total


@compiled(nogil=True)
def _longer(labels: Floats, room: int) -> Floats:
    more = np.empty((room, 8))
    more[: len(labels)] = labels
    return more


@compiled(nogil=True)
def _extend(
    new: Floats, old: Floats, space: StageArrays, stretch: Stretch, k: int, c: int, r: int, d: int, s: int
) -> None:
    """The label after operator ``k`` with choice ``d`` and flag ``s``, from one with ``c`` and ``r`` before it."""
    u, v, p = stretch.rows[k - 1], stretch.rows[k], stretch.pairs[k]
    own = space.resharding_us[p, c, d] + space.base_us[v, d] + s * space.recompute_us[v, d]
    new[:] = old
    new[US] += own
    new[LOW] += own
    new[WEIGHT] += space.weights[v, d]
    new[MIB] += (stretch.behind + 1) * space.activations[v, d] + space.weight_copies * space.weights[v, d]
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


@compiled(nogil=True)
def _may_end(
    label: Floats,
    rests: Floats,
    terms: Floats,
    k: int,
    t: int,
    c: int,
    r: int,
    reserved: float,
    limit_mib: float,
    most_us: float,
) -> bool:
    """Whether some rest may lead to an end within the limit and below ``most_us``."""
    held = max(label[FORWARD] + label[BACKWARD], reserved)
    for j in range(len(terms)):
        clock, multiplier, heavier = terms[j]
        value = rests[j, k, t, c, r] + clock * label[LOW]
        value += multiplier * (label[MIB] + label[PEAK] + (label[WEIGHT] if heavier else held) - limit_mib)
        if value > clock * most_us * (1.0 - TIE) + (1.0 - clock) * 1e-6:
            return False
    return True


@compiled(nogil=True)
def _undominated(labels: Floats, state: Integers, states: int, many: int, width: float) -> Integers:
    """Which labels stay, per state by time; thins ``LOW`` of those that stand for others."""
    order = np.argsort(labels[:, US])
    begin = np.zeros(states + 1, np.int64)
    for i in range(len(state)):
        begin[state[i] + 1] += 1
    for i in range(states):
        begin[i + 1] += begin[i]
    at = begin[:-1].copy()
    by_state = np.empty(len(state), np.int64)
    for i in order:
        by_state[at[state[i]]] = i
        at[state[i]] += 1
    kept = np.empty(len(state), np.int64)
    count = 0
    for one in range(states):
        first = count
        for x in range(begin[one], begin[one + 1]):
            i = by_state[x]
            dominated = False
            for y in range(count - 1, first - 1, -1):
                if _no_more_memory(labels[kept[y]], labels[i]):
                    labels[kept[y], LOW] = min(labels[kept[y], LOW], labels[i, LOW])
                    dominated = True
                    break
            if not dominated:
                kept[count] = i
                count += 1
        near = width / many
        while count - first > many:
            count = _thinned(labels, kept, first, count, near)
            near *= 2.0
            if near > 4.0 * width:
                break
    return kept[:count].copy()


@compiled(nogil=True)
def _thinned(labels: Floats, kept: Integers, first: int, count: int, near: float) -> int:
    """Let slower labels stand for faster ones that are within ``near`` us; returns the new count."""
    write = count
    for x in range(count - 1, first - 1, -1):
        i = kept[x]
        stands = False
        for y in range(write, min(count, write + 8)):
            other = kept[y]
            if labels[other, US] - labels[i, US] <= near and _no_more_memory(labels[other], labels[i]):
                labels[other, LOW] = min(labels[other, LOW], labels[i, LOW])
                stands = True
                break
        if not stands:
            write -= 1
            kept[write] = i
    for x in range(write, count):
        kept[first + x - write] = kept[x]
    return first + count - write


@compiled(nogil=True)
def _no_more_memory(one: Floats, other: Floats) -> bool:
    """Whether ``one`` ends with no more memory than ``other`` whatever follows."""
    peak = max(0.0, one[PEAK] - other[PEAK], one[SEGMENT] - other[SEGMENT])
    blocks = max(0.0, one[FORWARD] - other[FORWARD]) + max(0.0, one[BACKWARD] - other[BACKWARD])
    return bool(one[MIB] - other[MIB] + peak + max(blocks, one[WEIGHT] - other[WEIGHT]) <= TIE)
