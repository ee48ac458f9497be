"""Predicted against measured iteration times as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from phaze.validation.records import RunResult, ValidationReport
from phaze_common.errors import InputError, PhazeError

BAND = 0.1
MARGIN = 1.3  # of the times at the ends of the axes
PIXELS = 640
LONGEST_SOURCE = 60
SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down")


def draw(report: ValidationReport, path: Path) -> None:
    """Draw predicted over measured seconds, both logarithmic, a colour per source, with the band of
    10 % around equality.

    The ending of ``path`` (.png or .svg) chooses the format.

    Raises:
        InputError: no run was predicted, or another ending.
        PhazeError: the plotting library is not installed, or the file cannot be written.
    """
    predicted = [run for run in report.runs if not run.skipped]
    if not predicted:
        raise InputError(
            f"no run of {report.file} was predicted, so there is nothing to draw; see the reasons "
            "in the table"
        )
    try:
        from phaze.report.pages.export import write_chart

        write_chart(chart(report, predicted), path, PIXELS)
    except ModuleNotFoundError as error:
        raise PhazeError(
            f"pictures need {error.name}, which is not installed; run ./setup.sh"
        ) from error


def chart(report: ValidationReport, predicted: Sequence[RunResult]) -> dict[str, Any]:
    """The picture as Vega-Lite's JSON."""
    import altair as alt

    from phaze.report.pages.charts import sized
    from phaze.report.pages.figures import inline_data
    from phaze.report.pages.theme import SERIES, colour

    sources = [statistics for statistics in report.sources if statistics.rows]
    names = {
        each.source: f"{_short(each.source)}: {each.time_mape:.1%} "
        f"({sum(run.source == each.source for run in predicted)} runs)"
        for each in sources
    }
    positions = {source: position for position, source in enumerate(names)}
    times = [
        seconds
        for run in predicted
        for seconds in (run.measured_s, run.predicted_s)
        if seconds is not None
    ]
    ends = [min(times) / MARGIN, max(times) * MARGIN]
    scale = alt.Scale(type="log", domain=ends, nice=False)
    x = alt.X(
        "measured:Q", title="measured iteration time, s", scale=scale, axis=alt.Axis(format="~g")
    )
    y = {"title": "predicted iteration time, s", "scale": scale, "axis": alt.Axis(format="~g")}
    line = alt.Chart(
        inline_data(
            ("measured", "equal", "low", "high"),
            [(end, end, end * (1 - BAND), end * (1 + BAND)) for end in ends],
        )
    )
    runs = inline_data(
        ("measured", "predicted", "source"),
        ((run.measured_s, run.predicted_s, names[run.source]) for run in predicted),
        words={"source"},
    )
    domain = list(names.values())
    colours = [colour(SERIES[position % len(SERIES)]) for position in positions.values()]
    shapes = [SHAPES[position // len(SERIES) % len(SHAPES)] for position in positions.values()]
    legend = alt.Legend(orient="bottom", columns=1, labelLimit=0, symbolOpacity=1)
    layers = (
        line.mark_area(color=colour("bubble"), opacity=0.5, clip=True).encode(
            x=x, y=alt.Y("low:Q", **y), y2="high:Q"
        ),
        line.mark_line(color=colour("muted"), strokeWidth=1).encode(x=x, y=alt.Y("equal:Q", **y)),
        alt.Chart(runs)
        .mark_point(filled=True, size=40, opacity=0.8)
        .encode(
            x=x,
            y=alt.Y("predicted:Q", **y),
            color=alt.Color(
                "source:N", title=None, legend=legend, scale=alt.Scale(domain=domain, range=colours)
            ),
            shape=alt.Shape(
                "source:N", title=None, legend=legend, scale=alt.Scale(domain=domain, range=shapes)
            ),
        ),
    )
    overall = report.overall
    title = (
        f"{len(predicted)} runs, mean absolute error {overall.time_mape:.1%}, bias "
        f"{overall.time_bias:+.1%}, band ±{BAND:.0%}"
    )
    return sized(alt.layer(*layers).properties(title=title), PIXELS)


def _short(source: str) -> str:
    return source if len(source) <= LONGEST_SOURCE else source[: LONGEST_SOURCE - 1] + "…"
