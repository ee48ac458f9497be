"""What every measured run of a plan from a file is checked for and ends as, whoever prices it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from Estimator.plans.results import Breakdown
from phaze.validation.plan_rows import PlanRow
from phaze.validation.records import Assumption, RunResult, relative_error
from phaze_common.errors import InputError
from phaze_common.units import MIB


def check_stated(row: PlanRow, own: Mapping[str, Collection[int]]) -> None:
    """Refuse numbers that are not those of the plan; ``own`` are its, by name, none where it does
    not say.

    Raises:
        InputError: names the row, the number and those of the plan.
    """
    for name, number in row.stated.items():
        if own[name] and number not in own[name]:
            has = " and ".join(map(str, sorted(own[name])))
            raise InputError(
                f"{row.where} says {name} {number}, but {row.plan.name} has {has}; give the plan "
                "of this run"
            )


def result_of(
    row: PlanRow,
    *,
    model: str,
    devices: int,
    predicted_s: float,
    predicted_memory_bytes: float | None,
    breakdown_s: Breakdown,
    assumptions: tuple[Assumption, ...] = (),
) -> RunResult:
    """The prediction beside what was measured."""
    measured_bytes = None if row.memory_mib is None else row.memory_mib * MIB
    memory_error = relative_error(predicted_memory_bytes, measured_bytes)
    return RunResult(
        line=row.line,
        source=row.source,
        model=model,
        devices=devices,
        measured_s=row.measured_s,
        predicted_s=predicted_s,
        error=relative_error(predicted_s, row.measured_s),
        measured_memory_bytes=measured_bytes,
        predicted_memory_bytes=predicted_memory_bytes,
        memory_error=memory_error,
        plan_file=row.plan.name,
        breakdown_s=breakdown_s,
        assumptions=assumptions,
    )
