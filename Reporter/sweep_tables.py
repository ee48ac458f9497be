"""A sweep for the terminal: a line per point as it ends, and the table of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from Common.progress import duration
from GraphExtractor.names import label
from Reporter.tables import new_table
from Solver.results import Objective
from Studies.settings import MODEL
from Studies.sweep.answers import PlanRow, PointAnswer
from Studies.sweep.axes import Sweep
from Studies.sweep.run import AskedPoint, SweptPoint
from Studies.sweep.table import FAILED, value_words
from Studies.words import UNITS, accelerator_words

if TYPE_CHECKING:
    from rich.table import Table

DEVICE = "device"


def point_line(sweep: Sweep, point: SweptPoint, ended: int, total: int) -> str:
    """How a point ended, the ``ended``-th of ``total``, in one line."""
    head = f"[{ended:>{len(str(total))}}/{total}] {settings_words(sweep, point.settings)}: "
    if point.point is None:
        return f"{head}failed: {point.problem}"
    took = "already there" if point.found else duration(point.point.seconds)
    return f"{head}{answer_words(point.point.answer, point.settings)} ({took}, {sweep.store.name}/{point.key})"


def settings_words(sweep: Sweep, settings: Mapping[str, Any]) -> str:
    """The model, and what tells a point from the others."""
    others = [f"{key} {value_words(settings[key])}" for key in sweep.swept if key != MODEL.key]
    return ", ".join([_model_words(settings), *others])


def answer_words(answer: PointAnswer, settings: Mapping[str, Any]) -> str:
    """The answer of a point in a few words."""
    if answer.value is None:
        return f"{answer.status.value}: {answer.reason}" if answer.reason else answer.status.value
    plan = f", {_degrees(answer.plans[0])}" if len(answer.plans) == 1 else ""
    proven = "proven" if answer.optimal else "not proven"
    return f"{_value_words(answer)} {UNITS[Objective(answer.objective)]} on {_where(answer, settings)}{plan}, {proven}"


def sweep_tables(sweep: Sweep, points: Sequence[SweptPoint]) -> list[Table]:
    """A row per point and model of it; then, where there are any, the points without an answer and why."""
    tables = [_answers_table(sweep, [point for point in points if _answered(point)], points)]
    others = [point for point in points if not _answered(point)]
    if others:
        table = new_table(
            "points without an answer", ("point", "settings", "status", "reason"), words={"settings", "status", "reason"}
        )
        for point in others:
            answer = point.point.answer if point.point else None
            status, why = (FAILED, point.problem) if answer is None else (answer.status.value, answer.reason)
            table.add_row(str(point.number), settings_words(sweep, point.settings), status, why)
        tables.append(table)
    return tables if any(map(_answered, points)) else tables[1:]


def _answers_table(sweep: Sweep, answered: Sequence[SweptPoint], points: Sequence[SweptPoint]) -> Table:
    swept = [key for key in sweep.swept if key != MODEL.key]
    answers = [point.point.answer for point in answered if point.point]
    objectives = {answer.objective for answer in answers}
    unit = UNITS[Objective(objectives.pop())] if len(objectives) == 1 else "objective"
    chips = sorted({name for answer in answers for name in answer.over_references})
    columns = (
        "point",
        "model",
        *(key.replace("_", " ") for key in swept),
        unit,
        "chip",
        "micro-batch",
        "recompute",
        "tp x pp x dp",
        "MFU",
    )
    expert = any(plan.speedup_over_expert is not None for answer in answers for plan in answer.plans)
    columns += (*(("vs expert",) if expert else ()), *(f"vs {chip}" for chip in chips), "proven", "run")
    words = {"model", "chip", "recompute", *(key.replace("_", " ") for key in swept if _is_text(points, key))}
    table = new_table(f"{sweep.name}: {len(answered)} of {len(points)} points", columns, words=words)
    for point, answer in zip(answered, answers, strict=True):
        head = [str(point.number), _model_words(point.settings), *(value_words(point.settings[key]) for key in swept)]
        over = [f"{answer.over_references[chip]:.2f}x" if chip in answer.over_references else "-" for chip in chips]
        for position, plan in enumerate(answer.plans):
            shared = [*head, _value_words(answer), _where(answer, point.settings)]
            rest = [*over, "yes" if answer.optimal else "no", f"{sweep.store.name}/{point.key}"]
            table.add_row(
                *(shared if position == 0 else [""] * len(shared)),
                *_plan_cells(plan, expert=expert),
                *(rest if position == 0 else []),
            )
    return table


def asked_rows(
    sweep: Sweep, asked: Sequence[AskedPoint], sizes: Sequence[int | None], there: Sequence[bool]
) -> list[dict[str, object]]:
    """Every point with the size of its space and whether it is finished, as rows of equal keys."""
    rows: list[dict[str, object]] = []
    for point, size, found in zip(asked, sizes, there, strict=True):
        settings = point.combination.settings
        rows.append(
            {
                "point": point.combination.number,
                "model": _model_words(settings),
                **{key: value_words(settings[key]) for key in sweep.swept if key != MODEL.key},
                "design_points": size if size is not None else "",
                "state": "already there" if found else f"cannot be: {point.problem}" if point.problem else "to compute",
            }
        )
    return rows


def _answered(point: SweptPoint) -> bool:
    return point.point is not None and point.point.answer.value is not None


def _value_words(answer: PointAnswer) -> str:
    """Five digits, without an exponent where the number is large."""
    value = answer.value or 0.0
    return f"{value:.5g}" if value < 1e5 else f"{value:.0f}"


def _where(answer: PointAnswer, settings: Mapping[str, Any]) -> str:
    return accelerator_words(answer.accelerator) if answer.accelerator else Path(str(settings.get(DEVICE, ""))).stem


def _plan_cells(plan: PlanRow, *, expert: bool) -> list[str]:
    cells = [str(plan.micro_batch_size), plan.recompute, _degrees(plan), f"{plan.model_flops_utilization:.1%}"]
    if expert:
        cells.append(f"{plan.speedup_over_expert:.2f}x" if plan.speedup_over_expert is not None else "-")
    return cells


def _degrees(plan: PlanRow) -> str:
    return f"{plan.tp} x {plan.pp} x {plan.dp}"


def _model_words(settings: Mapping[str, Any]) -> str:
    return " ".join(label(word) for word in value_words(settings[MODEL.key]).split())


def _is_text(points: Sequence[SweptPoint], key: str) -> bool:
    return any(isinstance(point.settings[key], str) for point in points)
