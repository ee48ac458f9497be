"""Seconds, criteria and objectives of all points of random problems, by enumeration and by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from phaze_common.choices import FrontAxis, Objective
from Solver.designs.points import PointGroup
from tests.builders.random_searches import Case


def true_seconds(case: Case, group: PointGroup, *, least: bool = False) -> np.ndarray:
    """The least seconds of every point of ``group`` by enumeration; with ``least`` if all layers
    took as little as they may."""
    model = next(each for each in case.problem.models if each.name == group.key.model)
    return np.array(
        [
            case.enumerated(
                model, shape.plan, row, float(group.key.memory_bytes), least=least
            ).iteration_s
            if group.held[row]
            else np.inf
            for shape in group.shapes
            for row in range(group.configurations)
        ]
    )


def criteria_of(
    group: PointGroup, seconds: np.ndarray, rows: np.ndarray, front: Sequence[FrontAxis]
) -> list[np.ndarray]:
    """What points have of the axes of a front, throughput first."""
    metrics = group.metrics
    every = {
        FrontAxis.THROUGHPUT: group.batch_samples / seconds,
        FrontAxis.AREA: metrics.area_mm2,
        FrontAxis.ENERGY: joules_of(group, seconds),
        FrontAxis.POWER: metrics.peak_w,
        FrontAxis.COST: metrics.owning_usd,
        FrontAxis.CARBON: metrics.embodied_kg,
    }
    return [every[axis][rows] for axis in front]


def joules_of(group: PointGroup, seconds: np.ndarray) -> np.ndarray:
    """Of a sample, with what all devices draw while it lasts."""
    drawn_w = group.metrics.static_w * group.metrics.devices
    return group.energy_j + (drawn_w * seconds / group.batch_samples if drawn_w.any() else 0.0)


def objective_of(objective: Objective, seconds: np.ndarray, group: PointGroup) -> np.ndarray:
    """The objective of every point, -inf where nothing fits."""
    if objective is Objective.THROUGHPUT:
        values = group.batch_samples / seconds
    elif objective is Objective.THROUGHPUT_PER_AREA:
        values = group.batch_samples / seconds / group.area_mm2
    elif objective is Objective.THROUGHPUT_PER_JOULE:
        values = 1.0 / joules_of(group, seconds)
    else:
        use, metrics, sample_s = group.metrics.use, group.metrics, seconds / group.batch_samples
        assert use is not None
        carbon = objective is Objective.CARBON_PER_TOKEN
        owned, running = (
            (metrics.embodied_kg, use.kg_per_j) if carbon else (metrics.owning_usd, use.usd_per_j)
        )
        drawn_j = joules_of(group, seconds) + use.host_w * metrics.devices * sample_s
        paid = owned * metrics.devices * sample_s / use.service_s + running * drawn_j
        values = (1 if objective is Objective.THROUGHPUT_PER_DOLLAR else group.sample_tokens) / paid
    return np.where(np.isfinite(seconds), values, -np.inf)
