"""Time, throughput and efficiency over numbers of devices, with what ideal scaling would be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import altair as alt

from phaze.report.pages import charts
from phaze.report.pages.figures import Figure
from phaze.report.pages.points.outcomes import plan_of
from phaze.report.pages.points.scaling import Curve, Scaling, Step
from phaze.report.pages.theme import SERIES
from phaze.report.sentences.designs import degrees_text
from phaze.report.table import Table
from phaze.studies.sweep.points_read import infeasible_text
from phaze_common.numbers import number, percent, rate, share, time_text

HEIGHT = 300
FEW = 4  # curves, all of which are described
FORMS = charts.SHAPES[:4]
LOGARITHMIC = alt.Scale(type="log", nice=False, padding=10)
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
        *("time", "Time of an iteration", "seconds per iteration"),
        lambda step: step.time_s,
        lambda step: step.ideal_time_s,
    ),
    _Measure(
        *("throughput", "Throughput", charts.SAMPLES),
        lambda step: step.throughput,
        lambda step: step.ideal_throughput,
    ),
    _Measure(
        *("efficiency", "Efficiency", "of the ideal"),
        lambda step: step.efficiency,
        lambda step: 1.0,
        logarithmic=False,
    ),
)


def scaling_figures(curves: Sequence[Curve]) -> tuple[Figure, ...]:
    """Time, throughput and efficiency of curves; none where fewer than two steps fit on any."""
    if not any(sum(step.throughput is not None for step in curve.steps) > 1 for curve in curves):
        return ()
    return tuple(_figure(curves, measure) for measure in MEASURES)


def scaling_words(curves: Sequence[Curve]) -> tuple[str, ...]:
    """What kind of scaling it is, and how far each curve keeps to the ideal."""
    (kind,) = {curve.kind for curve in curves}
    ordered = sorted(
        filter(_reached, curves), key=lambda curve: -(_reached(curve)[-1].efficiency or 0.0)
    )
    described = ordered if len(ordered) <= FEW else [ordered[0], ordered[-1]]
    some = (
        f"Of {len(ordered)} curves, that which keeps closest to the ideal and that which falls "
        "furthest behind:"
    )
    return WHICH[kind], *([] if described is ordered else [some]), *map(_words, described)


def _reached(curve: Curve) -> tuple[Step, ...]:
    """The steps that fit, where there are several."""
    found = tuple(
        step for step in curve.steps if step.throughput is not None and step.efficiency is not None
    )
    return found if len(found) > 1 else ()


def _words(curve: Curve) -> str:
    first, *_, last = _reached(curve)
    times = number((last.throughput or 0.0) / (first.throughput or 1.0), 3)
    without = ", ".join(f"{step.devices:,}" for step in curve.steps if step.throughput is None)
    unfit = f" Nothing fits, or the search ended without an answer, with {without} devices."
    return (
        f"{curve.label}: {number(last.devices / first.devices, 3)} times the devices "
        f"({first.devices:,} to {last.devices:,}) bring {times} times the samples per second, "
        f"{percent(last.efficiency or 0.0)} of the ideal.{unfit if without else ''}"
    )


def _figure(curves: Sequence[Curve], measure: _Measure) -> Figure:
    kind, labels = curves[0].kind, [curve.label for curve in curves]
    steps = [(curve.label, step) for curve in curves for step in curve.steps]
    base = charts.chart_of(
        (
            {
                "curve": curve,
                "point": step.point.number,
                "devices": step.devices,
                "batch": step.batch,
                "value": measure.of(step),
                "ideal": measure.ideal(step),
                "status": _status(step),
                "plan": _plan(step),
            }
            for curve, step in steps
        ),
        exact=True,
    )
    counts = sorted({step.devices for _, step in steps})
    doubling = alt.Scale(type="log", base=2, nice=False, padding=14)
    whole = alt.Axis(values=counts, format=",d", labelOverlap="greedy")
    x = alt.X("devices:Q", title="devices", scale=doubling, axis=whole)
    scale, axis, value_format, ideal_format = charts.TO_ZERO, alt.Axis(format=".0%"), ".1%", ".0%"
    if measure.logarithmic:
        scale, value_format, ideal_format = LOGARITHMIC, ",.5~r", ",.5~r"
        axis = alt.Axis(format="~s" if measure.name == "throughput" else "~g", tickCount=5)
    height = {"title": measure.unit, "scale": scale, "axis": axis}
    y = alt.Y("value:Q", **height)
    coloured = charts.series_coded("curve:N", labels, charts.series_roles(labels))
    coded = dict(coloured)
    if len(curves) > len(SERIES):
        places = range(len(curves))
        forms = [FORMS[place // len(SERIES) % len(FORMS)] for place in places]
        coded["shape"] = charts.series_shape("curve:N", labels, forms)
    tooltip = charts.tips(
        {
            "curve:N": "curve",
            "devices:Q ,": "",
            f"value:Q {value_format}": measure.unit,
            f"ideal:Q {ideal_format}": "ideal",
            "batch:Q ,": "global batch",
            "plan:N": "plan",
        }
    )
    fits, fails = map(base.transform_filter, ("isValid(datum.value)", "!isValid(datum.value)"))
    dashed = base.transform_filter("isValid(datum.ideal)").mark_line(
        strokeDash=[4, 4], strokeWidth=1, opacity=0.65
    )
    layers = [
        dashed.encode(x=x, y=alt.Y("ideal:Q", **height), **coloured),
        fits.mark_line(strokeWidth=1.8).encode(x=x, y=y, **coloured),
        fits.mark_point(size=52, filled=True, opacity=1).encode(x=x, y=y, tooltip=tooltip, **coded),
    ]
    flat = kind is Scaling.WEAK and measure.name == "time"
    caption = (
        f"{WHICH[kind]} Dashed: ideal scaling from the fewest devices that "
        f"fit{', a time that stays' if flat else ''}."
    )
    if any(step.throughput is None for _, step in steps):
        caption += " Crosses at the foot are points without a plan."
        why = charts.tips({"curve:N": "", "devices:Q ,": "", "status:N": ""})
        cross = fails.mark_point(shape="cross", angle=45, size=70, filled=True, opacity=1)
        layers.append(cross.encode(x=x, y=alt.value(HEIGHT - 7), tooltip=why, **coloured))
    return Figure(
        f"{kind.value}-scaling-{measure.name}",
        f"{measure.title} over devices, {kind.value} scaling",
        caption,
        charts.with_names(charts.sized(alt.layer(*layers), HEIGHT), labels),
        3 * len(steps),
        scaling_table(curves) if measure.name == "time" else None,
        abreast=2 if measure.name != "time" else 1,
    )


def scaling_table(curves: Sequence[Curve]) -> Table:
    """The curves in numbers."""
    rows = []
    for curve in curves:
        for step in curve.steps:
            samples, ideal, efficiency = step.throughput, step.ideal_throughput, step.efficiency
            rows.append(
                {
                    "curve": curve.label,
                    "devices": f"{step.devices:,}",
                    "global batch": f"{step.batch:,}",
                    "iteration": "" if step.time_s is None else time_text(step.time_s),
                    "samples/s": "" if samples is None else rate(samples),
                    "ideal": "" if ideal is None else rate(ideal),
                    "efficiency": "" if efficiency is None else share(efficiency),
                    "plan": _plan(step) or _status(step),
                    "point": str(step.point.number),
                }
            )
    title = f"{curves[0].kind.value.capitalize()} scaling"
    return Table.of(title, rows, words={"curve", "plan"})


def _status(step: Step) -> str:
    return "" if step.point.feasible else infeasible_text(step.point)


def _plan(step: Step) -> str:
    plan = plan_of(step.point)
    if plan is None:
        return ""
    return f"{degrees_text(plan)}, micro-batch {plan.micro_batch_size}, {plan.recompute}"
