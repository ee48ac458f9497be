"""The axes of Pareto fronts in words, and what designs and named chips have of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from Estimator.chips.accelerator import Accelerator, AcceleratorSet
from phaze.report.sentences.designs import listed
from phaze.runs.finished_run import FinishedRun
from phaze_common.choices import FrontAxis
from phaze_common.numbers import number
from Solver.chip_metrics import ChipMetrics
from Solver.designs.search_criteria import CRITERIA
from Solver.plan_report import PlanReport


def _aligned(value: float) -> str:
    return number(value, aligned=True)


@dataclass(frozen=True)
class AxisWords:
    """An axis but throughput: its word, title on a chart, heading of a column, form of values."""

    word: str
    title: str
    heading: str
    buys: str  # of the front over it alone
    text: Callable[[float], str] = _aligned


WORDS: Mapping[FrontAxis, AxisWords] = {
    FrontAxis.AREA: AxisWords(
        "area", "area of a chip, mm²", "area mm²", "an area", "{:.2f}".format
    ),
    FrontAxis.ENERGY: AxisWords("energy", "joules per sample", "J/sample", "energy"),
    FrontAxis.POWER: AxisWords("power", "watts of a chip at its peak", "peak W", "power"),
    FrontAxis.COST: AxisWords(
        "cost", "dollars of a device with its share of servers and network", "device $", "money"
    ),
    FrontAxis.CARBON: AxisWords(
        "carbon", "kg CO2e embodied in a device", "embodied kg", "embodied carbon"
    ),
}


def other_axes(front: Sequence[FrontAxis]) -> tuple[FrontAxis, ...]:
    """Those of a front besides throughput."""
    return tuple(axis for axis in front if axis in WORDS)


def front_words(front: Sequence[FrontAxis]) -> str:
    """``throughput, area and energy``."""
    return listed([FrontAxis.THROUGHPUT.value, *(WORDS[axis].word for axis in other_axes(front))])


def drawn_axes(front: Sequence[FrontAxis]) -> tuple[FrontAxis, FrontAxis]:
    """What a chart has across and as colour: axes of the front first, else area and energy."""
    across, colour, *_ = dict.fromkeys((*other_axes(front), FrontAxis.AREA, FrontAxis.ENERGY))
    return across, colour


def amounts_of(
    run: FinishedRun,
    chips: Sequence[Accelerator],
    plans: Sequence[PlanReport],
    axes: Sequence[FrontAxis],
) -> list[dict[FrontAxis, float]]:
    """What each of ``chips`` with its plan has of ``axes``."""
    records = run.result.hardware.records
    metrics = ChipMetrics.of(
        AcceleratorSet.of(chips), records.space, np.ones(len(chips)), records.cluster
    )
    joules = np.array([plan.energy_per_sample_j or 0.0 for plan in plans])
    throughput = np.array([plan.throughput_samples_per_s for plan in plans])
    columns = {
        axis: np.abs(CRITERIA[axis].amount(metrics, joules, throughput)).tolist() for axis in axes
    }
    return [{axis: columns[axis][place] for axis in axes} for place in range(len(chips))]
