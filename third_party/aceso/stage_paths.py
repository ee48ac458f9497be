"""Paths through the operators of one stage: the least that a rest of a stage can add, and what a
whole path costs.

Of a stage with multiplier m the value of a path is its time + m memory; ``rests`` holds the least
value of what follows an operator.
"""

from typing import NamedTuple

import numpy as np

from .compiled import Floats, Integers, inner, outer
from .spaces import NEVER, StageArrays


class Stretch(NamedTuple):
    """The operators of one stage: their rows, which pair each ends, what lies behind, and whether
    nodes are crossed (0, 1)."""

    rows: Integers
    pairs: Integers
    behind: int
    receives: int
    sends: int
    limit_mib: float


@inner
def step_on(
    space: StageArrays,
    u: int,
    v: int,
    p: int,
    keep: float,
    heavy: float,
    now: Floats,
    after: Floats,
) -> None:
    """Least values of paths up to operator v, behind u, by its choice: not recomputed (row 0) and
    recomputed (1). Row 2 of ``after`` is scratch."""
    choices = space.base_us.shape[1]
    least_plain = least_again = NEVER
    for c in range(choices):
        saving = 0.0 if space.before_layer[p] else keep * space.activations[u, c]
        after[2, c] = min(now[0, c], now[1, c] - saving)
        least_plain = min(least_plain, now[0, c], now[1, c])
        least_again = min(least_again, after[2, c])
    for d in range(choices):
        plain, again = least_plain, least_again
        if not space.free[p]:
            plain = again = NEVER
            for c in range(choices):
                change = space.resharding_us[p, c, d]
                plain = min(plain, now[0, c] + change, now[1, c] + change)
                again = min(again, after[2, c] + change)
        own = space.base_us[v, d] + keep * space.activations[v, d] + heavy * space.weights[v, d]
        after[0, d] = plain + own
        after[1, d] = again + own + space.recompute_us[v, d]


@inner
def step_back(
    rests: Floats,
    space: StageArrays,
    at: tuple[int, int, int],
    p: int,
    clock: float,
    keep: float,
    ahead: Floats,
) -> None:
    """Enter in ``rests`` the least that can follow operator u, by its choice and whether it is
    recomputed, from the least values ``ahead`` (2, choices) of paths from the next operator on.

    ``at``: place of u, width of the first operator, and the row u.
    """
    k, t, u = at
    choices = space.base_us.shape[1]
    all_plain = all_again = NEVER
    for d in range(choices):
        all_plain, all_again = min(all_plain, ahead[0, d]), min(all_again, ahead[1, d])
    for c in range(choices):
        plain, again = all_plain, all_again
        if not space.free[p]:
            plain = again = NEVER
            for d in range(choices):
                change = clock * space.resharding_us[p, c, d]
                plain, again = min(plain, change + ahead[0, d]), min(again, change + ahead[1, d])
        saving = 0.0 if space.before_layer[p] else keep * space.activations[u, c]
        rests[k, t, c, 0] = min(plain, again)
        rests[k, t, c, 1] = min(plain, again - saving)


@inner
def fill_rests(
    rests: Floats, space: StageArrays, stretch: Stretch, clock: float, keep: float, heavy: float
) -> None:
    """Fill (operators, widths, choices, 2 flags) with the least that can follow an operator, for a
    width of the first one.

    What is least: ``clock`` time + ``keep`` kept activations + ``heavy`` weights.
    """
    n, widths, choices = len(stretch.rows), rests.shape[1], rests.shape[2]
    ahead = np.empty((2, choices))
    for t in range(widths):
        for c in range(choices):
            sent = clock * space.send_us[stretch.sends, stretch.rows[n - 1], t, c]
            rests[n - 1, t, c, 0], rests[n - 1, t, c, 1] = sent, sent
        for k in range(n - 2, -1, -1):
            v = stretch.rows[k + 1]
            for d in range(choices):
                own = clock * space.base_us[v, d] + keep * space.activations[v, d]
                own += heavy * space.weights[v, d]
                ahead[0, d] = own + rests[k + 1, t, d, 0]
                ahead[1, d] = own + clock * space.recompute_us[v, d] + rests[k + 1, t, d, 1]
            at = (k, t, stretch.rows[k])
            step_back(rests, space, at, stretch.pairs[k + 1], clock, keep, ahead)


@inner
def least_reserved(space: StageArrays, stretch: Stretch) -> tuple[float, float]:
    """The least that the largest forward and the largest backward reserved MiB of a stage can
    be."""
    forward = backward = 0.0
    for k in range(len(stretch.rows) - 1):
        forward = max(forward, space.least_forward[stretch.rows[k]])
        backward = max(backward, space.least_backward[stretch.rows[k]])
    return forward, backward


@inner
def best_path(
    rests: Floats,
    space: StageArrays,
    stretch: Stretch,
    keep: float,
    heavy: float,
    choice: Integers,
    again: Integers,
) -> float:
    """Write the choices and flags of the path of the least value (with time at its full weight);
    returns that value."""
    whole = NEVER
    u = stretch.rows[0]
    for c in range(space.base_us.shape[1]):
        own = (
            space.base_us[u, c]
            + space.receive_us[stretch.receives, u, c]
            + keep * (space.activations[u, c] + space.inputs[u, c])
            + heavy * space.weights[u, c]
        )
        for r in range(2):
            value = own + r * space.recompute_us[u, c] + rests[0, space.width[c], c, r]
            if value < whole:
                whole, choice[0], again[0] = value, c, r
    t = space.width[choice[0]]
    for k in range(1, len(stretch.rows)):
        u, v, p = stretch.rows[k - 1], stretch.rows[k], stretch.pairs[k]
        c = choice[k - 1]
        least = NEVER
        for d in range(space.base_us.shape[1]):
            own = (
                space.resharding_us[p, c, d]
                + space.base_us[v, d]
                + keep * space.activations[v, d]
                + heavy * space.weights[v, d]
            )
            for r in range(2):
                value = own + r * space.recompute_us[v, d] + rests[k, t, d, r]
                if r and again[k - 1] and not space.before_layer[p]:
                    value -= keep * space.activations[u, c]
                if value < least:
                    least, choice[k], again[k] = value, d, r
    return whole


@outer
def path_price(
    space: StageArrays, stretch: Stretch, choice: Integers, again: Integers
) -> tuple[float, float]:
    """Microseconds and MiB of a path, as the cost model has them."""
    us, kept, weights, peak, reserved = path_terms(space, stretch, choice, again)
    return us, space.weight_copies * weights + (stretch.behind + 1) * kept + peak + max(
        reserved, weights
    )


@inner
def path_terms(
    space: StageArrays, stretch: Stretch, choice: Integers, again: Integers
) -> tuple[float, float, float, float, float]:
    """Microseconds of a path, and MiB that one micro-batch keeps, of weights, of what is recomputed
    at once, and reserved."""
    n = len(stretch.rows)
    u = stretch.rows[0]
    us = space.receive_us[stretch.receives, u, choice[0]]
    us += space.send_us[stretch.sends, stretch.rows[n - 1], space.width[choice[0]], choice[n - 1]]
    kept = space.inputs[u, choice[0]]
    weights = segment = peak = forward = backward = 0.0
    for k in range(n):
        u, c = stretch.rows[k], choice[k]
        us += space.base_us[u, c] + again[k] * space.recompute_us[u, c]
        kept += space.activations[u, c]
        weights += space.weights[u, c]
        if k == n - 1:
            break
        forward = max(forward, space.forward_reserved[u, c])
        backward = max(backward, space.backward_reserved[u, c])
        p = stretch.pairs[k + 1]
        us += space.resharding_us[p, c, choice[k + 1]]
        if again[k] and again[k + 1]:
            segment += space.activations[u, c]
            if not space.before_layer[p]:
                kept -= space.activations[u, c]
            if space.plain[u] and (space.before_layer[p] or k + 2 == n):
                peak, segment = max(peak, segment), 0.0
        else:
            peak, segment = max(peak, segment), 0.0
    return us, kept, weights, peak, forward + backward
