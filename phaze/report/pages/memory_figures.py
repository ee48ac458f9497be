"""What a device of every stage holds in an iteration: activations come and go over what stays."""

from __future__ import annotations

from dataclasses import dataclass

import altair as alt
import numpy as np
from numpy.typing import NDArray

from Estimator.plans.pipeline.schedule import PipelineSchedule, costs_of
from Estimator.plans.pipeline.simulation import held_over_time, timeline
from phaze.report.pages.charts import by_role, chart_of, exactly, limit_rule, lines, sized, tips
from phaze.report.pages.figures import Figure
from phaze.report.pages.placement_figures import ROOM
from phaze.report.pages.theme import RAMP
from phaze.report.table import Table
from phaze_common.numbers import time_text, unit_for
from phaze_common.units import GIB
from Solver.plan_report import PlanReport

MOST_STAGES = 8  # drawn: of more, an even choice with the fullest
MOST_STEPS = 6000  # of all stages; of longer iterations the beginning is drawn
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StageMemory:
    """``held_bytes[k]`` on a device from ``time_s[k]`` on, ``constant_bytes`` of them always."""

    number: int
    constant_bytes: float
    time_s: FloatArray
    held_bytes: FloatArray

    @property
    def peak_bytes(self) -> float:
        """Most that it holds at once."""
        return float(self.held_bytes.max())


def stage_memories(plan: PlanReport) -> tuple[StageMemory, ...]:
    """What every stage holds over an iteration; none for runs that do not say what is saved."""
    report = plan.pipeline
    if not report.saved_bytes:
        return ()
    passes = timeline(costs_of(report), PipelineSchedule(report.schedule), report.micro_batches)
    found = []
    for number, stage in enumerate(plan.stages):
        held = held_over_time(passes, np.array(report.saved_bytes), number)
        constant = stage.memory_bytes - stage.activation_bytes
        time_s, held_bytes = np.append(0.0, held.time_s), constant + np.append(0.0, held.held_bytes)
        found.append(StageMemory(number + 1, constant, time_s, held_bytes))
    return tuple(found)


def memory_over_time(plan: PlanReport, suffix: str) -> tuple[Figure, ...]:
    """A line per stage; of many stages some, of a long iteration the beginning."""
    stages = stage_memories(plan)
    if not stages:
        return ()
    shown = _shown(stages)
    steps = max(len(stage.time_s) for stage in shown)
    kept, end_s = min(steps, MOST_STEPS // len(shown)), plan.time_per_batch_s
    if kept < steps:
        end_s = min(float(stage.time_s[kept - 1]) for stage in shown)
    unit = unit_for(plan.time_per_batch_s)
    rows = [
        {
            "stage": stage.number,
            "time": time_s * unit.per_second,
            "held": held / GIB,
            "activations": (held - stage.constant_bytes) / GIB,
        }
        for stage in shown
        for time_s, held in [
            *zip(stage.time_s.tolist(), stage.held_bytes.tolist(), strict=True),
            (end_s, float(stage.held_bytes[-1])),
        ]
        if time_s <= end_s
    ]
    limit, highest = plan.hbm_bytes / GIB, max(stage.peak_bytes for stage in stages) / GIB
    near = highest >= ROOM * limit
    # roles of a ramp in the order of the stages, repeated where there are more stages than roles
    roles = [*reversed(RAMP), "accent", "two", "four", "six"]
    colours = {each.number: roles[place % len(roles)] for place, each in enumerate(shown)}
    title = "GiB per device"
    base = chart_of(rows).encode(
        x=alt.X("time:Q", title=unit.name, scale=exactly(0, end_s * unit.per_second)),
        y=alt.Y("held:Q", title=title, scale=exactly(0.0, 1.04 * (limit if near else highest))),
        color=by_role("stage:O", colours, "stage", legend=alt.Legend() if len(shown) > 1 else None),
    )
    tooltip = tips(
        {
            "stage:O": "stage",
            "time:Q .4~r": f"from, {unit.name}",
            "held:Q .4~r": "held, GiB",
            "activations:Q .4~r": "of it activations, GiB",
        }
    )
    line = {"interpolate": "step-after", "strokeWidth": 1.5}
    layers = lines(base, tooltip, line, size=30, opacity=0, filled=True)
    if near:
        layers.append(limit_rule(limit, title))
    fullest = max(stages, key=lambda stage: stage.peak_bytes)
    caption = (
        "Parameters with their gradients and optimizer state, workspace and what is reserved "
        "stay; the activations of a micro-batch come with its forward pass and go with its "
        f"backward pass. Stage {fullest.number} holds most, {fullest.peak_bytes / GIB:.3g} GiB. "
        f"{'The line across is' if near else 'Far above lies'} the limit of {limit:.4g} GiB."
    )
    if len(shown) < len(stages):
        caption += f" {len(shown)} of {len(stages)} stages are drawn."
    if kept < steps:
        caption += f" The first {time_text(end_s)} are drawn; the same pattern goes on."
    name, spec = f"memory-over-time{suffix}", sized(alt.layer(*layers), 260)
    return (Figure(name, "Memory over time", caption, spec, len(rows), _table(stages)),)


def _shown(stages: tuple[StageMemory, ...]) -> list[StageMemory]:
    if len(stages) <= MOST_STAGES:
        return list(stages)
    fullest = max(range(len(stages)), key=lambda place: stages[place].peak_bytes)
    chosen = {fullest, *np.linspace(0, len(stages) - 1, MOST_STAGES - 1).astype(int).tolist()}
    return [stages[place] for place in sorted(chosen)]


def _table(stages: tuple[StageMemory, ...]) -> Table:
    rows = (
        {
            "stage": str(stage.number),
            "stays, GiB": f"{stage.constant_bytes / GIB:.3f}",
            "activations at most, GiB": f"{(stage.peak_bytes - stage.constant_bytes) / GIB:.3f}",
            "at most, GiB": f"{stage.peak_bytes / GIB:.3f}",
            "first reached": time_text(float(stage.time_s[stage.held_bytes.argmax()])),
        }
        for stage in stages
    )
    return Table.of("What a device of each stage holds", rows, words=())
