"""Pareto dominance over (throughput up, area down, energy down)."""

# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from Plans.compiled import outer

Values = NDArray[np.float64]  # (points, 3): throughput, -area, -energy, so that larger is better everywhere


def better_is_larger(throughput: NDArray[np.float64], area: NDArray[np.float64], energy: NDArray[np.float64]) -> Values:
    """Stack three objectives so that larger is better in each."""
    return np.ascontiguousarray(np.stack([throughput, -area, -energy], axis=1))


def nondominated(values: Values) -> NDArray[np.bool_]:
    """Mask of the points no other point dominates. Of equal points the first stays."""
    order = np.lexsort((np.arange(len(values)), -values[:, 2], -values[:, 1], -values[:, 0]))
    mask = np.zeros(len(values), dtype=np.bool_)
    mask[order] = _front_of_sorted(np.ascontiguousarray(values[order]))
    return mask


def dominated_by(values: Values, front: Values) -> NDArray[np.bool_]:
    """Mask of the points that some point of ``front`` equals or exceeds in every objective."""
    mask: NDArray[np.bool_] = _dominated(values, np.ascontiguousarray(front[np.argsort(-front[:, 0], kind="stable")]))
    return mask


@outer
def _front_of_sorted(values: Values) -> NDArray[np.bool_]:
    """Sorted by the first objective, only earlier points can dominate later ones."""
    count = values.shape[0]
    keep = np.zeros(count, dtype=np.bool_)
    front = np.empty((count, 2))
    size = 0
    for point in range(count):
        dominated = False
        for member in range(size):
            if front[member, 0] >= values[point, 1] and front[member, 1] >= values[point, 2]:
                dominated = True
                break
        if not dominated:
            keep[point] = True
            front[size, 0] = values[point, 1]
            front[size, 1] = values[point, 2]
            size += 1
    return keep


@outer
def _dominated(values: Values, front: Values) -> NDArray[np.bool_]:
    mask = np.zeros(values.shape[0], dtype=np.bool_)
    for point in range(values.shape[0]):
        for member in range(front.shape[0]):
            if front[member, 0] < values[point, 0]:
                break
            if front[member, 1] >= values[point, 1] and front[member, 2] >= values[point, 2]:
                mask[point] = True
                break
    return mask
