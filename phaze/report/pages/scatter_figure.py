"""The figure of all evaluated designs: throughput over what the Pareto front of the run is of, with
filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from phaze.report.pages.charts import SAMPLES, chosen_in, menu, sized
from phaze.report.pages.design_points import (
    CHIP_COLUMNS,
    OF_A_PLAN,
    PointsOfModel,
    chip_text,
    plan_texts,
    thinned,
    varied_texts,
)
from phaze.report.pages.figures import Figure, PageTable, inline_data, table
from phaze.report.pages.front_axes import WORDS, amounts_of, drawn_axes, front_words, other_axes
from phaze.report.pages.theme import RAMP, colour
from phaze.runs.design_tables import TOTAL_ENERGY, axis_column
from phaze.studies.wording import EQUAL, accelerator_text, capitalised
from phaze_common.choices import FrontAxis
from phaze_common.numbers import gib, rate
from phaze_common.units import GIB, MIB

if TYPE_CHECKING:
    import pandas as pd

EVERY = {
    1: "it",
    2: "both",
    3: "all three",
    4: "all four",
    5: "all five",
    6: "all six",
}  # axes of a front
FRONT_ROWS = 40  # chips of the front's table
SEPARATOR = ", "
WITH_MEMORY = (
    f"choose_hbm == null || indexof(split(datum.hbm, '{SEPARATOR}'), '' + choose_hbm) >= 0"
)
_CHIP = (
    "datum.num_tc + ' TC ' + datum.depth + 'x' + datum.width + ', ' + datum.num_vc + ' VC ' + "
    "datum.width_vc"
    " + ', GLB ' + datum.glb_mib + ' MiB' + datum.varied"
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
    """Throughput over an axis of the front, another one as colour, the Pareto front, the optimum
    and the known chips."""
    import altair as alt

    asked, evaluated = points.run.manifest.front, points.evaluated
    shown, (across, coloured) = thinned(evaluated), drawn_axes(asked)
    axes = tuple(dict.fromkeys((across, coloured, *other_axes(asked))))
    marked = _marked(points, axes)
    tallest = max(
        [
            float(shown["throughput_samples_per_s"].max()),
            *(each.throughput_samples_per_s for each in marked),
        ]
    )
    widest = max(
        [float(shown[axis_column(shown, across)].max()), *(each.amounts[across] for each in marked)]
    )
    x = alt.X(
        f"{across}:Q",
        title=WORDS[across].title,
        scale=alt.Scale(domain=[0, widest * 1.06], nice=False),
    )
    height = {"title": SAMPLES, "scale": alt.Scale(domain=[0, tallest * 1.1], nice=False)}
    y = alt.Y("throughput:Q", **height)
    coded = _colour(shown, marked, coloured)
    tooltip = [
        alt.Tooltip("chip:N", title="chip"),
        alt.Tooltip("throughput:Q", title="samples/s", format=",.5~r"),
        *(alt.Tooltip(f"{axis}:Q", title=WORDS[axis].title, format=".4~r") for axis in axes),
    ]
    design_tooltip = [
        *tooltip,
        alt.Tooltip("hbm:N", title="HBM, GiB"),
        alt.Tooltip("micro_batch:Q", title="micro-batch"),
        alt.Tooltip("recompute:N", title="recomputation"),
        alt.Tooltip("plan:N", title="tp x pp x dp"),
        alt.Tooltip("pareto:N", title="Pareto front"),
    ]
    menus = _menus(shown)
    designs = alt.Chart(_design_data(shown, axes)).transform_calculate(
        chip=_CHIP, pareto="datum.front ? 'on it' : 'dominated'"
    )
    for column in menus:
        designs = designs.transform_filter(WITH_MEMORY if column == "hbm" else chosen_in(column))
    envelope = designs.transform_window(
        window=[alt.WindowFieldDef(op="max", field="throughput", **{"as": "most"})],
        sort=[alt.SortField(across.value), alt.SortField("throughput", order="descending")],
        frame=[None, 0],
    ).mark_line(interpolate="step-after", color=colour("muted"), strokeWidth=1)
    behind = designs.transform_filter("!datum.front && !front_only" if asked else "!datum.front")
    dominated = behind.mark_point(size=12, strokeWidth=1, color=colour("faint"))
    front = designs.transform_filter("datum.front").mark_circle(size=34, opacity=0.95)
    named = alt.Chart(_marked_data(marked, axes))
    chips = named.transform_filter("datum.name != 'optimum'").mark_point(
        shape="diamond", size=110, filled=True, opacity=1, stroke=colour("ink"), strokeWidth=1.5
    )
    best = named.transform_filter("datum.name == 'optimum'").mark_point(
        shape="circle", size=220, filled=False, strokeWidth=2.5, color=colour("accent")
    )
    names = [
        named.transform_filter(f"datum.side == '{side}'")
        .mark_text(align=align, dx=dx, dy=-11, fontWeight="bold", tooltip=None)
        .encode(x=x, y=y, text="name:N")
        for side, align, dx in (("left", "right", 4), ("right", "left", -4))
    ]
    named_tooltip = [alt.Tooltip("name:N", title="which"), *tooltip]
    chart = alt.layer(
        dominated.encode(x=x, y=y, tooltip=design_tooltip),
        envelope.encode(x=x, y=alt.Y("most:Q", **height)),
        front.encode(x=x, y=y, color=coded, tooltip=design_tooltip),
        chips.encode(x=x, y=y, color=coded, tooltip=named_tooltip),
        best.encode(x=x, y=y, tooltip=named_tooltip),
        *names,
    ).add_params(*menus.values(), *(_front_alone() if asked else ()))
    return Figure(
        f"{'-'.join(('throughput', *(other_axes(asked) or axes)))}{points.suffix}",
        scatter_title(asked),
        _caption(points, asked, len(shown), len(evaluated)),
        sized(chart, 420),
        len(shown),
        front_table(evaluated, asked) if asked else None,
    )


def _front_alone() -> tuple[Any, ...]:
    """The box that leaves the front alone on the page."""
    import altair as alt

    return (
        alt.param(
            name="front_only", value=False, bind=alt.binding_checkbox(name="Pareto front only")
        ),
    )


def scatter_title(front: Sequence[FrontAxis]) -> str:
    """``Throughput, area and energy``."""
    return capitalised(front_words(other_axes(front) or drawn_axes(front)))


def _caption(points: PointsOfModel, front: Sequence[FrontAxis], shown: int, evaluated: int) -> str:
    across, coloured = (WORDS[axis] for axis in drawn_axes(front))
    size = "" if TOTAL_ENERGY in points.designs else " (of their HBM size)"
    line, others = (
        f"the line is the most throughput that {across.buys} buys",
        "an even choice of them",
    )
    pruned = (
        "No Pareto front was asked for: each design that was pruned is no better than the optimum."
    )
    first = f"{capitalised(line)} among them."
    if front:
        others = "all of the front, and an even choice of the others"
        pruned = (
            "Each design that was pruned is no better than one of the front in "
            f"{EVERY[len(front)]}."
        )
        on_it = f"lie on the Pareto front of {front_words(front)}{size}"
        first = f"Filled points, coloured by {coloured.word}, {on_it}; {line}."
    kept = (
        f" {shown:,} of {evaluated:,} evaluated designs are drawn: {others}."
        if shown < evaluated
        else ""
    )
    return (
        f"Each point is an evaluated design with its best plan. {first} The ring marks the "
        "optimum, diamonds mark known chips "
        f"with {gib(points.best.hbm_bytes)} GiB HBM.{kept} {pruned}"
    )


def _design_data(shown: pd.DataFrame, axes: Sequence[FrontAxis]) -> Any:
    import pandas as pd

    shown = _once(shown)
    columns = {
        "hbm": shown["hbm"],
        "micro_batch": shown["micro_batch_size"],
        "tp": shown["tp"],
        "recompute": shown["recompute"].astype(str),
        "num_tc": shown["num_tc"],
        "num_vc": shown["num_vc"],
        "width": shown["width"],
        "depth": shown["depth"],
        "width_vc": shown["width_vc"],
        "glb_mib": shown["glb_bytes"] / MIB,
        "varied": shown["varied"],
        "throughput": shown["throughput_samples_per_s"],
        **{axis.value: shown[axis_column(shown, axis)] for axis in axes},
        "plan": pd.Series(plan_texts(shown)),
        "front": shown["on_front"],
    }
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return inline_data(tuple(columns), rows, words={"hbm", "recompute", "plan", "varied"})


def _once(shown: pd.DataFrame) -> pd.DataFrame:
    """Designs that differ in nothing but the size of the HBM once, with all their sizes in a
    text."""
    same = [*OF_A_PLAN, "throughput_samples_per_s", "on_front"]
    sizes = (shown["hbm_bytes"] / GIB).map("{:g}".format)
    ordered = shown.assign(hbm=sizes, varied=varied_texts(shown)).sort_values(
        "hbm_bytes", kind="stable"
    )
    groups = ordered.groupby([*CHIP_COLUMNS, "varied", *same], sort=False, observed=True)
    return groups.first().assign(hbm=groups["hbm"].agg(SEPARATOR.join)).reset_index()


def _marked(points: PointsOfModel, axes: Sequence[FrontAxis]) -> list[Marked]:
    assert points.best.accelerator is not None  # of a device the area is not known
    named = [("optimum", points.best.accelerator, points.plan)]
    named += [
        (point.name, point.accelerator, point.models[points.model]) for point in points.references
    ]
    amounts = amounts_of(
        points.run, [chip for _, chip, _ in named], [plan for _, _, plan in named], axes
    )
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


def _marked_data(marked: Sequence[Marked], axes: Sequence[FrontAxis]) -> Any:
    rows = (
        (
            each.name,
            each.throughput_samples_per_s,
            *(each.amounts[axis] for axis in axes),
            each.chip,
            each.side,
        )
        for each in marked
    )
    columns = ("name", "throughput", *(axis.value for axis in axes), "chip", "side")
    return inline_data(columns, rows, words={"name", "chip", "side"})


def _menus(shown: pd.DataFrame) -> dict[str, Any]:
    """A menu for each column of which there are several values, by column."""
    columns = {
        "hbm": ("HBM, GiB", shown["hbm_bytes"] / GIB),
        "micro_batch": ("micro-batch", shown["micro_batch_size"]),
        "tp": ("tp", shown["tp"]),
        "recompute": ("recomputation", shown["recompute"].astype(str)),
    }
    found = (
        (column, title, sorted(set(values.tolist()))) for column, (title, values) in columns.items()
    )
    return {
        column: menu(column, title, values) for column, title, values in found if len(values) > 1
    }


def _colour(shown: pd.DataFrame, marked: Sequence[Marked], axis: FrontAxis) -> Any:
    """What designs have of ``axis`` as colour on a logarithmic scale, of which the legend names
    every stop."""
    import altair as alt

    amounts = [*shown[axis_column(shown, axis)].tolist(), *(each.amounts[axis] for each in marked)]
    least, most = min(amounts), max(amounts)
    if not 0.0 < least < most:  # all alike
        return alt.value(colour(RAMP[-1]))
    stops = np.geomspace(least, most, len(RAMP)).tolist()
    scale = alt.Scale(type="log", domain=stops, range=[colour(role) for role in RAMP])
    legend = alt.Legend(
        type="gradient", gradientLength=220, values=stops, labelExpr="format(datum.value, ',.3~r')"
    )
    return alt.Color(
        f"{axis}:Q", title=f"{WORDS[axis].title}, logarithmic", scale=scale, legend=legend
    )


def front_table(evaluated: pd.DataFrame, axes: Sequence[FrontAxis]) -> PageTable:
    """The chips on the Pareto front of ``axes``, a row each: its fastest plan, the HBM sizes that
    allow it, and its plans there.

    The front is one of every HBM size; of equally fast plans of a chip that with the least of the
    other axes is shown.
    """
    others = other_axes(axes)
    amounts = [axis_column(evaluated, axis) for axis in reversed(others)]
    front = evaluated[evaluated["on_front"]]
    front = front.assign(chip=chip_text(front))
    columns = ["throughput_samples_per_s", *amounts, "hbm_bytes"]
    front = front.sort_values(
        columns, ascending=[False, *([True] * (len(amounts) + 1))], kind="stable"
    )
    by_chip = [points for _, points in front.groupby("chip", sort=False)]
    rows = [_front_row(points, others) for points in by_chip[:FRONT_ROWS]]
    headings = (
        *("accelerator", "HBM GiB", "micro-batch", "recomputation", "tp x pp x dp", "samples/s"),
        *(WORDS[axis].heading for axis in others),
    )
    chips = f"{len(by_chip):,} chip{'s' if len(by_chip) > 1 else ''}"
    of = f"the first {FRONT_ROWS} of {chips}" if len(by_chip) > FRONT_ROWS else chips
    words = {"accelerator", "recomputation"}
    title = f"Pareto front of {front_words(axes)}, fastest first: {of}"
    return table(title, (*headings, "plans on the front"), rows, words=words)


def _front_row(points: pd.DataFrame, axes: Sequence[FrontAxis]) -> tuple[str, ...]:
    """A chip with its points of the front, the fastest first."""
    first = points.iloc[0]
    same = points[
        points["throughput_samples_per_s"] >= first["throughput_samples_per_s"] * (1 - EQUAL)
    ]
    return (
        str(first["chip"]),
        ", ".join(gib(size) for size in sorted(set(same["hbm_bytes"].tolist()))),
        str(first["micro_batch_size"]),
        str(first["recompute"]),
        plan_texts(points.head(1))[0],
        rate(first["throughput_samples_per_s"]),
        *(WORDS[axis].text(first[axis_column(points, axis)]) for axis in axes),
        f"{len(points[list(OF_A_PLAN)].drop_duplicates()):,}",
    )
