"""The table of all points, a row each and one more for each further model, with links to the
points' own reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from GraphExtractor.names import label
from phaze.report.conventions import mfu_share
from phaze.report.pages.figures import PageTable
from phaze.report.pages.points.labels import BY_NAME, shown, title_of
from phaze.report.pages.points.outcomes import unit_of
from phaze.studies.sweep.points_read import PointSet, ReadPoint, infeasible_text
from phaze.studies.sweep.results import PlanRow
from phaze.studies.wording import accelerator_text, degrees_text, exposed_s, part_text
from phaze_common.numbers import gib, rate, share, time_text

Link = Callable[[ReadPoint], str]


def points_table(points: PointSet, link: Link) -> PageTable:
    """Every point; ``link`` says where the first cell of its row leads (nowhere: an empty text)."""
    objective = unit_of(points)
    settings = tuple(title_of(key) for key in points.axes)
    own = () if points.sweep else ("run",)
    chips = any(
        point.result is not None and point.result.accelerator is not None for point in points.points
    )
    several = any(
        point.result is not None and len(point.result.plans) > 1 for point in points.points
    )
    columns = (
        "point",
        *own,
        *settings,
        objective,
        *(("plan of",) if several else ()),
        *((("samples/s"),) if several or objective != "samples/s" else ()),
        "iteration",
        *(("accelerator", "area mm²") if chips else ()),
        "tp x pp x dp",
        "micro-batch of the plan",
        "recomputation of the plan",
        "devices in use",
        "memory GiB",
        "of the memory",
        "MFU",
        *(("J/sample",) if chips else ()),
        "largest part",
        "ended",
        "why",
    )
    rows: list[tuple[str, ...]] = []
    links: list[str] = []
    for point in points.points:
        plans: Sequence[PlanRow | None] = (
            point.result.plans if point.result is not None and point.result.plans else (None,)
        )
        for place, plan in enumerate(plans):
            cells = (
                dict(_cells(points, point, plan, objective))
                if place == 0
                else dict(_plan_cells(plan))
            )
            if place == 0:
                cells |= dict(_plan_cells(plan))
            rows.append(tuple(cells.get(column, "") for column in columns))
            links.append(link(point) if place == 0 else "")
    words = {
        "run",
        "plan of",
        "accelerator",
        "recomputation of the plan",
        "largest part",
        "ended",
        "why",
    }
    texts = {
        title_of(key)
        for key in points.axes
        if key in BY_NAME or any(isinstance(value, str) for value in points.values(key))
    }
    return PageTable(
        "All points", columns, tuple(rows), frozenset(words | texts), links=tuple(links)
    )


def _cells(
    points: PointSet, point: ReadPoint, plan: PlanRow | None, objective: str
) -> Iterator[tuple[str, str]]:
    yield "point", str(point.number)
    yield "run", point.source
    for key in points.axes:
        yield title_of(key), shown(key, point.value(key))
    result = point.result
    yield "why", point.problem
    if result is None or result.value is None:
        yield "ended", infeasible_text(point)
        return
    yield objective, rate(result.value)
    yield "ended", "proven optimal" if result.optimal else "not proven"
    if result.memory_share is not None:
        yield "of the memory", share(result.memory_share)
    if result.accelerator is not None:
        yield "accelerator", accelerator_text(result.accelerator)
        yield "area mm²", f"{result.accelerator.area_mm2:.2f}"


def _plan_cells(plan: PlanRow | None) -> Iterator[tuple[str, str]]:
    if plan is None:
        return
    part, seconds = next(iter(exposed_s(plan.breakdown_s).items()))
    yield "plan of", label(plan.model)
    yield "samples/s", rate(plan.throughput_samples_per_s)
    yield "iteration", time_text(plan.time_per_batch_s)
    yield "tp x pp x dp", degrees_text(plan)
    yield "micro-batch of the plan", str(plan.micro_batch_size)
    yield "recomputation of the plan", plan.recompute
    yield "devices in use", f"{plan.devices_used:,}"
    yield "memory GiB", gib(plan.memory_bytes)
    yield "MFU", mfu_share(plan.model_flops_utilization)
    if plan.energy_per_sample_j is not None:
        yield "J/sample", rate(plan.energy_per_sample_j)
    yield "largest part", f"{part_text(part)} {share(seconds / plan.time_per_batch_s)}"
