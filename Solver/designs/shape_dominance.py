"""Which configurations matter under one shape of plans, by what their layers take and what the
configurations do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from Estimator.plans.layer_costs import LayerCosts
from Estimator.plans.pricing import sample_joules
from phaze_common.array_types import BoolArray, FloatArray, IntArray
from Solver.chip_figures import ChipFigures
from Solver.designs.costs import Shape, pass_seconds
from Solver.designs.dominance import dominators
from Solver.designs.search_criteria import SearchCriteria
from Solver.problem import Objective


def shape_dominators(
    shape: Shape, figures: ChipFigures, chosen: BoolArray, criteria: SearchCriteria
) -> IntArray:
    """For every configuration that is ``chosen`` one of them that dominates it under ``shape``, or
    -1: (configurations,).

    What dominates is no slower under any plan, and no worse in whatever the objective and the front
    of ``criteria`` depend on."""
    rows = np.flatnonzero(chosen)
    found = np.full(len(figures), -1, dtype=np.int64)
    least = (
        _columns(shape, figures, criteria, rows, least=True) if (shape.excess > 1.0).any() else None
    )
    among = dominators(_columns(shape, figures, criteria, rows, least=False), least)
    found[rows] = np.where(among < 0, -1, rows[among])
    return found


def deciding_columns(
    shape: Shape, figures: ChipFigures, objective: Objective, rows: IntArray, *, least: bool
) -> FloatArray:
    """What ``objective`` depends on under ``shape``, smaller is better: shape (configurations
    ``rows``, criteria).

    With ``least`` as little as layers may take where their schedules are not proven shortest."""
    joules_alone = not figures.static_w.any() and figures.purchase is None
    if objective is Objective.THROUGHPUT_PER_JOULE and joules_alone:
        return sample_joules_of(shape, len(figures), least=least)[rows, None]
    return _columns(shape, figures, SearchCriteria(objective), rows, least=least)


def plan_columns(shape: Shape, figures: ChipFigures, rows: IntArray) -> FloatArray:
    """What seconds of plans depend on, layers at their least, smaller is better: (rows, n)."""
    seconds = [pass_seconds(each, rows) for each in _costs(shape, least=True)]
    return np.hstack([*seconds, figures.of_counted[rows]])


def undominated(shape: Shape, figures: ChipFigures, criteria: SearchCriteria) -> BoolArray:
    """Configurations that could matter among those with as much memory, (configurations,)."""
    alive = np.zeros(len(figures), dtype=np.bool_)
    sizes = [0] if figures.memory_bytes is None else np.unique(figures.memory_bytes).tolist()
    for size in sizes:
        held = figures.holding(size)
        alive |= held & (shape_dominators(shape, figures, held, criteria) < 0)
    return alive


def sample_joules_of(shape: Shape, configurations: int, *, least: bool) -> FloatArray:
    """Joules per sample, the least of the parts, (configurations,); ones where it is not known."""
    costs = _costs(shape, least=least)
    if not costs or costs[0].joules is None:
        return np.ones(configurations)
    joules: FloatArray = np.min([sample_joules(each) for each in costs], axis=0)
    return joules


def _columns(
    shape: Shape, figures: ChipFigures, criteria: SearchCriteria, rows: IntArray, *, least: bool
) -> FloatArray:
    seconds = [pass_seconds(each, rows) for each in _costs(shape, least=least)]
    joules = (
        [sample_joules_of(shape, len(figures), least=least)[rows, None]] if criteria.joules else []
    )
    return np.concatenate([*seconds, criteria.columns(figures)[rows], *joules], axis=1)


def _costs(shape: Shape, *, least: bool) -> Sequence[LayerCosts]:
    return [part.least if least else part.costs for part in shape.parts]
