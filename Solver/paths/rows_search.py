"""The best plan whose stages differ among those with the same number of rows in a micro-batch, with
a bound on all of them."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from Estimator.plans.heterogeneous.mixed_layers import RecomputableLayers
from Estimator.plans.heterogeneous.placed_stage import PlacedStage
from Estimator.plans.heterogeneous.pricing import PricedStages
from Estimator.plans.rates import Machine
from Solver.paths.bounds import ROUNDING, bound_loads
from Solver.paths.option_tables import OptionTables, option_tables
from Solver.paths.path_search import search_paths
from Solver.paths.spaces import PlanLimits, stage_space
from Solver.paths.stage_classes import StageClasses
from Solver.paths.stage_options import StageOption

MOST_STEPS = 2_000_000  # stages tried in one interval of loads: some tenths of a second
NARROWEST = 1e-4  # relative width of an interval of loads that is not divided further


@dataclass(frozen=True)
class RowsAnswer:
    """The best stages found with their options (None: none better than what was known), and what no
    plan here beats, seconds."""

    stages: tuple[tuple[int, PlacedStage], ...] | None
    iteration_s: float
    bound_s: float
    intervals: int
    steps: int


@dataclass(frozen=True, order=True)
class Loads:
    """What the slowest stage of a plan may take of a micro-batch, both passes and its messages."""

    least_s: float
    most_s: float

    def up_to(self, most_s: float) -> Loads:
        """The same with at most so much."""
        return Loads(self.least_s, min(self.most_s, most_s))

    def halves(self, most_s: float) -> tuple[Loads, ...]:
        """Two parts that are as wide by ratio; none where it is narrow."""
        high = min(self.most_s, most_s)
        if not high > self.least_s * (1.0 + NARROWEST) or math.isinf(high):
            return ()
        middle = math.sqrt(self.least_s * high) if self.least_s > 0.0 else high / 2
        return Loads(self.least_s, middle), Loads(middle, high)


class RowsSearch:
    """Plans whose micro-batches have as many rows: ``options`` of stages with the ``layers`` of
    their graphs, one by one."""

    def __init__(
        self,
        options: Sequence[StageOption],
        layers: Sequence[RecomputableLayers],
        classes: StageClasses,
        machine: Machine,
        limits: PlanLimits,
    ) -> None:
        order = sorted(range(len(options)), key=lambda place: options[place].devices)
        options, layers = [options[place] for place in order], [layers[place] for place in order]
        most = limits.most_stages(options[0].devices, len(classes.lattice.members[0]))
        self.classes, self.machine, self.options, self.layers = classes, machine, options, layers
        self.micro_batches = options[0].degrees.micro_batches
        self.tables: OptionTables = option_tables(
            options, layers, classes, machine, limits.devices, self.micro_batches, most
        )
        self.space, self.paths = stage_space(options, layers, self.tables, classes, machine, limits)
        nodes = len(classes.lattice.members)
        self._tables_s = np.full((2, most, nodes, limits.devices + 1), np.inf)
        self._path = np.zeros((most, 3), np.int64)

    def bound(self, loads: Loads) -> float:
        """Seconds that no plan beats whose largest load is among ``loads``."""
        return float(bound_loads(self.space, loads.least_s, loads.most_s, self._tables_s))

    def answer(self, incumbent_s: float, most_steps: int = MOST_STEPS) -> RowsAnswer:
        """The best plan that beats ``incumbent_s``; each interval of loads is searched for up to
        ``most_steps`` stages tried."""
        best, best_s, open_s, count, steps = None, incumbent_s, math.inf, 0, 0
        least_s = self._least_largest()
        queue = [] if math.isinf(least_s) else [(0.0, Loads(least_s, math.inf))]
        while queue:
            _, loads = heapq.heappop(queue)
            loads = loads.up_to(best_s / self.micro_batches)
            if loads.most_s < loads.least_s:
                continue
            count += 1
            bound_s = self.bound(loads)
            if bound_s >= best_s * (1.0 - ROUNDING):
                continue
            within = loads.least_s, loads.most_s, best_s, most_steps
            searched = search_paths(self.space, self.paths, self._tables_s, *within, self._path)
            steps += searched.steps
            if searched.seconds < best_s:
                best, best_s = self._placed(searched.stages), searched.seconds
            if searched.complete or bound_s >= best_s * (1.0 - ROUNDING):
                continue
            halves = loads.halves(best_s / self.micro_batches)
            for half in halves:
                heapq.heappush(queue, (bound_s, half))
            if not halves:
                open_s = min(open_s, bound_s)
        found_s = math.inf if best is None else best_s
        return RowsAnswer(best, found_s, min(open_s, best_s), count, steps)

    def _least_largest(self) -> float:
        """A load that the slowest stage of any plan has at least; infinite where there is no
        plan."""
        finite = self.space.load_s[np.isfinite(self.space.load_s)]
        if not len(finite) or math.isinf(self.bound(Loads(0.0, math.inf))):
            return math.inf
        low, high = 0.0, float(finite.max())
        for _ in range(16):  # the least limit on loads under which there is a plan
            middle = 0.5 * (low + high)
            if math.isfinite(self.bound(Loads(0.0, middle))):
                high = middle
            else:
                low = middle
        return low

    def _placed(self, stages: int) -> tuple[tuple[int, PlacedStage], ...]:
        """The stages along the path that was found, each with its option."""
        lattice, found = self.classes.lattice, []
        for place, (edge, option, device) in enumerate(self._path[:stages].tolist()):
            members = lattice.members[lattice.whole[edge]] & ~lattice.members[lattice.part[edge]]
            layers, chosen = tuple(np.flatnonzero(members).tolist()), self.options[option]
            number, downstream = self.classes.class_of[edge], stages - 1 - place
            count = (
                int(self.tables.recomputed[option, number, downstream]) if chosen.partly else None
            )
            found.append((option, PlacedStage(chosen.degrees, device, layers, count)))
        return tuple(found)

    def priced(self, stages: Sequence[tuple[int, PlacedStage]]) -> PricedStages:
        """Stages with their options, priced one by one."""
        layers = [self.layers[option] for option, _ in stages]
        return PricedStages([stage for _, stage in stages], layers, self.machine)
