"""The Pareto front of a search as it is told: some of its chips, the fastest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from Estimator.chips.axes import COLUMNS, SIZES, VARIED
from phaze.report.sentences.designs import EQUAL
from phaze.runs.design_tables import axis_column, chip_of, plan_of
from phaze_common.choices import FrontAxis
from Solver.front_records import FrontChip, ModelFront

if TYPE_CHECKING:
    import pandas as pd

MOST_CHIPS = 12


def fronts_of(designs: pd.DataFrame, axes: Sequence[FrontAxis]) -> tuple[ModelFront, ...]:
    """The front of each model over ``axes``; none of one axis, or where no chips were designed."""
    if len(axes) < 2 or not {*COLUMNS} <= {*designs.columns}:
        return ()
    front = designs[designs["on_front"]]
    return tuple(
        _front(part, str(model), axes)
        for model, part in front.groupby("model", sort=False, observed=True)
    )


def _front(points: pd.DataFrame, model: str, axes: Sequence[FrontAxis]) -> ModelFront:
    """Of equally fast plans of a chip that with the least of the other axes stands for it."""
    amounts = [
        axis_column(points, axis) for axis in reversed(axes) if axis is not FrontAxis.THROUGHPUT
    ]
    columns = ["throughput_samples_per_s", *amounts, "hbm_bytes"]
    ordered = points.sort_values(
        columns, ascending=[False, *([True] * (len(amounts) + 1))], kind="stable"
    )
    same = [*SIZES, *(name for name in VARIED if name in points)]
    by_chip = [part for _, part in ordered.groupby(same, sort=False, dropna=False, observed=True)]
    places = np.linspace(0, len(by_chip) - 1, min(MOST_CHIPS, len(by_chip)))
    shown = np.unique(places.round().astype(int))
    chips = (_chip(by_chip[place], axes) for place in shown.tolist())
    return ModelFront(model, tuple(axes), len(by_chip), tuple(chips))


def _chip(points: pd.DataFrame, axes: Sequence[FrontAxis]) -> FrontChip:
    first = points.iloc[0]
    fastest = float(first["throughput_samples_per_s"])
    alike = points[points["throughput_samples_per_s"] >= fastest * (1.0 - EQUAL)]
    return FrontChip(
        accelerator=chip_of(first.to_dict()),
        hbm_bytes=tuple(sorted({int(size) for size in alike["hbm_bytes"]})),
        throughput_samples_per_s=fastest,
        amounts={
            axis.value: float(first[axis_column(points, axis)])
            for axis in axes
            if axis is not FrontAxis.THROUGHPUT
        },
        **vars(plan_of(first.to_dict())),
    )
