"""Lower bounds on the time of every stage: its memory limit priced by a multiplier instead of kept.

For a multiplier m >= 0 (us per MiB) no stage within the limit is faster than the least of time + m
(memory - limit) over all choices and flags, where memory may be replaced by anything that is not
larger. Time and such a memory add up over operators and neighbours, so the least is a shortest path
over (choice, recomputed or not) of one operator after the other. The largest over several
multipliers is kept. Reserved memory, max(largest forward + largest backward, weights), is replaced
by its second part or by the least that its first part can be; the peak of what is recomputed at
once by zero; the width at which the output is measured by the best one.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .compiled import inner, outer
from .price_tables import TableLayout, place
from .spaces import NEVER, StageArrays

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Rows(NamedTuple):
    """Stages to bound, all lengths of each at once: number of the start, stages behind, and whether
    the input crosses nodes."""

    start: Integers
    behind: Integers
    receives: Integers


@outer
def bound_stages(
    prices: Floats,
    layout: TableLayout,
    at: int,
    space: StageArrays,
    rows: Integers,
    pairs: Integers,
    of: Rows,
    limit_mib: float,
    densities: Floats,
    ways: int,
) -> None:
    """Raise the prices of stages on ``devices[at]`` devices to their bounds.

    ``densities``: us per MiB of what one micro-batch keeps, the multipliers times (stages behind +
    1). ``ways``: 1 where reserved memory is only replaced by the least of its first part, 2 where
    by either.
    """
    choices = space.base_us.shape[1]
    sends = np.empty((2, len(space.base_us), choices))
    for f in range(2):
        for u in range(len(space.base_us)):
            for c in range(choices):
                sends[f, u, c] = NEVER
                for t in range(space.send_us.shape[2]):
                    sends[f, u, c] = min(sends[f, u, c], space.send_us[f, u, t, c])
    least_forward, least_backward = np.empty(len(space.base_us)), np.empty(len(space.base_us))
    for u in range(len(space.base_us)):
        least_forward[u] = least_backward[u] = NEVER
        for c in range(choices):
            if space.base_us[u, c] < NEVER:
                least_forward[u] = min(least_forward[u], space.forward_reserved[u, c])
                least_backward[u] = min(least_backward[u], space.backward_reserved[u, c])
    for row in range(len(of.start)):
        first = layout.starts[of.start[row]]
        reach = min(layout.longest[at], layout.operators - first)
        for step in range(len(densities)):
            for reserved in range(ways if densities[step] > 0.0 else 1):
                _chain(
                    prices,
                    layout,
                    at,
                    space,
                    rows,
                    pairs,
                    first,
                    reach,
                    of.behind[row],
                    of.receives[row],
                    densities[step] / (of.behind[row] + 1),
                    reserved,
                    limit_mib,
                    sends,
                    least_forward,
                    least_backward,
                )


@inner
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
    least_forward: Floats,
    least_backward: Floats,
) -> None:
    """Bounds of all stages from one start; where a like start is as far from the tail, of those
    into the tail too."""
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
            _step(space, rows[k - 1], rows[k], pairs[k], keep, heavy, now, after, saved)
            now, after = after, now
        shift = multiplier * (limit_mib - (forward + backward if reserved == 0 else 0.0))
        length = k + 1 - first
        _write(prices, layout, at, behind, first, length, flag, rows[k], now, sends, shift)
        forward = max(forward, least_forward[rows[k]])
        backward = max(backward, least_backward[rows[k]])
        start = layout.body - length
        if (
            start > first
            and layout.start_index[start] == layout.start_index[first]
            and start >= layout.tail_from
        ):
            for c in range(choices):
                forked[0, c], forked[1, c] = now[0, c], now[1, c]
            more_forward, more_backward = forward, backward
            for tail in range(layout.body, layout.operators):
                if tail + 1 - start > layout.longest[at]:
                    break
                _step(
                    space,
                    rows[tail - 1],
                    rows[tail],
                    pairs[tail],
                    keep,
                    heavy,
                    forked,
                    after,
                    saved,
                )
                for c in range(choices):
                    forked[0, c], forked[1, c] = after[0, c], after[1, c]
                shift = multiplier * (
                    limit_mib - (more_forward + more_backward if reserved == 0 else 0.0)
                )
                _write(
                    prices,
                    layout,
                    at,
                    behind,
                    start,
                    tail + 1 - start,
                    flag,
                    rows[tail],
                    forked,
                    sends,
                    shift,
                )
                more_forward = max(more_forward, least_forward[rows[tail]])
                more_backward = max(more_backward, least_backward[rows[tail]])


@inner
def _step(
    space: StageArrays,
    before: int,
    u: int,
    pair: int,
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
        saved[c] = min(
            now[0, c], now[1, c] - (0.0 if nothing else keep * space.activations[before, c])
        )
        least_plain = min(least_plain, now[0, c], now[1, c])
        least_recomputed = min(least_recomputed, saved[c])
    for d in range(choices):
        plain, recomputed = least_plain, least_recomputed
        if not space.free[pair]:
            plain = recomputed = NEVER
            for c in range(choices):
                change = space.resharding_us[pair, c, d]
                plain = min(plain, now[0, c] + change, now[1, c] + change)
                recomputed = min(recomputed, saved[c] + change)
        own = space.base_us[u, d] + keep * space.activations[u, d] + heavy * space.weights[u, d]
        after[0, d] = plain + own
        after[1, d] = recomputed + own + space.recompute_us[u, d]


@inner
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
