"""Predictions against measured runs as tables for the terminal, and as JSON."""

from __future__ import annotations

import json
from typing import Any

from Estimator.plans.results import Breakdown
from phaze.report.explained_runs import coverage_table, explanation_tables, misfit_table
from phaze.report.tables.text_tables import TextTable, new_table
from phaze.validation.explained import ErrorExplanation
from phaze.validation.intervals import coverage
from phaze.validation.records import ValidationReport
from phaze_common.numbers import number
from phaze_common.records import to_json

WORST = 10
MOST_UNSTATED = 12  # lines of a table; the JSON has all
LONGEST_SOURCE = 70  # characters; the JSON has the whole of it
LARGEST_PARTS = 4
MIB = 2**20
GB = 1e9
PARTS = {
    "arithmetic": "arithmetic_s",
    "memory-bound": "memory_bound_s",
    "launch": "launch_s",
    "recomputation": "recompute_s",
    "tp": "tensor_communication_s",
    "sp": "sequence_communication_s",
    "cp": "context_communication_s",
    "ep": "expert_communication_s",
    "pp": "pipeline_communication_s",
    "dp": "data_communication_s",
    "bubble": "bubble_s",
    "optimizer": "optimizer_s",
}


def report_tables(
    report: ValidationReport, explained: ErrorExplanation | None = None
) -> list[TextTable]:
    """Statistics by source, how many fit, the runs predicted worst, those skipped, and the
    assumptions that were needed.

    With what explains the errors, where that is asked for.
    """
    tables, covered = [source_table(report)], coverage(report.runs)
    if covered:
        tables.append(coverage_table(covered))
    if explained is not None:
        tables += explanation_tables(explained)
    if report.not_fitting:
        tables.append(memory_table(report) if explained is None else misfit_table(report))
    if any(run.unstated for run in report.runs):
        tables.append(unstated_table(report))
    if any(run.plan_file for run in report.runs):
        tables.append(plan_table(report))
    if any(not run.skipped for run in report.runs):
        tables.append(worst_table(report))
    if any(run.skipped for run in report.runs):
        tables.append(skipped_table(report))
    tables += [assumption_table(report)] if report.rules else []
    return [*tables, unread_table(report)] if report.unread else tables


def report_json(report: ValidationReport, explained: ErrorExplanation | None = None) -> bytes:
    """``overall`` and ``sources`` statistics, how many runs do not fit, every run, and the rules.
    Errors are fractions."""
    whole: dict[str, Any] = json.loads(to_json(report))
    overall = {key: value for key, value in whole["overall"].items() if key != "source"}
    runs = [
        {**record, "skipped": run.skipped}
        for run, record in zip(report.runs, whole["runs"], strict=True)
    ]
    ordered = {"overall": overall, "sources": whole["sources"], "not_fitting": report.not_fitting}
    ordered["not_fitting_by_source"] = {
        each.source: report.not_fitting_of(each.source) for each in report.sources
    }
    ordered["coverage"] = [json.loads(to_json(each)) for each in coverage(report.runs)]
    ordered |= {} if explained is None else {"explanation": json.loads(to_json(explained))}
    ordered |= {
        "file": whole["file"],
        "unread_columns": whole["unread"],
        "rules": whole["rules"],
        "runs": runs,
    }
    return json.dumps(ordered, indent=2, allow_nan=False).encode()


def source_table(report: ValidationReport) -> TextTable:
    """How far predictions are off, by source and over all."""
    columns = (
        "source",
        "runs",
        "skipped",
        "time MAPE",
        "time bias",
        "Spearman",
        "memory MAPE",
        "too large",
        "fitted to it",
    )
    spared = ("Spearman", "skipped", "memory MAPE", "too large", "fitted to it")
    table = new_table(
        "predicted against measured iteration times",
        columns,
        words={"source", "fitted to it"},
        spared=spared,
    )
    for statistics in (*report.sources, report.overall):
        table.add_row(
            _short(statistics.source),
            str(statistics.rows),
            str(statistics.skipped),
            _share(statistics.time_mape),
            _signed(statistics.time_bias),
            "-" if statistics.spearman is None else f"{statistics.spearman:.3f}",
            _share(statistics.memory_mape),
            str(
                report.not_fitting
                if statistics is report.overall
                else report.not_fitting_of(statistics.source)
            ),
            statistics.fitted or "-",
        )
    return table


def memory_table(report: ValidationReport) -> TextTable:
    """The runs that are predicted not to fit in memory."""
    count = report.not_fitting
    runs, they = ("run is", "it") if count == 1 else ("runs are", "they")
    table = new_table(
        f"{count} {runs} predicted not to fit though {they} ran",
        ("line", "model", "GB", "recompute"),
        words={"model"},
    )
    for run in report.runs:
        if run.fits is False and run.predicted_memory_bytes is not None:
            recompute = "-" if run.plan is None else run.plan.recompute
            table.add_row(
                str(run.line), run.model, f"{run.predicted_memory_bytes / GB:.1f}", recompute
            )
    return table


def plan_table(report: ValidationReport) -> TextTable:
    """Every run of a plan from a file: time and memory, measured and predicted."""
    columns = (
        "line",
        "plan",
        "devices",
        "measured s",
        "predicted s",
        "error",
        "measured MiB",
        "predicted MiB",
        "memory error",
    )
    table = new_table(
        "runs of plans whose stages differ",
        columns,
        words={"plan"},
        spared=("devices", "measured MiB", "predicted MiB"),
    )
    for run in report.runs:
        if run.plan_file and run.measured_s is not None and run.predicted_s is not None:
            memory = (run.measured_memory_bytes, run.predicted_memory_bytes)
            table.add_row(
                str(run.line),
                run.plan_file,
                str(run.devices),
                number(run.measured_s),
                number(run.predicted_s),
                _signed(run.error),
                *("-" if value is None else f"{value / MIB:.0f}" for value in memory),
                _signed(run.memory_error),
            )
    return table


def worst_table(report: ValidationReport) -> TextTable:
    """The runs predicted worst, and what their predicted time consists of."""
    columns = (
        "line",
        "model",
        "devices",
        "tp x pp x dp",
        "micro-batch",
        "measured s",
        "predicted s",
        "error",
        "predicted as",
    )
    spared = ("predicted as", "micro-batch", "devices", "tp x pp x dp")
    table = new_table(
        f"the {WORST} runs predicted worst", columns, words={"model", "predicted as"}, spared=spared
    )
    for run in report.worst(WORST):
        if run.breakdown_s is None or run.measured_s is None or run.predicted_s is None:
            continue
        layout = (
            run.plan_file if run.plan is None else f"{run.plan.tp} x {run.plan.pp} x {run.plan.dp}"
        )
        table.add_row(
            str(run.line),
            run.model,
            str(run.devices),
            layout,
            "-" if run.plan is None else str(run.plan.micro_batch_size),
            number(run.measured_s),
            number(run.predicted_s),
            _signed(run.error),
            _parts(run.breakdown_s),
        )
    return table


def unstated_table(report: ValidationReport) -> TextTable:
    """What runs do not say of micro-batch and recomputation: the plan that was taken, and how far
    others that fit are from it."""
    chosen = [run for run in report.runs if run.unstated and run.plan]
    title = f"{len(chosen)} runs do not state all of their plan: the fastest that fits is taken"
    table = new_table(
        title,
        ("line", "model", "taken", "of plans", "others take"),
        words={"model", "taken"},
        spared=("of plans",),
    )
    for run in chosen[:MOST_UNSTATED]:
        assert run.unstated and run.plan
        names = {
            "micro_batch": f"micro-batch {run.plan.micro_batch_size}",
            "recompute": f"recomputation {run.plan.recompute}",
        }
        taken, slowest = (
            ", ".join(names[each] for each in run.unstated.settings),
            run.unstated.slowest,
        )
        others = f"{run.unstated.fastest:.2f}x to {slowest:.2f}x" if run.unstated.plans > 1 else "-"
        table.add_row(str(run.line), run.model, taken, str(run.unstated.plans), others)
    if len(chosen) > MOST_UNSTATED:
        table.add_row("", f"and {len(chosen) - MOST_UNSTATED} more, in the JSON")
    return table


def unread_table(report: ValidationReport) -> TextTable:
    """Columns of the file that nothing reads."""
    table = new_table("columns that are not read", ("columns",), words={"columns"})
    table.add_row(", ".join(report.unread))
    return table


def skipped_table(report: ValidationReport) -> TextTable:
    """The runs that were not predicted, and why."""
    table = new_table("skipped", ("line", "model", "reason"), words={"model", "reason"})
    for run in report.runs:
        if run.skipped:
            table.add_row(str(run.line), run.model, run.reason)
    return table


def assumption_table(report: ValidationReport) -> TextTable:
    """What runs do not say, and the rule that filled it in."""
    table = new_table("assumed", ("what", "runs", "by the rule"), words={"what", "by the rule"})
    for rule in report.rules:
        table.add_row(rule.says, str(rule.runs), rule.reason)
    return table


def _parts(breakdown: Breakdown) -> str:
    """The largest parts of the predicted time."""
    seconds = sorted(
        ((getattr(breakdown, field), name) for name, field in PARTS.items()), reverse=True
    )
    return ", ".join(
        f"{name} {each / breakdown.total_s:.0%}"
        for each, name in seconds[:LARGEST_PARTS]
        if each > 0
    )


def _short(source: str) -> str:
    return source if len(source) <= LONGEST_SOURCE else source[: LONGEST_SOURCE - 1] + "…"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1%}"
