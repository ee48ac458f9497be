"""The answer of a search as a run directory: written when it is found, and again with what follows
from it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from phaze.report.sentences.designs import accelerator_text, unit_of, whole_plan_text
from phaze.runs.design_tables import designs_table, plans_table
from phaze.runs.kept_answers import kept_answer
from phaze.runs.run_directory import (
    POINT_MEANING,
    Manifest,
    PartsRecord,
    RunFiles,
    add_to_run,
    has_answer,
    write_run,
)
from phaze.settings.request import Request
from phaze.studies.fronts import fronts_of
from phaze.studies.limits.limits import limits_of
from phaze.studies.limits.memory_room import tight_memory
from phaze.studies.prediction_errors import error_between_plans, plans_within_error, time_intervals
from phaze.studies.sweep.points import key_of
from phaze_common.errors import DefectError
from phaze_common.numbers import number
from Solver.designs.axis_values import accelerator_axes
from Solver.designs.confirmed_schedules import kept_schedules
from Solver.designs.operator_records import layer_tensors, scheduled_operators, streamed_operators
from Solver.designs.parted_spaces import part_report
from Solver.designs.plan_axes import plan_axes
from Solver.designs.points import PointGroup
from Solver.designs.schedule_records import KeptSchedules, PricedOperator
from Solver.designs.search import ScoredPoint, Searched
from Solver.designs.search_context import SearchContext
from Solver.hardware import DesignedChips, ExistingDevice
from Solver.paths.search import search_heterogeneous
from Solver.results import AxisValues, DesignPoint, HardwareRecords, PlansInNoise, SearchResult

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    import pandas as pd


def _found(searched: Searched) -> Searched:
    """``searched`` with how sure the times of its best design are, and which hardware it is."""
    result, best = searched.result, searched.result.best
    if best is None:
        return searched
    best, size = _with_intervals(best, result.hardware.records), float(best.hbm_bytes)
    chosen = replace(result.hardware, accelerator=best.accelerator, memory_bytes=size)
    return replace(searched, result=replace(result, best=best, hardware=chosen))


def _completed(request: Request, searched: Searched, *, limits: bool) -> SearchResult:
    """The result with what is known about its best design: the best within some of the memory, and
    on devices, or where the ``limits`` are wanted, what limits it."""
    run, result, best = searched.context, searched.result, searched.result.best
    if best is not None:
        with run.phase("room in memory"):
            tight = tight_memory(run, best)
        if limits or isinstance(run.hardware, ExistingDevice):
            best = with_limits(searched)
        result = replace(result, best=best, tight_memory=tight, in_noise=_in_noise(searched))
    if request.search.heterogeneous:
        with run.phase("stages that differ"):
            result = with_stages_that_differ(run, result)
    return result


def with_limits(searched: Searched) -> DesignPoint | None:
    """The best design with what limits it and what other values of the axes allow.

    On designed chips that is a search under each of many circumstances.
    """
    run, best = searched.context, searched.result.best
    if best is None:
        return None
    with run.phase("limits"):
        limits = limits_of(run, best, searched.groups)
    with run.phase("axes"):
        kept = kept_answer(
            run, "axes", _Axes, best, lambda: _axes(run, searched), *_points(searched)
        )
    return replace(best, limits=limits, axes=kept.axes)


def _points(searched: Searched) -> list[str]:
    """Names of the design points that were compared."""
    return [group.stored_as for group in searched.groups]


def _of_a_part(searched: Searched, part: str) -> Searched:
    """``searched`` of a part of a space with the axes of its accelerators: all else is about the
    best of all parts."""
    run, result, best = searched.context, searched.result, searched.result.best
    axes = accelerator_axes(run, searched.groups, result.per_hbm)
    best = best and replace(best, axes=axes)
    result = replace(result, best=best, part=part_report(run, result, part))
    return replace(searched, result=result)


@dataclass(frozen=True)
class _Noise:
    """What is kept of plans that predictions cannot tell apart."""

    in_noise: PlansInNoise | None


def _in_noise(searched: Searched) -> PlansInNoise | None:
    """Plans that predictions cannot tell from the best, on devices whose like was measured."""
    group, row = _best_group(searched)
    hardware, best = searched.context.hardware, searched.result.best
    if group is None or best is None or len(best.models) > 1:
        return None
    if not isinstance(hardware, ExistingDevice):
        return None
    (plan,) = best.models.values()
    if not plan.time_intervals:
        return None
    same = (group.key.model, best.hbm_bytes)
    groups = [e for e in searched.groups if (e.key.model, e.key.memory_bytes) == same]
    kept = kept_answer(
        searched.context,
        "noise",
        _Noise,
        best,
        lambda: _Noise(plans_within_error(groups, row, plan.time_per_batch_s)),
        error_between_plans(),
        *_points(searched),
    )
    return kept.in_noise


def _with_intervals(best: DesignPoint, records: HardwareRecords) -> DesignPoint:
    """``best`` with how sure the times of its plans are."""
    models = dict(best.models)
    for name, plan in best.models.items():
        found = time_intervals(records, plan.model, plan.devices_used, plan.time_per_batch_s)
        models[name] = replace(plan, time_intervals=found)
    return replace(best, models=models)


def _log_answer(best: DesignPoint) -> None:
    """Log what was written before more about it is searched."""
    chip = "" if best.accelerator is None else f"{accelerator_text(best.accelerator)}: "
    plans = ", ".join(f"{name} {whole_plan_text(plan)}" for name, plan in best.models.items())
    proven = "proven optimal" if best.optimal else "the best found so far"
    logger.info(
        "found %s%s %s, %s",
        chip,
        number(best.value),
        unit_of(best),
        f"{plans}, {proven}",
    )


def write_answer(
    request: Request,
    searched: Searched,
    contents: dict[str, str],
    parts: PartsRecord | None = None,
    others: Sequence[pd.DataFrame] = (),
    *,
    question: str = "",
    limits: bool = False,
) -> SearchResult:
    """Write the run directory of ``request``, and give its result.

    The answer is written as soon as it is found, and once more with what follows from it: on
    devices, or where the ``limits`` are asked for, with what limits it. Where its space was
    searched in ``parts`` their design points are those of the ``others`` in place of those of the
    join. ``question`` is the content key of what was asked; the run does not state it where a file
    was changed since.

    Raises:
        PhazeError: the disk is full or the folder is not writable.
    """
    folder, part = request.folders.run, request.hardware.space_part
    searched = _found(searched) if part is None else _of_a_part(searched, part)
    files = _run_files(request, searched, contents, others)
    files = replace(files, manifest=replace(files.manifest, parts=parts))
    # of the same study, as an earlier run completed it
    complete = part is None and has_answer(folder, files.result)
    if not complete:
        files = write_run(folder, files, csv=request.output.csv)
    if part is not None:
        return files.result
    if files.result.best is not None:
        _log_answer(files.result.best)
    searched = replace(searched, result=files.result)
    result = _completed(request, searched, limits=limits or complete)
    if question and key_of(request) != question:
        question = ""
    phases = tuple(searched.context.phases)
    manifest = replace(files.manifest, phases=phases, question=question)
    if complete:
        write_run(folder, replace(files, result=result, manifest=manifest), csv=request.output.csv)
    else:
        add_to_run(folder, manifest, result)
    return result


def _run_files(
    request: Request, searched: Searched, contents: dict[str, str], others: Sequence[pd.DataFrame]
) -> RunFiles:
    """The files of the run, whose result has its fronts."""
    import pandas as pd

    run, front = searched.context, searched.context.problem.front
    with run.phase("files"):
        if others:
            designs = pd.concat(others, ignore_index=True)
        else:
            designs = designs_table(searched.groups, run.hardware, front)
        result = replace(searched.result, fronts=fronts_of(designs, front))
        return _files(request, replace(searched, result=result), contents, designs)


def with_stages_that_differ(run: SearchContext, result: SearchResult) -> SearchResult:
    """``result`` with the best plan whose stages may differ, beside the best of stages alike."""
    model, memory_bytes = run.problem.models[0], max(run.problem.memory_bytes)
    uniform = None if result.best is None else result.best.models[model.name]
    answer = search_heterogeneous(run, model, memory_bytes, uniform)
    return replace(result, heterogeneous=answer)


def _files(
    request: Request, searched: Searched, contents: dict[str, str], designs: pd.DataFrame
) -> RunFiles:
    run, result, hardware = searched.context, searched.result, searched.context.hardware
    certificates = [one.point.certificate for one in searched.scored if one.point.certificate]
    confirmed = {item.ilp_solver for each in certificates for item in each.schedules}
    manifest = Manifest.of(
        contents,
        schedule_solver=hardware.solver.name if isinstance(hardware, DesignedChips) else "",
        confirmation_solvers=tuple(sorted(confirmed)),
        phases=tuple(run.phases),
        point_meaning=POINT_MEANING,
        counts=result.counts,
        front=run.problem.front,
        pareto_front_points=int(designs["on_front"].sum()),
    )
    kept = [kept_schedules(one.point.hbm_bytes, one.schedules) for one in searched.scored]
    choices = [choice for one in _best_of(searched) for choice in one.choices]
    schedules = KeptSchedules(
        tuple(chain.from_iterable(kept)),
        tuple(_operators(run, searched)),
        tuple(chain.from_iterable(map(layer_tensors, choices))),
    )
    plans = plans_table(*_best_group(searched))
    return RunFiles(request.to_yaml(), manifest, result, schedules, designs, plans)


def _best_of(searched: Searched) -> list[ScoredPoint]:
    """The best design, where there is one."""
    best = searched.result.best
    if best is None:
        return []
    return [one for one in searched.scored if one.point.hbm_bytes == best.hbm_bytes]


def _operators(run: SearchContext, searched: Searched) -> Iterator[PricedOperator]:
    """Those of the best design."""
    for one in _best_of(searched):
        if one.schedules:
            yield from scheduled_operators(run, one.row, one.schedules)
        elif isinstance(run.hardware, ExistingDevice):
            for choice in one.choices:
                yield from streamed_operators(run, choice)


@dataclass(frozen=True)
class _Axes:
    """What is kept of them."""

    axes: tuple[AxisValues, ...]


def _axes(run: SearchContext, searched: Searched) -> _Axes:
    best, (_, row) = searched.result.best, _best_group(searched)
    of_plans = () if best is None else plan_axes(run, searched.groups, best, row)
    return _Axes((*accelerator_axes(run, searched.groups, searched.result.per_hbm), *of_plans))


def _best_group(searched: Searched) -> tuple[PointGroup | None, int]:
    """The points of the best design's first model, and its configuration."""
    best = searched.result.best
    if best is None:
        return None, 0
    model, plan = next(iter(best.models.items()))
    wanted = (model, best.hbm_bytes, plan.micro_batch_size)
    for group in searched.groups:
        key = group.key
        if (key.model, key.memory_bytes, key.micro_batch_size) == wanted:
            return group, _best_of(searched)[0].row
    raise DefectError(f"the search compared no plans of {model} like its best")
