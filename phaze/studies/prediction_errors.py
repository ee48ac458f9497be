"""How far predictions of plans may be off, on devices whose like was measured in published runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from Estimator.devices.device import Evidence
from Estimator.plans.axes import COMPARED
from Estimator.plans.results import TimeInterval
from GraphExtractor.models.registry import find_model
from phaze.validation.intervals import Predicted, intervals_of_time, load_residuals
from Solver.results import HardwareRecords, PlansInNoise

if TYPE_CHECKING:
    from Solver.designs.points import PointGroup

# standard deviations on both sides of which a normal variable lies in a fifth of all cases
SURE = 1.2816


def time_intervals(
    records: HardwareRecords, model: str, devices: int, seconds: float
) -> tuple[TimeInterval, ...]:
    """Where an iteration predicted to take so many ``seconds`` is measured, if that is known.

    Machines that were profiled are predicted from what was measured there, of which no published
    run tells anything.
    """
    device = records.device
    if device is None or device.profile is not None:
        return ()
    measured = device.evidence is Evidence.MEASURED
    predicted = Predicted(device.name, records.software.name, devices, measured, device.spread)
    residuals = load_residuals(experts=find_model(model).is_mixture)
    return intervals_of_time(residuals, predicted, seconds)


def error_between_plans() -> float:
    """How much slower than another a plan is predicted to be where it is so with 80 % certainty.

    Errors of plans of one model, hardware and source differ by ``within_model``, so those of two by
    the square root of two times as much.
    """
    return math.expm1(SURE * math.sqrt(2.0) * load_residuals().within_model)


def plans_within_error(
    groups: Sequence[PointGroup], row: int, best_s: float
) -> PlansInNoise | None:
    """Plans of ``groups`` on configuration ``row`` that may be as fast as the best, of ``best_s``.

    A plan counts by the seconds of its best stages or, where these were not looked for, by what
    none is below.
    """
    import pandas as pd

    from phaze.runs.design_tables import plans_table

    error, tables = error_between_plans(), [plans_table(group, row) for group in groups]
    if error <= 0.0 or not any(map(len, tables)):
        return None
    frame = pd.concat([each for each in tables if len(each)], ignore_index=True)
    seconds = frame["time_per_batch_s"].fillna(frame["time_per_batch_bound_s"])
    close = frame[(seconds <= best_s * (1.0 + error)) & (frame["status"] != "infeasible")]
    values = {each.key: tuple(sorted(close[each.key].unique())) for each in COMPARED}
    alike = {key: str(found[0]) for key, found in values.items() if len(found) == 1}
    varied = {key: tuple(map(str, found)) for key, found in values.items() if len(found) > 1}
    closed = sum(
        int(np.count_nonzero(group.pruned_shapes.least_s <= best_s * (1.0 + error)))
        for group in groups
    )
    timed = int(close["time_per_batch_s"].notna().sum())
    return PlansInNoise(error, len(close), timed, alike, varied, closed)
