"""A finished search as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from Common.choices import Objective
from Common.units import GIB
from GraphExtractor.names import label
from Plans.results import Status
from Solver.results import DesignPoint, ModelPlan, ReferencePoint, SearchResult, SizeRow, SpaceSize
from Studies.words import UNITS, accelerator_words

if TYPE_CHECKING:
    from rich.table import Table

WIDEST_COLUMNS = 400  # tables keep their lines whole, a narrow terminal wraps them: legible, and equal in a file


def print_result(result: SearchResult, stream: TextIO) -> None:
    """Write the answer: the optimum per HBM size, per micro-batch size, references, and how much of the space it rests on."""
    if result.best is None:
        print_lines(
            [f"{result.study}: {result.status.value}; {result.reason or 'no design point fits'}", _counted(result)], stream
        )
        return
    best = result.best
    print_tables([optimum_table(result), size_table(result.rows)], stream)
    if result.references:
        print_tables([reference_table(result.references, best.objective)], stream)
    lines = [
        f"best: {accelerator_words(best.accelerator)} with {best.hbm_bytes / GIB:g} GiB HBM, "
        f"{best.objective.value.replace('_', ' ')} {best.value:.6g} {UNITS[best.objective]}, {_proof(best)}",
        *(_explained(label(name), plan) for name, plan in best.models.items()),
        *(f"{label(name)}: {plan.plans_lost}" for name, plan in best.models.items() if plan.plans_lost),
        _counted(result),
        f"files: {result.run_directory}",
    ]
    print_lines(lines, stream)


def optimum_table(result: SearchResult) -> Table:
    """The best accelerator and plan per HBM size, one row per model."""
    columns = (
        "HBM GiB",
        "accelerator",
        "area mm2",
        "model",
        "micro-batch",
        "recompute",
        "tp x pp x dp",
        "samples/s",
        "MFU",
        "vs expert",
        "proven",
    )
    table = new_table(
        f"{result.study}: best accelerator and plan per HBM size", columns, words={"accelerator", "model", "recompute"}
    )
    for point in result.per_hbm:
        for name, plan in point.models.items():
            table.add_row(
                f"{point.hbm_bytes / GIB:g}",
                accelerator_words(point.accelerator),
                f"{point.accelerator.area_mm2:.2f}",
                label(name),
                str(plan.micro_batch_size),
                plan.recompute,
                f"{plan.tp} x {plan.pp} x {plan.dp}",
                f"{plan.throughput_samples_per_s:.5g}",
                f"{plan.model_flops_utilization:.1%}",
                _against_expert(plan),
                "yes" if point.optimal else "no",
            )
    return table


def size_table(rows: Sequence[SizeRow]) -> Table:
    """The best accelerator of each model for every HBM and micro-batch size."""
    columns = ("model", "HBM GiB", "micro-batch", "accelerator", "recompute", "tp x pp x dp", "samples/s")
    table = new_table("per HBM and micro-batch size", columns, words={"model", "accelerator", "recompute"})
    for row in rows:
        size = (label(row.model), f"{row.hbm_bytes / GIB:g}", str(row.micro_batch_size))
        if row.accelerator is None:
            table.add_row(*size, f"{row.status.value}: {row.reason}" if row.reason else row.status.value, "", "", "")
        else:
            plan = (row.recompute, f"{row.tp} x {row.pp} x {row.dp}", f"{row.throughput_samples_per_s:.5g}")
            table.add_row(*size, accelerator_words(row.accelerator), *plan)
    return table


def reference_table(references: Sequence[ReferencePoint], objective: Objective) -> Table:
    """Known chips under the same model, each with the best plan on it."""
    table = new_table(
        "known chips, priced the same way",
        ("chip", "accelerator", "HBM GiB", UNITS[objective], "optimum is better by"),
        words={"chip", "accelerator"},
    )
    for point in references:
        feasible = point.status in {Status.OPTIMAL, Status.FEASIBLE}
        better = f"{point.best_over_reference:.2f}x" if point.best_over_reference is not None else "-"
        hbm = f"{point.hbm_bytes / GIB:g}"
        table.add_row(
            point.name,
            accelerator_words(point.accelerator),
            hbm,
            f"{point.value:.5g}" if feasible else point.status.value,
            better,
        )
    return table


def space_table(size: SpaceSize) -> Table:
    """What a study would evaluate."""
    table = new_table("size of the space", ("what", "number"), words={"what"})
    rows = {
        "accelerators": size.accelerators,
        "HBM sizes": size.hbm_sizes,
        "micro-batch sizes": size.micro_batch_sizes,
        "models": size.models,
        "plan variants per point (tensor parallel widths x recomputation)": size.plans_per_point,
        "design points": size.points,
    }
    for name, number in rows.items():
        table.add_row(name, f"{number:,}")
    return table


def plain_table(title: str, rows: Sequence[dict[str, object]]) -> Table:
    """Rows of equal keys as a table; text to the left, numbers to the right."""
    columns = {key.replace("_", " "): value for row in rows for key, value in row.items()}
    table = new_table(title, tuple(columns), words={name for name, value in columns.items() if isinstance(value, str)})
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, int) else str(value) for value in row.values()))
    return table


def print_tables(tables: Iterable[Table], stream: TextIO) -> None:
    """Write tables, as wide as they need."""
    from rich.console import Console

    console = Console(file=stream, width=WIDEST_COLUMNS)
    for table in tables:
        with console.capture() as drawn:
            console.print(table)
        print_lines((line.rstrip() for line in drawn.get().splitlines()), stream)


def print_lines(lines: Iterable[str], stream: TextIO) -> None:
    """Write lines as they are."""
    stream.writelines(f"{line}\n" for line in lines)


def new_table(title: str, columns: Sequence[str], *, words: set[str]) -> Table:
    """An empty table in the one style of all; columns among ``words`` go to the left, the others, numbers, to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, justify="left" if column in words else "right", no_wrap=True)
    return table


def _against_expert(plan: ModelPlan) -> str:
    if plan.expert is None:
        return "-"
    return f"{plan.speedup_over_expert:.2f}x" if plan.speedup_over_expert is not None else plan.expert.status.value


def _proof(point: DesignPoint) -> str:
    if point.optimal:
        return "proven optimal over the whole space"
    bound = point.certificate.best_open_bound if point.certificate else None
    if bound is not None and any(plan.plans_lost for plan in point.models.values()):
        return f"not proven optimal ({point.status.value}, within {1.0 - point.value / bound:.1%} of the best there can be)"
    return f"not proven optimal ({point.status.value})"


def _explained(name: str, plan: ModelPlan) -> str:
    """Where the time of an iteration goes, largest part first."""
    parts = plan.breakdown_s
    named = {
        "forward": parts.forward_s,
        "backward": parts.backward_s,
        "recomputation": parts.recompute_s,
        "stage transfers": parts.stage_transfer_s,
        "bubble": parts.bubble_s,
        "gradient synchronisation": parts.gradient_sync_s,
        "optimizer": parts.optimizer_s,
    }
    shown = sorted(((seconds, part) for part, seconds in named.items() if seconds > 0), reverse=True)
    shares = ", ".join(f"{part} {seconds / plan.time_per_batch_s:.1%}" for seconds, part in shown)
    return f"{name}: {plan.time_per_batch_s:.4g} s per batch = {shares}"


def _counted(result: SearchResult) -> str:
    counts = result.counts
    closed = f"{counts.evaluated:,} evaluated, {counts.pruned:,} pruned by bounds, {counts.infeasible:,} infeasible"
    return f"{counts.space:,} design points: {closed}"
