"""Parallel coordinates: a line per point through its settings and what came of it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from phaze.report.pages.charts import sized
from phaze.report.pages.figures import Figure, inline_data
from phaze.report.pages.points.labels import point_label, shown, title_of
from phaze.report.pages.points.outcomes import Outcome
from phaze.report.pages.theme import RAMP, colour
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
    import altair as alt

    feasible = [point for point in points.points if point.feasible]
    if len(points.axes) < 2 or len(feasible) < 2:
        return None
    ordered = sorted(
        points.points, key=lambda point: (point.result.value or 0.0) if point.result else 0.0
    )
    step = max(1, -(-len(ordered) // MOST_LINES))
    chosen = ordered[::-1][::step][::-1]  # the best among them, and drawn last
    rows = [
        (
            point.number,
            point_label(points, point),
            position,
            stop.axis,
            stop.place,
            stop.text,
            _value(point),
            _state(point),
        )
        for point in chosen
        for position, stop in enumerate(_stops(points, feasible, outcomes, point))
    ]
    data = inline_data(
        ("point", "label", "position", "axis", "place", "text", "value", "state"),
        rows,
        words={"label", "axis", "text", "state"},
        exact=True,
    )
    axes = [title_of(key) for key in points.axes] + [
        outcome.name for outcome in _varying(feasible, outcomes)
    ]
    wrapped = {name: "\n".join(textwrap.wrap(name, LABEL)) for name in axes}
    marks = inline_data(
        ("axis", "place", "text"), _marks(points, feasible, outcomes), words={"axis", "text"}
    )
    padding = 6 + LINE * max(text.count("\n") for text in wrapped.values())
    names = (
        "{" + ", ".join(f"{_quoted(name)}: {_quoted(text)}" for name, text in wrapped.items()) + "}"
    )
    lines = alt.Axis(
        labelExpr=f"split({names}[datum.label], '\\n')",
        labelOverlap=False,
        ticks=False,
        domain=False,
        labelFontSize=10,
        orient="top",
        labelPadding=padding,
    )
    x = alt.X(
        "axis:N",
        title=None,
        sort=axes,
        scale=alt.Scale(type="point", domain=axes, padding=0.35),
        axis=lines,
    )
    y = alt.Y("place:Q", title=None, axis=None, scale=alt.Scale(domain=[-0.03, 1.03], nice=False))
    tooltip = [
        alt.Tooltip("label:N", title="point"),
        alt.Tooltip("axis:N"),
        alt.Tooltip("text:N", title="value"),
        alt.Tooltip("state:N", title="ended"),
    ]
    base = alt.Chart(data)
    fits, others = (
        base.transform_filter("isValid(datum.value)"),
        base.transform_filter("!isValid(datum.value)"),
    )
    ramp = alt.Color(
        "value:Q",
        title=outcomes[0].name,
        scale=alt.Scale(range=[colour(role) for role in RAMP], zero=False, nice=False),
        legend=alt.Legend(type="gradient", gradientLength=220),
    )
    chart = alt.layer(
        alt.Chart(marks)
        .mark_line(color=colour("rule"), strokeWidth=1)
        .encode(x=x, y=y, detail="axis:N"),
        others.mark_line(color=colour("faint"), strokeDash=[3, 3], strokeWidth=1).encode(
            x=x, y=y, detail="point:N", order="position:Q"
        ),
        fits.mark_line(strokeWidth=1.6, opacity=0.75).encode(
            x=x, y=y, detail="point:N", order="position:Q", color=ramp
        ),
        base.mark_point(size=40, opacity=0, filled=True).encode(x=x, y=y, tooltip=tooltip),
        *(
            alt.Chart(marks)
            .mark_text(align="left", dx=5, fontSize=10, tooltip=None, **look)
            .encode(x=x, y=y, text="text:N")
            for look in ({"stroke": colour("page"), "strokeWidth": 3}, {})
        ),
    )
    few = (
        ""
        if len(chosen) == len(ordered)
        else f" {len(chosen)} of {len(ordered):,} points are drawn, an even choice by what they "
        "reach."
    )
    without = (
        " Dashed lines, which end at the settings, are points without a plan."
        if len(feasible) < len(points.points)
        else ""
    )
    caption = (
        "A line is a point: it passes every axis at its value, coloured by "
        f"{outcomes[0].name}.{without}{few}"
    )
    spec = sized(chart, HEIGHT)
    spec["padding"] = {
        "left": 5,
        "top": 5,
        "right": 45,
        "bottom": 5,
    }  # for what is written beside the last axis
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
) -> Iterator[tuple[str, float, str]]:
    """What is written beside the axes: of settings all values where they are few, else the ends."""
    for key in points.axes:
        values = points.values(key)
        for place, value in enumerate(values):
            named = len(values) <= MOST_NAMED or place in (0, len(values) - 1)
            yield title_of(key), place / (len(values) - 1), shown(key, value) if named else ""
    for outcome in _varying(feasible, outcomes):
        least, most = _ends(feasible, outcome)
        yield outcome.name, 0.0, outcome.text(least)
        yield outcome.name, 1.0, outcome.text(most)


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


def _value(point: ReadPoint) -> float | None:
    return None if point.result is None else point.result.value


def _state(point: ReadPoint) -> str:
    return point.status.replace("_", " ") if point.feasible else infeasible_text(point)


def _quoted(text: str) -> str:
    """A text within an expression of Vega."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"
