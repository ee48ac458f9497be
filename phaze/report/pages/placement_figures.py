"""Figures of a placement: load and memory of every pipeline stage."""

from collections.abc import Callable, Iterable, Sequence

from phaze.report.pages.charts import sized
from phaze.report.pages.figures import Figure, PageTable, inline_data, table
from phaze.report.pages.formats import duration, layer_range, unit_for
from phaze.report.pages.stages import LOAD_PARTS, MEMORY_PARTS, StageView
from phaze.report.pages.theme import colour
from phaze.studies.wording import EQUAL, listed
from phaze_common.numbers import number

# of the limit: where the fullest stage fills less, the axis leaves the limit out so that the parts
# can be seen
ROOM = 0.3


def load_figure(stages: Sequence[StageView], suffix: str) -> Figure:
    """Seconds per micro-batch of every stage, by part."""
    slowest = max(stages, key=lambda stage: stage.load_s)
    unit = unit_for(slowest.load_s)
    spec, marks = _stacked(
        stages,
        LOAD_PARTS,
        lambda stage: {part: seconds * unit.per_second for part, seconds in stage.seconds.items()},
        f"{unit.name} per micro-batch",
        None,
    )
    fastest = min(stage.load_s for stage in stages)
    if len(stages) == 1:
        caption = f"One stage runs the whole model: {duration(slowest.load_s)} per micro-batch."
    elif slowest.load_s - fastest < EQUAL * slowest.load_s:
        caption = f"All stages are equally loaded: {duration(slowest.load_s)} per micro-batch."
    else:
        caption = (
            f"{_highest([stage.load_s for stage in stages], 'slowest')} "
            f"({duration(slowest.load_s)} per micro-batch); that sets "
            "the pace, and "
            f"the least loaded one takes {fastest / slowest.load_s:.0%} of that."
        )
    return Figure(f"stage-load{suffix}", "Load per stage", caption, spec, marks, abreast=2)


def memory_figure(
    stages: Sequence[StageView], limit_bytes: float, unit: str, unit_bytes: float, suffix: str
) -> Figure:
    """Bytes on a device of every stage, by part, against what the device has (in ``unit`` of
    ``unit_bytes``)."""
    fullest = max(stages, key=lambda stage: stage.total_bytes)
    share = fullest.total_bytes / limit_bytes
    limit = limit_bytes / unit_bytes
    near = share >= ROOM
    spec, marks = _stacked(
        stages,
        MEMORY_PARTS,
        lambda stage: {part: size / unit_bytes for part, size in stage.memory_bytes.items()},
        f"{unit} per device",
        limit if near else None,
    )
    highest = _highest([stage.total_bytes for stage in stages], "fullest")
    words = (
        f"{highest}: {number(fullest.total_bytes / unit_bytes)} of {number(limit)} {unit} "
        f"({share:.1%})."
    )
    if len(stages) == 1:
        words = (
            f"{number(fullest.total_bytes / unit_bytes)} of {number(limit)} {unit} ({share:.1%})."
        )
    words += (
        f" The {'line is the ' if near else ''}limit of {number(limit)} "
        f"{unit}{'' if near else ' lies far above'}."
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


def stage_table(
    stages: Sequence[StageView], limit_bytes: float, unit: str, unit_bytes: float
) -> PageTable:
    """The stages in numbers."""
    time = unit_for(max(stage.load_s for stage in stages))
    seconds = [part for part in LOAD_PARTS if any(stage.seconds[part] for stage in stages)]
    sizes = [part for part in MEMORY_PARTS if any(stage.memory_bytes[part] for stage in stages)]
    columns = (
        "stage",
        "layers",
        "devices",
        *(f"{part} {time.name}" for part in seconds),
        f"load {time.name}",
        *(f"{part} {unit}" for part in sizes),
        f"memory {unit}",
        "of the limit",
    )
    rows = (
        (
            str(stage.number),
            "; ".join(layer_range(layers) for layers in stage.chunks),
            f"{stage.devices:,}",
            *(number(stage.seconds[part] * time.per_second) for part in seconds),
            number(stage.load_s * time.per_second),
            *(f"{stage.memory_bytes[part] / unit_bytes:.3f}" for part in sizes),
            f"{stage.total_bytes / unit_bytes:.3f}",
            f"{stage.total_bytes / limit_bytes:.1%}",
        )
        for stage in stages
    )
    return table("Stages", columns, rows, words={"layers"})


def _stacked(
    stages: Sequence[StageView],
    roles: dict[str, str],
    values: Callable[[StageView], dict[str, float]],
    title: str,
    limit: float | None,
) -> tuple[dict[str, object], int]:
    """Bars of parts above the stages, and a line at ``limit``; returns the chart and how many marks
    it has."""
    import altair as alt

    amounts = [values(stage) for stage in stages]
    parts = [part for part in roles if any(amount[part] > 0.0 for amount in amounts)]
    rows: Iterable[tuple[object, ...]] = (
        (
            stage.number,
            part,
            position,
            amount[part],
            sum(amount.values()),
            "; ".join(map(layer_range, stage.chunks)),
        )
        for stage, amount in zip(stages, amounts, strict=True)
        for position, part in enumerate(parts)
    )
    data = inline_data(
        ("stage", "part", "position", "amount", "total", "layers"), rows, words={"part", "layers"}
    )
    highest = max([sum(amount.values()) for amount in amounts] + ([limit] if limit else [])) * 1.04
    y = alt.Y(
        "amount:Q", title=title, stack="zero", scale=alt.Scale(domain=[0, highest], nice=False)
    )
    bars = (
        alt.Chart(data)
        .mark_bar(stroke=colour("page"), strokeWidth=0.5)
        .encode(
            x=alt.X("stage:O", title="stage", axis=alt.Axis(labelOverlap="greedy")),
            y=y,
            color=alt.Color(
                "part:N",
                title=None,
                scale=alt.Scale(domain=parts, range=[colour(roles[part]) for part in parts]),
            ),
            order=alt.Order("position:Q"),
            tooltip=[
                alt.Tooltip("stage:O", title="stage"),
                alt.Tooltip("layers:N", title="layers"),
                alt.Tooltip("part:N", title="part"),
                alt.Tooltip("amount:Q", title=title, format=".4~r"),
                alt.Tooltip("total:Q", title="in all", format=".4~r"),
            ],
        )
    )
    layers = [bars]
    if limit is not None:
        line = alt.Chart(inline_data(("limit",), [(limit,)])).mark_rule(
            color=colour("accent"), strokeWidth=2
        )
        layers.append(line.encode(y=alt.Y("limit:Q", title=title)))
    return sized(alt.layer(*layers), 260), len(stages) * len(parts)
