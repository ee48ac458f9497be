"""Scores of attention that a mask leaves: how many, and the FLOPs of those it leaves out.

Published FLOPs of training follow one of two conventions. One counts all scores, as if attention were not causal (Chowdhery et
al. 2022, appendix B; Korthikanti et al. 2022, appendix A): ``Operator.flops``. The other counts those that the mask leaves (Dao
2023, section 4.1): that without ``masked_flops``.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from GraphExtractor.graph import LayerGraph, Operator, OperatorKind


@dataclass(frozen=True)
class ScoreMask:
    """A mask of ``rows`` x ``columns`` scores: ``causal`` and ``window`` as ``Operator`` has them.

    Rows that are fewer than the columns they divide are the part of one of so many devices, each with as many of the early and
    of the late rows (zig-zag), so that each has its share of the scores of the whole square.
    """

    rows: int
    columns: int
    causal: bool
    window: int | None

    @property
    def devices(self) -> int:
        """How many devices share the rows of the square."""
        return self.columns // self.rows

    @property
    def before(self) -> int:
        """Columns before its own that a row sees at most."""
        return self.columns - 1 if self.window is None else min(self.window, self.columns - 1)

    @property
    def behind(self) -> int:
        """Columns behind its own that a row sees at most."""
        return 0 if self.causal else self.before

    @property
    def left(self) -> int:
        """Scores of one device that the mask leaves, rounded up."""
        square = self.columns + self._reached(self.before) + self._reached(self.behind)
        return -(-square // self.devices)

    def _reached(self, most: int) -> int:
        """Sum over the rows of the columns on one side of their own, ``most`` at most."""
        return most * (most + 1) // 2 + (self.columns - 1 - most) * most

    @property
    def share(self) -> float:
        """Part of all scores that the mask leaves."""
        return self.left / (self.rows * self.columns)


def mask_of(operator: Operator) -> ScoreMask | None:
    """The mask of fused attention; None where all scores are left, or it is no fused attention."""
    if operator.kind is not OperatorKind.ATTENTION or not (operator.causal or operator.window is not None):
        return None
    scores = operator.gemms[0]
    return score_mask(scores.m, scores.n, operator.causal, operator.window)


def score_mask(rows: int, columns: int, causal: bool, window: int | None) -> ScoreMask | None:
    """The mask of so many scores; None where all are left, or where it is no square that devices share."""
    if columns % rows or not (causal or window is not None):
        return None
    return ScoreMask(rows, columns, causal, window)


def masked_flops(operators: Iterable[Operator], sequence_length: int) -> int:
    """FLOPs of the matrix products that are those of scores that masks leave out, whether or not a kernel computes them.

    ``sequence_length`` is that of the rows of causal attention in separate products, whose shapes do not tell.
    """
    return sum(_masked(operator, sequence_length) for operator in operators)


def _masked(operator: Operator, sequence_length: int) -> int:
    mask = mask_of(operator)
    if mask is None and operator.causal and operator.core_attention and operator.kind is OperatorKind.GEMM:
        mask = ScoreMask(sequence_length, sequence_length, True, operator.window)
    return 0 if mask is None else operator.flops - operator.flops * mask.left // (mask.rows * mask.columns)


def masked_scores(layers: Iterable[LayerGraph]) -> str:
    """Whether the FLOPs of ``layers`` count the scores that masks leave out, and whether attention computes those."""
    attention = [each for layer in layers for each in layer.forward.operators if each.core_attention and each.gemms]
    if not any(each.causal or each.window is not None for each in attention):
        return "none" if attention else "no attention"
    skipped = any(mask_of(each) is not None for each in attention)
    return "counted, skipped by the kernel" if skipped else "counted and computed"
