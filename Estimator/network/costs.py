"""What a collective costs by each of its algorithms: a fixed time, and a time for every byte."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from GraphExtractor.graph import CollectiveKind
from phaze_common.array_types import BoolArray, FloatArray

MOST_ALGORITHMS = 6  # of a collective on any cluster
FROM_ONE_OR_TO_ONE = (CollectiveKind.BROADCAST, CollectiveKind.REDUCE)

Payload = TypeVar("Payload", float, FloatArray)


@dataclass(frozen=True)
class AlgorithmCost:
    """Seconds of a collective over one group by one algorithm: ``fixed_s + per_byte_s * bytes of
    the whole tensor``."""

    algorithm: str
    fixed_s: float
    per_byte_s: float

    def seconds(self, payload_bytes: Payload) -> Payload:
        """Seconds for ``payload_bytes`` bytes, a number or an array, none of them 0 (nothing is
        sent then)."""
        return self.fixed_s + self.per_byte_s * payload_bytes


@dataclass(frozen=True, eq=False)
class AlgorithmCosts:
    """The same for N groups: ``fixed_s`` and ``per_byte_s`` of shape (N,), infinite where a group
    cannot use the algorithm."""

    algorithm: str
    fixed_s: FloatArray
    per_byte_s: FloatArray

    def where(self, usable: BoolArray) -> AlgorithmCosts:
        """The algorithm for the groups that can use it; ``usable`` has shape (N,)."""
        return AlgorithmCosts(
            self.algorithm,
            np.where(usable, self.fixed_s, np.inf),
            np.where(usable, self.per_byte_s, np.inf),
        )

    def twice(self) -> AlgorithmCosts:
        """The algorithm run twice."""
        return AlgorithmCosts(self.algorithm, 2 * self.fixed_s, 2 * self.per_byte_s)


@dataclass(frozen=True, eq=False)
class CollectiveCosts:
    """The algorithms of a collective over N groups of devices.

    ``fixed_s`` and ``per_byte_s`` have shape (algorithms, N); they are infinite where a group
    cannot use an algorithm, and zero for groups of one device.
    """

    algorithms: tuple[str, ...]
    fixed_s: FloatArray
    per_byte_s: FloatArray

    @staticmethod
    def of(costs: Sequence[AlgorithmCosts], alone: BoolArray) -> CollectiveCosts:
        """The algorithms ``costs`` side by side, where any group can use them; the groups ``alone``
        have one device."""
        usable = [cost for cost in costs if np.isfinite(cost.fixed_s).any()]
        shape = (len(usable), len(alone))  # where there are no groups too
        fixed_s, per_byte_s = (
            np.array([getattr(cost, name) for cost in usable]).reshape(shape)
            for name in ("fixed_s", "per_byte_s")
        )
        fixed_s[:, alone], per_byte_s[:, alone] = 0.0, 0.0
        return CollectiveCosts(tuple(cost.algorithm for cost in usable), fixed_s, per_byte_s)

    def seconds(self, payload_bytes: FloatArray) -> FloatArray:
        """Seconds of the fastest algorithm for each group and its payload, of shape (N,) or (...,
        N); 0 where that is 0."""
        sent = np.asarray(payload_bytes, dtype=np.float64)
        # infinitely many seconds for each of no bytes are undefined
        some = np.where(sent > 0, sent, 1.0)
        fastest = np.full(np.broadcast_shapes(sent.shape, self.fixed_s.shape[1:]), np.inf)
        for fixed_s, per_byte_s in zip(self.fixed_s, self.per_byte_s, strict=True):
            np.minimum(fastest, fixed_s + per_byte_s * some, out=fastest)
        return np.where(sent > 0, fastest, 0.0)

    def of_group(self, group: int) -> tuple[AlgorithmCost, ...]:
        """The algorithms that the group of this number can use."""
        fixed_s, per_byte_s = self.fixed_s[:, group].tolist(), self.per_byte_s[:, group].tolist()
        costs = zip(self.algorithms, fixed_s, per_byte_s, strict=True)
        return tuple(AlgorithmCost(*cost) for cost in costs if math.isfinite(cost[1]))
