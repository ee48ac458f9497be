"""Figures of how throughput depends on each axis of the accelerator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from Common.units import MIB
from Reporter.report.charts import Reached, reach_figure, reach_table
from Reporter.report.design_points import PointsOfModel, chip_text
from Reporter.report.figures import Figure, PageTable

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Axis:
    """An axis of the accelerator: its column among the design points, what it is, and how much of the column is one unit."""

    column: str
    title: str
    unit: int = 1


AXES = (
    Axis("num_tc", "tensor cores"),
    Axis("num_vc", "vector cores"),
    Axis("width", "columns of a tensor core"),
    Axis("depth", "rows of a tensor core"),
    Axis("width_vc", "lanes of a vector core"),
    Axis("glb_bytes", "global buffer, MiB", MIB),
)


def axis_figures(points: PointsOfModel) -> tuple[Figure, ...]:
    """How much throughput each value of each axis allows, one figure per axis that has several values."""
    reached = {axis: reached_by(points.designs, axis) for axis in axes_of(points.designs)}
    tallest = 1.06 * max((each or 0.0) for rows in reached.values() for row in rows for each in (row.best, row.bound))
    return tuple(
        reach_figure(
            f"throughput-by-{axis.column.removesuffix('_bytes').replace('_', '-')}{points.suffix}",
            axis.title,
            rows,
            f"{getattr(points.best.accelerator, axis.column) // axis.unit:,}",
            tallest,
        )
        for axis, rows in reached.items()
    )


def axis_table(points: PointsOfModel) -> PageTable:
    """The same in numbers."""
    reached = {axis.title: reached_by(points.designs, axis) for axis in axes_of(points.designs)}
    return reach_table("Throughput by axis of the accelerator", "axis", reached)


def axes_of(designs: pd.DataFrame) -> tuple[Axis, ...]:
    """The axes that have several values; where vector cores are as wide as tensor cores, that is one axis."""
    tied = bool((designs["width"] == designs["width_vc"]).all())
    several = [axis for axis in AXES if designs[axis.column].nunique() > 1 and not (tied and axis.column == "width_vc")]
    both = "columns of a tensor core, lanes of a vector core"
    return tuple(replace(axis, title=both) if tied and axis.column == "width" else axis for axis in several)


def reached_by(designs: pd.DataFrame, axis: Axis) -> tuple[Reached, ...]:
    """Per value of an axis, smallest first: what its designs reach, and what those not evaluated could."""
    evaluated = (designs["status"] == "evaluated").to_numpy(dtype=bool)
    fits = (designs["status"] != "infeasible").to_numpy(dtype=bool)
    throughput = designs["throughput_samples_per_s"].to_numpy(dtype=float)
    bound = designs["throughput_bound_samples_per_s"].to_numpy(dtype=float)
    column = designs[axis.column].to_numpy(dtype=int)
    rows = []
    for value in np.unique(column).tolist():
        here = column == value
        done, others = np.flatnonzero(here & evaluated), here & ~evaluated & fits
        best = int(done[np.argmax(throughput[done])]) if len(done) else None
        rows.append(
            Reached(
                f"{value // axis.unit:,}",
                None if best is None else float(throughput[best]),
                float(bound[others].max()) if others.any() else None,
                "" if best is None else chip_text(designs.iloc[[best]])[0],
            )
        )
    return tuple(rows)
