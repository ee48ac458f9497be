"""Figures of a placement: load and memory of every pipeline stage."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from phaze.report.pages.charts import chart_of, exactly, limit_rule, sized, stacked_bars, tips
from phaze.report.pages.figures import Figure
from phaze.report.pages.layer_ranges import layer_range
from phaze.report.pages.stages import LOAD_PARTS, MEMORY_PARTS, StageView
from phaze.report.sentences.designs import EQUAL, listed
from phaze.report.table import Table
from phaze_common.numbers import number, time_text, unit_for
from phaze_common.units import GIB

# of the limit: where the fullest stage fills less, the axis leaves the limit out so that the parts
# can be seen
ROOM = 0.3


def load_figure(stages: Sequence[StageView], suffix: str) -> Figure:
    """Seconds per micro-batch of every stage, by part."""
    slowest = max(stages, key=lambda stage: stage.load_s)
    unit = unit_for(slowest.load_s)
    scaled = [stage.scaled(stage.seconds, unit.per_second) for stage in stages]
    spec, marks = _stacked(stages, LOAD_PARTS, scaled, f"{unit.name} per micro-batch", None)
    fastest = min(stage.load_s for stage in stages)
    if len(stages) == 1:
        caption = f"One stage runs the whole model: {time_text(slowest.load_s)} per micro-batch."
    elif slowest.load_s - fastest < EQUAL * slowest.load_s:
        caption = f"All stages are equally loaded: {time_text(slowest.load_s)} per micro-batch."
    else:
        caption = (
            f"{_highest([stage.load_s for stage in stages], 'slowest')} "
            f"({time_text(slowest.load_s)} per micro-batch); that sets the pace, and the least "
            f"loaded one takes {fastest / slowest.load_s:.0%} of that."
        )
    return Figure(f"stage-load{suffix}", "Load per stage", caption, spec, marks, abreast=2)


def memory_figure(stages: Sequence[StageView], limit_bytes: float, suffix: str) -> Figure:
    """Bytes on a device of every stage, by part, against what the device has."""
    fullest = max(stages, key=lambda stage: stage.total_bytes)
    share, limit = fullest.total_bytes / limit_bytes, limit_bytes / GIB
    near = share >= ROOM
    scaled = [stage.scaled(stage.memory_bytes, 1 / GIB) for stage in stages]
    spec, marks = _stacked(stages, MEMORY_PARTS, scaled, "GiB per device", limit if near else None)
    highest = f"{_highest([stage.total_bytes for stage in stages], 'fullest')}: "
    words = (
        f"{highest if len(stages) > 1 else ''}{number(fullest.total_bytes / GIB)} of "
        f"{number(limit)} GiB ({share:.1%}). The {'line is the ' if near else ''}limit of "
        f"{number(limit)} GiB{'' if near else ' lies far above'}."
    )
    return Figure(f"stage-memory{suffix}", "Memory per stage", words, spec, marks, abreast=2)


def _highest(values: Sequence[float], what: str) -> str:
    """``Stage 2 is the slowest``, or all that are equally so: ``Stages 2 to 9 are the slowest``."""
    most = max(values)
    found = [stage for stage, value in enumerate(values, start=1) if value >= most * (1 - EQUAL)]
    if len(found) == 1:
        return f"Stage {found[0]} is the {what}"
    runs: list[list[int]] = []
    for stage in found:
        if runs and runs[-1][-1] == stage - 1:
            runs[-1].append(stage)
        else:
            runs.append([stage])
    names = [
        f"{run[0]} to {run[-1]}" if len(run) > 2 else listed([str(stage) for stage in run])
        for run in runs
    ]
    return f"Stages {listed(names)} are the {what}"


def stage_table(stages: Sequence[StageView], limit_bytes: float) -> Table:
    """The stages in numbers."""
    time = unit_for(max(stage.load_s for stage in stages))
    seconds = [part for part in LOAD_PARTS if any(stage.seconds[part] for stage in stages)]
    sizes = [part for part in MEMORY_PARTS if any(stage.memory_bytes[part] for stage in stages)]
    rows = []
    for stage in stages:
        loads = {f"{part} {time.name}": stage.seconds[part] for part in seconds}
        loads[f"load {time.name}"] = stage.load_s
        held = {f"{part} GiB": stage.memory_bytes[part] for part in sizes}
        held["memory GiB"] = stage.total_bytes
        rows.append(
            {
                "stage": str(stage.number),
                "layers": "; ".join(map(layer_range, stage.chunks)),
                "devices": f"{stage.devices:,}",
                **{name: number(each * time.per_second) for name, each in loads.items()},
                **{name: f"{each / GIB:.3f}" for name, each in held.items()},
                "of the limit": f"{stage.total_bytes / limit_bytes:.1%}",
            }
        )
    return Table.of("Stages", rows, words={"layers"})


def _stacked(
    stages: Sequence[StageView],
    roles: dict[str, str],
    amounts: Sequence[dict[str, float]],
    title: str,
    limit: float | None,
) -> tuple[dict[str, object], int]:
    """Bars of parts above the stages, and a line at ``limit``; with the number of marks."""
    totals = [sum(amount.values()) for amount in amounts]
    parts = [part for part in roles if any(amount[part] > 0.0 for amount in amounts)]
    base = chart_of(
        {
            "stage": stage.number,
            "part": part,
            "position": position,
            "amount": amount[part],
            "total": total,
            "layers": "; ".join(map(layer_range, stage.chunks)),
        }
        for stage, amount, total in zip(stages, amounts, totals, strict=True)
        for position, part in enumerate(parts)
    )
    scale = exactly(0, max(totals + ([limit] if limit else [])) * 1.04)
    titles = {"stage:O": "stage", "layers:N": "layers", "part:N": "part"}
    bars = stacked_bars(
        base,
        "part:N",
        {part: roles[part] for part in parts},
        x=alt.X("stage:O", title="stage", axis=alt.Axis(labelOverlap="greedy")),
        y=alt.Y("amount:Q", title=title, stack="zero", scale=scale),
        tooltip=tips(titles | {"amount:Q .4~r": title, "total:Q .4~r": "in all"}),
    )
    layers = [bars] if limit is None else [bars, limit_rule(limit, title)]
    return sized(alt.layer(*layers), 260), len(stages) * len(parts)
