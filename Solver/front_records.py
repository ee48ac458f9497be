"""Records of the Pareto front of a search: the chips on it, some of them."""

from __future__ import annotations

from dataclasses import dataclass

from Estimator.chips.accelerator import Accelerator
from phaze_common.choices import FrontAxis
from Solver.plan_report import PlanSummary


@dataclass(frozen=True, kw_only=True)
class FrontChip(PlanSummary):
    """A chip on a front with its fastest plan there, and the memory sizes that allow it.

    ``amounts`` is what the design has of each axis but throughput, by the name of the axis, in the
    axis's unit: mm2 of area, joules per sample, watts at the peak, US dollars of a device,
    kilograms embodied in it.
    """

    accelerator: Accelerator  # the chip
    hbm_bytes: tuple[int, ...]
    amounts: dict[str, float]


@dataclass(frozen=True)
class ModelFront:
    """The Pareto front of one model over ``axes``: of so many ``chips_there_are`` some, the fastest
    first, spread evenly.

    ``designs.parquet`` has all of them. Where chips bring their memory the front is one over all
    sizes, else one of every size.
    """

    model: str  # as it was named
    axes: tuple[FrontAxis, ...]
    chips_there_are: int
    chips: tuple[FrontChip, ...]  # those on it
