"""The accelerator that is best for the (weighted) mean of several models, each with its own best micro-batch size and plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from Solver.placement.problem import FloatArray
from Solver.results import Objective
from Solver.search.points import PointGroup, PointStatus
from Solver.study import Study

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
    """
    while True:
        bounds = {model: _best_points(model_groups, objective) for model, model_groups in groups.items()}
        mean = _weighted_mean({model: best.bound for model, best in bounds.items()}, weights)
        if not np.isfinite(mean.max()):
            return None
        area_mm2 = next(iter(groups.values()))[0].area_mm2[: len(mean)]
        order = np.lexsort((area_mm2, -mean))
        known = np.logical_and.reduce([best.evaluated for best in bounds.values()])
        top = int(order[0])
        if known[top]:
            unknown = mean[~known]
            open_bound = float(unknown.max()) if len(unknown) and np.isfinite(unknown.max()) else None
            choices = {model: best.choice(top) for model, best in bounds.items()}
            lost = any(group.lost for model_groups in groups.values() for group in model_groups)
            if lost:
                open_bound = _ceiling(groups, weights, objective)
            return JointOptimum(top, float(mean[top]), choices, open_bound, lost)
        for best in bounds.values():
            best.evaluate(order[:CANDIDATES_AT_ONCE])


def best_for_all_models(study: Study, groups: Sequence[PointGroup], hbm_bytes: int) -> JointOptimum | None:
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
    """Per accelerator, a model's point with the best bound: arrays (accelerators,)."""

    groups: Sequence[PointGroup]
    group: NDArray[np.int64]
    point: NDArray[np.int64]
    bound: FloatArray
    evaluated: NDArray[np.bool_]

    def choice(self, row: int) -> Choice:
        return Choice(self.groups[int(self.group[row])], int(self.point[row]))

    def evaluate(self, rows: NDArray[np.int64]) -> None:
        for index, group in enumerate(self.groups):
            mine = rows[(self.group[rows] == index) & np.isfinite(self.bound[rows])]
            group.evaluate(self.point[mine])


def _best_points(groups: Sequence[PointGroup], objective: Objective) -> _BestPoints:
    """Ties go to the earlier group and variant, evaluated points before open ones."""
    count = groups[0].accelerators
    bound = np.full(count, -np.inf)
    evaluated = np.zeros(count, dtype=np.bool_)
    group_of, point_of = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for index, group in enumerate(groups):
        values = group.objective_bound(objective).reshape(-1, count)
        known = (group.status == PointStatus.EVALUATED).reshape(-1, count)
        for variant in range(len(values)):
            better = (values[variant] > bound) | ((values[variant] == bound) & known[variant] & ~evaluated)
            bound[better], evaluated[better] = values[variant][better], known[variant][better]
            group_of[better], point_of[better] = index, variant * count + np.flatnonzero(better)
    return _BestPoints(groups, group_of, point_of, bound, evaluated)


def _weighted_mean(values: Mapping[str, FloatArray], weights: Mapping[str, float]) -> FloatArray:
    total = sum(weights[model] for model in values)
    mean: FloatArray = np.sum([values[model] * (weights[model] / total) for model in values], axis=0)
    return mean
