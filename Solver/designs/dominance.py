"""Configurations that no plan can make better than another one: worse or equal in every layer's
time, in area and in energy.

An iteration's time is monotone in the forward and the backward time of every distinct layer,
whatever the plan; memory and messages do not depend on the configuration; energy adds up over the
layers. So among the plans of one shape a configuration that another one dominates need not be
looked at. Where a schedule is not proven shortest it counts with the least time it may have."""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

import numpy as np

from Estimator.compiled import outer
from phaze_common.array_types import FloatArray, IntArray


def dominators(columns: FloatArray, least: FloatArray | None = None) -> IntArray:
    """For every row of ``columns`` (rows, criteria; smaller is better) a row that dominates it, or
    -1: shape (rows,).

    ``least`` are the values that a row can have at best, where these are not certain: only what is
    no better even so counts. Of rows that are alike the first stays."""
    best = columns if least is None else least
    order = np.lexsort((np.arange(len(columns)), columns.sum(axis=1)))
    found = np.full(len(columns), -1, dtype=np.int64)
    _fill(np.ascontiguousarray(columns), np.ascontiguousarray(best), order, found)
    return found


@outer
def _fill(columns: FloatArray, best: FloatArray, order: IntArray, found: IntArray) -> None:
    """Rows in order of their sums: what dominates a row comes before it, or its sum is the same."""
    count, criteria = columns.shape
    kept = np.empty(count, np.int64)
    size = 0
    for place in range(count):
        row = order[place]
        for member in range(size):
            other = kept[member]
            dominated = True
            for criterion in range(criteria):
                if columns[other, criterion] > best[row, criterion]:
                    dominated = False
                    break
            if dominated:
                found[row] = other
                for back in range(member, 0, -1):  # what dominates often is asked first
                    kept[back] = kept[back - 1]
                kept[0] = other
                break
        if found[row] < 0:
            kept[size] = row
            size += 1
