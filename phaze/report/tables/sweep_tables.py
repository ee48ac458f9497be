"""A sweep for the terminal: a line per point as it ends, and the table of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from GraphExtractor.names import label
from phaze.report.sentences.designs import accelerator_text, degrees_text
from phaze.report.sentences.utilization import mfu_share
from phaze.report.table import Table
from phaze.settings.config_files import MODELS
from phaze.studies.sweep.axes import Sweep
from phaze.studies.sweep.results import PlanRow, PointResult
from phaze.studies.sweep.run import IMPOSSIBLE, ResolvedPoint, SweptPoint
from phaze.studies.sweep.table import value_text
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
    filled = f", fills {share(result.memory_share or 0.0)} of the memory"
    return (
        f"{_value_text(result)} {result.unit} on {_where(result, settings)}{plan}, "
        f"{proven}{'' if result.most_share is None else filled}"
    )


def sweep_tables(sweep: Sweep, points: Sequence[SweptPoint]) -> list[Table]:
    """A row per point and model of it; then the points without a result and why."""
    done = list(filter(_has_result, points))
    tables = [_results_table(sweep, done, points)] if done else []
    others = [
        {
            "point": str(point.number),
            "settings": settings_text(sweep, point.settings),
            "status": point.status,
            "reason": point.point.result.reason if point.point else point.problem,
        }
        for point in points
        if not _has_result(point)
    ]
    rest = Table.of("points without an answer", others, words={"settings", "status", "reason"})
    return [*tables, rest] if others else tables


def _results_table(sweep: Sweep, done: Sequence[SweptPoint], points: Sequence[SweptPoint]) -> Table:
    swept = {key: key.replace("_", " ") for key in sweep.swept if key != MODELS}
    results = [point.point.result for point in done if point.point]
    units = {result.unit for result in results}
    unit = units.pop() if len(units) == 1 else "objective"
    chips = sorted({name for result in results for name in result.over_references})
    shares = {result.most_share for result in results if result.most_share is not None}
    plans = [plan for result in results for plan in result.plans]
    expert = any(plan.speedup_over_expert is not None for plan in plans)
    bought = any(plan.cluster_usd is not None for plan in plans)
    rows = []
    for point, result in zip(done, results, strict=True):
        memory = "-" if result.memory_share is None else share(result.memory_share)
        head = {
            "point": str(point.number),
            "model": _model_text(point.settings),
            **{name: value_text(point.settings[key]) for key, name in swept.items()},
            unit: _value_text(result),
            **({f"within {percent(min(shares))} of memory": _room_text(result)} if shares else {}),
            "chip": _where(result, point.settings),
            "memory used": memory,
        }
        over = {f"vs {chip}": _times(result.over_references.get(chip)) for chip in chips}
        rest = {"proven": "yes" if result.optimal else "no"}
        rest["run"] = f"{sweep.store.name}/{point.key}"
        for place, plan in enumerate(result.plans):
            cells = _plan_cells(plan, expert=expert, bought=bought)
            row = {**head, **cells, **over, **rest}
            rows.append(row if place == 0 else dict.fromkeys(row, "") | cells)
    words = {"model", "chip", "recompute"}
    versus = *(f"vs {chip}" for chip in chips), "vs expert"
    return Table.of(
        f"{sweep.name}: {len(done)} of {len(points)} points",
        rows,
        words=words | {name for key, name in swept.items() if _is_text(points, key)},
        spared=(
            *("run", "recompute", "micro-batch", *versus, "proven", "MFU", "memory used"),
            "tp x pp x dp",
        ),
    )


def asked_rows(
    sweep: Sweep, asked: Sequence[ResolvedPoint], sizes: Sequence[int | None], there: Sequence[bool]
) -> list[dict[str, object]]:
    """Every point with the size of its space and whether it is finished, as rows of equal keys."""
    rows: list[dict[str, object]] = []
    for point, size, found in zip(asked, sizes, there, strict=True):
        settings = point.combination.settings
        problem = f"{IMPOSSIBLE}: {point.problem}" if point.problem else "to compute"
        row = {"point": point.combination.number, "model": _model_text(settings)}
        row |= {key: value_text(settings[key]) for key in sweep.swept if key != MODELS}
        row["design_points"] = "" if size is None else size
        rows.append(row | {"state": "already there" if found else problem})
    return rows


def _has_result(point: SweptPoint) -> bool:
    return point.point is not None and point.point.result.value is not None


def _value_text(result: PointResult) -> str:
    return number(result.value or 0.0, FINE_DIGITS)


def _room_text(result: PointResult) -> str:
    """What the best reaches that leaves room in memory; nothing where the optimum does."""
    if result.most_share is None:
        return ""
    value = result.value_with_room
    return "nothing fits" if value is None else number(value, FINE_DIGITS)


def _where(result: PointResult, settings: Mapping[str, Any]) -> str:
    if result.accelerator:
        return accelerator_text(result.accelerator)
    return Path(str(settings.get(DEVICE, ""))).stem


def _plan_cells(plan: PlanRow, *, expert: bool, bought: bool) -> dict[str, str]:
    usd = "-" if plan.cluster_usd is None else number(plan.cluster_usd)
    return {
        "micro-batch": str(plan.micro_batch_size),
        "recompute": str(plan.recompute),
        "tp x pp x dp": degrees_text(plan),
        "MFU": mfu_share(plan.model_flops_utilization),
        **({"devices": str(plan.devices_used), "$": usd} if bought else {}),
        **({"vs expert": _times(plan.speedup_over_expert)} if expert else {}),
    }


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x"


def _model_text(settings: Mapping[str, Any]) -> str:
    return " ".join(label(word) for word in value_text(settings[MODELS]).split())


def _is_text(points: Sequence[SweptPoint], key: str) -> bool:
    return any(isinstance(point.settings[key], str) for point in points)
