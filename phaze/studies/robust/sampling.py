"""Values and searches of a space under many rows of constants, spread over processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc

from phaze.runs.finished_run import FinishedRun
from phaze.studies.explain.repeat import request_of, run_of
from phaze.studies.robust.sampled_space import TIE, Best, SampledSpace
from phaze.studies.robust.uncertain import (
    Physics,
    UncertainConstant,
    uncertain_constants,
    with_factors,
)
from phaze_common.processes import in_processes
from phaze_common.progress import Progress, SilentProgress
from Solver.designs.plans_on_chips import EvaluatedPlans
from Solver.designs.search_context import SearchContext
from Solver.hardware import DesignedChips

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

AT_ONCE = 5  # samples that a process searches before it answers
# tasks of each process where little is done for each row of factors: in large spaces it takes
# longer to get ready
TASKS = 4
HALVINGS = 5  # of the range in which a constant switches the best design


def searched_again(run: FinishedRun) -> SearchContext:
    """The search of a finished run, ready to be repeated."""
    return run_of(request_of(run), SilentProgress()).knowing(run.result.own_best)


def physics_of(run: SearchContext) -> Physics:
    """What the designs of a search of accelerators are priced with."""
    assert isinstance(run.hardware, DesignedChips) and run.hardware.space is not None
    return Physics(run.hardware.space, run.hardware.cluster)


def sampled_factors(constants: Sequence[UncertainConstant], samples: int, seed: int) -> FloatArray:
    """Factors of a Latin hypercube, (samples, constants): below 1 as often as above it."""
    cube = qmc.LatinHypercube(len(constants), seed=seed).random(samples)
    low = np.array([each.low for each in constants])
    high = np.array([each.high for each in constants])
    factors: FloatArray = np.where(
        cube < 0.5, low + (1.0 - low) * 2 * cube, 1.0 + (high - 1.0) * (2 * cube - 1.0)
    )
    return factors


@dataclass(frozen=True, eq=False)
class SearchedSamples:
    """Values (samples, chips), the best of each sample, and the least regret of every chip."""

    values: FloatArray
    bests: tuple[Best, ...]
    least_regret: FloatArray


@dataclass(frozen=True, eq=False)
class Switch:
    """The constant ``place`` between 1 and ``end``, where one of ``rows`` beats the first."""

    place: int
    end: float
    rows: IntArray


@dataclass(frozen=True, eq=False)
class Sampler:
    """A run whose constants are sampled, by ``workers`` processes."""

    run: FinishedRun
    workers: int
    progress: Progress

    def values(self, rows: IntArray, factors: FloatArray, what: str) -> FloatArray:
        """The objective of the chips ``rows`` under each row of ``factors``, (factors, chips)."""
        tasks = self._tasks(rows, factors, self._share(len(factors)))
        found = self._answers(_values, tasks, what, len(factors))
        return np.vstack([np.zeros((0, len(rows))), *(each.values for each in found)])

    def searched(self, rows: IntArray, factors: FloatArray) -> SearchedSamples:
        """The whole space searched under each row of ``factors``, the chips ``rows`` evaluated."""
        tasks = self._tasks(rows, factors, min(AT_ONCE, self._share(len(factors))))
        what = "the space under samples of constants"
        found = self._answers(_searched, tasks, what, len(factors))
        return SearchedSamples(
            np.vstack([each.values for each in found]),
            tuple(best for each in found for best in each.bests),
            np.max([each.least_regret for each in found], axis=0),
        )

    def switches(self, pairs: Sequence[Switch]) -> list[float]:
        """Of every pair the factor from which on another chip is better."""
        at_once = self._share(len(pairs))
        tasks = [
            _Task(first, self.run, switches=pairs[first : first + at_once])
            for first in range(0, len(pairs), at_once)
        ]
        what = "where constants switch the choice"
        found = self._answers(_switching, tasks, what, len(pairs))
        return [factor for each in found for factor in each.values.tolist()]

    def _share(self, count: int) -> int:
        """How many of so many things a task does."""
        return max(-(-count // (TASKS * self.workers)), 1)

    def _tasks(self, rows: IntArray, factors: FloatArray, at_once: int) -> list[_Task]:
        firsts = range(0, len(factors), at_once)
        return [_Task(each, self.run, rows, factors[each : each + at_once]) for each in firsts]

    def _answers(
        self, function: Callable[[_Task], _Part], tasks: Sequence[_Task], what: str, count: int
    ) -> list[_Part]:
        """What comes of the tasks, in their order."""
        found, alone = list[_Part](), self.workers == 1 or len(tasks) <= 1
        with self.progress.phase(what, count) as advance:
            answers = map if alone else partial(in_processes, workers=self.workers)
            for each in answers(function, tasks):
                found.append(each)
                advance(len(each.values))
        return sorted(found, key=lambda each: each.first)


@dataclass(frozen=True, eq=False)
class _Task:
    """Rows of factors for some chips, or switches; ``first`` is the place of the first of them."""

    first: int
    run: FinishedRun
    rows: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    factors: FloatArray = field(default_factory=lambda: np.zeros(0))
    switches: Sequence[Switch] = ()


@dataclass(frozen=True, eq=False)
class _Part:
    """What came of a task: as of ``SearchedSamples``, or the factor of each switch."""

    first: int
    values: FloatArray
    bests: tuple[Best, ...] = ()
    least_regret: FloatArray = field(default_factory=lambda: np.zeros(0))


def spaces(run: SearchContext, factors: FloatArray) -> Iterator[SampledSpace]:
    """The space of ``run`` under each row of ``factors``."""
    physics = physics_of(run)
    constants = uncertain_constants(physics)
    # nothing is shared: bounds must not depend on which samples a process happens to look at
    for row in factors:
        yield SampledSpace(run, with_factors(physics, constants, row.tolist()), EvaluatedPlans())


def _values(task: _Task) -> _Part:
    run = _of_chips(searched_again(task.run), task.rows)
    values = [space.values(np.arange(len(task.rows))) for space in spaces(run, task.factors)]
    return _Part(task.first, np.array(values))


def _searched(task: _Task) -> _Part:
    run = searched_again(task.run)
    values, bests, least = list[FloatArray](), list[Best](), np.zeros(run.hardware.configurations)
    for space in spaces(run, task.factors):
        values.append(space.values(task.rows))
        best = space.best(task.rows, values[-1])
        if best.value > 0.0:
            least = np.maximum(least, 1.0 - best.reach / best.value)
        bests.append(best.without_reach)
    return _Part(task.first, np.array(values), tuple(bests), least)


def _of_chips(run: SearchContext, rows: IntArray) -> SearchContext:
    """``run`` with the chips ``rows`` of its space alone."""
    assert isinstance(run.hardware, DesignedChips)
    return run.on(run.hardware.some(rows))


def _switching(task: _Task) -> _Part:
    """The factors from which on another chip is better, by halving the ranges."""
    run, evaluated = searched_again(task.run), dict[str, EvaluatedPlans]()
    physics = physics_of(run)
    constants, factors = uncertain_constants(physics), list[float]()
    for switch in task.switches:
        near, far, chips = 1.0, switch.end, _of_chips(run, switch.rows)
        for _ in range(HALVINGS):
            middle = (near + far) / 2
            moved = with_factors(physics, [constants[switch.place]], [middle])
            plans = evaluated.setdefault(repr(moved.cluster), EvaluatedPlans())
            values = SampledSpace(chips, moved, plans).values(np.arange(len(switch.rows)))
            if values[0] < values.max() * (1.0 - TIE):
                far = middle
            else:
                near = middle
        factors.append(far)
    return _Part(task.first, np.array(factors))
