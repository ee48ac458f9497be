"""Plans on the best hardware: the fastest in a table, and throughput over memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np

from Estimator.plans import axes
from Estimator.plans.axes import COMPARED
from GraphExtractor.names import label
from phaze.report.pages import charts
from phaze.report.pages.axis_figures import TITLES
from phaze.report.pages.design_points import PointsOfModel, thinned
from phaze.report.pages.figures import Figure
from phaze.report.pages.theme import colour
from phaze.report.table import Table
from phaze.runs.design_tables import LAYER_GROUPS
from phaze_common.choices import Recompute
from phaze_common.numbers import number, time_text
from phaze_common.units import GIB

if TYPE_CHECKING:
    import pandas as pd

FASTEST = 20  # plans in the table


OF_SHAPES = tuple(each.key for each in axes.OF_SHAPES)
OF_PLANS = tuple(each.key for each in axes.OF_PLANS)
# of design points, whose plans say it by the order of the groups
PLACEMENT = "where the groups of a layer lie"
WORDS = {each.key for each in COMPARED if each.field.item is not int}


def fastest_plans(points: PointsOfModel) -> tuple[Table, ...]:
    """The fastest plans on the best hardware, where the run kept plans of the model."""
    plans = points.run.plans[points.run.plans["model"] == points.model]
    if len(plans):
        done = (plans["status"] == "evaluated") & plans["time_per_batch_s"].notna()
        plans = plans[done].sort_values("time_per_batch_s", kind="stable")
    return (_fastest_table(points, plans),) if len(plans) else ()


def memory_scatter(points: PointsOfModel) -> Figure:
    """Throughput of every evaluated design point over the memory of its fullest stage."""
    evaluated, plan = points.evaluated, points.plan
    shown = thinned(evaluated)
    titles = {column: TITLES[column][0] for column in OF_SHAPES} | {LAYER_GROUPS: PLACEMENT}
    chosen = list(titles)
    titles |= {column: TITLES[column][0] for column in ("pp", "dp")}
    designs = charts.chart_of(
        {column: _plain(row[column]) for column in titles}
        | {"memory": row["memory_bytes"] / GIB, "throughput": row["throughput_samples_per_s"]}
        for _, row in shown.iterrows()
    )
    widths = sorted(int(width) for width in shown["tp"].unique())
    limit, title = points.best.hbm_bytes / GIB, "memory of the fullest stage, GiB"
    menus = {
        column: charts.menu(column, titles[column], [_plain(value) for value in values])
        for column in chosen
        if len(values := sorted(set(shown[column].tolist()), key=_rank)) > 1
    }
    for column in menus:
        designs = designs.transform_filter(charts.chosen_in(column))
    optimum = {"memory": points.plan_memory_bytes / GIB, "name": "optimum"}
    best = charts.chart_of([optimum | {"throughput": plan.throughput_samples_per_s}])
    at = {"x": "memory:Q", "y": "throughput:Q"}
    reached = {"throughput:Q ,.5~r": "samples/s"}
    reached |= {"memory:Q .4~r": "memory, GiB"}
    chart = alt.layer(
        charts.limit_rule(limit, title, "x"),
        designs.mark_point(size=36, filled=True, opacity=0.8).encode(
            x=alt.X("memory:Q", title=title, scale=charts.exactly(0, limit * 1.05)),
            y=alt.Y("throughput:Q", title=charts.SAMPLES, scale=charts.TO_ZERO),
            color=charts.by_role("tp:N", charts.series_roles(widths), "tp"),
            shape=alt.Shape("tp:N", title="tp", scale=alt.Scale(domain=widths)),
            tooltip=charts.tips(reached | {f"{column}:N": each for column, each in titles.items()}),
        ),
        best.mark_point(size=220, color=colour("accent"), **charts.RING).encode(**at),
        best.mark_text(dy=-14, fontWeight="bold").encode(**at, text="name:N"),
    ).add_params(*menus.values())
    kept = ""
    if len(shown) < len(evaluated):
        kept = f" {len(shown):,} of {len(evaluated):,} evaluated ones are drawn, an even choice."
    caption = (
        "Each point is the best plan of its layout, tensor, context and expert parallel degrees, "
        "the places of these groups, micro-batch size, sequence parallelism and recomputation. "
        f"The vertical line is the memory of a device ({number(limit)} GiB), the ring the "
        f"optimum.{kept} What was pruned is proven to be no faster than the optimum."
    )
    name = f"throughput-memory{points.suffix}"
    spec = charts.sized(chart, 380)
    return Figure(name, "Throughput and memory of the plans", caption, spec, len(shown))


def _fastest_table(points: PointsOfModel, done: pd.DataFrame) -> Table:
    plan, count = points.plan, min(FASTEST, len(done))
    rows = (
        {
            "iteration": time_text(row["time_per_batch_s"]),
            "samples/s": number(plan.global_batch_size / row["time_per_batch_s"]),
            **{TITLES[column][0]: str(_plain(row[column])) for column in (*OF_SHAPES, *OF_PLANS)},
        }
        for _, row in done.head(FASTEST).iterrows()
    )
    words = {TITLES[column][0] for column in WORDS}
    of = f" of {label(points.model)}" if points.suffix else ""
    what = f"The fastest {count} evaluated plans" if len(done) > 1 else "The only plan evaluated"
    title = f"{what}{of} with micro-batch size {plan.micro_batch_size}"
    return Table.of(title, rows, words=words)


def _rank(value: Any) -> tuple[int, Any]:
    """Numbers by size, modes of recomputation by how much they repeat."""
    modes = [mode.value for mode in Recompute]
    return (0, modes.index(value)) if value in modes else (1, value)


def _plain(value: Any) -> Any:
    """A value of a column as Python and readers have it."""
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    return value.item() if isinstance(value, np.generic) else value
