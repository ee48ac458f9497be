"""What a device of every stage holds while an iteration runs: activations come and go over what
stays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from Estimator.plans.pipeline.schedule import PipelineSchedule, costs_of
from Estimator.plans.pipeline.simulation import held_over_time, timeline
from phaze.report.pages.charts import sized
from phaze.report.pages.figures import Figure, PageTable, inline_data, table
from phaze.report.pages.formats import duration, unit_for
from phaze.report.pages.placement_figures import ROOM
from phaze.report.pages.theme import RAMP, colour
from phaze_common.units import GIB
from Solver.results import ModelPlan

MOST_STAGES = 8  # drawn: of more, an even choice with the fullest
MOST_STEPS = 6000  # of all stages; of longer iterations the beginning is drawn
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StageMemory:
    """Bytes on a device of a stage: ``held_bytes[k]`` from ``time_s[k]`` on; ``constant_bytes`` of
    them stay all the time."""

    number: int
    constant_bytes: float
    time_s: FloatArray
    held_bytes: FloatArray

    @property
    def peak_bytes(self) -> float:
        """Most that it holds at once."""
        return float(self.held_bytes.max())


def stage_memories(plan: ModelPlan) -> tuple[StageMemory, ...]:
    """What every stage holds over an iteration, from its simulated timeline; none for runs that do
    not say what is saved."""
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


def memory_over_time(plan: ModelPlan, suffix: str) -> tuple[Figure, ...]:
    """A line per stage; of many stages some, of a long iteration the beginning."""
    import altair as alt

    stages = stage_memories(plan)
    if not stages:
        return ()
    shown = _shown(stages)
    steps = max(len(stage.time_s) for stage in shown)
    kept = min(steps, MOST_STEPS // len(shown))
    end_s = (
        plan.time_per_batch_s
        if kept == steps
        else min(float(stage.time_s[kept - 1]) for stage in shown)
    )
    unit = unit_for(plan.time_per_batch_s)
    rows = [
        (stage.number, time_s * unit.per_second, held / GIB, (held - stage.constant_bytes) / GIB)
        for stage in shown
        for time_s, held in [
            *zip(stage.time_s.tolist(), stage.held_bytes.tolist(), strict=True),
            (end_s, stage.held_bytes[-1]),
        ]
        if time_s <= end_s
    ]
    data = inline_data(("stage", "time", "held", "activations"), rows)
    limit, highest = plan.hbm_bytes / GIB, max(stage.peak_bytes for stage in stages) / GIB
    near = highest >= ROOM * limit
    domain = [0.0, 1.04 * (limit if near else highest)]
    y = alt.Y("held:Q", title="GiB per device", scale=alt.Scale(domain=domain, nice=False))
    numbers = [stage.number for stage in shown]
    scale = alt.Scale(domain=numbers, range=_ramp(len(numbers)))
    legend = alt.Legend() if len(numbers) > 1 else None
    base = alt.Chart(data).encode(
        x=alt.X(
            "time:Q",
            title=unit.name,
            scale=alt.Scale(domain=[0, end_s * unit.per_second], nice=False),
        ),
        y=y,
        color=alt.Color("stage:O", title="stage", scale=scale, legend=legend),
    )
    tooltip = [
        alt.Tooltip("stage:O", title="stage"),
        alt.Tooltip("time:Q", title=f"from, {unit.name}", format=".4~r"),
        alt.Tooltip("held:Q", title="held, GiB", format=".4~r"),
        alt.Tooltip("activations:Q", title="of it activations, GiB", format=".4~r"),
    ]
    layers = [
        base.mark_line(interpolate="step-after", strokeWidth=1.5),
        base.mark_point(size=30, opacity=0, filled=True).encode(tooltip=tooltip),
    ]
    if near:
        line = alt.Chart(inline_data(("limit",), [(limit,)])).mark_rule(
            color=colour("accent"), strokeWidth=2
        )
        layers.append(line.encode(y=alt.Y("limit:Q", title="GiB per device")))
    fullest = max(stages, key=lambda stage: stage.peak_bytes)
    what = "The line across is" if near else "Far above lies"
    caption = (
        "Parameters with their gradients and optimizer state, workspace and what is reserved "
        "stay; the activations of a "
        "micro-batch come with its forward pass and go with its backward pass. "
        f"Stage {fullest.number} holds most, {fullest.peak_bytes / GIB:.3g} GiB. {what} the limit "
        f"of {limit:.4g} GiB."
    )
    if len(shown) < len(stages):
        caption += f" {len(shown)} of {len(stages)} stages are drawn."
    if kept < steps:
        caption += f" The first {duration(end_s)} are drawn; the same pattern goes on."
    spec = sized(alt.layer(*layers), 260)
    return (
        Figure(
            f"memory-over-time{suffix}",
            "Memory over time",
            caption,
            spec,
            len(rows),
            _table(stages),
        ),
    )


def _shown(stages: tuple[StageMemory, ...]) -> list[StageMemory]:
    if len(stages) <= MOST_STAGES:
        return list(stages)
    fullest = max(range(len(stages)), key=lambda place: stages[place].peak_bytes)
    chosen = {fullest, *np.linspace(0, len(stages) - 1, MOST_STAGES - 1).astype(int).tolist()}
    return [stages[place] for place in sorted(chosen)]


def _ramp(count: int) -> list[str]:
    """Colours in the order of the stages: roles of a ramp, repeated where there are more stages
    than roles."""
    roles = [*reversed(RAMP), "accent", "two", "four", "six"]
    return [colour(roles[place % len(roles)]) for place in range(count)]


def _table(stages: tuple[StageMemory, ...]) -> PageTable:
    columns = ("stage", "stays, GiB", "activations at most, GiB", "at most, GiB", "first reached")
    rows = (
        (
            str(stage.number),
            f"{stage.constant_bytes / GIB:.3f}",
            f"{(stage.peak_bytes - stage.constant_bytes) / GIB:.3f}",
            f"{stage.peak_bytes / GIB:.3f}",
            duration(float(stage.time_s[stage.held_bytes.argmax()])),
        )
        for stage in stages
    )
    return table("What a device of each stage holds", columns, rows, words=())
