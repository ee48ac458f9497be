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
from phaze_common.files import content_key
from phaze_common.numbers import number, size_text
from phaze_common.records import to_json
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
from Solver.designs.large_spaces import screened
from Solver.designs.model_shapes import model_shapes
from Solver.designs.point_store import PointStore
from Solver.designs.points import PointGroup, PointStatus
from Solver.designs.proofs import proven_shapes
from Solver.designs.pursuit import Pursuit
from Solver.designs.references import expert_of, reference_points
from Solver.designs.run import Kept, Run
from Solver.hardware import DesignedChips
from Solver.plans.empty_spaces import why_empty
from Solver.results import (
    Certificate,
    Counts,
    DesignPoint,
    HardwareReport,
    ModelPlan,
    SearchResult,
    SizeRow,
)

CLOSED_DIGITS = 6  # of a bound that is told in words


@dataclass(frozen=True, eq=False)
class ScoredPoint:
    """A design point, its configuration, and the schedules behind it."""

    point: DesignPoint
    row: int
    schedules: tuple[LayerSchedule, ...]
    choices: tuple[Choice, ...]


@dataclass(frozen=True, eq=False)
class Searched:
    """The answer of a search and everything it looked at; ``run`` knows what each of several models
    reaches alone."""

    run: Run
    result: SearchResult
    groups: tuple[PointGroup, ...]
    scored: tuple[ScoredPoint, ...]


def search(run: Run, hardware: HardwareReport, run_directory: str) -> Searched:
    """Answer the problem of ``run``; ``hardware`` says how it was named.

    Raises:
        InputError: what the problem names does not fit together.
        PhazeError: an artefact cannot be written, or a solver failed.
    """
    with run.phase("bounds of the space"):
        run = screened(run)
    if run.kept is not None and not run.hardware.configurations:
        return nothing_left(run, run.kept, hardware, run_directory)
    problem = run.problem
    with run.phase("layer times"):
        shapes = [
            proven_shapes(run, each)
            for model in problem.models
            for each in model_shapes(run, model)
        ]
    for model in problem.models:
        if not any(each.model.name == model.name for each in shapes):
            keys = {model.graph_key(shape) for shape in model.space.shapes()}
            layers = {
                len(load_or_extract(key, run.stores.graphs, code=problem.code).sequence)
                for key in keys
            }
            bought = run.hardware.figures.most_devices
            space = model.space.within(bought)
            why = why_empty(space, max(layers, default=2), run.hardware.cluster)
            most = "" if space is model.space else f"; max_cluster_cost buys at most {bought:,}"
            raise InputError(f"no plan of {model.name} is as asked: {why}{most}")
    alone = run.kept is not None and len(problem.models) == 1
    with run.phase("design points"):
        groups = explore(run, shapes, to_the_end=not alone)
    with run.phase("best designs"):
        run = run.knowing(own_bests(problem, groups))
        problem = run.problem
        if alone:
            optima = best_of_all_sizes(problem, groups)
            best_points = [group.best_evaluated(problem.objective) for group in groups]
        else:
            optima = {
                size: best_for_all_models(problem, groups, size) for size in problem.memory_bytes
            }
            best_points = [group.best(problem.objective) for group in groups]
        # After these, which may evaluate points that the search of a group pruned
        counts = count(run, groups)
        scored = tuple(
            scored_point(run, optimum, shapes, size, counts)
            for size, optimum in optima.items()
            if optimum
        )
        references = (
            ()
            if run.best_known is not None
            else reference_points(run, [one.point for one in scored])
        )
        best = max((one.point for one in scored), key=lambda point: point.value, default=None)
        if run.best_known is not None and best is not None:
            run.best_known.tell(best.value)
    rows = tuple(
        size_row(run, group, point)
        for group, point in zip(groups, best_points, strict=True)
        if point is not None or run.kept is None  # what was closed might fit
    )
    result = SearchResult(
        study=problem.name,
        status=best.status if best else Status.INFEASIBLE,
        hardware=hardware,
        best=best,
        per_hbm=tuple(one.point for one in scored),
        rows=rows,
        references=references,
        counts=counts,
        run_directory=run_directory,
        reason="" if best else "; ".join(_reasons(groups)),
        own_best=dict(problem.own_best),
    )
    return Searched(run, result, tuple(groups), scored)


def nothing_left(run: Run, kept: Kept, hardware: HardwareReport, run_directory: str) -> Searched:
    """The answer where bounds closed every chip: nothing fits or, in a part of a space, nothing is
    as good as what is known."""
    fits = kept.closed > 0.0
    better = number(kept.closed, CLOSED_DIGITS)
    models = " and ".join(label(model.name) for model in run.problem.models)
    result = SearchResult(
        study=run.problem.name,
        status=Status.CLOSED if fits else Status.INFEASIBLE,
        hardware=hardware,
        best=None,
        per_hbm=(),
        rows=(),
        references=(),
        counts=Counts(
            space=kept.points,
            evaluated=0,
            dominated=0,
            pruned=kept.points,
            infeasible=0,
            plans=0,
            unlisted=kept.points,
        ),
        run_directory=run_directory,
        reason=f"nothing here is better than {better}"
        if fits
        else f"no plan of {models} fits in the memory of any chip",
    )
    return Searched(run, result, (), ())


def explore(run: Run, shapes: Sequence[ModelShapes], *, to_the_end: bool) -> list[PointGroup]:
    """All point groups, by memory size as the problem lists them.

    ``to_the_end``: every point evaluated, dominated, pruned or infeasible; else many are open.
    """
    found: dict[int, list[PointGroup]] = {}
    roomier: list[PointGroup | None] = [None] * len(shapes)
    for size in sorted(run.problem.memory_bytes, reverse=True):
        found[size] = []
        for place, each in enumerate(shapes):
            group = point_group(run, each, size, roomier[place])
            if to_the_end:
                named = (
                    f"{label(each.model.name)}, micro-batch {each.micro_batch_size}, "
                    f"{size_text(size)}"
                )
                still_open = int(np.count_nonzero(group.status == PointStatus.OPEN))
                with run.progress.phase(f"design points of {named}", still_open) as advance:
                    group.explore(advance)
            found[size].append(group)
            roomier[place] = group
    return [group for size in run.problem.memory_bytes for group in found[size]]


def point_group(
    run: Run, shapes: ModelShapes, memory_bytes: int, roomier: PointGroup | None = None
) -> PointGroup:
    """The design points of one model, micro-batch size and memory size, with what an earlier run
    finished."""
    folder = run.stores.points
    if folder is not None:
        graphs = dict.fromkeys(to_json(shape.graph).decode() for shape in shapes.shapes)
        # Which more effort may have shortened since an earlier run
        times = [shape.times_key for shape in shapes.shapes]
        decisive = () if run.hardware.figures.purchase is None else (run.problem.objective.value,)
        key = (
            run.pricing,
            shapes.model.space,
            memory_bytes,
            shapes.micro_batch_size,
            list(graphs),
            times,
            *decisive,
        )
        folder /= content_key(*key)
    return PointGroup.of(
        shapes,
        memory_bytes,
        run.hardware.figures,
        PointStore(folder),
        Pursuit.of(run.problem),
        roomier,
    )


def scored_point(
    run: Run,
    optimum: JointOptimum,
    shapes: Sequence[ModelShapes],
    memory_bytes: int,
    counts: Counts,
) -> ScoredPoint:
    """Explain and certify the optimum of one memory size."""
    plans: dict[str, ModelPlan] = {}
    schedules: list[LayerSchedule] = []
    confirmations = []
    for model, choice in optimum.choices.items():
        layers = schedule_layers(run, choice)
        expert = expert_of(run, model, choice, shapes, optimum.row, memory_bytes)
        plans[model] = with_expert(model_plan(run, choice, layers), expert)
        # Of a device no operators are scheduled; of parts only the best is confirmed
        if layers and run.best_known is None:
            with run.progress.phase(
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
    if run.kept is not None:
        # Else another memory is better, or a part is not known
        proven = run.kept.proves(optimum.value)
        optimal = optimal and proven
        open_bound = _joined_bound(open_bound, run.kept.open_bound if proven else run.kept.closed)
    point = DesignPoint(
        status=Status.OPTIMAL if optimal else Status.FEASIBLE,
        optimal=optimal,
        objective=run.problem.objective,
        value=optimum.value,
        accelerator=run.hardware.accelerator(optimum.row),
        hbm_bytes=memory_bytes,
        models=plans,
        certificate=Certificate(open_bound, tuple(confirmations)),
        combine=run.problem.deciding,
        chip=_chip(run, optimum.row, plans),
    )
    return ScoredPoint(point, optimum.row, tuple(schedules), tuple(optimum.choices.values()))


def _joined_bound(open_bound: float | None, closed: float) -> float | None:
    """What no design exceeds that was not evaluated, be it open (None: none was) or closed; None
    where that is not known."""
    if math.isinf(closed):
        return None if closed > 0.0 else open_bound
    return max(closed, open_bound or 0.0)


def _chip(run: Run, row: int, plans: dict[str, ModelPlan]) -> ChipReport | None:
    """What the chip of a configuration takes; None where that is not known."""
    hardware = run.hardware
    if not isinstance(hardware, DesignedChips) or hardware.space is None:
        return None
    figures = hardware.figures.some(np.array([row]))
    return chip_report(hardware.accelerators.accelerator(row), hardware.space, figures, plans)


def count(run: Run, groups: Sequence[PointGroup]) -> Counts:
    """What became of the points of all groups."""
    status = np.concatenate([group.status for group in groups])
    each = {
        name: int(np.count_nonzero(status == PointStatus[name.upper()]))
        for name in ("evaluated", "dominated", "pruned", "infeasible")
    }
    absent = sum(int(group.absent.sum()) for group in groups)
    each["infeasible"] -= absent
    plans = {(group.key.model, group.key.micro_batch_size): _plans(group) for group in groups}
    unlisted = sum(len(group.closed) for group in groups)
    if run.kept is not None:
        unlisted = run.kept.points - (len(status) - absent)
    each["pruned"] += unlisted
    return Counts(
        space=len(status) - absent + unlisted, **each, plans=sum(plans.values()), unlisted=unlisted
    )


def _plans(group: PointGroup) -> int:
    return sum(len(part.plans) for shape in group.shapes for part in shape.parts)


def size_row(run: Run, group: PointGroup, point: int | None) -> SizeRow:
    """The best ``point`` of one model, memory size and micro-batch size as a row."""
    key = group.key
    if point is None:
        reason = _why_infeasible((group,))
        return SizeRow(
            key.model,
            key.memory_bytes,
            key.micro_batch_size,
            Status.INFEASIBLE,
            0.0,
            None,
            0.0,
            "",
            0,
            0,
            0,
            reason,
        )
    row, shape = group.locate(point)
    value = float(group.objective(run.problem.objective)[point])
    proven = group.is_best(point, run.problem.objective) and not group.omitted
    if run.kept is not None:
        proven = proven and len(run.problem.models) == 1 and run.kept.proves(value)
    return SizeRow(
        model=key.model,
        hbm_bytes=key.memory_bytes,
        micro_batch_size=key.micro_batch_size,
        status=Status.OPTIMAL if proven else Status.FEASIBLE,
        value=value,
        accelerator=run.hardware.accelerator(row),
        throughput_samples_per_s=float(group.batch_samples / group.iteration_s[point]),
        recompute=shape.plan.recompute.value,
        tp=shape.plan.tp,
        pp=int(group.pp[point]),
        dp=int(group.dp[point]),
        reason=group.omitted,
        cp=shape.plan.cp,
        ep=shape.plan.ep,
        layout=shape.plan.layout_name.value,
        tp2=shape.plan.tp2,
        exchange=shape.plan.exchange.value,
    )


def _reasons(groups: Sequence[PointGroup]) -> list[str]:
    """What keeps each model from each size of memory, whatever the micro-batch."""
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
    most = group.figures.some(np.flatnonzero(group.held)).most_devices
    bought = "" if most is None else f" of the {most:,} devices at most that max_cluster_cost buys"
    return (
        f"no plan of {label(group.key.model)} fits {size_text(group.key.memory_bytes)} per "
        f"device{bought}{needed}"
    )
