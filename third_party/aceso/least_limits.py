"""How fast the slowest stage of a plan can be at best, and where stages can begin in plans that are
as fast.

A stage gets no slower when operators are taken from it (``reaches``). So of all ways to cover the
end of the model with some of the last devices in so many stages only the one that reaches back
furthest matters, and of all ways to cover its beginning the one that reaches on furthest: whether
any plan has all its stages within a limit, and where these may begin, are dynamic programs over
(stages behind, devices of the rest) with one number each. No price of a single stage is needed.
"""

import numpy as np

from .chains import Chain, first_alike
from .compiled import Integers, outer
from .partitions import Windows, within_node
from .questions import Machine
from .reaches import Choices, reach_back, reach_on

CLOSE = 1e-3  # relative, between limits that are too low and those that may do
ROUNDING = 1e-9  # relative, between times that are added up in another order


def least_limit_us(
    choices: Choices, machine: Machine, most_stages: int, between_us: tuple[float, float]
) -> float:
    """A limit that no plan has all its stages within, as high as it is found; at least the first of
    ``between_us``.

    The second is returned where not even that is enough.
    """
    low, high = between_us
    if not _any(windows(choices, machine, most_stages, high)):
        return high
    while high > low * (1.0 + CLOSE):
        middle = float(np.sqrt(low * high))
        if _any(windows(choices, machine, most_stages, middle)):
            low, high = (low, middle)
        else:
            low, high = (middle, high)
    return low


def windows(choices: Choices, machine: Machine, most_stages: int, limit_us: float) -> Windows:
    """Where the rest of a plan may begin whose stages are all within ``limit_us``."""
    behind = min(most_stages, machine.devices)
    lowest = _lowest(choices, machine, behind, limit_us * (1.0 + ROUNDING))
    if lowest[:, machine.devices].min() > 0:  # no stages cover all
        return Windows(lowest, np.full_like(lowest, -1))
    return Windows(lowest, _highest(choices, machine, behind, limit_us * (1.0 + ROUNDING)))


def longest_stages(choices: Choices, chain: Chain, limit_us: float) -> Integers:
    """(device counts) operators that a stage of up to ``limit_us`` can have at most.

    What comes before the tail of a stage has operators as they follow another start, too, from
    which a stage reaches so far.
    """
    first = first_alike(chain.row_array, chain.body, chain.body)
    starts = np.flatnonzero(first == np.arange(chain.length))
    found: Integers = _longest(choices, starts, limit_us * (1.0 + ROUNDING))
    return np.minimum(found + chain.length - chain.body, chain.length)


def _any(found: Windows) -> bool:
    return bool((found.lowest[:, -1] == 0).any())


@outer
def _longest(choices: Choices, starts: Integers, limit_us: float) -> Integers:
    longest = np.ones(len(choices.devices), np.int64)
    for at in range(len(longest)):
        for first in starts:
            longest[at] = max(longest[at], reach_on(choices, at, first, 0, limit_us) - first)
    return longest


@outer
def _lowest(choices: Choices, machine: Machine, behind: int, limit_us: float) -> Integers:
    """(stages behind, devices + 1) the first operator that a rest of so many devices can begin
    with."""
    n = len(choices.rows)
    lowest = np.full((behind, machine.devices + 1), n + 1)
    reached = np.empty((len(choices.devices), n + 1), np.int64)
    for stage in range(behind):
        reached[:, :] = -1
        for rest in range(stage + 1, machine.devices + 1):
            begin = machine.devices - rest
            for at in range(len(choices.devices)):
                taken = choices.devices[at]
                if taken > rest or not within_node(machine, begin, taken):
                    continue
                if (stage == 0) != (taken == rest):
                    continue
                # It holds an operator, too.
                end = n if stage == 0 else max(1, lowest[stage - 1, rest - taken])
                if end > n:
                    continue
                if reached[at, end] < 0:
                    reached[at, end] = reach_back(choices, at, end - 1, stage, limit_us)
                if reached[at, end] < end:
                    lowest[stage, rest] = min(lowest[stage, rest], reached[at, end])
    return lowest


@outer
def _highest(choices: Choices, machine: Machine, behind: int, limit_us: float) -> Integers:
    """(stages behind, devices + 1) the last operator up to which the devices before the rest can do
    all."""
    n = len(choices.rows)
    highest = np.full((behind, machine.devices + 1), -1)
    reached = np.empty((len(choices.devices), n), np.int64)
    for rests in range(behind):
        highest[rests, machine.devices] = 0
    for stage in range(behind - 1, 0, -1):  # the one before the rest
        reached[:, :] = -1
        for rest in range(stage, machine.devices):
            for at in range(len(choices.devices)):
                taken = choices.devices[at]
                if rest + taken > machine.devices:
                    continue
                begin = machine.devices - rest - taken
                if not within_node(machine, begin, taken):
                    continue
                first = min(highest[stage, rest + taken], n - 1)
                if first < 0:
                    continue
                if reached[at, first] < 0:
                    reached[at, first] = reach_on(choices, at, first, stage, limit_us)
                if reached[at, first] > first:
                    highest[stage - 1, rest] = max(highest[stage - 1, rest], reached[at, first])
    return highest
