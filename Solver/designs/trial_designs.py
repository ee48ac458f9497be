"""Designs of a few chips and shapes that were evaluated: something that a search has to beat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze_common.progress import SilentProgress
from Solver.designs.costs import ModelShapes
from Solver.designs.joint import best_for_all_models, own_bests
from Solver.designs.model_shapes import model_shapes
from Solver.designs.point_store import PointStore
from Solver.designs.points import PointGroup
from Solver.designs.proofs import proven_shapes
from Solver.designs.search_context import Placements, SearchContext
from Solver.designs.search_criteria import SearchCriteria
from Solver.plans.best_plan import FIRST_STEPS
from Solver.problem import ModelProblem


def best_tried(
    context: SearchContext,
    model: ModelProblem,
    placements: Placements,
    memory_bytes: Sequence[int],
    most: int,
) -> float:
    """What the best of some designs of ``model`` reaches: of shapes on the chips of ``context`` the
    ``most`` promising points.

    The shapes are those of ``placements``, with groups that lie so.

    Their schedules and cuts are those found at first sight."""
    objective, best = context.problem.objective, 0.0
    for each in model_shapes(
        replace(context, progress=SilentProgress()), model, list(placements), placements
    ):
        for size in memory_bytes:
            group = _group(context, each, size, FIRST_STEPS)
            group.evaluate(np.argsort(-group.undominated_bound(objective), kind="stable")[:most])
            best = max(best, float(group.objective(objective).max()))
    return best


@dataclass(frozen=True)
class JointBest:
    """What the best design for several models together reaches, and each model alone on its own
    best chip."""

    value: float
    own_best: Mapping[str, float]


def best_of_remaining(context: SearchContext) -> JointBest | None:
    """The best for all models among the designs that bounds left for each of them; None where a
    model fits nowhere."""
    quiet = replace(context, progress=SilentProgress())
    shapes = [
        proven_shapes(quiet, each)
        for model in context.problem.models
        for each in model_shapes(quiet, model)
    ]
    groups = [
        _group(context, each, size, None)
        for each in shapes
        for size in context.problem.memory_bytes
    ]
    own = own_bests(context.problem, groups)
    problem = replace(context.problem, own_best=own)
    found = [best_for_all_models(problem, groups, size) for size in problem.memory_bytes]
    values = [optimum.value for optimum in found if optimum is not None]
    return JointBest(max(values), own) if values else None


def _group(
    context: SearchContext, shapes: ModelShapes, memory_bytes: int, most_steps: int | None
) -> PointGroup:
    criteria = SearchCriteria.of(context.problem)
    return PointGroup.of(
        shapes,
        memory_bytes,
        context.hardware.figures,
        PointStore(None),
        criteria,
        most_steps=most_steps,
    )
