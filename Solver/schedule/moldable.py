"""Operators that may run on some cores of a type: the problem, its schedules, and a check that
shares no code with solvers.

A mode of an operator is a group of cores and the seconds it takes there. One that takes every core
of both types runs alone: so an operator spread over all cores of its own type is written, which has
the whole chip's buffers and bandwidths. Cores of a type are a pool, as in ``check``: a group may
have any that are free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from Estimator.plans.results import Status
from phaze_common.errors import InputError, SolverError
from Solver.schedule.problem import Mode, Schedule, ScheduleProblem, ScheduleStructure
from Solver.schedule.structure import TYPE_BITS, closure

TOLERANCE = 1e-9  # relative to the makespan


@dataclass(frozen=True)
class CoreGroup:
    """A mode: on ``tc`` tensor and ``vc`` vector cores together an operator takes ``seconds``."""

    tc: int
    vc: int
    seconds: float

    def covers(self, other: CoreGroup) -> bool:
        """Whether ``other`` is on no fewer cores and no faster."""
        return self.tc <= other.tc and self.vc <= other.vc and self.seconds <= other.seconds


@dataclass(frozen=True)
class MoldableProblem:
    """Schedule ``structure`` on ``num_tc`` + ``num_vc`` cores, each operator in one of its
    ``modes`` (by position)."""

    structure: ScheduleStructure
    modes: tuple[tuple[CoreGroup, ...], ...]
    num_tc: int
    num_vc: int

    def __post_init__(self) -> None:
        if len(closure(self.structure)) != len(self.modes):
            raise InputError(
                f"{len(self.modes)} operators have modes, the structure has "
                f"{len(self.structure.core_types)}"
            )
        for operator, modes in enumerate(self.modes):
            if not modes:
                raise InputError(
                    f"operator {operator} has no mode; give each at least one group of cores"
                )
            for mode in modes:
                fits = (
                    0 <= mode.tc <= self.num_tc
                    and 0 <= mode.vc <= self.num_vc
                    and mode.tc + mode.vc > 0
                )
                if not fits or not (np.isfinite(mode.seconds) and mode.seconds >= 0):
                    raise InputError(
                        f"operator {operator} has the mode {mode}; allowed are up to {self.num_tc} "
                        f"tensor and {self.num_vc} vector cores, at least one of them, and seconds "
                        "that are finite and not negative"
                    )


@dataclass(frozen=True)
class Placed:
    """Where and when one operator runs."""

    operator: int
    mode: CoreGroup
    start_s: float

    @property
    def end_s(self) -> float:
        """When it ends."""
        return self.start_s + self.mode.seconds


@dataclass(frozen=True)
class MoldableSchedule:
    """A schedule with its certificate: ``bound_s`` <= optimum <= ``makespan_s``, equal to a
    relative 1e-9 where OPTIMAL.

    ``nodes`` were searched. Otherwise the status is FEASIBLE: the limit of nodes ended the search.
    """

    status: Status
    makespan_s: float
    bound_s: float
    placed: tuple[Placed, ...]
    nodes: int

    @property
    def gap(self) -> float:
        """Relative distance between the makespan and its proven lower bound."""
        return 0.0 if self.makespan_s == 0 else (self.makespan_s - self.bound_s) / self.makespan_s


def useful_modes(modes: tuple[CoreGroup, ...]) -> tuple[CoreGroup, ...]:
    """Those that none on no more cores is as fast as, the smallest groups first."""
    order = sorted(set(modes), key=lambda mode: (mode.tc + mode.vc, mode.seconds, mode.tc))
    kept: list[CoreGroup] = []
    for mode in order:
        if not any(other.covers(mode) for other in kept):
            kept.append(mode)
    return tuple(kept)


def one_or_all(problem: ScheduleProblem) -> MoldableProblem:
    """``problem`` with its two modes as groups.

    Raises:
        InputError: there are no cores of a type that an operator needs.
    """
    modes = []
    for place, core_type in enumerate(problem.structure.core_types):
        bits = TYPE_BITS[core_type]
        single = CoreGroup(bits & 1, bits >> 1, float(problem.single_latency_s[place]))
        everything = CoreGroup(problem.num_tc, problem.num_vc, float(problem.all_latency_s[place]))
        modes.append((single,) if single.seconds == 0 else useful_modes((single, everything)))
    return MoldableProblem(problem.structure, tuple(modes), problem.num_tc, problem.num_vc)


def placed_as(problem: MoldableProblem, schedule: Schedule) -> tuple[Placed, ...]:
    """A schedule of single and all cores as one of groups."""
    placed = []
    for each in sorted(schedule.assignments, key=lambda one: one.operator):
        bits, seconds = (
            TYPE_BITS[problem.structure.core_types[each.operator]],
            each.end_s - each.start_s,
        )
        alone = each.mode is Mode.ALL
        cores = (problem.num_tc, problem.num_vc) if alone else (bits & 1, bits >> 1)
        placed.append(Placed(each.operator, CoreGroup(*cores, seconds), each.start_s))
    return tuple(placed)


def check_moldable(problem: MoldableProblem, schedule: MoldableSchedule) -> None:
    """Raise SolverError, naming each violation, unless ``schedule`` keeps modes, order and core
    counts, and says its length."""
    violations = list(_violations(problem, schedule))
    if violations:
        raise SolverError(
            f"the schedule of moldable operators is wrong: {'; '.join(violations)}; please report "
            "this"
        )


def _violations(problem: MoldableProblem, schedule: MoldableSchedule) -> Iterator[str]:
    placed = {each.operator: each for each in schedule.placed}
    if len(schedule.placed) != len(problem.modes) or set(placed) != set(range(len(problem.modes))):
        yield "not every operator is scheduled exactly once"
        return
    slack_s = TOLERANCE * schedule.makespan_s
    if (
        abs(max((each.end_s for each in schedule.placed), default=0.0) - schedule.makespan_s)
        > slack_s
    ):
        yield f"the last operator does not end at {schedule.makespan_s}"
    if schedule.bound_s > schedule.makespan_s + slack_s:
        yield f"bound {schedule.bound_s} above the makespan {schedule.makespan_s}"
    for each in schedule.placed:
        if each.mode not in problem.modes[each.operator]:
            yield f"operator {each.operator} has no mode {each.mode}"
        if each.start_s < 0:
            yield f"operator {each.operator} starts before everything"
    for source, target in problem.structure.edges:
        if placed[source].end_s > placed[target].start_s + slack_s:
            yield f"operator {target} starts before {source} ends"
    for moment in schedule.placed:  # more cores than before are busy only when an operator starts
        running = [
            one
            for one in schedule.placed
            if one.start_s <= moment.start_s + slack_s and one.end_s > moment.start_s + slack_s
        ]
        tc, vc = sum(one.mode.tc for one in running), sum(one.mode.vc for one in running)
        if tc > problem.num_tc or vc > problem.num_vc:
            yield f"{tc} tensor and {vc} vector cores are busy at {moment.start_s}"
