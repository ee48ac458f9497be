"""The table of all points, a row for each model, with links to the points' own reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from GraphExtractor.names import label
from phaze.report.pages.points.labels import BY_NAME, shown, title_of
from phaze.report.pages.points.outcomes import unit_of
from phaze.report.sentences.designs import accelerator_text, degrees_text, exposed_s, part_text
from phaze.report.sentences.utilization import mfu_share
from phaze.report.table import Table
from phaze.studies.sweep.points_read import PointSet, ReadPoint, infeasible_text
from phaze.studies.sweep.results import PlanRow
from phaze_common.numbers import gib, rate, share, time_text

Link = Callable[[ReadPoint], str]


def points_table(points: PointSet, link: Link) -> Table:
    """Every point; ``link`` says where the first cell of its row leads (nowhere: an empty text)."""
    objective = unit_of(points)
    results = [point.result for point in points.points if point.result is not None]
    chips = any(result.accelerator is not None for result in results)
    several = any(len(result.plans) > 1 for result in results)
    columns = [
        *("point", *(() if points.sweep else ("run",)), *map(title_of, points.axes), objective),
        *(("plan of",) if several else ()),
        *(("samples/s",) if several or objective != "samples/s" else ()),
        *("iteration", *(("accelerator", "area mm²") if chips else ())),
        *("tp x pp x dp", "micro-batch of the plan", "recomputation of the plan"),
        *("devices in use", "memory GiB", "of the memory", "MFU"),
        *(("J/sample",) if chips else ()),
        *("largest part", "ended", "why"),
    ]
    rows: list[dict[str, str]] = []
    links: list[str] = []
    for point in points.points:
        found = point.result.plans if point.result is not None else ()
        for place, plan in enumerate(found or (None,)):
            first = place == 0
            cells = dict(_cells(points, point, objective)) if first else {}
            rows.append(cells | dict(_plan_cells(plan)))
            links.append(link(point) if first else "")
    words = {"run", "plan of", "accelerator", "recomputation of the plan", "largest part"}
    for key in points.axes:
        if key in BY_NAME or any(isinstance(value, str) for value in points.values(key)):
            words.add(title_of(key))
    words |= {"ended", "why"}
    return Table.of("All points", rows, columns=columns, words=words, links=links)


def _cells(points: PointSet, point: ReadPoint, objective: str) -> Iterator[tuple[str, str]]:
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
    yield "recomputation of the plan", str(plan.recompute)
    yield "devices in use", f"{plan.devices_used:,}"
    yield "memory GiB", gib(plan.memory_bytes)
    yield "MFU", mfu_share(plan.model_flops_utilization)
    if plan.energy_per_sample_j is not None:
        yield "J/sample", rate(plan.energy_per_sample_j)
    yield "largest part", f"{part_text(part)} {share(seconds / plan.time_per_batch_s)}"
