"""A space that is searched in parts: what the search of a part tells of it, and the search of the
best of all parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from Solver.designs.chip_axes import joined_bounds
from Solver.designs.pruning_bounds import PruningBounds
from Solver.designs.search_context import RemainingSpace, SearchContext
from Solver.designs.shape_bounds_on_chips import at_peak_rates
from Solver.hardware import DesignedChips
from Solver.results import DesignPoint, PartReport, SearchResult


def part_report(context: SearchContext, result: SearchResult, part: str) -> PartReport:
    """What the search of ``context``, that of a ``part`` of a space, says of all its designs."""
    remaining, (model,) = context.remaining, context.problem.models
    assert remaining is not None  # parts are always pruned
    open_ = frozenset(remaining.shapes[model.name])
    open_bounds = (_open_bound(point) or 0.0 for point in result.per_hbm)
    return PartReport(
        part=part,
        chips=remaining.chips,
        bound=max([0.0, remaining.pruned_bound, *map(_not_exceeded, result.per_hbm)]),
        open_bound=max([0.0, remaining.pruned_bound, *open_bounds]),
        axis_bounds=remaining.axis_bounds,
        shapes=tuple(number for number, shape in enumerate(model.space.shapes()) if shape in open_),
    )


def _not_exceeded(point: DesignPoint) -> float:
    """What no design that was searched with the point's memory exceeds."""
    if point.optimal:
        return point.value
    bounds = [
        point.value * plan.time_per_batch_s / plan.time_per_batch_bound_s
        for plan in point.models.values()
    ]
    return max(_open_bound(point) or 0.0, *bounds)


def _open_bound(point: DesignPoint) -> float | None:
    return None if point.certificate is None else point.certificate.best_open_bound


def rejoined(
    context: SearchContext, parts: Sequence[PartReport], points: int, *, whole: bool
) -> SearchContext:
    """``context``, whose hardware are the best chips of the ``parts`` of a space, with what was
    pruned in these.

    The space has so many ``points``; it is ``whole`` where something is known of each of its parts.
    """
    hardware, problem = context.hardware, context.problem
    assert isinstance(hardware, DesignedChips)
    (model,) = problem.models
    bounds, rows = PruningBounds(context, hardware, model), np.arange(hardware.configurations)
    numbers = sorted({number for part in parts for number in part.shapes}) or list(
        range(len(bounds.shapes))
    )
    others = np.setdiff1d(np.arange(len(bounds.shapes)), numbers)
    if len(others):
        least_s = bounds.bounded(rows, others.tolist(), at_peak_rates).least_s
        bounds.least_s[others] = [least_s[number] for number in others.tolist()]
    remaining = RemainingSpace(
        axis_bounds=joined_bounds([part.axis_bounds for part in parts]),
        pruned_bound=max(part.bound for part in parts) or -np.inf if whole else np.inf,
        open_bound=max(part.open_bound for part in parts) or -np.inf if whole else np.inf,
        chips=sum(part.chips for part in parts),
        points=points,
        shapes={model.name: bounds.some_shapes(numbers)},
        pruned_shapes={model.name: bounds.other_shapes(numbers)},
    )
    sizes = tuple(size for size in problem.memory_bytes if hardware.metrics.holding(size).any())
    problem = replace(problem, memory_bytes=sizes or problem.memory_bytes)
    return replace(context, problem=problem, remaining=remaining)
