"""The best plans of models on each of some chips, evaluated only as far as bounds do not decide.

A plan evaluated on one chip bounds the plans of its shape on all others. Seconds of a plan grow
with those of its layers, and are scaled where all that it takes is; so of layers that take at least
x times as long, x at most 1,

    seconds >= x * (seconds where it was evaluated)

wherever memory is no larger and streams no faster. Near a chip that was evaluated that is nearly
exact, which lets a few evaluations close thousands of chips."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import LayerGroups
from phaze_common.array_types import FloatArray
from phaze_common.progress import SilentProgress
from Solver.designs.costs import PricedShapes, Shape, pass_seconds
from Solver.designs.pruning_bounds import PruningBounds
from Solver.designs.search_context import SearchContext
from Solver.designs.shape_bounds_on_chips import at_peak_rates, like_layers
from Solver.designs.shape_dominance import sample_joules_of
from Solver.hardware import DesignedChips
from Solver.plans.best_plan import ConfigurationPlans
from Solver.plans.cut_levels import Hint
from Solver.plans.least_iterations import Work

PROVEN = 1e-9  # relative gap below which a value is said to be proven


@dataclass(frozen=True, eq=False)
class _Evaluated:
    """Seconds of the best plan, and what none is below, where layers take ``layers_s``."""

    layers_s: FloatArray
    memory_bytes: float
    stream_bytes_per_s: float
    best_s: float
    least_s: float
    hint: Hint | None


@dataclass(eq=False)
class EvaluatedPlans:
    """What was evaluated so far on the same cluster, by shape of plans and where its groups lie.

    Prices and areas of chips decide nothing of it, so that it holds under other ones."""

    _found: dict[tuple[str, UniformPlan, LayerGroups], list[_Evaluated]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _alike: dict[tuple[object, ...], _Evaluated] = field(default_factory=dict)

    def add(self, key: tuple[str, UniformPlan, LayerGroups], evaluated: _Evaluated) -> None:
        """One more."""
        self._found[key].append(evaluated)
        self._alike[
            (key, *_what(evaluated.layers_s, evaluated.memory_bytes, evaluated.stream_bytes_per_s))
        ] = evaluated

    def same(
        self,
        key: tuple[str, UniformPlan, LayerGroups],
        layers_s: FloatArray,
        memory_bytes: float,
        stream_bytes_per_s: float,
    ) -> _Evaluated | None:
        """What was evaluated on layers that take the same; None where nothing was."""
        return self._alike.get((key, *_what(layers_s, memory_bytes, stream_bytes_per_s)))

    def least_s(
        self,
        key: tuple[str, UniformPlan, LayerGroups],
        layers_s: FloatArray,
        memory: FloatArray,
        streams: FloatArray,
        first: int,
    ) -> FloatArray:
        """Seconds that no plan is below, by evaluations from ``first`` on; (chips,)."""
        least = np.zeros(len(layers_s))
        for each in self._found[key][first:]:
            alike = np.flatnonzero(
                (memory <= each.memory_bytes) & (streams <= each.stream_bytes_per_s)
            )
            takes = each.layers_s > 0.0
            times = (layers_s[alike][:, takes] / each.layers_s[takes]).min(axis=1, initial=1.0)
            least[alike] = np.maximum(
                least[alike], times * each.least_s if np.isfinite(each.least_s) else np.inf
            )
        return least

    def count(self, key: tuple[str, UniformPlan, LayerGroups]) -> int:
        """How many there are of a kind."""
        return len(self._found[key])


def _what(
    layers_s: FloatArray, memory_bytes: float, stream_bytes_per_s: float
) -> tuple[object, ...]:
    return layers_s.tobytes(), memory_bytes, stream_bytes_per_s


class ModelOnChips:
    """The plans of ``model`` on the chips of ``context``: arrays of shape (chips,), or (shapes,
    chips)
    by place in ``numbers``.

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
        self.model = bounds.model
        self.numbers = tuple(numbers)
        self._hardware = context.hardware
        self._evaluated = evaluated
        self._objective, self._bounds = context.problem.objective, bounds.shape_bounds
        self._priced = PricedShapes(context, bounds.model, bounds.graphs, bounds.shapes)
        self._shapes: dict[int, Shape | None] = {}
        # Evaluated plans by which a shape is bounded already, by part
        self._used: dict[int, list[int]] = {}
        self._hints: dict[tuple[int, int], Hint] = {}
        self.figures, count = context.hardware.figures, context.hardware.configurations
        largest, own = float(max(context.problem.memory_bytes)), self.figures.memory_bytes
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
        keys = [(self.model.name, shape.plan, part.groups) for part in shape.parts]
        first = self._used[place] or [0] * len(keys)
        streams, parts_s = self.figures.stream_bytes_per_s, []
        for key, part, seen in zip(keys, shape.parts, first, strict=True):
            of_layers = pass_seconds(part.least)
            parts_s.append(self._evaluated.least_s(key, of_layers, self._memory, streams, seen))
        least_s = np.min(parts_s, axis=0)
        if not self._used[place]:
            least_s = np.maximum(least_s, self._on_lines(place, shape))
        if len(keys) == 1:  # of several parts the least is not the largest of the leasts
            self._used[place] = [self._evaluated.count(key) for key in keys]
        still = self.upper[place] > -np.inf
        upper = self._value(least_s, sample_joules_of(shape, len(self.figures), least=True))
        self.upper[place, still] = np.minimum(self.upper[place], upper)[still]

    def evaluate(self, row: int) -> None:
        """Find the best plan on one chip, shapes best first."""
        while True:
            place = int(np.argmax(self.upper[:, row]))
            if self.upper[place, row] <= max(self.found[row], 0.0) * (1.0 + PROVEN):
                return
            if place not in self._shapes:
                self.price(place)
            elif (shape := self._shapes[place]) is not None:
                self._evaluate(place, shape, row)
                self.tighten(place)

    def _evaluate(self, place: int, shape: Shape, row: int) -> None:
        seconds, least_s = self._best_s(place, shape, row)
        value = self._value_at(shape, seconds, row, least=False)
        upper = self._value_at(shape, least_s / float(shape.excess[row]), row, least=True)
        if upper > max(value, self.found[row]) * (1.0 + PROVEN) and shape.excess[row] > 1.0:
            shape = self._shapes[place] = shape.proven_at(self._hardware, row)
            seconds, least_s = self._best_s(place, shape, row)
            value = self._value_at(shape, seconds, row, least=False)
            upper = self._value_at(shape, least_s / float(shape.excess[row]), row, least=True)
        self.found[row], self.proven[row] = (
            max(self.found[row], value),
            max(self.proven[row], upper),
        )
        self.upper[place, row] = -np.inf

    def _best_s(self, place: int, shape: Shape, row: int) -> tuple[float, float]:
        """Seconds of the best plan of a shape, and what none is below; infinite: none fits."""
        memory, stream = float(self._memory[row]), float(self.figures.stream_bytes_per_s[row])
        found = list[_Evaluated]()
        for which, part in enumerate(shape.parts):
            key = (self.model.name, shape.plan, part.groups)
            layers_s = pass_seconds(part.costs, np.array([row]))[0]
            known = self._evaluated.same(key, layers_s, memory, stream)
            if known is None:
                plans = ConfigurationPlans(part.plans_on(row), part.costs, row, memory)
                best = plans.best(hint=self._hints.get((place, which)))
                known = _Evaluated(
                    layers_s, memory, stream, best.iteration_s, best.bound_s, best.hint
                )
                self._evaluated.add(key, known)
            if known.hint is not None:
                self._hints[place, which] = known.hint
            found.append(known)
        return min(each.best_s for each in found), min(each.least_s for each in found)

    def _value_at(self, shape: Shape, seconds: float, row: int, *, least: bool) -> float:
        if not np.isfinite(seconds):
            return -np.inf
        joules = sample_joules_of(shape, len(self.figures), least=least)
        return float(self._value(np.full(len(self.figures), seconds), joules)[row])

    def _value(self, seconds: FloatArray, joules: FloatArray) -> FloatArray:
        """The objective of each chip; -inf where the iteration takes infinitely long."""
        space = self.model.space
        with np.errstate(divide="ignore", invalid="ignore"):
            throughput = space.base.global_batch_size / seconds
            values = self.figures.value(self._objective, throughput, joules, space.sequence_length)
        return np.where(throughput > 0.0, np.where(np.isnan(values), np.inf, values), -np.inf)

    def _on_lines(self, place: int, shape: Shape) -> FloatArray:
        """Seconds that no plan is below by the lines of all plans of a shape."""
        works = [
            Work.of(part.least, like_layers(shape.graph, part.plans.sizes)) for part in shape.parts
        ]
        work = reduce(Work.or_less, works)
        least_s, lines = np.full(len(self.figures), np.inf), self._bounds.lines(self.numbers[place])
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
    return replace(
        context.on(hardware), progress=SilentProgress(), problem=replace(context.problem, front=())
    )
