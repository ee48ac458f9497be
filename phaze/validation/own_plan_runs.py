"""Predictions of measured runs of our own plans on machines that ``phaze profile`` measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from Estimator.plans.plan import Plan
from Estimator.plans.results import Iteration
from Estimator.profiled.database import read_database
from Estimator.profiled.device import measured_formats
from GraphExtractor.models.registry import canonical_name
from phaze.validation.plan_results import check_stated, result_of
from phaze.validation.plan_rows import MemoryKind, PlanRow
from phaze.validation.records import RunResult
from phaze_common.errors import InputError


@dataclass(frozen=True)
class PricedFile:
    """The plan of a file on the machine of a database, and an iteration of it."""

    plan: Plan
    iteration: Iteration


PriceFile = Callable[[Path, Path], PricedFile]  # of the file of a plan and the folder of a database


def own_result(row: PlanRow, price: PriceFile) -> RunResult:
    """The prediction of a row's plan beside what was measured.

    Raises:
        InputError: the files of the row are not its own, or cannot be priced.
    """
    try:
        _check_format(row)
        priced = price(row.plan, row.database)
    except InputError as error:
        raise InputError(f"{row.where}: {error}") from error
    plan, iteration = priced.plan, priced.iteration
    if row.model and row.model != plan.model and canonical_name(row.model) != plan.model:
        raise InputError(
            f"{row.where} says model {row.model!r:.60}, but {row.plan.name} is of "
            f"{plan.model}; give its plan"
        )
    check_stated(
        row,
        {
            "gpus": {iteration.devices},
            "global_batch": {plan.global_batch_size},
            "micro_batch": {stage.degrees.micro_batch_size for stage in plan.stages},
            "stages": {len(plan.stages) // plan.interleave},
            "seq": {plan.sequence_length},
        },
    )
    memory = None
    if row.memory_kind is not None:
        reserved = row.memory_kind is MemoryKind.RESERVED
        memory = iteration.memory_bytes if reserved else iteration.allocated_bytes
    return result_of(
        row,
        model=plan.model,
        devices=iteration.devices,
        predicted_s=iteration.iteration_s,
        predicted_memory_bytes=memory,
        breakdown_s=iteration.breakdown,
    )


def _check_format(row: PlanRow) -> None:
    measured = measured_formats(read_database(row.database))
    short = [each.replace("float", "fp") for each in measured]
    if row.dtype and row.dtype not in (*measured, *short):
        formats = ", ".join(measured)
        raise InputError(
            f"dtype is {row.dtype!r:.60}, but {row.database} was measured in {formats}; give "
            "the database of this run"
        )
