"""Seconds that no plan of a shape is below on hardware of which only the work of all layers is known.

Plan p takes at least ``a_p W + c_p`` seconds where all layers take W seconds of a device for a micro-batch. With pp stages and m
micro-batches, stages without imbalance take W / pp each, so that by ``Solver.plan_search.bounds``

    a = m                      on one stage
    a = 1 + (m - 1) / pp       where micro-batches outnumber stages
    a = 1 + (m - 1) / (2 pp)   where they do not, and imbalance could be waited for
    a = max(m / pp, 1)         with interleaved stages

and c, its messages, synchronisation and step, is the bound of hardware that takes no time. The lower envelope of the lines of all
plans that fit in memory bounds a million chips by one search among its corners each.
"""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from Plans.compiled import outer
from Plans.layer_costs import LayerCosts, PassCosts
from Solver.cuts.cut_bounds import ROUNDING
from Solver.plan_search.best_plan import ConfigurationPlans
from Solver.plan_search.shape_plans import ShapePlans

MOST_ROUNDS = 24  # of taking lines away whose plans do not fit; those that stay only make the bound weaker
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LeastIterations:
    """The least of some lines, of falling ``slope`` and rising ``constant_s``, shape (lines,); none where no plan fits."""

    slope: FloatArray
    constant_s: FloatArray

    def seconds(self, work_s: FloatArray) -> FloatArray:
        """Seconds that no plan is below where a micro-batch takes ``work_s`` of a device, any shape; infinite where none fits."""
        if not len(self.slope):
            return np.full(work_s.shape, np.inf)
        line = np.searchsorted(self._corners, work_s)
        seconds: FloatArray = self.slope[line] * work_s + self.constant_s[line]
        return seconds

    @property
    def _corners(self) -> FloatArray:
        """Work from which on the next line is the least, shape (lines - 1,)."""
        corners: FloatArray = np.diff(self.constant_s) / -np.diff(self.slope)
        return corners


def least_iterations(plans: ShapePlans, memory_bytes: float) -> LeastIterations:
    """Of the ``plans`` that fit in ``memory_bytes``; of those on the envelope that is made sure of, some times over."""
    idle = ConfigurationPlans(plans, _no_work(plans), 0, memory_bytes)
    constant_s, slope = idle.bounds_s, _slopes(plans)
    constant_s[plans.relaxed_bytes > memory_bytes * (1.0 + ROUNDING)] = np.inf
    order = _in_order(slope, constant_s)
    order = order[np.isfinite(constant_s[order])]
    for _ in range(MOST_ROUNDS):
        corners = order[_envelope(slope[order], constant_s[order])]
        unfit = [place for place in corners.tolist() if not plans.may_fit(place, memory_bytes)]
        if not unfit:
            break
        order = order[~np.isin(order, unfit)]
    return _lowest(slope[order], constant_s[order])


def least_of(several: Sequence[LeastIterations]) -> LeastIterations:
    """The least of all lines of ``several``."""
    slope, constant_s = (np.concatenate([getattr(each, name) for each in several]) for name in ("slope", "constant_s"))
    order = _in_order(slope, constant_s)
    return _lowest(slope[order], constant_s[order])


def _in_order(slope: FloatArray, constant_s: FloatArray) -> IntArray:
    """Places of lines by falling slope, of equal ones by rising constant."""
    return np.lexsort((constant_s, -slope))


def _lowest(slope: FloatArray, constant_s: FloatArray) -> LeastIterations:
    """The least of lines in this order."""
    corners = _envelope(slope, constant_s)
    return LeastIterations(slope[corners], constant_s[corners])


def _slopes(plans: ShapePlans) -> FloatArray:
    """How much each plan takes at least of a second of work, shape (plans,)."""
    pp, count = plans.plans.pp.astype(np.float64), plans.plans.micro_batches.astype(np.float64)
    outnumber = 1.0 + (count - 1.0) / np.where(count > pp, pp, 2.0 * pp)
    slopes = np.where(plans.interleaved, np.maximum(count / pp, 1.0), np.where(pp == 1.0, count, outnumber))
    return np.asarray(slopes, dtype=np.float64)


def _no_work(plans: ShapePlans) -> LayerCosts:
    """Costs of hardware that takes no time."""
    nothing = np.zeros((1, len(plans.sizes.parameters)))
    idle = PassCosts.of_total(nothing)
    return LayerCosts(plans.graph, plans.plans.shape.recompute, plans.sizes, idle, idle, idle, nothing)


@outer
def _envelope(slope: FloatArray, constant_s: FloatArray) -> IntArray:
    """Places of the lines that are the least of all somewhere; lines by falling slope, of equal ones by rising constant."""
    kept = np.empty(len(slope), np.int64)
    count = 0
    for line in range(len(slope) - 1, -1, -1):  # a steeper line is of use only where it starts below all that are less steep
        if count > 0 and slope[line] == slope[kept[count - 1]] and constant_s[line] <= constant_s[kept[count - 1]]:
            count -= 1
        if count > 0 and constant_s[line] >= constant_s[kept[count - 1]]:
            continue
        while count > 1:
            near, far = kept[count - 1], kept[count - 2]
            with_far = (constant_s[far] - constant_s[line]) * (slope[line] - slope[near])
            with_near = (constant_s[near] - constant_s[line]) * (slope[line] - slope[far])
            if with_far > with_near:
                break
            count -= 1
        kept[count] = line
        count += 1
    return kept[:count][::-1].copy()
