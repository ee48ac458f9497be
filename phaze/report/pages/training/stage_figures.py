"""Charts of a trained plan's stages: processor time, where a step goes, and memory, measured beside
predicted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from phaze.report.pages.charts import sized
from phaze.report.pages.figures import Figure, PageTable, inline_data, table
from phaze.report.pages.formats import layer_range, share, unit_for
from phaze.report.pages.theme import colour
from phaze.runtime.training.records import StageRecord, StepRecord
from phaze_common.numbers import number
from phaze_common.units import MIB

ROW = 34  # pixels of a pair of bars
MEASURED, PREDICTED = "measured", "predicted"
ACTIVITIES = {  # what a step goes on: the role of its colour
    "forward": "forward",
    "backward": "backward",
    "communication": "sync",
    "update": "optimizer",
    "idle": "bubble",
}


@dataclass(frozen=True)
class Bar:
    """A part of a bar: ``row`` of the chart, whether it was measured or predicted, what it is, and
    how much."""

    row: str
    which: str
    what: str
    value: float


def loss_figure(steps: Sequence[StepRecord]) -> Figure:
    """The loss of every step."""
    import altair as alt

    data = inline_data(
        ("step", "loss", "norm"), ((step.step, step.loss, step.gradient_norm) for step in steps)
    )
    line = alt.Chart(data).encode(
        x=alt.X("step:Q", title="step", axis=alt.Axis(tickMinStep=1)),
        y=alt.Y("loss:Q", title="loss", scale=alt.Scale(zero=False)),
    )
    tooltip = [
        alt.Tooltip("step:Q", title="step"),
        alt.Tooltip("loss:Q", title="loss", format=".6~r"),
        alt.Tooltip("norm:Q", title="norm of the gradients", format=".4~r"),
    ]
    chart = alt.layer(
        line.mark_line(color=colour("mark")),
        line.mark_point(color=colour("mark"), filled=True, size=30).encode(tooltip=tooltip),
    )
    columns = ("step", "loss", "norm of the gradients", "seconds")
    rows = (
        (str(each.step), f"{each.loss:.6f}", number(each.gradient_norm), f"{each.wall_s:.4f}")
        for each in steps
    )
    caption = "Mean loss over the rows of every step."
    return Figure(
        "losses",
        "Loss",
        caption,
        sized(chart, 200),
        len(steps),
        table("Steps", columns, rows, words=()),
    )


def processor_figure(stages: Sequence[StageRecord]) -> Figure | None:
    """Processor time of each stage's passes; None where the plan's file predicts none."""
    bars = [
        Bar(f"stage {stage.stage + 1}", which, what, value)
        for stage in stages
        for which, what, value in (
            (MEASURED, "forward", stage.measured.forward_processor_s),
            (MEASURED, "backward", stage.measured.backward_processor_s),
            (PREDICTED, "forward", stage.predicted.forward_s),
            (PREDICTED, "backward", stage.predicted.backward_s),
        )
        if value is not None
    ]
    if not any(bar.which == PREDICTED for bar in bars):
        return None
    unit = unit_for(max(bar.value for bar in bars))
    caption = (
        "Seconds of the processor in one step, without waiting: processes that share a core wait "
        "for it, which no prediction of "
        "their work holds."
    )
    return _stacked(
        "stage-seconds",
        "Processor time of the passes",
        caption,
        bars,
        unit.per_second,
        unit.name,
        _errors(stages),
    )


def _errors(stages: Sequence[StageRecord]) -> PageTable:
    columns = (
        "stage",
        "layers",
        "dp x tp",
        "forward ms",
        "predicted",
        "backward ms",
        "predicted ",
        "both, predicted over measured",
    )
    rows = []
    for each in stages:
        measured, predicted = each.measured, each.predicted
        values = (
            measured.forward_processor_s,
            predicted.forward_s,
            measured.backward_processor_s,
            predicted.backward_s,
        )
        cells = ["" if value is None else number(1e3 * value) for value in values]
        error = each.processor_error
        off = "" if error is None else f"{error:+.1%}"
        rows.append(
            (str(each.stage + 1), layer_range(each.layers), f"{each.dp} x {each.tp}", *cells, off)
        )
    return table("Processor time of a step", columns, rows, words={"layers"})


def step_figure(stages: Sequence[StageRecord]) -> Figure:
    """What each stage does in a step by the wall clock."""
    bars = list(_activities(stages))
    unit = unit_for(max(bar.value for bar in bars))
    caption = (
        "Seconds of a step by the clock on the wall. Waiting for tensors of other stages is idle; "
        "communication is adding up "
        "parts of products, gradients and norms, with waiting for the slowest of those who take "
        "part."
    )
    columns = ("stage", "", *(f"{what} {unit.name}" for what in ACTIVITIES))
    rows = []
    for each in stages:
        for which in (MEASURED, PREDICTED):
            found = {
                bar.what: bar.value
                for bar in bars
                if bar.row == f"stage {each.stage + 1}" and bar.which == which
            }
            if found:
                cells = (
                    number(found[what] * unit.per_second) if what in found else ""
                    for what in ACTIVITIES
                )
                rows.append((str(each.stage + 1), which, *cells))
    shown = table("What each stage does in a step", columns, rows, words={""})
    return _stacked(
        "step-seconds", "Where a step goes", caption, bars, unit.per_second, unit.name, shown
    )


def _activities(stages: Sequence[StageRecord]) -> Iterator[Bar]:
    for stage in stages:
        for which, times in ((MEASURED, stage.measured), (PREDICTED, stage.predicted)):
            for what in ACTIVITIES:
                value: float | None = getattr(times, f"{what}_s")
                if value is not None:
                    yield Bar(f"stage {stage.stage + 1}", which, what, value)


def memory_figure(stages: Sequence[StageRecord]) -> Figure:
    """State and activations of the fullest process of each stage."""
    bars = [
        Bar(f"stage {stage.stage + 1}", which, what, value / MIB)
        for stage in stages
        for which, what, value in (
            (MEASURED, "weights and optimizer", float(stage.state_bytes)),
            (MEASURED, "activations", float(stage.kept_bytes)),
            (PREDICTED, "weights and optimizer", stage.predicted.state_bytes),
            (PREDICTED, "activations", stage.predicted.kept_bytes),
        )
        if value is not None
    ]
    columns = (
        "stage",
        "weights and optimizer MiB",
        "predicted",
        "activations MiB",
        "predicted ",
        "process MiB",
        "predicted  ",
    )
    rows = (
        (
            str(each.stage + 1),
            *(
                "" if value is None else number(value / MIB)
                for value in (
                    each.state_bytes,
                    each.predicted.state_bytes,
                    each.kept_bytes,
                    each.predicted.kept_bytes,
                    each.resident_bytes,
                    each.predicted.memory_bytes,
                )
            ),
        )
        for each in stages
    )
    caption = (
        "What the fullest process of each stage keeps: weights, gradients and optimizer state, "
        "and the most that passes in "
        "flight left for their backward passes. The table also has the whole process, with the "
        "libraries in it."
    )
    shown = table("Memory", columns, rows, words=())
    return _stacked("memory", "Memory of a process", caption, bars, 1.0, "MiB", shown, MEMORY)


MEMORY = {"weights and optimizer": "state", "activations": "activations"}


def _stacked(
    name: str,
    title: str,
    caption: str,
    bars: Sequence[Bar],
    scale: float,
    unit: str,
    shown: PageTable,
    roles: dict[str, str] | None = None,
) -> Figure:
    """A pair of stacked bars for each row: measured above predicted, which is paler."""
    import altair as alt

    roles = roles or ACTIVITIES
    kinds = [what for what in roles if any(bar.what == what for bar in bars)]
    data = inline_data(
        ("row", "which", "what", "value", "order"),
        ((bar.row, bar.which, bar.what, bar.value * scale, kinds.index(bar.what)) for bar in bars),
        words={"row", "which", "what"},
    )
    rows, ways = list(dict.fromkeys(bar.row for bar in bars)), [MEASURED, PREDICTED]
    colours = alt.Scale(domain=kinds, range=[colour(roles[kind]) for kind in kinds])
    chart = (
        alt.Chart(data)
        .mark_bar(stroke=colour("page"), strokeWidth=0.5)
        .encode(
            x=alt.X("value:Q", title=unit, stack="zero"),
            y=alt.Y("row:N", title=None, sort=rows),
            yOffset=alt.YOffset("which:N", sort=ways),
            color=alt.Color("what:N", title=None, scale=colours),
            opacity=alt.Opacity(
                "which:N", title=None, scale=alt.Scale(domain=ways, range=[1.0, 0.55])
            ),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("row:N", title="of"),
                alt.Tooltip("which:N", title="which"),
                alt.Tooltip("what:N", title="what"),
                alt.Tooltip("value:Q", title=unit, format=".4~r"),
            ],
        )
    )
    return Figure(name, title, caption, sized(chart, ROW * len(rows)), len(bars), shown)


def within(fraction: float) -> str:
    """An error as a number at the top."""
    return f"{share(abs(fraction))} {'too slow' if fraction > 0 else 'too fast'}"
