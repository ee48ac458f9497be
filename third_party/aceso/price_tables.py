"""Where the prices of stages lie: one row of all lengths per number of devices, crossed nodes,
stages behind and first operator.

Stretches of the same operators share their prices. Those that end behind the last repeated layer
are kept apart, by their start. Rows of which nothing but the times is known are the same for any
number of stages behind and are kept once, until a row gets memory of its own.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .chains import Chain, first_alike
from .compiled import Floats, Integers, outer
from .spaces import NEVER


class TableLayout(NamedTuple):
    """Places of prices.

    ``start_index`` (operators): which of the ``starts`` a stretch is priced as. ``longest`` (device
    counts): operators of the longest stage; ``row_at`` (flags, device counts, stages behind,
    starts): where a row begins. ``flags``: 1, or 4 where a stage may receive from (1) or send to
    (2) another node. Stages into the tail lie first, those of starts from ``tail_from`` on.
    """

    operators: int
    body: int
    behind: int
    flags: int
    devices: Integers
    starts: Integers
    start_index: Integers
    longest: Integers
    row_at: Integers
    tail_from: int

    @property
    def tail_size(self) -> int:
        """Prices of stages into the tail."""
        stages = (self.operators - self.tail_from) * (self.operators - self.body)
        return self.flags * len(self.devices) * self.behind * stages

    @property
    def size(self) -> int:
        """Prices of all stages."""
        lengths = int((self.longest + 1).sum())
        return self.tail_size + self.flags * self.behind * len(self.starts) * lengths


def table_layout(
    chain: Chain, devices: Integers, longest: Integers, behind: int, flags: int
) -> TableLayout:
    """Places for stages of up to ``longest`` operators and with fewer than ``behind`` stages behind
    them; no row has its own."""
    n = chain.length
    most = int(longest.max())
    first = first_alike(chain.row_array, chain.body, most)
    starts = np.flatnonzero(first == np.arange(n))
    layout = TableLayout(
        n,
        chain.body,
        behind,
        flags,
        devices,
        starts.astype(np.int64),
        np.searchsorted(starts, first).astype(np.int64),
        longest,
        np.empty((flags, len(devices), behind, len(starts)), dtype=np.int64),
        max(0, chain.body + 1 - most),
    )
    lengths = np.broadcast_to((longest + 1)[None, :, None], (flags, len(devices), len(starts)))
    begins = layout.tail_size + np.concatenate([[0], np.cumsum(lengths.ravel())[:-1]])
    layout.row_at[...] = begins.reshape(lengths.shape)[:, :, None, :]
    return layout


@outer
def place(layout: TableLayout, flag: int, at: int, behind: int, first: int, length: int) -> int:
    """Where the price of a stage lies; ``at``: which number of devices, ``first``: its first
    operator."""
    if first + length <= layout.body:
        return int(layout.row_at[flag, at, behind, layout.start_index[first]]) + length
    row = ((flag * len(layout.devices) + at) * layout.behind + behind) * (
        layout.operators - layout.tail_from
    )
    ends = layout.operators - layout.body
    return int((row + first - layout.tail_from) * ends + first + length - layout.body - 1)


@outer
def number(layout: TableLayout, flag: int, at: int, behind: int, first: int, length: int) -> int:
    """Of a stage, the same for all stages that are priced alike."""
    alike = layout.starts[layout.start_index[first]] if first + length <= layout.body else first
    row = ((flag * len(layout.devices) + at) * layout.behind + behind) * layout.operators + alike
    return int(row * (layout.operators + 1) + length)


@dataclass
class PriceTable:
    """Prices of stages, some of whose rows are their own; the others are shared between all numbers
    of stages behind."""

    layout: TableLayout
    prices: Floats
    own_from: int
    used: int

    @classmethod
    def empty(cls, layout: TableLayout) -> "PriceTable":
        """Prices of stages none of which is possible."""
        shared = layout.flags * len(layout.starts) * int((layout.longest + 1).sum())
        own_from = layout.tail_size + shared
        prices = np.empty(own_from + layout.size)  # memory is taken as far as it is written
        prices[:own_from] = NEVER
        return cls(layout, prices, own_from, own_from)

    def spread_over_behind(self) -> None:
        """Give stages into the tail the prices of those with none behind."""
        layout = self.layout
        shape = layout.flags, len(layout.devices), layout.behind, -1
        tail = self.prices[: layout.tail_size].reshape(shape)
        tail[:, :, 1:] = tail[:, :, :1]

    def give_own(self, rows: Integers) -> None:
        """Give rows (number of devices, start, stages behind, receives) their own prices: those of
        fewer stages behind."""
        self.used = int(_give_own(self.prices, self.layout, rows, self.own_from, self.used))

    def is_own(self, where: int) -> bool:
        """Whether a place is that of one number of stages behind alone."""
        return where < self.layout.tail_size or where >= self.own_from


@outer
def _give_own(prices: Floats, layout: TableLayout, rows: Integers, own_from: int, used: int) -> int:
    for row in rows:
        at, start, behind = row[0], row[1], row[2]
        for send in range(2 if layout.flags == 4 else 1):
            flag = row[3] + 2 * send
            before = layout.row_at[flag, at, behind, start]
            if before >= own_from:
                continue
            for fewer in range(behind - 1, -1, -1):
                if layout.row_at[flag, at, fewer, start] >= own_from:
                    before = layout.row_at[flag, at, fewer, start]
                    break
            for length in range(layout.longest[at] + 1):
                prices[used + length] = prices[before + length]
            layout.row_at[flag, at, behind, start] = used
            used += layout.longest[at] + 1
    return used


def only_these(layout: TableLayout, numbers: Iterable[int], prices: Iterable[float]) -> PriceTable:
    """A table of these stages alone; the price of all others is 0."""
    which = np.fromiter(numbers, dtype=np.int64)
    sparse = layout._replace(row_at=np.full_like(layout.row_at, layout.tail_size))
    own_from = layout.tail_size + int(layout.longest.max()) + 1
    filled = _only_these(sparse, which, np.fromiter(prices, dtype=np.float64), own_from)
    return PriceTable(sparse, filled, own_from, len(filled))


@outer
def _only_these(layout: TableLayout, numbers: Integers, values: Floats, own_from: int) -> Floats:
    size = own_from
    stages = np.empty((len(numbers), 5), np.int64)
    for i in range(len(numbers)):
        rest, stages[i, 4] = divmod(numbers[i], layout.operators + 1)
        rest, stages[i, 3] = divmod(rest, layout.operators)
        rest, stages[i, 2] = divmod(rest, layout.behind)
        stages[i, 0], stages[i, 1] = divmod(rest, len(layout.devices))
        flag, at, behind, first, length = stages[i]
        start = layout.start_index[first]
        if first + length <= layout.body and layout.row_at[flag, at, behind, start] < own_from:
            layout.row_at[flag, at, behind, start] = size
            size += layout.longest[at] + 1
    prices = np.zeros(size)
    for i in range(len(numbers)):
        flag, at, behind, first, length = stages[i]
        prices[place(layout, flag, at, behind, first, length)] = values[i]
    return prices
