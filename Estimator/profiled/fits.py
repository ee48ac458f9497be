"""Seconds of operators that were not measured, from those of their kind that were.

``work_s`` says how much an operator has to do: its products at the best measured rate, its operands
at the measured bandwidth, one after the other. Within a family (the same kind, pass and functions)
seconds grow with the work: between two measured sizes they are interpolated in logarithms of both,
beyond them a line ``a + b * work`` of the least relative error goes on from there. Families that
were not measured are taken for the nearest wider one that was, by its line alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from Estimator.profiled.rows import OperatorRow
from GraphExtractor.graph import Operator, OperatorKind
from GraphExtractor.score_mask import mask_of
from phaze_common.array_types import FloatArray

PRODUCTS = frozenset({OperatorKind.GEMM, OperatorKind.CONV, OperatorKind.ATTENTION})
DIGITS = 12  # of the logarithm of work that two sizes share


class Family(NamedTuple):
    """What operators have in common; None where it does not matter. The first is the narrowest."""

    products: bool
    kind: str | None = None
    phase: str | None = None
    detail: tuple[object, ...] | None = None


@dataclass(frozen=True)
class Rates:
    """What the work of operators is measured by: the best rates that were seen, of bytes in arrays
    of ``long_bytes`` and more."""

    flops_per_s: float
    bytes_per_s: float
    long_bytes: float = math.inf

    def work_s(self, operator: Operator) -> float:
        """Seconds at these rates: products, half of those that a causal mask hides left out, and
        all operands."""
        return self.arithmetic_s(operator) + self._bytes(operator) / self.bytes_per_s

    def least_s(self, operator: Operator) -> float:
        """What nothing goes below that was not measured itself; what fits in a cache may beat the
        bandwidth."""
        moved = self._bytes(operator)
        return max(
            self.arithmetic_s(operator),
            moved / self.bytes_per_s if moved >= self.long_bytes else 0.0,
        )

    @staticmethod
    def _bytes(operator: Operator) -> int:
        return operator.bytes_read + operator.bytes_written

    def arithmetic_s(self, operator: Operator) -> float:
        """Seconds of the products alone."""
        mask = mask_of(operator)
        return operator.flops * (1.0 if mask is None else mask.share) / self.flops_per_s


@dataclass(frozen=True, eq=False)
class SizeFit:
    """Seconds over work of one family: ``work_s`` ascending and ``seconds`` not falling, of shape
    (sizes,), and its line."""

    work_s: FloatArray
    seconds: FloatArray
    fixed_s: float
    per_work: float

    @staticmethod
    def of(work_s: Sequence[float], seconds: Sequence[float]) -> SizeFit:
        """The fit to measurements, at least one."""
        from scipy.optimize import isotonic_regression, nnls

        works, times = np.array(work_s), np.array(seconds)
        (fixed_s, per_work), _ = nnls(
            np.stack([1 / times, works / times], axis=1), np.ones(len(times))
        )
        # one size says nothing of others
        if per_work == 0 or len(set(np.round(np.log(works), DIGITS))) < 2:
            fixed_s, per_work = 0.0, float(np.exp(np.mean(np.log(times / works))))
        order = np.unique(np.round(np.log(works), DIGITS), return_inverse=True)
        logs = np.array(
            [np.mean(np.log(times[order[1] == index])) for index in range(len(order[0]))]
        )
        rising = isotonic_regression(logs).x
        return SizeFit(np.exp(order[0]), np.exp(rising), float(fixed_s), float(per_work))

    def line_s(self, work_s: float) -> float:
        """The line alone."""
        return self.fixed_s + self.per_work * work_s

    def holds(self, work_s: float) -> bool:
        """Whether some measured size is as small, and some as large."""
        slack = 10.0 ** (1 - DIGITS)
        return bool(self.work_s[0] * (1 - slack) <= work_s <= self.work_s[-1] * (1 + slack))

    def seconds_at(self, work_s: float) -> float:
        """Between measured sizes, and beyond them."""
        first, last = float(self.work_s[0]), float(self.work_s[-1])
        if work_s <= first:
            return float(self.seconds[0]) * self.line_s(work_s) / self.line_s(first)
        if work_s >= last:
            return float(self.seconds[-1]) * self.line_s(work_s) / self.line_s(last)
        return float(np.exp(np.interp(np.log(work_s), np.log(self.work_s), np.log(self.seconds))))


@dataclass(frozen=True)
class Estimate:
    """Seconds of an operator that was not measured; ``between`` says that they lie between those of
    sizes that were."""

    seconds: float
    between: bool


class KindFits:
    """Fits to the rows of a database by family."""

    def __init__(self, rows: Iterable[OperatorRow], rates: Rates) -> None:
        self._rates = rates
        measured: dict[Family, list[tuple[float, float]]] = {}
        for row in rows:
            for family in families(row.operator):
                measured.setdefault(family, []).append(
                    (rates.work_s(row.operator), row.timing.seconds)
                )
        self._fits = {
            family: SizeFit.of(*zip(*points, strict=True)) for family, points in measured.items()
        }

    def estimate(self, operator: Operator) -> Estimate | None:
        """Seconds of ``operator``; None where nothing like it was measured."""
        work_s = self._rates.work_s(operator)
        narrowest, *wider = families(operator)
        fit = self._fits.get(narrowest)
        if fit is not None:
            return Estimate(fit.seconds_at(work_s), fit.holds(work_s))
        fit = next((self._fits[family] for family in wider if family in self._fits), None)
        return None if fit is None else Estimate(fit.line_s(work_s), between=False)


def families(operator: Operator) -> tuple[Family, ...]:
    """What an operator belongs to, the narrowest first; recurrences are like nothing else."""
    products, kind, phase = operator.kind in PRODUCTS, operator.kind.value, operator.phase.value
    detail = (
        operator.yields.value,
        operator.causal,
        tuple(work.function for work in operator.vector),
    )
    if operator.kind is OperatorKind.SCAN:
        return (Family(products, kind, phase, detail),)
    return (
        Family(products, kind, phase, detail),
        Family(products, kind, phase),
        Family(products, kind),
        Family(products),
    )


def held_out_errors(rows: Sequence[OperatorRow], rates: Rates) -> FloatArray:
    """Relative errors of what a fit without a row says of it, for the rows whose family has others;
    shape (rows,)."""
    errors = []
    for index, row in enumerate(rows):
        family = families(row.operator)[0]
        work_s = rates.work_s(row.operator)
        others = [
            each
            for position, each in enumerate(rows)
            if position != index
            and families(each.operator)[0] == family
            and rates.work_s(each.operator) != work_s
        ]
        if others:
            fit = SizeFit.of(
                [rates.work_s(each.operator) for each in others],
                [each.timing.seconds for each in others],
            )
            errors.append(fit.seconds_at(work_s) / row.timing.seconds - 1)
    return np.array(errors)
