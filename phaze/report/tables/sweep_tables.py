"""A sweep for the terminal: a line per point as it ends, and the table of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from GraphExtractor.names import label
from phaze.report.conventions import mfu_share
from phaze.report.tables.text_tables import TextTable, new_table
from phaze.settings.config_files import MODELS
from phaze.studies.sweep.axes import Sweep
from phaze.studies.sweep.results import PlanRow, PointResult
from phaze.studies.sweep.run import IMPOSSIBLE, ResolvedPoint, SweptPoint
from phaze.studies.sweep.table import value_text
from phaze.studies.wording import accelerator_text, degrees_text, unit_of_result
from phaze_common.numbers import FINE_DIGITS, number, percent, share
from phaze_common.progress import duration

DEVICE = "device"


def point_line(sweep: Sweep, point: SweptPoint, ended: int, total: int) -> str:
    """How a point ended, the ``ended``-th of ``total``, in one line."""
    head = f"[{ended:>{len(str(total))}}/{total}] {settings_text(sweep, point.settings)}: "
    if point.point is None:
        return f"{head}{point.status}: {point.problem}"
    took = "already there" if point.found else duration(point.point.seconds)
    return (
        f"{head}{result_text(point.point.result, point.settings)} ({took}, "
        f"{sweep.store.name}/{point.key})"
    )


def settings_text(sweep: Sweep, settings: Mapping[str, Any]) -> str:
    """The model, and what tells a point from the others."""
    others = [f"{key} {value_text(settings[key])}" for key in sweep.swept if key != MODELS]
    return ", ".join([_model_text(settings), *others])


def result_text(result: PointResult, settings: Mapping[str, Any]) -> str:
    """The result of a point in a few words."""
    if result.value is None:
        return f"{result.status.value}: {result.reason}" if result.reason else result.status.value
    plan = f", {degrees_text(result.plans[0])}" if len(result.plans) == 1 else ""
    proven = "proven" if result.optimal else "not proven"
    tight = (
        f", fills {share(result.memory_share or 0.0)} of the memory"
        if result.most_share is not None
        else ""
    )
    return (
        f"{_value_text(result)} {unit_of_result(result)} on {_where(result, settings)}{plan}, "
        f"{proven}{tight}"
    )


def sweep_tables(sweep: Sweep, points: Sequence[SweptPoint]) -> list[TextTable]:
    """A row per point and model of it; then, where there are any, the points without a result and
    why."""
    tables = [_results_table(sweep, [point for point in points if _has_result(point)], points)]
    others = [point for point in points if not _has_result(point)]
    if others:
        table = new_table(
            "points without an answer",
            ("point", "settings", "status", "reason"),
            words={"settings", "status", "reason"},
        )
        for point in others:
            result = point.point.result if point.point else None
            why = point.problem if result is None else result.reason
            table.add_row(
                str(point.number), settings_text(sweep, point.settings), point.status, why
            )
        tables.append(table)
    return tables if any(map(_has_result, points)) else tables[1:]


def _results_table(
    sweep: Sweep, done: Sequence[SweptPoint], points: Sequence[SweptPoint]
) -> TextTable:
    swept = [key for key in sweep.swept if key != MODELS]
    results = [point.point.result for point in done if point.point]
    units = {unit_of_result(result) for result in results}
    unit = units.pop() if len(units) == 1 else "objective"
    chips = sorted({name for result in results for name in result.over_references})
    shares = {result.most_share for result in results if result.most_share is not None}
    room = [f"within {percent(min(shares))} of memory"] if shares else []
    columns = (
        "point",
        "model",
        *(key.replace("_", " ") for key in swept),
        unit,
        *room,
        "chip",
        "memory used",
        "micro-batch",
        "recompute",
        "tp x pp x dp",
        "MFU",
    )
    expert = any(
        plan.speedup_over_expert is not None for result in results for plan in result.plans
    )
    bought = any(plan.cluster_usd is not None for result in results for plan in result.plans)
    columns += (
        *(("devices", "$") if bought else ()),
        *(("vs expert",) if expert else ()),
        *(f"vs {chip}" for chip in chips),
        "proven",
        "run",
    )
    words = {
        "model",
        "chip",
        "recompute",
        *(key.replace("_", " ") for key in swept if _is_text(points, key)),
    }
    versus = *(f"vs {chip}" for chip in chips), "vs expert"
    spared = (
        "run",
        "recompute",
        "micro-batch",
        *versus,
        "proven",
        "MFU",
        "memory used",
        "tp x pp x dp",
    )
    table = new_table(
        f"{sweep.name}: {len(done)} of {len(points)} points", columns, words=words, spared=spared
    )
    for point, result in zip(done, results, strict=True):
        head = [
            str(point.number),
            _model_text(point.settings),
            *(value_text(point.settings[key]) for key in swept),
        ]
        over = [
            f"{result.over_references[chip]:.2f}x" if chip in result.over_references else "-"
            for chip in chips
        ]
        for position, plan in enumerate(result.plans):
            memory = "-" if result.memory_share is None else share(result.memory_share)
            shared = [
                *head,
                _value_text(result),
                *([_room_text(result)] if room else []),
                _where(result, point.settings),
                memory,
            ]
            rest = [*over, "yes" if result.optimal else "no", f"{sweep.store.name}/{point.key}"]
            table.add_row(
                *(shared if position == 0 else [""] * len(shared)),
                *_plan_cells(plan, expert=expert, bought=bought),
                *(rest if position == 0 else []),
            )
    return table


def asked_rows(
    sweep: Sweep, asked: Sequence[ResolvedPoint], sizes: Sequence[int | None], there: Sequence[bool]
) -> list[dict[str, object]]:
    """Every point with the size of its space and whether it is finished, as rows of equal keys."""
    rows: list[dict[str, object]] = []
    for point, size, found in zip(asked, sizes, there, strict=True):
        settings = point.combination.settings
        rows.append(
            {
                "point": point.combination.number,
                "model": _model_text(settings),
                **{key: value_text(settings[key]) for key in sweep.swept if key != MODELS},
                "design_points": size if size is not None else "",
                "state": "already there"
                if found
                else f"{IMPOSSIBLE}: {point.problem}"
                if point.problem
                else "to compute",
            }
        )
    return rows


def _has_result(point: SweptPoint) -> bool:
    return point.point is not None and point.point.result.value is not None


def _value_text(result: PointResult) -> str:
    return number(result.value or 0.0, FINE_DIGITS)


def _room_text(result: PointResult) -> str:
    """What the best reaches that leaves room in memory; nothing where the optimum does."""
    if result.most_share is None:
        return ""
    return (
        "nothing fits"
        if result.value_with_room is None
        else number(result.value_with_room, FINE_DIGITS)
    )


def _where(result: PointResult, settings: Mapping[str, Any]) -> str:
    return (
        accelerator_text(result.accelerator)
        if result.accelerator
        else Path(str(settings.get(DEVICE, ""))).stem
    )


def _plan_cells(plan: PlanRow, *, expert: bool, bought: bool) -> list[str]:
    cells = [
        str(plan.micro_batch_size),
        plan.recompute,
        degrees_text(plan),
        mfu_share(plan.model_flops_utilization),
    ]
    if bought:
        cells += [
            str(plan.devices_used),
            "-" if plan.cluster_usd is None else number(plan.cluster_usd),
        ]
    if expert:
        cells.append(
            f"{plan.speedup_over_expert:.2f}x" if plan.speedup_over_expert is not None else "-"
        )
    return cells


def _model_text(settings: Mapping[str, Any]) -> str:
    return " ".join(label(word) for word in value_text(settings[MODELS]).split())


def _is_text(points: Sequence[SweptPoint], key: str) -> bool:
    return any(isinstance(point.settings[key], str) for point in points)
