"""What is known of the cuts of plans, level by level: a bound that all cuts share, a short search
for the best cut, and one that goes on until a proof."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np

from Estimator.plans.degrees import UniformPlan
from phaze_common.array_types import FloatArray, IntArray
from Solver.best_first import Level, best_first
from Solver.paths.cut_bounds import ROUNDING
from Solver.plans.alike_plans import AlikePlans, Proof, Together

FEW_STEPS = 1000  # for a first incumbent among plans alike


class PlanStatus(IntEnum):
    """What became of a plan on a configuration."""

    PRUNED = 0  # its bound does not beat a plan that was evaluated
    EVALUATED = 1  # its best cut into stages is known, or the best of those tried
    INFEASIBLE = 2  # no cut of it fits in memory


@dataclass(frozen=True)
class Hint:
    """A plan worth trying first: its index, and the nodes of its cut (None: with equal chunks)."""

    index: int
    nodes: tuple[int, ...] | None


@dataclass(frozen=True)
class Found:
    """A plan and cut that beat the incumbent, if any; whether all cuts were seen, and one fits."""

    plan: UniformPlan | None
    hint: Hint | None
    seconds: float
    complete: bool
    fits: bool = True
    memory_bytes: float = 0.0


class CutPlans(Protocol):
    """Plans whose cuts are bounded and searched, by index."""

    @property
    def bounds_s(self) -> FloatArray:
        """Seconds that no cut of each plan is below; infinite where none fits."""

    def bound(self, index: int, incumbent_s: float) -> float:
        """Seconds that no cut of a plan is below; infinite where none beats ``incumbent_s``."""

    def searched(self, index: int, incumbent_s: float, most_steps: int) -> Found:
        """The best cut of a plan that beats ``incumbent_s``, among so many stages tried."""

    def alike(self, rows: IntArray) -> AlikePlans:
        """Plans ``rows`` by what decides whether they are looked at ``together``."""

    def together(self, rows: IntArray, incumbents_s: FloatArray, most_steps: int) -> Together:
        """Whether it is proven, within so many stages tried, that no cut of plans ``rows``, alike,
        beats the ``incumbents_s`` (rows,)."""


class CutSearch:
    """The search for plans of ``plans`` that take less than ``incumbents_s`` (plans,), which
    ``offer`` lowers when it is given a plan that was found.

    Arrays have shape (plans,): what became of each, the least it can take, and what its best cut
    takes (infinite where unknown). ``complete``: the ``steps`` of the last level were enough for
    each."""

    def __init__(
        self,
        plans: CutPlans,
        incumbents_s: FloatArray,
        offer: Callable[[int, Found], None],
        *steps: int,
    ) -> None:
        self.plans, self.incumbents_s, self.offer = plans, incumbents_s, offer
        self.bounds_s, self.plan_s = plans.bounds_s.copy(), np.full(len(incumbents_s), np.inf)
        fits = np.isfinite(self.bounds_s)
        self.status = np.where(fits, PlanStatus.PRUNED, PlanStatus.INFEASIBLE).astype(np.int8)
        self.complete = True
        self.levels: tuple[Level, ...] = (
            _Bounding(self, 0),
            *(_Cutting(self, *each) for each in enumerate(steps, 1)),
        )
        self._settled = len(self.levels)
        self.level = np.where(fits, 0, self._settled)
        # What ``run`` keeps up to date: its candidates, each one's column, and ``waiting``
        self._candidates = np.arange(0)
        self._column = np.zeros(len(fits), np.int64)
        self._waiting: FloatArray | None = None
        self._steps = steps

    def run(self) -> None:
        """Search all plans that are not settled yet, best first."""
        candidates = np.flatnonzero(self.bounds_s < self.incumbents_s * (1.0 - ROUNDING))
        candidates = candidates[self.level[candidates] < self._settled]
        self._candidates, self._waiting = candidates, None
        self._column[candidates] = np.arange(len(candidates))
        self._alike = self.plans.alike(candidates)
        for index in self._alike.most_promising(self.bounds_s).tolist():
            if self.bounds_s[index] < self.incumbents_s[index] * (1.0 - ROUNDING):
                self.cut(index, FEW_STEPS, otherwise=int(self.level[index]))
        # Every plan has an incumbent of its own, which its level compares it with.
        best_first(candidates, self.levels, lambda: -np.inf)

    def cut(self, index: int, most_steps: int, otherwise: int | None = None) -> None:
        """Search the cuts of a plan, which waits at ``otherwise`` (None: no more) if unproven."""
        incumbent_s = float(self.incumbents_s[index])
        found = self.plans.searched(index, incumbent_s, most_steps)
        if found.plan is not None:
            self.plan_s[index] = found.seconds
            self.offer(index, found)
            self._waiting = None
        if not found.fits:
            self.settle(index, PlanStatus.INFEASIBLE, np.inf)
        elif found.complete:
            self.settle(index, PlanStatus.EVALUATED, min(incumbent_s, found.seconds))
        elif otherwise is not None:
            self.wait_at(index, otherwise, float(self.bounds_s[index]))
        else:
            self.complete = False
            self.settle(index, PlanStatus.EVALUATED, float(self.bounds_s[index]))

    def close_alike(self, index: int, level: int) -> bool:
        """Whether it is settled what becomes of a plan and others like it: that no cut beats what
        they have to beat, or that they wait for another level."""
        like = self._alike.like(index)
        matter = self.bounds_s[like] < self.incumbents_s[like] * (1.0 - ROUNDING)
        like = like[matter & (self.level[like] < self._settled)]
        rows = self._alike.around(index, level, like)
        incumbents_s = self.incumbents_s[rows]
        if not len(rows) or np.isinf(incumbents_s).any():
            return False
        found = self.plans.together(rows, incumbents_s, self._steps[max(level, 1) - 1])
        self._alike.learn(index, level, found.proof)
        bounds_s = np.minimum(found.bounds_s, incumbents_s)
        self.bounds_s[rows] = np.maximum(self.bounds_s[rows], bounds_s)
        self._waiting = None
        if found.proof is Proof.CLOSED:
            self.status[rows], self.level[rows] = PlanStatus.PRUNED, self._settled
        elif found.proof is Proof.TOO_LONG and level < self._settled - 1:
            self.level[like] = self._settled - 1
        elif level == 0:
            self.level[rows] = np.maximum(self.level[rows], 1)
        else:
            return False
        return True

    def settle(self, index: int, status: PlanStatus, bound_s: float) -> None:
        """Leave a plan as it is known by now."""
        self.status[index] = status
        self.wait_at(index, self._settled, bound_s)

    def settled(self, rows: IntArray) -> None:
        """Take it that what ``status`` and ``bounds_s`` say of ``rows`` is known."""
        self.level[rows] = self._settled

    def wait_at(self, index: int, level: int, bound_s: float) -> None:
        """Let a plan wait at ``level`` with such a bound."""
        self.bounds_s[index], self.level[index] = bound_s, level
        if self._waiting is not None:
            column = self._column[index]
            self._waiting[:, column] = -np.inf
            if level < self._settled and bound_s < self.incumbents_s[index] * (1.0 - ROUNDING):
                self._waiting[level, column] = -bound_s

    @property
    def waiting(self) -> FloatArray:
        """Less the bounds of candidates that matter, (levels, candidates), each at the level where
        it waits; -inf elsewhere."""
        if self._waiting is None:
            bounds_s = self.bounds_s[self._candidates]
            matter = bounds_s < self.incumbents_s[self._candidates] * (1.0 - ROUNDING)
            here = self.level[self._candidates] == np.arange(self._settled)[:, None]
            self._waiting = np.where(matter & here, -bounds_s, -np.inf)
        return self._waiting


@dataclass(frozen=True, eq=False)
class _Waiting:
    """A level of the candidates of ``search``."""

    search: CutSearch
    level: int

    def bound(self, candidates: IntArray) -> FloatArray:
        waiting: FloatArray = self.search.waiting[self.level]
        return waiting


@dataclass(frozen=True, eq=False)
class _Bounding(_Waiting):
    deferred = False

    def refine(self, candidates: IntArray) -> int:
        search, index = self.search, int(candidates[0])
        if search.close_alike(index, self.level):
            return 0
        known_s, incumbent_s = float(search.bounds_s[index]), float(search.incumbents_s[index])
        tight_s = search.plans.bound(index, incumbent_s)
        # Beyond the incumbent it says nothing of the cuts that were pruned by it.
        bound_s = max(known_s, min(tight_s, incumbent_s))
        if np.isinf(tight_s):  # nothing fits, or nothing that fits beats the incumbent
            nothing_fits = PlanStatus.INFEASIBLE if np.isinf(incumbent_s) else PlanStatus.PRUNED
            search.settle(index, nothing_fits, bound_s)
        else:
            search.wait_at(index, self.level + 1, bound_s)
        return 0


@dataclass(frozen=True, eq=False)
class _Cutting(_Waiting):
    most_steps: int

    @property
    def deferred(self) -> bool:
        return self.level > 1

    def refine(self, candidates: IntArray) -> int:
        index, last = int(candidates[0]), self.level == len(self.search.levels) - 1
        if not self.search.close_alike(index, self.level):
            self.search.cut(index, self.most_steps, None if last else self.level + 1)
        return 1
