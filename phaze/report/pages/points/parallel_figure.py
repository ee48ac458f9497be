"""Parallel coordinates: a line per point through its settings and what came of it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import altair as alt

from phaze.report.pages import charts
from phaze.report.pages.figures import Figure
from phaze.report.pages.points.labels import point_label, shown, title_of
from phaze.report.pages.points.outcomes import Outcome
from phaze.report.pages.theme import colour
from phaze.studies.sweep.points_read import PointSet, ReadPoint, infeasible_text

HEIGHT = 320
MOST_LINES = 500
MOST_OUTCOMES = 4
MOST_NAMED = 8  # values of an axis that are all written beside it
LABEL, LINE = 10, 11  # of an axis's name: characters of a line, and its pixels


@dataclass(frozen=True)
class _Stop:
    """Where a line meets an axis, from 0 at its foot to 1, and what is written there."""

    axis: str
    place: float
    text: str


def parallel_figure(points: PointSet, outcomes: Sequence[Outcome]) -> Figure | None:
    """The figure; None where fewer than two settings vary, or nothing fits."""
    feasible = [point for point in points.points if point.feasible]
    if len(points.axes) < 2 or len(feasible) < 2:
        return None
    ordered = sorted(points.points, key=lambda point: point.objective)
    step = max(1, -(-len(ordered) // MOST_LINES))
    chosen = ordered[::-1][::step][::-1]  # the best among them, and drawn last
    rows = [
        {
            "point": point.number,
            "label": point_label(points, point),
            "position": position,
            "axis": stop.axis,
            "place": stop.place,
            "text": stop.text,
            "value": None if point.result is None else point.result.value,
            "state": _state(point),
        }
        for point in chosen
        for position, stop in enumerate(_stops(points, feasible, outcomes, point))
    ]
    axes = [title_of(key) for key in points.axes]
    axes += [outcome.name for outcome in _varying(feasible, outcomes)]
    wrapped = {name: "\n".join(textwrap.wrap(name, LABEL)) for name in axes}
    marks = charts.chart_of(
        {"axis": stop.axis, "place": stop.place, "text": stop.text}
        for stop in _marks(points, feasible, outcomes)
    )
    names = ", ".join(f"{_quoted(name)}: {_quoted(text)}" for name, text in wrapped.items())
    titles = alt.Axis(
        labelExpr=f"split({{{names}}}[datum.label], '\\n')",
        labelOverlap=False,
        ticks=False,
        domain=False,
        labelFontSize=10,
        orient="top",
        labelPadding=6 + LINE * max(text.count("\n") for text in wrapped.values()),
    )
    stops = alt.Scale(type="point", domain=axes, padding=0.35)
    at = {
        "x": alt.X("axis:N", title=None, sort=axes, scale=stops, axis=titles),
        "y": alt.Y("place:Q", title=None, axis=None, scale=charts.exactly(-0.03, 1.03)),
    }
    tooltip = charts.tips({"label:N": "point", "axis:N": "", "text:N": "value", "state:N": "ended"})
    base = charts.chart_of(rows, exact=True)
    fits, others = map(base.transform_filter, ("isValid(datum.value)", "!isValid(datum.value)"))
    joined = at | {"detail": "point:N", "order": "position:Q"}
    ramp = charts.ramp_colour("value:Q", outcomes[0].name)
    beside = {"align": "left", "dx": 5, "fontSize": 10, "tooltip": None}
    chart = alt.layer(
        marks.mark_line(color=colour("rule"), strokeWidth=1).encode(detail="axis:N", **at),
        others.mark_line(color=colour("faint"), strokeDash=[3, 3], strokeWidth=1).encode(**joined),
        fits.mark_line(strokeWidth=1.6, opacity=0.75).encode(color=ramp, **joined),
        base.mark_point(size=40, opacity=0, filled=True).encode(tooltip=tooltip, **at),
        *(
            marks.mark_text(**beside, **look).encode(text="text:N", **at)
            for look in (charts.HALO, {})
        ),
    )
    caption = (
        f"A line is a point: it passes every axis at its value, coloured by {outcomes[0].name}."
    )
    if len(feasible) < len(points.points):
        caption += " Dashed lines, which end at the settings, are points without a plan."
    if len(chosen) < len(ordered):
        drawn = f"{len(chosen)} of {len(ordered):,} points are drawn"
        caption += f" {drawn}, an even choice by what they reach."
    # for what is written beside the last axis
    spec = charts.sized(chart, HEIGHT, charts.room_right(45))
    return Figure("parallel-coordinates", "All axes at once", caption, spec, 2 * len(rows))


def _stops(
    points: PointSet, feasible: Sequence[ReadPoint], outcomes: Sequence[Outcome], point: ReadPoint
) -> Iterator[_Stop]:
    for key in points.axes:
        values = [str(value) for value in points.values(key)]
        place = values.index(str(point.value(key))) / (len(values) - 1)
        yield _Stop(title_of(key), place, shown(key, point.value(key)))
    if point.feasible:
        for outcome in _varying(feasible, outcomes):
            value = outcome.of(point)
            if value is not None:
                least, most = _ends(feasible, outcome)
                yield _Stop(outcome.name, (value - least) / (most - least), outcome.text(value))


def _marks(
    points: PointSet, feasible: Sequence[ReadPoint], outcomes: Sequence[Outcome]
) -> Iterator[_Stop]:
    """What is written beside the axes: of settings all values where they are few, else the ends."""
    for key in points.axes:
        values = points.values(key)
        for place, value in enumerate(values):
            named = len(values) <= MOST_NAMED or place in (0, len(values) - 1)
            text = shown(key, value) if named else ""
            yield _Stop(title_of(key), place / (len(values) - 1), text)
    for outcome in _varying(feasible, outcomes):
        least, most = _ends(feasible, outcome)
        yield _Stop(outcome.name, 0.0, outcome.text(least))
        yield _Stop(outcome.name, 1.0, outcome.text(most))


def _varying(feasible: Sequence[ReadPoint], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes that differ between points, as many as a phone has room for."""
    found = [
        outcome
        for outcome in outcomes
        if len({outcome.of(point) for point in feasible} - {None}) > 1
    ]
    return found[:MOST_OUTCOMES]


def _ends(feasible: Sequence[ReadPoint], outcome: Outcome) -> tuple[float, float]:
    known = [value for point in feasible if (value := outcome.of(point)) is not None]
    return min(known), max(known)


def _state(point: ReadPoint) -> str:
    return point.status.replace("_", " ") if point.feasible else infeasible_text(point)


def _quoted(text: str) -> str:
    """A text within an expression of Vega."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"
