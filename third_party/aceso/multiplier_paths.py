"""The multiplier of the memory limit that bounds the time of one stage best, and ways to run the
stage from the paths there.

For a multiplier m the least of time + m (memory - limit) is a bound; of the path that has it, this
is a line in m that lies above the bounds of all m. Where the line of a path that needs too much
meets that of one that fits, no bound is above it: the next m to try. The bound is best where that
point is met. There both paths are as good, and operators may run as in either: the first ones as in
one and the rest as in the other is a way whose time is near the bound, where a stage has many
operators.
"""

from typing import NamedTuple

import numpy as np

from .compiled import Floats, Integers, inner
from .spaces import NEVER, StageArrays
from .stage_paths import Stretch, best_path, fill_rests, path_price, path_terms

MOST_TRIED = 16  # multipliers, each for one way to count what is reserved
MET = 1e-10  # relative, between a bound and the lines that lie above it
NEARBY = 16  # operators around which a change of paths is looked for one by one


class Weighed(NamedTuple):
    """How reserved memory counts, and how far multipliers are tried.

    ``reserved_mib`` counts where ``heavier``, a part of the weights, is 0. No multiplier beyond
    ``dearest`` is tried, and none behind a bound above ``most_us``.
    """

    reserved_mib: float
    heavier: float
    dearest: float
    most_us: float


@inner
def raise_bound(
    rests: Floats,
    space: StageArrays,
    stretch: Stretch,
    weighed: Weighed,
    tried: Floats,
    count: int,
    best: Integers,
    best_us: float,
) -> tuple[int, float]:
    """Enter the multipliers that were tried; returns how many there are now, and the time of the
    fastest way that fits.

    ``tried`` (any number, 3): multiplier, ``heavier``, bound. ``best`` (2, operators): choices and
    flags of the fastest way, written where a faster one is found.
    """
    heavier, most_us = weighed.heavier, weighed.most_us
    n = len(stretch.rows)
    limit_mib = stretch.limit_mib - (0.0 if heavier else weighed.reserved_mib)
    path, light = np.zeros((2, n), np.int64), np.zeros((2, n), np.int64)
    dear = np.zeros((2, n), np.int64)
    light_us = light_mib = dear_us = dear_mib = 0.0
    multiplier, meeting = 0.0, NEVER
    for step in range(MOST_TRIED):
        keep = multiplier * (stretch.behind + 1)
        heavy = multiplier * (space.weight_copies + heavier)
        fill_rests(rests, space, stretch, 1.0, keep, heavy)
        bound = best_path(rests, space, stretch, keep, heavy, path[0], path[1])
        bound -= multiplier * limit_mib
        tried[count, 0], tried[count, 1], tried[count, 2] = multiplier, heavier, bound
        count += 1
        if bound > most_us:
            return count, best_us
        best_us = _enter(space, stretch, path, best, best_us)
        us, kept, weights, _, _ = path_terms(space, stretch, path[0], path[1])
        over_mib = (stretch.behind + 1) * kept - limit_mib
        over_mib += (space.weight_copies + heavier) * weights
        if over_mib > 0.0:
            dear_us, dear_mib = us, over_mib
            copy_way(path, dear)
        else:
            light_us, light_mib = us, over_mib
            copy_way(path, light)
        if step == 0:
            if over_mib <= 0.0:  # the fastest of all fits, as far as this bound sees
                return count, best_us
            multiplier = weighed.dearest
            continue
        if step == 1 and over_mib > 0.0:  # nothing fits that would be found here
            return count, best_us
        if bound >= meeting - MET * abs(meeting):
            break
        multiplier = (light_us - dear_us) / (dear_mib - light_mib)
        meeting = dear_us + multiplier * dear_mib
    best_us = _crossed(space, stretch, dear, light, best, best_us)
    if best_us < NEVER:
        copy_way(best, path)
        best_us = _crossed(space, stretch, dear, path, best, best_us)
    return count, best_us


@inner
def _enter(
    space: StageArrays, stretch: Stretch, path: Integers, best: Integers, best_us: float
) -> float:
    us, mib = path_price(space, stretch, path[0], path[1])
    if mib <= stretch.limit_mib and us < best_us:
        copy_way(path, best)
        best_us = us
    return best_us


@inner
def _crossed(
    space: StageArrays,
    stretch: Stretch,
    dear: Integers,
    light: Integers,
    best: Integers,
    best_us: float,
) -> float:
    """The fastest of the ways that begin as one path and go on as the other."""
    n = len(stretch.rows)
    mixed = np.empty((2, n), np.int64)
    for dear_first in range(2):
        low, high = 0, n  # operators as in ``dear``: so many fit, so many do not
        while high - low > 1:
            middle = (low + high) // 2
            _mix(mixed, dear, light, middle, dear_first)
            _, mib = path_price(space, stretch, mixed[0], mixed[1])
            low, high = (middle, high) if mib <= stretch.limit_mib else (low, middle)
        for many in range(max(1, low - NEARBY), min(n, low + NEARBY)):
            _mix(mixed, dear, light, many, dear_first)
            best_us = _enter(space, stretch, mixed, best, best_us)
    return best_us


@inner
def copy_way(path: Integers, into: Integers) -> None:
    """Copy choices and flags, one by one: the compiler takes seconds for all at once."""
    for k in range(path.shape[1]):
        into[0, k], into[1, k] = path[0, k], path[1, k]


@inner
def _mix(mixed: Integers, dear: Integers, light: Integers, many: int, dear_first: int) -> None:
    n = mixed.shape[1]
    for k in range(n):
        is_dear = k < many if dear_first else k >= n - many
        for i in range(2):
            mixed[i, k] = dear[i, k] if is_dear else light[i, k]
