"""The best point of each group in sentences: what it reaches, with which plan, what binds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from phaze.report.pages.points.labels import (
    QUESTION,
    Series,
    fewer_axes,
    grouped,
    point_label,
    settings_label,
    shown,
    title_of,
)
from phaze.report.pages.points.outcomes import plan_of
from phaze.report.sentences.designs import (
    EQUAL,
    accelerator_text,
    capitalised,
    exposed_s,
    listed,
    part_text,
    plan_text,
)
from phaze.report.sentences.explanation import no_limits_text
from phaze.report.sentences.gains import binds
from phaze.runs.finished_run import FinishedRun
from phaze.studies.sweep.points_read import PointSet, ReadPoint, infeasible_text
from phaze_common.numbers import number, percent, time_text
from Solver.results import Limit

MOST_GROUPS = 12
MANY = {"does not fit": "do not fit"}
MOST_LIMITS = 2  # sentences of what binds, per point


@dataclass(frozen=True)
class BestOfGroup:
    """The best point of a group in words; ``point`` is None where nothing fits."""

    group: str
    point: int | None
    words: str


def group_axes(points: PointSet) -> tuple[str, ...]:
    """The axes that tell groups apart: those that say what is asked, as far as groups stay few."""
    return fewer_axes(points, [key for key in points.axes if key in QUESTION], MOST_GROUPS)


def best_points(points: PointSet) -> tuple[BestOfGroup, ...]:
    """A sentence or more per group."""
    keys = group_axes(points)
    return tuple(_of_group(points, series, keys) for series in grouped(points.points, keys))


def _of_group(points: PointSet, series: Series, keys: Sequence[str]) -> BestOfGroup:
    best, head = series.best, f"{series.label}: " if series.label else ""
    if best is None:
        reasons = listed(sorted({infeasible_text(point) for point in series.points}))
        why = sorted({point.problem for point in series.points if point.problem})
        said = f" ({why[0].rstrip('.')})" if why else ""
        count = "the point" if len(series.points) == 1 else f"all {len(series.points)} points"
        words = f"{head}{count} without a plan: {reasons}{said}."
        return BestOfGroup(series.label, None, words)
    words = " ".join(_sentences(points, series, best, keys))
    return BestOfGroup(series.label, best.number, head + words if head else capitalised(words))


def _sentences(
    points: PointSet, series: Series, best: ReadPoint, keys: Sequence[str]
) -> Iterator[str]:
    result, plan = best.result, plan_of(best)
    assert result is not None and result.value is not None  # it has a plan
    others = [key for key in points.axes if key not in keys]
    which = settings_label(best, others) if points.sweep else point_label(points, best)
    reached = f"{number(result.value)} {result.unit}"
    if result.accelerator is not None:
        reached += f" on {accelerator_text(result.accelerator)}"
    if plan is not None:
        choices = f"micro-batch {plan.micro_batch_size}, recomputation {plan.recompute}"
        reached += (
            f", {time_text(plan.time_per_batch_s)} per iteration on {plan.devices_used:,} "
            f"devices ({plan_text(plan)}, {choices})"
        )
    proof = "proven optimal" if result.optimal else "not proven optimal"
    several = len(series.points) > 1
    name = f"point {best.number}{f' ({which})' if which else ''}"
    yield f"{name} {'is best,' if several else 'reaches'} {reached}, {proof}."
    if several:
        yield from _beside(series, best, result.value)
        yield from _at_the_end(series, best, others)
    if plan is not None:
        part, seconds = next(iter(exposed_s(plan.breakdown_s).items()))
        most = percent(seconds / plan.time_per_batch_s)
        yield f"Most of the iteration is {part_text(part)}, {most}."
    yield from _binding(best.open())


def _beside(series: Series, best: ReadPoint, value: float) -> Iterator[str]:
    """How close the others come."""
    others = [point for point in series.feasible if point.result and point is not best]
    values = {point.number: point.objective for point in others}
    equal = [str(place) for place, other in values.items() if other >= value * (1 - EQUAL)]
    if equal:
        points, are = ("Point", "is") if len(equal) == 1 else ("Points", "are")
        yield f"{points} {listed(equal)} {are} just as good."
    below = [other for other in values.values() if other < value * (1 - EQUAL)]
    if below:
        yield f"The next best reaches {percent(1 - max(below) / value)} less."
    total = len(series.points)
    without = total - len(series.feasible)
    if without:
        have = "has" if without == 1 else "have"
        yield f"{number(without)} of {number(total)} points {have} no plan."


def _at_the_end(series: Series, best: ReadPoint, keys: Sequence[str]) -> Iterator[str]:
    """Which of its choices are the largest that were asked for, so that more might be better."""
    for key in keys:
        if key in QUESTION:
            continue
        own = best.value(key)
        values = [point.value(key) for point in series.points]
        numbers = {each for each in values if _is_number(each)}
        if _is_number(own) and len(numbers) > 1 and own == max(numbers):
            yield f"Its {title_of(key)}, {shown(key, own)}, is the largest searched."


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _binding(run: FinishedRun | None) -> Iterator[str]:
    """What binds the answer of a run, as the run says."""
    if run is None or run.result.best is None:
        return
    limits: list[Limit] = sorted(run.result.best.limits, key=lambda limit: -limit.unlimited_gain)
    if not limits:
        yield no_limits_text(run.folder)
        return
    found = [each for each in limits if each.binds and binds(each.unlimited_gain) == "binds"]
    yield " ".join(limit.words for limit in (found or limits)[:MOST_LIMITS])


def answer_of(points: PointSet) -> str:
    """The best of all points in a sentence, and how the points ended."""
    best, counts = Series("", points.points).best, _ended(points)
    if best is None or best.result is None:
        return f"No point has a plan: {counts}."
    reached = f"{number(best.result.value or 0.0)} {best.result.unit}"
    where = f"point {best.number} ({point_label(points, best)})"
    # what points reach can be set against each other: of one model and one objective
    if not {"model", "objective", "sequence_length"} & set(points.axes):
        return f"Best of all is {where}: {reached}. {counts}."
    return (
        f"Most is reached by {where}: {reached}; the points are not all about the same, so see "
        f"each group. {counts}."
    )


def _ended(points: PointSet) -> str:
    feasible = [point for point in points.points if point.feasible]
    others = Counter(infeasible_text(point) for point in points.points if not point.feasible)
    proven = sum(point.result is not None and point.result.optimal for point in feasible)
    has = "has" if len(feasible) == 1 else "have"
    words = f"{number(len(feasible))} of {number(len(points.points))} points {has} a plan"
    if feasible:
        some = "all" if proven == len(feasible) else number(proven)
        words += f" ({some} proven optimal)"
    for what, count in others.items():
        words += f", {number(count)} {what if count == 1 else MANY.get(what, what)}"
    return words
