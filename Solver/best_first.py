"""Best first over a finite set of candidates under nested bounds: one loop for plans, points and
chips.

Every candidate waits at one *level*, which bounds its value from above and can refine it: by a
tighter bound, after which the candidate waits at a later level, or by evaluating it. The candidate
with the highest bound is refined next, of equal bounds at the later level and of the lower index,
until no bound reaches what the incumbent asks for. So whatever is not evaluated in the end is no
better than the incumbent, and the bounds that are left are the certificate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from phaze_common.array_types import FloatArray, IntArray

PROVEN = 1e-9  # relative gap below which a value is said to be proven
ROUNDING = 1e-12  # relative: a bound this close to a value may belong to an equally good candidate


class Level(Protocol):
    """A bound of the candidates that wait for one kind of refinement."""

    @property
    def deferred(self) -> bool:
        """Whether a candidate is refined here only once no other level has one that matters."""

    def bound(self, candidates: IntArray) -> FloatArray:
        """What none of the ``candidates`` exceeds, (candidates,); -inf: one does not wait here."""

    def refine(self, candidates: IntArray) -> int:
        """Know more of the ``candidates``, the most promising first; returns how many evaluations
        that took."""


class Once:
    """A level of candidates that are evaluated, each once, by ``evaluate``, which may lower their
    bounds ``upper`` (candidates,)."""

    deferred = False

    def __init__(self, upper: FloatArray, evaluate: Callable[[IntArray], None]) -> None:
        self._upper, self._evaluate = upper, evaluate
        self._waits = np.ones(len(upper), np.bool_)

    def bound(self, candidates: IntArray) -> FloatArray:
        """Those of the candidates that are not evaluated."""
        return np.where(self._waits[candidates], self._upper[candidates], -np.inf)

    def refine(self, candidates: IntArray) -> int:
        """Evaluate ``candidates`` together."""
        self._waits[candidates] = False
        self._evaluate(candidates)
        return 1


@dataclass(frozen=True)
class BestFirstProof:
    """What a search took and left: no candidate that still waits exceeds ``open_bound`` (-inf: none
    waits).

    ``refined`` counts candidates by level, ``complete`` says that none that waits matters.
    """

    refined: tuple[int, ...]
    open_bound: float
    complete: bool


def best_first(
    candidates: IntArray,
    levels: Sequence[Level],
    incumbent: Callable[[], float],
    *,
    at_once: int = 1,
    growth: int = 1,
    most_evaluations: float = math.inf,
) -> BestFirstProof:
    """Refine ``candidates``, ``at_once`` together, as long as a bound reaches ``incumbent()``.

    ``incumbent`` is asked anew in every round, and so are the bounds: refining one candidate may
    tighten those of others. ``growth`` times as many are refined together in every next round.
    After ``most_evaluations`` the search gives up.
    """
    refined, evaluations = [0] * len(levels), 0
    if not len(candidates):
        return BestFirstProof(tuple(refined), -math.inf, complete=True)
    while True:
        bounds = [level.bound(candidates) for level in levels]
        first = [each.argmax() for each in bounds]
        highest = [float(each[place]) for each, place in zip(bounds, first, strict=True)]
        least = incumbent()
        matter = [place for place, most in enumerate(highest) if most >= least and most > -math.inf]
        if not matter or evaluations >= most_evaluations:
            return BestFirstProof(tuple(refined), max(highest, default=-math.inf), not matter)
        place = max(matter, key=lambda each: (not levels[each].deferred, highest[each], each))
        if at_once == 1:
            chosen = np.array([first[place]])
        else:
            chosen = _highest(bounds[place], at_once)
            chosen = chosen[bounds[place][chosen] >= least]
        evaluations += levels[place].refine(candidates[chosen])
        refined[place] += len(chosen)
        at_once *= growth


def _highest(bounds: FloatArray, count: int) -> IntArray:
    """Places of the ``count`` highest bounds in falling order, of equal ones the first."""
    places: IntArray = np.argsort(-bounds, kind="stable")[:count]
    return places[bounds[places] > -math.inf]
