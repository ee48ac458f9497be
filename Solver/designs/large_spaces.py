"""Of a space of very many chips and shapes of plans those that might be best, found by bounds of
all of them.

What no bound closes is what the search goes on with, as exactly as in a space of no other chips;
nothing that is pruned is better than what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze_common.array_types import FloatArray, IntArray
from Solver.best_first import ROUNDING
from Solver.designs.chip_axes import axis_bounds
from Solver.designs.costs import MANY_SHAPES
from Solver.designs.pruning_bounds import PruningBounds
from Solver.designs.search_context import RemainingSpace, SearchContext
from Solver.designs.shape_bounds_on_chips import MakeTable, at_peak_rates, priced
from Solver.designs.trial_designs import best_of_remaining
from Solver.hardware import DesignedChips

MANY_POINTS = 100_000  # chips times shapes from which on bounds of all are worth their time
FEW_SHAPES = 64  # of which no bounds are taken together


def pruned_space(context: SearchContext, least: float = 0.0) -> SearchContext:
    """``context`` with what bounds leave of its space, or as it is where they are not worth their
    time or know too little.

    Of a part of a space they are always worth it, since others may have found what closes it; so
    they are where what does not reach ``least`` is of no interest, which counts for one model
    alone."""
    hardware, problem = context.hardware, context.problem
    if context.remaining is not None or problem.front or not isinstance(hardware, DesignedChips):
        return context
    # These bounds know neither how many devices can be bought nor what they count
    if hardware.metrics.purchase is not None:
        return context
    shapes = max(sum(1 for _ in model.space.shapes()) for model in problem.models)
    least = least if len(problem.models) == 1 else 0.0
    few = hardware.configurations * shapes < MANY_POINTS and shapes <= MANY_SHAPES
    if context.shared_incumbent is None and few and (not least or shapes <= FEW_SHAPES):
        return context
    models = [PruningBounds(context, hardware, model, least) for model in problem.models]
    left = [_Left(bounds, *bounds.remaining()) for bounds in models]
    remaining = _keeping(context, hardware, left)
    return remaining if len(models) == 1 else _joint(context, remaining, hardware, left)


@dataclass(frozen=True, eq=False)
class _Left:
    """The chips and the numbers of shapes that bounds leave of a model."""

    bounds: PruningBounds
    rows: IntArray
    numbers: list[int]

    @property
    def name(self) -> str:
        return self.bounds.model.name

    def upper(self, rows: IntArray, numbers: Sequence[int], level: MakeTable) -> FloatArray:
        """What no plan of some shapes exceeds on the chips ``rows``."""
        return self.bounds.bounded(rows, numbers, level).upper


def _keeping(
    context: SearchContext, hardware: DesignedChips, left: Sequence[_Left]
) -> SearchContext:
    """``context`` with the chips that one of the models might be best on, and for each model the
    shapes that are left."""
    rows = np.unique(np.concatenate([each.rows for each in left]))
    problem, metrics, alone = context.problem, hardware.metrics, len(left) == 1
    holding = {size: metrics.holding(size) for size in problem.memory_bytes}
    upper = problem.combination.of({each.name: each.bounds.upper for each in left})
    pruned = np.ones(len(upper), np.bool_)
    pruned[rows] = False
    none_exceeds = float(upper[pruned].max(initial=-np.inf))
    if alone:
        none_exceeds = max(none_exceeds, left[0].bounds.none_exceeds)
    points = sum(int(np.count_nonzero(held)) for held in holding.values())
    remaining = RemainingSpace(
        axis_bounds=axis_bounds(hardware, upper),
        pruned_bound=none_exceeds,
        open_bound=none_exceeds,
        chips=hardware.configurations,
        points=points * sum(len(each.bounds.shapes) for each in left),
        shapes={each.name: each.bounds.some_shapes(each.numbers) for each in left},
        pruned_shapes={each.name: each.bounds.other_shapes(each.numbers) for each in left},
        placements={left[0].name: left[0].bounds.placements} if alone else {},
    )
    sizes = tuple(size for size, held in holding.items() if held[rows].any())
    problem = replace(problem, memory_bytes=sizes or problem.memory_bytes)
    return replace(context, problem=problem, hardware=hardware.some(rows), remaining=remaining)


def _joint(
    context: SearchContext, remaining: SearchContext, hardware: DesignedChips, left: Sequence[_Left]
) -> SearchContext:
    """The same with what might be the best for several models together, though for none alone."""
    found = best_of_remaining(remaining)
    if found is None:
        return remaining
    combination = replace(context.problem, own_best=found.own_best).combination
    least, rows = found.value * (1.0 - ROUNDING), np.arange(hardware.configurations)
    every = {each.name: range(len(each.bounds.shapes)) for each in left}
    for level in (at_peak_rates, priced):
        upper = {each.name: each.upper(rows, every[each.name], level) for each in left}
        rows = rows[combination.of(upper) >= least]
    upper = {each.name: each.upper(rows, every[each.name], priced) for each in left}

    def matters(model: _Left, number: int) -> bool:
        """Whether a shape might have the best plan of a model on a chip that is the best of all."""
        alone = model.upper(rows, [number], priced)
        return bool((combination.of({**upper, model.name: alone}) >= least).any())

    joint = []
    for model in left:
        more = [number for number in every[model.name] if matters(model, number)]
        numbers = sorted({*model.numbers, *more})
        joint.append(_Left(model.bounds, np.union1d(model.rows, rows), numbers))
    return _keeping(context, hardware, joint)
