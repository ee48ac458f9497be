"""Plans on the best hardware: the fastest in a table, and a figure of what throughput takes in
memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from GraphExtractor.names import label
from phaze.report.pages.charts import SAMPLES, chosen_in, menu, sized
from phaze.report.pages.design_points import PointsOfModel, thinned
from phaze.report.pages.figures import Figure, PageTable, inline_data, table
from phaze.report.pages.formats import duration
from phaze.report.pages.theme import SERIES, colour
from phaze.runs.design_tables import LAYER_GROUPS
from phaze_common.choices import Recompute
from phaze_common.numbers import number
from phaze_common.units import GIB
from Solver.results import ModelPlan

if TYPE_CHECKING:
    import pandas as pd

FASTEST = 20  # plans in the table


@dataclass(frozen=True)
class Choice:
    """Something a plan chooses: its column, what it is, and its value in a plan."""

    column: str
    title: str
    of: Callable[[ModelPlan], Any]


OF_SHAPES = (  # of every design point
    Choice("tp", "tensor parallel width tp", lambda plan: plan.tp),
    Choice("cp", "context parallel degree cp", lambda plan: plan.cp),
    Choice("ep", "expert parallel degree ep", lambda plan: plan.ep),
    Choice("layout", "layout", lambda plan: plan.layout),
    Choice("tp2", "second tensor axis tp2", lambda plan: plan.tp2),
    Choice("panels", "panels of products", lambda plan: plan.panels),
    Choice("exchange", "exchange of keys and values", lambda plan: plan.exchange),
    Choice("micro_batch_size", "micro-batch size", lambda plan: plan.micro_batch_size),
    Choice("sequence_parallel", "sequence parallelism", lambda plan: plan.sequence_parallel),
    Choice("recompute", "recomputation", lambda plan: plan.recompute),
)
OF_PLANS = (  # of every plan of a design point
    Choice("pp", "pipeline depth pp", lambda plan: plan.pp),
    Choice("dp", "data parallel degree dp", lambda plan: plan.dp),
    Choice("zero_stage", "ZeRO stage", lambda plan: plan.zero_stage),
    Choice("interleave", "chunks per stage", lambda plan: plan.interleave),
    Choice("group_order", "order of the groups", lambda plan: plan.group_order),
    Choice(
        "overlap_gradients", "overlapped gradients", lambda plan: str(plan.plan.overlap_gradients)
    ),
)
CHOICES = (*OF_SHAPES, *OF_PLANS)
# of design points, whose plans say it by the order of the groups
LYING = "where the groups of a layer lie"
WORDS = {
    LAYER_GROUPS,
    "layout",
    "exchange",
    "sequence_parallel",
    "recompute",
    "group_order",
    "overlap_gradients",
}


def fastest_plans(points: PointsOfModel) -> tuple[PageTable, ...]:
    """The fastest plans on the best hardware as a table, where the run kept plans of the model."""
    plans = _plans(points)
    done = (
        plans[(plans["status"] == "evaluated") & plans["time_per_batch_s"].notna()]
        if len(plans)
        else plans
    )
    return (
        (_fastest_table(points, done.sort_values("time_per_batch_s", kind="stable")),)
        if len(done)
        else ()
    )


def memory_scatter(points: PointsOfModel) -> Figure:
    """Throughput of every evaluated design point over the memory of its fullest stage."""
    import altair as alt

    evaluated = points.evaluated
    shown = thinned(evaluated)
    titles = {choice.column: choice.title for choice in CHOICES} | {LAYER_GROUPS: LYING}
    of_shapes = [choice.column for choice in OF_SHAPES] + [LAYER_GROUPS]
    columns = [*of_shapes, "pp", "dp"]
    rows = (
        (
            *(_plain(row[column]) for column in columns),
            row["memory_bytes"] / GIB,
            row["throughput_samples_per_s"],
        )
        for _, row in shown.iterrows()
    )
    data = inline_data((*columns, "memory", "throughput"), rows, words=WORDS)
    widths = sorted(int(width) for width in shown["tp"].unique())
    limit = points.best.hbm_bytes / GIB
    title = "memory of the fullest stage, GiB"
    x = alt.X("memory:Q", title=title, scale=alt.Scale(domain=[0, limit * 1.05], nice=False))
    y = alt.Y("throughput:Q", title=SAMPLES, scale=alt.Scale(zero=True))
    menus = {
        column: menu(column, titles[column], [_plain(value) for value in values])
        for column in of_shapes
        if len(values := sorted(set(shown[column].tolist()), key=_rank)) > 1
    }
    base = alt.Chart(data)
    for column in menus:
        base = base.transform_filter(chosen_in(column))
    tooltip = [
        alt.Tooltip("throughput:Q", title="samples/s", format=",.5~r"),
        alt.Tooltip("memory:Q", title="memory, GiB", format=".4~r"),
        *(alt.Tooltip(f"{column}:N", title=titles[column]) for column in columns),
    ]
    scale = alt.Scale(
        domain=widths,
        range=[colour(SERIES[position % len(SERIES)]) for position in range(len(widths))],
    )
    best = inline_data(
        ("memory", "throughput", "name"),
        [(points.plan_memory_bytes / GIB, points.plan.throughput_samples_per_s, "optimum")],
        words={"name"},
    )
    ring = alt.Chart(best).mark_point(
        size=220, filled=False, strokeWidth=2.5, color=colour("accent")
    )
    name = alt.Chart(best).mark_text(dy=-14, fontWeight="bold")
    edge = alt.Chart(inline_data(("limit",), [(limit,)])).mark_rule(
        color=colour("accent"), strokeWidth=2
    )
    chart = alt.layer(
        edge.encode(x=alt.X("limit:Q", title=title)),
        base.mark_point(size=36, filled=True, opacity=0.8).encode(
            x=x,
            y=y,
            color=alt.Color("tp:N", title="tp", scale=scale),
            shape=alt.Shape("tp:N", title="tp", scale=alt.Scale(domain=widths)),
            tooltip=tooltip,
        ),
        ring.encode(x="memory:Q", y="throughput:Q"),
        name.encode(x="memory:Q", y="throughput:Q", text="name:N"),
    ).add_params(*menus.values())
    kept = (
        f" {len(shown):,} of {len(evaluated):,} evaluated ones are drawn, an even choice."
        if len(shown) < len(evaluated)
        else ""
    )
    caption = (
        "Each point is the best plan of its layout, tensor, context and expert parallel degrees, "
        "the places of these groups, "
        "micro-batch size, sequence parallelism and recomputation. The vertical line is the "
        "memory of a device "
        f"({number(limit)} GiB), the ring the optimum.{kept} "
        "What was pruned is proven to be no faster than the optimum."
    )
    return Figure(
        f"throughput-memory{points.suffix}",
        "Throughput and memory of the plans",
        caption,
        sized(chart, 380),
        len(shown),
    )


def _plans(points: PointsOfModel) -> pd.DataFrame:
    """The plans of the best hardware and micro-batch size; a run keeps those of its first model."""
    plans = points.run.plans
    return plans[plans["model"] == points.model]


def _fastest_table(points: PointsOfModel, done: pd.DataFrame) -> PageTable:
    samples = points.plan.global_batch_size
    rows = (
        (
            duration(row["time_per_batch_s"]),
            number(samples / row["time_per_batch_s"]),
            *(str(_plain(row[choice.column])) for choice in CHOICES),
        )
        for _, row in done.head(FASTEST).iterrows()
    )
    columns = ("iteration", "samples/s", *(choice.title for choice in CHOICES))
    words = {choice.title for choice in CHOICES if choice.column in WORDS}
    of = f" of {label(points.model)}" if points.suffix else ""
    name = (
        f"The fastest {min(FASTEST, len(done))} evaluated plans"
        if len(done) > 1
        else "The only plan evaluated"
    )
    return table(
        f"{name}{of} with micro-batch size {points.plan.micro_batch_size}",
        columns,
        rows,
        words=words,
    )


def _rank(value: Any) -> tuple[int, Any]:
    """Numbers by size, modes of recomputation by how much they repeat."""
    modes = [mode.value for mode in Recompute]
    return (0, modes.index(value)) if value in modes else (1, value)


def _plain(value: Any) -> Any:
    """A value of a column as Python and readers have it."""
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    return value.item() if isinstance(value, np.generic) else value
