"""Figures of the plans of a search on devices that exist: throughput against memory, and by each degree of freedom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from Common.units import GB
from GraphExtractor.graph import Recompute
from Reporter.report.charts import SAMPLES, Reached, chosen_in, menu, reach_figure, reach_table, sized
from Reporter.report.design_points import MOST_POINTS
from Reporter.report.figures import Figure, PageTable, inline_data, table
from Reporter.report.theme import SERIES, colour
from Reporter.report.words import duration
from Solver.plan_search.results import FoundPlan
from Studies.finished_run import FinishedPlanSearch
from Studies.words import number

if TYPE_CHECKING:
    import pandas as pd

FASTEST = 20  # plans in the table


@dataclass(frozen=True)
class Choice:
    """Something a plan chooses: its column among the plans, and what it is."""

    column: str
    title: str


CHOICES = (
    Choice("tp", "tensor parallel width tp"),
    Choice("pp", "pipeline depth pp"),
    Choice("dp", "data parallel degree dp"),
    Choice("ep", "expert parallel degree ep"),
    Choice("micro_batch_size", "micro-batch size"),
    Choice("recompute", "recomputation"),
    Choice("sequence_parallel", "sequence parallelism"),
    Choice("interleave", "chunks per stage"),
    Choice("zero_stage", "ZeRO stage"),
    Choice("group_order", "order of the groups"),
)
MENUS = ("tp", "pp", "micro_batch_size", "recompute", "zero_stage", "interleave")


def plan_scatter(run: FinishedPlanSearch, plan: FoundPlan) -> Figure:
    """Throughput of every evaluated plan over the memory of its fullest stage."""
    import altair as alt

    done = _evaluated(run)
    shown = _thinned(done)
    columns = [choice.column for choice in CHOICES]
    words = {"recompute", "sequence_parallel", "group_order"}
    rows = (
        (
            *(_plain(row[column]) for column in columns),
            row["memory_bytes"] / GB,
            row["global_batch_size"] / row["time_per_batch_s"],
        )
        for _, row in shown.iterrows()
    )
    data = inline_data((*columns, "memory", "throughput"), rows, words=words)
    widths = sorted(int(width) for width in shown["tp"].unique())
    limit = run.answer.device_memory_bytes / GB
    x = alt.X("memory:Q", title="memory of the fullest stage, GB", scale=alt.Scale(domain=[0, limit * 1.05], nice=False))
    y = alt.Y("throughput:Q", title=SAMPLES, scale=alt.Scale(zero=True))
    menus = {
        choice.column: menu(choice.column, choice.title, [_plain(value) for value in values])
        for choice in CHOICES
        if choice.column in MENUS and len(values := sorted(set(shown[choice.column].tolist()), key=_rank)) > 1
    }
    base = alt.Chart(data)
    for column in menus:
        base = base.transform_filter(chosen_in(column))
    tooltip = [
        alt.Tooltip("throughput:Q", title="samples/s", format=",.5~r"),
        alt.Tooltip("memory:Q", title="memory, GB", format=".4~r"),
        *(alt.Tooltip(f"{choice.column}:N", title=choice.title) for choice in CHOICES),
    ]
    scale = alt.Scale(domain=widths, range=[colour(SERIES[position % len(SERIES)]) for position in range(len(widths))])
    best = inline_data(
        ("memory", "throughput", "name"),
        [(max(chunk.memory_bytes for chunk in plan.stages) / GB, plan.throughput_samples_per_s, "optimum")],
        words={"name"},
    )
    ring = alt.Chart(best).mark_point(size=220, filled=False, strokeWidth=2.5, color=colour("accent"))
    label = alt.Chart(best).mark_text(dy=-14, fontWeight="bold")
    edge = alt.Chart(inline_data(("limit",), [(limit,)])).mark_rule(color=colour("accent"), strokeWidth=2)
    chart = alt.layer(
        edge.encode(x=alt.X("limit:Q", title="memory of the fullest stage, GB")),
        base.mark_point(size=36, filled=True, opacity=0.8).encode(
            x=x,
            y=y,
            color=alt.Color("tp:N", title="tp", scale=scale),
            shape=alt.Shape("tp:N", title="tp", scale=alt.Scale(domain=widths)),
            tooltip=tooltip,
        ),
        ring.encode(x="memory:Q", y="throughput:Q"),
        label.encode(x="memory:Q", y="throughput:Q", text="name:N"),
    ).add_params(*menus.values())
    kept = f" {len(shown):,} of {len(done):,} evaluated plans are drawn, an even choice." if len(shown) < len(done) else ""
    caption = (
        f"Each point is an evaluated plan with its best stages. The vertical line is the memory of a device ({limit:.4g} GB), "
        f"the ring the optimum.{kept} Plans that were pruned are each proven to be no faster than the optimum."
    )
    return Figure(
        "throughput-memory", "Throughput and memory of the plans", caption, sized(chart, 380), len(shown), fastest_table(done)
    )


def plan_rows(run: FinishedPlanSearch) -> list[tuple[float, float, str]]:
    """Memory of the fullest stage in GB, throughput and degrees of the evaluated plans."""
    return [
        (
            row["memory_bytes"] / GB,
            row["global_batch_size"] / row["time_per_batch_s"],
            f"{row['tp']} x {row['pp']} x {row['dp']}, micro-batch {row['micro_batch_size']}, {row['recompute']}",
        )
        for _, row in _thinned(_evaluated(run)).iterrows()
    ]


def choice_figures(run: FinishedPlanSearch, plan: FoundPlan) -> tuple[Figure, ...]:
    """How much throughput each value of each choice allows, one figure per choice that has several values."""
    reached = {choice: _reached(run.designs, choice) for choice in _choices(run)}
    tallest = max([0.0, *(each or 0.0 for rows in reached.values() for row in rows for each in (row.best, row.bound))])
    return tuple(
        reach_figure(
            f"throughput-by-{choice.column.replace('_', '-')}",
            choice.title,
            rows,
            str(_plain(getattr(plan, choice.column))),
            1.06 * tallest,
        )
        for choice, rows in reached.items()
    )


def choice_table(run: FinishedPlanSearch) -> PageTable:
    """The same in numbers."""
    reached = {choice.title: _reached(run.designs, choice) for choice in _choices(run)}
    return reach_table("Throughput by choice of the plan", "choice", reached)


def _choices(run: FinishedPlanSearch) -> tuple[Choice, ...]:
    return tuple(choice for choice in CHOICES if run.designs[choice.column].nunique() > 1)


def fastest_table(done: pd.DataFrame) -> PageTable:
    """The fastest plans."""
    rows = (
        (
            duration(row["time_per_batch_s"]),
            number(row["global_batch_size"] / row["time_per_batch_s"]),
            f"{row['memory_bytes'] / GB:.3g}",
            *(str(_plain(row[choice.column])) for choice in CHOICES),
        )
        for _, row in done.head(FASTEST).iterrows()
    )
    columns = ("iteration", "samples/s", "memory GB", *(choice.title for choice in CHOICES))
    words = {"recomputation", "sequence parallelism", "order of the groups"}
    return table(f"The fastest {min(FASTEST, len(done))} plans" if len(done) > 1 else "The only plan", columns, rows, words=words)


def _evaluated(run: FinishedPlanSearch) -> pd.DataFrame:
    """Evaluated plans, the fastest first."""
    return run.designs[run.designs["status"] == "evaluated"].sort_values("time_per_batch_s", kind="stable")


def _thinned(done: pd.DataFrame) -> pd.DataFrame:
    """An even choice of the plans, the fastest kept."""
    return done.iloc[np.unique(np.linspace(0, len(done) - 1, min(len(done), MOST_POINTS)).astype(int))]


def _reached(designs: pd.DataFrame, choice: Choice) -> tuple[Reached, ...]:
    """Per value: best evaluated throughput, and the most that the plans which were pruned could reach."""
    samples = designs["global_batch_size"].to_numpy(dtype=float)
    reached = samples / designs["time_per_batch_s"].to_numpy(dtype=float)
    bound = samples / designs["time_per_batch_bound_s"].to_numpy(dtype=float)
    status = designs["status"].to_numpy()
    column = designs[choice.column].to_numpy()
    rows = []
    for value in sorted(set(column.tolist()), key=_rank):
        done, others = (column == value) & (status == "evaluated"), (column == value) & (status == "pruned")
        rows.append(
            Reached(
                str(_plain(value)),
                float(np.nanmax(reached[done])) if done.any() else None,
                float(np.nanmax(bound[others])) if others.any() else None,
            )
        )
    return tuple(rows)


def _rank(value: Any) -> tuple[int, Any]:
    """Numbers by size, modes of recomputation by how much they repeat."""
    modes = [mode.value for mode in Recompute]
    return (0, modes.index(value)) if value in modes else (1, value)


def _plain(value: Any) -> Any:
    """A value of a column as Python and readers have it."""
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    return value.item() if isinstance(value, np.generic) else value
