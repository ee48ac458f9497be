"""Where the prices of stages lie: one flat array over flags, devices, stages behind, first operator and length.

Stretches of the same operators share their prices. Those that end behind the last repeated layer are kept apart, by their start.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from third_party.aceso.chains import Chain, first_alike
from third_party.aceso.compiled import outer
from third_party.aceso.spaces import NEVER

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class TableLayout(NamedTuple):
    """Places of prices.

    ``start_index`` (operators): which of the ``starts`` a stretch is priced as. ``longest`` (device counts): operators of the
    longest stage; ``offset`` (device counts): where its prices begin. ``flags``: 1, or 4 where a stage may receive from (1) or
    send to (2) another node.
    """

    operators: int
    body: int
    behind: int
    flags: int
    devices: Integers
    starts: Integers
    start_index: Integers
    longest: Integers
    offset: Integers
    tail_from: int
    tail_offset: int
    size: int


def table_layout(chain: Chain, devices: Integers, longest: Integers, behind: int, flags: int) -> TableLayout:
    """Places for stages of up to ``longest`` operators and with fewer than ``behind`` stages behind them."""
    n = chain.length
    most = int(longest.max())
    first = first_alike(chain, most)
    starts = np.flatnonzero(first == np.arange(n))
    start_index = np.searchsorted(starts, first)
    sizes = flags * behind * len(starts) * (longest + 1)
    offset = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    tail_from = max(0, chain.body + 1 - most)
    tail = flags * len(devices) * behind * (n - tail_from) * (n - chain.body)
    return TableLayout(
        n,
        chain.body,
        behind,
        flags,
        devices,
        starts.astype(np.int64),
        start_index.astype(np.int64),
        longest,
        offset,
        tail_from,
        int(offset[-1]),
        int(offset[-1]) + tail,
    )


@outer
def place(layout: TableLayout, flag: int, at: int, behind: int, first: int, length: int) -> int:
    """Where the price of a stage lies; ``at``: which number of devices, ``first``: its first operator."""
    if first + length <= layout.body:
        row = (flag * layout.behind + behind) * len(layout.starts) + layout.start_index[first]
        return int(layout.offset[at] + row * (layout.longest[at] + 1) + length)
    row = ((flag * len(layout.devices) + at) * layout.behind + behind) * (layout.operators - layout.tail_from)
    ends = layout.operators - layout.body
    return int(layout.tail_offset + (row + first - layout.tail_from) * ends + first + length - layout.body - 1)


def empty_prices(layout: TableLayout) -> Floats:
    """Prices of stages none of which is possible."""
    return np.full(layout.size, NEVER)
