"""Graphs of other micro-batch sizes from two that were traced.

Where the operators stay the same, every number of a training graph (elements, bytes, rows of
products) is affine in the micro-batch size: shapes are products with it, or without. So two graphs
fix the law of all others; a third one shows whether a model follows it. What is a maximum, the
workspace, is taken of numbers that each follow the law (``LayerGraph.live_bytes``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from GraphExtractor.graph import ModelGraph
from phaze_common.array_types import IntArray


@dataclass(frozen=True)
class SizeLaw:
    """The law through the graph ``low`` and one with a micro-batch of ``span`` samples more."""

    low: ModelGraph
    numbers: IntArray  # of low, in the order of its fields
    steps: IntArray  # what they grow by over the span
    span: int

    @classmethod
    def through(cls, low: ModelGraph, high: ModelGraph) -> SizeLaw | None:
        """The law; None where the graphs have other operators."""
        (form, first), (same, second) = _taken_apart(low), _taken_apart(high)
        if form != same:
            return None
        numbers = np.array(first, np.int64)
        span = high.key.micro_batch_size - low.key.micro_batch_size
        return cls(low, numbers, np.array(second, np.int64) - numbers, span)

    def at(self, micro_batch_size: int) -> ModelGraph | None:
        """The graph of another size; None where a number would not be whole."""
        more, rest = np.divmod(
            self.steps * (micro_batch_size - self.low.key.micro_batch_size), self.span
        )
        if rest.any():
            return None
        made: ModelGraph = _put_together(self.low, iter((self.numbers + more).tolist()))
        return replace(made, key=replace(self.low.key, micro_batch_size=micro_batch_size))

    def holds_for(self, traced: ModelGraph) -> bool:
        """Whether a graph that was traced is what the law says of its size."""
        found = self.at(traced.key.micro_batch_size)
        return found is not None and _taken_apart(found) == _taken_apart(traced)


def _taken_apart(graph: ModelGraph) -> tuple[list[Any], list[int]]:
    """All that a graph is but its numbers, and these; without its key."""
    form: list[Any] = []
    numbers: list[int] = []

    def take(value: Any) -> None:
        if type(value) is int:
            form.append(int)
            numbers.append(value)
        elif isinstance(value, tuple):
            form.append(len(value))
            for each in value:
                take(each)
        elif is_dataclass(value):
            kind: Any = type(value)
            form.append(kind)
            for name in _names(kind):
                take(getattr(value, name))
        else:
            form.append(value)

    take(graph)
    return form, numbers


def _put_together(value: Any, numbers: Iterator[int]) -> Any:
    """``value`` with its numbers in order."""
    if type(value) is int:
        return next(numbers)
    if isinstance(value, tuple):
        return tuple(_put_together(each, numbers) for each in value)
    if not is_dataclass(value):
        return value
    kind: Any = type(value)
    parts = {name: _put_together(getattr(value, name), numbers) for name in _names(kind)}
    return replace(value, **parts)  # type: ignore[type-var]


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """Fields of a record that a law is about."""
    return tuple(each.name for each in fields(kind) if each.name != "key")
