"""Parts that several charts share."""

from collections.abc import Sequence
from typing import Any

from phaze_common.numbers import number

SAMPLES = "samples per second"
LEGEND_COLUMN = "legendColumn"


def sized(chart: Any, height: int) -> dict[str, Any]:
    """JSON of a chart as wide as its place, ``height`` pixels between its axes.

    It is not validated, which takes longer than all else of a page together: that figures keep to
    the schema is for tests.
    """
    import altair as alt

    fitted = chart.properties(
        width="container",
        height=height,
        autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
    )
    spec: dict[str, Any] = fitted.to_dict(validate=False)
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


def series_legend(labels: Sequence[str]) -> Any:
    """A legend of names of any length; none where there is one name. ``with_names`` says how many
    stand side by side."""
    import altair as alt

    return alt.Legend(labelLimit=330) if len(labels) > 1 else None


def with_names(spec: dict[str, Any], labels: Sequence[str]) -> dict[str, Any]:
    """``spec`` with what whoever draws it needs to know of the legend: the pixels of its longest
    name."""
    return {**spec, "usermeta": {LEGEND_COLUMN: 7 * max(map(len, labels), default=1) + 30}}


def legend_columns(spec: dict[str, Any], width: int) -> int | None:
    """Columns of the legend of a chart so many pixels wide; None where the chart leaves it to the
    page."""
    column = spec.get("usermeta", {}).get(LEGEND_COLUMN)
    return None if column is None else max(1, width // column)
