"""Predicted against measured iteration times as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from Common.errors import InputError, PhazeError
from Common.files import write_atomically
from Solver.validation.records import RunResult, ValidationReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAND = 0.1
MARGIN = 1.3  # of the times at the ends of the axes
INCHES = (8.0, 7.0)
LONGEST_SOURCE = 60
COLOURS = 10  # of the default cycle; the markers change where they repeat
MARKERS = "osD^v"


def draw(report: ValidationReport, path: Path) -> None:
    """Draw predicted over measured seconds, both logarithmic, a colour per source, with the band of 10 % around equality.

    The ending of ``path`` (.png, .svg or .pdf) chooses the format.

    Raises:
        InputError: no run was predicted, or matplotlib does not know the ending.
        PhazeError: matplotlib is not installed, or the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise PhazeError("pictures need matplotlib; install it: .venv/bin/python -m pip install matplotlib") from error
    predicted = [run for run in report.runs if not run.skipped]
    if not predicted:
        raise InputError(f"no run of {report.file} was predicted, so there is nothing to draw; see the reasons in the table")
    figure = Figure(figsize=INCHES, layout="constrained")
    axes = figure.subplots()
    _draw_band(axes, predicted)
    for position, statistics in enumerate(each for each in report.sources if each.rows):
        runs = [run for run in predicted if run.source == statistics.source]
        axes.scatter(
            np.array([run.measured_s for run in runs], dtype=float),
            np.array([run.predicted_s for run in runs], dtype=float),
            s=22,
            alpha=0.75,
            color=f"C{position % COLOURS}",
            marker=MARKERS[position // COLOURS % len(MARKERS)],
            label=f"{_short(statistics.source)}: {statistics.time_mape:.1%} ({len(runs)} runs)",
        )
    axes.set(xscale="log", yscale="log", xlabel="measured iteration time, s", ylabel="predicted iteration time, s")
    axes.set_title(
        f"{len(predicted)} runs, mean absolute error {report.overall.time_mape:.1%}, bias {report.overall.time_bias:+.1%}"
    )
    axes.legend(fontsize="small", loc="upper left")
    axes.grid(visible=True, which="major", alpha=0.3)
    image = BytesIO()
    try:
        figure.savefig(image, format=path.suffix.lstrip(".").lower() or "png", dpi=150)
    except ValueError as error:
        raise InputError(f"plot {path} has an ending that matplotlib does not know; use .png, .svg or .pdf") from error
    write_atomically(path, image.getvalue())


def _draw_band(axes: Axes, runs: Sequence[RunResult]) -> None:
    """Equality and the band around it, as long as the times."""
    times = [seconds for run in runs for seconds in (run.measured_s, run.predicted_s) if seconds is not None]
    ends = [min(times) / MARGIN, max(times) * MARGIN]
    axes.plot(ends, ends, color="black", linewidth=1)
    axes.fill_between(
        ends, [each * (1 - BAND) for each in ends], [each * (1 + BAND) for each in ends], color="grey", alpha=0.2, label="±10 %"
    )
    axes.set(xlim=ends, ylim=ends)


def _short(source: str) -> str:
    return source if len(source) <= LONGEST_SOURCE else source[: LONGEST_SOURCE - 1] + "…"
