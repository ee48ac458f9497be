"""All evaluated designs: throughput over what the Pareto front is of, with filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np

from Estimator.chips.axes import SIZES
from phaze.report.pages import charts
from phaze.report.pages.design_points import (
    OF_A_PLAN,
    PointsOfModel,
    chip_text,
    plan_texts,
    thinned,
    varied_texts,
)
from phaze.report.pages.figures import Figure
from phaze.report.pages.front_axes import WORDS, amounts_of, drawn_axes, front_words, other_axes
from phaze.report.pages.theme import RAMP, colour
from phaze.report.sentences.designs import EQUAL, accelerator_text, capitalised
from phaze.report.table import Table
from phaze.runs.design_tables import TOTAL_ENERGY, axis_column
from phaze_common.choices import FrontAxis
from phaze_common.numbers import gib, rate
from phaze_common.units import GIB, MIB

if TYPE_CHECKING:
    import pandas as pd

# axes of a front
EVERY = {1: "it", 2: "both", 3: "all three", 4: "all four", 5: "all five", 6: "all six"}
FRONT_ROWS = 40  # chips of the front's table
SEPARATOR = ", "
WITH_MEMORY = (
    f"choose_hbm == null || indexof(split(datum.hbm, '{SEPARATOR}'), '' + choose_hbm) >= 0"
)
_CHIP = (
    "datum.num_tc + ' TC ' + datum.depth + 'x' + datum.width + ', ' + datum.num_vc + ' VC ' + "
    "datum.width_vc + ', GLB ' + datum.glb_mib + ' MiB' + datum.varied"
)


@dataclass(frozen=True)
class Marked:
    """A chip with a name: the optimum or a known one. ``side`` is where its name goes."""

    name: str
    amounts: Mapping[FrontAxis, float]
    throughput_samples_per_s: float
    chip: str
    side: str


def scatter(points: PointsOfModel) -> Figure:
    """Throughput over one axis, another as colour, with the front, optimum and known chips."""
    asked, evaluated = points.run.manifest.front, points.evaluated
    shown, (across, coloured) = thinned(evaluated), drawn_axes(asked)
    axes = tuple(dict.fromkeys((across, coloured, *other_axes(asked))))
    marked = _marked(points, axes)
    tallest = max(each.throughput_samples_per_s for each in marked)
    tallest = max(tallest, float(shown["throughput_samples_per_s"].max()))
    widest = max(each.amounts[across] for each in marked)
    widest = max(widest, float(shown[axis_column(shown, across)].max()))
    x = alt.X(f"{across}:Q", title=WORDS[across].title, scale=charts.exactly(0, widest * 1.06))
    height = {"title": charts.SAMPLES, "scale": charts.exactly(0, tallest * 1.1)}
    at = {"x": x, "y": alt.Y("throughput:Q", **height)}
    coded = _colour(shown, marked, coloured)
    titles = {"chip:N": "chip", "throughput:Q ,.5~r": "samples/s"}
    titles |= {f"{axis}:Q .4~r": WORDS[axis].title for axis in axes}
    of_plan = {
        "hbm:N": "HBM, GiB",
        "micro_batch:Q": "micro-batch",
        "recompute:N": "recomputation",
        "plan:N": "tp x pp x dp",
        "pareto:N": "Pareto front",
    }
    of_design, of_named = charts.tips(titles | of_plan), charts.tips({"name:N": "which"} | titles)
    menus = _menus(shown)
    designs = alt.Chart(_design_data(shown, axes)).transform_calculate(
        chip=_CHIP, pareto="datum.front ? 'on it' : 'dominated'"
    )
    for column in menus:
        designs = designs.transform_filter(
            WITH_MEMORY if column == "hbm" else charts.chosen_in(column)
        )
    most = alt.WindowFieldDef(op="max", field="throughput", **{"as": "most"})
    order = [alt.SortField(across.value), alt.SortField("throughput", order="descending")]
    envelope = designs.transform_window(window=[most], sort=order, frame=[None, 0]).mark_line(
        interpolate="step-after", color=colour("muted"), strokeWidth=1
    )
    behind = designs.transform_filter("!datum.front && !front_only" if asked else "!datum.front")
    front = designs.transform_filter("datum.front").mark_circle(size=34, opacity=0.95)
    named = charts.chart_of(
        {
            "name": each.name,
            "throughput": each.throughput_samples_per_s,
            **{axis.value: each.amounts[axis] for axis in axes},
            "chip": each.chip,
            "side": each.side,
        }
        for each in marked
    )
    chips = named.transform_filter("datum.name != 'optimum'").mark_point(
        shape="diamond", size=110, filled=True, opacity=1, stroke=colour("ink"), strokeWidth=1.5
    )
    best = named.transform_filter("datum.name == 'optimum'").mark_point(
        shape="circle", size=220, color=colour("accent"), **charts.RING
    )
    names = [
        named.transform_filter(f"datum.side == '{side}'")
        .mark_text(align=align, dx=dx, dy=-11, fontWeight="bold", tooltip=None)
        .encode(text="name:N", **at)
        for side, align, dx in (("left", "right", 4), ("right", "left", -4))
    ]
    only = alt.binding_checkbox(name="Pareto front only")
    front_alone = [alt.param(name="front_only", value=False, bind=only)] if asked else []
    chart = alt.layer(
        behind.mark_point(size=12, strokeWidth=1, color=colour("faint")).encode(
            tooltip=of_design, **at
        ),
        envelope.encode(x=x, y=alt.Y("most:Q", **height)),
        front.encode(color=coded, tooltip=of_design, **at),
        chips.encode(color=coded, tooltip=of_named, **at),
        best.encode(tooltip=of_named, **at),
        *names,
    ).add_params(*menus.values(), *front_alone)
    return Figure(
        f"{'-'.join(('throughput', *(other_axes(asked) or axes)))}{points.suffix}",
        scatter_title(asked),
        _caption(points, asked, len(shown), len(evaluated)),
        charts.sized(chart, 420),
        len(shown),
        front_table(evaluated, asked) if asked else None,
    )


def scatter_title(front: Sequence[FrontAxis]) -> str:
    """``Throughput, area and energy``."""
    return capitalised(front_words(other_axes(front) or drawn_axes(front)))


def _caption(points: PointsOfModel, front: Sequence[FrontAxis], shown: int, evaluated: int) -> str:
    across, coloured = (WORDS[axis] for axis in drawn_axes(front))
    line = f"the line is the most throughput that {across.buys} buys"
    if front:
        size = "" if TOTAL_ENERGY in points.designs else " (of their HBM size)"
        on_it = f"lie on the Pareto front of {front_words(front)}{size}"
        first = f"Filled points, coloured by {coloured.word}, {on_it}; {line}."
        others = "all of the front, and an even choice of the others"
        every = EVERY[len(front)]
        pruned = f"Each design that was pruned is no better than one of the front in {every}."
    else:
        first, others = f"{capitalised(line)} among them.", "an even choice of them"
        pruned = (
            "No Pareto front was asked for: each design that was pruned is no better than the "
            "optimum."
        )
    kept = f" {shown:,} of {evaluated:,} evaluated designs are drawn: {others}."
    return (
        f"Each point is an evaluated design with its best plan. {first} The ring marks the "
        f"optimum, diamonds mark known chips with {gib(points.best.hbm_bytes)} GiB HBM."
        f"{kept if shown < evaluated else ''} {pruned}"
    )


def _design_data(shown: pd.DataFrame, axes: Sequence[FrontAxis]) -> Any:
    shown = _once(shown)
    columns: dict[str, Sequence[object]] = {
        "hbm": shown["hbm"].tolist(),
        "micro_batch": shown["micro_batch_size"].tolist(),
        "tp": shown["tp"].tolist(),
        "recompute": shown["recompute"].astype(str).tolist(),
        **{name: shown[name].tolist() for name in SIZES if name != "glb_bytes"},
        "glb_mib": (shown["glb_bytes"] / MIB).tolist(),
        "varied": shown["varied"].tolist(),
        "throughput": shown["throughput_samples_per_s"].tolist(),
        **{axis.value: shown[axis_column(shown, axis)].tolist() for axis in axes},
        "plan": plan_texts(shown),
        "front": shown["on_front"].tolist(),
    }
    rows = zip(*columns.values(), strict=True)
    return charts.chart_data(dict(zip(columns, row, strict=True)) for row in rows)


def _once(shown: pd.DataFrame) -> pd.DataFrame:
    """Designs that differ in nothing but the size of the HBM once, with all sizes in a text."""
    same = [*OF_A_PLAN, "throughput_samples_per_s", "on_front"]
    sizes = (shown["hbm_bytes"] / GIB).map("{:g}".format)
    ordered = shown.assign(hbm=sizes, varied=varied_texts(shown)).sort_values(
        "hbm_bytes", kind="stable"
    )
    groups = ordered.groupby([*SIZES, "varied", *same], sort=False, observed=True)
    return groups.first().assign(hbm=groups["hbm"].agg(SEPARATOR.join)).reset_index()


def _marked(points: PointsOfModel, axes: Sequence[FrontAxis]) -> list[Marked]:
    assert points.best.accelerator is not None  # of a device the area is not known
    named = [("optimum", points.best.accelerator, points.plan)]
    named += [
        (each.name, each.accelerator, each.models[points.model]) for each in points.references
    ]
    _, chips, plans = zip(*named, strict=True)
    amounts = amounts_of(points.run, chips, plans, axes)
    middle = max(each[axes[0]] for each in amounts) / 2
    return [
        Marked(
            name,
            mine,
            plan.throughput_samples_per_s,
            accelerator_text(chip),
            "left" if mine[axes[0]] > middle else "right",
        )
        for (name, chip, plan), mine in zip(named, amounts, strict=True)
    ]


def _menus(shown: pd.DataFrame) -> dict[str, Any]:
    """A menu for each column of which there are several values, by column."""
    columns = {
        "hbm": ("HBM, GiB", shown["hbm_bytes"] / GIB),
        "micro_batch": ("micro-batch", shown["micro_batch_size"]),
        "tp": ("tp", shown["tp"]),
        "recompute": ("recomputation", shown["recompute"].astype(str)),
    }
    found = {key: (title, sorted(set(each.tolist()))) for key, (title, each) in columns.items()}
    return {
        key: charts.menu(key, title, each) for key, (title, each) in found.items() if len(each) > 1
    }


def _colour(shown: pd.DataFrame, marked: Sequence[Marked], axis: FrontAxis) -> Any:
    """``axis`` as colour on a logarithmic scale, of which the legend names every stop."""
    amounts = [*shown[axis_column(shown, axis)].tolist(), *(each.amounts[axis] for each in marked)]
    least, most = min(amounts), max(amounts)
    if not 0.0 < least < most:  # all alike
        return alt.value(colour(RAMP[-1]))
    stops = np.geomspace(least, most, len(RAMP)).tolist()
    scale = alt.Scale(type="log", domain=stops, range=[colour(role) for role in RAMP])
    written = {"values": stops, "labelExpr": "format(datum.value, ',.3~r')"}
    legend = alt.Legend(type="gradient", gradientLength=220, **written)
    title = f"{WORDS[axis].title}, logarithmic"
    return alt.Color(f"{axis}:Q", title=title, scale=scale, legend=legend)


def front_table(evaluated: pd.DataFrame, axes: Sequence[FrontAxis]) -> Table:
    """The chips on the Pareto front of ``axes``, each with its fastest plan and its HBM sizes.

    The front is one of every HBM size; of equally fast plans of a chip that with the least of the
    other axes is shown.
    """
    others = other_axes(axes)
    front = evaluated[evaluated["on_front"]]
    front = front.assign(chip=chip_text(front))
    least_first = [*(axis_column(evaluated, axis) for axis in reversed(others)), "hbm_bytes"]
    front = front.sort_values(
        ["throughput_samples_per_s", *least_first],
        ascending=[False, *([True] * len(least_first))],
        kind="stable",
    )
    by_chip = [points for _, points in front.groupby("chip", sort=False)]
    rows = [_front_row(points, others) for points in by_chip[:FRONT_ROWS]]
    chips = f"{len(by_chip):,} chip{'s' if len(by_chip) > 1 else ''}"
    of = f"the first {FRONT_ROWS} of {chips}" if len(by_chip) > FRONT_ROWS else chips
    title = f"Pareto front of {front_words(axes)}, fastest first: {of}"
    return Table.of(title, rows, words={"accelerator", "recomputation"})


def _front_row(points: pd.DataFrame, axes: Sequence[FrontAxis]) -> dict[str, str]:
    """A chip with its points of the front, the fastest first."""
    first, throughput = points.iloc[0], points["throughput_samples_per_s"]
    columns = [(WORDS[axis], axis_column(points, axis)) for axis in axes]
    same = points[throughput >= throughput.iloc[0] * (1 - EQUAL)]
    return {
        "accelerator": str(first["chip"]),
        "HBM GiB": ", ".join(gib(size) for size in sorted(set(same["hbm_bytes"].tolist()))),
        "micro-batch": str(first["micro_batch_size"]),
        "recomputation": str(first["recompute"]),
        "tp x pp x dp": plan_texts(points.head(1))[0],
        "samples/s": rate(throughput.iloc[0]),
        **{axis.heading: axis.text(first[column]) for axis, column in columns},
        "plans on the front": f"{len(points[list(OF_A_PLAN)].drop_duplicates()):,}",
    }
