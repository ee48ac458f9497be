"""Fronts of several models, runs or settings over each other: the most throughput for an area, for
energy, or for other axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from GraphExtractor.names import label
from phaze.report.pages.charts import SAMPLES, series_legend, sized, with_names
from phaze.report.pages.figures import Figure, PageTable, inline_data, table
from phaze.report.pages.front_axes import WORDS
from phaze.report.pages.points.details import Details, FrontDesign
from phaze.report.pages.points.labels import MODEL, QUESTION, fewer_axes, settings_label
from phaze.report.pages.theme import SERIES, colour
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
    """Fronts over each axis that all points have fronts of; none of points on devices that exist,
    whose area nobody states."""
    series = _series(points, details)
    return tuple(
        _figure(front_of(series, partial(_amount, axis)), axis) for axis in axes_of(details)
    )


def axes_of(details: Sequence[Details]) -> tuple[FrontAxis, ...]:
    """The axes besides throughput that the fronts of all points have."""
    fronts = [design.amounts.keys() for each in details for design in each.front[:1]]
    return tuple(axis for axis in WORDS if fronts and all(axis in front for front in fronts))


def _amount(axis: FrontAxis, design: FrontDesign) -> float:
    return design.amounts[axis]


def front_of(
    series: dict[str, list[tuple[int, FrontDesign]]], of: Callable[[FrontDesign], float]
) -> list[FrontStep]:
    """Of every series the designs that no other one of it beats with as little of ``of``, the least
    first."""
    found = []
    for name, designs in series.items():
        most = 0.0
        for point, design in sorted(
            designs, key=lambda each: (of(each[1]), -each[1].throughput_samples_per_s)
        ):
            if design.throughput_samples_per_s > most:
                most = design.throughput_samples_per_s
                found.append(FrontStep(name, point, of(design), design))
    return found


def _series(
    points: PointSet, details: Sequence[Details]
) -> dict[str, list[tuple[int, FrontDesign]]]:
    """Designs by what was asked: a series per model and value of the axes that say what a point is
    about."""
    keys = [key for key in points.axes if key in QUESTION and key != MODEL]
    models = {design.model for each in details for design in each.front}
    room = max(1, len(SERIES) * len(DASHES) // max(1, len(models)))
    keys = list(fewer_axes(points, keys, room))
    found: dict[str, list[tuple[int, FrontDesign]]] = {}
    for each in details:
        settings = settings_label(each.point, keys)
        for design in each.front:
            name = ", ".join(
                filter(
                    None, [label(design.model) if len(models) > 1 or not settings else "", settings]
                )
            )
            found.setdefault(name, []).append((each.point.number, design))
    return found


def _figure(steps: Sequence[FrontStep], axis: FrontAxis) -> Figure:
    import altair as alt

    title = WORDS[axis].title
    labels = list(dict.fromkeys(step.series for step in steps))
    rows = [
        (
            step.series,
            step.point,
            step.across,
            step.design.throughput_samples_per_s,
            step.design.chip,
            step.design.hbm_gib,
        )
        for step in steps
    ]
    data = inline_data(
        ("series", "point", "across", "throughput", "chip", "hbm"),
        rows,
        words={"series", "chip"},
        exact=True,
    )
    legend = series_legend(labels)
    colours = [colour(SERIES[place % len(SERIES)]) for place in range(len(labels))]
    coded = {
        "color": alt.Color(
            "series:N",
            title=None,
            sort=labels,
            scale=alt.Scale(domain=labels, range=colours),
            legend=legend,
        )
    }
    dashes = [
        DASHES[place % len(DASHES)] for place in range(len(labels))
    ]  # so that equal fronts show through each other
    dash = alt.StrokeDash(
        "series:N",
        title=None,
        sort=labels,
        scale=alt.Scale(domain=labels, range=dashes),
        legend=legend,
    )
    dashed = {**coded, "strokeDash": dash}
    x = alt.X("across:Q", title=title, scale=alt.Scale(zero=axis is FrontAxis.AREA))
    y = alt.Y("throughput:Q", title=SAMPLES, scale=alt.Scale(zero=True))
    tooltip = [
        alt.Tooltip("series:N", title="of"),
        alt.Tooltip("chip:N"),
        alt.Tooltip("throughput:Q", title="samples/s", format=",.5~r"),
        alt.Tooltip("across:Q", title=title, format=",.4~r"),
        alt.Tooltip("hbm:Q", title="HBM, GiB"),
    ]
    base = alt.Chart(data)
    chart = alt.layer(
        base.mark_line(interpolate="step-after", strokeWidth=1.6).encode(x=x, y=y, **dashed),
        base.mark_circle(size=24, opacity=0.7).encode(x=x, y=y, tooltip=tooltip, **coded),
    )
    equal = " Equal fronts lie over each other." if len(labels) > 1 else ""
    caption = (
        "The most samples per second that a design with so much or less reaches, of all on "
        f"the fronts of the points.{equal}"
    )
    return Figure(
        f"fronts-{axis}",
        _title(axis),
        caption,
        with_names(sized(chart, HEIGHT), labels),
        2 * len(rows),
        _table(steps, axis),
        abreast=2,
    )


def _title(axis: FrontAxis) -> str:
    return f"Most throughput for {WORDS[axis].buys}"


def _table(steps: Sequence[FrontStep], axis: FrontAxis) -> PageTable:
    rows = [
        (
            step.series,
            number(step.across),
            rate(step.design.throughput_samples_per_s),
            step.design.chip,
            number(step.design.hbm_gib),
            str(step.point),
        )
        for step in steps
    ]
    kept = (
        rows
        if len(rows) <= TABLE_ROWS
        else [
            rows[round(place * (len(rows) - 1) / (TABLE_ROWS - 1))] for place in range(TABLE_ROWS)
        ]
    )
    some = "" if kept is rows else f", {len(kept)} of {len(rows):,}"
    return table(
        f"{_title(axis)}{some}",
        ("front of", WORDS[axis].title, "samples/s", "accelerator", "HBM GiB", "point"),
        kept,
        words={"front of", "accelerator"},
    )
