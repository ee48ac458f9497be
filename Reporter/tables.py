"""A finished search as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, TextIO

from Common.choices import Objective
from Common.units import GIB
from GraphExtractor.names import label
from Plans.results import Breakdown, Status
from Solver.results import DesignPoint, ModelPlan, ReferencePoint, SearchResult, SpaceSize
from Studies.wording import (
    ALONG_THE_CRITICAL_PATH,
    NEGLIGIBLE,
    UNITS,
    accelerator_text,
    exposed_s,
    hardware_text,
    hidden_s,
    part_text,
    plan_extras,
)

if TYPE_CHECKING:
    from rich.table import Table

MS = 1e-3
WORTH_A_WORD = 0.0005  # of an iteration: what is 0.1% when rounded
FOUND = frozenset({Status.OPTIMAL, Status.FEASIBLE})
WIDEST_COLUMNS = 400  # tables keep their lines whole, a narrow terminal wraps them: legible, and equal in a file


def print_result(result: SearchResult, stream: TextIO) -> None:
    """Write the answer: the optimum per memory size, per micro-batch size, references, where the time goes, what it rests on."""
    if result.best is None:
        print_lines(
            [f"{result.study}: {result.status.value}; {result.reason or 'no design point fits'}", _counted(result)], stream
        )
        return
    best = result.best
    print_tables([optimum_table(result), size_table(result)], stream)
    if result.references:
        print_tables([reference_table(result.references, best.objective)], stream)
    print_tables((breakdown_table(plan.breakdown_s, label(name)) for name, plan in best.models.items()), stream)
    lines = [
        f"best: {hardware_text(best.accelerator, result.hardware)} with {memory_text(best.hbm_bytes)} GiB HBM, "
        f"{best.objective.value.replace('_', ' ')} {best.value:.6g} {UNITS[best.objective]}, {_proof(best)}",
        *(_explained(label(name), plan) for name, plan in best.models.items()),
        *([ALONG_THE_CRITICAL_PATH] if best.accelerator is not None else []),
        *(f"{label(name)}: {plan.plans_omitted}" for name, plan in best.models.items() if plan.plans_omitted),
        _counted(result),
        f"files: {result.run_directory}",
    ]
    print_lines(lines, stream)


def memory_text(size_bytes: float) -> str:
    """Memory of a device in GiB."""
    return f"{size_bytes / GIB:.4g}"


def optimum_table(result: SearchResult) -> Table:
    """The best accelerator and plan per memory size, one row per model."""
    designed = any(point.accelerator is not None for point in result.per_hbm)
    further = any(plan_extras(plan) for point in result.per_hbm for plan in point.models.values())
    columns = (
        "HBM GiB",
        "accelerator",
        *(["area mm2"] if designed else []),
        "model",
        "micro-batch",
        "recompute",
        "tp x pp x dp",
        *(["further"] if further else []),
        "samples/s",
        "MFU",
        *(["vs expert"] if designed else []),
        "proven",
    )
    what = "best accelerator and plan per HBM size" if designed else f"best plan on {result.hardware.cluster}"
    table = new_table(f"{result.study}: {what}", columns, words={"accelerator", "model", "recompute", "further"})
    for point in result.per_hbm:
        for name, plan in point.models.items():
            table.add_row(
                memory_text(point.hbm_bytes),
                hardware_text(point.accelerator, result.hardware),
                *([f"{point.accelerator.area_mm2:.2f}"] if point.accelerator is not None else []),
                label(name),
                str(plan.micro_batch_size),
                plan.recompute,
                f"{plan.tp} x {plan.pp} x {plan.dp}",
                *([", ".join(plan_extras(plan))] if further else []),
                f"{plan.throughput_samples_per_s:.5g}",
                f"{plan.model_flops_utilization:.1%}",
                *([_against_expert(plan)] if designed else []),
                "yes" if point.optimal else "no",
            )
    return table


def size_table(result: SearchResult) -> Table:
    """The best hardware of each model for every memory and micro-batch size."""
    columns = ("model", "HBM GiB", "micro-batch", "accelerator", "recompute", "tp x pp x dp", "samples/s")
    table = new_table("per HBM and micro-batch size", columns, words={"model", "accelerator", "recompute"})
    for row in result.rows:
        size = (label(row.model), memory_text(row.hbm_bytes), str(row.micro_batch_size))
        if row.status not in FOUND:
            table.add_row(*size, f"{row.status.value}: {row.reason}" if row.reason else row.status.value, "", "", "")
        else:
            plan = (row.recompute, f"{row.tp} x {row.pp} x {row.dp}", f"{row.throughput_samples_per_s:.5g}")
            table.add_row(*size, hardware_text(row.accelerator, result.hardware), *plan)
    return table


def reference_table(references: Sequence[ReferencePoint], objective: Objective) -> Table:
    """Known chips under the same model, each with the best plan on it."""
    table = new_table(
        "known chips, priced the same way",
        ("chip", "accelerator", "HBM GiB", UNITS[objective], "optimum is better by"),
        words={"chip", "accelerator"},
    )
    for point in references:
        better = f"{point.best_over_reference:.2f}x" if point.best_over_reference is not None else "-"
        table.add_row(
            point.name,
            accelerator_text(point.accelerator),
            memory_text(point.hbm_bytes),
            f"{point.value:.5g}" if point.status in FOUND else point.status.value,
            better,
        )
    return table


def breakdown_table(breakdown: Breakdown, model: str) -> Table:
    """Seconds of the busiest stage, the largest part first, adding up to the iteration; below, what costs no time."""
    total_s = breakdown.total_s
    decimals = milliseconds_decimals(total_s)
    table = new_table(f"{model}: where the time goes", ("part", "ms", "share"), words={"part"})
    parts = {name: seconds for name, seconds in exposed_s(breakdown).items() if seconds > NEGLIGIBLE * total_s}
    shown = _adding_up([seconds / MS for seconds in parts.values()], decimals)
    for (name, seconds), milliseconds in zip(parts.items(), shown, strict=True):
        table.add_row(part_text(name), f"{milliseconds:,.{decimals}f}", f"{seconds / total_s:.1%}")
    table.add_section()
    table.add_row("iteration", f"{sum(shown):,.{decimals}f}", "100.0%")
    table.add_section()
    for name, seconds in hidden_s(breakdown).items():
        table.add_row(f"hidden {part_text(name)}", f"{seconds / MS:,.{decimals}f}", f"{seconds / total_s:.1%}")
    return table


def milliseconds_decimals(seconds: float) -> int:
    """Decimals of milliseconds that show ``seconds`` to about five figures."""
    milliseconds = seconds / MS
    return next((decimals for decimals in range(6) if milliseconds * 10**decimals >= 1e4), 6)


def _adding_up(values: Sequence[float], decimals: int) -> list[float]:
    """``values`` rounded, up or down where they would not add up to their rounded sum."""
    plain = [round(value, decimals) for value in values]
    if round(sum(plain), decimals) == round(sum(values), decimals):
        return plain
    sums = [0.0, *(round(total, decimals) for total in accumulate(values))]
    return [after - before for before, after in pairwise(sums)]


def space_table(size: SpaceSize) -> Table:
    """What a study would evaluate."""
    table = new_table("size of the space", ("what", "number"), words={"what"})
    rows = {
        "accelerators": size.configurations,
        "memory sizes": size.memory_sizes,
        "micro-batch sizes": size.micro_batch_sizes,
        "models": size.models,
        "shapes of plans (tp, cp, ep, micro-batch size, sequence parallelism, recomputation)": size.shapes,
        "design points": size.points,
    }
    for name, number in rows.items():
        table.add_row(name, f"{number:,}")
    plans = "known once the model is traced" if size.plans is None else f"{size.plans:,}"
    table.add_row("plans per accelerator and memory size", plans)
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
    if bound is not None and any(plan.plans_omitted for plan in point.models.values()):
        return f"not proven optimal ({point.status.value}, within {1.0 - point.value / bound:.1%} of the best there can be)"
    return f"not proven optimal ({point.status.value})"


def _explained(name: str, plan: ModelPlan) -> str:
    """Where the time of an iteration goes, the largest part first; communication that costs no time apart."""
    total_s = plan.time_per_batch_s
    shown = {part: seconds for part, seconds in exposed_s(plan.breakdown_s).items() if seconds >= WORTH_A_WORD * total_s}
    shares = ", ".join(f"{part_text(part)} {seconds / total_s:.1%}" for part, seconds in shown.items())
    hidden = ", ".join(f"{part_text(part)} {seconds / total_s:.1%}" for part, seconds in hidden_s(plan.breakdown_s).items())
    return f"{name}: {total_s:.4g} s per batch = {shares}" + (f"; hidden beside computation: {hidden}" if hidden else "")


def _counted(result: SearchResult) -> str:
    counts = result.counts
    closed = (
        f"{counts.evaluated:,} evaluated, {counts.dominated:,} dominated, {counts.pruned:,} pruned by bounds, "
        f"{counts.infeasible:,} infeasible"
    )
    return f"{counts.space:,} design points: {closed}; {counts.plans:,} plans compared per configuration"
