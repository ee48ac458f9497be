"""The design points of one model of a run, and those of them that are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from Estimator.chips.accelerator import VARIED, Accelerator
from Estimator.plans.axes import OF_SHAPES
from GraphExtractor.names import label
from phaze.runs.design_tables import CONSECUTIVE, LAYER_GROUPS, UNSTATED, DesignDegrees
from phaze.runs.finished_run import FinishedRun
from phaze.studies.wording import accelerator_text, degrees_text
from phaze_common.numbers import number
from phaze_common.units import GIB, MIB
from Solver.results import DesignPoint, ModelPlan, ReferencePoint

if TYPE_CHECKING:
    import pandas as pd

MOST_POINTS = 6000  # design points drawn and embedded per model; the front is always whole
CHIP_COLUMNS = ("num_tc", "num_vc", "width", "depth", "width_vc", "glb_bytes")
NO_SIZES = Accelerator(0, 0, 0, 0, 0, 0, 0.0)


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
    def plan(self) -> ModelPlan:
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
    columns: Sequence[list[int]] = [
        designs[column].to_numpy(dtype=int).tolist() for column in CHIP_COLUMNS
    ]
    return [
        f"{num_tc} TC {depth}x{width}, {num_vc} VC {width_vc}, GLB {number(glb_bytes / MIB)} "
        f"MiB{varied}"
        for (num_tc, num_vc, width, depth, width_vc, glb_bytes), varied in zip(
            zip(*columns, strict=True), varied_texts(designs), strict=True
        )
    ]


def varied_columns(designs: pd.DataFrame) -> list[str]:
    """Columns that tell chips apart besides their sizes: memory as it is sold, clock, links."""
    return [name for name in VARIED if name in designs]


def varied_texts(designs: pd.DataFrame) -> list[str]:
    """What follows the sizes of accelerators, if anything: ``, 4 x hbm3, 0.84 GHz``."""
    if not varied_columns(designs):
        return [""] * len(designs)
    none = [None] * len(designs)
    known = (designs[name].tolist() if name in designs else none for name in VARIED)
    plain, found = accelerator_text(NO_SIZES), []
    for row in zip(*known, strict=True):
        given: dict[str, Any] = dict(zip(VARIED, row, strict=True))
        # a number that is not there equals nothing
        chip = replace(NO_SIZES, **{key: each for key, each in given.items() if each == each})
        found.append(accelerator_text(chip).removeprefix(plain))
    return found


def plan_texts(designs: pd.DataFrame) -> list[str]:
    """Degrees of the best plans of design points, and where groups assigned to tiers are placed."""
    columns = (
        designs[name].tolist()
        for name in (*(each.name for each in fields(DesignDegrees)), LAYER_GROUPS)
    )
    return [
        degrees_text(DesignDegrees(*degrees))
        + ("" if lying in {CONSECUTIVE, UNSTATED} else f", {lying} within a layer")
        for *degrees, lying in zip(*columns, strict=True)
    ]


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
