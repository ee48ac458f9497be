"""The best designs for each HBM and micro-batch size, known chips and expert plans beside them."""

from collections.abc import Collection, Sequence

from GraphExtractor.names import label
from phaze.report.conventions import mfu_share
from phaze.report.pages.charts import SAMPLES, sized
from phaze.report.pages.design_points import PointsOfModel
from phaze.report.pages.figures import Figure, PageTable, inline_data, table
from phaze.report.pages.formats import duration
from phaze.report.pages.theme import SERIES, colour
from phaze.report.tables.search_tables import FOUND, memory_text, merged
from phaze.studies.wording import accelerator_text, degrees_text, hardware_text, listed, plan_extras
from phaze_common.numbers import gib, number, rate
from phaze_common.units import GIB
from Solver.results import DesignPoint, ReferencePoint, SearchResult, SizeRow


def size_figure(points: PointsOfModel) -> Figure | None:
    """Throughput of the best design over micro-batch sizes, a line per HBM size; None where there
    is one micro-batch size."""
    import altair as alt

    hardware = points.run.result.hardware
    rows = [
        row for row in points.run.result.rows if row.model == points.model and row.status in FOUND
    ]
    if len({row.micro_batch_size for row in rows}) < 2:
        return None
    by_hbm: dict[int, list[SizeRow]] = {}
    for row in rows:
        by_hbm.setdefault(row.hbm_bytes, []).append(row)
    alike: dict[
        tuple[tuple[int, float], ...], list[int]
    ] = {}  # HBM sizes that make no difference share a line
    for hbm, line in by_hbm.items():
        alike.setdefault(
            tuple((row.micro_batch_size, row.throughput_samples_per_s) for row in line), []
        ).append(hbm)
    names = [listed([memory_text(hbm) for hbm in sizes]) + " GiB" for sizes in alike.values()]
    data = inline_data(
        ("hbm", "micro_batch", "throughput", "chip"),
        (
            (
                name,
                row.micro_batch_size,
                row.throughput_samples_per_s,
                hardware_text(row.accelerator, hardware),
            )
            for name, sizes in zip(names, alike.values(), strict=True)
            for row in by_hbm[sizes[0]]
        ),
        words={"hbm", "chip"},
    )
    colours = [colour(SERIES[position % len(SERIES)]) for position in range(len(names))]
    chart = (
        alt.Chart(data)
        .mark_line(point=alt.OverlayMarkDef(size=50, filled=True))
        .encode(
            x=alt.X("micro_batch:O", title="micro-batch size"),
            y=alt.Y("throughput:Q", title=SAMPLES, scale=alt.Scale(zero=True)),
            color=alt.Color("hbm:N", title="HBM", scale=alt.Scale(domain=names, range=colours)),
            shape=alt.Shape("hbm:N", title="HBM", scale=alt.Scale(domain=names)),
            tooltip=[
                alt.Tooltip("hbm:N", title="HBM"),
                alt.Tooltip("micro_batch:Q", title="micro-batch"),
                alt.Tooltip("throughput:Q", title="samples/s", format=",.5~r"),
                alt.Tooltip("chip:N", title="chip"),
            ],
        )
    )
    what = "plan" if points.best.accelerator is None else "design"
    caption = f"The best {what} of {label(points.model)} for each micro-batch size."
    if len(alike) < len(by_hbm):
        caption += " HBM sizes that allow the same throughput share a line."
    name = f"throughput-by-micro-batch{points.suffix}"
    return Figure(name, "Micro-batch and HBM size", caption, sized(chart, 220), len(rows))


def size_table(result: SearchResult) -> PageTable:
    """The best hardware of each model for every HBM and micro-batch size."""
    columns = (
        "model",
        "HBM GiB",
        "micro-batch",
        "accelerator",
        "recomputation",
        "tp x pp x dp",
        "samples/s",
    )

    def cells(row: SizeRow) -> tuple[str, ...]:
        size = (label(row.model), memory_text(row.hbm_bytes), str(row.micro_batch_size))
        if row.status not in FOUND:
            return (
                *size,
                f"{row.status.value}: {row.reason}" if row.reason else row.status.value,
                "",
                "",
                "",
            )
        plan = (row.recompute, degrees_text(row), rate(row.throughput_samples_per_s))
        return (*size, hardware_text(row.accelerator, result.hardware), *plan)

    words = {"model", "accelerator", "recomputation"}
    rows = merged([cells(row) for row in result.rows], columns.index("HBM GiB"))
    return table("Best design for each HBM and micro-batch size", columns, rows, words=words)


def hbm_table(result: SearchResult) -> PageTable:
    """The optimum of every HBM size, one row per model."""
    rows = [
        (
            memory_text(point.hbm_bytes),
            hardware_text(point.accelerator, result.hardware),
            "" if point.accelerator is None else f"{point.accelerator.area_mm2:.1f}",
            label(name),
            str(plan.micro_batch_size),
            plan.recompute,
            degrees_text(plan),
            ", ".join(plan_extras(plan)),
            rate(plan.throughput_samples_per_s),
            mfu_share(plan.model_flops_utilization),
            f"{plan.memory_bytes / GIB:,.2f}",
            "yes" if point.optimal else "no",
        )
        for point in result.per_hbm
        for name, plan in point.models.items()
    ]
    columns: tuple[str, ...] = (
        "HBM GiB",
        "accelerator",
        "area mm²",
        "model",
        "micro-batch",
        "recomputation",
        "tp x pp x dp",
    )
    words = {"accelerator", "model", "recomputation", "further", "proven"}
    columns = (*columns, "further", "samples/s", "MFU", "used GiB", "proven")
    return table(
        "Optimum for each HBM size", columns, merged(rows, columns.index("HBM GiB")), words=words
    )


def reference_table(
    references: Sequence[ReferencePoint], unit: str, beyond: Collection[str] = ()
) -> PageTable:
    """Known chips, priced by the same model, each with the best plan on it; HBM sizes that make no
    difference share a row.

    Those ``beyond`` a limit of the study say so.
    """
    alike: dict[tuple[str, float], list[ReferencePoint]] = {}
    for point in references:
        alike.setdefault((point.name, point.value), []).append(point)
    rows = (
        (
            same[0].name,
            accelerator_text(same[0].accelerator),
            f"{same[0].accelerator.area_mm2:.1f}",
            ", ".join(gib(each.hbm_bytes) for each in same),
            number(same[0].value) if same[0].models else same[0].status.value,
            ", ".join(dict.fromkeys(_better(each) for each in same))
            + (", beyond a limit" if same[0].name in beyond else ""),
            same[0].source,
        )
        for same in alike.values()
    )
    columns = ("chip", "accelerator", "area mm²", "HBM GiB", unit, "optimum is better by", "source")
    return table(
        "Known chips, priced the same way", columns, rows, words={"chip", "accelerator", "source"}
    )


def expert_table(best: DesignPoint) -> PageTable:
    """The plans of published experts on the best chip; without rows where there are none."""
    rows = []
    for name, plan in best.models.items():
        if plan.expert is None:
            continue
        expert = plan.expert
        better = (
            f"{plan.speedup_over_expert:.2f}x"
            if plan.speedup_over_expert is not None
            else expert.reason
        )
        time = duration(expert.time_per_batch_s) if expert.time_per_batch_s else ""
        cut = "blocks balanced over the stages" if expert.pp > 1 else "one stage"
        rows.append(
            (
                label(name),
                degrees_text(expert),
                cut,
                str(plan.micro_batch_size),
                expert.recompute,
                time,
                number(expert.throughput_samples_per_s),
                better,
                expert.source,
            )
        )
    columns = (
        "model",
        "tp x pp x dp",
        "stages",
        "micro-batch",
        "recomputation",
        "iteration",
        "samples/s",
        "optimum is better by",
        "source",
    )
    words = {"model", "stages", "recomputation", "source"}
    return table("Plans that an expert would use, on the same chip", columns, rows, words=words)


def _better(point: ReferencePoint) -> str:
    return "" if point.best_over_reference is None else f"{point.best_over_reference:.2f}x"
