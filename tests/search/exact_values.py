"""Seconds, criteria and objectives of all points of random problems, by enumeration and by hand."""

from __future__ import annotations

import numpy as np
from random_searches import Case

from Common.choices import Objective
from Solver.search.points import PointGroup


def true_seconds(case: Case, group: PointGroup, *, least: bool = False) -> np.ndarray:
    """The least seconds of every point of ``group`` by enumeration; with ``least`` if all layers took as little as they may."""
    model = next(each for each in case.problem.models if each.name == group.key.model)
    return np.array(
        [
            case.enumerated(model, shape.plan, row, float(group.key.memory_bytes), least=least).iteration_s
            if group.held[row]
            else np.inf
            for shape in group.shapes
            for row in range(group.configurations)
        ]
    )


def criteria_of(group: PointGroup, seconds: np.ndarray, rows: np.ndarray) -> list[np.ndarray]:
    """Samples per second, mm2, joules and, of chips that are sold, what owning and making one costs."""
    figures, joules = group.figures, joules_of(group, seconds)
    criteria = (group.batch_samples / seconds, figures.area_mm2, joules, figures.owning_usd, figures.embodied_kg)
    return [each[rows] for each in criteria]


def joules_of(group: PointGroup, seconds: np.ndarray) -> np.ndarray:
    """Of a sample, with what all devices draw while it lasts."""
    drawn_w = group.figures.static_w * group.figures.devices
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
        use, figures, sample_s = group.figures.use, group.figures, seconds / group.batch_samples
        assert use is not None
        carbon = objective is Objective.CARBON_PER_TOKEN
        owned, running = (figures.embodied_kg, use.kg_per_j) if carbon else (figures.owning_usd, use.usd_per_j)
        drawn_j = joules_of(group, seconds) + use.host_w * figures.devices * sample_s
        paid = owned * figures.devices * sample_s / use.service_s + running * drawn_j
        values = (1 if objective is Objective.THROUGHPUT_PER_DOLLAR else group.sample_tokens) / paid
    return np.where(np.isfinite(seconds), values, -np.inf)
