"""The operator schedule of one series component as a compact mixed-integer linear program, as plain
data.

Columns, latencies scaled so that the horizon is 1000: the makespan T; for each operator i its start
t_i, the single-core time s_i on the longest chain ending with it, and y_i = 1 if it runs over all
cores (only where that is faster: otherwise y_i = 0 loses nothing); for each ordered pair of
parallel operators o_ij = 1 if i ends before j starts. With p_i = l_i - (l_i - l'_i) y_i and longest
paths h before and q after an operator:

    T >= t_i + p_i,  T >= s_i + sum_k y_k l'_k t_j >= t_i + p_i,  s_j >= s_i + l_j (1 - y_j)
    i covered by j t_j >= t_i + p_i - (horizon - q_i - h_j) (1 - o_ij)                i, j parallel
    o_ij + o_ji >= y_i, y_j;  = 1 if both need a type that has one core sum of o over A >= 1
    A: m + 1 parallel operators of a type with m cores T >= sum_i y_i l'_i + sum_i of type (1 - y_i)
    l_i / m              each type

    t_i <= t_j                                                         i, j interchangeable (see
    ``structure``)

No transitivity and no core indices are needed: intervals that overlap pairwise share an instant
(Helly), so at most m run at once iff no m + 1 operators overlap pairwise. Where there are many such
sets A, their rows are generated only as schedules violate them. The s rows are implied; they make
the relaxation as strong as chains and areas allow.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from phaze_common.array_types import BoolArray, FloatArray
from Solver.schedule.structure import Component, members

HORIZON = 1000.0
CROWDS_AT_ONCE = 200  # core-count rows written from the start; more are generated when violated
SEPARATED = 1e-9  # of the horizon: two operators overlapping by less do not

Terms = list[tuple[int, float]]


@dataclass(frozen=True)
class Row:
    """``lower`` <= sum of coefficient x column <= ``upper``."""

    terms: tuple[tuple[int, float], ...]
    lower: float
    upper: float


@dataclass
class Milp:
    """Minimise column 0 subject to column bounds, integrality and rows."""

    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    integer: list[bool] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def column(self, lower: float, upper: float, integer: bool = False) -> int:
        """Add a column; returns its index."""
        self.lower.append(lower)
        self.upper.append(upper)
        self.integer.append(integer)
        return len(self.lower) - 1

    def row(self, terms: Iterable[tuple[int, float]], lower: float, upper: float = np.inf) -> None:
        """Add a row; repeated columns are summed."""
        merged: dict[int, float] = {}
        for column, coefficient in terms:
            merged[column] = merged.get(column, 0.0) + coefficient
        self.rows.append(Row(tuple(merged.items()), lower, upper))


@dataclass(frozen=True, eq=False)
class ComponentTiming:
    """Starts and modes of a component's operators from its beginning, and its length, all in
    seconds."""

    start_s: FloatArray
    all_mode: BoolArray
    length_s: float


class ComponentModel:
    """The program of one component for latencies (operators,) in seconds and core counts;
    ``horizon_s`` bounds the makespan."""

    def __init__(
        self,
        component: Component,
        single_s: FloatArray,
        all_s: FloatArray,
        num_tc: int,
        num_vc: int,
        horizon_s: float,
    ) -> None:
        self.component = component
        self.cores = {1: num_tc, 2: num_vc}
        self.scale_s = horizon_s / HORIZON
        self.single = single_s / self.scale_s
        self.shortest = np.minimum(single_s, all_s) / self.scale_s
        self.milp = Milp()
        order = component.order
        count = len(order)
        self._heads, self._tails = _paths(component, self.shortest)
        self.makespan = self.milp.column(0.0, HORIZON)
        latest = HORIZON - self.shortest - self._tails
        spans = zip(self._heads, np.maximum(self._heads, latest), strict=True)
        self.start = [self.milp.column(*span) for span in spans]
        self.chain = [self.milp.column(0.0, HORIZON) for _ in range(count)]
        faster = np.flatnonzero(self.shortest < self.single).tolist()
        self.all_mode = {i: self.milp.column(0.0, 1.0, True) for i in faster}
        self.first = {
            (i, j): self.milp.column(0.0, 1.0, True)
            for i in range(count)
            for j in members(order.parallel(i))
        }
        self._add_precedence()
        self._add_pairs()
        self._add_areas()
        for pool, limit in self.cores.items():
            for crowd in _crowds(component, pool, limit + 1):
                self._forbid(crowd)

    def _saved(self, i: int) -> Terms:
        """What running over all cores takes off the duration ``single[i]`` of operator i."""
        return [(self.all_mode[i], self.single[i] - self.shortest[i])] if i in self.all_mode else []

    def _minus_all_mode_time(self) -> Terms:
        return [(column, -self.shortest[i]) for i, column in self.all_mode.items()]

    def _add_precedence(self) -> None:
        milp, order = self.milp, self.component.order
        for i in range(len(order)):
            alone = [(self.all_mode[i], self.single[i])] if i in self.all_mode else []
            milp.row([(self.chain[i], 1.0), *alone], self.single[i])
            if not order.after[i]:
                milp.row(
                    [(self.makespan, 1.0), (self.start[i], -1.0), *self._saved(i)], self.single[i]
                )
                milp.row(
                    [(self.makespan, 1.0), (self.chain[i], -1.0), *self._minus_all_mode_time()], 0.0
                )
        for i, j in order.covers:
            milp.row([(self.start[j], 1.0), (self.start[i], -1.0), *self._saved(i)], self.single[i])
            alone = [(self.all_mode[j], self.single[j])] if j in self.all_mode else []
            milp.row([(self.chain[j], 1.0), (self.chain[i], -1.0), *alone], self.single[j])

    def _add_pairs(self) -> None:
        milp, bits = self.milp, self.component.type_bits
        for (i, j), column in self.first.items():
            reach = HORIZON - self._tails[i] - self._heads[j]
            terms = [(self.start[j], 1.0), (self.start[i], -1.0), (column, -reach), *self._saved(i)]
            milp.row(terms, self.single[i] - reach)
            both = [(column, 1.0), (self.first[j, i], 1.0)]
            disjoint = any(
                bits[i] & bits[j] & pool and count == 1 for pool, count in self.cores.items()
            )
            if i < j:
                milp.row(both, float(disjoint), 1.0)
            if i in self.all_mode and not disjoint:
                milp.row([*both, (self.all_mode[i], -1.0)], 0.0)
            twins = self.single[i] == self.single[j] and self.shortest[i] == self.shortest[j]
            if twins and self.component.earlier[j] >> i & 1:
                milp.row([(self.start[j], 1.0), (self.start[i], -1.0)], 0.0)

    def _add_areas(self) -> None:
        for pool, count in self.cores.items():
            constant = 0.0
            terms = [(self.makespan, 1.0), *self._minus_all_mode_time()]
            for i, bits in enumerate(self.component.type_bits):
                if bits & pool:
                    constant += self.single[i] / count
                    if i in self.all_mode:
                        terms.append((self.all_mode[i], self.single[i] / count))
            self.milp.row(terms, constant)

    def timing(self, solution: FloatArray) -> ComponentTiming:
        """The earliest schedule with the modes and the order of ``solution``: free of the solver's
        tolerances."""
        order = self.component.order
        count = len(order)
        all_mode = np.zeros(count, np.bool_)
        for i, column in self.all_mode.items():
            all_mode[i] = solution[column] > 0.5
        duration = np.where(all_mode, self.shortest, self.single)
        before = [set(members(mask)) for mask in order.before]
        for (i, j), column in self.first.items():
            if solution[column] > 0.5:
                before[j].add(i)
        start, begin = np.zeros(count), solution[self.start]
        for j in sorted(range(count), key=lambda j: (float(begin[j]), len(before[j]))):
            start[j] = max((start[i] + duration[i] for i in before[j]), default=0.0)
        length_s = float((start + duration).max()) * self.scale_s
        return ComponentTiming(start * self.scale_s, all_mode, length_s)

    def add_violated(self, timing: ComponentTiming) -> int:
        """Add a row for each set of operators that run at one instant of ``timing`` but exceed a
        core count; returns how many."""
        start = timing.start_s / self.scale_s
        end = start + np.where(timing.all_mode, self.shortest, self.single)
        added = 0
        for pool, count in self.cores.items():
            bits = np.array(self.component.type_bits)
            users = np.flatnonzero(((bits & pool) > 0) & ~timing.all_mode).tolist()
            crowds = set()
            for j in users:
                now = start[j] + SEPARATED * HORIZON
                crowd = [i for i in users if start[i] <= start[j] and end[i] > now]
                if len(crowd) > count:
                    crowds.add(frozenset(sorted(crowd, key=lambda i: (-start[i], i))[: count + 1]))
            for crowd_set in crowds:
                self._forbid(crowd_set)
            added += len(crowds)
        return added

    def _forbid(self, crowd: Iterable[int]) -> None:
        """Not all of ``crowd`` may overlap."""
        pairs = combinations(sorted(crowd), 2)
        self.milp.row([(self.first[pair], 1.0) for i, j in pairs for pair in ((i, j), (j, i))], 1.0)

    def solution(self, timing: ComponentTiming) -> FloatArray:
        """Column values of a known schedule, to start the solver from."""
        start = timing.start_s / self.scale_s
        duration = np.where(timing.all_mode, self.shortest, self.single)
        values = np.zeros(len(self.milp.lower))
        values[self.makespan] = timing.length_s / self.scale_s
        values[self.start] = start
        for i in self.component.order.topological():
            before = members(self.component.order.before[i])
            longest = max((values[self.chain[j]] for j in before), default=0.0)
            values[self.chain[i]] = longest + (0.0 if timing.all_mode[i] else self.single[i])
        for i, column in self.all_mode.items():
            values[column] = float(timing.all_mode[i])
        for (i, j), column in self.first.items():
            values[column] = float(start[i] + duration[i] <= start[j] + SEPARATED * HORIZON)
        return values


def _crowds(component: Component, pool: int, size: int) -> list[tuple[int, ...]]:
    """The sets of ``size`` pairwise parallel operators using ``pool``; none if too many. Pairs have
    their own rows."""
    order = component.order
    users = sum(1 << i for i, bits in enumerate(component.type_bits) if bits & pool)
    crowds: list[tuple[tuple[int, ...], int]] = [((), users)]
    for _ in range(size if size > 2 else 0):
        grown = []
        for chosen, candidates in crowds:
            for i in members(candidates):
                grown.append(((*chosen, i), candidates & order.parallel(i) & -(2 << i)))
        crowds = grown
        if len(crowds) > CROWDS_AT_ONCE:
            return []
    return [chosen for chosen, _ in crowds if chosen]


def _paths(component: Component, latency: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Longest paths before and after each operator."""
    order = component.order
    heads, tails = np.zeros(len(latency)), np.zeros(len(latency))
    for j in order.topological():
        heads[j] = max((heads[i] + latency[i] for i in members(order.before[j])), default=0.0)
    for i in reversed(order.topological()):
        tails[i] = max((tails[j] + latency[j] for j in members(order.after[i])), default=0.0)
    return heads, tails
