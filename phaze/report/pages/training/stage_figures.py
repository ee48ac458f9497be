"""Stages of a trained plan: processor time, where a step goes, memory, measured and predicted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import altair as alt

from phaze.report.pages.charts import chart_of, lines, sized, stacked_bars, tips
from phaze.report.pages.figures import Figure
from phaze.report.pages.layer_ranges import layer_range
from phaze.report.pages.theme import colour
from phaze.report.table import Table
from phaze.runtime.training.records import StageRecord, StepRecord
from phaze_common.numbers import number, share, unit_for
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
MEMORY = {"weights and optimizer": "state", "activations": "activations"}


@dataclass(frozen=True)
class Bar:
    """A part of a bar: ``row`` of the chart, measured or predicted, what it is, and how much."""

    row: str
    which: str
    what: str
    value: float


def loss_figure(steps: Sequence[StepRecord]) -> Figure:
    """The loss of every step."""
    base = chart_of(
        {"step": each.step, "loss": each.loss, "norm": each.gradient_norm} for each in steps
    ).encode(
        x=alt.X("step:Q", title="step", axis=alt.Axis(tickMinStep=1)),
        y=alt.Y("loss:Q", title="loss", scale=alt.Scale(zero=False)),
    )
    titles = {"step:Q": "step", "loss:Q .6~r": "loss", "norm:Q .4~r": "norm of the gradients"}
    mark = {"color": colour("mark")}
    chart = alt.layer(*lines(base, tips(titles), mark, filled=True, size=30, **mark))
    rows = (
        {
            "step": str(each.step),
            "loss": f"{each.loss:.6f}",
            "norm of the gradients": number(each.gradient_norm),
            "seconds": f"{each.wall_s:.4f}",
        }
        for each in steps
    )
    caption = "Mean loss over the rows of every step."
    shown = Table.of("Steps", rows, words=())
    return Figure("losses", "Loss", caption, sized(chart, 200), len(steps), shown)


def processor_figure(stages: Sequence[StageRecord]) -> Figure | None:
    """Processor time of each stage's passes; None where the plan's file predicts none."""
    bars: list[Bar] = []
    for stage in stages:
        measured, predicted = stage.measured, stage.predicted
        forward = measured.forward_processor_s, predicted.forward_s
        backward = measured.backward_processor_s, predicted.backward_s
        bars += _pair(stage, {"forward": forward, "backward": backward})
    if not any(bar.which == PREDICTED for bar in bars):
        return None
    caption = (
        "Seconds of the processor in one step, without waiting: processes that share a core wait "
        "for it, which no prediction of their work holds."
    )
    unit, shown = unit_for(max(bar.value for bar in bars)), _errors(stages)
    name, title = "stage-seconds", "Processor time of the passes"
    return _stacked(name, title, caption, bars, unit.per_second, unit.name, shown, ACTIVITIES)


def _pair(
    stage: StageRecord, values: Mapping[str, tuple[float | None, float | None]]
) -> Iterator[Bar]:
    """What was measured of a stage, and what was predicted of it."""
    for place, which in enumerate((MEASURED, PREDICTED)):
        for what, both in values.items():
            value = both[place]
            if value is not None:
                yield Bar(f"stage {stage.stage + 1}", which, what, value)


def _errors(stages: Sequence[StageRecord]) -> Table:
    def ms(seconds: float | None) -> str:
        return "" if seconds is None else number(1e3 * seconds)

    rows = (
        {
            "stage": str(each.stage + 1),
            "layers": layer_range(each.layers),
            "dp x tp": f"{each.dp} x {each.tp}",
            "forward ms": ms(each.measured.forward_processor_s),
            "predicted": ms(each.predicted.forward_s),
            "backward ms": ms(each.measured.backward_processor_s),
            "predicted ": ms(each.predicted.backward_s),
            "both, predicted over measured": ""
            if each.processor_error is None
            else f"{each.processor_error:+.1%}",
        }
        for each in stages
    )
    return Table.of("Processor time of a step", rows, words={"layers"})


def step_figure(stages: Sequence[StageRecord]) -> Figure:
    """What each stage does in a step by the wall clock."""
    bars: list[Bar] = []
    for stage in stages:
        both = (stage.measured, stage.predicted)
        bars += _pair(stage, {what: _seconds(both, what) for what in ACTIVITIES})
    unit = unit_for(max(bar.value for bar in bars))
    rows = dict[tuple[str, str], dict[str, str]]()
    for bar in bars:
        head = {"stage": bar.row.removeprefix("stage "), "": bar.which}
        empty = {f"{what} {unit.name}": "" for what in ACTIVITIES}
        row = rows.setdefault((bar.row, bar.which), head | empty)
        row[f"{bar.what} {unit.name}"] = number(bar.value * unit.per_second)
    caption = (
        "Seconds of a step by the clock on the wall. Waiting for tensors of other stages is idle; "
        "communication is adding up parts of products, gradients and norms, with waiting for the "
        "slowest of those who take part."
    )
    shown = Table.of("What each stage does in a step", rows.values(), words={""})
    name, title = "step-seconds", "Where a step goes"
    return _stacked(name, title, caption, bars, unit.per_second, unit.name, shown, ACTIVITIES)


def _seconds(both: Sequence[object], what: str) -> tuple[float | None, float | None]:
    measured, predicted = (getattr(each, f"{what}_s") for each in both)
    return measured, predicted


def memory_figure(stages: Sequence[StageRecord]) -> Figure:
    """State and activations of the fullest process of each stage."""
    bars: list[Bar] = []
    rows = []

    def mib(size_bytes: float | None) -> str:
        return "" if size_bytes is None else number(size_bytes / MIB)

    for each in stages:
        predicted = each.predicted
        state = (float(each.state_bytes), predicted.state_bytes)
        kept = (float(each.kept_bytes), predicted.kept_bytes)
        bars += _pair(each, {"weights and optimizer": state, "activations": kept})
        rows.append(
            {
                "stage": str(each.stage + 1),
                "weights and optimizer MiB": mib(each.state_bytes),
                "predicted": mib(predicted.state_bytes),
                "activations MiB": mib(each.kept_bytes),
                "predicted ": mib(predicted.kept_bytes),
                "process MiB": mib(each.resident_bytes),
                "predicted  ": mib(predicted.memory_bytes),
            }
        )
    caption = (
        "What the fullest process of each stage keeps: weights, gradients and optimizer state, "
        "and the most that passes in flight left for their backward passes. The table also has "
        "the whole process, with the libraries in it."
    )
    shown, title = Table.of("Memory", rows, words=()), "Memory of a process"
    return _stacked("memory", title, caption, bars, 1.0 / MIB, "MiB", shown, MEMORY)


def _stacked(
    name: str,
    title: str,
    caption: str,
    bars: Sequence[Bar],
    scale: float,
    unit: str,
    shown: Table,
    roles: dict[str, str],
) -> Figure:
    """A pair of stacked bars for each row: measured above predicted, which is paler."""
    kinds = [what for what in roles if any(bar.what == what for bar in bars)]
    base = chart_of(
        {
            "row": bar.row,
            "which": bar.which,
            "what": bar.what,
            "value": bar.value * scale,
            "position": kinds.index(bar.what),
        }
        for bar in bars
    )
    rows, ways = list(dict.fromkeys(bar.row for bar in bars)), [MEASURED, PREDICTED]
    paler = alt.Scale(domain=ways, range=[1.0, 0.55])
    titles = {"row:N": "of", "which:N": "which", "what:N": "what", "value:Q .4~r": unit}
    chart = stacked_bars(
        base,
        "what:N",
        {kind: roles[kind] for kind in kinds},
        x=alt.X("value:Q", title=unit, stack="zero"),
        y=alt.Y("row:N", title=None, sort=rows),
        yOffset=alt.YOffset("which:N", sort=ways),
        opacity=alt.Opacity("which:N", title=None, scale=paler),
        tooltip=tips(titles),
    )
    return Figure(name, title, caption, sized(chart, ROW * len(rows)), len(bars), shown)


def within(fraction: float) -> str:
    """An error as a number at the top."""
    return f"{share(abs(fraction))} {'too slow' if fraction > 0 else 'too fast'}"
