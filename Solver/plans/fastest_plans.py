"""The fastest plan with each of many values at once: every plan is looked at once, whatever the
values that it has.

A plan is of use as long as it might be faster than what is known for one of its values, so that the
slowest of these is what it has to beat. What one value needs is known to the others."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from Estimator.plans.degrees import UniformPlan
from phaze_common.array_types import FloatArray, IntArray
from phaze_common.progress import Advance
from Solver.paths.cut_bounds import ROUNDING
from Solver.plans.best_plan import FIRST_STEPS, MOST_STEPS, ConfigurationPlans

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
    """What is known of the plans with each value of several axes; axis a has ``counts[a]``
    values."""

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
        known = zip(
            self._found[slots],
            self._known_s[slots].tolist(),
            self._bound_s[slots].tolist(),
            strict=True,
        )
        return [
            Fastest(plan, seconds, min(seconds, bound_s), held)
            for (plan, held), seconds, bound_s in known
        ]

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
        """Some plan with the values ``codes`` (axes,) is known to take ``seconds``: only faster
        ones are looked for."""
        for axis, code in enumerate(codes):
            slots = self._slots[axis]
            self._known_s[slots.start + code] = min(self._known_s[slots.start + code], seconds)
            self._known_s[self._values + axis] = self._known_s[slots].max()

    def search(self, parts: Iterable[PlansWithValues], advance: Advance) -> None:
        """Take all plans of ``parts`` into account, those that take long last: by then others may
        have made them useless."""
        later = []
        for part in parts:
            if not self._search(part, FIRST_STEPS):
                later.append(part)
            advance(1)
        for part in later:
            self._search(part, MOST_STEPS)

    def _search(self, part: PlansWithValues, most_steps: int) -> bool:
        """Whether all cuts of the plans of ``part`` that are of use were seen.

        If not, what is proven of them counts once they were searched with ``MOST_STEPS``."""
        plans, codes = part.priced(), part.codes
        bounds_s, first = plans.bounds_s.copy(), np.array([slots.start for slots in self._slots])
        slots = np.where(
            codes == EVERY, self._values + np.arange(len(codes))[:, None], first[:, None] + codes
        )
        slots[codes == NONE] = len(self._known_s) - 1
        self._price_interleaved(plans, codes, slots, bounds_s)
        complete = self._search_cuts(plans, codes, slots, bounds_s, most_steps)
        if complete or most_steps >= MOST_STEPS:
            for axis, mine in enumerate(self._slots):
                every, one = codes[axis] == EVERY, codes[axis] >= 0
                least_s = np.full(mine.stop - mine.start, bounds_s[every].min(initial=np.inf))
                np.minimum.at(least_s, codes[axis][one], bounds_s[one])
                self._bound_s[mine] = np.minimum(self._bound_s[mine], least_s / part.excess)
        return complete

    def _price_interleaved(
        self, plans: ConfigurationPlans, codes: IntArray, slots: IntArray, bounds_s: FloatArray
    ) -> None:
        """Price the interleaved plans that are of use; ``bounds_s`` get to be their seconds."""
        rows = plans.shared.interleaved_rows
        rows = rows[
            bounds_s[rows]
            < self._known_s[slots[:, rows]].max(axis=0, initial=0.0) * (1.0 - ROUNDING)
        ]
        if not len(rows):
            return
        seconds, memory_bytes = plans.interleaved(rows)
        bounds_s[rows] = seconds
        for place in np.argsort(seconds, kind="stable").tolist():
            row = rows[place]
            if seconds[place] < self._known_s[slots[:, row]].max() * (1.0 - ROUNDING):
                self.offer(
                    codes[:, row].tolist(),
                    plans.shared.plans.plan(row),
                    seconds[place],
                    memory_bytes[place],
                )

    def _search_cuts(
        self,
        plans: ConfigurationPlans,
        codes: IntArray,
        slots: IntArray,
        bounds_s: FloatArray,
        most_steps: int,
    ) -> bool:
        """Find the best cuts of the other plans that are of use, best first; ``bounds_s`` get to be
        what is proven of them.

        Whether ``most_steps`` were enough for each."""
        cut = ~plans.shared.interleaved & np.isfinite(bounds_s)
        # Steps that a plan was searched with already, what none of its cuts is below, and which
        # plan it is.
        waiting = [(0, float(bounds_s[index]), index) for index in np.flatnonzero(cut).tolist()]
        heapq.heapify(waiting)
        bounded, complete = np.zeros(len(bounds_s), np.bool_), True
        while waiting:
            tried, bound_s, index = heapq.heappop(waiting)
            incumbent_s = float(self._known_s[slots[:, index]].max())
            if bound_s >= incumbent_s * (1.0 - ROUNDING):
                continue
            if not bounded[index]:
                bounded[index] = True
                # Beyond what is to be beaten it says nothing of the cuts it pruned
                tight_s = plans.bound(index, incumbent_s)
                bounds_s[index] = max(bound_s, min(tight_s, incumbent_s))
                if np.isfinite(tight_s):
                    heapq.heappush(waiting, (0, float(bounds_s[index]), index))
                continue
            steps = most_steps if tried else FIRST_STEPS
            found = plans.searched(index, incumbent_s, steps)
            if not found.fits:
                bounds_s[index] = np.inf
                continue
            if found.plan is not None:
                self.offer(codes[:, index].tolist(), found.plan, found.seconds, found.memory_bytes)
            if found.complete:
                bounds_s[index] = max(bound_s, min(incumbent_s, found.seconds))
            elif steps < most_steps:
                heapq.heappush(waiting, (steps, bound_s, index))
            else:
                complete = False
        return complete
