"""Parts that several charts share."""

from collections.abc import Sequence
from typing import Any

from Common.numbers import number

SAMPLES = "samples per second"


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
