"""Parts that several charts share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from Common.numbers import number
from Reporter.report.figures import Figure, PageTable, inline_data, table
from Reporter.report.theme import colour
from Studies.wording import EQUAL

SAMPLES = "samples per second"
REACH_WORDS = (
    "Each dot is the best evaluated {what} that has this value, whatever the others are; the ring marks the value that the "
    "optimum has. The grey bar above reaches to what the ones that were not evaluated could at most bring."
)


@dataclass(frozen=True)
class Reached:
    """What designs with one value of an axis bring, in samples per second.

    ``best`` is the best that was evaluated (None: none was), in ``words``; ``bound`` what others could bring (None: no others).
    """

    value: str
    best: float | None
    bound: float | None
    words: str = ""


def sized(chart: Any, height: int) -> dict[str, Any]:
    """JSON of a chart as wide as its place, ``height`` pixels between its axes."""
    import altair as alt

    fitted = chart.properties(width="container", height=height, autosize=alt.AutoSizeParams(type="fit-x", contains="padding"))
    spec: dict[str, Any] = fitted.to_dict()
    spec.pop("config", None)  # the theme's takes its place
    return spec


def menu(column: str, title: str, values: Sequence[object]) -> Any:
    """A menu that filters by ``column``: a parameter ``choose_<column>``, null for all."""
    import altair as alt

    words = [number(value) if isinstance(value, float) else str(value) for value in values]
    bind = alt.binding_select(options=[None, *values], labels=["all", *words], name=title)
    return alt.param(name=f"choose_{column}", value=None, bind=bind)


def chosen_in(column: str) -> str:
    """The filter that goes with ``menu``."""
    return f"choose_{column} == null || datum.{column} == choose_{column}"


def reach_figure(name: str, title: str, rows: Sequence[Reached], chosen: str, tallest: float) -> Figure:
    """How much throughput each value of an axis allows; ``tallest`` is the end of the scale, alike in all such figures."""
    import altair as alt

    data = inline_data(
        ("value", "best", "bound", "words", "chosen"),
        (
            (
                row.value,
                row.best,
                row.bound if row.bound is not None and row.bound > (row.best or 0.0) * (1 + EQUAL) else None,
                row.words,
                row.value == chosen,
            )
            for row in rows
        ),
        words={"value", "words"},
    )
    scale = alt.Scale(domain=[0, tallest], nice=False)
    x = alt.X("value:N", title=title, sort=[row.value for row in rows], axis=alt.Axis(labelOverlap="greedy"))
    y = alt.Y("best:Q", title=SAMPLES, scale=scale)
    tooltip = [
        alt.Tooltip("value:N", title=title),
        alt.Tooltip("best:Q", title="best evaluated, samples/s", format=",.5~r"),
        alt.Tooltip("bound:Q", title="others at most, samples/s", format=",.5~r"),
        *([alt.Tooltip("words:N", title="best")] if any(row.words for row in rows) else []),
    ]
    base = alt.Chart(data)
    have = base.transform_filter("isValid(datum.best)")
    reach = base.transform_filter("isValid(datum.bound)").transform_calculate(
        foot="isValid(datum.best) ? datum.best : datum.bound"
    )
    chart = alt.layer(
        reach.mark_rule(color=colour("faint"), strokeWidth=2).encode(
            x=x, y=alt.Y("foot:Q", scale=scale, title=SAMPLES), y2="bound:Q", tooltip=tooltip
        ),
        reach.mark_tick(color=colour("faint"), thickness=2, size=11).encode(
            x=x, y=alt.Y("bound:Q", scale=scale, title=SAMPLES), tooltip=tooltip
        ),
        have.mark_circle(color=colour("mark"), size=46, opacity=1).encode(x=x, y=y, tooltip=tooltip),
        have.transform_filter("datum.chosen")
        .mark_point(size=190, strokeWidth=2.5, color=colour("accent"), filled=False)
        .encode(x=x, y=y, tooltip=tooltip),
    )
    return Figure(name, title[0].upper() + title[1:], "", sized(chart, 190), 5 * len(rows), abreast=3)


def reach_table(title: str, axis: str, reached: Mapping[str, Sequence[Reached]]) -> PageTable:
    """The same in numbers; ``reached`` by axis."""
    rows = (
        (name, row.value, "" if row.best is None else number(row.best), "" if row.bound is None else number(row.bound), row.words)
        for name, each in reached.items()
        for row in each
    )
    columns = (axis, "value", "best evaluated, samples/s", "others at most, samples/s", "best")
    return table(title, columns, rows, words={axis, "value", "best"})
