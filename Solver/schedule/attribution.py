"""Why a layer pass takes as long as it does: its makespan, attributed to causes along a critical
path of its schedule.

Operators of a schedule run side by side, so that their parts do not add up to its makespan. Those
on a critical path do: from the operator that ends last back to the start, each begins when what it
waited for ends. It waited for a predecessor, or for a core: a pool of cores that was taken up to
that instant and of which the other operator used one (all of the chip, where either of them runs on
all cores). What runs beside the path is hidden.

There may be several such paths. Taken is the one with the least communication: it would remain, as
long as it is, if the collectives that are on the others only took no time. Of paths with equal
communication, going backwards, a predecessor is preferred to an operator that freed a core, then
the operator that comes first in the graph.
"""

from collections.abc import Iterator

import numpy as np

from Estimator.pass_parts import OperatorParts, PassParts
from phaze_common.array_types import BoolArray, FloatArray
from phaze_common.errors import SolverError
from Solver.schedule.problem import Mode, Schedule, ScheduleProblem
from Solver.schedule.structure import TYPE_BITS, closure
from Solver.schedule.timeline import SIMULTANEOUS

AGREEMENT = 1e-6  # relative to the makespan, of an operator's parts with its time in the schedule


def attributed(problem: ScheduleProblem, schedule: Schedule, parts: OperatorParts) -> PassParts:
    """Attribute the makespan of ``schedule``, which solves ``problem``, to the ``parts`` of its
    operators in their modes.

    The result adds up to the makespan. Where a solver left the cores that an operator needs idle
    before it, that gap counts with the operator it waited for, of those that precede it or use the
    same cores the last to end; with itself where there is none.

    Raises:
        SolverError: there is no schedule, or an operator's parts are not the time it takes there.
    """
    count = len(problem.structure.core_types)
    if len(schedule.assignments) != count:
        raise SolverError(
            f"{schedule.solver} scheduled {len(schedule.assignments)} of {count} operators; "
            "nothing to attribute"
        )
    paths = _CriticalPaths(problem, schedule, parts)
    weights = np.zeros(count)
    until_s, operator = schedule.makespan_s, paths.last()
    while operator is not None:
        before = paths.waited_for[operator]
        from_s = 0.0 if before is None else float(paths.start_s[operator])
        weights[operator] = (until_s - from_s) / parts.total_s[operator]
        until_s, operator = from_s, before
    return parts.weighted(weights)


class _CriticalPaths:
    """A schedule as arrays (operators,), and for every operator that takes time the one it waited
    for (None: for none)."""

    def __init__(self, problem: ScheduleProblem, schedule: Schedule, parts: OperatorParts) -> None:
        placed = sorted(schedule.assignments, key=lambda one: one.operator)
        self.start_s = np.array([one.start_s for one in placed], dtype=np.float64)
        self.end_s = np.array([one.end_s for one in placed], dtype=np.float64)
        _check_parts(self.end_s - self.start_s, parts.total_s, schedule.makespan_s)
        self._slack_s = SIMULTANEOUS * schedule.makespan_s
        self._busy = parts.total_s > 0
        self._everywhere = np.array([one.mode is Mode.ALL for one in placed], dtype=np.bool_)
        self._before = closure(problem.structure).before
        types = np.array([TYPE_BITS[each] for each in problem.structure.core_types], np.int64)
        self._uses = {pool: (types & pool) != 0 for pool in (1, 2)}
        self._cores = {1: problem.num_tc, 2: problem.num_vc}
        self.waited_for: dict[int, int | None] = {}
        self._communication_s: dict[int, float] = {}  # along the path up to and with each operator
        in_order = np.lexsort((self.end_s, self.start_s))
        for operator in in_order[self._busy[in_order]].tolist():
            ranked = [(self._rank(operator, each), each) for each in self._candidates(operator)]
            before = min(ranked)[1] if ranked else None
            behind_s = 0.0 if before is None else self._communication_s[before]
            self.waited_for[operator] = before
            self._communication_s[operator] = behind_s + float(parts.communication_s[operator])

    def last(self) -> int | None:
        """The operator that ends last, None where none takes any time."""
        from_s = self.end_s.max(initial=0.0) - self._slack_s
        ends = [operator for operator in self.waited_for if self.end_s[operator] >= from_s]
        return min(ends, key=lambda each: (self._communication_s[each], each), default=None)

    def _rank(self, operator: int, other: int) -> tuple[float, bool, int]:
        """Which of the candidates is taken: the least."""
        return self._communication_s[other], not self._precedes(other, operator), other

    def _precedes(self, other: int, operator: int) -> bool:
        return bool(self._before[operator] >> other & 1)

    def _candidates(self, operator: int) -> list[int]:
        """Operators whose end let ``operator`` start; where there is none, the last to end of those
        in its way."""
        start_s = self.start_s[operator]
        earlier = self._busy & (self.start_s < start_s) & (self.end_s <= start_s + self._slack_s)
        if start_s <= self._slack_s or not earlier.any():
            return []
        ending = earlier & (self.end_s >= start_s - self._slack_s)
        running = self._busy & (self.start_s < start_s) & (self.end_s >= start_s - self._slack_s)
        found = list(self._in_the_way(operator, ending, running))
        if not found:
            found = list(self._in_the_way(operator, earlier, None))
            latest_s = max((self.end_s[other] for other in found), default=0.0)
            found = [other for other in found if self.end_s[other] >= latest_s - self._slack_s]
        return found

    def _in_the_way(
        self, operator: int, others: BoolArray, running: BoolArray | None
    ) -> Iterator[int]:
        """Of ``others`` those that precede ``operator`` or held its cores: pools that ``running``
        filled (None: any it uses)."""
        pools = [pool for pool, uses in self._uses.items() if uses[operator]]
        if running is not None:
            full = {pool: (running & self._uses[pool]).sum() >= self._cores[pool] for pool in pools}
            pools = [pool for pool in pools if full[pool]]
        for other in np.flatnonzero(others).tolist():
            shares = any(self._uses[pool][other] for pool in pools)
            alone = self._everywhere[operator] or self._everywhere[other]
            if alone or shares or self._precedes(other, operator):
                yield other


def _check_parts(scheduled_s: FloatArray, parts_s: FloatArray, makespan_s: float) -> None:
    """Raise SolverError unless operators take what their parts add up to; arrays (operators,)."""
    differences_s = np.abs(scheduled_s - parts_s)
    if (differences_s > AGREEMENT * makespan_s).any():
        worst = int(differences_s.argmax())
        raise SolverError(
            f"operator {worst} takes {scheduled_s[worst]} s in its schedule, its parts are "
            f"{parts_s[worst]} s; give the parts of the prices that were scheduled"
        )
