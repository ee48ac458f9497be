"""The design points of one model of a run, and those of them that are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from Estimator.chips.axes import VARIED
from Estimator.plans.axes import OF_SHAPES
from GraphExtractor.names import label
from phaze.report.sentences.designs import accelerator_text, degrees_text
from phaze.runs.design_tables import CONSECUTIVE, LAYER_GROUPS, UNSTATED, chip_of, plan_of
from phaze.runs.finished_run import FinishedRun
from phaze_common.units import GIB
from Solver.plan_report import PlanReport
from Solver.results import DesignPoint, ReferencePoint

if TYPE_CHECKING:
    import pandas as pd

MOST_POINTS = 6000  # design points drawn and embedded per model; the front is always whole


OF_A_PLAN = (  # columns of designs that tell their plans apart
    *(each.key for each in OF_SHAPES),
    *(LAYER_GROUPS, "pp", "dp"),
)


@dataclass(frozen=True, eq=False)
class PointsOfModel:
    """The design points of one model of a run, with the best one's plan for it."""

    run: FinishedRun
    best: DesignPoint
    model: str
    designs: pd.DataFrame

    @property
    def plan(self) -> PlanReport:
        """The plan of the model at the best point."""
        return self.best.models[self.model]

    @property
    def references(self) -> tuple[ReferencePoint, ...]:
        """Known chips with as much memory on which the model fits."""
        known, size = self.run.result.references, self.best.hbm_bytes
        return tuple(each for each in known if each.hbm_bytes == size and self.model in each.models)

    @property
    def plan_memory_bytes(self) -> float:
        """Of the fullest stage of that plan."""
        return max(stage.memory_bytes for stage in self.plan.stages)

    @property
    def evaluated(self) -> pd.DataFrame:
        """Those whose best plan is known."""
        return self.designs[self.designs["status"] == "evaluated"]

    @property
    def suffix(self) -> str:
        """What tells the model's figures from those of others: nothing where it is the only one."""
        return f"-{label(self.model)}" if len(self.best.models) > 1 else ""


def points_of(run: FinishedRun, best: DesignPoint, model: str) -> PointsOfModel:
    """The design points of ``model``."""
    return PointsOfModel(run, best, model, run.designs[run.designs["model"] == model])


def thinned(evaluated: pd.DataFrame) -> pd.DataFrame:
    """The whole front and, evenly over the throughput, as many others as there is room for."""
    if len(evaluated) <= MOST_POINTS:
        return evaluated
    front = evaluated["on_front"].to_numpy(dtype=bool)
    others = np.flatnonzero(~front)
    room = max(MOST_POINTS - int(front.sum()), MOST_POINTS // 10)
    order = others[
        np.argsort(evaluated["throughput_samples_per_s"].to_numpy()[others], kind="stable")
    ]
    keep = front.copy()
    if len(order):
        keep[order[np.linspace(0, len(order) - 1, min(room, len(order))).astype(int)]] = True
    return evaluated[keep]


def chip_text(designs: pd.DataFrame) -> list[str]:
    """The accelerators of design points, each in one line."""
    return [accelerator_text(chip_of(point)) for point in designs.to_dict("records")]


def varied_texts(designs: pd.DataFrame) -> list[str]:
    """What follows the sizes of accelerators, if anything: ``, 4 x hbm3, 0.84 GHz``."""
    if not set(VARIED) & set(designs):
        return [""] * len(designs)
    chips = [chip_of(point) for point in designs.to_dict("records")]
    return [accelerator_text(chip).removeprefix(accelerator_text(chip.standard)) for chip in chips]


def plan_texts(designs: pd.DataFrame) -> list[str]:
    """Degrees of the best plans of design points, and where groups assigned to tiers are placed."""
    found = []
    for point in designs.to_dict("records"):
        groups = point[LAYER_GROUPS]
        where = "" if groups in {CONSECUTIVE, UNSTATED} else f", {groups} within a layer"
        found.append(degrees_text(plan_of(point)) + where)
    return found


def front_rows(run: FinishedRun, model: str) -> list[tuple[float, float, str]]:
    """Area in mm2, samples per second and accelerator of the Pareto front of a model."""
    designs = run.designs
    front = designs[(designs["model"] == model) & designs["on_front"]]
    area_mm2, throughput = front["area_mm2"].tolist(), front["throughput_samples_per_s"].tolist()
    return list(zip(area_mm2, throughput, chip_text(front), strict=True))


def memory_rows(run: FinishedRun, model: str) -> list[tuple[float, float, str]]:
    """Memory of the fullest stage in GiB, samples per second and plan of evaluated points."""
    designs = run.designs
    shown = thinned(designs[(designs["model"] == model) & (designs["status"] == "evaluated")])
    return [
        (
            row["memory_bytes"] / GIB,
            row["throughput_samples_per_s"],
            f"{plan}, micro-batch {row['micro_batch_size']}, {row['recompute']}",
        )
        for plan, (_, row) in zip(plan_texts(shown), shown.iterrows(), strict=True)
    ]
