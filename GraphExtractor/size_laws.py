"""Graphs of other sizes from two that were traced.

Where the operators stay the same, every number of a training graph (elements, bytes, rows of
products) is affine in the micro-batch size and in the inverse of a degree of parallelism, but for
the degree itself: shapes are products with it, or without. So two graphs fix the law of all others;
a third one shows whether a model follows it. What is a maximum, the workspace, is taken of numbers
that each follow the law (``LayerGraph.live_bytes``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from fractions import Fraction
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np

from GraphExtractor.graph import GraphKey, LayerGraph, ModelGraph, Operator, OperatorGraph
from phaze_common.array_types import BoolArray, IntArray

SAMPLES = "micro_batch_size"
DEGREES = ("tp", "ep", "tp2", "cp")  # in the order in which graphs follow from others
_LARGEST = 2**62


@dataclass(frozen=True)
class SizeLaw:
    """The law through the graph ``low`` and that of another value of ``axis``, a field of keys."""

    axis: str
    low: ModelGraph
    high: GraphKey
    form: list[Any]  # all that the graphs are but numbers
    numbers: IntArray  # of low, in the order of its fields
    steps: IntArray  # what they grow by from low to high
    proportional: BoolArray  # those that are multiples of the degree

    @classmethod
    def through(cls, axis: str, low: ModelGraph, high: ModelGraph) -> SizeLaw | None:
        """The law; None where the graphs have other operators."""
        (form, first), (same, second) = _taken_apart(low), _taken_apart(high)
        if form != same:
            return None
        numbers, others = np.array(first, np.int64), np.array(second, np.int64)
        lowest, highest = getattr(low.key, axis), getattr(high.key, axis)
        grows = (numbers != 0) & (numbers * highest == others * lowest) & (axis != SAMPLES)
        return cls(axis, low, high.key, form, numbers, others - numbers, grows)

    def at(self, value: int) -> ModelGraph | None:
        """The graph of another value; None where a number would not be whole."""
        found = self._numbers_at(value)
        if found is None:
            return None
        return _put_together(self.form, found, with_size(self.low.key, self.axis, value))

    def _numbers_at(self, value: int) -> list[int] | None:
        low, high = getattr(self.low.key, self.axis), getattr(self.high, self.axis)
        way = Fraction(value - low, high - low)
        if self.axis != SAMPLES:
            way *= Fraction(high, value)
        if int(np.abs(self.steps).max(initial=0)) * abs(way.numerator) > _LARGEST:
            return None
        more, rest = np.divmod(self.steps * way.numerator, way.denominator)
        grown, left = np.divmod(self.numbers * value, low)
        if np.where(self.proportional, left, rest).any():
            return None
        found: list[int] = np.where(self.proportional, grown, self.numbers + more).tolist()
        return found

    def holds_for(self, traced: ModelGraph) -> bool:
        """Whether a graph that was traced is what the law says of its size."""
        found = self._numbers_at(getattr(traced.key, self.axis))
        return found is not None and (self.form, found) == _taken_apart(traced)


def with_size(key: GraphKey, axis: str, value: int) -> GraphKey:
    """``key`` with another ``value`` of ``axis``."""
    changed: Any = {axis: value}
    return replace(key, **changed)


def _taken_apart(graph: ModelGraph) -> tuple[list[Any], list[int]]:
    """All that a graph is but its numbers, and these; without its key."""
    form: list[Any] = []
    numbers: list[int] = []

    def take(values: tuple[Any, ...]) -> None:
        for value in values:
            kind: Any = type(value)
            if kind is int:
                form.append(int)
                numbers.append(value)
            elif kind is tuple:
                form.append(len(value))
                take(value)
            elif (parts := _parts_of(kind)) is not None:
                form.append(kind)
                take(parts(value if kind is not LayerGraph else _without_copies(value)))
            else:
                form.append(value)

    take((graph,))
    return form, numbers


@dataclass(frozen=True)
class _Before:
    """A backward pass with ``operators`` before those of another one."""

    operators: tuple[Operator, ...]
    edges: tuple[tuple[int, int], ...]

    def all_of(self, other: OperatorGraph) -> OperatorGraph:
        """The pass that it is of the ``other`` one."""
        return OperatorGraph((*self.operators, *other.operators), self.edges)


def _without_copies(layer: LayerGraph) -> LayerGraph:
    """A layer without the operators that both of its backward passes have."""
    operators, shared = layer.backward_selective.operators, layer.backward.operators
    own = len(operators) - len(shared)
    if own < 0 or operators[own:] != shared:
        return layer
    before: Any = _Before(operators[:own], layer.backward_selective.edges)
    return replace(layer, backward_selective=before)


def _put_together(form: Sequence[Any], numbers: Sequence[int], key: GraphKey) -> ModelGraph:
    """The graph of ``key`` that is taken apart into ``form`` and ``numbers``."""
    made: list[Any] = []  # the parts of what comes next, the first of them last
    left = reversed(numbers)
    for each in reversed(form):
        if each is int:
            made.append(next(left))
            continue
        kind: Any = type(each)
        if kind is int:
            parts = made[len(made) - each :]
            del made[len(made) - each :]
            made.append(tuple(reversed(parts)))
        elif kind is type:
            names = _names(each)
            parts = made[-len(names) :]
            del made[-len(names) :]
            record = object.__new__(each)  # not by its fields one by one, which are as they were
            vars(record).update(zip(names, reversed(parts), strict=True))
            if each is LayerGraph and type(record.backward_selective) is _Before:
                whole = record.backward_selective.all_of(record.backward)
                vars(record)["backward_selective"] = whole
            made.append(record)
        else:
            made.append(each)
    (graph,) = made
    vars(graph)["key"] = key
    found: ModelGraph = graph
    return found


@cache
def _parts_of(kind: Any) -> Callable[[Any], tuple[Any, ...]] | None:
    """What gives the fields of a record that a law is about, two or more; None of no record."""
    record: Any = kind
    return attrgetter(*_names(record)) if is_dataclass(kind) else None


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """Fields of a record that a law is about."""
    return tuple(each.name for each in fields(kind) if each.name != "key")
