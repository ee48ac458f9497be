"""Lower bounds on the time of every stage: its memory limit priced by a multiplier instead of kept.

For a multiplier m >= 0 (us per MiB) no stage within the limit is faster than the least of time + m (memory - limit) over all choices and
flags, where memory may be replaced by anything that is not larger. Time and such a memory add up over operators and neighbours, so
the least is a shortest path over (choice, recomputed or not) of one operator after the other. The largest over several multipliers
is kept. Reserved memory, max(largest forward + largest backward, weights), is replaced by its second part or by the least that its
first part can be; the peak of what is recomputed at once by zero; the width at which the output is measured by the best one.
"""

import numpy as np
from numpy.typing import NDArray

from Common.kept_code import compiled
from third_party.aceso.price_tables import TableLayout, place
from third_party.aceso.spaces import NEVER, StageArrays

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@compiled(nogil=True)
def longest_stage(space: StageArrays, rows: Integers, pairs: Integers, starts: Integers, most_us: float) -> int:
    """Operators of the longest stage that can be as fast as ``most_us`` whatever its memory."""
    choices = space.base_us.shape[1]
    now, after = np.empty(choices), np.empty(choices)
    longest = 0
    for i in starts:
        for c in range(choices):
            now[c] = space.base_us[rows[i], c] + space.receive_us[0, rows[i], c]
        k = i
        while now.min() <= most_us:
            longest = max(longest, k + 1 - i)
            k += 1
            if k == len(rows):
                break
            for d in range(choices):
                least = NEVER
                for c in range(choices):
                    least = min(least, now[c] + space.resharding_us[pairs[k], c, d])
                after[d] = least + space.base_us[rows[k], d]
            now, after = after, now
    return longest


@compiled(nogil=True)
def bound_stages(
    prices: Floats,
    layout: TableLayout,
    at: int,
    space: StageArrays,
    rows: Integers,
    pairs: Integers,
    of: Integers,
    limit_mib: float,
    most_us: float,
    densities: Floats,
) -> None:
    """Raise the prices of all stages on ``devices[at]`` devices from the starts numbered ``of`` to their bounds.

    ``densities``: us per MiB of what one micro-batch keeps, the multipliers times (stages behind + 1).
    """
    choices = space.base_us.shape[1]
    sends = np.empty((2, len(space.base_us), choices))
    for f in range(2):
        for u in range(len(space.base_us)):
            for c in range(choices):
                sends[f, u, c] = space.send_us[f, u, :, c].min()
    free = np.zeros(len(space.resharding_us), np.bool_)
    for p in range(len(free)):
        free[p] = np.abs(space.resharding_us[p]).max() == 0.0
    least_forward, least_backward = np.empty(len(space.base_us)), np.empty(len(space.base_us))
    for u in range(len(space.base_us)):
        least_forward[u] = least_backward[u] = NEVER
        for c in range(choices):
            if space.base_us[u, c] < NEVER:
                least_forward[u] = min(least_forward[u], space.forward_reserved[u, c])
                least_backward[u] = min(least_backward[u], space.backward_reserved[u, c])
    for number in of:
        first = layout.starts[number]
        reach = min(layout.longest[at], layout.operators - first)
        for behind in range(layout.behind):
            for flag in range(min(2, layout.flags)):
                for step in range(len(densities)):
                    multiplier = densities[step] / (behind + 1)
                    for reserved in range(2 if step else 1):
                        _chain(
                            prices,
                            layout,
                            at,
                            space,
                            rows,
                            pairs,
                            first,
                            reach,
                            behind,
                            flag,
                            multiplier,
                            reserved,
                            limit_mib,
                            sends,
                            free,
                            least_forward,
                            least_backward,
                        )
            reach = _within(prices, layout, at, first, reach, behind, most_us)


@compiled(nogil=True)
def _within(
    prices: Floats, layout: TableLayout, at: int, first: int, reach: int, behind: int, most_us: float
) -> int:
    """Operators of the longest stage below ``most_us``, which no stage with more behind it exceeds."""
    longest = 0
    for length in range(1, reach + 1):
        if _least(prices, layout, at, first, length, behind) <= most_us:
            longest = length
    for start in range(layout.tail_from, layout.body):  # like stretches that run into the tail are priced with this one
        length = layout.body - start
        if layout.start_index[start] == layout.start_index[first] and longest < length <= reach:
            for tail in range(1, layout.operators - layout.body + 1):
                if length + tail <= layout.longest[at]:
                    if _least(prices, layout, at, start, length + tail, behind) <= most_us:
                        longest = length
    return longest


@compiled(nogil=True)
def _least(prices: Floats, layout: TableLayout, at: int, first: int, length: int, behind: int) -> float:
    least = NEVER
    for flag in range(layout.flags):
        least = min(least, prices[place(layout, flag, at, behind, first, length)])
    return least


@compiled(nogil=True)
def _chain(
    prices: Floats,
    layout: TableLayout,
    at: int,
    space: StageArrays,
    rows: Integers,
    pairs: Integers,
    first: int,
    reach: int,
    behind: int,
    flag: int,
    multiplier: float,
    reserved: int,
    limit_mib: float,
    sends: Floats,
    free: NDArray[np.bool_],
    least_forward: Floats,
    least_backward: Floats,
) -> None:
    """Bounds of all stages from one start; where a like start is as far from the tail, of those into the tail too."""
    choices = space.base_us.shape[1]
    keep = multiplier * (behind + 1)
    heavy = multiplier * (space.weight_copies + reserved)
    now, after = np.empty((2, choices)), np.empty((2, choices))
    saved, forked = np.empty(choices), np.empty((2, choices))
    u = rows[first]
    for c in range(choices):
        now[0, c] = (
            space.base_us[u, c]
            + space.receive_us[flag, u, c]
            + keep * (space.activations[u, c] + space.inputs[u, c])
            + heavy * space.weights[u, c]
        )
        now[1, c] = now[0, c] + space.recompute_us[u, c]
    forward = backward = 0.0
    for k in range(first, first + reach):
        if k > first:
            _step(space, rows[k - 1], rows[k], pairs[k], free[pairs[k]], keep, heavy, now, after, saved)
            now, after = after, now
        shift = multiplier * (limit_mib - (forward + backward if reserved == 0 else 0.0))
        length = k + 1 - first
        _write(prices, layout, at, behind, first, length, flag, rows[k], now, sends, shift)
        forward = max(forward, least_forward[rows[k]])
        backward = max(backward, least_backward[rows[k]])
        start = layout.body - length
        if start > first and layout.start_index[start] == layout.start_index[first] and start >= layout.tail_from:
            forked[:] = now
            more_forward, more_backward = forward, backward
            for tail in range(layout.body, layout.operators):
                if tail + 1 - start > layout.longest[at]:
                    break
                _step(space, rows[tail - 1], rows[tail], pairs[tail], free[pairs[tail]], keep, heavy, forked, after, saved)
                forked[:] = after
                shift = multiplier * (limit_mib - (more_forward + more_backward if reserved == 0 else 0.0))
                _write(prices, layout, at, behind, start, tail + 1 - start, flag, rows[tail], forked, sends, shift)
                more_forward = max(more_forward, least_forward[rows[tail]])
                more_backward = max(more_backward, least_backward[rows[tail]])


@compiled(nogil=True)
def _step(
    space: StageArrays,
    before: int,
    u: int,
    pair: int,
    free: bool,
    keep: float,
    heavy: float,
    now: Floats,
    after: Floats,
    saved: Floats,
) -> None:
    """Least values after one more operator, not recomputed and recomputed."""
    choices = space.base_us.shape[1]
    least_plain = least_recomputed = NEVER
    nothing = space.before_layer[pair]
    for c in range(choices):
        saved[c] = min(now[0, c], now[1, c] - (0.0 if nothing else keep * space.activations[before, c]))
        least_plain = min(least_plain, now[0, c], now[1, c])
        least_recomputed = min(least_recomputed, saved[c])
    for d in range(choices):
        plain, recomputed = least_plain, least_recomputed
        if not free:
            plain = recomputed = NEVER
            for c in range(choices):
                change = space.resharding_us[pair, c, d]
                plain = min(plain, now[0, c] + change, now[1, c] + change)
                recomputed = min(recomputed, saved[c] + change)
        own = space.base_us[u, d] + keep * space.activations[u, d] + heavy * space.weights[u, d]
        after[0, d] = plain + own
        after[1, d] = recomputed + own + space.recompute_us[u, d]


@compiled(nogil=True)
def _write(
    prices: Floats,
    layout: TableLayout,
    at: int,
    behind: int,
    first: int,
    length: int,
    flag: int,
    u: int,
    now: Floats,
    sends: Floats,
    shift: float,
) -> None:
    for send in range(2 if layout.flags == 4 else 1):
        # on one node only the last stage is at the edge of a node
        across = send if layout.flags == 4 else int(first + length == layout.operators)
        least = NEVER
        for c in range(now.shape[1]):
            least = min(least, min(now[0, c], now[1, c]) + sends[across, u, c])
        where = place(layout, flag + 2 * send, at, behind, first, length)
        if least < 0.5 * NEVER and (prices[where] == NEVER or least - shift > prices[where]):
            prices[where] = least - shift
