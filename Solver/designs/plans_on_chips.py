"""The best plans of models on each of some chips, evaluated only as far as bounds do not decide.

A plan evaluated on one chip bounds the plans of its shape on all others. Seconds of a plan grow
with those of its layers, and are scaled where all that it takes is; so of layers that take at least
x times as long, x at most 1,

    seconds >= x * (seconds where it was evaluated)

wherever memory is no larger and streams no faster. Near a chip that was evaluated that is nearly
exact, which lets a few evaluations close thousands of chips."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import LayerGroups
from phaze_common.array_types import FloatArray, IntArray
from phaze_common.progress import SilentProgress
from Solver.best_first import PROVEN, best_first
from Solver.designs.costs import Part, PricedShapes, Shape, pass_seconds
from Solver.designs.pruning_bounds import PruningBounds
from Solver.designs.search_context import SearchContext
from Solver.designs.shape_bounds_on_chips import at_peak_rates, like_layers
from Solver.designs.shape_dominance import sample_joules_of
from Solver.hardware import DesignedChips
from Solver.plans.best_plan import BestPlan, ConfigurationPlans
from Solver.plans.cut_levels import Hint
from Solver.plans.least_iterations import Work


@dataclass(frozen=True, eq=False)
class _Evaluated:
    """Seconds of the best plan, and what none is below, where layers take ``layers_s``."""

    layers_s: FloatArray
    memory_bytes: float
    stream_bytes_per_s: float
    best_s: float
    least_s: float
    hint: Hint | None


class _Evaluations:
    """What was evaluated of one shape of plans whose groups lie alike."""

    def __init__(self) -> None:
        self.found: list[_Evaluated] = []
        self._alike: dict[tuple[bytes, float, float], _Evaluated] = {}

    def like(
        self, layers_s: FloatArray, memory: float, stream: float, find: Callable[[], BestPlan]
    ) -> _Evaluated:
        """What was evaluated on layers that take the same, else what ``find`` evaluates."""
        key = layers_s.tobytes(), memory, stream
        if key not in self._alike:
            best = find()
            proven = best.iteration_s, best.bound_s, best.hint
            self._alike[key] = _Evaluated(layers_s, memory, stream, *proven)
            self.found.append(self._alike[key])
        return self._alike[key]

    def least_s(
        self, layers_s: FloatArray, memory: FloatArray, streams: FloatArray, first: int
    ) -> FloatArray:
        """Seconds that no plan is below, by evaluations from ``first`` on; (chips,)."""
        least = np.zeros(len(layers_s))
        for each in self.found[first:]:
            no_better = (memory <= each.memory_bytes) & (streams <= each.stream_bytes_per_s)
            rows, takes = np.flatnonzero(no_better), each.layers_s > 0.0
            times = (layers_s[rows][:, takes] / each.layers_s[takes]).min(axis=1, initial=1.0)
            scaled_s = times * each.least_s if np.isfinite(each.least_s) else np.inf
            least[rows] = np.maximum(least[rows], scaled_s)
        return least


class EvaluatedPlans:
    """What was evaluated so far on the same cluster, by model, shape of plans and placement.

    Prices and areas of chips decide nothing of it, so that it holds under other ones."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, UniformPlan, LayerGroups], _Evaluations] = defaultdict(
            _Evaluations
        )

    def of(self, model: str, shape: Shape) -> list[_Evaluations]:
        """Those of each part of a shape."""
        return [self._known[model, shape.plan, part.groups] for part in shape.parts]


class ModelOnChips:
    """The plans of ``model`` on the chips of ``context``.

    Arrays have shape (chips,), or (shapes, chips) by place in ``numbers``.

    ``upper`` is what no plan of a shape exceeds, ``found`` what the best evaluated one reaches."""

    def __init__(
        self,
        context: SearchContext,
        bounds: PruningBounds,
        numbers: Sequence[int],
        evaluated: EvaluatedPlans,
        *,
        bounded: bool,
    ) -> None:
        """The shapes with these ``numbers``; ``bounded`` by the lines of their plans at first."""
        assert isinstance(context.hardware, DesignedChips)
        self.model, self.numbers, self._evaluated = bounds.model, tuple(numbers), evaluated
        self._hardware: DesignedChips = context.hardware
        self._objective, self._bounds = context.problem.objective, bounds.shape_bounds
        self._priced = PricedShapes(context, bounds.model, bounds.graphs, bounds.shapes)
        self._shapes: dict[int, Shape | None] = {}
        # Evaluated plans by which a shape is bounded already, by part
        self._used: dict[int, list[int]] = {}
        self._hints: dict[tuple[int, int], Hint] = {}
        self.metrics, count = context.hardware.metrics, context.hardware.configurations
        largest, own = float(max(context.problem.memory_bytes)), self.metrics.memory_bytes
        self._memory = np.full(count, largest) if own is None else own
        allowed = np.isin(self._memory, context.problem.memory_bytes)
        self.upper = np.where(allowed, np.full((len(self.numbers), count), np.inf), -np.inf)
        self.found, self.proven = np.full(count, -np.inf), np.full(count, -np.inf)
        if bounded:
            self._bound_all(context.hardware)

    @property
    def reach(self) -> FloatArray:
        """What no plan exceeds on each chip, of evaluated ones what is proven of them."""
        reach: FloatArray = np.maximum(self.upper.max(axis=0, initial=-np.inf), self.proven)
        return reach

    def price(self, place: int) -> None:
        """Price the layers of a shape, and bound its plans by them."""
        if place not in self._shapes:
            self._shapes[place] = self._priced.shape(self.numbers[place])
            self._used[place] = []
        self.tighten(place)

    def tighten(self, place: int) -> None:
        """Bound the plans of a priced shape by its layers and by what was evaluated meanwhile."""
        shape = self._shapes.get(place)
        if shape is None:
            if place in self._shapes:
                self.upper[place] = -np.inf  # it has no plan
            return
        evaluated = self._evaluated.of(self.model.name, shape)
        first = self._used[place] or [0] * len(evaluated)
        streams = self.metrics.stream_bytes_per_s
        parts_s = [
            each.least_s(pass_seconds(part.least), self._memory, streams, seen)
            for each, part, seen in zip(evaluated, shape.parts, first, strict=True)
        ]
        least_s = np.min(parts_s, axis=0)
        if not self._used[place]:
            least_s = np.maximum(least_s, self._on_lines(place, shape))
        if len(evaluated) == 1:  # of several parts the least is not the largest of the leasts
            self._used[place] = [len(each.found) for each in evaluated]
        still = self.upper[place] > -np.inf
        upper = self._value(least_s, sample_joules_of(shape, len(self.metrics), least=True))
        self.upper[place, still] = np.minimum(self.upper[place], upper)[still]

    def evaluate(self, row: int) -> None:
        """Find the best plan on one chip, shapes best first."""
        places, shapes = np.arange(len(self.numbers)), _ShapesOnChip(self, row)
        best_first(places, [shapes], shapes.incumbent)

    def refine(self, place: int, row: int) -> int:
        """Price a shape or, if it is priced, find its best plan on one chip."""
        shape = self._shapes.get(place)
        if shape is None:
            self.price(place)
            return 0
        found, upper = self._found(place, shape, row)
        if upper > max(found, self.found[row]) * (1.0 + PROVEN) and shape.excess[row] > 1.0:
            shape = self._shapes[place] = shape.proven_at(self._hardware, row)
            found, upper = self._found(place, shape, row)
        self.found[row] = max(self.found[row], found)
        self.proven[row] = max(self.proven[row], upper)
        self.upper[place, row] = -np.inf
        self.tighten(place)
        return 1

    def _found(self, place: int, shape: Shape, row: int) -> tuple[float, float]:
        """What the best plan of a shape reaches on a chip, and what none exceeds; -inf: no fit."""
        memory, stream = float(self._memory[row]), float(self.metrics.stream_bytes_per_s[row])
        found = list[_Evaluated]()
        for which, each in enumerate(self._evaluated.of(self.model.name, shape)):
            part, hint = shape.parts[which], self._hints.get((place, which))

            def find(part: Part = part, hint: Hint | None = hint) -> BestPlan:
                plans = ConfigurationPlans(part.plans_on(row), part.costs, row, memory)
                return plans.best(hint=hint)

            layers_s = pass_seconds(part.costs, np.array([row]))[0]
            found.append(each.like(layers_s, memory, stream, find))
            if found[-1].hint is not None:
                self._hints[place, which] = found[-1].hint
        best_s, least_s = min(each.best_s for each in found), min(each.least_s for each in found)
        upper = self._value_at(shape, least_s / float(shape.excess[row]), row, least=True)
        return self._value_at(shape, best_s, row, least=False), upper

    def _value_at(self, shape: Shape, seconds: float, row: int, *, least: bool) -> float:
        if not np.isfinite(seconds):
            return -np.inf
        joules = sample_joules_of(shape, len(self.metrics), least=least)
        return float(self._value(np.full(len(self.metrics), seconds), joules)[row])

    def _value(self, seconds: FloatArray, joules: FloatArray) -> FloatArray:
        """The objective of each chip; -inf where the iteration takes infinitely long."""
        space = self.model.space
        with np.errstate(divide="ignore", invalid="ignore"):
            throughput = space.base.global_batch_size / seconds
            values = self.metrics.value(self._objective, throughput, joules, space.sequence_length)
        return np.where(throughput > 0.0, np.where(np.isnan(values), np.inf, values), -np.inf)

    def _on_lines(self, place: int, shape: Shape) -> FloatArray:
        alike = (like_layers(shape.graph, part.plans.sizes) for part in shape.parts)
        works = (Work.of(part.least, each) for part, each in zip(shape.parts, alike, strict=True))
        work = reduce(Work.or_less, works)
        least_s, lines = np.full(len(self.metrics), np.inf), self._bounds.lines(self.numbers[place])
        for size, line in lines.items():
            mine = self._memory == size
            least_s[mine] = line.seconds(work.some(mine))
        return least_s

    def _bound_all(self, hardware: DesignedChips) -> None:
        places = {number: place for place, number in enumerate(self.numbers)}
        upper = np.full_like(self.upper, -np.inf)
        for each in self._bounds.on(hardware, self.numbers, at_peak_rates):
            mine, place = self._memory == each.memory_bytes, places[each.number]
            upper[place, mine] = self._value(each.seconds, each.joules)[mine]
        self.upper = np.minimum(self.upper, upper)


@dataclass(frozen=True)
class _ShapesOnChip:
    """The shapes of a model by what their plans may reach on one chip: a ``Level``."""

    model: ModelOnChips
    row: int
    deferred = False

    def bound(self, candidates: IntArray) -> FloatArray:
        upper: FloatArray = self.model.upper[candidates, self.row]
        return upper

    def refine(self, candidates: IntArray) -> int:
        return self.model.refine(int(candidates[0]), self.row)

    def incumbent(self) -> float:
        """The least bound that exceeds the best plan found."""
        found = max(float(self.model.found[self.row]), 0.0)
        return float(np.nextafter(found * (1.0 + PROVEN), np.inf))


class PlansOnChips:
    """All models of a problem on the chips of ``context``, together; arrays of shape (chips,)."""

    def __init__(self, context: SearchContext, models: Sequence[ModelOnChips]) -> None:
        self._models, self._combination = tuple(models), context.problem.combination

    @property
    def reach(self) -> FloatArray:
        """What nothing on each chip exceeds, 0 where a model fits with no plan."""
        return self._together({each.model.name: each.reach for each in self._models})

    @property
    def found(self) -> FloatArray:
        """What the best plans evaluated reach, 0 where there are none of some model."""
        return self._together({each.model.name: each.found for each in self._models})

    def price(self) -> None:
        """Price all shapes of all models."""
        for each in self._models:
            for place in range(len(each.numbers)):
                each.price(place)

    def evaluate(self, row: int) -> None:
        """Find the best plans of all models on one chip."""
        for each in self._models:
            each.evaluate(row)

    def _together(self, values: Mapping[str, FloatArray]) -> FloatArray:
        together = self._combination.of(values)
        return np.where(together > 0.0, together, 0.0)


def quiet(context: SearchContext, hardware: DesignedChips) -> SearchContext:
    """``context`` on other hardware, asked for its best alone and without a word."""
    problem = replace(context.problem, front=())
    return replace(context.on(hardware), progress=SilentProgress(), problem=problem)
