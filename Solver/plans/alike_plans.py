"""Plans alike but for what their replicas cost, of which a search closes many at once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from phaze_common.array_types import FloatArray, IntArray

FEWEST = 8  # plans that are worth a proof of their own
AT_FIRST = 16
GROWTH = 4


class Proof(Enum):
    """What is known of plans together: none beats its incumbent, or one may; or it takes too
    long."""

    CLOSED = auto()
    OPEN = auto()
    TOO_LONG = auto()


@dataclass(frozen=True, eq=False)
class Together:
    """What is known of plans together, none of which is below its ``bounds_s`` (rows,), infinite
    where none beats its incumbent."""

    proof: Proof
    bounds_s: FloatArray


class AlikePlans:
    """Plans ``rows`` by class, ``classes`` (rows,), in an order in which neighbours cost about the
    same, ``places`` (rows,); and how many of a class are to be closed together next.

    Those are more where the last ones could be closed, else fewer: a class without a plan that is
    of use takes few proofs, and one with such plans hardly more than plan by plan. Both are told
    apart at each of ``levels``."""

    def __init__(self, rows: IntArray, classes: IntArray, places: IntArray) -> None:
        order = np.lexsort((places, classes))
        self._rows = rows[order]
        self._ends = np.append(np.flatnonzero(np.diff(classes[order], prepend=-1)), len(rows))
        self._place = {row: place for place, row in enumerate(self._rows.tolist())}
        self._at_once: dict[tuple[int, int], int] = {}

    def most_promising(self, bounds_s: FloatArray) -> IntArray:
        """Of every class that is worth a proof the plan of the least of ``bounds_s`` (plans,),
        those with less first."""
        starts = self._ends[:-1][np.diff(self._ends) >= FEWEST]
        ends = self._ends[1:][np.diff(self._ends) >= FEWEST]
        of_classes = [self._rows[first:end] for first, end in zip(starts, ends, strict=True)]
        best = np.array([rows[bounds_s[rows].argmin()] for rows in of_classes], np.int64)
        return best[np.argsort(bounds_s[best], kind="stable")]

    def around(self, index: int, level: int, waiting: IntArray) -> IntArray:
        """Those to be closed with plan ``index``, of ``waiting`` ones ``like`` it, in order; none:
        it alone."""
        key = self._class(index), level
        at_once = self._at_once.get(key, AT_FIRST)
        count = min(at_once, len(waiting))
        if count < FEWEST:
            self._at_once[key] = 2 * at_once
            return waiting[:0]
        low = int(np.flatnonzero(waiting == index)[0]) - count // 2
        low = max(min(low, len(waiting) - count), 0)
        return waiting[low : low + count]

    def like(self, index: int) -> IntArray:
        """All of the class of plan ``index``, in order."""
        number = self._class(index)
        return self._rows[self._ends[number] : self._ends[number + 1]]

    def learn(self, index: int, level: int, proof: Proof) -> None:
        """What came of those ``around`` plan ``index``."""
        key = self._class(index), level
        at_once = self._at_once.get(key, AT_FIRST)
        after = {Proof.CLOSED: at_once * GROWTH, Proof.OPEN: max(at_once // GROWTH, 1)}
        self._at_once[key] = after.get(proof, 0)

    def _class(self, index: int) -> int:
        return int(np.searchsorted(self._ends, self._place[index], side="right")) - 1
