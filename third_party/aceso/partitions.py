"""The best way to cut a chain into stages of priced times, over every number of stages at once.

A plan takes (B - 1) slowest stage + sum of all. For a limit on the slowest, the least sum is a
dynamic program over (stages behind, first operator, devices of the rest); how many devices the rest
has fixes where a stage lies, so that it stays within a node and pays for what crosses one. The best
limit is found by branch and bound over it: the least sum does not grow with the limit.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .compiled import Flags, Floats, Integers, inner, outer
from .price_tables import TableLayout, place
from .questions import Machine
from .spaces import NEVER

NARROW = 1e-4  # ranges of limits within which they are gone through one by one
TIE = 1e-12


class Windows(NamedTuple):
    """Where the rest of a plan may begin, by (stages behind its first, devices + 1): from
    ``lowest`` to ``highest`` operator."""

    lowest: Integers
    highest: Integers


def anywhere(layout: TableLayout, machine: Machine) -> Windows:
    """No windows."""
    shape = layout.behind, machine.devices + 1
    return Windows(np.zeros(shape, np.int64), np.full(shape, layout.operators))


class Cut(NamedTuple):
    """A stage of a partition: flag of the nodes it crosses, which number of devices, stages behind,
    first operator, length."""

    flag: int
    at: int
    behind: int
    first: int
    length: int


@dataclass(frozen=True)
class Partition:
    """A partition, its slowest stage and the sum of its stages in microseconds."""

    cuts: tuple[Cut, ...]
    slowest_us: float
    sum_us: float

    def us(self, micro_batches: int) -> float:
        """Of one iteration."""
        return (micro_batches - 1) * self.slowest_us + self.sum_us


@dataclass(frozen=True)
class Partitions:
    """What the search over limits found: no partition takes less than ``bound_us``; all that were
    met, the best first.

    ``least_limit_us``: no partition has all its stages at most this slow.
    """

    bound_us: float
    least_limit_us: float
    met: tuple[Partition, ...]


@inner
def within_node(machine: Machine, begin: int, count: int) -> bool:
    """Whether so many devices from the one at ``begin`` on are of one node."""
    return bool(begin // machine.per_node == (begin + count - 1) // machine.per_node)


@outer
def _flag(layout: TableLayout, machine: Machine, begin: int, count: int) -> int:
    if layout.flags == 1:
        return 0
    enters = begin > 0 and begin % machine.per_node == 0
    return int(enters) + 2 * int((begin + count) % machine.per_node == 0)


@inner
def _reached(prices: Floats, layout: TableLayout, machine: Machine, limit_us: float) -> Flags:
    """(devices + 1, operators + 1) which prefixes so many of the first devices can cover, at most
    this slow."""
    n = layout.operators
    reached = np.zeros((machine.devices + 1, n + 1), np.bool_)
    reached[0, 0] = True
    for begin in range(machine.devices):
        for at in range(len(layout.devices)):
            count = layout.devices[at]
            if begin + count > machine.devices or not within_node(machine, begin, count):
                continue
            flag = _flag(layout, machine, begin, count)
            left = machine.devices - begin - count
            # At least: stages keep within a node.
            behind = min(-(-left // machine.per_node), layout.behind - 1)
            for first in range(n):
                if not reached[begin, first]:
                    continue
                longest = min(layout.longest[at], n - first)
                within = min(longest, layout.body - first)
                base = place(layout, flag, at, behind, first, 1) - 1 if within > 0 else 0
                for length in range(1, within + 1):
                    if 0.0 < prices[base + length] <= limit_us:
                        reached[begin + count, first + length] = True
                for length in range(max(1, within + 1), longest + 1):
                    if 0.0 < prices[place(layout, flag, at, behind, first, length)] <= limit_us:
                        reached[begin + count, first + length] = True
    return reached


@outer
def least_sums(
    prices: Floats, layout: TableLayout, machine: Machine, windows: Windows, limit_us: float
) -> tuple[Floats, Integers]:
    """Least sums (stages behind, devices + 1, operators + 1) of the rest from an operator on, and
    the first stage of each.

    A price of 0 is that of no stage. Of rests that no prefix reaches or that begin outside
    ``windows``, nothing is found.
    """
    n = layout.operators
    reached = _reached(prices, layout, machine, limit_us)
    sums = np.empty((layout.behind, machine.devices + 1, n + 1))
    stage = np.zeros((layout.behind, machine.devices + 1, n + 1), np.int64)
    for behind in range(layout.behind):
        for rest in range(machine.devices + 1):
            for first in range(n + 1):
                sums[behind, rest, first] = NEVER
    if not reached[machine.devices, n]:
        return sums, stage
    span = n + 1
    lowest = np.empty(machine.devices + 1, np.int64)
    highest = np.empty(machine.devices + 1, np.int64)
    for behind in range(layout.behind):
        for rest in range(machine.devices + 1):  # where the rests that follow begin
            lowest[rest], highest[rest] = n, -1
            if behind:
                for first in range(n):
                    if sums[behind - 1, rest, first] < NEVER:
                        lowest[rest], highest[rest] = min(lowest[rest], first), first
        for rest in range(behind + 1, machine.devices + 1):
            begin = machine.devices - rest
            for at in range(len(layout.devices)):
                count = layout.devices[at]
                if count > rest or not within_node(machine, begin, count):
                    continue
                flag = _flag(layout, machine, begin, count)
                after = rest - count
                for first in range(
                    min(n - 1, windows.highest[behind, rest]), windows.lowest[behind, rest] - 1, -1
                ):
                    if not reached[begin, first]:
                        continue
                    best, found = sums[behind, rest, first], stage[behind, rest, first]
                    if behind == 0:
                        if count == rest and n - first <= layout.longest[at]:
                            price = prices[place(layout, flag, at, 0, first, n - first)]
                            if 0.0 < price <= limit_us and price < best:
                                best, found = price, at * span + n - first
                    else:
                        shortest = max(1, lowest[after] - first)
                        longest = min(layout.longest[at], highest[after] - first)
                        within = min(longest, layout.body - first)
                        base = place(layout, flag, at, behind, first, 1) - 1 if within > 0 else 0
                        for length in range(shortest, longest + 1):
                            total = sums[behind - 1, after, first + length]
                            if total < best:
                                where = base + length
                                if length > within:
                                    where = place(layout, flag, at, behind, first, length)
                                if 0.0 < prices[where] <= limit_us and prices[where] + total < best:
                                    best, found = prices[where] + total, at * span + length
                    sums[behind, rest, first], stage[behind, rest, first] = best, found
    return sums, stage


@outer
def used_rows(
    sums: Floats, layout: TableLayout, machine: Machine, known: Flags
) -> tuple[Integers, int]:
    """Which rows of prices any partition may use, that are not ``known`` yet, and how many.

    Each: which number of devices, start, stages behind, whether it receives from another node.

    ``known`` (device counts, starts, stages behind, 2) is filled. Stages without a rest that can be
    covered are left out.
    """
    size = len(layout.devices) * len(layout.starts) * layout.behind * 2
    found = np.empty((size, 4), np.int64)
    count = 0
    for behind in range(layout.behind):
        for rest in range(behind + 1, machine.devices + 1):
            begin = machine.devices - rest
            receives = 1 if layout.flags == 4 and begin > 0 and begin % machine.per_node == 0 else 0
            for first in range(layout.operators):
                if sums[behind, rest, first] >= NEVER:
                    continue
                for at in range(len(layout.devices)):
                    taken = layout.devices[at]
                    if taken > rest or not within_node(machine, begin, taken):
                        continue
                    if behind == 0 and taken != rest:
                        continue
                    start = layout.start_index[first]
                    if not known[at, start, behind, receives]:
                        known[at, start, behind, receives] = True
                        found[count, 0], found[count, 1] = at, start
                        found[count, 2], found[count, 3] = behind, receives
                        count += 1
    return found, count


def least_sum(
    prices: Floats, layout: TableLayout, machine: Machine, windows: Windows, limit_us: float
) -> Partition | None:
    """The partition of the least sum whose stages are at most ``limit_us`` slow; absent where there
    is none."""
    sums, stage = least_sums(prices, layout, machine, windows, limit_us)
    totals = sums[:, machine.devices, 0]
    behind = int(totals.argmin())
    total = float(totals[behind])
    if total >= NEVER:
        return None
    cuts = []
    first, rest = 0, machine.devices
    slowest = 0.0
    for left in range(behind, -1, -1):
        at, length = divmod(int(stage[left, rest, first]), layout.operators + 1)
        count = int(layout.devices[at])
        flag = int(_flag(layout, machine, machine.devices - rest, count))
        cut = Cut(flag, at, left, first, length)
        slowest = max(slowest, float(prices[place(layout, *cut)]))
        cuts.append(cut)
        first, rest = first + length, rest - count
    return Partition(tuple(cuts), slowest, total)


def best_partitions(
    prices: Floats,
    layout: TableLayout,
    machine: Machine,
    windows: Windows,
    micro_batches: int,
    limits_us: tuple[float, float],
    best_us: float,
    tolerance: float,
) -> Partitions:
    """Bound on all partitions with a slowest stage between the two limits, to a relative tolerance.

    ``windows``: of the upper limit. ``best_us``: of a plan that is known; what cannot be better is
    not looked at. Slower stages than the upper limit cost ``micro_batches`` times as much at least,
    which counts in the bound.
    """
    low, high = limits_us
    beyond = micro_batches * high
    first = least_sum(prices, layout, machine, windows, high)
    if first is None:
        return Partitions(beyond, high, ())
    met = [first]
    target = min(best_us, first.us(micro_batches))
    closed = beyond
    least = low
    open_ranges = [(low, first)]
    while open_ranges:
        low, top = min(open_ranges, key=lambda each: _bound(each[0], each[1], micro_batches))
        open_ranges.remove((low, top))
        bound = _bound(low, top, micro_batches)
        if bound >= target * (1.0 - tolerance):
            closed = min(closed, bound)
            continue
        narrow = top.slowest_us - low < NARROW * top.slowest_us
        middle = top.slowest_us * (1.0 - TIE) if narrow else 0.5 * (low + top.slowest_us)
        if middle <= low:
            closed = min(closed, bound)
            continue
        below = least_sum(prices, layout, machine, windows, middle)
        if below is None:
            least = max(least, middle)
            open_ranges.append((middle, top))
            continue
        met.append(below)
        target = min(target, below.us(micro_batches))
        open_ranges.append((low, below))
        if below.sum_us > top.sum_us:
            open_ranges.append((middle, top))
    met.sort(key=lambda each: each.us(micro_batches))
    return Partitions(closed, least, tuple(met))


def _bound(low_us: float, top: Partition, micro_batches: int) -> float:
    """On all partitions whose slowest stage is above ``low_us`` and at most the slowest of ``top``,
    which has the least sum."""
    return max((micro_batches - 1) * low_us + top.sum_us, micro_batches * low_us)
