"""A space that is searched in parts: what the search of a part tells of it, and the search of the
best of all parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from Solver.designs.chip_axes import joined_bounds
from Solver.designs.chip_screen import Screen
from Solver.designs.run import Kept, Run
from Solver.designs.shape_bounds_on_chips import at_peak_rates
from Solver.hardware import DesignedChips
from Solver.results import DesignPoint, PartReport, SearchResult


def part_report(run: Run, result: SearchResult, part: str) -> PartReport:
    """What the search of ``run``, that of a ``part`` of a space, says of all its designs."""
    kept, (model,) = run.kept, run.problem.models
    assert kept is not None  # parts are always screened
    open_ = frozenset(kept.shapes[model.name])
    return PartReport(
        part=part,
        chips=kept.chips,
        bound=max([0.0, kept.closed, *map(_not_exceeded, result.per_hbm)]),
        open_bound=max(
            [0.0, kept.closed, *(_open_bound(point) or 0.0 for point in result.per_hbm)]
        ),
        axis_bounds=kept.axis_bounds,
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


def rejoined(run: Run, parts: Sequence[PartReport], points: int, *, whole: bool) -> Run:
    """``run``, whose hardware are the best chips of the ``parts`` of a space, with what was closed
    in these.

    The space has so many ``points``; it is ``whole`` where something is known of each of its parts.
    """
    hardware, problem = run.hardware, run.problem
    assert isinstance(hardware, DesignedChips)
    (model,) = problem.models
    screen, rows = Screen(run, hardware, model), np.arange(hardware.configurations)
    numbers = sorted({number for part in parts for number in part.shapes}) or list(
        range(len(screen.shapes))
    )
    others = np.setdiff1d(np.arange(len(screen.shapes)), numbers)
    if len(others):
        least_s = screen.bounded(rows, others.tolist(), at_peak_rates).least_s
        screen.least_s[others] = [least_s[number] for number in others.tolist()]
    kept = Kept(
        axis_bounds=joined_bounds([part.axis_bounds for part in parts]),
        closed=max(part.bound for part in parts) or -np.inf if whole else np.inf,
        open_bound=max(part.open_bound for part in parts) or -np.inf if whole else np.inf,
        chips=sum(part.chips for part in parts),
        points=points,
        shapes={model.name: screen.some_shapes(numbers)},
        closed_shapes={model.name: screen.other_shapes(numbers)},
    )
    sizes = tuple(size for size in problem.memory_bytes if hardware.figures.holding(size).any())
    return replace(
        run, problem=replace(problem, memory_bytes=sizes or problem.memory_bytes), kept=kept
    )
