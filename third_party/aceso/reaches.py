"""How many operators a stage can hold within a time at most, as a bound that grows with every
operator.

What a stage receives, sends and keeps of its input is left out, and what its last operator keeps
(which would be made again if the stage went on). All else only adds, so that no stage gets faster
by more operators at either end, and the furthest reach from an operator says it of all stages that
end or begin there. Memory is priced by multipliers as in ``relaxed_stages``.
"""

from typing import NamedTuple

import numpy as np

from .chains import Chain
from .compiled import Floats, Integers, inner
from .spaces import NEVER, StageArrays, StageSpace
from .stage_paths import step_back, step_on


class Choices(NamedTuple):
    """What stages may do on every number of devices, and the operators that they hold.

    ``rows`` and ``pairs`` are of the operators of the model: each one's row, and which pair it
    ends. ``densities`` are multipliers times (stages behind + 1), us per MiB.
    """

    devices: Integers
    spaces: tuple[StageArrays, ...]
    rows: Integers
    pairs: Integers
    densities: Floats
    limit_mib: float


def choices_of(
    spaces: tuple[StageSpace, ...], chain: Chain, limit_mib: float, densities: Floats
) -> Choices:
    """The choices on every number of devices; stages keep to ``limit_mib`` by these multipliers."""
    devices = np.array([space.devices for space in spaces], dtype=np.int64)
    arrays = tuple(space.arrays for space in spaces)
    return Choices(devices, arrays, chain.row_array, chain.pair_array, densities, limit_mib)


@inner
def reach_back(choices: Choices, at: int, last: int, behind: int, limit_us: float) -> int:
    """The first operator that a stage up to ``last`` may begin with; ``last`` + 1 where it cannot
    even hold that."""
    space, begin = choices.spaces[at], 0
    count = space.base_us.shape[1]
    now, rests = np.empty((2, count)), np.empty((1, 1, count, 2))
    for density in choices.densities:
        multiplier = density / (behind + 1)
        for reserved in range(2 if multiplier > 0.0 else 1):
            heavy = multiplier * (space.weight_copies + reserved)
            forward = backward = 0.0
            for k in range(last, begin - 1, -1):
                u = choices.rows[k]
                if k == last:
                    rests[:, :, :, :] = 0.0
                else:
                    step_back(rests, space, (0, 0, u), choices.pairs[k + 1], 1.0, density, now)
                    forward = max(forward, space.least_forward[u])
                    backward = max(backward, space.least_backward[u])
                least = NEVER
                for c in range(count):
                    own = space.base_us[u, c] + heavy * space.weights[u, c]
                    if k != last:
                        own += density * space.activations[u, c]
                    now[0, c] = own + rests[0, 0, c, 0]
                    now[1, c] = own + space.recompute_us[u, c] + rests[0, 0, c, 1]
                    least = min(least, now[0, c], now[1, c])
                held = 0.0 if reserved else forward + backward
                if least - multiplier * (choices.limit_mib - held) > limit_us:
                    begin = k + 1
                    break
    return begin


@inner
def reach_on(choices: Choices, at: int, first: int, behind: int, limit_us: float) -> int:
    """The first operator that a stage from ``first`` can no longer hold."""
    space, end = choices.spaces[at], len(choices.rows)
    count = space.base_us.shape[1]
    now, after = np.empty((3, count)), np.empty((3, count))
    for density in choices.densities:
        multiplier = density / (behind + 1)
        for reserved in range(2 if multiplier > 0.0 else 1):
            heavy = multiplier * (space.weight_copies + reserved)
            forward = backward = 0.0
            for k in range(first, end):
                u = choices.rows[k]
                if k == first:
                    for c in range(count):
                        own = space.base_us[u, c] + heavy * space.weights[u, c]
                        now[0, c] = own + density * space.activations[u, c]
                        now[1, c] = now[0, c] + space.recompute_us[u, c]
                else:
                    before = choices.rows[k - 1]
                    step_on(space, before, u, choices.pairs[k], density, heavy, now, after)
                    now, after = after, now
                    # The last operator of a stage reserves nothing.
                    forward = max(forward, space.least_forward[before])
                    backward = max(backward, space.least_backward[before])
                least = NEVER
                for c in range(count):
                    kept = density * space.activations[u, c]
                    least = min(least, now[0, c] - kept, now[1, c] - kept)
                held = 0.0 if reserved else forward + backward
                if least - multiplier * (choices.limit_mib - held) > limit_us:
                    end = k
                    break
    return end
