"""Of a space of very many chips and shapes of plans those that might be best, found by bounds of
all of them.

What no bound closes is what the search goes on with, as exactly as in a space of no other chips;
nothing that is pruned is better than what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from phaze_common.array_types import IntArray
from Solver.designs.chip_axes import axis_bounds
from Solver.designs.costs import MANY_SHAPES
from Solver.designs.pruning_bounds import PruningBounds
from Solver.designs.search_context import ROUNDING, RemainingSpace, SearchContext
from Solver.designs.shape_bounds_on_chips import at_peak_rates, priced
from Solver.designs.trial_designs import best_of_remaining
from Solver.hardware import DesignedChips

MANY_POINTS = 100_000  # chips times shapes from which on bounds of all are worth their time
FEW_SHAPES = 8  # of which no bounds are taken together


def pruned_space(context: SearchContext, least: float = 0.0) -> SearchContext:
    """``context`` with what bounds leave of its space, or as it is where they are not worth their
    time
    or know too little.

    Of a part of a space they are always worth it, since others may have found what closes it; so
    they are where what does not reach ``least`` is of no interest, which counts for one model
    alone."""
    hardware, problem = context.hardware, context.problem
    if context.remaining is not None or problem.front or not isinstance(hardware, DesignedChips):
        return context
    # These bounds know neither how many devices can be bought nor what they count
    if hardware.figures.purchase is not None:
        return context
    shapes = max(sum(1 for _ in model.space.shapes()) for model in problem.models)
    least = least if len(problem.models) == 1 else 0.0
    few = hardware.configurations * shapes < MANY_POINTS and shapes <= MANY_SHAPES
    if context.shared_incumbent is None and few and (not least or shapes <= FEW_SHAPES):
        return context
    models = [PruningBounds(context, hardware, model, least) for model in problem.models]
    left = [each.remaining() for each in models]
    remaining = _keeping(context, hardware, models, left)
    return remaining if len(models) == 1 else _joint(context, remaining, hardware, models, left)


def _keeping(
    context: SearchContext,
    hardware: DesignedChips,
    models: Sequence[PruningBounds],
    left: Sequence[tuple[IntArray, list[int]]],
) -> SearchContext:
    """``context`` with the chips that one of the models might be best on, and for each model the
    shapes
    that are left."""
    rows = np.unique(np.concatenate([rows for rows, _ in left]))
    problem, figures = context.problem, hardware.figures
    sizes = tuple(size for size in problem.memory_bytes if figures.holding(size)[rows].any())
    upper = problem.combination.of({model.model.name: model.upper for model in models})
    pruned = np.ones(len(upper), np.bool_)
    pruned[rows] = False
    held = sum(int(np.count_nonzero(figures.holding(size))) for size in problem.memory_bytes)
    none_exceeds = float(upper[pruned].max(initial=-np.inf))
    if len(models) == 1:
        none_exceeds = max(none_exceeds, models[0].none_exceeds)
    remaining = RemainingSpace(
        axis_bounds=axis_bounds(hardware, upper),
        pruned_bound=none_exceeds,
        open_bound=none_exceeds,
        chips=hardware.configurations,
        points=held * sum(len(model.shapes) for model in models),
        shapes={
            model.model.name: model.some_shapes(numbers)
            for model, (_, numbers) in zip(models, left, strict=True)
        },
        pruned_shapes={
            model.model.name: model.other_shapes(numbers)
            for model, (_, numbers) in zip(models, left, strict=True)
        },
        placements={models[0].model.name: models[0].placements} if len(models) == 1 else {},
    )
    problem = replace(problem, memory_bytes=sizes or problem.memory_bytes)
    return replace(context, problem=problem, hardware=hardware.some(rows), remaining=remaining)


def _joint(
    context: SearchContext,
    remaining: SearchContext,
    hardware: DesignedChips,
    models: Sequence[PruningBounds],
    left: Sequence[tuple[IntArray, list[int]]],
) -> SearchContext:
    """The same with what might be the best for several models together, though for none alone."""
    found = best_of_remaining(remaining)
    if found is None:
        return remaining
    combination = replace(context.problem, own_best=found.own_best).combination
    least = found.value * (1.0 - ROUNDING)
    rows = np.arange(hardware.configurations)
    for level in (at_peak_rates, priced):
        bounds = {
            model.model.name: model.bounded(rows, range(len(model.shapes)), level).upper
            for model in models
        }
        rows = rows[combination.of(bounds) >= least]
    joint = []
    bounds = {
        each.model.name: each.bounded(rows, range(len(each.shapes)), priced).upper
        for each in models
    }
    for model, (mine, numbers) in zip(models, left, strict=True):
        more = [
            number
            for number in range(len(model.shapes))
            if (
                combination.of(
                    {**bounds, model.model.name: model.bounded(rows, [number], priced).upper}
                )
                >= least
            ).any()
        ]
        joint.append((np.union1d(mine, rows), sorted({*numbers, *more})))
    return _keeping(context, hardware, models, joint)
