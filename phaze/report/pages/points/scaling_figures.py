"""Figures of scaling: time, throughput and efficiency over the number of devices, with what ideal
scaling would be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from phaze.report.pages.charts import SAMPLES, series_legend, sized, with_names
from phaze.report.pages.figures import Figure, PageTable, inline_data, table
from phaze.report.pages.points.outcomes import plan_of
from phaze.report.pages.points.scaling import Curve, Scaling, Step
from phaze.report.pages.theme import SERIES, colour
from phaze.studies.sweep.points_read import infeasible_text
from phaze.studies.wording import degrees_text
from phaze_common.numbers import number, percent, rate, share, time_text

HEIGHT = 300
TOLD = 4  # curves of which all are told in words
SHAPES = ("circle", "square", "triangle-up", "diamond")
WHICH = {
    Scaling.STRONG: "Strong scaling: the global batch stays the same along a curve.",
    Scaling.WEAK: "Weak scaling: the global batch grows with the devices, the samples per device "
    "stay the same along a curve.",
}


@dataclass(frozen=True)
class _Measure:
    """What a figure shows of a step: its value and the ideal one."""

    name: str
    title: str
    unit: str
    of: Callable[[Step], float | None]
    ideal: Callable[[Step], float | None]
    logarithmic: bool = True


MEASURES = (
    _Measure(
        "time",
        "Time of an iteration",
        "seconds per iteration",
        lambda step: step.time_s,
        lambda step: step.ideal_time_s,
    ),
    _Measure(
        "throughput",
        "Throughput",
        SAMPLES,
        lambda step: step.throughput,
        lambda step: step.ideal_throughput,
    ),
    _Measure(
        "efficiency",
        "Efficiency",
        "of the ideal",
        lambda step: step.efficiency,
        lambda step: 1.0,
        logarithmic=False,
    ),
)


def scaling_figures(curves: Sequence[Curve]) -> tuple[Figure, ...]:
    """Time, throughput and efficiency of the curves of one kind; none where fewer than two steps
    fit on any of them."""
    if not any(sum(step.throughput is not None for step in curve.steps) > 1 for curve in curves):
        return ()
    return tuple(_figure(curves, measure) for measure in MEASURES)


def scaling_words(curves: Sequence[Curve]) -> tuple[str, ...]:
    """What kind of scaling it is, and how far each curve keeps to the ideal."""
    (kind,) = {curve.kind for curve in curves}
    kept = sorted(
        filter(_reached, curves), key=lambda curve: -(_reached(curve)[-1].efficiency or 0.0)
    )
    told = kept if len(kept) <= TOLD else [kept[0], kept[-1]]
    some = (
        f"Of {len(kept)} curves, that which keeps closest to the ideal and that which falls "
        "furthest behind:"
        if told is not kept
        else ""
    )
    return tuple(filter(None, (WHICH[kind], some, *map(_kept, told))))


def _reached(curve: Curve) -> tuple[Step, ...]:
    """The steps that fit, where there are several."""
    found = tuple(
        step for step in curve.steps if step.throughput is not None and step.efficiency is not None
    )
    return found if len(found) > 1 else ()


def _kept(curve: Curve) -> str:
    reached = _reached(curve)
    first, last = reached[0], reached[-1]
    times = number((last.throughput or 0.0) / (first.throughput or 1.0), 3)
    without = [f"{step.devices:,}" for step in curve.steps if step.throughput is None]
    unfit = (
        f" Nothing fits, or the search ended without an answer, with {', '.join(without)} devices."
        if without
        else ""
    )
    return (
        f"{curve.label}: {number(last.devices / first.devices, 3)} times the devices "
        f"({first.devices:,} to "
        f"{last.devices:,}) bring {times} times the samples per second, "
        f"{percent(last.efficiency or 0.0)} of the ideal.{unfit}"
    )


def _figure(curves: Sequence[Curve], measure: _Measure) -> Figure:
    import altair as alt

    kind = curves[0].kind
    rows = [
        (
            curve.label,
            step.point.number,
            step.devices,
            step.batch,
            measure.of(step),
            measure.ideal(step),
            _status(step),
            _plan(step),
        )
        for curve in curves
        for step in curve.steps
    ]
    columns = ("curve", "point", "devices", "batch", "value", "ideal", "status", "plan")
    data = inline_data(columns, rows, words={"curve", "status", "plan"}, exact=True)
    labels = [curve.label for curve in curves]
    counts = sorted({step.devices for curve in curves for step in curve.steps})
    x = alt.X(
        "devices:Q",
        title="devices",
        scale=alt.Scale(type="log", base=2, nice=False, padding=14),
        axis=alt.Axis(values=counts, format=",d", labelOverlap="greedy"),
    )
    scale = (
        alt.Scale(type="log", nice=False, padding=10)
        if measure.logarithmic
        else alt.Scale(zero=True)
    )
    axis = (
        alt.Axis(format=".0%")
        if not measure.logarithmic
        else alt.Axis(format="~s" if measure.name == "throughput" else "~g", tickCount=5)
    )
    y = alt.Y("value:Q", title=measure.unit, scale=scale, axis=axis)
    legend = series_legend(labels)
    colours = [colour(SERIES[place % len(SERIES)]) for place in range(len(curves))]
    coded: dict[str, Any] = {
        "color": alt.Color(
            "curve:N",
            title=None,
            sort=labels,
            scale=alt.Scale(domain=labels, range=colours),
            legend=legend,
        ),
    }
    forms = [SHAPES[place // len(SERIES) % len(SHAPES)] for place in range(len(curves))]
    if len(curves) > len(SERIES):
        coded["shape"] = alt.Shape(
            "curve:N",
            title=None,
            sort=labels,
            scale=alt.Scale(domain=labels, range=forms),
            legend=legend,
        )
    tooltip = [
        alt.Tooltip("curve:N", title="curve"),
        alt.Tooltip("devices:Q", format=","),
        alt.Tooltip(
            "value:Q", title=measure.unit, format=",.5~r" if measure.logarithmic else ".1%"
        ),
        alt.Tooltip("ideal:Q", title="ideal", format=",.5~r" if measure.logarithmic else ".0%"),
        alt.Tooltip("batch:Q", title="global batch", format=","),
        alt.Tooltip("plan:N", title="plan"),
    ]
    base = alt.Chart(data)
    fits, fails = (
        base.transform_filter("isValid(datum.value)"),
        base.transform_filter("!isValid(datum.value)"),
    )
    line_colour = {"color": coded["color"]}
    dashed = base.transform_filter("isValid(datum.ideal)").mark_line(
        strokeDash=[4, 4], strokeWidth=1, opacity=0.65
    )
    ideal = alt.Y("ideal:Q", title=measure.unit, scale=scale, axis=axis)
    flat = kind is Scaling.WEAK and measure.name == "time"
    layers = [
        dashed.encode(x=x, y=ideal, **line_colour),
        fits.mark_line(strokeWidth=1.8).encode(x=x, y=y, **line_colour),
        fits.mark_point(size=52, filled=True, opacity=1).encode(x=x, y=y, tooltip=tooltip, **coded),
    ]
    crosses = ""
    if any(step.throughput is None for curve in curves for step in curve.steps):
        crosses = " Crosses at the foot are points without a plan."
        why = [
            alt.Tooltip("curve:N"),
            alt.Tooltip("devices:Q", format=","),
            alt.Tooltip("status:N"),
        ]
        cross = fails.mark_point(shape="cross", angle=45, size=70, filled=True, opacity=1)
        layers.append(cross.encode(x=x, y=alt.value(HEIGHT - 7), tooltip=why, **line_colour))
    caption = (
        f"{WHICH[kind]} Dashed: ideal scaling from the fewest devices that "
        f"fit{', a time that stays' if flat else ''}.{crosses}"
    )
    return Figure(
        f"{kind.value}-scaling-{measure.name}",
        f"{measure.title} over devices, {kind.value} scaling",
        caption,
        with_names(sized(alt.layer(*layers), HEIGHT), labels),
        3 * len(rows),
        scaling_table(curves) if measure.name == "time" else None,
        abreast=2 if measure.name != "time" else 1,
    )


def scaling_table(curves: Sequence[Curve]) -> PageTable:
    """The curves in numbers."""
    rows = [
        (
            curve.label,
            f"{step.devices:,}",
            f"{step.batch:,}",
            "" if step.time_s is None else time_text(step.time_s),
            "" if step.throughput is None else rate(step.throughput),
            "" if step.ideal_throughput is None else rate(step.ideal_throughput),
            "" if step.efficiency is None else share(step.efficiency),
            _plan(step) or _status(step),
            str(step.point.number),
        )
        for curve in curves
        for step in curve.steps
    ]
    columns = (
        "curve",
        "devices",
        "global batch",
        "iteration",
        "samples/s",
        "ideal",
        "efficiency",
        "plan",
        "point",
    )
    (kind,) = {curve.kind for curve in curves}
    return table(f"{kind.value.capitalize()} scaling", columns, rows, words={"curve", "plan"})


def _status(step: Step) -> str:
    return "" if step.point.feasible else infeasible_text(step.point)


def _plan(step: Step) -> str:
    plan = plan_of(step.point)
    return (
        ""
        if plan is None
        else f"{degrees_text(plan)}, micro-batch {plan.micro_batch_size}, {plan.recompute}"
    )
