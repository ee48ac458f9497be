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

from .compiled import Floats, Integers, inner, outer
from .price_tables import TableLayout, place
from .spaces import NEVER, StageArrays
from .stage_paths import step_on


class Rows(NamedTuple):
    """Stages to bound, all lengths of each at once: number of the start, stages behind, and whether
    the input crosses nodes."""

    start: Integers
    behind: Integers
    receives: Integers


class Bounded(NamedTuple):
    """The prices of stages on ``devices[at]`` devices, and what they are made of."""

    prices: Floats
    layout: TableLayout
    at: int
    space: StageArrays
    rows: Integers
    pairs: Integers
    limit_mib: float


class Term(NamedTuple):
    """How memory is priced, in us per MiB; ``reserved``: 1 where the weights count as reserved."""

    behind: int
    receives: int
    multiplier: float
    reserved: int


@outer
def bound_stages(of: Bounded, stages: Rows, densities: Floats, ways: int) -> None:
    """Raise the prices of ``stages`` to their bounds.

    ``densities``: us per MiB of what one micro-batch keeps, the multipliers times (stages behind +
    1). ``ways``: 1 where reserved memory is only replaced by the least of its first part, 2 where
    by either.
    """
    for row in range(len(stages.start)):
        first, behind = of.layout.starts[stages.start[row]], stages.behind[row]
        for step in range(len(densities)):
            for reserved in range(ways if densities[step] > 0.0 else 1):
                multiplier = densities[step] / (behind + 1)
                _bound_from(of, Term(behind, stages.receives[row], multiplier, reserved), first)


@inner
def _bound_from(of: Bounded, term: Term, first: int) -> None:
    """Bounds of all stages from one start; where a like start is as far from the tail, of those
    into the tail too."""
    space, layout = of.space, of.layout
    choices = space.base_us.shape[1]
    keep = term.multiplier * (term.behind + 1)
    heavy = term.multiplier * (space.weight_copies + term.reserved)
    now, after = np.empty((3, choices)), np.empty((3, choices))
    forked, spare = np.empty((3, choices)), np.empty((3, choices))
    u = of.rows[first]
    for c in range(choices):
        now[0, c] = (
            space.base_us[u, c]
            + space.receive_us[term.receives, u, c]
            + keep * (space.activations[u, c] + space.inputs[u, c])
            + heavy * space.weights[u, c]
        )
        now[1, c] = now[0, c] + space.recompute_us[u, c]
    forward = backward = 0.0
    for k in range(first, min(first + layout.longest[of.at], layout.operators)):
        if k > first:
            step_on(space, of.rows[k - 1], of.rows[k], of.pairs[k], keep, heavy, now, after)
            now, after = after, now
        forward, backward = _enter(of, term, first, k, now, forward, backward)
        start = layout.body - (k + 1 - first)
        like = start > first and layout.start_index[start] == layout.start_index[first]
        if like and start >= layout.tail_from:
            for c in range(choices):
                forked[0, c], forked[1, c] = now[0, c], now[1, c]
            more, less = forward, backward
            for tail in range(layout.body, min(start + layout.longest[of.at], layout.operators)):
                u, v = of.rows[tail - 1], of.rows[tail]
                step_on(space, u, v, of.pairs[tail], keep, heavy, forked, spare)
                forked, spare = spare, forked
                more, less = _enter(of, term, start, tail, forked, more, less)


@inner
def _enter(
    of: Bounded, term: Term, first: int, last: int, now: Floats, forward: float, backward: float
) -> tuple[float, float]:
    """Raise the price of one stage; returns the least reserved MiB of its operators, which those
    behind it add to."""
    layout, space, u = of.layout, of.space, of.rows[last]
    held = forward + backward if term.reserved == 0 else 0.0
    shift = term.multiplier * (of.limit_mib - held)
    for send in range(2 if layout.flags == 4 else 1):
        # on one node only the last stage is at the edge of a node
        across = send if layout.flags == 4 else int(last + 1 == layout.operators)
        least = NEVER
        for c in range(now.shape[1]):
            least = min(least, min(now[0, c], now[1, c]) + space.least_send_us[across, u, c])
        flag = term.receives + 2 * send
        where = place(layout, flag, of.at, term.behind, first, last + 1 - first)
        before = of.prices[where]
        if least < 0.5 * NEVER and (before == NEVER or least - shift > before):
            of.prices[where] = least - shift
    return max(forward, space.least_forward[u]), max(backward, space.least_backward[u])
