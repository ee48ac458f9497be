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
from Solver.designs.pursuit import Pursuit
from Solver.designs.run import Lying, Run
from Solver.plans.best_plan import FIRST_STEPS
from Solver.problem import ModelProblem


def best_tried(
    run: Run, model: ModelProblem, lying: Lying, memory_bytes: Sequence[int], most: int
) -> float:
    """What the best of some designs of ``model`` reaches: of shapes on the chips of ``run`` the
    ``most`` promising points.

    The shapes are those of ``lying``, with groups that lie so.

    Their schedules and cuts are those found at first sight.
    """
    objective, best = run.problem.objective, 0.0
    for each in model_shapes(replace(run, progress=SilentProgress()), model, list(lying), lying):
        for size in memory_bytes:
            group = _group(run, each, size, FIRST_STEPS)
            group.evaluate(np.argsort(-group.undominated_bound(objective), kind="stable")[:most])
            best = max(best, float(group.objective(objective).max()))
    return best


@dataclass(frozen=True)
class JointBest:
    """What the best design for several models together reaches, and each model alone on its own
    best chip."""

    value: float
    own_best: Mapping[str, float]


def best_of_kept(run: Run) -> JointBest | None:
    """The best for all models among the designs that bounds left for each of them; None where a
    model fits nowhere."""
    quiet = replace(run, progress=SilentProgress())
    shapes = [
        proven_shapes(quiet, each)
        for model in run.problem.models
        for each in model_shapes(quiet, model)
    ]
    groups = [_group(run, each, size, None) for each in shapes for size in run.problem.memory_bytes]
    own = own_bests(run.problem, groups)
    problem = replace(run.problem, own_best=own)
    found = [best_for_all_models(problem, groups, size) for size in problem.memory_bytes]
    values = [optimum.value for optimum in found if optimum is not None]
    return JointBest(max(values), own) if values else None


def _group(run: Run, shapes: ModelShapes, memory_bytes: int, most_steps: int | None) -> PointGroup:
    pursuit = Pursuit.of(run.problem)
    return PointGroup.of(
        shapes, memory_bytes, run.hardware.figures, PointStore(None), pursuit, most_steps=most_steps
    )
