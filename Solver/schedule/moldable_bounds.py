"""Lower bounds on the makespan of moldable operators: paths, core-seconds, and the best mix of what
may run at one time.

Give every operator a weight w_i, in seconds, such that for any operators that may run at one time,
in any modes that fit on the cores together, the sum of w_i / t_i is at most 1 (t_i: seconds in that
mode). Integrating over a schedule, its makespan is at least the sum of the weights. The best
weights are a linear program; its dual mixes such sets of operators so that all get done soonest, in
pieces and regardless of their order. A path with each operator at its fastest, and the core-seconds
of each type, are special cases. Columns are generated; whatever weights result are scaled by the
exact maximum over all sets, so the bound holds as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from Solver.schedule.moldable import CoreGroup
from Solver.schedule.structure import Component, members

ROUNDS = 60
CLOSE = 1e-10  # of a set's weight to 1: no better ones are sought
Floats = NDArray[np.float64]
Modes = Sequence[tuple[CoreGroup, ...]]


@dataclass(frozen=True, eq=False)
class WeightBound:
    """``weights_s`` (operators,) whose sum is ``bound_s``; ``mix_s`` are the seconds of each
    operator's modes in the mix."""

    bound_s: float
    weights_s: Floats
    mix_s: tuple[Floats, ...]


def path_bound(component: Component, modes: Modes) -> float:
    """Longest path with every operator at its fastest."""
    ends = np.zeros(len(modes))
    for place in component.order.topological():
        earlier = max(
            (ends[before] for before in members(component.order.before[place])), default=0.0
        )
        ends[place] = earlier + min(mode.seconds for mode in modes[place])
    return float(ends.max(initial=0.0))


def work_bound(modes: Modes, num_tc: int, num_vc: int) -> float:
    """Least core-seconds of all operators over the cores, of the type where that is more."""
    tc = sum(min(mode.tc * mode.seconds for mode in each) for each in modes)
    vc = sum(min(mode.vc * mode.seconds for mode in each) for each in modes)
    return max(tc / num_tc if num_tc else 0.0, vc / num_vc if num_vc else 0.0)


def weight_bound(component: Component, modes: Modes, num_tc: int, num_vc: int) -> WeightBound:
    """The best weights, or nearly; see above. Without a list of antichains, those of paths or
    core-seconds."""
    if not component.antichains:
        return _simple_weights(component, modes, num_tc, num_vc)
    from scipy.optimize import linprog
    from scipy.sparse import csc_array

    fastest = np.array([min(mode.seconds for mode in each) for each in modes])
    columns = [
        {place: _fastest(each)} for place, each in enumerate(modes)
    ]  # each alone: the mix that runs one after another
    known = {tuple(column.items()) for column in columns}
    for _ in range(ROUNDS):
        entries = [
            (fastest[place] / modes[place][mode].seconds, place, number)
            for number, column in enumerate(columns)
            for place, mode in column.items()
        ]
        values, rows, places = zip(*entries, strict=True)
        matrix = csc_array((values, (rows, places)), shape=(len(modes), len(columns)))
        # scaled: progress in units of the fastest mode's, so that all numbers are near 1
        found = linprog(
            np.ones(len(columns)), A_ub=-matrix, b_ub=-fastest / fastest.max(), method="highs"
        )
        weights = np.maximum(-found.ineqlin.marginals, 0.0) * fastest
        most, new = _heaviest(component, modes, weights, num_tc, num_vc)
        fresh = [column for column in new if tuple(column.items()) not in known]
        if most <= 1.0 + CLOSE or not fresh:
            break
        columns += fresh
        known |= {tuple(column.items()) for column in fresh}
    weights = weights / max(most, 1.0)
    mix = tuple(np.zeros(len(each)) for each in modes)
    for seconds, column in zip(found.x, columns, strict=False):
        for place, mode in column.items():
            mix[place][mode] += seconds * fastest.max()
    return WeightBound(float(weights.sum()), weights, mix)


def _fastest(modes: tuple[CoreGroup, ...]) -> int:
    return min(range(len(modes)), key=lambda number: modes[number].seconds)


def _simple_weights(component: Component, modes: Modes, num_tc: int, num_vc: int) -> WeightBound:
    """Core-seconds of a type, whichever bound is the larger."""
    tc = np.array([min(mode.tc * mode.seconds for mode in each) for each in modes]) / max(num_tc, 1)
    vc = np.array([min(mode.vc * mode.seconds for mode in each) for each in modes]) / max(num_vc, 1)
    weights = max(tc, vc, key=lambda each: float(each.sum()))
    return WeightBound(float(weights.sum()), weights, tuple(np.zeros(len(each)) for each in modes))


def _heaviest(
    component: Component, modes: Modes, weights: Floats, num_tc: int, num_vc: int
) -> tuple[float, list[dict[int, int]]]:
    """The largest sum of w / t of a set that may run at one time, and the heaviest of each
    antichain that is above 1.

    Exact: operators one by one, the best for each count of cores that are left, shape (num_tc + 1,
    num_vc + 1).
    """
    most, found = 0.0, []
    for antichain in component.antichains:
        best = np.zeros((num_tc + 1, num_vc + 1))
        choices: list[tuple[int, NDArray[np.int16]]] = []
        for place in members(antichain):
            if weights[place] <= 0.0:
                continue
            better, chosen = best.copy(), np.full(best.shape, -1, np.int16)
            for number, mode in enumerate(modes[place]):
                gained = (
                    best[: num_tc + 1 - mode.tc, : num_vc + 1 - mode.vc]
                    + weights[place] / mode.seconds
                )
                target = better[mode.tc :, mode.vc :]
                improves = gained > target
                target[improves] = gained[improves]
                chosen[mode.tc :, mode.vc :][improves] = number
            best = better
            choices.append((place, chosen))
        weight = float(best[num_tc, num_vc])
        most = max(most, weight)
        if weight > 1.0 + CLOSE:
            column, tc, vc = {}, num_tc, num_vc
            for place, chosen in reversed(choices):
                number = int(chosen[tc, vc])
                if number >= 0:
                    column[place] = number
                    tc, vc = tc - modes[place][number].tc, vc - modes[place][number].vc
            found.append(column)
    return most, found
