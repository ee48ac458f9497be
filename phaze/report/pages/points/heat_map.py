"""Heat maps over two axes with several values each: menus choose the axes and what is shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import altair as alt

from phaze.report.pages.charts import chart_of, ramp_colour, sized, tips
from phaze.report.pages.figures import Figure
from phaze.report.pages.points.labels import Series, grouped, shown, title_of
from phaze.report.pages.points.outcomes import Outcome
from phaze.report.pages.theme import colour
from phaze.studies.sweep.points_read import PointSet, infeasible_text

HEIGHT = 330
MOST_PAIRS = 15
MOST_WRITTEN = 8  # columns whose cells have room for their numbers
TURN = 1 / 3  # of the ramp, from where on it is dark
NOTHING = "×"


@dataclass(frozen=True, eq=False)
class Cell:
    """The best of the points with two values, by places in the order of the axes' values."""

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
            at = places[0][str(first.value(across))], places[1][str(first.value(up))]
            cells.append(Cell(*at, series))
        if all(len({(cell.across, cell.up)[way] for cell in cells}) > 1 for way in (0, 1)):
            found.append(Grid(across, up, tuple(cells)))
    return tuple(found)


def heat_map(points: PointSet, outcomes: Sequence[Outcome]) -> Figure | None:
    """The figure of all grids; None where fewer than two axes vary, or nothing fits."""
    grids = grids_of(points)
    if not grids or not any(point.feasible for point in points.points):
        return None
    rows = (row for grid in grids for outcome in outcomes for row in _rows(points, grid, outcome))
    chosen = chart_of(rows, exact=True).transform_filter(
        "datum.grid == choose_grid && datum.measure == choose_measure"
    )
    options = {
        "grid": ("axes", [grid.name for grid in grids]),
        "measure": ("value", [outcome.name for outcome in outcomes]),
    }
    menus = []
    for key, (title, names) in options.items():
        bind = alt.binding_select(options=names, name=title)
        menus.append(alt.param(name=f"choose_{key}", value=names[0], bind=bind))
    by_place, overlap = alt.EncodingSortField, alt.Axis(labelOverlap="greedy")
    downwards, bare = {"op": "min", "order": "descending"}, alt.Axis(ticks=False, grid=False)
    at = {
        "x": alt.X("across:N", title=None, sort=by_place("across_place", op="min"), axis=overlap),
        "y": alt.Y("up:N", title=None, sort=by_place("up_place", **downwards), axis=bare),
    }
    titles = {"across:N": "across", "up:N": "up", "text:N": "value", "design:N": "point"}
    tooltip = tips(titles | {"points:Q": "points with these values"})
    fits, nothing = map(chosen.transform_filter, ("isValid(datum.value)", "!isValid(datum.value)"))
    best = chosen.transform_filter("datum.best")
    layers: list[Any] = [
        nothing.mark_rect(color=colour("panel"), stroke=colour("rule")).encode(
            tooltip=tooltip, **at
        ),
        fits.mark_rect(stroke=colour("page"), strokeWidth=1).encode(
            color=ramp_colour("value:Q", None), tooltip=tooltip, **at
        ),
        best.mark_rect(filled=False, stroke=colour("accent"), strokeWidth=3).encode(**at),
    ]
    for tone, role in (("light", "label_on_light"), ("dark", "label_on_dark"), ("none", "muted")):
        of_tone = chosen.transform_filter(f"datum.tone == '{tone}'")
        text = of_tone.mark_text(color=colour(role), fontSize=10, tooltip=None)
        layers.append(text.encode(text="text:N", **at))
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
        "frame marks the best of all. The menus choose the axes and what is shown. "
        f"{NOTHING}: no point with these values has a plan."
    )
    marks = 2 * max(len(grid.cells) for grid in grids)
    return Figure("heat-map", "Two axes at a time", caption, sized(chart, HEIGHT), marks)


def _rows(points: PointSet, grid: Grid, outcome: Outcome) -> Iterator[dict[str, object]]:
    best = {id(cell): cell.series.best for cell in grid.cells}
    reached = {id(cell): _value(cell, outcome) for cell in grid.cells}
    known = [value for value in reached.values() if value is not None]
    most = max((each.objective for each in best.values() if each), default=None)
    written = len(points.values(grid.across)) <= MOST_WRITTEN
    for cell in grid.cells:
        value, point = reached[id(cell)], best[id(cell)]
        tone = "none" if value is None else _tone(value, known)
        yield {
            "grid": grid.name,
            "measure": outcome.name,
            "across": shown(grid.across, points.values(grid.across)[cell.across]),
            "up": shown(grid.up, points.values(grid.up)[cell.up]),
            "across_place": cell.across,
            "up_place": cell.up,
            "value": value,
            "text": NOTHING if value is None else outcome.text(value),
            "tone": tone if written or value is None else "hidden",
            "point": None if point is None else point.number,
            "best": point is not None and point.result is not None and point.result.value == most,
            "design": f"point {point.number}" if point else infeasible_text(cell.series.points[0]),
            "points": len(cell.series.points),
        }


def _value(cell: Cell, outcome: Outcome) -> float | None:
    return None if cell.series.best is None else outcome.of(cell.series.best)


def _tone(value: float, known: Sequence[float]) -> str:
    """Whether the ramp is dark where ``value`` stands on it."""
    least, most = min(known), max(known)
    return "dark" if most > least and (value - least) / (most - least) > TURN else "light"
