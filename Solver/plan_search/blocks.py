"""The layers between embedding and head by kind: a stage is told by how many of each it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from Plans.layer_costs import NOTHING, LayerCost, PassCost

IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Blocks:
    """``before[i]`` counts the blocks of each of ``kinds`` before the i-th, shape (blocks + 1, kinds)."""

    kinds: tuple[LayerCost, ...]
    before: IntArray

    @property
    def count(self) -> int:
        """Blocks in all."""
        return len(self.before) - 1

    def runs(self, length: int) -> IntArray:
        """How many of each kind ``length`` consecutive blocks may have, shape (ways, kinds)."""
        ways: IntArray = np.unique(self.before[length:] - self.before[: len(self.before) - length], axis=0)
        return ways

    def through(self, numbers: IntArray, part: Callable[[LayerCost], PassCost]) -> PassCost:
        """One pass, of which ``part`` is taken, through as many blocks of each kind as ``numbers`` says."""
        total = NOTHING
        for kind, number in zip(self.kinds, numbers.tolist(), strict=True):
            total += part(kind).times(number)
        return total


def blocks_of(costs: Sequence[LayerCost]) -> Blocks:
    """The blocks of a model: its layers without the first and the last, or all of them where there are no others."""
    middle = costs[1:-1] or costs
    kinds: dict[int, int] = {}
    order = [kinds.setdefault(id(cost), len(kinds)) for cost in middle]  # equal layers share their cost
    before = np.zeros((len(middle) + 1, len(kinds)), dtype=np.int64)
    before[1:] = np.cumsum(np.eye(len(kinds), dtype=np.int64)[order], axis=0)
    return Blocks(tuple(middle[order.index(kind)] for kind in range(len(kinds))), before)
