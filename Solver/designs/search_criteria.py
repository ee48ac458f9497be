"""What a search is after: the best under an objective and, if it is asked for, a Pareto front; and
what these depend on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from phaze_common.array_types import FloatArray
from phaze_common.choices import FrontAxis, Objective
from Solver.chip_metrics import ChipMetrics
from Solver.pareto import Values
from Solver.problem import SearchProblem


@dataclass(frozen=True)
class Criterion:
    """An axis of a front. ``amount`` is told of metrics, joules per sample and samples per second;
    larger is better.

    It is no worse where no ``columns`` (fields of ``ChipMetrics``), no seconds and, with
    ``joules``, no joules are more."""

    amount: Callable[[ChipMetrics, FloatArray, FloatArray], FloatArray]
    columns: tuple[str, ...] = ()
    joules: bool = False


CRITERIA: Mapping[FrontAxis, Criterion] = {
    FrontAxis.THROUGHPUT: Criterion(lambda metrics, joules, throughput: throughput),
    FrontAxis.AREA: Criterion(lambda metrics, joules, throughput: -metrics.area_mm2, ("area_mm2",)),
    FrontAxis.ENERGY: Criterion(
        lambda metrics, joules, throughput: -metrics.sample_joules(joules, throughput),
        ("static_w",),
        joules=True,
    ),
    FrontAxis.POWER: Criterion(lambda metrics, joules, throughput: -metrics.peak_w, ("peak_w",)),
    FrontAxis.COST: Criterion(
        lambda metrics, joules, throughput: -metrics.owning_usd, ("owning_usd",)
    ),
    FrontAxis.CARBON: Criterion(
        lambda metrics, joules, throughput: -metrics.embodied_kg, ("embodied_kg",)
    ),
}
# What is no worse in these is no worse under the objective
MONOTONE_IN: Mapping[Objective, frozenset[FrontAxis]] = {
    Objective.THROUGHPUT: frozenset({FrontAxis.THROUGHPUT}),
    Objective.THROUGHPUT_PER_AREA: frozenset({FrontAxis.THROUGHPUT, FrontAxis.AREA}),
    Objective.THROUGHPUT_PER_JOULE: frozenset({FrontAxis.ENERGY}),
    Objective.THROUGHPUT_PER_DOLLAR: frozenset(
        {FrontAxis.THROUGHPUT, FrontAxis.ENERGY, FrontAxis.COST}
    ),
    Objective.COST_PER_TOKEN: frozenset({FrontAxis.THROUGHPUT, FrontAxis.ENERGY, FrontAxis.COST}),
    Objective.CARBON_PER_TOKEN: frozenset(
        {FrontAxis.THROUGHPUT, FrontAxis.ENERGY, FrontAxis.CARBON}
    ),
}
# Of equally good designs the smallest wins, then the least energy
BREAKING_TIES = frozenset({FrontAxis.AREA, FrontAxis.ENERGY})
OF_OBJECTIVES = frozenset[FrontAxis]().union(*MONOTONE_IN.values())


@dataclass(frozen=True)
class SearchCriteria:
    """The ``objective`` and the axes of the ``front``, throughput first; no axis: no front is asked
    for.

    With ``several`` models the best of all may be what the best of one dominates, and bounds are
    taken from what dominates: so nothing counts as dominated that is better in anything an
    objective may depend on."""

    objective: Objective
    front: tuple[FrontAxis, ...] = ()
    several: bool = False

    @classmethod
    def of(cls, problem: SearchProblem) -> SearchCriteria:
        """That of ``problem``."""
        return cls(problem.objective, problem.front, len(problem.models) > 1)

    @cached_property
    def axes(self) -> frozenset[FrontAxis]:
        """What must be no worse to dominate another configuration under the same shape of plans."""
        return MONOTONE_IN[self.objective].union(self.front, OF_OBJECTIVES if self.several else ())

    @property
    def front_decides(self) -> bool:
        """Whether the best under the objective is on the front, or as good as a point that is."""
        return bool(self.front) and MONOTONE_IN[self.objective] <= {*self.front}

    def decides(self, objective: Objective) -> bool:
        """Whether what is dominated is never better under ``objective``, which may be any."""
        return MONOTONE_IN[objective] <= self.axes

    @property
    def breaks_ties(self) -> bool:
        """Whether what is dominated never has less area or energy than what dominates it."""
        return self.axes >= BREAKING_TIES

    @property
    def of_energy(self) -> bool:
        """Whether the objective depends on energy."""
        return FrontAxis.ENERGY in MONOTONE_IN[self.objective]

    @property
    def joules(self) -> bool:
        """Whether joules per sample are among what dominance asks."""
        return any(CRITERIA[axis].joules for axis in self.axes)

    def columns(self, metrics: ChipMetrics) -> FloatArray:
        """What dominance compares besides seconds and joules, (configurations, columns)."""
        return metrics.criteria({column for axis in self.axes for column in CRITERIA[axis].columns})

    def values(self, metrics: ChipMetrics, joules: FloatArray, throughput: FloatArray) -> Values:
        """What points reach on each axis of the front, larger is better: shape (points, axes)."""
        columns = [CRITERIA[axis].amount(metrics, joules, throughput) for axis in self.front]
        return np.ascontiguousarray(np.stack(columns, axis=1))


USUAL = SearchCriteria(
    Objective.THROUGHPUT, (FrontAxis.THROUGHPUT, FrontAxis.AREA, FrontAxis.ENERGY)
)
