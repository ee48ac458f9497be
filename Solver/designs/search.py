"""The search: every configuration x memory size x shape of a problem with the best plan of each,
exactly, with a certificate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from Estimator.plans.results import Status
from GraphExtractor.names import label
from GraphExtractor.storage import load_or_extract
from phaze_common.errors import InputError
from phaze_common.numbers import number, size_text
from Solver.chip_records import ChipReport
from Solver.chip_report import chip_report
from Solver.designs.best_designs import model_plan, with_expert
from Solver.designs.confirmed_schedules import LayerSchedule, confirm_schedules, schedule_layers
from Solver.designs.costs import ModelShapes
from Solver.designs.joint import (
    Choice,
    JointOptimum,
    best_for_all_models,
    best_of_all_sizes,
    own_bests,
)
from Solver.designs.large_spaces import pruned_space
from Solver.designs.point_groups import point_group
from Solver.designs.points import PointGroup, PointStatus
from Solver.designs.proofs import proven_shapes_of_models
from Solver.designs.references import expert_of, reference_points
from Solver.designs.search_context import RemainingSpace, SearchContext
from Solver.hardware import DesignedChips
from Solver.plan_report import PlanReport
from Solver.plans.empty_spaces import why_empty
from Solver.results import Certificate, Counts, DesignPoint, HardwareReport, SearchResult, SizeRow

BOUND_DIGITS = 6  # of a bound that is told in words


@dataclass(frozen=True, eq=False)
class ScoredPoint:
    """A design point, its configuration, and the schedules behind it."""

    point: DesignPoint
    row: int
    schedules: tuple[LayerSchedule, ...]
    choices: tuple[Choice, ...]


@dataclass(frozen=True, eq=False)
class Searched:
    """The answer of a search and everything it looked at.

    ``context`` knows what each of several models reaches alone."""

    context: SearchContext
    result: SearchResult
    groups: tuple[PointGroup, ...]
    scored: tuple[ScoredPoint, ...]


def search(context: SearchContext, hardware: HardwareReport, run_directory: str) -> Searched:
    """Answer the problem of ``context``; ``hardware`` says how it was named.

    Raises:
        InputError: what the problem names does not fit together.
        PhazeError: an artefact cannot be written, or a solver failed."""
    with context.phase("bounds of the space"):
        context = pruned_space(context)
    remaining, shared = context.remaining, context.shared_incumbent
    if remaining is not None and not context.hardware.configurations:
        return nothing_left(context, remaining, hardware, run_directory)
    with context.phase("layer times"):
        shapes = proven_shapes_of_models(context)
    _refuse_empty_spaces(context, shapes)
    alone = remaining is not None and len(context.problem.models) == 1
    with context.phase("design points"):
        groups = explore(context, shapes, to_the_end=not alone)
    with context.phase("best designs"):
        context = context.knowing(own_bests(context.problem, groups))
        problem = context.problem
        sizes, objective = problem.memory_bytes, problem.objective
        if alone:
            optima = best_of_all_sizes(problem, groups)
            best_points = [group.best_evaluated(objective) for group in groups]
        else:
            optima = {size: best_for_all_models(problem, groups, size) for size in sizes}
            best_points = [group.best(objective) for group in groups]
        # After these, which may evaluate points that the search of a group pruned
        counts = count(context, groups)
        scored = tuple(
            scored_point(context, optimum, shapes, size, counts)
            for size, optimum in optima.items()
            if optimum
        )
        points = tuple(one.point for one in scored)
        references = reference_points(context, points) if shared is None else ()
        best = max(points, key=lambda point: point.value, default=None)
        if shared is not None and best is not None:
            shared.tell(best.value)
    rows = tuple(
        size_row(context, group, point)
        for group, point in zip(groups, best_points, strict=True)
        if point is not None or remaining is None  # what was pruned might fit
    )
    result = SearchResult(
        study=problem.name,
        status=best.status if best else Status.INFEASIBLE,
        hardware=hardware,
        best=best,
        per_hbm=points,
        rows=rows,
        references=references,
        counts=counts,
        run_directory=run_directory,
        reason="" if best else "; ".join(_reasons(groups)),
        own_best=dict(problem.own_best),
    )
    return Searched(context, result, tuple(groups), scored)


def _refuse_empty_spaces(context: SearchContext, shapes: Sequence[ModelShapes]) -> None:
    having, graphs = {each.model.name for each in shapes}, context.stores.graphs
    for model in context.problem.models:
        if model.name in having:
            continue
        keys = {model.graph_key(shape) for shape in model.space.shapes()}
        every = (load_or_extract(key, graphs, code=context.problem.code) for key in keys)
        layers = max((len(graph.sequence) for graph in every), default=2)
        bought = context.hardware.metrics.most_devices
        space = model.space.within(bought)
        most = "" if space is model.space else f"; max_cluster_cost buys at most {bought:,}"
        why = why_empty(space, layers, context.hardware.cluster)
        raise InputError(f"no plan of {model.name} is as asked: {why}{most}")


def nothing_left(
    context: SearchContext, remaining: RemainingSpace, hardware: HardwareReport, run_directory: str
) -> Searched:
    """The answer where bounds pruned every chip: nothing fits, or nothing beats the incumbent."""
    status, points = Status.CLOSED, remaining.points
    reason = f"nothing here is better than {number(remaining.pruned_bound, BOUND_DIGITS)}"
    if remaining.pruned_bound <= 0.0:
        models = " and ".join(label(model.name) for model in context.problem.models)
        status, reason = Status.INFEASIBLE, f"no plan of {models} fits in the memory of any chip"
    counts = Counts(points, 0, 0, pruned=points, infeasible=0, plans=0, unlisted=points)
    nothing: tuple[()] = ()
    result = SearchResult(
        study=context.problem.name,
        status=status,
        hardware=hardware,
        best=None,
        per_hbm=nothing,
        rows=nothing,
        references=nothing,
        counts=counts,
        run_directory=run_directory,
        reason=reason,
    )
    return Searched(context, result, nothing, nothing)


def explore(
    context: SearchContext, shapes: Sequence[ModelShapes], *, to_the_end: bool
) -> list[PointGroup]:
    """All point groups, by memory size as the problem lists them.

    ``to_the_end``: every point evaluated, dominated, pruned or infeasible; else many are open."""
    found: dict[int, list[PointGroup]] = {}
    larger: list[PointGroup] = []  # with the next larger memory
    for size in sorted(context.problem.memory_bytes, reverse=True):
        mine = found[size] = []
        for place, each in enumerate(shapes):
            group = point_group(context, each, size, larger[place] if larger else None)
            mine.append(group)
            if not to_the_end:
                continue
            of_model = f"{label(each.model.name)}, micro-batch {each.micro_batch_size}"
            still_open = int(np.count_nonzero(group.status == PointStatus.OPEN))
            name = f"design points of {of_model}, {size_text(size)}"
            with context.progress.phase(name, still_open) as advance:
                group.explore(advance)
        larger = mine
    return [group for size in context.problem.memory_bytes for group in found[size]]


def scored_point(
    context: SearchContext,
    optimum: JointOptimum,
    shapes: Sequence[ModelShapes],
    memory_bytes: int,
    counts: Counts,
) -> ScoredPoint:
    """Explain and certify the optimum of one memory size."""
    plans: dict[str, PlanReport] = {}
    schedules: list[LayerSchedule] = []
    confirmations = []
    for model, choice in optimum.choices.items():
        layers = schedule_layers(context, choice)
        expert = expert_of(context, model, choice, shapes, optimum.row, memory_bytes)
        plans[model] = with_expert(model_plan(context, choice, layers), expert)
        # Of a device no operators are scheduled; of parts only the best is confirmed
        if layers and context.shared_incumbent is None:
            with context.progress.phase(
                f"ILP confirmation of {label(model)}, {size_text(memory_bytes)}", len(layers)
            ) as advance:
                confirmations += confirm_schedules(layers, advance)
        schedules += layers
    optimal = (
        counts.complete
        and optimum.proven
        and not optimum.omitted
        and all(item.agrees for item in confirmations)
    )
    open_bound = optimum.best_open_bound
    if context.remaining is not None:
        # Else another memory is better, or a part is not known
        proven = context.remaining.proves(optimum.value)
        optimal = optimal and proven
        open_bound = _joined_bound(
            open_bound, context.remaining.open_bound if proven else context.remaining.pruned_bound
        )
    point = DesignPoint(
        status=Status.OPTIMAL if optimal else Status.FEASIBLE,
        optimal=optimal,
        objective=context.problem.objective,
        value=optimum.value,
        accelerator=context.hardware.accelerator(optimum.row),
        hbm_bytes=memory_bytes,
        models=plans,
        certificate=Certificate(open_bound, tuple(confirmations)),
        combine=context.problem.deciding,
        chip=_chip(context, optimum.row, plans),
    )
    return ScoredPoint(point, optimum.row, tuple(schedules), tuple(optimum.choices.values()))


def _joined_bound(open_bound: float | None, pruned_bound: float) -> float | None:
    """What no open or pruned design exceeds; None where nothing is open, or nothing is known."""
    if math.isinf(pruned_bound):
        return None if pruned_bound > 0.0 else open_bound
    return max(pruned_bound, open_bound or 0.0)


def _chip(context: SearchContext, row: int, plans: dict[str, PlanReport]) -> ChipReport | None:
    hardware = context.hardware
    if not isinstance(hardware, DesignedChips) or hardware.space is None:
        return None
    metrics = hardware.metrics.some(np.array([row]))
    return chip_report(hardware.accelerators.accelerator(row), hardware.space, metrics, plans)


def count(context: SearchContext, groups: Sequence[PointGroup]) -> Counts:
    """What became of the points of all groups."""
    status = np.concatenate([group.status for group in groups])
    each = {
        name: int(np.count_nonzero(status == PointStatus[name.upper()]))
        for name in ("evaluated", "dominated", "pruned", "infeasible")
    }
    absent = sum(int(group.absent.sum()) for group in groups)
    each["infeasible"] -= absent
    plans = {
        (group.key.model, group.key.micro_batch_size): sum(
            len(part.plans) for shape in group.shapes for part in shape.parts
        )
        for group in groups
    }
    unlisted = sum(len(group.pruned_shapes) for group in groups)
    if context.remaining is not None:
        unlisted = context.remaining.points - (len(status) - absent)
    each["pruned"] += unlisted
    return Counts(
        space=len(status) - absent + unlisted, **each, plans=sum(plans.values()), unlisted=unlisted
    )


def size_row(context: SearchContext, group: PointGroup, point: int | None) -> SizeRow:
    """The best ``point`` of one model, memory size and micro-batch size as a row."""
    key = group.key
    if point is None:
        return SizeRow(
            model=key.model,
            hbm_bytes=key.memory_bytes,
            micro_batch_size=key.micro_batch_size,
            status=Status.INFEASIBLE,
            value=0.0,
            accelerator=None,
            throughput_samples_per_s=0.0,
            reason=_why_infeasible((group,)),
        )
    row, _ = group.locate(point)
    value = float(group.objective(context.problem.objective)[point])
    proven = group.is_best(point, context.problem.objective) and not group.omitted
    if context.remaining is not None:
        proven = proven and len(context.problem.models) == 1 and context.remaining.proves(value)
    return SizeRow(
        **vars(group.plan(point)),
        model=key.model,
        hbm_bytes=key.memory_bytes,
        status=Status.OPTIMAL if proven else Status.FEASIBLE,
        value=value,
        accelerator=context.hardware.accelerator(row),
        throughput_samples_per_s=float(group.batch_samples / group.iteration_s[point]),
        reason=group.omitted,
    )


def _reasons(groups: Sequence[PointGroup]) -> list[str]:
    alike = dict[tuple[str, float], list[PointGroup]]()
    for group in groups:
        alike.setdefault((group.key.model, group.key.memory_bytes), []).append(group)
    return sorted({_why_infeasible(each) for each in alike.values()})


def _why_infeasible(groups: Sequence[PointGroup]) -> str:
    """What keeps a model from fitting one size of memory, which does not depend on the chip."""
    least, group = math.inf, groups[0]
    for part in [part for each in groups for shape in each.shapes for part in shape.parts]:
        least = part.plans.leanest_bytes(least)
    needed = f"; the leanest needs {size_text(least)}" if math.isfinite(least) else ""
    # Of a chip with so much memory
    most = group.metrics.some(np.flatnonzero(group.held)).most_devices
    bought = "" if most is None else f" of the {most:,} devices at most that max_cluster_cost buys"
    return (
        f"no plan of {label(group.key.model)} fits {size_text(group.key.memory_bytes)} per "
        f"device{bought}{needed}"
    )
