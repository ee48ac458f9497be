"""Pareto dominance over criteria of which more is better: throughput, and less area, energy, power,
money or carbon."""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from Estimator.compiled import outer

# (points, criteria), the first of which is throughput; larger is better everywhere
Values = NDArray[np.float64]


def better_is_larger(
    throughput: NDArray[np.float64], *smaller_is_better: NDArray[np.float64]
) -> Values:
    """Stack objectives so that larger is better in each."""
    return np.ascontiguousarray(
        np.stack([throughput, *(-each for each in smaller_is_better)], axis=1)
    )


def nondominated(values: Values) -> NDArray[np.bool_]:
    """Mask of the points no other point dominates. Of equal points the first stays."""
    order = np.lexsort(
        (
            np.arange(len(values)),
            *(-values[:, column] for column in reversed(range(values.shape[1]))),
        )
    )
    mask = np.zeros(len(values), dtype=np.bool_)
    mask[order] = _front_of_sorted(np.ascontiguousarray(values[order]))
    return mask


def dominated_by(values: Values, front: Values) -> NDArray[np.bool_]:
    """Mask of the points that some point of ``front`` equals or exceeds in every objective."""
    mask: NDArray[np.bool_] = _dominated(
        values, np.ascontiguousarray(front[np.argsort(-front[:, 0], kind="stable")])
    )
    return mask


@outer
def _front_of_sorted(values: Values) -> NDArray[np.bool_]:
    """Sorted by the first objective, only earlier points can dominate later ones."""
    count, criteria = values.shape
    keep = np.zeros(count, dtype=np.bool_)
    front = np.empty(count, dtype=np.int64)
    size = 0
    for point in range(count):
        dominated = False
        for member in range(size):
            dominated = True
            for criterion in range(1, criteria):
                if values[front[member], criterion] < values[point, criterion]:
                    dominated = False
                    break
            if dominated:
                break
        if not dominated:
            keep[point] = True
            front[size] = point
            size += 1
    return keep


@outer
def _dominated(values: Values, front: Values) -> NDArray[np.bool_]:
    mask = np.zeros(values.shape[0], dtype=np.bool_)
    for point in range(values.shape[0]):
        for member in range(front.shape[0]):
            if front[member, 0] < values[point, 0]:
                break
            dominated = True
            for criterion in range(1, front.shape[1]):
                if front[member, criterion] < values[point, criterion]:
                    dominated = False
                    break
            if dominated:
                mask[point] = True
                break
    return mask
