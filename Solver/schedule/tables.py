"""A series component, its cases and their schedules as arrays, as compiled code takes them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from phaze_common.array_types import BoolArray, FloatArray, IntArray
from Solver.schedule.structure import Component, members

WORD = 62  # operators that fit a bitmask of the compiled search


class Tables(NamedTuple):
    """A component as arrays, for compiled code. Lists of lists are (values, offsets)."""

    type_bits: IntArray
    topological: IntArray
    predecessors: IntArray  # covering ones
    predecessor_offsets: IntArray
    antichain: IntArray  # members
    antichain_offsets: IntArray
    containing: IntArray  # antichains that contain an operator
    containing_offsets: IntArray
    before: (
        IntArray  # bitmasks; zeros where the component has more operators than a machine word holds
    )
    earlier: IntArray
    followed: BoolArray


class Cases(NamedTuple):
    """A component on N accelerators: seconds, or relative."""

    single: FloatArray  # (N, n) on one core
    shortest: FloatArray  # (N, n): the smaller of that and the one over all cores
    cores: IntArray  # (N, 2): tensor and vector cores

    def some(self, which: slice | IntArray) -> Cases:
        """Those of some accelerators."""
        return Cases(self.single[which], self.shortest[which], self.cores[which])


class Timings(NamedTuple):
    """Schedules on N accelerators: seconds, or relative."""

    makespan: FloatArray  # (N,)
    lower: FloatArray  # (N,): a lower bound
    start: FloatArray  # (N, n)
    all_mode: BoolArray  # (N, n)

    def some(self, which: slice) -> Timings:
        """Views of some accelerators'."""
        start, all_mode = self.start[which], self.all_mode[which]
        return Timings(self.makespan[which], self.lower[which], start, all_mode)


def empty_timings(count: int, operators: int) -> Timings:
    """Timings to be filled."""
    shape = count, operators
    return Timings(np.zeros(count), np.zeros(count), np.zeros(shape), np.zeros(shape, np.bool_))


def tables(component: Component) -> Tables:
    """Arrays of ``component``."""
    order = component.order
    count = len(order)
    predecessors: list[list[int]] = [[] for _ in range(count)]
    for source, target in order.covers:
        predecessors[target].append(source)
    containing = [
        [k for k, chain in enumerate(component.antichains) if chain >> i & 1] for i in range(count)
    ]
    masks = count <= WORD
    return Tables(
        np.array(component.type_bits, np.int64),
        np.array(order.topological(), np.int64),
        *_flat(predecessors),
        *_flat([list(members(chain)) for chain in component.antichains]),
        *_flat(containing),
        np.array(order.before if masks else [0] * count, np.int64),
        np.array(component.earlier if masks else [0] * count, np.int64),
        np.array([after != 0 for after in order.after], np.bool_),
    )


def _flat(lists: list[list[int]]) -> tuple[IntArray, IntArray]:
    offsets = np.cumsum([0, *(len(values) for values in lists)], dtype=np.int64)
    return np.array([value for values in lists for value in values], np.int64), offsets
