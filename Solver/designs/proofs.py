"""Schedules that are worth a proof: those of configurations that could matter even if theirs were
as short as can be.

All configurations are scheduled under a small node limit first. A configuration that another one
dominates, in every layer and in what else the search optimises, however short its own schedules
could be, is left without a proof. The others are scheduled under larger limits, and under the
largest only those that could still be the best."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import LayerGroups
from GraphExtractor.graph import GraphKey
from phaze_common.array_types import BoolArray
from phaze_common.numbers import number
from Solver.best_first import ROUNDING
from Solver.designs.costs import ModelShapes
from Solver.designs.model_shapes import model_shapes
from Solver.designs.point_groups import point_group
from Solver.designs.search_context import SearchContext
from Solver.designs.search_criteria import BREAKING_TIES, SearchCriteria
from Solver.designs.shape_dominance import undominated
from Solver.hardware import PricedGraph
from Solver.schedule.solver import NodeLimit

logger = logging.getLogger(__name__)
INCUMBENTS = 64  # points evaluated to know what has to be beaten
Chosen = BoolArray  # shape (shapes, configurations)


def proven_shapes_of_models(
    context: SearchContext, chosen: Sequence[UniformPlan] | None = None
) -> list[ModelShapes]:
    """The shapes of all models of the problem, as ``proven_shapes`` leaves them; of the only model
    those that are ``chosen``, if any are."""
    return [
        proven_shapes(context, each)
        for model in context.problem.models
        for each in model_shapes(context, model, chosen)
    ]


def proven_shapes(context: SearchContext, shapes: ModelShapes) -> ModelShapes:
    """``shapes`` with the schedules of all configurations that could matter proven if possible."""
    for node_limit in (NodeLimit.SHORT, NodeLimit.QUICK, NodeLimit.THOROUGH):
        tried = np.zeros((len(shapes.shapes), context.hardware.configurations), np.bool_)
        # What is scheduled anew may dominate less
        while (wanted := (still_open := _open(context, shapes, node_limit)) & ~tried).any():
            shapes = _refined(context, shapes, wanted, node_limit)
            tried |= wanted
    left = int(still_open.any(axis=0).sum())
    if left:
        label = shapes.shapes[0].graph.key.label
        logger.warning(
            "%s accelerators have unproven schedules and might be the best for %s",
            number(left),
            label,
        )
    return shapes


def _open(context: SearchContext, shapes: ModelShapes, node_limit: NodeLimit) -> Chosen:
    """Configurations with unproven schedules that could matter and are worth ``node_limit``."""
    largest = max(context.problem.memory_bytes)
    several = len(context.problem.models) > 1
    criteria = SearchCriteria.of(context.problem)
    if criteria.of_energy:  # of equally frugal chips the smallest is the best, however slow
        criteria = replace(criteria, front=(*criteria.front, *BREAKING_TIES))
    unproven = np.stack([(shape.excess > 1.0) & shape.fits(largest) for shape in shapes.shapes])
    # what one model's best dominates may be the best of all
    if several and node_limit is not NodeLimit.THOROUGH:
        return unproven
    for rows, shape in zip(unproven, shapes.shapes, strict=True):
        if rows.any():
            rows &= undominated(shape, context.hardware.metrics, criteria)
    alone = not several and not criteria.of_energy
    if node_limit is NodeLimit.THOROUGH and alone and unproven.any():
        unproven &= _could_be_best(context, shapes)
    return unproven


def _could_be_best(context: SearchContext, shapes: ModelShapes) -> Chosen:
    """Points that might reach the best of those evaluated here, shape (shapes, configurations)."""
    objective = context.problem.objective
    could = np.zeros(context.hardware.configurations * len(shapes.shapes), np.bool_)
    larger_memory = None
    for size in sorted(context.problem.memory_bytes, reverse=True):
        group = point_group(context, shapes, size, larger_memory, only_bounds=True)
        group.evaluate(np.argsort(-group.undominated_bound(objective), kind="stable")[:INCUMBENTS])
        incumbent = group.objective(objective).max() * (1.0 - ROUNDING)
        could |= group.undominated_bound(objective) >= incumbent
        larger_memory = group
    return could.reshape(len(shapes.shapes), -1)


def _refined(
    context: SearchContext, shapes: ModelShapes, wanted: Chosen, node_limit: NodeLimit
) -> ModelShapes:
    modes = tuple(dict.fromkeys(shape.plan.recompute for shape in shapes.shapes))
    rows_of: dict[GraphKey, Chosen] = {}
    for shape, rows in zip(shapes.shapes, wanted, strict=True):
        rows_of[shape.graph.key] = rows_of.get(shape.graph.key, np.zeros_like(rows)) | rows
    tasks = {
        (shape.graph.key, part.groups): shape.graph
        for shape in shapes.shapes
        for part in shape.parts
        if rows_of[shape.graph.key].any()
    }
    better: dict[tuple[GraphKey, LayerGroups], PricedGraph] = {}
    what = "proofs" if node_limit is NodeLimit.THOROUGH else "schedules"
    count = wanted.any(axis=0).sum()
    label = f"{what} of {count} accelerators"
    with context.progress.phase(
        f"{label} for {shapes.model.name}, micro-batch {shapes.micro_batch_size}", len(tasks)
    ) as advance:
        for (key, groups), graph in tasks.items():
            better[key, groups] = context.hardware.refined(
                modes, graph, groups, np.flatnonzero(rows_of[key]), node_limit
            )
            advance(1)
    return replace(shapes, shapes=tuple(shape.with_costs(better) for shape in shapes.shapes))
