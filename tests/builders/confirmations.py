"""Confirmations of schedules that tests share: searches of the same study choose the same schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from Solver.schedule.problem import Schedule, ScheduleProblem


class ConfirmedOnce:
    """``confirm_with_ilp``, or what stands for it, asked once for every problem and schedule.

    Errors are not kept, nor is anything beyond this process.
    """

    def __init__(self, confirm: Callable[[ScheduleProblem, Schedule], Schedule]) -> None:
        self._confirm = confirm
        self._confirmed: dict[Any, Schedule] = {}

    def __call__(self, problem: ScheduleProblem, native: Schedule) -> Schedule:
        """What confirms ``native``."""
        asked = (
            problem.structure,
            problem.single_latency_s.tobytes(),
            problem.all_latency_s.tobytes(),
            problem.num_tc,
            problem.num_vc,
            native,
        )
        if asked not in self._confirmed:
            self._confirmed[asked] = self._confirm(problem, native)
        return self._confirmed[asked]
