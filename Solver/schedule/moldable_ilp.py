"""Moldable operators as a mixed-integer linear program, to confirm their schedules with a solver
that shares no code with ours.

Columns per series component, scaled so that the horizon is 1000: the makespan T; for each operator
its start t_i and x_im = 1 for its mode; o_ij = 1 if i ends before j starts (pairs without
precedence); f_ijr, the share of the cores of type r that i hands to j (Artigues, Michelon &
Reusser, EJOR 149, 2003). With p_i = sum_m x_im t_im and longest paths h before and q after an
operator:

    sum_m x_im = 1;  T >= t_i + p_i;  t_j >= t_i + p_i                      i before j t_j >= t_i +
    p_i - (horizon - q_i - h_j) (1 - o_ij);  o_ij + o_ji <= 1  neither before the other sum_j f_jir
    = sum_j f_ijr = sum_m x_im cores_imr / cores_r              from a source that has 1 of each
    type f_ijr <= o_ij                                                           neither before the
    other o_ij + o_ji >= x_im + sum of x_jn - 1                                   n: modes that do
    not fit beside m T >= sum_im x_im cores_imr t_im / cores_r                               each
    type

A limit of nodes, not of seconds, ends it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from Estimator.plans.results import Status
from phaze_common.errors import SolverError
from Solver.schedule.highs import HighsSolver
from Solver.schedule.ilp import CUTOFF
from Solver.schedule.milp import HORIZON, Milp, Terms
from Solver.schedule.moldable import CoreGroup, MoldableProblem, MoldableSchedule
from Solver.schedule.structure import Component, members, series_components

ILP_NODES = 500  # of HiGHS, per component
AGREEMENT = 1e-6  # relative, between makespans

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Confirmation:
    """What the program found of a schedule: OPTIMAL with its makespan, or FEASIBLE with no better
    one and a bound.

    ``agrees`` is whether it proved the same makespan; None where neither solver proved one.
    """

    status: Status
    makespan_s: float
    bound_s: float
    agrees: bool | None


def confirm_moldable(
    problem: MoldableProblem, schedule: MoldableSchedule, node_limit: int = ILP_NODES
) -> Confirmation:
    """Solve ``problem`` again as ILP, bounded from just above by ``schedule``: it finds a shorter
    one if there is one.

    Raises:
        SolverError: scipy is missing or HiGHS failed.
    """
    kept = sum(
        1 << place
        for place, modes in enumerate(problem.modes)
        if min(mode.seconds for mode in modes) > 0
    )
    placed = {each.operator: each for each in schedule.placed}
    makespan_s = bound_s = 0.0
    status = Status.OPTIMAL
    for component in series_components(problem.structure, kept):
        parts = [placed[place] for place in component.operators]
        known_s = max(each.end_s for each in parts) - min(each.start_s for each in parts)
        modes = tuple(problem.modes[place] for place in component.operators)
        if len(modes) == 1:
            least_s = min(mode.seconds for mode in modes[0])
            makespan_s, bound_s = makespan_s + least_s, bound_s + least_s
            continue
        program = _Program(
            component, modes, (problem.num_tc, problem.num_vc), known_s * (1.0 + CUTOFF)
        )
        answer = HighsSolver().optimize(program.milp, None, math.inf, node_limit)
        if answer.status is Status.INFEASIBLE:
            raise SolverError(
                "HiGHS found no schedule of moldable operators as short as a known one; please "
                "report this"
            )
        found_s = (
            known_s if answer.values is None else min(known_s, program.length_s(answer.values))
        )
        makespan_s += found_s
        bound_s += min(found_s, answer.bound * program.scale_s)
        if answer.status is not Status.OPTIMAL:
            status = Status.FEASIBLE
    shorter = makespan_s < schedule.makespan_s * (1.0 - AGREEMENT)
    same = abs(makespan_s - schedule.makespan_s) <= AGREEMENT * schedule.makespan_s
    if schedule.status is Status.OPTIMAL and (status is Status.OPTIMAL or shorter):
        agrees: bool | None = same
    else:
        agrees = None
    return Confirmation(status, makespan_s, bound_s, agrees)


class _Program:
    """The program of one component; ``horizon_s`` bounds the makespan."""

    def __init__(
        self,
        component: Component,
        modes: tuple[tuple[CoreGroup, ...], ...],
        cores: tuple[int, int],
        horizon_s: float,
    ) -> None:
        self.component, self.cores = component, cores
        self.scale_s = horizon_s / HORIZON
        self.milp = Milp()
        order, count = component.order, len(modes)
        least = [min(mode.seconds for mode in each) / self.scale_s for each in modes]
        self.heads, self.tails = _paths(component, least)
        self.modes = [
            [
                mode
                for mode in each
                if self.heads[i] + mode.seconds / self.scale_s + self.tails[i]
                <= HORIZON * (1.0 + 1e-9)
            ]
            for i, each in enumerate(modes)
        ]
        self.makespan = self.milp.column(0.0, HORIZON)
        self.start = [
            self.milp.column(self.heads[i], HORIZON - self.tails[i] - least[i] + 1e-6)
            for i in range(count)
        ]
        self.chosen = [[self.milp.column(0.0, 1.0, True) for _ in each] for each in self.modes]
        self.first = {
            (i, j): self.milp.column(0.0, 1.0, True)
            for i in range(count)
            for j in members(order.parallel(i))
        }
        for i in range(count):
            self.milp.row([(column, 1.0) for column in self.chosen[i]], 1.0, 1.0)
            self.milp.row(
                [(self.makespan, 1.0), (self.start[i], -1.0), *self._minus_seconds(i)], 0.0
            )
        for i, j in order.covers:
            self.milp.row(
                [(self.start[j], 1.0), (self.start[i], -1.0), *self._minus_seconds(i)], 0.0
            )
        self._add_pairs()
        for pool in range(2):
            if cores[pool]:
                self._add_flow(pool)

    def _minus_seconds(self, i: int) -> Terms:
        return [
            (column, -mode.seconds / self.scale_s)
            for column, mode in zip(self.chosen[i], self.modes[i], strict=True)
        ]

    def _demand(self, i: int, pool: int, factor: float) -> Terms:
        """``factor`` times the share of the cores of type ``pool`` that operator i takes."""
        pairs = zip(self.chosen[i], self.modes[i], strict=True)
        return [
            (column, factor * (mode.tc, mode.vc)[pool] / self.cores[pool]) for column, mode in pairs
        ]

    def _add_pairs(self) -> None:
        for (i, j), column in self.first.items():
            reach = HORIZON - self.tails[i] - self.heads[j]
            later = [
                (self.start[j], 1.0),
                (self.start[i], -1.0),
                (column, -reach),
                *self._minus_seconds(i),
            ]
            self.milp.row(later, -reach)
            if i > j:
                continue
            both = [(column, 1.0), (self.first[j, i], 1.0)]
            self.milp.row(both, 0.0, 1.0)
            for mine, mode in zip(self.chosen[i], self.modes[i], strict=True):
                pairs = zip(self.chosen[j], self.modes[j], strict=True)
                without_room = [(its, -1.0) for its, other in pairs if not self._fit(mode, other)]
                if without_room:
                    self.milp.row([*both, (mine, -1.0), *without_room], -1.0)

    def _fit(self, one: CoreGroup, other: CoreGroup) -> bool:
        return one.tc + other.tc <= self.cores[0] and one.vc + other.vc <= self.cores[1]

    def _add_flow(self, pool: int) -> None:
        milp, order, count = self.milp, self.component.order, len(self.modes)
        most = [
            max((mode.tc, mode.vc)[pool] for mode in each) / self.cores[pool] for each in self.modes
        ]
        users = [i for i in range(count) if most[i] > 0]
        if not users:
            return
        into: dict[int, Terms] = {i: [] for i in users}
        out: dict[int, Terms] = {i: [] for i in users}
        source: Terms = []
        for i in users:
            entering, leaving = milp.column(0.0, 1.0), milp.column(0.0, 1.0)
            source.append((entering, 1.0))
            into[i].append((entering, 1.0))
            out[i].append((leaving, 1.0))
            for j in users:
                if i == j or order.before[i] >> j & 1:
                    continue
                handed = milp.column(0.0, min(most[i], most[j]))
                out[i].append((handed, 1.0))
                into[j].append((handed, 1.0))
                if (i, j) in self.first:
                    milp.row([(handed, -1.0), (self.first[i, j], min(most[i], most[j]))], 0.0)
        milp.row(source, 0.0, 1.0)
        work: Terms = [(self.makespan, 1.0)]
        for i in users:
            for flow in (into[i], out[i]):
                milp.row([*flow, *self._demand(i, pool, -1.0)], 0.0, 0.0)
            seconds = [mode.seconds / self.scale_s for mode in self.modes[i]]
            demand = self._demand(i, pool, -1.0)
            work += [
                (column, value * each)
                for (column, value), each in zip(demand, seconds, strict=True)
            ]
        milp.row(work, 0.0)

    def length_s(self, solution: Floats) -> float:
        """Of the earliest schedule with the modes and the order of ``solution``: free of the
        solver's tolerances."""
        order, count = self.component.order, len(self.modes)
        seconds = [
            modes[int(np.argmax(solution[chosen]))].seconds
            for modes, chosen in zip(self.modes, self.chosen, strict=True)
        ]
        before = [set(members(mask)) for mask in order.before]
        for (i, j), column in self.first.items():
            if solution[column] > 0.5:
                before[j].add(i)
        ends = np.zeros(count)
        for j in sorted(
            range(count), key=lambda j: (float(solution[self.start[j]]), len(before[j]))
        ):
            ends[j] = max((ends[i] for i in before[j]), default=0.0) + seconds[j]
        return float(ends.max())


def _paths(component: Component, least: list[float]) -> tuple[list[float], list[float]]:
    """Longest paths before and after each operator."""
    order = component.order
    heads, tails = [0.0] * len(least), [0.0] * len(least)
    for j in order.topological():
        heads[j] = max((heads[i] + least[i] for i in members(order.before[j])), default=0.0)
    for i in reversed(order.topological()):
        tails[i] = max((tails[j] + least[j] for j in members(order.after[i])), default=0.0)
    return heads, tails
