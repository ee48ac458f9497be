"""What came of a point, in numbers that figures and tables share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from phaze.report.sentences.designs import UNITS
from phaze.report.sentences.utilization import mfu_share
from phaze.studies.sweep.points_read import PointSet, ReadPoint
from phaze.studies.sweep.results import PlanRow
from phaze_common.choices import Objective
from phaze_common.numbers import FINE_DIGITS, number, share, time_text

ITERATION = "seconds per iteration"


@dataclass(frozen=True)
class Outcome:
    """A number of points with a plan: its name with its unit, how to find and how to write it."""

    name: str
    of: Callable[[ReadPoint], float | None]
    text: Callable[[float], str]
    better: str = "more"  # or "less", or nothing where neither is


def plan_of(point: ReadPoint) -> PlanRow | None:
    """The plan of a point for one model: of several no number of one is that of the point."""
    return (
        point.result.plans[0] if point.result is not None and len(point.result.plans) == 1 else None
    )


def unit_of(points: PointSet) -> str:
    """The unit of what was maximised; where points differ in it, no unit."""
    units = {
        point.result.unit
        for point in points.points
        if point.result is not None and point.result.objective
    }
    return units.pop() if len(units) == 1 else "objective"


def outcomes_of(points: PointSet) -> tuple[Outcome, ...]:
    """The outcomes that any point has, that which was maximised first."""
    unit = unit_of(points)
    found = [Outcome(unit, _value, _fine)]
    if unit != UNITS[Objective.THROUGHPUT]:
        found.append(
            Outcome(UNITS[Objective.THROUGHPUT], _of_plan("throughput_samples_per_s"), _fine)
        )
    found += [
        Outcome(ITERATION, _of_plan("time_per_batch_s"), time_text, "less"),
        Outcome("MFU", _of_plan("model_flops_utilization"), mfu_share),
        Outcome("memory in use", _memory_share, share, ""),
        Outcome("joules per sample", _of_plan("energy_per_sample_j"), _fine, "less"),
        Outcome("area of a chip, mm²", _area, _fine, "less"),
    ]
    return tuple(
        each for each in found if any(each.of(point) is not None for point in points.points)
    )


def _fine(value: float) -> str:
    return number(value, FINE_DIGITS)


def _value(point: ReadPoint) -> float | None:
    return None if point.result is None else point.result.value


def _memory_share(point: ReadPoint) -> float | None:
    return None if point.result is None else point.result.memory_share


def _area(point: ReadPoint) -> float | None:
    accelerator = None if point.result is None else point.result.accelerator
    return None if accelerator is None else accelerator.area_mm2


def _of_plan(field: str) -> Callable[[ReadPoint], float | None]:
    def of(point: ReadPoint) -> float | None:
        plan = plan_of(point)
        value: float | None = None if plan is None else getattr(plan, field)
        return value

    return of
