"""Chips that bounds left, pruned one by one: by their schedules, and by searches through plans that
stop at what is known."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import LayerGroups
from GraphExtractor.graph import GraphKey, ModelGraph
from phaze_common.array_types import BoolArray, FloatArray
from phaze_common.progress import SilentProgress
from Solver.designs.costs import Part, PricedShapes
from Solver.designs.search_context import SearchContext
from Solver.designs.shape_bounds_on_chips import like_layers
from Solver.designs.shape_dominance import sample_joules_of
from Solver.plans.best_plan import ConfigurationPlans
from Solver.plans.least_iterations import PlanLines, Work
from Solver.problem import ModelProblem

HALVINGS = 64
NEAR = 1e-9  # relative: a plan this close to what is worth it is looked at
SHORTEST_S, LONGEST_S = 1e-9, 1e12  # of an iteration


@dataclass(frozen=True, eq=False)
class PlanValues:
    """Of every chip what no plan of a shape exceeds under the objective, and what one was found to
    reach; (chips,) each.

    The first is told down to what had to be beaten, the second is -inf where none was found to do
    so."""

    upper: FloatArray
    found: FloatArray


def plan_values(
    context: SearchContext,
    model: ModelProblem,
    graphs: Mapping[GraphKey, ModelGraph],
    shape: UniformPlan,
    placements: Collection[LayerGroups],
    least: float,
) -> PlanValues:
    """What plans of ``shape``, with groups ``placements`` so, reach on the chips of ``context``, if
    it is ``least`` or more."""
    quiet = replace(context, progress=SilentProgress())
    metrics = context.hardware.metrics
    objective = context.problem.objective
    upper, found = np.full((2, len(metrics)), -np.inf)
    priced = PricedShapes(quiet, model, graphs, [shape], {shape: frozenset(placements)}).shape(0)
    if priced is None:
        return PlanValues(upper, found)
    samples, tokens = model.space.base.global_batch_size, model.space.sequence_length
    least_j, found_j = (
        sample_joules_of(priced, len(metrics), least=each) for each in (True, False)
    )

    def values(seconds: FloatArray, joules: FloatArray) -> FloatArray:
        return metrics.reached(objective, seconds, joules, samples, tokens)

    fast, slow = np.full((2, len(metrics)), SHORTEST_S)
    slow[:] = LONGEST_S
    for _ in range(HALVINGS):  # the slowest that is worth it: of every objective faster is better
        middle = np.sqrt(fast * slow)
        reaches = values(middle, least_j) >= least
        fast, slow = np.where(reaches, middle, fast), np.where(reaches, slow, middle)
    slow *= 1.0 + NEAR
    for size in context.problem.memory_bytes:
        least_s, found_s = np.full((2, len(metrics)), np.inf)
        held = metrics.holding(size)
        for part in priced.parts if held.any() else ():
            _search(part, priced.graph, float(size), slow, least_s, found_s, held)
        np.maximum(upper, values(least_s, least_j), out=upper)
        np.maximum(found, values(found_s, found_j), out=found)
    return PlanValues(upper, found)


def _search(
    part: Part,
    graph: ModelGraph,
    memory_bytes: float,
    slowest_s: FloatArray,
    least_s: FloatArray,
    found_s: FloatArray,
    held: BoolArray,
) -> None:
    """Lower ``least_s``, as far as that is below ``slowest_s``, and ``found_s``; (chips,) each."""
    alike = like_layers(graph, part.plans.sizes)
    work, lines = Work.of(part.least, alike), dict[int, PlanLines]()
    for row in np.flatnonzero(held).tolist():
        plans = part.plans_on(row)
        if id(plans) not in lines:
            lines[id(plans)] = PlanLines.of(plans, memory_bytes, alike)
        plans_s = lines[id(plans)].seconds(
            *(float(each[row]) for each in (work.whole_s, work.alike_s, work.forward_s))
        )
        bound_s = float(plans_s.min(initial=np.inf))
        if bound_s < slowest_s[row]:
            bounded = ConfigurationPlans(plans, part.least, row, memory_bytes, least_s=plans_s)
            bound_s = bounded.best(slowest_s[row]).bound_s
        least_s[row] = min(least_s[row], bound_s)
        if bound_s < slowest_s[row]:
            best = ConfigurationPlans(plans, part.costs, row, memory_bytes).best(
                min(slowest_s[row], found_s[row])
            )
            found_s[row] = min(found_s[row], best.iteration_s)
