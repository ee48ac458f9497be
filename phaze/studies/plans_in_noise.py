"""Plans that are so close to the best that predictions cannot tell which is faster, and what they
have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from Estimator.plans.axes import COMPARED
from phaze.runs.design_tables import plans_table
from phaze.validation.intervals import load_residuals
from Solver.designs.points import PointGroup
from Solver.results import PlansInNoise

# standard deviations on both sides of which a normal variable lies in a fifth of all cases
SURE = 1.2816
CHOICES = tuple(each.key for each in COMPARED)


def noise_of_order() -> float:
    """How much slower a plan is predicted to be than another of the same model before it is so with
    80 % certainty.

    Errors of plans of one model, hardware and source differ by ``within_model``, so those of two by
    the square root of two times as much.
    """
    return math.expm1(SURE * math.sqrt(2.0) * load_residuals().within_model)


def plans_in_noise(groups: Sequence[PointGroup], row: int, best_s: float) -> PlansInNoise | None:
    """Plans of ``groups``, of one model and memory, on configuration ``row`` that may be as fast as
    the best, of ``best_s``.

    A plan counts by the seconds of its best stages or, where these were not looked for, by what
    none is below.
    """
    import pandas as pd

    noise = noise_of_order()
    tables = [plans_table(group, row) for group in groups]
    frame = (
        pd.concat([each for each in tables if len(each)], ignore_index=True)
        if any(map(len, tables))
        else None
    )
    if frame is None or noise <= 0.0:
        return None
    seconds = frame["time_per_batch_s"].fillna(frame["time_per_batch_bound_s"])
    close = frame[(seconds <= best_s * (1.0 + noise)) & (frame["status"] != "infeasible")]
    alike = {name: str(close[name].iloc[0]) for name in CHOICES if close[name].nunique() == 1}
    varied = {
        name: tuple(str(each) for each in sorted(close[name].unique()))
        for name in CHOICES
        if close[name].nunique() > 1
    }
    closed = sum(
        int(np.count_nonzero(group.pruned_shapes.least_s <= best_s * (1.0 + noise)))
        for group in groups
    )
    return PlansInNoise(
        noise, len(close), int(close["time_per_batch_s"].notna().sum()), alike, varied, closed
    )
