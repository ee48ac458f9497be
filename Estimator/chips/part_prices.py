"""Prices of operators on chips from those of their parts
(``Estimator.chips.signatures.OperatorSignature``).

An operator takes as long as the slower of its products and its vector work, whose tiles are
pipelined, a recurrence as long as both, which take turns. With ``w`` seconds of products that move
what their tail does too, ``v`` of the tail's vector work, ``t`` of the products alone and ``h`` of
the tail's traffic alone, a product in n panels whose tail waits for the last of them takes

    (n - 1)/n t + max(w/n + (n - 1)/n h, v)

seconds, which is ``max(w, v)`` for one panel: the last one moves its part of the operands and all
of the tail's. Around a ring the merging of pieces comes on top. Beside the network run the panels
alone, n-th parts of ``t``, or the pieces with their merging.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from Estimator.chips.accelerator import AcceleratorSet
from Estimator.chips.signatures import DistinctWork, operator_signature
from Estimator.cost_model import PieceTimes
from GraphExtractor.graph import OperatorGraph
from phaze_common.array_types import FloatArray, IntArray
from phaze_common.errors import InputError


@dataclass(frozen=True, eq=False)
class Lookup:
    """Where the parts of a graph's operators are among distinct work, -1 for none: arrays of shape
    (operators,).

    The cores of some accelerators are ``tc_index`` and ``vc_index`` among distinct ones, arrays of
    shape (accelerators,).
    """

    tensor: IntArray
    element: IntArray
    product: IntArray
    tail: IntArray
    merges: IntArray
    recurrent: NDArray[np.bool_]  # whose halves wait for each other in every step
    ring: IntArray  # devices around a ring of which it has a piece each, 1 without one
    tc_index: IntArray
    vc_index: IntArray

    @staticmethod
    def of(
        graph: OperatorGraph,
        work: DistinctWork,
        accelerators: AcceleratorSet,
        rows: IntArray | slice,
    ) -> Lookup:
        """Those of ``graph`` and of the accelerators ``rows``.

        Raises:
            InputError: ``work`` has not all of its parts.
        """
        signatures = [operator_signature(operator) for operator in graph.operators]
        return Lookup(
            _positions(work.tensor, [each.tensor for each in signatures]),
            _positions(work.element, [each.element for each in signatures]),
            _positions(work.tensor, [each.product for each in signatures]),
            _positions(work.element, [each.tail for each in signatures]),
            _positions(work.element, [each.merges for each in signatures]),
            np.array(
                [any(gemm.dependent for gemm in operator.gemms) for operator in graph.operators],
                dtype=np.bool_,
            ),
            np.array([operator.ring for operator in graph.operators], dtype=np.int64),
            accelerators.tc_index[rows],
            accelerators.vc_index[rows],
        )


def _positions(known: Sequence[object], wanted: Sequence[object]) -> IntArray:
    """Index of each wanted work among the known, -1 for None."""
    index = {work: position for position, work in enumerate(known)}
    missing = next((work for work in wanted if work is not None and work not in index), None)
    if missing is not None:
        raise InputError(
            f"the latency table has no price for {missing}; populate it with the graph that is "
            "looked up"
        )
    return np.array([-1 if work is None else index[work] for work in wanted], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Priced:
    """One quantity of all distinct work: ``tensor`` of shape (works, tensor cores), ``vector`` of
    shape (works, vector cores)."""

    tensor: FloatArray
    vector: FloatArray


@dataclass(frozen=True, eq=False)
class Parts:
    """One quantity of operators on one core or on all, arrays of shape (operators, accelerators), 0
    where there is no such part.

    ``products`` are those of the last panel, or all, beside which is ``vector`` work; ``besides``
    comes before them or behind, of no operator where it is None.
    """

    products: FloatArray
    vector: FloatArray
    besides: FloatArray | None

    @staticmethod
    def of(priced: Priced, at: Lookup, panels: int) -> Parts:
        """What ``at`` finds in ``priced``, products of 2D layouts in so many ``panels``."""
        products = _found(priced.tensor, at.tensor, at.tc_index)
        vector = _found(priced.vector, at.element, at.vc_index)
        waits = np.flatnonzero(at.product >= 0) if panels > 1 else np.zeros(0, np.int64)
        if not len(waits) and (at.merges < 0).all():
            return Parts(products, vector, None)
        besides = _found(priced.vector, at.merges, at.vc_index)
        if len(waits):
            tail = _found(priced.vector, at.tail[waits], at.vc_index)
            products[waits] = (products[waits] + (panels - 1) * tail) / panels
            besides[waits] = (
                (panels - 1) / panels * _found(priced.tensor, at.product[waits], at.tc_index)
            )
        return Parts(products, vector, besides)

    def joined(self, at: Lookup, longer: NDArray[np.bool_] | None = None) -> FloatArray:
        """That of whole operators: the larger one of products and vector work, or that which is
        ``longer``, and ``besides``."""
        either: FloatArray = (
            np.maximum(self.products, self.vector)
            if longer is None
            else np.where(longer, self.vector, self.products)
        )
        either[at.recurrent] = self.products[at.recurrent] + self.vector[at.recurrent]
        return self._with_besides(either)

    def summed(self) -> FloatArray:
        """All parts together, however they are put together."""
        return self._with_besides(self.products + self.vector)

    def _with_besides(self, found: FloatArray) -> FloatArray:
        if self.besides is not None:
            found += self.besides
        return found


def piece_times(seconds: Priced, at: Lookup, panels: int) -> PieceTimes[FloatArray]:
    """Seconds of the pieces beside which the network runs, shape (accelerators, operators); of
    others they mean nothing."""
    alone = _found(seconds.tensor, np.where(at.product >= 0, at.product, at.tensor), at.tc_index)
    vector = _found(seconds.vector, at.element, at.vc_index)
    merges = _found(seconds.vector, at.merges, at.vc_index)
    ring = at.ring[:, None]
    first_s = np.where(ring > 1, np.maximum(alone, vector) / ring, alone / panels)
    return PieceTimes(first_s.T, (first_s + merges / np.maximum(ring - 1, 1)).T)


def _found(prices: FloatArray, where: IntArray, cores: IntArray) -> FloatArray:
    """Prices of work on cores, 0 for the work -1; shape (work, cores)."""
    found = np.zeros((len(where), len(cores)))
    found[where >= 0] = prices[where[where >= 0]][:, cores]
    return found
