"""The whole space of a run under other constants, searched for chips that are better there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, repeat

import numpy as np
from numpy.typing import NDArray

from Estimator.chips.accelerator import Platform, Variant
from Estimator.chips.clock import maximum_frequency_hz
from phaze.studies.robust.uncertain import Physics
from Solver.designs.layer_bounds import BoundedChips
from Solver.designs.plans_on_chips import EvaluatedPlans, ModelOnChips, PlansOnChips, quiet
from Solver.designs.pruning_bounds import PruningBounds
from Solver.designs.search_context import SearchContext
from Solver.designs.shape_bounds_on_chips import at_peak_rates
from Solver.hardware import DesignedChips

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

TIE = 1e-6  # relative: designs that differ by less are equally good
BOUNDED_AT_ONCE = 8192  # chips whose layers are bounded together, which bounds memory
FIRST_SCHEDULED, SCHEDULED_AT_ONCE = 96, 4096  # and scheduled together


@dataclass(frozen=True, eq=False)
class Best:
    """The best chip of a space under a sample: its ``row`` (-1: nothing fits) and its ``value``.

    ``reach`` is what each chip does not exceed, shape (chips,); ``proven`` whether none is better
    than ``value``. ``scheduled`` chips were priced and scheduled, ``evaluated`` ones had their best
    plans found.
    """

    row: int
    value: float
    reach: FloatArray
    proven: bool
    scheduled: int
    evaluated: int

    @property
    def without_reach(self) -> Best:
        """The same, less what may be large."""
        return replace(self, reach=np.zeros(0))


@dataclass(frozen=True, eq=False)
class _Part:
    """Some chips with bounds of their plans."""

    rows: IntArray
    plans: PlansOnChips


@dataclass(eq=False)
class _Screened:
    """Chips that bounds leave, each handed out once, and ``numbers`` of shapes by model."""

    parts: list[_Part]
    numbers: dict[str, list[int]]
    reach: FloatArray
    seen: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))

    def open(self, least: float, most: int) -> IntArray:
        """The ``most`` promising of the chips that might beat ``least`` by what is known now."""
        found: list[IntArray] = []
        for each in self.parts:
            each.plans.price()
            self.reach[each.rows] = np.minimum(self.reach[each.rows], each.plans.reach)
            found.append(each.rows[self.reach[each.rows] > _beating(least)])
        rows = np.setdiff1d(np.concatenate([*found, np.zeros(0, np.int64)]), self.seen)
        rows = rows[np.argsort(-self.reach[rows], kind="stable")][:most]
        self.seen = np.union1d(self.seen, rows)
        return rows


class SampledSpace:
    """The chips of ``run``, as its search compared them, with the constants of ``physics``.

    Chips that these make larger than the budget of the space, or that exceed its limits, or whose
    die cannot carry its memory or does not run at their clock, reach nothing; clocks that chips
    have as their own change by as much as the platform's.
    """

    def __init__(self, run: SearchContext, physics: Physics, evaluated: EvaluatedPlans) -> None:
        """``evaluated`` are plans in the same cluster."""
        given = run.hardware
        assert isinstance(given, DesignedChips)
        space, chips = physics.space, given.accelerators
        faster = space.platform.frequency_hz / given.platform.frequency_hz
        clocked = tuple(_clocked(each, faster) for each in chips.variants)
        possible = [_at_possible_clock(each, space.platform) for each in clocked]
        chips = replace(chips, variants=tuple(possible))
        whole = space.whole(chips)
        chips = replace(chips, area_mm2=whole.area_mm2)
        platform, cluster = space.platform, physics.cluster
        self.hardware = DesignedChips(
            chips, platform, cluster, given.software, given.solver, space=space
        )
        runs = np.array([now == each for now, each in zip(possible, clocked, strict=True)])
        self.allowed = space.limits.passing(whole) & runs[chips.variant]
        # chips that people name may have any area
        if (given.accelerators.area_mm2 <= space.budget_mm2).all():
            self.allowed &= whole.area_mm2 <= space.budget_mm2
        self.run = quiet(run, self.hardware)
        self._evaluated = evaluated

    def values(self, rows: IntArray) -> FloatArray:
        """What the chips ``rows`` reach with their best plans, (rows,); 0 where none fits."""
        values, allowed = np.zeros(len(rows)), np.flatnonzero(self.allowed[rows])
        if len(allowed):
            plans = self._plans(self.hardware.some(rows[allowed]), self._every, bounded=True)
            for place in range(len(allowed)):
                plans.evaluate(place)
            values[allowed] = plans.found
        return values

    def best(self, known: IntArray, values: FloatArray) -> Best:
        """The best of all chips, ``known`` ones reaching ``values``, by more than ``TIE``."""
        place = int(np.argmax(values))
        best, row = float(values[place]), int(known[place]) if values[place] > 0.0 else -1
        reach = np.where(self.allowed, np.inf, 0.0)
        reach[known] = values
        scheduled = evaluated = 0
        others = np.setdiff1d(np.flatnonzero(self.allowed), known)
        screened = self._screened(others, best, reach)
        undecided = False
        # the first, most promising ones bound the others
        for most in chain([FIRST_SCHEDULED], repeat(SCHEDULED_AT_ONCE)):
            part = screened.open(best, most)
            if not len(part):
                break
            plans = self._plans(self.hardware.some(part), screened.numbers, bounded=False)
            plans.price()
            scheduled += len(part)
            done = np.zeros(len(part), np.bool_)
            while True:
                open_reach = np.where(done, -np.inf, plans.reach)
                top = int(np.argmax(open_reach))
                if open_reach[top] <= _beating(best):
                    break
                plans.evaluate(top)
                done[top] = True
                evaluated += 1
                if plans.found[top] > _beating(best):
                    best, row = float(plans.found[top]), int(part[top])
            reach[part] = np.minimum(reach[part], plans.reach)
            undecided |= bool((plans.reach > _beating(best)).any())
        return Best(row, best, reach, not undecided, scheduled, evaluated)

    def reaching(self, rows: IntArray, least: float) -> NDArray[np.bool_]:
        """Which of the chips ``rows`` reach ``least``; what is not decided counts as if it did."""
        found, reach = np.zeros(len(rows), np.bool_), np.where(self.allowed, np.inf, 0.0)
        screened = self._screened(rows[self.allowed[rows]], least, reach)
        while len(part := screened.open(least, SCHEDULED_AT_ONCE)):
            plans = self._plans(self.hardware.some(part), screened.numbers, bounded=False)
            plans.price()
            for place in range(len(part)):
                if plans.reach[place] > least:
                    plans.evaluate(place)
            found |= np.isin(rows, part[plans.reach > least])
        return found

    def _screened(self, rows: IntArray, least: float, reach: FloatArray) -> _Screened:
        """Those of ``rows`` and shapes that may beat ``least`` by bounds, which lower ``reach``."""
        numbers, most = dict(self._every), dict[str, FloatArray]()
        if len(rows):
            for screen in self._screens:
                name = screen.model.name
                bounds = screen.bounded(rows, numbers[name], at_peak_rates)
                most[name] = bounds.upper
                # of several models a shape may be good for the whole that is not the best alone
                if len(self._screens) == 1:
                    best = bounds.of_shapes
                    numbers[name] = [each for each in numbers[name] if best[each] > _beating(least)]
            reach[rows] = np.minimum(reach[rows], self._together(most))
            rows = rows[reach[rows] > _beating(least)]
        parts = []
        for first in range(0, len(rows), BOUNDED_AT_ONCE):
            part = rows[first : first + BOUNDED_AT_ONCE]
            chips = BoundedChips.of(self.hardware.some(part))
            parts.append(_Part(part, self._plans(chips, numbers, bounded=False)))
        return _Screened(parts, numbers, reach)

    def _together(self, most: dict[str, FloatArray]) -> FloatArray:
        together = self.run.problem.combination.of(most)
        return np.where(together > 0.0, together, 0.0)

    def _plans(
        self, hardware: DesignedChips, numbers: dict[str, list[int]], *, bounded: bool
    ) -> PlansOnChips:
        run = quiet(self.run, hardware)
        models = [
            ModelOnChips(run, each, numbers[each.model.name], self._evaluated, bounded=bounded)
            for each in self._screens
        ]
        return PlansOnChips(run, models)

    @cached_property
    def _screens(self) -> list[PruningBounds]:
        return [PruningBounds(self.run, self.hardware, model) for model in self.run.problem.models]

    @cached_property
    def _every(self) -> dict[str, list[int]]:
        return {screen.model.name: list(range(len(screen.shapes))) for screen in self._screens}


def _clocked(variant: Variant, faster: float) -> Variant:
    clock = variant.frequency_hz
    return variant if clock is None else replace(variant, frequency_hz=clock * faster)


def _at_possible_clock(variant: Variant, platform: Platform) -> Variant:
    """``variant``, or with the highest clock of the process where its own is above that."""
    die = platform.technology.die
    clock = platform.frequency_hz if variant.frequency_hz is None else variant.frequency_hz
    if die is None or clock <= (most := maximum_frequency_hz(die)):
        return variant
    return replace(variant, frequency_hz=most)


def _beating(value: float) -> float:
    return value * (1.0 + TIE)
