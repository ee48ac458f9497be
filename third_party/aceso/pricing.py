"""Prices of all stages of one micro-batch size, made better where partitions use them."""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from .chains import Chain
from .exact_stages import exact_stage
from .least_limits import longest_stages, windows
from .partitions import Cut, Machine, Partition, Windows, least_sum, least_sums, used_rows
from .plans import StagePlan
from .price_tables import PriceTable, TableLayout, number, only_these, place, table_layout
from .reaches import Choices, choices_of
from .relaxed_stages import Bounded, Rows, bound_stages
from .spaces import NEVER, StageSpace
from .stage_paths import Stretch

logger = logging.getLogger(__name__)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

THREADS = 2
MANY_LABELS = 20_000  # of one last choice, beyond which they are thinned
# That pricing a stage may take, each time that a partition uses it again.
LABELS = (0, 200_000, 2_000_000, 20_000_000)
COARSE = 4  # every so manieth multiplier is tried first
EXACT = 1e-9
LARGE = 4_000_000  # prices, beyond which bounds are made with half of the multipliers
NEARBY = 2  # operators before and behind the ends of a stage whose neighbours are priced with it
STEPS = 12  # multipliers between the cheapest and the dearest memory that recomputation frees


@dataclass(frozen=True)
class Way:
    """How a stage was found to run: for each operator a number of its choice, and whether it is
    recomputed."""

    us: float
    choice: Integers
    again: Integers


@dataclass
class Pricing:
    """Bounds on the times of all stages that may be as fast as ``most_us``, and how the fastest of
    some of them run.

    ``table``: no such stage is faster; beyond ``most_us`` nothing is said but that. ``ways`` and
    ``tries`` are by the numbers of stages that are priced alike.
    """

    chain: Chain
    spaces: tuple[StageSpace, ...]
    machine: Machine
    limit_mib: float
    most_stages: int
    most_us: float
    table: PriceTable
    choices: Choices
    densities: Floats
    # Stages bounded with few and with all multipliers.
    known: tuple[NDArray[np.bool_], NDArray[np.bool_]]
    ways: dict[int, Way] = field(default_factory=dict)
    tries: dict[int, int] = field(default_factory=dict)
    seen: tuple[float, Windows] | None = None

    @classmethod
    def made(
        cls,
        chain: Chain,
        spaces: tuple[StageSpace, ...],
        machine: Machine,
        limit_mib: float,
        most_stages: int,
        most_us: float,
    ) -> "Pricing":
        """Prices that know nothing of memory yet."""
        choices = choices_of(spaces, chain, limit_mib, tried_multipliers(spaces)[::COARSE])
        devices = np.array([space.devices for space in spaces], dtype=np.int64)
        flags = 4 if machine.devices > machine.per_node else 1
        behind = min(most_stages, machine.devices)
        layout = table_layout(
            chain, devices, longest_stages(choices, chain, most_us), behind, flags
        )
        shape = (len(spaces), len(layout.starts), behind, 2)
        known = (np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool))
        table, densities = PriceTable.empty(layout), tried_multipliers(spaces)
        asked = (chain, spaces, machine, limit_mib, most_stages, most_us)
        pricing = cls(*asked, table, choices, densities, known)
        pricing._bound_times()
        return pricing

    @property
    def layout(self) -> TableLayout:
        """Places of the prices."""
        return self.table.layout

    @property
    def lower(self) -> Floats:
        """No stage is faster than the price at its place."""
        return self.table.prices

    def _bound_times(self) -> None:
        number = len(self.layout.starts)
        receives = np.repeat(np.arange(2 if self.layout.flags == 4 else 1), number)
        starts = np.tile(np.arange(number), len(receives) // number)
        rows = Rows(starts, np.zeros_like(starts), receives)
        for at, space in enumerate(self.spaces):
            self._bound(at, space, rows, np.zeros(1), 1)
        self.table.spread_over_behind()

    def _bound(self, at: int, space: StageSpace, rows: Rows, densities: Floats, ways: int) -> None:
        chain = self.chain
        of = Bounded(
            self.lower,
            self.layout,
            at,
            space.arrays,
            chain.row_array,
            chain.pair_array,
            self.limit_mib,
        )
        bound_stages(of, rows, np.ascontiguousarray(densities), ways)

    def tighten(self, limit_us: float) -> Partition | None:
        """Bound with their memory all stages that partitions up to ``limit_us`` may use; the one of
        the least sum then."""
        fine, within = False, self.windows(limit_us)
        while True:
            sums, _ = least_sums(self.lower, self.layout, self.machine, within, limit_us)
            used, count = used_rows(sums, self.layout, self.machine, self.known[int(fine)])
            if not count and fine:
                return least_sum(self.lower, self.layout, self.machine, within, limit_us)
            if not count:
                fine = True
                continue
            multipliers, ways = (
                (self.densities[2::COARSE], 1) if not fine else (self.densities[1:], 2)
            )
            if fine and self.layout.size > LARGE:  # all of them where a stage is priced
                multipliers, ways = self.densities[4::COARSE], 1
            self.table.give_own(used[:count])
            ats, starts, behind, receives = (np.ascontiguousarray(each) for each in used[:count].T)
            jobs = []
            for at, space in enumerate(self.spaces):
                of = np.flatnonzero(ats == at)
                for part in range(THREADS):
                    mine = of[part::THREADS]
                    jobs.append((at, space, Rows(starts[mine], behind[mine], receives[mine])))
            with ThreadPoolExecutor(THREADS) as pool:
                for done in [pool.submit(self._bound, *job, multipliers, ways) for job in jobs]:
                    done.result()

    def price(self, cuts: list[Cut], most_us: float, out_of_time: Callable[[], bool]) -> None:
        """Price stages exactly where that is possible; what is slower than ``most_us`` is only
        known to be."""
        with ThreadPoolExecutor(THREADS) as pool:
            for done in [pool.submit(self._price, cut, most_us, out_of_time) for cut in cuts]:
                done.result()

    def wanted(self, cut: Cut) -> bool:
        """Whether a stage is not priced exactly yet."""
        return self.tries.get(self.number(cut), 0) < len(LABELS)

    def untried(self, cut: Cut) -> bool:
        """Whether nothing but the first bounds are known of a stage, which more multipliers raise
        at little cost."""
        return self.number(cut) not in self.tries

    def nearby_cuts(self, cut: Cut) -> Iterator[Cut]:
        """Untried stages that begin and end a few operators before or behind it."""
        steps = range(-NEARBY, NEARBY + 1)
        for first, end in product(steps, steps):
            length = cut.length - first + end
            within = cut.first + first >= 0 and cut.first + first + length <= self.chain.length
            if within and 0 < length <= self.layout.longest[cut.at]:
                other = replace(cut, first=cut.first + first, length=length)
                if self.untried(other) and self.table.is_own(self.place(other)):
                    yield other

    def _price(self, cut: Cut, most_us: float, out_of_time: Callable[[], bool]) -> None:
        if out_of_time():
            return
        which = self.number(cut)
        tried = self.tries.get(which, 0)
        space, stretch = self.spaces[cut.at].arrays, self.stretch(cut)
        found = exact_stage(space, stretch, self.densities, most_us, MANY_LABELS, LABELS[tried])
        is_exact = found.us <= found.least_us * (1.0 + EXACT)
        most_tries = len(LABELS) - (found.least_us >= most_us)
        self.tries[which] = len(LABELS) if is_exact else min(tried + 1, most_tries)
        for behind in range(cut.behind, self.layout.behind):
            where = self.place(replace(cut, behind=behind))
            if self.table.is_own(where):
                self.lower[where] = max(self.lower[where], found.least_us)
        if found.us < NEVER:
            way = Way(found.us, found.choice, found.again)
            for behind in range(cut.behind + 1):
                like = self.number(replace(cut, behind=behind))
                if like not in self.ways or self.ways[like].us > found.us:
                    self.ways[like] = way

    def place(self, cut: Cut) -> int:
        """Where the price of a stage lies."""
        return int(place(self.layout, cut.flag, cut.at, cut.behind, cut.first, cut.length))

    def number(self, cut: Cut) -> int:
        """Of a stage, the same for all that are priced alike."""
        return int(number(self.layout, cut.flag, cut.at, cut.behind, cut.first, cut.length))

    def stretch(self, cut: Cut) -> Stretch:
        """The operators of a stage."""
        part = slice(cut.first, cut.first + cut.length)
        at_end = cut.first + cut.length == self.chain.length
        return Stretch(
            self.chain.row_array[part],
            self.chain.pair_array[part],
            cut.behind,
            cut.flag % 2,
            cut.flag // 2 if self.layout.flags == 4 else int(at_end),
            self.limit_mib,
        )

    def found_us(self, partition: Partition, micro_batches: int) -> float:
        """What a partition takes with the ways that were found; NEVER where one is missing."""
        times = [
            self.ways[at].us if (at := self.number(cut)) in self.ways else NEVER
            for cut in partition.cuts
        ]
        return (micro_batches - 1) * max(times) + sum(times) if max(times) < NEVER else NEVER

    def best_found(self, limit_us: float) -> Partition | None:
        """The partition of the least sum among stages whose ways were found."""
        found = only_these(self.layout, self.ways, (way.us for way in self.ways.values()))
        return least_sum(found.prices, found.layout, self.machine, self.windows(limit_us), limit_us)

    def windows(self, limit_us: float) -> Windows:
        """Where the rests of plans may begin whose stages are within ``limit_us``."""
        if self.seen is None or self.seen[0] != limit_us:
            self.seen = limit_us, windows(self.choices, self.machine, self.most_stages, limit_us)
        return self.seen[1]

    def stages(self, partition: Partition) -> tuple[StagePlan, ...]:
        """The stages of a plan."""
        stages = []
        for cut in partition.cuts:
            way = self.ways[self.number(cut)]
            space = self.spaces[cut.at]
            choices = tuple(space.choices[int(each)] for each in way.choice)
            stages.append(StagePlan(space.devices, choices, tuple(map(bool, way.again))))
        return tuple(stages)


def tried_multipliers(spaces: tuple[StageSpace, ...]) -> Floats:
    """Us per MiB to try: none, from the cheapest memory that recomputation frees to beyond the
    dearest, and far more."""
    ratios = [np.zeros(0)]
    for space in spaces:
        arrays = space.arrays
        frees = (arrays.activations > 1.0) & (arrays.base_us < NEVER)
        ratios.append(arrays.recompute_us[frees] / arrays.activations[frees])
    flat = np.concatenate(ratios)
    flat = flat[flat > 0]
    if not flat.size:
        return np.array([0.0, 1.0, 10.0, 100.0, 1000.0])
    low, high = float(np.quantile(flat, 0.02)), float(flat.max())
    return np.concatenate(
        [[0.0], np.geomspace(0.5 * low, 2.0 * high, STEPS), [10.0 * high, 100.0 * high]]
    )
