"""Values and searches of a space under many rows of constants, spread over processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

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
Task = TypeVar("Task")
Answer = TypeVar("Answer")

AT_ONCE = 5  # samples that a process searches before it tells
# of each process where little is done for each row of factors: to get ready takes longer in large
# spaces
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
    low, high = (np.array([getattr(each, end) for each in constants]) for end in ("low", "high"))
    factors: FloatArray = np.where(
        cube < 0.5, low + (1.0 - low) * 2 * cube, 1.0 + (high - 1.0) * (2 * cube - 1.0)
    )
    return factors


@dataclass(frozen=True, eq=False)
class Sampler:
    """A run whose constants are sampled, by ``workers`` processes."""

    run: FinishedRun
    workers: int
    progress: Progress

    def values(self, rows: IntArray, factors: FloatArray, what: str) -> FloatArray:
        """The objective of the chips ``rows`` under each row of ``factors``, shape (factors,
        chips)."""
        values = np.zeros((len(factors), len(rows)))
        with self.progress.phase(what, len(factors)) as advance:
            for answer in self._each(
                _values, _parts(self.run, rows, factors, self._share(len(factors)))
            ):
                values[answer.first : answer.first + len(answer.values)] = answer.values
                advance(len(answer.values))
        return values

    def searched(self, rows: IntArray, factors: FloatArray) -> SearchedSamples:
        """The whole space searched under each row of ``factors``, the chips ``rows`` evaluated."""
        count, found = len(factors), list[_Part]()
        with self.progress.phase("the space under samples of constants", count) as advance:
            for answer in self._each(
                _searched, _parts(self.run, rows, factors, min(AT_ONCE, self._share(count)))
            ):
                found.append(answer)
                advance(len(answer.values))
        found.sort(key=lambda each: each.first)
        return SearchedSamples(
            np.vstack([each.values for each in found]),
            tuple(best for each in found for best in each.bests),
            np.max([each.least_regret for each in found], axis=0),
        )

    def switches(self, pairs: Sequence[Switch]) -> list[float]:
        """Of every pair the factor from which on a rival is better."""
        found, at_once = dict[int, tuple[float, ...]](), self._share(len(pairs))
        starts = range(0, len(pairs), at_once)
        tasks = [
            _SwitchTask(first, self.run, tuple(pairs[first : first + at_once])) for first in starts
        ]
        with self.progress.phase("where constants switch the choice", len(pairs)) as advance:
            for answer in self._each(_switching, tasks):
                found[answer.first] = answer.factors
                advance(len(answer.factors))
        return [factor for first in starts for factor in found[first]]

    def _share(self, count: int) -> int:
        """How many of so many things a task does."""
        return max(-(-count // (TASKS * self.workers)), 1)

    def _each(self, function: Callable[[Task], Answer], tasks: Sequence[Task]) -> Iterator[Answer]:
        alone = self.workers == 1 or len(tasks) <= 1
        return iter(map(function, tasks) if alone else in_processes(function, tasks, self.workers))


@dataclass(frozen=True, eq=False)
class SearchedSamples:
    """Values of chips (samples, chips), the best of each sample, and regret at worst that no chip
    of the space is below.

    The latter has shape (chips of the space,).
    """

    values: FloatArray
    bests: tuple[Best, ...]
    least_regret: FloatArray


@dataclass(frozen=True, eq=False)
class Switch:
    """The constant ``place`` between 1 and ``end``, where one of the chips ``rows`` is better than
    the first of them."""

    place: int
    end: float
    rows: IntArray


@dataclass(frozen=True, eq=False)
class _SwitchTask:
    first: int
    run: FinishedRun
    switches: tuple[Switch, ...]


@dataclass(frozen=True)
class _Switched:
    """Factors of the switches of a task."""

    first: int
    factors: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class _Task:
    """Rows of factors for some chips; what a process needs to look at them."""

    first: int
    run: FinishedRun
    rows: IntArray
    factors: FloatArray


@dataclass(frozen=True, eq=False)
class _Part:
    """What came of a task: as of ``SearchedSamples``."""

    first: int
    values: FloatArray
    bests: tuple[Best, ...]
    least_regret: FloatArray


def _parts(run: FinishedRun, rows: IntArray, factors: FloatArray, at_once: int) -> list[_Task]:
    return [
        _Task(first, run, rows, factors[first : first + at_once])
        for first in range(0, len(factors), at_once)
    ]


def spaces(run: SearchContext, factors: FloatArray) -> Iterator[SampledSpace]:
    """The space of ``run`` under each row of ``factors``."""
    physics = physics_of(run)
    constants = uncertain_constants(physics)
    # nothing is shared, so that bounds do not depend on which samples one process happens to look
    # at
    for row in factors:
        yield SampledSpace(run, with_factors(physics, constants, row.tolist()), EvaluatedPlans())


def _values(task: _Task) -> _Part:
    run = _of_chips(searched_again(task.run), task.rows)
    values = [space.values(np.arange(len(task.rows))) for space in spaces(run, task.factors)]
    return _Part(task.first, np.array(values), (), np.zeros(0))


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


def _switching(task: _SwitchTask) -> _Switched:
    """The factors between 1 and the ends from which on another chip is better, by halving the
    ranges."""
    run, evaluated = searched_again(task.run), dict[str, EvaluatedPlans]()
    physics = physics_of(run)
    constants, factors = uncertain_constants(physics), list[float]()
    for switch in task.switches:
        near, far, chips = 1.0, switch.end, _of_chips(run, switch.rows)
        for _ in range(HALVINGS):
            middle = (near + far) / 2
            moved = with_factors(physics, [constants[switch.place]], [middle])
            space = SampledSpace(
                chips, moved, evaluated.setdefault(repr(moved.cluster), EvaluatedPlans())
            )
            values = space.values(np.arange(len(switch.rows)))
            near, far = (near, middle) if values[0] < values.max() * (1.0 - TIE) else (middle, far)
        factors.append(far)
    return _Switched(task.first, tuple(factors))
