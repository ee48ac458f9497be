"""What charts share: the data within them, sizes, colours by role, lines, points and bars."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

import altair as alt
from altair.utils.schemapi import debug_mode

from phaze.report.pages.theme import BELOW_LEGEND, RAMP, SERIES, colour
from phaze_common.numbers import number

Drawn = ParamSpec("Drawn")
Page = TypeVar("Page")
SAMPLES = "samples per second"
LEGEND_COLUMN = "legendColumn"
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
EDGE = {"stroke": colour("page"), "strokeWidth": 0.5}  # between parts of a bar
HALO = {"stroke": colour("page"), "strokeWidth": 3}  # behind words, so that marks end before them
TO_ZERO = alt.Scale(zero=True)
RING = {"filled": False, "strokeWidth": 2.5}  # around what is chosen


def unvalidated(draw: Callable[Drawn, Page]) -> Callable[Drawn, Page]:
    """``draw`` without Altair's checks of every part of a chart as it is made: that figures keep to
    the schema is for tests."""
    drawing: Callable[Drawn, Page] = debug_mode(False)(draw)
    return drawing


def chart_data(rows: Iterable[Mapping[str, object]], *, exact: bool = False) -> Any:
    """Altair data of rows, as CSV, a quarter of the size of JSON.

    Columns that hold text are words, the others numbers. None, and numbers that are not finite,
    become missing values; ``exact`` ones keep all digits, others seven.
    """
    rows, text = list(rows), io.StringIO()
    columns = list(rows[0]) if rows else []
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row[column], exact=exact) for column in columns] for row in rows)
    words = {column for row in rows for column in columns if isinstance(row[column], str)}
    parse = {column: "string" if column in words else "number" for column in columns}
    return alt.InlineData(values=text.getvalue(), format=alt.CsvDataFormat(type="csv", parse=parse))


def _cell(value: object, *, exact: bool) -> object:
    if isinstance(value, float):
        return (repr(value) if exact else f"{value:.7g}") if math.isfinite(value) else ""
    return "" if value is None else int(value) if isinstance(value, bool) else value


def chart_of(rows: Iterable[Mapping[str, object]], *, exact: bool = False) -> Any:
    """A chart of rows, to be marked and encoded."""
    return alt.Chart(chart_data(rows, exact=exact))


def sized(chart: Any, height: int, room: Mapping[str, int] | None = None) -> dict[str, Any]:
    """JSON of a chart as wide as its place, ``height`` pixels high, with ``room`` around it.

    It is not validated, which takes longer than all else of a page together (``unvalidated``).
    """
    fit = alt.AutoSizeParams(type="fit-x", contains="padding")
    fitted = chart.properties(width="container", height=height, autosize=fit)
    spec: dict[str, Any] = fitted.to_dict(validate=False)
    spec.pop("config", None)  # the theme's takes its place
    return spec if room is None else spec | {"padding": dict(room)}


def room_right(pixels: int) -> dict[str, int]:
    """Room for what is written behind the longest bar."""
    return {"left": 5, "top": 5, "right": pixels, "bottom": 5}


def tips(titles: Mapping[str, str]) -> list[Any]:
    """What is shown beside the pointer: titles by field with its type, and its format behind
    that: ``{"time:Q .4~r": "seconds"}``; with an empty title the field's name."""
    found = []
    for field, title in titles.items():
        name, _, form = field.partition(" ")
        more = {"title": title, "format": form or None}
        found.append(alt.Tooltip(name, **{key: each for key, each in more.items() if each}))
    return found


def exactly(*ends: float, **more: Any) -> Any:
    """A scale from the first of ``ends`` to the last."""
    return alt.Scale(domain=list(ends), nice=False, **more)


def by_role(field: str, roles: Mapping[Any, str], title: str | None = None, **more: Any) -> Any:
    """Values of a field in the colours of their roles."""
    colours = [colour(role) for role in roles.values()]
    return alt.Color(field, title=title, scale=alt.Scale(domain=list(roles), range=colours), **more)


def legend_above() -> Any:
    """A legend above a chart whose axis has no title at its top."""
    return alt.Legend(offset=BELOW_LEGEND)


def series_roles(names: Sequence[Any]) -> dict[Any, str]:
    """Roles of series in their order, repeated where there are many."""
    return {name: SERIES[place % len(SERIES)] for place, name in enumerate(names)}


def names_axis(field: str, order: Sequence[str], channel: Any = alt.Y, **axis: Any) -> Any:
    """Names beside bars in their order."""
    look = alt.Axis(**{"ticks": False, "grid": False} | axis)
    return channel(field, title=None, sort=list(order), axis=look)


def stacked_bars(base: Any, field: str, roles: Mapping[str, str], **encoded: Any) -> Any:
    """Bars whose parts stand on each other in the order of their positions (``position``)."""
    legend = {"legend": encoded.pop("legend")} if "legend" in encoded else {}
    mark = EDGE | encoded.pop("mark", {})
    parts = {"color": by_role(field, roles, **legend), "order": alt.Order("position:Q")}
    return base.mark_bar(**mark).encode(**parts, **encoded)


def lines(base: Any, tooltip: Sequence[Any], line: Mapping[str, Any], **point: Any) -> list[Any]:
    """Lines through points that tell what they are."""
    return [base.mark_line(**line), base.mark_point(**point).encode(tooltip=tooltip)]


def limit_rule(limit: float, title: str, channel: str = "y") -> Any:
    """A line across at what a device has."""
    axis = (alt.Y if channel == "y" else alt.X)("limit:Q", title=title)
    line = chart_of([{"limit": limit}]).mark_rule(color=colour("accent"), strokeWidth=2)
    return line.encode(**{channel: axis})


def ramp_colour(field: str, title: str | None) -> Any:
    """Values of a field from little to most, with a legend."""
    scale = alt.Scale(range=[colour(role) for role in RAMP], zero=False, nice=False)
    legend = alt.Legend(type="gradient", gradientLength=220)
    return alt.Color(field, title=title, scale=scale, legend=legend)


def menu(column: str, title: str, values: Sequence[object]) -> Any:
    """A menu that filters by ``column``: a parameter ``choose_<column>``, null for all."""
    words = [number(value) if isinstance(value, float) else str(value) for value in values]
    bind = alt.binding_select(options=[None, *values], labels=["all", *words], name=title)
    return alt.param(name=f"choose_{column}", value=None, bind=bind)


def chosen_in(column: str) -> str:
    """The filter that goes with ``menu``."""
    return f"choose_{column} == null || datum.{column} == choose_{column}"


def series_coded(field: str, names: Sequence[str], roles: Mapping[Any, str]) -> dict[str, Any]:
    """Colours of named series, under a legend where there are several."""
    more = {"sort": list(names), "legend": series_legend(names)}
    return {"color": by_role(field, roles, **more)}


def series_shape(field: str, names: Sequence[str], shapes: Sequence[str]) -> Any:
    """Shapes of named series, in the legend of their colours."""
    scale = alt.Scale(domain=list(names), range=list(shapes))
    more = {"sort": list(names), "legend": series_legend(names)}
    return alt.Shape(field, title=None, scale=scale, **more)


def series_legend(labels: Sequence[str]) -> Any:
    """A legend of long names, with columns by ``with_names``; none where there is one name."""
    return alt.Legend(labelLimit=330) if len(labels) > 1 else None


def with_names(spec: dict[str, Any], labels: Sequence[str]) -> dict[str, Any]:
    """``spec`` with the pixels of the longest name of its legend, for whoever draws it."""
    return {**spec, "usermeta": {LEGEND_COLUMN: 7 * max(map(len, labels), default=1) + 30}}


def legend_columns(spec: dict[str, Any], width: int) -> int | None:
    """Columns of the legend of a chart so many pixels wide; None where the page decides."""
    column = spec.get("usermeta", {}).get(LEGEND_COLUMN)
    return None if column is None else max(1, width // column)
