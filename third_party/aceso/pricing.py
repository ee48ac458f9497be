"""Prices of all stages of one micro-batch size, made better where partitions use them."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product

import numpy as np

from .chains import Chain
from .compiled import Floats, Integers
from .exact_stages import exact_stage
from .least_limits import longest_stages, windows
from .partitions import Cut, Partition, Windows, least_sum, least_sums, used_rows
from .plans import StagePlan
from .price_tables import PriceTable, number, only_these, place, table_layout
from .questions import Question
from .reaches import choices_of
from .relaxed_stages import Bounded, Rows, bound_stages
from .spaces import NEVER, StageSpace
from .stage_paths import Stretch

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
    recomputed: Integers


class Pricing:
    """Bounds on the times of all stages that may be as fast as ``most_us``, and how the fastest of
    some of them run.

    ``table``: no such stage is faster; beyond ``most_us`` nothing is said but that. ``ways`` and
    ``tries`` are by the numbers of stages that are priced alike.
    """

    def __init__(
        self, question: Question, chain: Chain, spaces: tuple[StageSpace, ...], most_us: float
    ) -> None:
        self.question, self.chain, self.spaces, self.most_us = question, chain, spaces, most_us
        self.machine, self.limit_mib = question.machine, question.memory_limit_mib
        self.densities = tried_multipliers(spaces)
        self.choices = choices_of(spaces, chain, self.limit_mib, self.densities[::COARSE])
        longest = longest_stages(self.choices, chain, most_us)
        behind, flags = question.stages_at_most, question.node_flags
        self.layout = table_layout(chain, self.choices.devices, longest, behind, flags)
        self.table = PriceTable.empty(self.layout)
        self.lower: Floats = self.table.prices  # no stage is faster than the price at its place
        starts = len(self.layout.starts)
        # stages bounded with few and with all multipliers
        self.known = np.zeros((2, len(spaces), starts, behind, 2), dtype=bool)
        self.ways: dict[int, Way] = {}
        self.tries: dict[int, int] = {}
        self._windows: tuple[float, Windows] | None = None
        receives = np.repeat(np.arange(2 if flags == 4 else 1), starts)
        every = np.tile(np.arange(starts), len(receives) // starts)
        rows = Rows(every, np.zeros_like(every), receives)
        for at, space in enumerate(spaces):  # nothing is known of memory yet
            self._bound(at, space, rows, np.zeros(1), 1)
        self.table.spread_over_behind()

    def _bound(self, at: int, space: StageSpace, rows: Rows, densities: Floats, ways: int) -> None:
        rows_of, pairs = self.chain.row_array, self.chain.pair_array
        of = Bounded(self.lower, self.layout, at, space.arrays, rows_of, pairs, self.limit_mib)
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
            multipliers, ways = self.densities[2::COARSE], 1
            if fine and self.layout.size <= LARGE:
                multipliers, ways = self.densities[1:], 2
            elif fine:  # all of them where a stage is priced
                multipliers = self.densities[4::COARSE]
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
                other = cut._replace(first=cut.first + first, length=length)
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
            where = self.place(cut._replace(behind=behind))
            if self.table.is_own(where):
                self.lower[where] = max(self.lower[where], found.least_us)
        if found.us < NEVER:
            way = Way(found.us, found.choice, found.recomputed)
            for behind in range(cut.behind + 1):
                like = self.number(cut._replace(behind=behind))
                if like not in self.ways or self.ways[like].us > found.us:
                    self.ways[like] = way

    def place(self, cut: Cut) -> int:
        """Where the price of a stage lies."""
        return int(place(self.layout, *cut))

    def number(self, cut: Cut) -> int:
        """Of a stage, the same for all that are priced alike."""
        return int(number(self.layout, *cut))

    def stretch(self, cut: Cut) -> Stretch:
        """The operators of a stage."""
        part = slice(cut.first, cut.first + cut.length)
        at_end = cut.first + cut.length == self.chain.length
        rows, pairs = self.chain.row_array[part], self.chain.pair_array[part]
        sends = cut.flag // 2 if self.layout.flags == 4 else int(at_end)
        return Stretch(rows, pairs, cut.behind, cut.flag % 2, sends, self.limit_mib)

    def found_us(self, partition: Partition, micro_batches: int) -> float:
        """What a partition takes with the ways that were found; NEVER where one is missing."""
        ways = [self.ways.get(self.number(cut)) for cut in partition.cuts]
        times = [NEVER if way is None else way.us for way in ways]
        return (micro_batches - 1) * max(times) + sum(times) if max(times) < NEVER else NEVER

    def best_found(self, limit_us: float) -> Partition | None:
        """The partition of the least sum among stages whose ways were found."""
        found = only_these(self.layout, self.ways, (way.us for way in self.ways.values()))
        return least_sum(found.prices, found.layout, self.machine, self.windows(limit_us), limit_us)

    def windows(self, limit_us: float) -> Windows:
        """Where the rests of plans may begin whose stages are within ``limit_us``."""
        if self._windows is None or self._windows[0] != limit_us:
            stages = self.question.most_stages
            self._windows = limit_us, windows(self.choices, self.machine, stages, limit_us)
        return self._windows[1]

    def stages(self, partition: Partition) -> tuple[StagePlan, ...]:
        """The stages of a plan."""
        stages = []
        for cut in partition.cuts:
            way = self.ways[self.number(cut)]
            space = self.spaces[cut.at]
            choices = tuple(space.choices[int(each)] for each in way.choice)
            stages.append(StagePlan(space.devices, choices, tuple(map(bool, way.recomputed))))
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
