"""Of a space of very many chips and shapes of plans those that might be best, found by bounds of all of them.

Three bounds of rising cost and tightness close chips: work at peak rates shared out among all devices; the same under the lines of
the plans that fit in memory; operators as they are priced, one after another, under these lines. Between them good designs are
evaluated, so that there is something to beat: what the best plan reaches, for every model, memory and micro-batch size. What
no bound closes is what the search goes on with, as exactly as in a space of no other chips; the best of what is closed is known
to be below what was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from Estimator.chips.latency_table import LatencyTable, populate_estimates
from Estimator.chips.least_prices import least_table
from GraphExtractor.graph import ModelGraph
from GraphExtractor.many import load_or_extract_all
from Plans.plan import UniformPlan
from Solver.hardware import DesignedChips
from Solver.problem import ModelProblem
from Solver.search.run import Run
from Solver.search.shape_bounds_on_chips import MakeTable, ShapeBounds

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MANY_POINTS = 100_000  # chips times shapes from which on bounds of all are worth their time
SAMPLE, PROMISING = 4096, 384  # chips of a first sample, and those of them that are priced
FIRST_SHAPES = 12  # under which these are priced
AT_ONCE = 4096  # chips bounded by prices together
TRIED, TRIED_SHAPES, EVALUATED = 8, 4, 8  # chips whose plans are searched together, shapes, and points of these
ROUNDING = 1e-12  # relative: a bound this close to a value may belong to an equally good design


@dataclass(frozen=True)
class Level:
    """A kind of bound: what operators take at least, and whether the plans of shapes are listed for their lines."""

    make_table: MakeTable
    of_plans: bool


def _peak_rates(graph: ModelGraph, hardware: DesignedChips) -> LatencyTable:
    return least_table(graph, hardware.accelerators, hardware.platform)


def _prices(graph: ModelGraph, hardware: DesignedChips) -> LatencyTable:
    return populate_estimates((graph,), hardware.accelerators, hardware.platform)


SHARED_OUT, UNDER_LINES, PRICED = Level(_peak_rates, False), Level(_peak_rates, True), Level(_prices, True)


@dataclass(frozen=True, eq=False)
class Bounded:
    """What the plans of some shapes do not exceed: by chip, whatever the shape (chips,), and by number of the shape on any chip."""

    most: FloatArray
    of_shapes: dict[int, float]

    def best_shapes(self, count: int) -> list[int]:
        """Numbers of so many shapes with the highest bounds."""
        return sorted(self.of_shapes, key=lambda number: -self.of_shapes[number])[:count]


class Screen:
    """Closes the chips and the shapes of one model that cannot have its best design."""

    def __init__(self, run: Run, hardware: DesignedChips, model: ModelProblem) -> None:
        self.run, self.hardware, self.model = run, hardware, model
        self.shapes: Sequence[UniformPlan] = tuple(model.space.shapes())
        keys = list(dict.fromkeys(model.graph_key(shape) for shape in self.shapes))
        with run.progress.phase(f"training graphs of {model.name}", len(keys)) as advance:
            graphs = load_or_extract_all(keys, run.stores.graphs, run.problem.force_reextract, run.problem.code, advance)
        self._bounds = ShapeBounds(run, model, graphs, self.shapes)
        self.beaten = 0.0  # what the best design found reaches
        self.closed = -np.inf  # what none of the designs that were closed exceeds

    def bounded(self, rows: IntArray, numbers: Sequence[int], level: Level) -> Bounded:
        """Bounds of the plans of some shapes on the chips ``rows``."""
        hardware, problem, space = self.hardware.some(rows), self.run.problem, self.model.space
        figures, most, of_shapes = hardware.figures, np.full(len(rows), -np.inf), dict[int, float]()
        held = {size: figures.holding(size) for size in problem.memory_bytes}
        for bounds in self._bounds.on(hardware, numbers, level.make_table, of_plans=level.of_plans):
            for each in bounds:
                throughput = space.base.global_batch_size / each.seconds
                values = figures.value(problem.objective, throughput, each.joules, space.sequence_length)
                values = np.where(held[each.memory_bytes] & (throughput > 0.0), values, -np.inf)
                np.maximum(most, values, out=most)
                of_shapes[each.number] = max(of_shapes.get(each.number, -np.inf), float(values.max(initial=-np.inf)))
        return Bounded(most, of_shapes)

    def _open(self, bounded: Bounded) -> NDArray[np.bool_]:
        """Which of the chips that were bounded might have the best design."""
        still = bounded.most >= self._least
        self.closed = max(self.closed, float(bounded.most[~still].max(initial=-np.inf)))
        return np.asarray(still)

    @property
    def _least(self) -> float:
        """What a design has to reach."""
        return max(self.beaten * (1.0 - ROUNDING), float(np.finfo(float).tiny))

    def _open_shapes(self, bounded: Bounded) -> list[int]:
        """Numbers of the shapes that might have the best plan on one of the chips that were bounded."""
        return sorted(number for number, most in bounded.of_shapes.items() if most >= self._least)

    def _sample(self) -> None:
        """Find something to beat among the most promising of a sample of the chips."""
        every = len(self.hardware.accelerators)
        rows = np.unique(np.linspace(0, every - 1, min(SAMPLE, every)).astype(np.int64))
        weak = self.bounded(rows, range(len(self.shapes)), SHARED_OUT)
        rows = rows[np.argsort(-weak.most, kind="stable")[:PROMISING]]
        self._try(rows, self.bounded(rows, weak.best_shapes(FIRST_SHAPES), PRICED))

    def _try(self, rows: IntArray, bounded: Bounded) -> None:
        """Look for the best plans of the most promising of the chips ``rows`` under a few shapes."""
        from Solver.search.requery import groups_of_shapes

        objective = self.run.problem.objective
        order = np.argsort(-bounded.most, kind="stable")[:TRIED]
        rows = rows[order[bounded.most[order] > self.beaten]]
        shapes = [self.shapes[number] for number in bounded.best_shapes(TRIED_SHAPES)]
        if not len(rows):
            return
        alone = self.run.on(self.hardware.some(rows))
        for size in self.run.problem.memory_bytes:
            for group in groups_of_shapes(alone, self.model, shapes, size):
                promising = np.argsort(-group.undominated_bound(objective), kind="stable")[:EVALUATED]
                group.evaluate(promising)
                self.beaten = max(self.beaten, float(group.objective(objective).max()))

    def screened(self) -> tuple[IntArray, list[int]]:
        """Chips and numbers of shapes that might have the best design."""
        import time
        t0=time.time()
        self._sample()
        print('first',time.time()-t0,self.beaten,flush=True)
        rows, numbers = np.arange(len(self.hardware.accelerators)), list(range(len(self.shapes)))
        for level in (SHARED_OUT, UNDER_LINES):
            bounded = self.bounded(rows, numbers, level)
            still = self._open(bounded)
            rows, most, numbers = rows[still], bounded.most[still], self._open_shapes(bounded)
            print(time.time()-t0, level.of_plans, len(rows), len(numbers), self.beaten,flush=True)
        order = np.argsort(-most, kind="stable")
        rows, most = rows[order], most[order]
        kept = []
        for first in range(0, len(rows), AT_ONCE):
            part = rows[first : first + AT_ONCE][self._open(Bounded(most[first : first + AT_ONCE], {}))]
            if not len(part):
                continue
            bounded = self.bounded(part, numbers, PRICED)
            self._try(part, bounded)
            kept.append(part[self._open(bounded)])
            print(time.time()-t0,"priced", len(part), len(kept[-1]), self.beaten,flush=True)
        rows = np.sort(np.concatenate([*kept, rows[:0]]))
        bounded = self.bounded(rows, numbers, PRICED)
        return rows[self._open(bounded)], self._open_shapes(bounded)
