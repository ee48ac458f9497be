"""Designs of a few chips and shapes that were evaluated: a first incumbent of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze_common.progress import SilentProgress
from Solver.designs.joint import best_for_all_models, own_bests
from Solver.designs.model_shapes import model_shapes
from Solver.designs.points import PointGroup
from Solver.designs.proofs import proven_shapes_of_models
from Solver.designs.search_context import Placements, SearchContext
from Solver.plans.best_plan import FIRST_STEPS
from Solver.problem import ModelProblem


def best_tried(
    context: SearchContext,
    model: ModelProblem,
    placements: Placements,
    memory_bytes: Sequence[int],
    count: int,
) -> float:
    """The value of the best of the ``count`` most promising points of ``model`` on the chips of
    ``context``, under the shapes and placements of ``placements``.

    Their schedules and cuts are first estimates."""
    objective, best = context.problem.objective, 0.0
    quiet = replace(context, progress=SilentProgress())
    for each in model_shapes(quiet, model, list(placements), placements):
        for size in memory_bytes:
            group = PointGroup.of(context, each, size, most_steps=FIRST_STEPS)
            group.evaluate(np.argsort(-group.undominated_bound(objective), kind="stable")[:count])
            best = max(best, float(group.objective(objective).max()))
    return best


@dataclass(frozen=True)
class JointBest:
    """What the best design for several models reaches, and each model alone on its best chip."""

    value: float
    own_best: Mapping[str, float]


def best_of_remaining(context: SearchContext) -> JointBest | None:
    """The best for all models among what bounds left for each; None where a model fits nowhere."""
    shapes = proven_shapes_of_models(replace(context, progress=SilentProgress()))
    sizes = context.problem.memory_bytes
    groups = [PointGroup.of(context, each, size) for each in shapes for size in sizes]
    own = own_bests(context.problem, groups)
    problem = replace(context.problem, own_best=own)
    found = [best_for_all_models(problem, groups, size) for size in sizes]
    values = [optimum.value for optimum in found if optimum is not None]
    return JointBest(max(values), own) if values else None
