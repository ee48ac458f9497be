"""Figures of what every value of every axis allows, all else chosen anew: a panel per axis, and all
of them in a tornado."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from Estimator.plans.results import Status
from phaze.report.pages.charts import sized
from phaze.report.pages.figures import Figure, PageTable, inline_data, table
from phaze.report.pages.theme import colour
from phaze.studies.wording import (
    EQUAL,
    accelerator_text,
    axis_value_text,
    degrees_text,
    listed,
    plan_choices,
)
from phaze_common.numbers import number, percent
from phaze_common.units import GIB, MIB
from Solver.results import AxisScope, AxisValue, AxisValues, PlanSummary

PANEL, ROW = 190, 34  # pixels: height of a panel, and of a bar of the tornado
LABEL, LINE = (
    15,
    13,
    # of what is written beside the tornado's bars: characters of a line, which fit on a phone, and
    # its
    # pixels
)
ROOM_FOR_LABELS, CHARACTER, APART = (
    250,
    7,
    8,
)  # pixels: below a panel, of a character, between two labels
ROOM_FOR_VALUES = {
    "left": 5,
    "top": 5,
    "right": 70,
    "bottom": 5,
}  # pixels; for what is written behind a bar
GIGA = 1e9
TITLES = {
    "num_tc": ("tensor cores", 1),
    "num_vc": ("vector cores", 1),
    "width": ("columns of a tensor core", 1),
    "depth": ("rows of a tensor core", 1),
    "width_vc": ("lanes of a vector core", 1),
    "glb_bytes": ("global buffer, MiB", MIB),
    "hbm_bytes": ("HBM, GiB", GIB),
    "memory_system": ("memory, kind and stacks", 1),
    "frequency_hz": ("clock, GHz", GIGA),
    "links": ("links of a chip", 1),
    "tp": ("tensor parallel width tp", 1),
    "pp": ("pipeline depth pp", 1),
    "dp": ("data parallel degree dp", 1),
    "cp": ("context parallel degree cp", 1),
    "ep": ("expert parallel degree ep", 1),
    "layout": ("layout", 1),
    "tp2": ("second tensor axis tp2", 1),
    "panels": ("panels of products", 1),
    "exchange": ("exchange of keys and values", 1),
    "micro_batch_size": ("micro-batch size", 1),
    "recompute": ("recomputation", 1),
    "sequence_parallel": ("sequence parallelism", 1),
    "interleave": ("chunks per stage", 1),
    "zero_stage": ("ZeRO stage", 1),
    "group_order": ("order of the groups", 1),
    "overlap_gradients": ("overlapped gradients", 1),
}
BOTH_WIDTHS = "columns of a tensor core, lanes of a vector core"
SWITCHED = {"true": "yes", "false": "no"}


@dataclass(frozen=True)
class Sensitivity:
    """Axes drawn together, what ``what`` reaches on them in ``unit``; ``suffix`` tells figures of
    several models apart."""

    axes: tuple[AxisValues, ...]
    what: str
    unit: str
    suffix: str = ""


def sensitivity_words(sensitivity: Sensitivity) -> tuple[str, ...]:
    """How the figures are to be read, and which values they leave out."""
    values = [value for axis in sensitivity.axes for value in axis.values]
    unproven = any(value.status is Status.FEASIBLE for value in values)
    how = (
        f"Each dot is the best {sensitivity.what} that has this value, everything else chosen anew"
        f"{'' if unproven else ': exact, and proven to be the best'}. The ring marks the value "
        "that the optimum has."
    )
    if unproven:
        how += (
            " Filled dots are proven to be the best; a hollow one is the best found, at least "
            "what can be reached, and the grey "
            "line above it ends at what can be reached at most."
        )
    if any(axis.scope is AxisScope.PLANS_ON_THE_CHIP for axis in sensitivity.axes):
        how += (
            " All plans are on the best accelerator: with another value another accelerator "
            "might be better."
        )
    some = [
        axis_title(axis) for axis in sensitivity.axes if axis.values_there_are > len(axis.values)
    ]
    left_out = (
        f"Of {listed(some)} powers of two are shown, both ends and the optimum's value."
        if some
        else ""
    )
    return (how, left_out) if left_out else (how,)


def axis_title(axis: AxisValues) -> str:
    """What people call the axis; where vector cores are as wide as tensor cores, that is one
    axis."""
    if axis.axis == "width" and all(
        each.accelerator.width == each.accelerator.width_vc
        for each in axis.values
        if each.accelerator
    ):
        return BOTH_WIDTHS
    return TITLES[axis.axis][0]


def value_text(axis: AxisValues, value: AxisValue) -> str:
    """A value of the axis as people write it."""
    unit, text = TITLES[axis.axis][1], axis_value_text(value)
    return f"{int(text) / unit:,.10g}" if text.isdecimal() else SWITCHED.get(text, text)


def axis_figures(sensitivity: Sensitivity) -> tuple[Figure, ...]:
    """All axes beside each other, then a panel each, on one scale."""
    axes = sensitivity.axes
    tallest = 1.06 * max((value.bound for axis in axes for value in axis.values), default=1.0)
    tornado = tornado_figure(sensitivity)
    panels = tuple(_panel(axis, sensitivity, tallest) for axis in axes)
    return (tornado, *panels) if tornado is not None else panels


def axis_table(sensitivity: Sensitivity) -> PageTable:
    """The same in numbers."""
    columns = (
        "axis",
        "value",
        f"best, {sensitivity.unit}",
        "of the optimum",
        "proven",
        f"best {sensitivity.what}",
    )
    rows = [
        (axis_title(axis), value_text(axis, value), *_cells(axis, value))
        for axis in sensitivity.axes
        for value in axis.values
    ]
    title = f"The best {sensitivity.what} of every value of every axis"
    return table(
        title, columns, rows, words={"axis", "value", "proven", f"best {sensitivity.what}"}
    )


def tornado_figure(sensitivity: Sensitivity) -> Figure | None:
    """Per axis, what the best and the worst of the other values lose against the optimum; None
    where no other fits."""
    import altair as alt

    spans = sorted(
        filter(None, map(_span, sensitivity.axes)), key=lambda span: span.worst_loss, reverse=True
    )
    if not spans:
        return None
    columns = ("axis", "chosen", "nearest", "nearest_loss", "worst", "worst_loss")
    wrapped = {each.title: "\n".join(textwrap.wrap(each.title, LABEL)) for each in spans}
    rows = [
        (
            wrapped[each.title],
            each.chosen,
            each.nearest,
            -each.nearest_loss,
            each.worst,
            -each.worst_loss,
        )
        for each in spans
    ]
    row = max(ROW, LINE * max(1 + text.count("\n") for text in wrapped.values()) + 6)
    data = inline_data(columns, rows, words={"axis", "chosen", "nearest", "worst"})
    ends = [
        -1.15 * max(max(each.worst_loss for each in spans), EQUAL),
        max(0.0, *(-each.nearest_loss for each in spans)),
    ]
    scale, axis = alt.Scale(domain=ends, nice=False), alt.Axis(format=".0%", tickCount=6)
    x = alt.X(
        "worst_loss:Q", title=f"{sensitivity.unit}, against the optimum", axis=axis, scale=scale
    )
    axis_lines = alt.Axis(ticks=False, labelExpr="split(datum.label, '\\n')")
    y = alt.Y("axis:N", title=None, sort=[wrapped[each.title] for each in spans], axis=axis_lines)
    tooltip = [
        alt.Tooltip("axis:N", title="axis"),
        alt.Tooltip("chosen:N", title="value of the optimum"),
        alt.Tooltip("nearest:N", title="best other value"),
        alt.Tooltip("nearest_loss:Q", title="which changes it by", format=".2~%"),
        alt.Tooltip("worst:N", title="worst value"),
        alt.Tooltip("worst_loss:Q", title="which changes it by", format=".2~%"),
    ]
    base = alt.Chart(data)
    optimum = base.transform_calculate(optimum="0")
    at = alt.X("optimum:Q", scale=scale)
    chart = alt.layer(
        base.mark_bar(color=colour("faint"), height=3).encode(
            x=alt.X("nearest_loss:Q", scale=scale), x2=alt.datum(0.0), y=y
        ),
        base.mark_bar(color=colour("mark"), height=0.5 * ROW, minBandSize=2).encode(
            x=x, x2="nearest_loss:Q", y=y, tooltip=tooltip
        ),
        base.mark_text(align="right", dx=-5, tooltip=None).encode(x=x, y=y, text="worst:N"),
        optimum.mark_tick(color=colour("accent"), thickness=2, size=0.7 * ROW).encode(
            x=at, y=y, tooltip=tooltip
        ),
        optimum.mark_text(align="left", dx=7, fontWeight="bold", tooltip=None).encode(
            x=at, y=y, text="chosen:N"
        ),
    )
    caption = (
        f"What the best {sensitivity.what} loses where an axis must have another value than the "
        "optimum's (right of the line), "
        "all else chosen anew: a bar reaches from the best other value to the worst, which stands "
        "at its end. The axis that "
        f"can cost most: {spans[0].title}, {percent(spans[0].worst_loss)} with {spans[0].worst}."
    )
    spec = sized(chart, row * len(spans))
    spec["padding"] = ROOM_FOR_VALUES
    name, title = (
        f"tornado-{sensitivity.what}{sensitivity.suffix}",
        f"What other {sensitivity.what}s cost",
    )
    return Figure(name, title, caption, spec, 5 * len(spans), _tornado_table(title, spans))


@dataclass(frozen=True)
class _Span:
    """What the best and the worst of the other values of an axis lose against the optimum, as
    fractions."""

    title: str
    chosen: str
    nearest: str
    nearest_loss: float
    worst: str
    worst_loss: float


def _span(axis: AxisValues) -> _Span | None:
    """None where no other value fits."""
    others = [
        value
        for value in axis.values
        if value.value != axis.chosen and value.status is not Status.INFEASIBLE
    ]
    best = axis.optimum.reached
    if not others or best <= 0.0:
        return None
    nearest, worst = (
        max(others, key=lambda value: value.reached),
        min(others, key=lambda value: value.reached),
    )
    shown = [value_text(axis, value) for value in (axis.optimum, nearest, worst)]
    return _Span(
        axis_title(axis),
        shown[0],
        shown[1],
        1.0 - nearest.reached / best,
        shown[2],
        1.0 - worst.reached / best,
    )


def _tornado_table(title: str, spans: Sequence[_Span]) -> PageTable:
    columns = ("axis", "optimum", "best other value", "costs", "worst value", "costs at worst")
    rows = (
        (
            each.title,
            each.chosen,
            each.nearest,
            _cost(each.nearest_loss),
            each.worst,
            _cost(each.worst_loss),
        )
        for each in spans
    )
    return table(title, columns, rows, words={"axis", "optimum", "best other value", "worst value"})


def _cost(loss: float) -> str:
    return (
        "nothing"
        if abs(loss) <= EQUAL
        else percent(loss)
        if loss > 0.0
        else f"{percent(loss)} more"
    )


def _panel(axis: AxisValues, sensitivity: Sensitivity, tallest: float) -> Figure:
    """What each value of one axis allows; ``tallest`` is the end of the scale, alike in all
    panels."""
    import altair as alt

    title = axis_title(axis)
    columns = ("value", "reached", "bound", "proven", "words", "chosen")
    rows = [
        (
            value_text(axis, each),
            each.reached,
            each.bound if each.status is Status.FEASIBLE else None,
            each.status is Status.OPTIMAL,
            design_text(axis, each),
            each.value == axis.chosen,
        )
        for each in axis.values
        if each.status is not Status.INFEASIBLE
    ]
    data = inline_data(columns, rows, words={"value", "words"})
    order = [value_text(axis, each) for each in axis.values]
    scale = alt.Scale(domain=[0, tallest], nice=False)
    x = alt.X(
        "value:N", title=title, sort=order, scale=alt.Scale(domain=order), axis=_labelled(order)
    )
    y = alt.Y("reached:Q", title=sensitivity.unit, scale=scale)
    tooltip = [
        alt.Tooltip("value:N", title=title),
        alt.Tooltip("reached:Q", title=sensitivity.unit, format=",.6~r"),
        alt.Tooltip("bound:Q", title="none more than", format=",.6~r"),
        alt.Tooltip("words:N", title=f"best {sensitivity.what}"),
    ]
    base = alt.Chart(data)
    by_size = all(each.value.isdecimal() for each in axis.values)
    chart = alt.layer(
        *(
            [base.mark_line(color=colour("faint"), strokeWidth=1, tooltip=None).encode(x=x, y=y)]
            if by_size
            else []
        ),
        base.transform_filter("isValid(datum.bound)")
        .mark_rule(color=colour("faint"), strokeWidth=2)
        .encode(x=x, y=y, y2="bound:Q", tooltip=tooltip),
        base.transform_filter("datum.proven")
        .mark_circle(color=colour("mark"), size=46, opacity=1)
        .encode(x=x, y=y, tooltip=tooltip),
        base.transform_filter("!datum.proven")
        .mark_point(color=colour("mark"), fill=colour("page"), size=46, opacity=1)
        .encode(x=x, y=y, tooltip=tooltip),
        base.transform_filter("datum.chosen")
        .mark_point(size=190, strokeWidth=2.5, color=colour("accent"), filled=False)
        .encode(x=x, y=y, tooltip=tooltip),
    )
    without = [value_text(axis, each) for each in axis.values if each.status is Status.INFEASIBLE]
    caption = f"Nothing fits with {listed(without)}." if without else ""
    name = f"best-by-{axis.axis.removesuffix('_bytes').replace('_', '-')}{sensitivity.suffix}"
    return Figure(
        name, title[0].upper() + title[1:], caption, sized(chart, PANEL), 4 * len(rows), abreast=3
    )


def _labelled(values: Sequence[str]) -> Any:
    """An axis on which the last value is written, and of the others as many as there is room for,
    evenly."""
    import altair as alt

    widths = [CHARACTER * len(value) + APART for value in values]
    step = next(
        step
        for step in range(1, len(values) + 1)
        if sum(widths[::-1][::step]) <= ROOM_FOR_LABELS or step == len(values)
    )
    written = json.dumps(list(values[::-1][::step]))
    return alt.Axis(
        labelOverlap=False, labelExpr=f"indexof({written}, datum.label) >= 0 ? datum.label : ''"
    )


def design_text(axis: AxisValues, value: AxisValue) -> str:
    """The best design of a value in one line: the chip where the axis is one of it, and its
    plans."""
    chip = (
        ""
        if axis.model is not None or value.accelerator is None
        else accelerator_text(value.accelerator)
    )
    plans = [_plan_text(plan) for plan in value.plans.values()]
    return "; ".join(filter(None, [chip, *plans]))


def _plan_text(plan: PlanSummary) -> str:
    words = (
        degrees_text(plan),
        f"micro-batch {plan.micro_batch_size}",
        f"recomputation {plan.recompute}",
    )
    return ", ".join([*words, *plan_choices(plan)])


def _cells(axis: AxisValues, value: AxisValue) -> tuple[str, str, str, str]:
    if value.status is Status.INFEASIBLE:
        return "", "", "yes", "nothing fits"
    reached, best = number(value.reached), axis.optimum.reached
    proven = (
        "yes"
        if value.status is Status.OPTIMAL
        else f"no: at least {reached}, at most {number(value.bound)}"
    )
    return reached, f"{value.reached / best:.1%}" if best else "", proven, design_text(axis, value)
