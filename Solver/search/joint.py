"""The accelerator that is best for the (weighted) mean of several models, each with its own best micro-batch size and plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from Solver.placement.problem import FloatArray
from Solver.results import Objective
from Solver.search.points import ROUNDING, PointGroup, PointStatus
from Studies.adapters import ChipStudy

CANDIDATES_AT_ONCE = 32


@dataclass(frozen=True, eq=False)
class Choice:
    """One model's best point on an accelerator."""

    group: PointGroup
    point: int


@dataclass(frozen=True, eq=False)
class JointOptimum:
    """The best accelerator of an HBM size; ``best_open_bound`` is what the best unevaluated accelerator could reach.

    Where plans were lost (``PointGroup.lost``) it is what the best accelerator of all could reach with any plan.
    """

    row: int
    value: float
    choices: dict[str, Choice]
    best_open_bound: float | None
    lost: bool


def joint_optimum(
    groups: Mapping[str, Sequence[PointGroup]], weights: Mapping[str, float], objective: Objective
) -> JointOptimum | None:
    """Best-first over accelerators by the mean of the models' bounds; exact, because an evaluated point's bound is its value.

    ``groups`` are the point groups of each model for one HBM size. None where some model is feasible on no accelerator.
    Of equally good accelerators that of the smallest area, least energy and lowest index wins. All that might be as good are
    evaluated first, so that the answer does not depend on which points are evaluated already, by a run that was killed for
    instance.
    """
    while True:
        bests = {model: _best_points(model_groups, objective) for model, model_groups in groups.items()}
        mean = _weighted_mean({model: best.bound for model, best in bests.items()}, weights)
        if not np.isfinite(mean.max()):
            return None
        area_mm2 = next(iter(groups.values()))[0].area_mm2[: len(mean)]
        order = np.lexsort((area_mm2, -mean))
        known = np.logical_and.reduce([best.evaluated for best in bests.values()])
        top = order[0]
        if not known[top]:
            for best in bests.values():
                best.evaluate(order[:CANDIDATES_AT_ONCE])
            continue
        rivals = np.flatnonzero(mean >= mean[top] * (1.0 - ROUNDING))
        if not sum(best.evaluate_rivals(rivals) for best in bests.values()):
            break
    energy_j = _weighted_mean({model: best.energy_j for model, best in bests.items()}, weights)
    row = int(rivals[np.lexsort((energy_j[rivals], area_mm2[rivals], -mean[rivals]))[0]])
    lost = any(group.lost for model_groups in groups.values() for group in model_groups)
    unknown = mean[~known]
    open_bound = float(unknown.max()) if len(unknown) and np.isfinite(unknown.max()) else None
    return JointOptimum(
        row=row,
        value=float(mean[row]),
        choices={model: best.choice(row) for model, best in bests.items()},
        best_open_bound=_ceiling(groups, weights, objective) if lost else open_bound,
        lost=lost,
    )


def best_for_all_models(study: ChipStudy, groups: Sequence[PointGroup], hbm_bytes: int) -> JointOptimum | None:
    """The joint optimum of the study's models for one HBM size, out of all its point groups."""
    by_model = {
        model.name: [group for group in groups if group.key.model == model.name and group.key.hbm_bytes == hbm_bytes]
        for model in study.models
    }
    return joint_optimum(by_model, {model.name: model.weight for model in study.models}, study.objective)


def _ceiling(groups: Mapping[str, Sequence[PointGroup]], weights: Mapping[str, float], objective: Objective) -> float:
    """What no accelerator exceeds with any plans."""
    best = {
        model: np.max(
            [group.objective_ceiling(objective).reshape(-1, group.accelerators).max(axis=0) for group in model_groups], axis=0
        )
        for model, model_groups in groups.items()
    }
    return float(_weighted_mean(best, weights).max())


@dataclass(frozen=True, eq=False)
class _BestPoints:
    """Per accelerator, a model's point with the best bound, of the least energy among equals: arrays (accelerators,)."""

    groups: Sequence[PointGroup]
    objective: Objective
    group: NDArray[np.int64]
    point: NDArray[np.int64]
    bound: FloatArray
    energy_j: FloatArray
    evaluated: NDArray[np.bool_]

    def choice(self, row: int) -> Choice:
        return Choice(self.groups[int(self.group[row])], int(self.point[row]))

    def evaluate(self, rows: NDArray[np.int64]) -> None:
        for index, group in enumerate(self.groups):
            mine = rows[(self.group[rows] == index) & np.isfinite(self.bound[rows])]
            group.evaluate(self.point[mine])

    def evaluate_rivals(self, rows: NDArray[np.int64]) -> int:
        """Evaluate what might equal the best points of the accelerators ``rows``; how many there were."""
        found = 0
        for group in self.groups:
            bound = group.objective_bound(self.objective).reshape(-1, group.accelerators)
            near = np.zeros(bound.shape, dtype=np.bool_)
            near[:, rows] = bound[:, rows] >= self.bound[rows] * (1.0 - ROUNDING)
            unknown = (group.status == PointStatus.OPEN) | (group.status == PointStatus.PRUNED)
            rivals = np.flatnonzero(near.ravel() & unknown)
            group.evaluate(rivals)
            found += len(rivals)
        return found


def _best_points(groups: Sequence[PointGroup], objective: Objective) -> _BestPoints:
    """Ties go to evaluated points before open ones, then to less energy, then to the earlier group and variant."""
    count = groups[0].accelerators
    bound, energy_j = np.full(count, -np.inf), np.full(count, np.inf)
    evaluated = np.zeros(count, dtype=np.bool_)
    group_of, point_of = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for index, group in enumerate(groups):
        values = group.objective_bound(objective).reshape(-1, count)
        energies_j = group.energy_j.reshape(-1, count)
        known = (group.status == PointStatus.EVALUATED).reshape(-1, count)
        for variant in range(len(values)):
            as_known = known[variant] == evaluated
            preferred = (known[variant] & ~evaluated) | (as_known & (energies_j[variant] < energy_j))
            better = (values[variant] > bound) | ((values[variant] == bound) & preferred)
            bound[better], evaluated[better] = values[variant][better], known[variant][better]
            energy_j[better] = energies_j[variant][better]
            group_of[better], point_of[better] = index, variant * count + np.flatnonzero(better)
    return _BestPoints(groups, objective, group_of, point_of, bound, energy_j, evaluated)


def _weighted_mean(values: Mapping[str, FloatArray], weights: Mapping[str, float]) -> FloatArray:
    total = sum(weights[model] for model in values)
    mean: FloatArray = np.sum([values[model] * (weights[model] / total) for model in values], axis=0)
    return mean
