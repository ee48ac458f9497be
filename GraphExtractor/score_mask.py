"""Scores of attention that a mask leaves: how many, and the FLOPs of those it leaves out.

Published FLOPs of training follow one of two conventions. One counts all scores, as if attention
were not causal (Chowdhery et al. 2022, appendix B; Korthikanti et al. 2022, appendix A):
``Operator.flops``. The other counts those that the mask leaves (Dao 2023, section 4.1): that
without ``masked_flops``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from GraphExtractor.graph import LayerGraph, Operator, OperatorKind

Span = tuple[int, int]  # first, and the one behind the last


@dataclass(frozen=True)
class ScoreMask:
    """A mask of ``rows`` x ``columns`` scores: ``causal`` and ``window`` as ``Operator`` has them.

    Rows that are fewer than the columns they divide are the part of one of so many devices. The
    sequence is cut into twice as many chunks, of which device d has the d-th from the front and the
    d-th from behind (zig-zag, as Llama 3 was trained). Under a causal mask all devices have as many
    scores; a window leaves fewer to the first rows, and without such a mask to the last.
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

    @cached_property
    def chunks(self) -> tuple[Span, ...]:
        """Rows of the device with most scores, which the others wait for: one span, or two."""
        if self.devices == 1:
            return ((0, self.rows),)
        return max(map(self.chunks_of, range(self.devices)), key=self._scores)

    def chunks_of(self, device: int) -> tuple[Span, Span]:
        """Rows of a device."""
        ends = device, device + 1, 2 * self.devices - 1 - device, 2 * self.devices - device
        first, second, third, fourth = (each * self.columns // (2 * self.devices) for each in ends)
        return (first, second), (third, fourth)

    @cached_property
    def left(self) -> int:
        """Scores that the mask leaves to the device with most of them."""
        return self._scores(self.chunks)

    @property
    def left_of_all(self) -> int:
        """Scores of the whole square that the mask leaves."""
        return self._scores_before(self.columns)

    def _scores(self, chunks: Iterable[Span]) -> int:
        return sum(self._scores_before(end) - self._scores_before(first) for first, end in chunks)

    def _scores_before(self, row: int) -> int:
        """Scores left in the rows before ``row``."""
        squares = _sum_of_least(self.columns, self.behind)
        behind = squares - _sum_of_least(self.columns - row, self.behind)
        return row + _sum_of_least(row, self.before) + behind

    @property
    def share(self) -> float:
        """Part of the scores of the device with most of them that the mask leaves."""
        return self.left / (self.rows * self.columns)


def _sum_of_least(count: int, most: int) -> int:
    """Sum of 0, 1, 2, ..., ``most`` at most, over so many."""
    rising = min(count, most)
    return rising * (rising - 1) // 2 + (count - rising) * most


def mask_of(operator: Operator) -> ScoreMask | None:
    """The mask of fused attention; None where all scores are left, or it is no fused attention."""
    masked = operator.causal or operator.window is not None
    if operator.kind is not OperatorKind.ATTENTION or not masked:
        return None
    scores = operator.gemms[0]
    return score_mask(scores.m, scores.n, operator.causal, operator.window)


def score_mask(rows: int, columns: int, causal: bool, window: int | None) -> ScoreMask | None:
    """The mask of so many scores; None where all are left, or where devices share no square."""
    if columns % rows or not (causal or window is not None):
        return None
    return ScoreMask(rows, columns, causal, window)


def masked_flops(operators: Iterable[Operator], sequence_length: int) -> int:
    """FLOPs of products whose scores masks leave out, whether or not a kernel computes them.

    Of devices that share a sequence it is the mean: FLOPs of a model do not depend on how it is
    split. ``sequence_length`` is that of the rows of causal attention in separate products, whose
    shapes do not tell.
    """
    return sum(_masked(operator, sequence_length) for operator in operators)


def _masked(operator: Operator, sequence_length: int) -> int:
    mask = mask_of(operator)
    if mask is None and operator.causal and operator.kind is OperatorKind.GEMM:
        mask = ScoreMask(sequence_length, sequence_length, True, operator.window)
    if mask is None:
        return 0
    return operator.flops - operator.flops * mask.left_of_all // mask.columns**2


def skipped_flops(operators: Iterable[Operator]) -> int:
    """Those of ``masked_flops`` that fused attention does not compute; separate products do."""
    return sum(_masked(operator, 0) for operator in operators if mask_of(operator) is not None)


def masked_scores(layers: Iterable[LayerGraph]) -> str:
    """Whether the FLOPs of ``layers`` count masked scores, and whether attention computes those."""
    attention = score_products(layers)
    if not any(each.causal or each.window is not None for each in attention):
        return "none" if attention else "no attention"
    skipped = any(mask_of(each) is not None for each in attention)
    return "counted, skipped by the kernel" if skipped else "counted and computed"


def score_products(layers: Iterable[LayerGraph]) -> list[Operator]:
    """Operators of the core attention that multiply."""
    operators = (each for layer in layers for each in layer.forward.operators)
    return [each for each in operators if each.core_attention and each.gemms]
