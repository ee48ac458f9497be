"""Chips that bounds left, closed one by one: by their schedules, and by searches through plans that stop at what is known."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from Common.progress import SilentProgress
from GraphExtractor.graph import GraphKey, ModelGraph
from Plans.groups import LayerGroups
from Plans.plan import UniformPlan
from Solver.plan_search.best_plan import ConfigurationPlans
from Solver.plan_search.least_iterations import LeastIterations, Work
from Solver.problem import ModelProblem
from Solver.search.costs import PricedShapes, Shape
from Solver.search.run import Run
from Solver.search.shape_bounds_on_chips import like_layers
from Solver.search.shape_dominance import sample_joules_of

FloatArray = NDArray[np.float64]

HALVINGS = 64
ROUNDING = 1e-9  # relative: a plan this close to what is worth it is looked at
SHORTEST_S, LONGEST_S = 1e-9, 1e12  # of an iteration


@dataclass(frozen=True, eq=False)
class Reached:
    """Of every chip what no plan of a shape exceeds under the objective, and what one was found to reach; (chips,) each.

    The first is told down to what had to be beaten, the second is -inf where none was found to do so.
    """

    most: FloatArray
    found: FloatArray


def reached(
    run: Run,
    model: ModelProblem,
    graphs: Mapping[GraphKey, ModelGraph],
    shape: UniformPlan,
    lying: Collection[LayerGroups],
    lines: Mapping[int, LeastIterations],
    least: float,
) -> Reached:
    """What plans of ``shape``, with groups ``lying`` so, reach on the chips of ``run``, if it is ``least`` or more.

    None is below the ``lines`` with as much memory, which schedules close first.
    """
    quiet, figures, objective = replace(run, progress=SilentProgress()), run.hardware.figures, run.problem.objective
    most, found = np.full((2, len(figures)), -np.inf)
    priced = PricedShapes(quiet, model, graphs, [shape], {shape: frozenset(lying)}).shape(0)
    if priced is None:
        return Reached(most, found)
    samples, tokens = model.space.base.global_batch_size, model.space.sequence_length
    least_j, found_j = (sample_joules_of(priced, len(figures), least=each) for each in (True, False))

    def values(seconds: FloatArray, joules: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            throughput = samples / seconds
        reached: FloatArray = np.where(throughput > 0.0, figures.value(objective, throughput, joules, tokens), -np.inf)
        return reached

    fast, slow = np.full((2, len(figures)), SHORTEST_S)
    slow[:] = LONGEST_S
    for _ in range(HALVINGS):  # the slowest that is worth it: of every objective faster is better
        middle = np.sqrt(fast * slow)
        enough = values(middle, least_j) >= least
        fast, slow = np.where(enough, middle, fast), np.where(enough, slow, middle)
    slow *= 1.0 + ROUNDING
    works = [Work.of(part.least, like_layers(priced.graph, part.plans.sizes)) for part in priced.parts]
    work = reduce(Work.or_less, works)
    for size in [size for size in run.problem.memory_bytes if size in lines]:
        least_s, found_s = np.full((2, len(figures)), np.inf)
        held = figures.holding(size)
        least_s[held] = lines[size].seconds(work.some(held))
        for row in np.flatnonzero(least_s < slow).tolist():
            searched_s, found_s[row] = _searched(priced, row, float(size), float(slow[row]))
            least_s[row] = max(least_s[row], searched_s)
        np.maximum(most, values(least_s, least_j), out=most)
        np.maximum(found, values(found_s, found_j), out=found)
    return Reached(most, found)


def _searched(shape: Shape, row: int, memory_bytes: float, slowest_s: float) -> tuple[float, float]:
    """Seconds that no plan on a configuration is below, up to ``slowest_s``, and of the best found; infinite where none is."""
    least_s, found_s = np.inf, np.inf
    for part in shape.parts:
        plans = part.plans_on(row)
        bound_s = ConfigurationPlans(plans, part.least, row, memory_bytes).best(slowest_s).bound_s
        least_s = min(least_s, bound_s)
        if bound_s < slowest_s:
            best = ConfigurationPlans(plans, part.costs, row, memory_bytes).best(min(slowest_s, found_s))
            found_s = min(found_s, best.iteration_s)
    return least_s, found_s
