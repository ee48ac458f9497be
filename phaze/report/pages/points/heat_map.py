"""Heat maps over any two axes of which there are several values: menus choose the axes and what is
shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from phaze.report.pages.charts import sized
from phaze.report.pages.figures import Figure, inline_data
from phaze.report.pages.points.labels import Series, grouped, shown, title_of
from phaze.report.pages.points.outcomes import Outcome
from phaze.report.pages.theme import RAMP, colour
from phaze.studies.sweep.points_read import PointSet, infeasible_text

HEIGHT = 330
MOST_PAIRS = 15
MOST_WRITTEN = 8  # columns whose cells have room for their numbers
TURN = 1 / 3  # of the ramp, from where on it is dark
NOTHING = "×"


@dataclass(frozen=True, eq=False)
class Cell:
    """The best of the points with two values: places count from 0 in the order of the axes'
    values."""

    across: int
    up: int
    series: Series


@dataclass(frozen=True, eq=False)
class Grid:
    """Cells over two axes, by their keys."""

    across: str
    up: str
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        """As the menu has it."""
        return f"{title_of(self.across)} across, {title_of(self.up)} up"


def grids_of(points: PointSet) -> tuple[Grid, ...]:
    """A grid for every two axes of the points; the axis of more values goes across."""
    found = []
    for pair in list(combinations(points.axes, 2))[:MOST_PAIRS]:
        up, across = sorted(pair, key=lambda key: len(points.values(key)))
        places = [
            {str(value): place for place, value in enumerate(points.values(key))}
            for key in (across, up)
        ]
        cells = []
        for series in grouped(points.points, (across, up)):
            first = series.points[0]
            cells.append(
                Cell(places[0][str(first.value(across))], places[1][str(first.value(up))], series)
            )
        if all(len({(cell.across, cell.up)[way] for cell in cells}) > 1 for way in (0, 1)):
            found.append(Grid(across, up, tuple(cells)))
    return tuple(found)


def heat_map(points: PointSet, outcomes: Sequence[Outcome]) -> Figure | None:
    """The figure of all grids; None where fewer than two axes vary, or nothing fits."""
    import altair as alt

    grids = grids_of(points)
    if not grids or not any(point.feasible for point in points.points):
        return None
    rows = [row for grid in grids for outcome in outcomes for row in _rows(points, grid, outcome)]
    columns = (
        "grid",
        "measure",
        "across",
        "up",
        "across_place",
        "up_place",
        "value",
        "text",
        "tone",
        "point",
        "best",
        "design",
        "points",
    )
    words = {"grid", "measure", "across", "up", "text", "tone", "design"}
    data = inline_data(columns, rows, words=words, exact=True)
    names, measures = [grid.name for grid in grids], [outcome.name for outcome in outcomes]
    menus = [
        alt.param(
            name="choose_grid", value=names[0], bind=alt.binding_select(options=names, name="axes")
        ),
        alt.param(
            name="choose_measure",
            value=measures[0],
            bind=alt.binding_select(options=measures, name="value"),
        ),
    ]
    chosen = alt.Chart(data).transform_filter(
        "datum.grid == choose_grid && datum.measure == choose_measure"
    )
    across = alt.X(
        "across:N",
        title=None,
        sort=alt.EncodingSortField("across_place", op="min"),
        axis=alt.Axis(labelOverlap="greedy"),
    )
    up = alt.Y(
        "up:N",
        title=None,
        sort=alt.EncodingSortField("up_place", op="min", order="descending"),
        axis=alt.Axis(ticks=False, grid=False),
    )
    ramp = alt.Scale(range=[colour(role) for role in RAMP], zero=False, nice=False)
    tooltip = [
        alt.Tooltip("across:N", title="across"),
        alt.Tooltip("up:N", title="up"),
        alt.Tooltip("text:N", title="value"),
        alt.Tooltip("design:N", title="point"),
        alt.Tooltip("points:Q", title="points with these values"),
    ]
    fits = chosen.transform_filter("isValid(datum.value)")
    legend = alt.Legend(type="gradient", gradientLength=220)
    layers: list[Any] = [
        chosen.transform_filter("!isValid(datum.value)")
        .mark_rect(color=colour("panel"), stroke=colour("rule"))
        .encode(x=across, y=up, tooltip=tooltip),
        fits.mark_rect(stroke=colour("page"), strokeWidth=1).encode(
            x=across,
            y=up,
            color=alt.Color("value:Q", title=None, scale=ramp, legend=legend),
            tooltip=tooltip,
        ),
        chosen.transform_filter("datum.best")
        .mark_rect(filled=False, stroke=colour("accent"), strokeWidth=3)
        .encode(x=across, y=up),
    ]
    for tone, role in (("light", "label_on_light"), ("dark", "label_on_dark"), ("none", "muted")):
        layers.append(
            chosen.transform_filter(f"datum.tone == '{tone}'")
            .mark_text(color=colour(role), fontSize=10, tooltip=None)
            .encode(x=across, y=up, text="text:N")
        )
    title = alt.TitleParams(
        text=alt.ExprRef("choose_measure + ': ' + choose_grid"),
        anchor="start",
        fontSize=12,
        fontWeight="normal",
        color=colour("ink"),
        limit=700,
    )
    chart = alt.layer(*layers).add_params(*menus).properties(title=title)
    caption = (
        "Each cell is the best of the points with these two values, by what was maximised; the "
        "frame marks the best of all. "
        f"The menus choose the axes and what is shown. {NOTHING}: no point with these values has "
        "a plan."
    )
    return Figure(
        "heat-map",
        "Two axes at a time",
        caption,
        sized(chart, HEIGHT),
        2 * max(len(grid.cells) for grid in grids),
    )


def _rows(points: PointSet, grid: Grid, outcome: Outcome) -> Iterator[tuple[object, ...]]:
    reached = {id(cell): _value(cell, outcome) for cell in grid.cells}
    known = [value for value in reached.values() if value is not None]
    best = [cell.series.best for cell in grid.cells]
    most = max(
        (point.result.value or 0.0 for point in best if point and point.result), default=None
    )
    written = len(points.values(grid.across)) <= MOST_WRITTEN
    for cell in grid.cells:
        value, point = reached[id(cell)], cell.series.best
        is_best = point is not None and point.result is not None and point.result.value == most
        text = NOTHING if value is None else outcome.text(value)
        tone = "none" if value is None else _tone(value, known)
        design = (
            infeasible_text(cell.series.points[0]) if point is None else f"point {point.number}"
        )
        yield (
            *(grid.name, outcome.name),
            shown(grid.across, points.values(grid.across)[cell.across]),
            shown(grid.up, points.values(grid.up)[cell.up]),
            *(cell.across, cell.up, value, text, tone if written or value is None else "hidden"),
            None if point is None else point.number,
            *(is_best, design, len(cell.series.points)),
        )


def _value(cell: Cell, outcome: Outcome) -> float | None:
    return None if cell.series.best is None else outcome.of(cell.series.best)


def _tone(value: float, known: Sequence[float]) -> str:
    """Whether the ramp is dark where ``value`` stands on it."""
    least, most = min(known), max(known)
    return "dark" if most > least and (value - least) / (most - least) > TURN else "light"
