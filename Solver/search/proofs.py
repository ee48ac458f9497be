"""Schedules that are worth a proof: those of configurations that no other one dominates even if theirs were as short as can be.

All configurations are scheduled quickly first. What a found time of another one already beats in every layer, in area and
in energy can be left without a proof, since dominance closes it.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from Solver.search.costs import ModelShapes
from Solver.search.points import undominated
from Solver.search.run import Run

logger = logging.getLogger(__name__)


def proven_shapes(run: Run, shapes: ModelShapes) -> ModelShapes:
    """``shapes`` with the schedules of all configurations that could matter proven, or as well as they can be."""
    if not (shapes.excess > 1.0).any():
        return shapes
    alive = np.zeros(run.hardware.configurations, dtype=bool)
    for shape in shapes.shapes:
        alive |= undominated(shape, run.hardware.area_mm2)
    rows = np.flatnonzero(alive & (shapes.excess > 1.0))
    if not len(rows):
        return shapes
    label = shapes.shapes[0].graph.key.label
    keys = {(shape.graph.key, part.experts): (shape, part) for shape in shapes.shapes for part in shape.parts}
    better = {}
    with run.progress.phase(f"proofs of {len(rows)} accelerators for {label}", len(keys)) as advance:
        for key, (shape, part) in keys.items():
            modes = tuple(dict.fromkeys(each.plan.recompute for each in shapes.shapes))
            better[key] = run.hardware.proven(modes, shape.graph, part.experts, rows)
            advance(1)
    found = tuple(
        shape.with_costs({part.experts: better[shape.graph.key, part.experts] for part in shape.parts}) for shape in shapes.shapes
    )
    proven = replace(shapes, shapes=found)
    left = sum(int(np.count_nonzero(undominated(shape, run.hardware.area_mm2) & (shape.excess > 1.0))) for shape in found)
    if left:
        logger.warning("%d accelerators have unproven schedules and might be the best for %s", left, label)
    return replace(proven, doubtful=left)
