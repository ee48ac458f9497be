"""Predictions against measured runs as tables for the terminal, and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from Common.records import to_json
from Plans.results import Breakdown
from Reporter.tables import new_table
from Validation.records import ValidationReport

if TYPE_CHECKING:
    from rich.table import Table

WORST = 10
LONGEST_SOURCE = 70  # characters; the JSON has the whole of it
LARGEST_PARTS = 4
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


def report_tables(report: ValidationReport) -> list[Table]:
    """Statistics by source, the runs predicted worst, those that were skipped, and the assumptions that were needed."""
    tables = [source_table(report)]
    if any(not run.skipped for run in report.runs):
        tables.append(worst_table(report))
    if any(run.skipped for run in report.runs):
        tables.append(skipped_table(report))
    return [*tables, assumption_table(report)] if report.rules else tables


def report_json(report: ValidationReport) -> bytes:
    """``overall`` and ``sources`` statistics, every run, and the rules behind the assumptions. Errors are fractions."""
    whole: dict[str, Any] = json.loads(to_json(report))
    overall = {key: value for key, value in whole["overall"].items() if key != "source"}
    runs = [{**record, "skipped": run.skipped} for run, record in zip(report.runs, whole["runs"], strict=True)]
    ordered = {"overall": overall, "sources": whole["sources"], "file": whole["file"], "rules": whole["rules"], "runs": runs}
    return json.dumps(ordered, indent=2, allow_nan=False).encode()


def source_table(report: ValidationReport) -> Table:
    """How far predictions are off, by source and over all."""
    columns = ("source", "runs", "skipped", "time MAPE", "time bias", "Spearman", "memory MAPE")
    table = new_table("predicted against measured iteration times", columns, words={"source"})
    for statistics in (*report.sources, report.overall):
        table.add_row(
            _short(statistics.source),
            str(statistics.rows),
            str(statistics.skipped),
            _share(statistics.time_mape),
            _signed(statistics.time_bias),
            "-" if statistics.spearman is None else f"{statistics.spearman:.3f}",
            _share(statistics.memory_mape),
        )
    return table


def worst_table(report: ValidationReport) -> Table:
    """The runs predicted worst, and what their predicted time consists of."""
    columns = ("line", "model", "devices", "tp x pp x dp", "micro-batch", "measured s", "predicted s", "error", "predicted as")
    table = new_table(f"the {WORST} runs predicted worst", columns, words={"model", "predicted as"})
    for run in report.worst(WORST):
        if run.plan is None or run.breakdown_s is None:
            continue
        table.add_row(
            str(run.line),
            run.model,
            str(run.devices),
            f"{run.plan.tp} x {run.plan.pp} x {run.plan.dp}",
            str(run.plan.micro_batch_size),
            f"{run.measured_s:.4g}",
            f"{run.predicted_s:.4g}",
            _signed(run.error),
            _parts(run.breakdown_s),
        )
    return table


def skipped_table(report: ValidationReport) -> Table:
    """The runs that were not predicted, and why."""
    table = new_table("skipped", ("line", "model", "reason"), words={"model", "reason"})
    for run in report.runs:
        if run.skipped:
            table.add_row(str(run.line), run.model, run.reason)
    return table


def assumption_table(report: ValidationReport) -> Table:
    """What runs do not say, and the rule that filled it in."""
    table = new_table("assumed", ("what", "runs", "by the rule"), words={"what", "by the rule"})
    for rule in report.rules:
        table.add_row(rule.says, str(rule.runs), rule.reason)
    return table


def _parts(breakdown: Breakdown) -> str:
    """The largest parts of the predicted time."""
    seconds = sorted(((getattr(breakdown, field), name) for name, field in PARTS.items()), reverse=True)
    return ", ".join(f"{name} {each / breakdown.total_s:.0%}" for each, name in seconds[:LARGEST_PARTS] if each > 0)


def _short(source: str) -> str:
    return source if len(source) <= LONGEST_SOURCE else source[: LONGEST_SOURCE - 1] + "…"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1%}"
