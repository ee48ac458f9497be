"""Of a space of very many chips and shapes of plans those that might be best, found by bounds of all of them.

Three bounds of rising cost and tightness close chips: work at peak rates shared out among all devices; the same under the lines of
the plans that fit in memory; operators as they are priced, one after another, under these lines. Between them good designs are
evaluated, so that there is something to beat: what the best plan reaches, for every model, memory and micro-batch size. What
no bound closes is what the search goes on with, as exactly as in a space of no other chips; the best of what is closed is known
to be below what was found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from Estimator.chips.latency_table import LatencyTable, populate_estimates
from Estimator.chips.least_prices import least_table
from GraphExtractor.graph import ModelGraph
from GraphExtractor.many import load_or_extract_all
from Plans.plan import UniformPlan
from Solver.hardware import DesignedChips
from Solver.problem import ModelProblem
from Solver.search.costs import MANY_SHAPES
from Solver.search.run import Run
from Solver.search.shape_bounds_on_chips import MakeTable, ShapeBounds

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MANY_POINTS = 100_000  # chips times shapes from which on bounds of all are worth their time
FIRST_CHIPS, FIRST_SHAPES = 4096, 48  # by the weakest bound, to find something to beat
AT_ONCE = 16384  # chips bounded together by prices
TRIED, TRIED_SHAPES = 12, 6  # chips, and shapes of each, whose best plans are looked for at once
EVALUATED = 4  # points of these, by their own bounds
MOST_TRIALS = 3  # of a kind, as long as they find better ones
ROUNDING = 1e-12  # relative: a bound this close to a value may belong to an equally good design


@dataclass(frozen=True)
class Rival:
    """Designs among which the best is to be known: those for a model with some memory and micro-batch size."""

    model: str
    memory_bytes: int
    micro_batch_size: int


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


@dataclass(eq=False)
class Bounded:
    """What is known of some chips: by rival what none of its plans exceeds on each, shape (chips,), and by shape on all of them."""

    most: dict[Rival, FloatArray]
    of_shapes: dict[tuple[Rival, int], float] = field(default_factory=dict)

    def add(self, rival: Rival, number: int, values: FloatArray) -> None:
        """Bounds of the plans of one shape."""
        self.most[rival] = np.maximum(self.most[rival], values)
        self.of_shapes[rival, number] = float(values.max(initial=-np.inf))


class Screen:
    """Closes chips and shapes of one model, as far as they cannot be the best of a rival."""

    def __init__(self, run: Run, hardware: DesignedChips, model: ModelProblem) -> None:
        self.run, self.hardware, self.model = run, hardware, model
        self.shapes: Sequence[UniformPlan] = tuple(model.space.shapes())
        keys = list(dict.fromkeys(model.graph_key(shape) for shape in self.shapes))
        with run.progress.phase(f"training graphs of {model.name}", len(keys)) as advance:
            graphs = load_or_extract_all(keys, run.stores.graphs, run.problem.force_reextract, run.problem.code, advance)
        self._bounds = ShapeBounds(run, model, graphs, self.shapes)
        self.rivals = [
            Rival(model.name, size, micro_batch)
            for size in run.problem.memory_bytes
            for micro_batch in dict.fromkeys(shape.micro_batch_size for shape in self.shapes)
        ]
        self.beaten = dict.fromkeys(self.rivals, 0.0)  # what the best design found reaches
        self._tried: set[tuple[Rival, int]] = set()

    def bounded(self, rows: IntArray, numbers: Sequence[int], level: Level) -> Bounded:
        """Bounds of the plans of some shapes on the chips ``rows``."""
        hardware, problem = self.hardware.some(rows), self.run.problem
        figures, space = hardware.figures, self.model.space
        held = {size: figures.holding(size) for size in problem.memory_bytes}
        found = Bounded({rival: np.full(len(rows), -np.inf) for rival in self.rivals})
        for bounds in self._bounds.on(hardware, numbers, level.make_table, of_plans=level.of_plans):
            for each in bounds:
                rival = Rival(self.model.name, each.memory_bytes, self.shapes[each.number].micro_batch_size)
                throughput = space.base.global_batch_size / each.seconds
                tokens = space.sequence_length
                values = figures.value(problem.objective, throughput, each.joules, tokens)
                found.add(rival, each.number, np.where(held[each.memory_bytes] & (throughput > 0.0), values, -np.inf))
        return found

    def open_rows(self, bounded: Bounded) -> NDArray[np.bool_]:
        """Of the chips that were bounded those that might be the best of a rival."""
        could = [most >= self.beaten[rival] * (1.0 - ROUNDING) for rival, most in bounded.most.items()]
        return np.asarray(np.any([each & np.isfinite(bounded.most[rival]) for rival, each in zip(bounded.most, could, strict=True)], axis=0))

    def open_shapes(self, bounded: Bounded) -> list[int]:
        """Numbers of the shapes that might have the best plan of a rival on one of the chips that were bounded."""
        return sorted({number for (rival, number), most in bounded.of_shapes.items() if most >= self.beaten[rival] * (1.0 - ROUNDING) and np.isfinite(most)})

    def find_good_ones(self) -> None:
        """Find something to beat among the chips that are the most promising by the weakest bound of a sample of all."""
        every = len(self.hardware.accelerators)
        rows = np.unique(np.linspace(0, every - 1, min(FIRST_CHIPS, every)).astype(np.int64))
        numbers = list(range(len(self.shapes)))
        weak = self.bounded(rows, numbers, SHARED_OUT)
        rows = rows[self._most_promising(weak, FIRST_CHIPS // 16)]
        numbers = self._first_shapes(weak)
        self.try_best(rows, self.bounded(rows, numbers, PRICED))

    def _most_promising(self, bounded: Bounded, count: int) -> IntArray:
        """Places of so many chips of each rival with the highest bounds."""
        best = [np.argsort(-most, kind="stable")[:count] for most in bounded.most.values()]
        return np.unique(np.concatenate(best))

    def _first_shapes(self, bounded: Bounded) -> list[int]:
        """So many shapes of each rival with the highest bounds."""
        chosen: set[int] = set()
        for rival in self.rivals:
            mine = [(most, number) for (whose, number), most in bounded.of_shapes.items() if whose == rival]
            chosen |= {number for _, number in sorted(mine, reverse=True)[:FIRST_SHAPES]}
        return sorted(chosen)

    def try_best(self, rows: IntArray, bounded: Bounded) -> None:
        """Evaluate the most promising chips of ``rows`` for each rival, again as long as better ones are found."""
        for _ in range(MOST_TRIALS):
            before = dict(self.beaten)
            for rival, most in bounded.most.items():
                order = np.argsort(-most, kind="stable")
                order = order[most[order] > max(self.beaten[rival], 0.0)]
                untried = [place for place in order[: 8 * TRIED].tolist() if (rival, int(rows[place])) not in self._tried][:TRIED]
                if untried:
                    self._try(rival, rows[untried], bounded)
            if before == self.beaten:
                break

    def _try(self, rival: Rival, rows: IntArray, bounded: Bounded) -> None:
        """Find the best plans of a few shapes on the chips ``rows``."""
        from Solver.search.requery import groups_of_shapes

        objective = self.run.problem.objective
        self._tried |= {(rival, row) for row in rows.tolist()}
        mine = sorted(((most, number) for (whose, number), most in bounded.of_shapes.items() if whose == rival), reverse=True)
        shapes = [self.shapes[number] for most, number in mine[:TRIED_SHAPES] if np.isfinite(most)]
        alone = self.run.on(self.hardware.some(rows))
        for group in groups_of_shapes(alone, self.model, shapes, rival.memory_bytes):
            promising = np.argsort(-group.undominated_bound(objective), kind="stable")[:EVALUATED]
            group.evaluate(promising)
            self.beaten[rival] = max(self.beaten[rival], float(group.objective(objective).max()))

    def screened(self) -> tuple[IntArray, list[int]]:
        """Chips and shapes that might be the best of a rival."""
        progress, every = self.run.progress, np.arange(len(self.hardware.accelerators))
        import time; t0=time.time()
        self.find_good_ones()
        print('first',time.time()-t0,self.beaten,flush=True)
        rows, numbers = every, list(range(len(self.shapes)))
        for level in (SHARED_OUT, UNDER_LINES):
            bounded = self.bounded(rows, numbers, level)
            still = self.open_rows(bounded)
            rows, numbers = rows[still], self.open_shapes(bounded)
            print(time.time()-t0,level.of_plans, len(rows), len(numbers), self.beaten)
        highest = np.max([most[still] / max(self.beaten[rival], 1e-300) for rival, most in bounded.most.items()], axis=0)
        rows = rows[np.argsort(-highest, kind="stable")]
        kept = []
        for first in range(0, len(rows), AT_ONCE):
            part = rows[first : first + AT_ONCE]
            bounded = self.bounded(part, numbers, PRICED)
            self.try_best(part, bounded)
            kept.append(part[self.open_rows(bounded)])
            print(time.time()-t0,"priced", len(part), len(kept[-1]), self.beaten)
        rows = np.sort(np.concatenate(kept)) if kept else rows
        bounded = self.bounded(rows, numbers, PRICED)
        return rows[self.open_rows(bounded)], self.open_shapes(bounded)
