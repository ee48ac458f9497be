"""Which configurations matter under one shape of plans, by what their layers take and what the
configurations do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from Estimator.plans.layer_costs import LayerCosts
from Estimator.plans.pricing import sample_joules
from phaze_common.array_types import BoolArray, FloatArray, IntArray
from Solver.chip_metrics import ChipMetrics
from Solver.designs.costs import Dominators, Shape, pass_seconds
from Solver.designs.dominance import dominators
from Solver.designs.search_criteria import SearchCriteria
from Solver.problem import Objective


def shape_dominators(
    shape: Shape, metrics: ChipMetrics, chosen: BoolArray, criteria: SearchCriteria
) -> IntArray:
    """For every configuration that is ``chosen`` one of them that dominates it under ``shape``, or
    -1: (configurations,).

    What dominates is no slower under any plan, and no worse in whatever the objective and the front
    of ``criteria`` depend on."""
    key = criteria, chosen.tobytes()
    known = shape.dominators.get(key)
    if known is None or known.metrics is not metrics:
        found = _dominators(shape, metrics, chosen, criteria)
        known = shape.dominators[key] = Dominators(metrics, found)
    return known.rows


def _dominators(
    shape: Shape, metrics: ChipMetrics, chosen: BoolArray, criteria: SearchCriteria
) -> IntArray:
    rows = np.flatnonzero(chosen)
    found = np.full(len(metrics), -1, dtype=np.int64)
    least = (
        _columns(shape, metrics, criteria, rows, least=True) if (shape.excess > 1.0).any() else None
    )
    among = dominators(_columns(shape, metrics, criteria, rows, least=False), least)
    found[rows] = np.where(among < 0, -1, rows[among])
    return found


def deciding_columns(
    shape: Shape, metrics: ChipMetrics, objective: Objective, rows: IntArray, *, least: bool
) -> FloatArray:
    """What ``objective`` depends on under ``shape``, smaller is better: shape (configurations
    ``rows``, criteria).

    With ``least`` as little as layers may take where their schedules are not proven shortest."""
    joules_alone = not metrics.static_w.any() and metrics.purchase is None
    if objective is Objective.THROUGHPUT_PER_JOULE and joules_alone:
        return sample_joules_of(shape, len(metrics), least=least)[rows, None]
    return _columns(shape, metrics, SearchCriteria(objective), rows, least=least)


def plan_columns(shape: Shape, metrics: ChipMetrics, rows: IntArray) -> FloatArray:
    """What seconds of plans depend on, layers at their least, smaller is better: (rows, n)."""
    seconds = [pass_seconds(each, rows) for each in _costs(shape, least=True)]
    return np.hstack([*seconds, metrics.of_counted[rows]])


def undominated(shape: Shape, metrics: ChipMetrics, criteria: SearchCriteria) -> BoolArray:
    """Configurations that could matter among those with as much memory, (configurations,)."""
    alive = np.zeros(len(metrics), dtype=np.bool_)
    sizes = [0] if metrics.memory_bytes is None else np.unique(metrics.memory_bytes).tolist()
    for size in sizes:
        held = metrics.holding(size)
        alive |= held & (shape_dominators(shape, metrics, held, criteria) < 0)
    return alive


def sample_joules_of(shape: Shape, configurations: int, *, least: bool) -> FloatArray:
    """Joules per sample, the least of the parts, (configurations,); ones where it is not known."""
    costs = _costs(shape, least=least)
    if not costs or costs[0].joules is None:
        return np.ones(configurations)
    joules: FloatArray = np.min([sample_joules(each) for each in costs], axis=0)
    return joules


def _columns(
    shape: Shape, metrics: ChipMetrics, criteria: SearchCriteria, rows: IntArray, *, least: bool
) -> FloatArray:
    seconds = [pass_seconds(each, rows) for each in _costs(shape, least=least)]
    joules = (
        [sample_joules_of(shape, len(metrics), least=least)[rows, None]] if criteria.joules else []
    )
    return np.concatenate([*seconds, criteria.columns(metrics)[rows], *joules], axis=1)


def _costs(shape: Shape, *, least: bool) -> Sequence[LayerCosts]:
    return [part.least if least else part.costs for part in shape.parts]
