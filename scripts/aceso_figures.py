"""The figures of ``python -m third_party.aceso compare``, drawn from its table into the same folder
as SVG, PNG, PDF and parquet.

python scripts/aceso_figures.py FOLDER [throughput | search-cost | layers | physics ...]
"""

import argparse
import csv
import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
if str(REPOSITORY) not in sys.path:  # started as a file
    sys.path.insert(0, str(REPOSITORY))

from phaze.report.pages.charts import chart_of, series_legend, sized, with_names  # noqa: E402
from phaze.report.pages.export import write_figures  # noqa: E402
from phaze.report.pages.figures import Figure, Part, Report, Section  # noqa: E402
from phaze.report.pages.theme import SERIES, colour  # noqa: E402
from phaze_common.echo import say  # noqa: E402
from phaze_common.errors import InputError, PhazeError  # noqa: E402
from phaze_common.files import read_text  # noqa: E402
from third_party.aceso.comparison import METHODS, SEARCH, TABLE  # noqa: E402

HEIGHT = 260
LAYERS = "layers"


@dataclass(frozen=True)
class Row:
    """An answer of the table; None is an empty cell."""

    case: str
    layers: float | None
    method: str
    samples: float
    iteration_s: float | None
    bound_s: float | None
    cpu_s: float | None
    corrected_s: float | None


@dataclass(frozen=True)
class Measure:
    """What a figure shows of an answer, given that of the certified search."""

    title: str
    unit: str
    caption: str
    value: Callable[[Row, Row | None], float | None]
    logarithmic: bool


def _speed(row: Row, best: Row | None) -> float | None:
    if best is None or best.iteration_s is None or row.iteration_s is None:
        return None
    return best.iteration_s / row.iteration_s


def _rate(row: Row, _: Row | None) -> float | None:
    return None if row.iteration_s is None else row.samples / row.iteration_s


def _added(row: Row, _: Row | None) -> float | None:
    if row.iteration_s is None or row.corrected_s is None:
        return None
    return row.corrected_s / row.iteration_s - 1.0


def _gap(row: Row, _: Row | None) -> float | None:
    if row.iteration_s is None or row.bound_s is None:
        return None
    return 1.0 - row.bound_s / row.iteration_s


COST = Measure(
    "Search cost",
    "search, CPU s",
    "CPU seconds of each search, without compilation.",
    lambda row, _: row.cpu_s,
    True,
)
THROUGHPUT = Measure(
    "Throughput",
    "throughput, certified search = 1",
    "Samples per second of the plan of each method under Aceso's cost model, over those of the "
    "certified search.",
    _speed,
    False,
)
PHYSICS = Measure(
    "What the corrections change",
    "time that the corrections add",
    "Synchronisation, optimizer, embeddings and what else the cost model leaves out, over the "
    "time that it predicts.",
    _added,
    False,
)
RATE = Measure(
    "Throughput over layers",
    "samples/s",
    "Samples per second under Aceso's cost model.",
    _rate,
    True,
)
GAP = Measure(
    "Certified gap over layers",
    "gap",
    "What the plan found can be slower than the best at most, in the time given.",
    _gap,
    False,
)
FIGURES = {
    "throughput": (("throughput", THROUGHPUT),),
    "search-cost": (("search-cost", COST),),
    "layers": (("layers-throughput", RATE), ("layers-search-cost", COST), ("layers-gap", GAP)),
    "physics": (("physics", PHYSICS),),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw; returns the exit status."""
    parser = argparse.ArgumentParser(
        description="Draws the figures of a comparison of plans under Aceso's cost model."
    )
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="the --output of the comparison"
    )
    parser.add_argument(
        "figures", nargs="*", metavar="FIGURE", help=f"of {', '.join(FIGURES)}; default all"
    )
    given = parser.parse_args(arguments)
    try:
        rows = read_rows(given.folder / TABLE)
        if unknown := set(given.figures) - set(FIGURES):
            raise InputError(
                f"there is no figure {', '.join(sorted(unknown)):.80}; give some of "
                f"{', '.join(FIGURES)}"
            )
        names = given.figures or [
            name for name in FIGURES if name != LAYERS or all(row.layers for row in rows)
        ]
        drawn = [
            figure(name, measure, rows, over_layers=kind == LAYERS)
            for kind in names
            for name, measure in FIGURES[kind]
        ]
        section = Section("aceso", "Methods beside each other", (Part(figures=tuple(drawn)),))
        written = write_figures(Report("Aceso", "", "", (), (), (section,)), given.folder)
        say(sys.stdout, map(str, written))
    except PhazeError as error:
        say(sys.stderr, [" ".join(str(error).split())])
        return error.exit_status
    return 0


def read_rows(path: Path) -> list[Row]:
    """The table of a comparison.

    Raises:
        InputError: it is none, or empty.
    """

    def cell(row: dict[str, str], key: str) -> float | None:
        return float(row[key]) if row[key] else None

    try:
        rows = [
            Row(
                f"{row['model']} {row['size']}",
                cell(row, "layers"),
                row["method"],
                float(row["global_batch_size"]),
                *(cell(row, key) for key in ("iteration_s", "bound_s", "cpu_s", "corrected_s")),
            )
            for row in csv.DictReader(io.StringIO(read_text(path, "the table of a comparison")))
        ]
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(
            f"{path} is no table of a comparison; run python -m third_party.aceso compare again"
        ) from error
    if not rows:
        raise InputError(f"{path} has no answers; run python -m third_party.aceso compare again")
    return rows


def figure(name: str, measure: Measure, rows: Sequence[Row], *, over_layers: bool) -> Figure:
    """A measure of all methods, a point per case, or a line over the number of layers.

    Raises:
        InputError: over layers, where the cases have none.
    """
    import altair as alt

    if over_layers and not all(row.layers for row in rows):
        raise InputError(
            "the cases have no number of layers; compare those of scripts/studies/aceso/layers.yaml"
        )
    best = {(row.case, row.layers): row for row in rows if row.method == SEARCH}
    points = [
        {"x": row.layers if over_layers else row.case, "method": row.method, "value": value}
        for row in rows
        if (value := measure.value(row, best.get((row.case, row.layers)))) is not None
    ]
    labels = [method for method in METHODS if any(row.method == method for row in rows)]
    domain = alt.Scale(
        domain=labels,
        range=[colour(SERIES[METHODS.index(label) % len(SERIES)]) for label in labels],
    )
    if measure.logarithmic:
        scale = alt.Scale(type="log", nice=False, padding=10)
    else:
        scale = alt.Scale(zero=True)
    axis = (
        alt.Axis(format=".0%") if measure in (PHYSICS, GAP) else alt.Axis(format="~g", tickCount=5)
    )
    encoding: dict[str, Any] = {
        "y": alt.Y("value:Q", title=measure.unit, scale=scale, axis=axis),
        "color": alt.Color(
            "method:N", title=None, sort=labels, scale=domain, legend=series_legend(labels)
        ),
    }
    base = chart_of(points)
    if over_layers:
        counts = sorted({row.layers for row in rows if row.layers})
        encoding["x"] = alt.X(
            "x:Q",
            title="layers",
            scale=alt.Scale(type="log", base=2, nice=False, padding=14),
            axis=alt.Axis(values=counts, format=",d"),
        )
        chart = alt.layer(
            base.mark_line(strokeWidth=1.8).encode(**encoding),
            base.mark_point(filled=True).encode(**encoding),
        )
    else:
        cases = list(dict.fromkeys(row.case for row in rows))
        encoding["x"] = alt.X(
            "x:N", title=None, sort=cases, axis=alt.Axis(labelAngle=-40, labelOverlap=False)
        )
        offset = alt.XOffset("method:N", sort=labels)
        mark = base.mark_point(filled=True, size=45) if measure.logarithmic else base.mark_bar()
        chart = alt.layer(mark.encode(xOffset=offset, **encoding))
    return Figure(
        name, measure.title, measure.caption, with_names(sized(chart, HEIGHT), labels), len(points)
    )


if __name__ == "__main__":
    sys.exit(main())
