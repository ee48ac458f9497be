"""The figure of throughput, area and energy of all evaluated designs, with filters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from Common.numbers import gib, number, rate
from Common.units import GIB, MIB
from Reporter.report.charts import SAMPLES, chosen_in, menu, sized
from Reporter.report.design_points import CHIP_COLUMNS, OF_A_PLAN, PointsOfModel, chip_text, plan_texts, thinned
from Reporter.report.figures import Figure, PageTable, inline_data, table
from Reporter.report.theme import RAMP, colour
from Studies.wording import EQUAL, accelerator_text

if TYPE_CHECKING:
    import pandas as pd

FRONT_ROWS = 40  # chips of the front's table
SEPARATOR = ", "
WITH_MEMORY = f"choose_hbm == null || indexof(split(datum.hbm, '{SEPARATOR}'), '' + choose_hbm) >= 0"
_CHIP = (
    "datum.num_tc + ' TC ' + datum.depth + 'x' + datum.width + ', ' + datum.num_vc + ' VC ' + datum.width_vc"
    " + ', GLB ' + datum.glb_mib + ' MiB'"
)


@dataclass(frozen=True)
class Marked:
    """A chip with a name: the optimum or a known one. ``side`` is where its name goes."""

    name: str
    area_mm2: float
    throughput_samples_per_s: float
    energy_per_sample_j: float
    chip: str
    side: str


def scatter(points: PointsOfModel) -> Figure:
    """Throughput over area, energy as colour, the Pareto front, the optimum and the known chips."""
    import altair as alt

    evaluated = points.evaluated
    shown = thinned(evaluated)
    marked = _marked(points)
    tallest = max([float(shown["throughput_samples_per_s"].max()), *(each.throughput_samples_per_s for each in marked)])
    widest = max([float(shown["area_mm2"].max()), *(each.area_mm2 for each in marked)])
    x = alt.X("area:Q", title="area of a chip, mm²", scale=alt.Scale(domain=[0, widest * 1.06], nice=False))
    height = {"title": SAMPLES, "scale": alt.Scale(domain=[0, tallest * 1.1], nice=False)}
    y = alt.Y("throughput:Q", **height)
    energy = _energy_colour(shown, marked)
    tooltip = [
        alt.Tooltip("chip:N", title="chip"),
        alt.Tooltip("throughput:Q", title="samples/s", format=",.5~r"),
        alt.Tooltip("area:Q", title="area, mm²", format=".4~r"),
        alt.Tooltip("energy:Q", title="joules per sample", format=".4~r"),
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
    designs = alt.Chart(_design_data(shown)).transform_calculate(chip=_CHIP, pareto="datum.front ? 'on it' : 'dominated'")
    for column in menus:
        designs = designs.transform_filter(WITH_MEMORY if column == "hbm" else chosen_in(column))
    envelope = designs.transform_window(
        window=[alt.WindowFieldDef(op="max", field="throughput", **{"as": "most"})],
        sort=[alt.SortField("area"), alt.SortField("throughput", order="descending")],
        frame=[None, 0],
    ).mark_line(interpolate="step-after", color=colour("muted"), strokeWidth=1)
    dominated = designs.transform_filter("!datum.front && !front_only").mark_point(size=12, strokeWidth=1, color=colour("faint"))
    front = designs.transform_filter("datum.front").mark_circle(size=34, opacity=0.95)
    named = alt.Chart(_marked_data(marked))
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
        front.encode(x=x, y=y, color=energy, tooltip=design_tooltip),
        chips.encode(x=x, y=y, color=energy, tooltip=named_tooltip),
        best.encode(x=x, y=y, tooltip=named_tooltip),
        *names,
    ).add_params(*menus.values(), alt.param(name="front_only", value=False, bind=alt.binding_checkbox(name="Pareto front only")))
    return Figure(
        f"throughput-area-energy{points.suffix}",
        "Throughput, area and energy",
        _caption(points, len(shown), len(evaluated)),
        sized(chart, 420),
        len(shown),
        front_table(evaluated),
    )


def _caption(points: PointsOfModel, shown: int, evaluated: int) -> str:
    kept = f" {shown:,} of {evaluated:,} evaluated designs are drawn: all of the front, and an even choice of the others."
    return (
        "Each point is an evaluated design with its best plan. Filled points, coloured by energy, lie on the Pareto front of "
        "throughput, area and energy (of their HBM size); the line is the most throughput that an area buys. The ring marks the "
        f"optimum, diamonds mark known chips with {gib(points.best.hbm_bytes)} GiB HBM.{kept if shown < evaluated else ''} "
        "Each design that was pruned is no better than one of the front in all three."
    )


def _design_data(shown: pd.DataFrame) -> Any:
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
        "area": shown["area_mm2"],
        "throughput": shown["throughput_samples_per_s"],
        "energy": shown["energy_per_sample_j"],
        "plan": pd.Series(plan_texts(shown)),
        "front": shown["on_front"],
    }
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return inline_data(tuple(columns), rows, words={"hbm", "recompute", "plan"})


def _once(shown: pd.DataFrame) -> pd.DataFrame:
    """Designs that differ in nothing but the size of the HBM once, with all their sizes in a text."""
    same = [*OF_A_PLAN, "throughput_samples_per_s", "on_front"]
    sizes = (shown["hbm_bytes"] / GIB).map("{:g}".format)
    ordered = shown.assign(hbm=sizes).sort_values("hbm_bytes", kind="stable")
    groups = ordered.groupby([*CHIP_COLUMNS, *same], sort=False, observed=True)
    return groups.first().assign(hbm=groups["hbm"].agg(SEPARATOR.join)).reset_index()


def _marked(points: PointsOfModel) -> list[Marked]:
    assert points.best.accelerator is not None  # of a device the area is not known
    named = [("optimum", points.best.accelerator, points.plan)]
    named += [(point.name, point.accelerator, point.models[points.model]) for point in points.references]
    middle = max(chip.area_mm2 for _, chip, _ in named) / 2
    return [
        Marked(
            name,
            chip.area_mm2,
            plan.throughput_samples_per_s,
            plan.energy_per_sample_j or 0.0,
            accelerator_text(chip),
            "left" if chip.area_mm2 > middle else "right",
        )
        for name, chip, plan in named
    ]


def _marked_data(marked: Sequence[Marked]) -> Any:
    rows = (
        (each.name, each.area_mm2, each.throughput_samples_per_s, each.energy_per_sample_j, each.chip, each.side)
        for each in marked
    )
    return inline_data(("name", "area", "throughput", "energy", "chip", "side"), rows, words={"name", "chip", "side"})


def _menus(shown: pd.DataFrame) -> dict[str, Any]:
    """A menu for each column of which there are several values, by column."""
    columns = {
        "hbm": ("HBM, GiB", shown["hbm_bytes"] / GIB),
        "micro_batch": ("micro-batch", shown["micro_batch_size"]),
        "tp": ("tp", shown["tp"]),
        "recompute": ("recomputation", shown["recompute"].astype(str)),
    }
    found = ((column, title, sorted(set(values.tolist()))) for column, (title, values) in columns.items())
    return {column: menu(column, title, values) for column, title, values in found if len(values) > 1}


def _energy_colour(shown: pd.DataFrame, marked: Sequence[Marked]) -> Any:
    """Energy as colour on a logarithmic scale, of which the legend names every stop."""
    import altair as alt

    energies = [*shown["energy_per_sample_j"].tolist(), *(each.energy_per_sample_j for each in marked)]
    least, most = min(energies), max(energies)
    if not 0.0 < least < most:  # all alike
        return alt.value(colour(RAMP[-1]))
    stops = np.geomspace(least, most, len(RAMP)).tolist()
    scale = alt.Scale(type="log", domain=stops, range=[colour(role) for role in RAMP])
    legend = alt.Legend(type="gradient", gradientLength=220, values=stops, labelExpr="format(datum.value, ',.3~r')")
    return alt.Color("energy:Q", title="joules per sample, logarithmic", scale=scale, legend=legend)


def front_table(evaluated: pd.DataFrame) -> PageTable:
    """The chips on the Pareto front, a row each: its fastest plan, the HBM sizes that allow it, and how many plans are on it.

    The front is one of every HBM size; of equally fast plans of a chip that with the least energy is shown.
    """
    front = evaluated[evaluated["on_front"]]
    front = front.assign(chip=chip_text(front))
    front = front.sort_values(
        ["throughput_samples_per_s", "energy_per_sample_j", "hbm_bytes"], ascending=[False, True, True], kind="stable"
    )
    by_chip = [points for _, points in front.groupby("chip", sort=False)]
    rows = [_front_row(points) for points in by_chip[:FRONT_ROWS]]
    columns = ("accelerator", "HBM GiB", "micro-batch", "recomputation", "tp x pp x dp", "samples/s", "area mm²", "J/sample")
    chips = f"{len(by_chip):,} chip{'s' if len(by_chip) > 1 else ''}"
    of = f"the first {FRONT_ROWS} of {chips}" if len(by_chip) > FRONT_ROWS else chips
    words = {"accelerator", "recomputation"}
    title = f"Pareto front, fastest first: {of}"
    return table(title, (*columns, "plans on the front"), rows, words=words)


def _front_row(points: pd.DataFrame) -> tuple[str, ...]:
    """A chip with its points of the front, the fastest first."""
    first = points.iloc[0]
    same = points[points["throughput_samples_per_s"] >= first["throughput_samples_per_s"] * (1 - EQUAL)]
    return (
        str(first["chip"]),
        ", ".join(gib(size) for size in sorted(set(same["hbm_bytes"].tolist()))),
        str(first["micro_batch_size"]),
        str(first["recompute"]),
        plan_texts(points.head(1))[0],
        rate(first["throughput_samples_per_s"]),
        f"{first['area_mm2']:.2f}",
        number(first["energy_per_sample_j"], aligned=True),
        f"{len(points[list(OF_A_PLAN)].drop_duplicates()):,}",
    )
