"""What every value of every axis allows, all else chosen anew: a panel per axis, and a tornado."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from Estimator.chips.axes import CHIP_AXES
from Estimator.plans.axes import COMPARED
from Estimator.plans.results import Status
from phaze.report.pages.charts import RING, chart_of, exactly, room_right, sized, tips
from phaze.report.pages.figures import Figure
from phaze.report.pages.theme import colour
from phaze.report.sentences.designs import (
    EQUAL,
    accelerator_text,
    axis_value_text,
    capitalised,
    degrees_text,
    listed,
    summary_text,
)
from phaze.report.table import Table
from phaze_common.numbers import number, percent
from phaze_common.units import GIB
from Solver.plan_report import PlanSummary
from Solver.results import AxisScope, AxisValue, AxisValues

PANEL, ROW = 190, 34  # pixels: height of a panel, and of a bar of the tornado
# of what is written beside the tornado's bars: characters of a line, which fit on a phone, and its
# pixels
LABEL, LINE = 15, 13
ROOM_FOR_LABELS, CHARACTER, APART = 250, 7, 8  # pixels: below a panel, of a letter, between labels
TITLES = {
    **{each.key: (each.label, each.per_unit) for each in CHIP_AXES},
    "hbm_bytes": ("HBM, GiB", GIB),
    **{each.key: (each.label, 1) for each in COMPARED},
}
BOTH_WIDTHS = "columns of a tensor core, lanes of a vector core"
SWITCHED = {"true": "yes", "false": "no"}


@dataclass(frozen=True)
class Sensitivity:
    """Axes drawn together, what ``what`` reaches on them in ``unit``; ``suffix`` names a model."""

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
            "what can be reached, and the grey line above it ends at what can be reached at most."
        )
    if any(axis.scope is AxisScope.PLANS_ON_THE_CHIP for axis in sensitivity.axes):
        how += (
            " All plans are on the best accelerator: with another value another accelerator "
            "might be better."
        )
    thinned = [each for each in sensitivity.axes if each.values_there_are > len(each.values)]
    some = listed(list(map(axis_title, thinned)))
    shown = f"Of {some} powers of two are shown, both ends and the optimum's value."
    return (how, shown) if thinned else (how,)


def axis_title(axis: AxisValues) -> str:
    """What people call the axis; vector cores always as wide as tensor cores share that one's."""
    chips = [each.accelerator for each in axis.values if each.accelerator]
    if axis.axis == "width" and all(chip.width == chip.width_vc for chip in chips):
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


def axis_table(sensitivity: Sensitivity) -> Table:
    """The same in numbers."""
    what = sensitivity.what
    rows = []
    pairs = ((each, value) for each in sensitivity.axes for value in each.values)
    for axis, value in pairs:
        reached, best = number(value.reached), axis.optimum.reached
        fits, proven = value.status is not Status.INFEASIBLE, "yes"
        if value.status is Status.FEASIBLE:
            proven = f"no: at least {reached}, at most {number(value.bound)}"
        rows.append(
            {
                "axis": axis_title(axis),
                "value": value_text(axis, value),
                f"best, {sensitivity.unit}": reached if fits else "",
                "of the optimum": f"{value.reached / best:.1%}" if fits and best else "",
                "proven": proven,
                f"best {what}": design_text(axis, value) if fits else "nothing fits",
            }
        )
    title = f"The best {what} of every value of every axis"
    return Table.of(title, rows, words={"axis", "value", "proven", f"best {what}"})


def tornado_figure(sensitivity: Sensitivity) -> Figure | None:
    """Per axis, what the best and the worst other value lose; None where no other fits."""
    spans = sorted(
        filter(None, map(_span, sensitivity.axes)), key=lambda span: span.worst_loss, reverse=True
    )
    if not spans:
        return None
    wrapped = ["\n".join(textwrap.wrap(each.title, LABEL)) for each in spans]
    row = max(ROW, LINE * max(1 + text.count("\n") for text in wrapped) + 6)
    base = chart_of(
        {
            "axis": title,
            "chosen": each.chosen,
            "nearest": each.nearest,
            "nearest_loss": -each.nearest_loss,
            "worst": each.worst,
            "worst_loss": -each.worst_loss,
        }
        for title, each in zip(wrapped, spans, strict=True)
    )
    least = -1.15 * max(max(each.worst_loss for each in spans), EQUAL)
    scale = exactly(least, max(0.0, *(-each.nearest_loss for each in spans)))
    title, axis = f"{sensitivity.unit}, against the optimum", alt.Axis(format=".0%", tickCount=6)
    x = alt.X("worst_loss:Q", title=title, axis=axis, scale=scale)
    broken = alt.Axis(ticks=False, labelExpr="split(datum.label, '\\n')")
    y = alt.Y("axis:N", title=None, sort=wrapped, axis=broken)
    tooltip = tips(
        {
            "axis:N": "axis",
            "chosen:N": "value of the optimum",
            "nearest:N": "best other value",
            "nearest_loss:Q .2~%": "which changes it by",
            "worst:N": "worst value",
            "worst_loss:Q .2~%": "which changes it by",
        }
    )
    optimum, at = base.transform_calculate(optimum="0"), alt.X("optimum:Q", scale=scale)
    bold = {"align": "left", "dx": 7, "fontWeight": "bold", "tooltip": None}
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
        optimum.mark_text(**bold).encode(x=at, y=y, text="chosen:N"),
    )
    caption = (
        f"What the best {sensitivity.what} loses where an axis must have another value than the "
        "optimum's (right of the line), all else chosen anew: a bar reaches from the best other "
        "value to the worst, which stands at its end. The axis that can cost most: "
        f"{spans[0].title}, {percent(spans[0].worst_loss)} with {spans[0].worst}."
    )
    rows = (
        {
            "axis": each.title,
            "optimum": each.chosen,
            "best other value": each.nearest,
            "costs": _cost(each.nearest_loss),
            "worst value": each.worst,
            "costs at worst": _cost(each.worst_loss),
        }
        for each in spans
    )
    title = f"What other {sensitivity.what}s cost"
    return Figure(
        f"tornado-{sensitivity.what}{sensitivity.suffix}",
        title,
        caption,
        sized(chart, row * len(spans), room_right(70)),
        5 * len(spans),
        Table.of(title, rows, words={"axis", "optimum", "best other value", "worst value"}),
    )


@dataclass(frozen=True)
class _Span:
    """What the best and the worst other value of an axis lose against the optimum, as fractions."""

    title: str
    chosen: str
    nearest: str
    nearest_loss: float
    worst: str
    worst_loss: float


def _span(axis: AxisValues) -> _Span | None:
    """None where no other value fits."""
    fitting = [value for value in axis.values if value.status is not Status.INFEASIBLE]
    others = [value for value in fitting if value.value != axis.chosen]
    best = axis.optimum.reached
    if not others or best <= 0.0:
        return None
    nearest = max(others, key=lambda value: value.reached)
    worst = min(others, key=lambda value: value.reached)
    chosen, least, most = (value_text(axis, each) for each in (axis.optimum, nearest, worst))
    losses = 1.0 - nearest.reached / best, 1.0 - worst.reached / best
    return _Span(axis_title(axis), chosen, least, losses[0], most, losses[1])


def _cost(loss: float) -> str:
    if abs(loss) <= EQUAL:
        return "nothing"
    return percent(loss) if loss > 0.0 else f"{percent(loss)} more"


def _panel(axis: AxisValues, sensitivity: Sensitivity, tallest: float) -> Figure:
    """What each value of one axis allows; ``tallest`` is the end of the scale of all panels."""
    title, unit = axis_title(axis), sensitivity.unit
    fits = [each for each in axis.values if each.status is not Status.INFEASIBLE]
    base = chart_of(
        {
            "value": value_text(axis, each),
            "reached": each.reached,
            "bound": each.bound if each.status is Status.FEASIBLE else None,
            "proven": each.status is Status.OPTIMAL,
            "words": design_text(axis, each),
            "chosen": each.value == axis.chosen,
        }
        for each in fits
    )
    order = [value_text(axis, each) for each in axis.values]
    ordered = {"sort": order, "scale": alt.Scale(domain=order), "axis": _labelled(order)}
    at = {
        "x": alt.X("value:N", title=title, **ordered),
        "y": alt.Y("reached:Q", title=unit, scale=exactly(0, tallest)),
    }
    titles = {"value:N": title, "reached:Q ,.6~r": unit}
    titles |= {"bound:Q ,.6~r": "none more than", "words:N": f"best {sensitivity.what}"}
    marked = at | {"tooltip": tips(titles)}
    bounded = base.transform_filter("isValid(datum.bound)")
    proven, not_proven = map(base.transform_filter, ("datum.proven", "!datum.proven"))
    dot = {"color": colour("mark"), "size": 46, "opacity": 1}
    ring = base.transform_filter("datum.chosen").mark_point(
        size=190, color=colour("accent"), **RING
    )
    layers = [
        bounded.mark_rule(color=colour("faint"), strokeWidth=2).encode(y2="bound:Q", **marked),
        proven.mark_circle(**dot).encode(**marked),
        not_proven.mark_point(fill=colour("page"), **dot).encode(**marked),
        ring.encode(**marked),
    ]
    if all(each.value.isdecimal() for each in axis.values):  # by size
        line = base.mark_line(color=colour("faint"), strokeWidth=1, tooltip=None)
        layers.insert(0, line.encode(**at))
    without = [value_text(axis, each) for each in axis.values if each not in fits]
    caption = f"Nothing fits with {listed(without)}." if without else ""
    name = f"best-by-{axis.axis.removesuffix('_bytes').replace('_', '-')}{sensitivity.suffix}"
    spec = sized(alt.layer(*layers), PANEL)
    return Figure(name, capitalised(title), caption, spec, 4 * len(fits), abreast=3)


def _labelled(values: Sequence[str]) -> Any:
    """An axis with the last value written, and evenly as many others as there is room for."""
    widths = [CHARACTER * len(value) + APART for value in values]
    step = next(
        step
        for step in range(1, len(values) + 1)
        if sum(widths[::-1][::step]) <= ROOM_FOR_LABELS or step == len(values)
    )
    written = f"indexof({json.dumps(list(values[::-1][::step]))}, datum.label) >= 0"
    return alt.Axis(labelOverlap=False, labelExpr=f"{written} ? datum.label : ''")


def design_text(axis: AxisValues, value: AxisValue) -> str:
    """The best design of a value in one line: the chip, if the axis is one of it, and its plans."""
    chip = axis.model is None and value.accelerator is not None
    chips = [accelerator_text(value.accelerator)] if chip and value.accelerator else []
    return "; ".join([*chips, *map(_plan_text, value.plans.values())])


def _plan_text(plan: PlanSummary) -> str:
    return summary_text(plan, degrees_text(plan))
