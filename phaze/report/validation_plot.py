"""Predicted against measured iteration times as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from phaze.report.table import shortened
from phaze.validation.records import RunResult, ValidationReport
from phaze_common.errors import InputError, PhazeError

BAND = 0.1
MARGIN = 1.3  # of the times at the ends of the axes
PIXELS = 640
LONGEST_SOURCE = 60
SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down")


def draw(report: ValidationReport, path: Path) -> None:
    """Draw predicted over measured seconds, logarithmic, with the band of 10 % around equality.

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

    from phaze.report.pages.charts import by_role, chart_of, exactly, series_roles, sized
    from phaze.report.pages.theme import SERIES, colour

    names = {}
    for each in report.sources:
        runs = sum(run.source == each.source for run in predicted)
        name = shortened(each.source, LONGEST_SOURCE)
        if each.rows:
            names[each.source] = f"{name}: {each.time_mape:.1%} ({runs} runs)"
    shown = list(names.values())
    both = [seconds for run in predicted for seconds in (run.measured_s, run.predicted_s)]
    times = [seconds for seconds in both if seconds is not None]
    ends = [min(times) / MARGIN, max(times) * MARGIN]
    scale, axis = exactly(*ends, type="log"), alt.Axis(format="~g")
    x = alt.X("measured:Q", title="measured iteration time, s", scale=scale, axis=axis)
    y = {"title": "predicted iteration time, s", "scale": scale, "axis": axis}
    line = chart_of(
        {"measured": end, "equal": end, "low": end * (1 - BAND), "high": end * (1 + BAND)}
        for end in ends
    )
    runs_of = chart_of(
        {"measured": run.measured_s, "predicted": run.predicted_s, "source": names[run.source]}
        for run in predicted
    )
    shapes = [SHAPES[place // len(SERIES) % len(SHAPES)] for place in range(len(shown))]
    legend = alt.Legend(orient="bottom", columns=1, labelLimit=0, symbolOpacity=1)
    by_shape = alt.Scale(domain=shown, range=shapes)
    band = line.mark_area(color=colour("bubble"), opacity=0.5, clip=True)
    layers = (
        band.encode(x=x, y=alt.Y("low:Q", **y), y2="high:Q"),
        line.mark_line(color=colour("muted"), strokeWidth=1).encode(x=x, y=alt.Y("equal:Q", **y)),
        runs_of.mark_point(filled=True, size=40, opacity=0.8).encode(
            x=x,
            y=alt.Y("predicted:Q", **y),
            color=by_role("source:N", series_roles(shown), legend=legend),
            shape=alt.Shape("source:N", title=None, legend=legend, scale=by_shape),
        ),
    )
    overall = report.overall
    title = (
        f"{len(predicted)} runs, mean absolute error {overall.time_mape:.1%}, bias "
        f"{overall.time_bias:+.1%}, band ±{BAND:.0%}"
    )
    return sized(alt.layer(*layers).properties(title=title), PIXELS)
