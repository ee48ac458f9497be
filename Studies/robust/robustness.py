"""Whether the best design is still the best when constants are not what they are stated to be.

Constants are sampled by a Latin hypercube (McKay et al. 1979), each between the ends of its range with its stated value in the
middle of the distribution; under every sample all contenders get their best plans anew. Choosing a design costs its regret: what
it loses to the best contender, as a share. Besides, every constant is moved alone to the ends of its range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc

from Common.errors import InputError
from Common.processes import in_processes
from Common.progress import Progress, SilentProgress
from Estimator.chips.accelerator import Accelerator
from Solver.hardware import DesignedChips
from Solver.search.run import Run
from Studies.explain.repeat import request_of, run_of
from Studies.finished_run import FinishedRun
from Studies.robust.contenders import contenders_of, values_of
from Studies.robust.records import Contender, Influence, Robustness
from Studies.robust.uncertain import Physics, UncertainConstant, uncertain_constants, with_factors

FloatArray = NDArray[np.float64]

AT_ONCE = 5  # samples that a process prices before it tells
HALVINGS = 5  # of the range in which a constant switches the best design
SWITCHES = 1e-6  # relative: less is a tie


@dataclass(frozen=True)
class _Task:
    """Rows of factors to price contenders with; what a process needs to do so."""

    first: int
    run: FinishedRun
    chips: tuple[Accelerator, ...]
    factors: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class _Values:
    """What came of a task, (rows, chips)."""

    first: int
    values: tuple[tuple[float, ...], ...]


def robustness(
    run: FinishedRun, *, samples: int, contenders: int, seed: int, workers: int, progress: Progress | None = None
) -> Robustness:
    """How the best design of ``run`` fares under ``samples`` of its constants against the ``contenders`` nearest to it.

    Raises:
        InputError: the run is of a device that exists, or found nothing, or cannot be repeated.
    """
    best = run.result.best
    if best is None or best.accelerator is None:
        raise InputError(
            f"{run.folder} is not a search of accelerators that found one, whose choice could be wrong; give the folder of one"
        )
    searched = searched_again(run)
    physics = physics_of(searched)
    found = contenders_of(run, searched, physics, contenders)
    constants = uncertain_constants(physics)
    sampled = sampled_factors(constants, samples, seed)
    ends = np.ones((2 * len(constants), len(constants)))
    for place, constant in enumerate(constants):
        ends[2 * place, place], ends[2 * place + 1, place] = constant.low, constant.high
    asked = np.vstack([np.ones(len(constants)), ends, sampled])
    values = _priced(run, found.accelerators, asked, workers, progress or SilentProgress())
    nominal, moved, under = values[0], values[1 : 1 + len(ends)], values[1 + len(ends) :]
    regrets = 1.0 - under / under.max(axis=1, keepdims=True)
    each = [_contender(chip, regrets, place) for place, chip in enumerate(found.accelerators)]
    influences = [
        _influence(run, found.accelerators, constants, place, nominal, moved[2 * place : 2 * place + 2])
        for place in range(len(constants))
    ]
    return Robustness(
        run=str(run.folder),
        samples=samples,
        seed=seed,
        chosen=each[0],
        least_regret=min(each, key=lambda one: (one.worst_regret, one.expected_regret)),
        contenders=tuple(sorted(each, key=lambda one: one.expected_regret)),
        influences=tuple(sorted(influences, key=lambda one: -max(one.regret_low, one.regret_high, _span(one) * SWITCHES))),
        considered=found.considered,
        left_out=found.considered - len(found.accelerators),
        behind=found.behind,
    )


def _span(influence: Influence) -> float:
    return abs(influence.value_high - influence.value_low)


def searched_again(run: FinishedRun) -> Run:
    """The search of a finished run, ready to be repeated."""
    return run_of(request_of(run), SilentProgress()).knowing(run.result.own_best)


def physics_of(run: Run) -> Physics:
    """What the designs of a search of accelerators are priced with."""
    assert isinstance(run.hardware, DesignedChips) and run.hardware.space is not None
    return Physics(run.hardware.space, run.hardware.cluster)


def sampled_factors(constants: Sequence[UncertainConstant], samples: int, seed: int) -> FloatArray:
    """Factors of a Latin hypercube, (samples, constants): below 1 as often as above it."""
    cube = qmc.LatinHypercube(len(constants), seed=seed).random(samples)
    low, high = (np.array([getattr(each, end) for each in constants]) for end in ("low", "high"))
    factors: FloatArray = np.where(cube < 0.5, low + (1.0 - low) * 2 * cube, 1.0 + (high - 1.0) * (2 * cube - 1.0))
    return factors


def _priced(
    run: FinishedRun, chips: tuple[Accelerator, ...], factors: FloatArray, workers: int, progress: Progress
) -> FloatArray:
    """The objective of ``chips`` under each row of ``factors``, shape (rows, chips)."""
    rows = [tuple(row) for row in factors.tolist()]
    tasks = [_Task(first, run, chips, tuple(rows[first : first + AT_ONCE])) for first in range(0, len(rows), AT_ONCE)]
    values = np.zeros((len(rows), len(chips)))
    with progress.phase("contenders under samples of constants", len(rows)) as advance:
        for answer in map(_values, tasks) if workers == 1 else in_processes(_values, tasks, workers):
            values[answer.first : answer.first + len(answer.values)] = answer.values
            advance(len(answer.values))
    return values


def _values(task: _Task) -> _Values:
    run = searched_again(task.run)
    physics = physics_of(run)
    constants = uncertain_constants(physics)
    found = [values_of(run, task.chips, with_factors(physics, constants, factors)) for factors in task.factors]
    return _Values(task.first, tuple(tuple(each.tolist()) for each in found))


def _contender(chip: Accelerator, regrets: FloatArray, place: int) -> Contender:
    mine = regrets[:, place]
    wins = (mine <= SWITCHES) / (regrets <= SWITCHES).sum(axis=1)  # of a tie everyone has a part
    return Contender(chip, float(wins.mean()), float(mine.mean()), float(mine.max()))


def _influence(
    run: FinishedRun,
    chips: tuple[Accelerator, ...],
    constants: Sequence[UncertainConstant],
    place: int,
    nominal: FloatArray,
    ends: FloatArray,
) -> Influence:
    constant = constants[place]
    regrets = 1.0 - ends[:, 0] / ends.max(axis=1)
    switches = [
        _switching(run, chips, constants, place, end)
        for end, regret in zip((constant.low, constant.high), regrets, strict=True)
        if regret > SWITCHES
    ]
    return Influence(
        name=constant.name,
        low=constant.low,
        high=constant.high,
        value_low=float(ends[0, 0] / nominal[0]),
        value_high=float(ends[1, 0] / nominal[0]),
        regret_low=float(regrets[0]),
        regret_high=float(regrets[1]),
        switches_at=min(switches, key=lambda factor: abs(np.log(max(factor, 1e-9))), default=None),
        source=constant.source,
    )


def _switching(
    run: FinishedRun, chips: tuple[Accelerator, ...], constants: Sequence[UncertainConstant], place: int, end: float
) -> float:
    """The factor between 1 and ``end`` from which on another contender is better, by halving the range."""
    searched = searched_again(run)
    physics, near, far = physics_of(searched), 1.0, end
    for _ in range(HALVINGS):
        middle = (near + far) / 2
        values = values_of(searched, chips, with_factors(physics, [constants[place]], [middle]))
        near, far = (near, middle) if values[0] < values.max() * (1.0 - SWITCHES) else (middle, far)
    return far
