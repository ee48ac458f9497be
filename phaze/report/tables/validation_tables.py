"""Predictions against measured runs as tables for the terminal, and as JSON."""

from __future__ import annotations

import json
from typing import Any

from Estimator.plans.plan import plan_mapping
from Estimator.plans.results import Breakdown
from phaze.report.explained_runs import coverage_table, explanation_tables, misfit_table
from phaze.report.table import Table, shortened
from phaze.validation.explained import ErrorExplanation
from phaze.validation.intervals import coverage
from phaze.validation.pairs import controlled_pairs, effects, off_first
from phaze.validation.records import RunPlan, ValidationReport
from phaze_common.numbers import number
from phaze_common.records import to_json

WORST = 10
MOST_PAIRS = 12  # as below
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
) -> list[Table]:
    """Statistics by source, fits, the worst runs, those skipped, and assumptions.

    With what explains the errors, where that is asked for.
    """
    covered, first = coverage(report.runs), [source_table(report)]
    first += [coverage_table(covered)] if covered else []
    first += [] if explained is None else explanation_tables(explained)
    unread = {"columns": ", ".join(report.unread)}
    others = [
        memory_table(report) if explained is None else misfit_table(report),
        effects_table(report),
        pairs_table(report),
        unstated_table(report),
        plan_table(report),
        worst_table(report),
        skipped_table(report),
        assumption_table(report),
        Table.of("columns that are not read", [unread] if report.unread else [], words={"columns"}),
    ]
    return [*first, *(table for table in others if table.rows)]


def report_json(report: ValidationReport, explained: ErrorExplanation | None = None) -> bytes:
    """Statistics, how many runs do not fit, every run, and the rules. Errors are fractions."""
    whole: dict[str, Any] = json.loads(to_json(report))
    overall = {key: value for key, value in whole["overall"].items() if key != "source"}
    runs = [
        {**record, "plan": _plan_json(run.plan, record["plan"]), "skipped": run.skipped}
        for run, record in zip(report.runs, whole["runs"], strict=True)
    ]
    ordered = {"overall": overall, "sources": whole["sources"], "not_fitting": report.not_fitting}
    ordered["not_fitting_by_source"] = {
        each.source: report.not_fitting_of(each.source) for each in report.sources
    }
    ordered["coverage"] = [json.loads(to_json(each)) for each in coverage(report.runs)]
    ordered["controlled_pairs"] = [
        json.loads(to_json(each)) for each in controlled_pairs(report.runs)
    ]
    ordered |= {} if explained is None else {"explanation": json.loads(to_json(explained))}
    ordered |= {
        "file": whole["file"],
        "unread_columns": whole["unread"],
        "rules": whole["rules"],
        "runs": runs,
    }
    return json.dumps(ordered, indent=2, allow_nan=False).encode()


def _plan_json(plan: RunPlan | None, record: dict[str, Any] | None) -> dict[str, Any] | None:
    """The plan of a run in one mapping, its degrees by the keys of their settings."""
    if plan is None or record is None:
        return None
    return {name: value for name, value in record.items() if name != "degrees"} | plan_mapping(
        plan.degrees
    )


def source_table(report: ValidationReport) -> Table:
    """How far predictions are off, by source and over all."""
    rows = []
    for each in (*report.sources, report.overall):
        whole = each is report.overall
        rows.append(
            {
                "source": shortened(each.source, LONGEST_SOURCE),
                "runs": str(each.rows),
                "skipped": str(each.skipped),
                "time MAPE": _share(each.time_mape),
                "time bias": _signed(each.time_bias),
                "Spearman": "-" if each.spearman is None else f"{each.spearman:.3f}",
                "memory MAPE": _share(each.memory_mape),
                "too large": str(
                    report.not_fitting if whole else report.not_fitting_of(each.source)
                ),
                "fitted to it": each.fitted or "-",
            }
        )
    return Table.of(
        "predicted against measured iteration times",
        rows,
        words={"source", "fitted to it"},
        spared=("Spearman", "skipped", "memory MAPE", "too large", "fitted to it"),
    )


def memory_table(report: ValidationReport) -> Table:
    """The runs that are predicted not to fit in memory."""
    count = report.not_fitting
    runs, they = ("run is", "it") if count == 1 else ("runs are", "they")
    rows = (
        {
            "line": str(run.line),
            "model": run.model,
            "GB": f"{run.predicted_memory_bytes / GB:.1f}",
            "recompute": "-" if run.degrees is None else run.degrees.recompute,
        }
        for run in report.runs
        if run.fits is False and run.predicted_memory_bytes is not None
    )
    title = f"{count} {runs} predicted not to fit though {they} ran"
    return Table.of(title, rows, columns=("line", "model", "GB", "recompute"), words={"model"})


def effects_table(report: ValidationReport) -> Table:
    """What one choice is worth, measured and predicted, by the axis that it is made of."""
    rows = [
        {
            "differing in": each.title,
            "pairs": str(each.pairs),
            "direction right": str(each.right),
            "within ten points": str(each.close),
        }
        for each in effects(controlled_pairs(report.runs))
    ]
    title = "pairs of runs that differ in one choice"
    return Table.of(title, rows, words={"differing in"})


def pairs_table(report: ValidationReport) -> Table:
    """The pairs, those whose effect is predicted worst first."""
    pairs = off_first(controlled_pairs(report.runs))
    rows = [
        {
            "lines": f"{each.lines[0]}, {each.lines[1]}",
            "model": each.model,
            "differing in": f"{each.key} {each.values[0]}, {each.values[1]}",
            "measured": f"{each.measured:.2f}x",
            "predicted": f"{each.predicted:.2f}x",
            "direction": "right" if each.sign_right else "wrong",
        }
        for each in pairs[:MOST_PAIRS]
    ]
    if len(pairs) > MOST_PAIRS:
        rows.append({"model": f"and {len(pairs) - MOST_PAIRS} more, in the JSON"})
    return Table.of(
        "these pairs, the slower run first, those that are predicted worst first",
        rows,
        words={"model", "differing in", "direction"},
        spared=("model",),
    )


def plan_table(report: ValidationReport) -> Table:
    """Every run of a plan from a file: time and memory, measured and predicted."""

    def mib(value: float | None) -> str:
        return "-" if value is None else f"{value / MIB:.0f}"

    rows = (
        {
            "line": str(run.line),
            "plan": run.plan_file,
            "devices": str(run.devices),
            "measured s": number(run.measured_s),
            "predicted s": number(run.predicted_s),
            "error": _signed(run.error),
            "measured MiB": mib(run.measured_memory_bytes),
            "predicted MiB": mib(run.predicted_memory_bytes),
            "memory error": _signed(run.memory_error),
        }
        for run in report.runs
        if run.plan_file and run.measured_s is not None and run.predicted_s is not None
    )
    return Table.of(
        "runs of plans whose stages differ",
        rows,
        words={"plan"},
        spared=("devices", "measured MiB", "predicted MiB"),
    )


def worst_table(report: ValidationReport) -> Table:
    """The runs predicted worst, and what their predicted time consists of."""
    rows = []
    for run in report.worst(WORST):
        if run.breakdown_s is None or run.measured_s is None or run.predicted_s is None:
            continue
        plan = run.degrees
        rows.append(
            {
                "line": str(run.line),
                "model": run.model,
                "devices": str(run.devices),
                "tp x pp x dp": f"{plan.tp} x {plan.pp} x {plan.dp}" if plan else run.plan_file,
                "micro-batch": str(plan.micro_batch_size) if plan else "-",
                "measured s": number(run.measured_s),
                "predicted s": number(run.predicted_s),
                "error": _signed(run.error),
                "predicted as": _parts(run.breakdown_s),
            }
        )
    return Table.of(
        f"the {WORST} runs predicted worst",
        rows,
        words={"model", "predicted as"},
        spared=("predicted as", "micro-batch", "devices", "tp x pp x dp"),
    )


def unstated_table(report: ValidationReport) -> Table:
    """Runs that do not state their plan: the one that was taken, and how far others are from it."""
    chosen = [(run, run.unstated, run.plan) for run in report.runs if run.unstated and run.plan]
    rows = []
    for run, unstated, plan in chosen[:MOST_UNSTATED]:
        assert unstated and plan
        names = {
            "micro_batch": f"micro-batch {plan.degrees.micro_batch_size}",
            "recompute": f"recomputation {plan.degrees.recompute}",
        }
        others = f"{unstated.fastest:.2f}x to {unstated.slowest:.2f}x"
        rows.append(
            {
                "line": str(run.line),
                "model": run.model,
                "taken": ", ".join(names[each] for each in unstated.settings),
                "of plans": str(unstated.plans),
                "others take": others if unstated.plans > 1 else "-",
            }
        )
    if len(chosen) > MOST_UNSTATED:
        rows.append({"model": f"and {len(chosen) - MOST_UNSTATED} more, in the JSON"})
    return Table.of(
        f"{len(chosen)} runs do not state all of their plan: the fastest that fits is taken",
        rows,
        words={"model", "taken"},
        spared=("of plans",),
    )


def skipped_table(report: ValidationReport) -> Table:
    """The runs that were not predicted, and why."""
    rows = (
        {"line": str(run.line), "model": run.model, "reason": run.reason}
        for run in report.runs
        if run.skipped
    )
    return Table.of("skipped", rows, words={"model", "reason"})


def assumption_table(report: ValidationReport) -> Table:
    """What runs do not say, and the rule that filled it in."""
    rows = (
        {"what": rule.says, "runs": str(rule.runs), "by the rule": rule.reason}
        for rule in report.rules
    )
    return Table.of("assumed", rows, words={"what", "by the rule"})


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


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1%}"
