"""Fronts of several models, runs or settings over each other: the most throughput for an axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt

from GraphExtractor.names import label
from phaze.report.pages import charts
from phaze.report.pages.figures import Figure
from phaze.report.pages.front_axes import WORDS
from phaze.report.pages.points.details import Details, FrontDesign
from phaze.report.pages.points.labels import MODEL, QUESTION, fewer_axes, settings_label
from phaze.report.pages.theme import SERIES
from phaze.report.table import Table
from phaze.studies.sweep.points_read import PointSet
from phaze_common.choices import FrontAxis
from phaze_common.numbers import number, rate

HEIGHT = 320
DASHES = ([1, 0], [7, 5], [2, 4])
TABLE_ROWS = 200


@dataclass(frozen=True)
class FrontStep:
    """A design of a front, of the point ``point``."""

    series: str
    point: int
    across: float
    design: FrontDesign


def front_figures(points: PointSet, details: Sequence[Details]) -> tuple[Figure, ...]:
    """Fronts over each axis that all points have fronts of; none of points on given devices."""
    series = _series(points, details)
    return tuple(_figure(front_of(series, axis), axis) for axis in axes_of(details))


def axes_of(details: Sequence[Details]) -> tuple[FrontAxis, ...]:
    """The axes besides throughput that the fronts of all points have."""
    fronts = [design.amounts.keys() for each in details for design in each.front[:1]]
    return tuple(axis for axis in WORDS if fronts and all(axis in front for front in fronts))


def front_of(series: dict[str, list[tuple[int, FrontDesign]]], axis: FrontAxis) -> list[FrontStep]:
    """Of every series the designs that no other beats with as little of ``axis``, least first."""
    found = []
    for name, designs in series.items():
        most = 0.0
        for point, design in sorted(
            designs, key=lambda each: (each[1].amounts[axis], -each[1].throughput_samples_per_s)
        ):
            if design.throughput_samples_per_s > most:
                most = design.throughput_samples_per_s
                found.append(FrontStep(name, point, design.amounts[axis], design))
    return found


def _series(
    points: PointSet, details: Sequence[Details]
) -> dict[str, list[tuple[int, FrontDesign]]]:
    """Designs by what was asked: a series per model and value of the axes of the question."""
    keys = [key for key in points.axes if key in QUESTION and key != MODEL]
    models = {design.model for each in details for design in each.front}
    room = max(1, len(SERIES) * len(DASHES) // max(1, len(models)))
    keys = list(fewer_axes(points, keys, room))
    found: dict[str, list[tuple[int, FrontDesign]]] = {}
    for each in details:
        settings = settings_label(each.point, keys)
        for design in each.front:
            model = label(design.model) if len(models) > 1 or not settings else ""
            name = ", ".join(filter(None, [model, settings]))
            found.setdefault(name, []).append((each.point.number, design))
    return found


def _figure(steps: Sequence[FrontStep], axis: FrontAxis) -> Figure:
    title = WORDS[axis].title
    labels = list(dict.fromkeys(step.series for step in steps))
    # dashes, so that equal fronts show through each other
    dashes = [DASHES[place % len(DASHES)] for place in range(len(labels))]
    scale, legend = alt.Scale(domain=labels, range=dashes), charts.series_legend(labels)
    dash = alt.StrokeDash("series:N", title=None, sort=labels, scale=scale, legend=legend)
    base = charts.chart_of(
        (
            {
                "series": step.series,
                "point": step.point,
                "across": step.across,
                "throughput": step.design.throughput_samples_per_s,
                "chip": step.design.chip,
                "hbm": step.design.hbm_gib,
            }
            for step in steps
        ),
        exact=True,
    ).encode(
        x=alt.X("across:Q", title=title, scale=alt.Scale(zero=axis is FrontAxis.AREA)),
        y=alt.Y("throughput:Q", title=charts.SAMPLES, scale=charts.TO_ZERO),
        **charts.series_coded("series:N", labels, charts.series_roles(labels)),
    )
    tooltip = charts.tips(
        {
            "series:N": "of",
            "chip:N": "",
            "throughput:Q ,.5~r": "samples/s",
            "across:Q ,.4~r": title,
            "hbm:Q": "HBM, GiB",
        }
    )
    chart = alt.layer(
        base.mark_line(interpolate="step-after", strokeWidth=1.6).encode(strokeDash=dash),
        base.mark_circle(size=24, opacity=0.7).encode(tooltip=tooltip),
    )
    caption = (
        "The most samples per second that a design with so much or less reaches, of all on "
        f"the fronts of the points.{' Equal fronts lie over each other.' * (len(labels) > 1)}"
    )
    return Figure(
        f"fronts-{axis}",
        _title(axis),
        caption,
        charts.with_names(charts.sized(chart, HEIGHT), labels),
        2 * len(steps),
        _table(steps, axis),
        abreast=2,
    )


def _title(axis: FrontAxis) -> str:
    return f"Most throughput for {WORDS[axis].buys}"


def _table(steps: Sequence[FrontStep], axis: FrontAxis) -> Table:
    kept, last = list(steps), len(steps) - 1
    if len(steps) > TABLE_ROWS:
        kept = [steps[round(at * last / (TABLE_ROWS - 1))] for at in range(TABLE_ROWS)]
    rows = (
        {
            "front of": step.series,
            WORDS[axis].title: number(step.across),
            "samples/s": rate(step.design.throughput_samples_per_s),
            "accelerator": step.design.chip,
            "HBM GiB": number(step.design.hbm_gib),
            "point": str(step.point),
        }
        for step in kept
    )
    some = f", {len(kept)} of {len(steps):,}" if len(kept) < len(steps) else ""
    return Table.of(f"{_title(axis)}{some}", rows, words={"front of", "accelerator"})
