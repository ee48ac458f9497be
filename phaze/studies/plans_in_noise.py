"""Plans within the prediction error of the best, and what they have in common."""

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


def noise_of_order() -> float:
    """How much slower than another a plan is predicted to be where it is so with 80 % certainty.

    Errors of plans of one model, hardware and source differ by ``within_model``, so those of two by
    the square root of two times as much.
    """
    return math.expm1(SURE * math.sqrt(2.0) * load_residuals().within_model)


def plans_in_noise(groups: Sequence[PointGroup], row: int, best_s: float) -> PlansInNoise | None:
    """Plans of ``groups`` on configuration ``row`` that may be as fast as the best, of ``best_s``.

    A plan counts by the seconds of its best stages or, where these were not looked for, by what
    none is below.
    """
    import pandas as pd

    noise, tables = noise_of_order(), [plans_table(group, row) for group in groups]
    if noise <= 0.0 or not any(map(len, tables)):
        return None
    frame = pd.concat([each for each in tables if len(each)], ignore_index=True)
    seconds = frame["time_per_batch_s"].fillna(frame["time_per_batch_bound_s"])
    close = frame[(seconds <= best_s * (1.0 + noise)) & (frame["status"] != "infeasible")]
    values = {each.key: tuple(sorted(close[each.key].unique())) for each in COMPARED}
    alike = {key: str(found[0]) for key, found in values.items() if len(found) == 1}
    varied = {key: tuple(map(str, found)) for key, found in values.items() if len(found) > 1}
    closed = sum(
        int(np.count_nonzero(group.pruned_shapes.least_s <= best_s * (1.0 + noise)))
        for group in groups
    )
    timed = int(close["time_per_batch_s"].notna().sum())
    return PlansInNoise(noise, len(close), timed, alike, varied, closed)
