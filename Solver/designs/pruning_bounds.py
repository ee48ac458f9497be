"""Bounds that close the chips and the shapes of plans of one model which cannot have its best
design.

Bounds of rising cost and tightness close chips: one of all shapes, from work at peak rates under
the lines of all plans that fit in memory; of every shape, with what it exchanges, under the lines
of its own plans; the same with operators as they are priced, one after another; at last schedules,
and searches through plans that stop at what is known. Between them good designs are evaluated, so
that there is something to beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import LayerGroups
from phaze_common.array_types import BoolArray, FloatArray, IntArray
from Solver.best_first import ROUNDING, Once, best_first
from Solver.chip_metrics import ChipMetrics
from Solver.designs.model_shapes import training_graphs
from Solver.designs.plan_values import plan_values
from Solver.designs.search_context import SearchContext
from Solver.designs.shape_bounds_on_chips import (
    MakeTable,
    ShapeBound,
    ShapeBounds,
    at_peak_rates,
    priced,
)
from Solver.designs.trial_designs import best_tried
from Solver.hardware import DesignedChips
from Solver.plans.shape_bounds import PrunedShapes
from Solver.problem import ModelProblem

FEW_CHIPS = 1024  # of which no bounds are taken together; that are searched as soon as bounded
# So many chips of these parts of all, the most promising, are tried first
SAMPLE, SAMPLED = 256, (0.01, 0.1)
# Of those with the highest bounds, and so many times as many by weaker ones
FIRST_SHAPES, MANY_TIMES = 16, 3
# Chips bounded by prices together at first, and how many times as many then: they have cores in
# common
AT_ONCE, MORE = 2048, 4
# Chips times shapes that are left to the search of what is left; chips searched together at first
FEW_PAIRS, SEARCHED = 8, 64
# Chips whose plans are searched together, shapes, and points of these
TRIED, TRIED_SHAPES, EVALUATED = 8, 4, 8


@dataclass(frozen=True, eq=False)
class Bounded:
    """What the plans of some shapes do not exceed: by chip, whatever the shape (chips,), and by
    number of the shape on any chip.

    ``least_s`` are seconds that no plan of a shape is below on any of them; ``of_pairs`` are by
    shape and chip, where asked for."""

    upper: FloatArray
    of_shapes: dict[int, float]
    least_s: dict[int, float]
    of_pairs: dict[int, FloatArray]

    def best_shapes(self, count: int) -> list[int]:
        """Numbers of so many shapes with the highest bounds."""
        return sorted(self.of_shapes, key=lambda number: -self.of_shapes[number])[:count]


class PruningBounds:
    """Closes the chips and the shapes of one model that cannot have its best design.

    ``upper`` is what no design on a chip exceeds (chips,), ``least_s`` what no plan of a shape is
    below (shapes,) on any chip that was open when the shape was pruned, ``incumbent`` what the best
    design found reaches, here or in another part of the space. Of shapes that are left plans might
    be the best whose groups are ``placements`` so; ``none_exceeds`` is what no other plan exceeds
    on the chips that are left."""

    def __init__(
        self,
        context: SearchContext,
        hardware: DesignedChips,
        model: ModelProblem,
        least: float = 0.0,
    ) -> None:
        """``least`` is what a design has to reach to be of interest."""
        self.context, self.hardware, self.model = context, hardware, model
        self.shapes: Sequence[UniformPlan] = tuple(model.space.shapes())
        graphs = training_graphs(context, model, self.shapes)
        self.graphs, self.shape_bounds = graphs, ShapeBounds(context, model, graphs, self.shapes)
        self.upper = np.full(len(hardware.accelerators), np.inf)
        self.least_s = np.zeros(len(self.shapes))
        self.incumbent, self.none_exceeds = least, -np.inf
        self.placements: dict[UniformPlan, frozenset[LayerGroups]] = {}
        self._read_shared()

    def bounded(
        self,
        rows: IntArray,
        numbers: Sequence[int],
        level: MakeTable,
        *,
        pairs: bool = False,
        listed: bool = True,
    ) -> Bounded:
        """Bounds of the plans of shapes on the chips ``rows``; ``listed`` as ``ShapeBounds.on``."""
        hardware, upper = self.hardware.some(rows), np.full(len(rows), -np.inf)
        of_shapes, least_s = dict.fromkeys(numbers, -np.inf), dict.fromkeys(numbers, np.inf)
        of_pairs = {number: np.full(len(rows), -np.inf) for number in numbers if pairs}
        for each in self.shape_bounds.on(hardware, numbers, level, listed=listed):
            values = self._values(hardware.metrics, each)
            np.maximum(upper, values, out=upper)
            of_shapes[each.number] = max(of_shapes[each.number], float(values.max(initial=-np.inf)))
            shortest_s = float(each.seconds.min(initial=np.inf))
            least_s[each.number] = min(least_s[each.number], shortest_s)
            if pairs:
                np.maximum(of_pairs[each.number], values, out=of_pairs[each.number])
        return Bounded(upper, of_shapes, least_s, of_pairs)

    def _values(self, metrics: ChipMetrics, bound: ShapeBound) -> FloatArray:
        space, objective = self.model.space, self.context.problem.objective
        samples, tokens = space.base.global_batch_size, space.sequence_length
        return metrics.reached(objective, bound.seconds, bound.joules, samples, tokens)

    def remaining(self) -> tuple[IntArray, list[int]]:
        """Chips and numbers of shapes that might have the best design."""
        rows, numbers = np.arange(len(self.upper)), list(range(len(self.shapes)))
        if not len(rows):
            return rows, []
        name, count = f"bounds of chips for {self.model.name}", len(rows)
        with self.context.progress.phase(name, count) as advance:
            many = len(rows) > FEW_CHIPS
            if many:
                self._bound_by_cores()
            if many or not self.incumbent:
                self._sample(listed=many)
            rows = rows[self.open(rows)]
            for level in (at_peak_rates,) if many else (at_peak_rates, priced):
                rows, numbers = self.narrowed(rows, numbers, level, listed=many)
            advance(count - len(rows))

            def price(part: IntArray) -> None:
                self._read_shared()
                self._price(part[self.open(part)], numbers)
                advance(len(part))

            chips = Once(self.upper, price)
            found = best_first(rows, [chips], self._threshold, at_once=AT_ONCE, growth=MORE)
            advance(len(rows) - sum(found.refined))
        rows = np.sort(rows[self.open(rows)])
        if not len(rows):
            return rows, []
        bounded = self.bounded(rows, numbers, priced, pairs=True)
        left, numbers = self._left_by(bounded, rows)
        if len(left) * len(numbers) <= FEW_PAIRS:
            return left, numbers
        still = self.open(rows)
        of_pairs = {number: bounded.of_pairs[number][still] for number in numbers}
        return self._pruned_by_search(left, of_pairs)

    def _pruned_by_search(
        self, rows: IntArray, of_pairs: dict[int, FloatArray]
    ) -> tuple[IntArray, list[int]]:
        """What is left of chips and shapes once plans are searched, shape by shape, on all chips
        that are open under it.

        ``of_pairs`` is by number of the shape what its plans do not exceed on ``rows``."""
        numbers = list(of_pairs)
        name = f"plans of {self.model.name} on {len(rows)} chips"
        with self.context.progress.phase(name, len(numbers)) as advance:
            for number in sorted(numbers, key=lambda each: -float(of_pairs[each].max())):
                self._read_shared()
                self._search(rows, number, of_pairs[number])
                advance(1)
        self.upper[rows] = np.minimum(self.upper[rows], np.max(list(of_pairs.values()), axis=0))
        for upper in of_pairs.values():
            pruned = upper < self._threshold()
            self.none_exceeds = max(self.none_exceeds, float(upper[pruned].max(initial=-np.inf)))
        left = [number for number in numbers if (of_pairs[number] >= self._threshold()).any()]
        return rows[self.open(rows)], left

    def _search(self, rows: IntArray, number: int, upper: FloatArray) -> None:
        """Lower ``upper``, which plans of a shape do not exceed on ``rows``, where that matters."""
        open_ = np.flatnonzero(upper >= self._threshold())
        if not len(open_):
            return
        placements, upper_placed = self._placements(rows[open_], number)
        upper[open_] = np.minimum(upper[open_], upper_placed)

        def search(part: IntArray) -> None:
            alone = self.context.on(self.hardware.some(rows[part]))
            shape, least = self.shapes[number], self._threshold()
            found = plan_values(alone, self.model, self.graphs, shape, placements, least)
            upper[part] = np.minimum(upper[part], found.upper)
            self._found_value(float(found.found.max()))

        best_first(open_, [Once(upper, search)], self._threshold, at_once=SEARCHED, growth=MORE)
        self.placements[self.shapes[number]] = frozenset(placements)

    def _placements(self, rows: IntArray, number: int) -> tuple[list[LayerGroups], FloatArray]:
        """Placements of a shape that might be best on one of ``rows``, and what none exceeds."""
        hardware, upper = self.hardware.some(rows), np.full(len(rows), -np.inf)
        found: dict[LayerGroups, None] = {}
        for placements, bound in self.shape_bounds.by_placement(hardware, number, priced):
            values = self._values(hardware.metrics, bound)
            np.maximum(upper, values, out=upper)
            if values.max() >= self._threshold():
                found.update(dict.fromkeys(placements))
            else:
                self.none_exceeds = max(self.none_exceeds, float(values.max()))
        return list(found), upper

    def _read_shared(self) -> None:
        """Take over what was found in other parts of the space meanwhile."""
        if self.context.shared_incumbent is not None:
            self.incumbent = max(self.incumbent, self.context.shared_incumbent.value())

    def narrowed(
        self, rows: IntArray, numbers: list[int], level: MakeTable, *, listed: bool = True
    ) -> tuple[IntArray, list[int]]:
        """What a level of bounds leaves of chips and shapes, which are all that are open."""
        if not len(rows):
            return rows, []
        return self._left_by(self.bounded(rows, numbers, level, listed=listed), rows)

    def _left_by(self, bounded: Bounded, rows: IntArray) -> tuple[IntArray, list[int]]:
        """What bounds of all that is open, on the chips ``rows``, leave of chips and shapes."""
        self.upper[rows] = np.minimum(self.upper[rows], bounded.upper)
        for number, upper in bounded.of_shapes.items():
            self.least_s[number] = max(self.least_s[number], bounded.least_s[number])
            if upper < self._threshold():
                self.none_exceeds = max(self.none_exceeds, upper)
        threshold = self._threshold()
        left = [number for number, upper in bounded.of_shapes.items() if upper >= threshold]
        return rows[self.open(rows)], left

    def open(self, rows: IntArray) -> BoolArray:
        """Which of the chips ``rows`` might have the best design."""
        still: BoolArray = self.upper[rows] >= self._threshold()
        return still

    def _threshold(self) -> float:
        return max(self.incumbent * (1.0 - ROUNDING), float(np.finfo(float).tiny))

    def _price(self, rows: IntArray, numbers: list[int]) -> None:
        if len(rows):
            bounded = self.bounded(rows, numbers, priced)
            self.upper[rows] = np.minimum(self.upper[rows], bounded.upper)
            self._try(rows, bounded)

    def _bound_by_cores(self) -> None:
        chips, metrics = self.hardware.accelerators, self.hardware.metrics
        problem, space = self.context.problem, self.model.space
        work = self.shape_bounds.of_cores(self.hardware, at_peak_rates)
        self.upper[:] = -np.inf
        if work is None:
            return
        least_work, joules = work.on(chips.tc_index, chips.vc_index)
        for size, least in self.shape_bounds.of_samples().items():
            throughput = space.base.global_batch_size / least.seconds(least_work)
            values = metrics.value(problem.objective, throughput, joules, space.sequence_length)
            self.upper = np.maximum(self.upper, np.where(metrics.holding(size), values, -np.inf))

    def _sample(self, *, listed: bool) -> None:
        """Find an incumbent among some chips, the most promising first."""
        order = np.argsort(-self.upper, kind="stable")
        for part in SAMPLED:
            last = max(int(part * len(order)) - 1, 0)
            places = np.unique(np.linspace(0, last, SAMPLE).astype(np.int64))
            rows = order[places][self.open(order[places])]
            if not len(rows):
                return
            weak = self.bounded(rows, range(len(self.shapes)), at_peak_rates, listed=listed)
            if not listed:
                several = weak.best_shapes(MANY_TIMES * FIRST_SHAPES)
                weak = self.bounded(rows, several, at_peak_rates)
            self._try(rows, self.bounded(rows, weak.best_shapes(FIRST_SHAPES), priced))

    def _try(self, rows: IntArray, bounded: Bounded) -> None:
        order = np.argsort(-bounded.upper, kind="stable")[:TRIED]
        rows = rows[order[bounded.upper[order] > self.incumbent]]
        if not len(rows):
            return
        hardware = self.hardware.some(rows)
        placements = {
            self.shapes[number]: self._best_placements(hardware, number)
            for number in bounded.best_shapes(TRIED_SHAPES)
        }
        own, sizes = self.hardware.metrics.memory_bytes, self.context.problem.memory_bytes
        held = sizes if own is None else [size for size in sizes if (own[rows] == size).any()]
        alone = self.context.on(hardware)
        self._found_value(best_tried(alone, self.model, placements, held, EVALUATED))

    def _best_placements(self, hardware: DesignedChips, number: int) -> frozenset[LayerGroups]:
        """How groups lie in the plans of a shape whose bound is highest."""
        best, highest = frozenset[LayerGroups](), -np.inf
        for placements, bound in self.shape_bounds.by_placement(hardware, number, priced):
            value = float(self._values(hardware.metrics, bound).max())
            if value > highest or not best:
                best, highest = frozenset(placements), value
        return best

    def _found_value(self, value: float) -> None:
        self.incumbent = max(self.incumbent, value)
        if self.context.shared_incumbent is not None:
            self.context.shared_incumbent.tell(self.incumbent)

    def some_shapes(self, numbers: Sequence[int]) -> tuple[UniformPlan, ...]:
        """The shapes with these numbers."""
        return tuple(self.shapes[number] for number in numbers)

    def other_shapes(self, numbers: Sequence[int]) -> PrunedShapes:
        """All others, with what none of their plans is below."""
        others = np.setdiff1d(np.arange(len(self.shapes)), numbers)
        return PrunedShapes(self.some_shapes(others.tolist()), self.least_s[others])
