"""The fastest plan with each of many values at once: every plan is looked at once, whatever the
values that it has.

A plan is of use as long as it might be faster than what is known for one of its values, so that the
slowest of these is what it has to beat. What one value needs is known to the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from Estimator.plans.degrees import UniformPlan
from phaze_common.array_types import FloatArray, IntArray
from phaze_common.progress import Advance
from Solver.paths.cut_bounds import ROUNDING
from Solver.plans.best_plan import FIRST_STEPS, MOST_STEPS, ConfigurationPlans
from Solver.plans.cut_levels import CutSearch, Found

EVERY = -1  # of plans for which any value says the same: they have all of them
NONE = -2  # of plans whose value is not asked about


@dataclass(frozen=True)
class Fastest:
    """The fastest plan found with one value, and the bytes of its fullest stage; no plan with it
    takes less than ``bound_s``.

    ``plan`` is None where none fits."""

    plan: UniformPlan | None
    iteration_s: float
    bound_s: float
    memory_bytes: float


@dataclass(frozen=True, eq=False)
class PlansWithValues:
    """Plans of a shape, ``priced`` on a configuration when they are looked at; plan i has the
    values ``codes[:, i]``.

    ``excess`` is the factor by which their seconds can at most be too long."""

    priced: Callable[[], ConfigurationPlans]
    codes: IntArray
    excess: float


class FastestPlans:
    """The fastest plans with each value of several axes; axis a has ``counts[a]`` values."""

    def __init__(self, counts: Sequence[int]) -> None:
        ends = np.cumsum(counts).tolist()
        self._slots = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
        self._values: int = ends[-1]
        self._found: list[tuple[UniformPlan | None, float]] = [(None, 0.0)] * self._values
        # Seconds known for every value; behind them the slowest of every axis, and what no plan
        # beats.
        self._known_s = np.append(np.full(self._values + len(counts), np.inf), 0.0)
        self._bound_s = np.full(self._values, np.inf)

    def of_axis(self, axis: int) -> list[Fastest]:
        """What is known of every value of an axis."""
        slots = self._slots[axis]
        seconds = self._known_s[slots]
        bounds_s = np.minimum(seconds, self._bound_s[slots])
        known = zip(self._found[slots], seconds.tolist(), bounds_s.tolist(), strict=True)
        return [Fastest(plan, mine_s, bound_s, held) for (plan, held), mine_s, bound_s in known]

    def offer(
        self, codes: Sequence[int], plan: UniformPlan, seconds: float, memory_bytes: float
    ) -> None:
        """A plan that fits, which has the values ``codes`` (axes,)."""
        for axis, code in enumerate(codes):
            slots = self._slots[axis]
            every = range(slots.start, slots.stop)
            for slot in every if code == EVERY else every[code : code + 1] if code != NONE else ():
                if seconds < self._known_s[slot] * (1.0 - ROUNDING):
                    self._found[slot] = plan, memory_bytes
                    self._known_s[slot] = seconds
            self._known_s[self._values + axis] = self._known_s[slots].max()

    def expect(self, codes: Sequence[int], seconds: float) -> None:
        """A plan with the values ``codes`` (axes,) takes ``seconds``: only faster ones matter."""
        for axis, code in enumerate(codes):
            slots = self._slots[axis]
            self._known_s[slots.start + code] = min(self._known_s[slots.start + code], seconds)
            self._known_s[self._values + axis] = self._known_s[slots].max()

    def search(self, parts: Iterable[PlansWithValues], advance: Advance) -> None:
        """Search ``parts``, those that take long last: others may have made them useless."""
        later = []
        for part in parts:
            if not self._search(part, FIRST_STEPS):
                later.append(part)
            advance(1)
        for part in later:
            self._search(part, FIRST_STEPS, MOST_STEPS)

    def _search(self, part: PlansWithValues, *steps: int) -> bool:
        """Whether all cuts of the plans of ``part`` that are of use were seen.

        If not, what is proven of them counts once they were searched with ``MOST_STEPS``."""
        plans, codes = part.priced(), part.codes
        first = np.array([slots.start for slots in self._slots])
        slots = np.where(
            codes == EVERY, self._values + np.arange(len(codes))[:, None], first[:, None] + codes
        )
        slots[codes == NONE] = len(self._known_s) - 1

        def offer(index: int, found: Found) -> None:
            assert found.plan is not None
            self.offer(codes[:, index].tolist(), found.plan, found.seconds, found.memory_bytes)
            incumbents_s[:] = self._known_s[slots].max(axis=0)

        incumbents_s = self._known_s[slots].max(axis=0)
        search = CutSearch(plans, incumbents_s, offer, *steps)
        bounds_s, interleaved = search.bounds_s, plans.shared.interleaved_rows
        self._price_interleaved(plans, offer, incumbents_s, bounds_s)
        search.level[interleaved] = len(steps) + 1
        search.run()
        if search.complete or MOST_STEPS in steps:
            for axis, mine in enumerate(self._slots):
                every, one = codes[axis] == EVERY, codes[axis] >= 0
                least_s = np.full(mine.stop - mine.start, bounds_s[every].min(initial=np.inf))
                np.minimum.at(least_s, codes[axis][one], bounds_s[one])
                self._bound_s[mine] = np.minimum(self._bound_s[mine], least_s / part.excess)
        return search.complete

    def _price_interleaved(
        self,
        plans: ConfigurationPlans,
        offer: Callable[[int, Found], None],
        incumbents_s: FloatArray,
        bounds_s: FloatArray,
    ) -> None:
        """Price the interleaved plans that are of use; ``bounds_s`` get to be their seconds."""
        rows = plans.shared.interleaved_rows
        rows = rows[bounds_s[rows] < incumbents_s[rows] * (1.0 - ROUNDING)]
        if not len(rows):
            return
        bounds_s[rows], held_bytes = plans.interleaved(rows)
        for place in np.argsort(bounds_s[rows], kind="stable").tolist():
            row = int(rows[place])
            if bounds_s[row] < incumbents_s[row] * (1.0 - ROUNDING):
                plan, seconds = plans.shared.plans.plan(row), float(bounds_s[row])
                offer(row, Found(plan, None, seconds, True, True, float(held_bytes[place])))
