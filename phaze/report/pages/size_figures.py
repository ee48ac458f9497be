"""The best designs for each HBM and micro-batch size, and the plans of experts beside them."""

from __future__ import annotations

import altair as alt

from GraphExtractor.names import label
from phaze.report.pages.charts import SAMPLES, TO_ZERO, by_role, chart_of, series_roles, sized, tips
from phaze.report.pages.design_points import PointsOfModel
from phaze.report.pages.figures import Figure
from phaze.report.sentences.designs import degrees_text, hardware_text, listed
from phaze.report.table import Table
from phaze.report.tables.search_tables import FOUND
from phaze_common.numbers import gib, number, time_text
from Solver.results import DesignPoint, SizeRow


def size_figure(points: PointsOfModel) -> Figure | None:
    """Throughput over micro-batch sizes, a line per HBM size; None where there is one size."""
    hardware = points.run.result.hardware
    found = [
        row for row in points.run.result.rows if row.model == points.model and row.status in FOUND
    ]
    if len({row.micro_batch_size for row in found}) < 2:
        return None
    by_hbm: dict[int, list[SizeRow]] = {}
    for row in found:
        by_hbm.setdefault(row.hbm_bytes, []).append(row)
    # HBM sizes that make no difference share a line
    alike: dict[tuple[tuple[int, float], ...], list[int]] = {}
    for hbm, line in by_hbm.items():
        reached = tuple((row.micro_batch_size, row.throughput_samples_per_s) for row in line)
        alike.setdefault(reached, []).append(hbm)
    names = {listed(list(map(gib, sizes))) + " GiB": sizes[0] for sizes in alike.values()}
    rows = [
        {
            "hbm": name,
            "micro_batch": row.micro_batch_size,
            "throughput": row.throughput_samples_per_s,
            "chip": hardware_text(row.accelerator, hardware),
        }
        for name, size in names.items()
        for row in by_hbm[size]
    ]
    titles = {"hbm:N": "HBM", "micro_batch:Q": "micro-batch"}
    titles |= {"throughput:Q ,.5~r": "samples/s", "chip:N": "chip"}
    points_on_it = alt.OverlayMarkDef(size=50, filled=True)
    chart = (
        chart_of(rows)
        .mark_line(point=points_on_it)
        .encode(
            x=alt.X("micro_batch:O", title="micro-batch size"),
            y=alt.Y("throughput:Q", title=SAMPLES, scale=TO_ZERO),
            color=by_role("hbm:N", series_roles(list(names)), "HBM"),
            shape=alt.Shape("hbm:N", title="HBM", scale=alt.Scale(domain=list(names))),
            tooltip=tips(titles),
        )
    )
    what = "plan" if points.best.accelerator is None else "design"
    caption = f"The best {what} of {label(points.model)} for each micro-batch size."
    if len(alike) < len(by_hbm):
        caption += " HBM sizes that allow the same throughput share a line."
    name = f"throughput-by-micro-batch{points.suffix}"
    return Figure(name, "Micro-batch and HBM size", caption, sized(chart, 220), len(found))


def expert_table(best: DesignPoint) -> Table:
    """The plans of published experts on the best chip; without rows where there are none."""
    rows = []
    for name, plan in best.models.items():
        expert, faster = plan.expert, plan.speedup_over_expert
        if expert is None:
            continue
        rows.append(
            {
                "model": label(name),
                "tp x pp x dp": degrees_text(expert),
                "stages": "blocks balanced over the stages" if expert.pp > 1 else "one stage",
                "micro-batch": str(plan.micro_batch_size),
                "recomputation": expert.recompute,
                "iteration": time_text(expert.time_per_batch_s) if expert.time_per_batch_s else "",
                "samples/s": number(expert.throughput_samples_per_s),
                "optimum is better by": expert.reason if faster is None else f"{faster:.2f}x",
                "source": expert.source,
            }
        )
    title = "Plans that an expert would use, on the same chip"
    return Table.of(title, rows, words={"model", "stages", "recomputation", "source"})
