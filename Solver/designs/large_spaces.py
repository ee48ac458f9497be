"""Of a space of very many chips and shapes of plans those that might be best, found by bounds of
all of them.

What no bound closes is what the search goes on with, as exactly as in a space of no other chips;
nothing that is closed is better than what was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from phaze_common.array_types import IntArray
from Solver.designs.chip_axes import axis_bounds
from Solver.designs.chip_screen import Screen
from Solver.designs.costs import MANY_SHAPES
from Solver.designs.run import ROUNDING, Kept, Run
from Solver.designs.shape_bounds_on_chips import at_peak_rates, priced
from Solver.designs.trial_designs import best_of_kept
from Solver.hardware import DesignedChips

MANY_POINTS = 100_000  # chips times shapes from which on bounds of all are worth their time
FEW_SHAPES = 8  # of which no bounds are taken together


def screened(run: Run, least: float = 0.0) -> Run:
    """``run`` with what bounds leave of its space, or as it is where they are not worth their time
    or know too little.

    Of a part of a space they are always worth it, since others may have found what closes it; so
    they are where what does not reach ``least`` is of no interest, which counts for one model
    alone.
    """
    hardware, problem = run.hardware, run.problem
    if run.kept is not None or problem.front or not isinstance(hardware, DesignedChips):
        return run
    # These bounds know neither how many devices can be bought nor what they count
    if hardware.figures.purchase is not None:
        return run
    shapes = max(sum(1 for _ in model.space.shapes()) for model in problem.models)
    least = least if len(problem.models) == 1 else 0.0
    few = hardware.configurations * shapes < MANY_POINTS and shapes <= MANY_SHAPES
    if run.best_known is None and few and (not least or shapes <= FEW_SHAPES):
        return run
    screens = [Screen(run, hardware, model, least) for model in problem.models]
    left = [screen.screen() for screen in screens]
    kept = _keeping(run, hardware, screens, left)
    return kept if len(screens) == 1 else _joint(run, kept, hardware, screens, left)


def _keeping(
    run: Run,
    hardware: DesignedChips,
    screens: Sequence[Screen],
    left: Sequence[tuple[IntArray, list[int]]],
) -> Run:
    """``run`` with the chips that one of the models might be best on, and for each model the shapes
    that are left."""
    rows = np.unique(np.concatenate([rows for rows, _ in left]))
    problem, figures = run.problem, hardware.figures
    sizes = tuple(size for size in problem.memory_bytes if figures.holding(size)[rows].any())
    most = problem.combination.of({screen.model.name: screen.most for screen in screens})
    closed = np.ones(len(most), np.bool_)
    closed[rows] = False
    held = sum(int(np.count_nonzero(figures.holding(size))) for size in problem.memory_bytes)
    none_exceeds = float(most[closed].max(initial=-np.inf))
    if len(screens) == 1:
        none_exceeds = max(none_exceeds, screens[0].none_exceeds)
    kept = Kept(
        axis_bounds=axis_bounds(hardware, most),
        closed=none_exceeds,
        open_bound=none_exceeds,
        chips=hardware.configurations,
        points=held * sum(len(screen.shapes) for screen in screens),
        shapes={
            screen.model.name: screen.some_shapes(numbers)
            for screen, (_, numbers) in zip(screens, left, strict=True)
        },
        closed_shapes={
            screen.model.name: screen.other_shapes(numbers)
            for screen, (_, numbers) in zip(screens, left, strict=True)
        },
        lying={screens[0].model.name: screens[0].lying} if len(screens) == 1 else {},
    )
    problem = replace(problem, memory_bytes=sizes or problem.memory_bytes)
    return replace(run, problem=problem, hardware=hardware.some(rows), kept=kept)


def _joint(
    run: Run,
    kept: Run,
    hardware: DesignedChips,
    screens: Sequence[Screen],
    left: Sequence[tuple[IntArray, list[int]]],
) -> Run:
    """The same with what might be the best for several models together, though it is the best for
    none of them alone."""
    found = best_of_kept(kept)
    if found is None:
        return kept
    combination = replace(run.problem, own_best=found.own_best).combination
    least = found.value * (1.0 - ROUNDING)
    rows = np.arange(hardware.configurations)
    for level in (at_peak_rates, priced):
        bounds = {
            screen.model.name: screen.bounded(rows, range(len(screen.shapes)), level).most
            for screen in screens
        }
        rows = rows[combination.of(bounds) >= least]
    joint = []
    bounds = {
        each.model.name: each.bounded(rows, range(len(each.shapes)), priced).most
        for each in screens
    }
    for screen, (mine, numbers) in zip(screens, left, strict=True):
        more = [
            number
            for number in range(len(screen.shapes))
            if (
                combination.of(
                    {**bounds, screen.model.name: screen.bounded(rows, [number], priced).most}
                )
                >= least
            ).any()
        ]
        joint.append((np.union1d(mine, rows), sorted({*numbers, *more})))
    return _keeping(run, hardware, screens, joint)
