"""Winners and reference chips as full design points: plans of every model, the expert's beside them, the certificate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from Common.progress import SilentProgress
from Common.units import GIB
from Estimator.chips.accelerator import AcceleratorSet
from Estimator.chips.design_space import ReferenceChip
from GraphExtractor.graph import ModelGraph
from Solver.results import (
    Certificate,
    Counts,
    DesignPoint,
    ExpertReport,
    ModelPlan,
    ReferencePoint,
    ScheduleConfirmation,
    Status,
)
from Solver.search.baselines import expert_plans
from Solver.search.doubts import model_inputs
from Solver.search.inputs import ModelInputs, extract_graphs, point_group
from Solver.search.joint import JointOptimum, best_for_all_models
from Solver.search.run import Run
from Solver.search.winner_schedules import LayerSchedule, confirm_schedules, schedule_layers
from Solver.search.winners import expert_report, model_plan, with_expert


@dataclass(frozen=True, eq=False)
class ScoredPoint:
    """A design point and the schedules behind it."""

    point: DesignPoint
    schedules: tuple[LayerSchedule, ...]


def scored_point(run: Run, optimum: JointOptimum, inputs: Sequence[ModelInputs], hbm_bytes: int, counts: Counts) -> ScoredPoint:
    """Explain and certify the optimum of one HBM size."""
    plans: dict[str, ModelPlan] = {}
    schedules: list[LayerSchedule] = []
    confirmations: list[ScheduleConfirmation] = []
    for model, choice in optimum.choices.items():
        item = _inputs_of(inputs, model, choice.group.key.micro_batch_size)
        layers = schedule_layers(run, choice, item)
        plans[model] = with_expert(model_plan(run, choice, item, layers), _expert(run, item, optimum.row, hbm_bytes))
        with run.progress.phase(f"ILP confirmation of {model}, {hbm_bytes / GIB:g} GiB", len(layers)) as advance:
            confirmations += confirm_schedules(run, layers, item, optimum.row, advance)
        schedules += layers
    proven = all(item.proven for item in inputs) and all(item.agrees for item in confirmations)
    optimal = counts.complete and proven and not optimum.lost
    point = DesignPoint(
        status=Status.OPTIMAL if optimal else Status.FEASIBLE,
        optimal=optimal,
        objective=run.study.objective,
        value=optimum.value,
        accelerator=run.hardware.accelerators.accelerator(optimum.row),
        hbm_bytes=hbm_bytes,
        models=plans,
        certificate=Certificate(optimum.best_open_bound if proven or not optimum.lost else None, tuple(confirmations)),
    )
    return ScoredPoint(point, tuple(schedules))


def reference_points(
    run: Run, graphs: Sequence[tuple[ModelGraph, ...]], best: Sequence[DesignPoint]
) -> tuple[ReferencePoint, ...]:
    """Known chips with the best plan on each, for every HBM size, compared with the optimum ``best`` of that size."""
    points = []
    with run.progress.phase("known chips", len(run.hardware.references)) as advance:
        for chip in run.hardware.references:
            alone = replace(run.on(AcceleratorSet.of([chip.accelerator])), progress=SilentProgress())
            inputs = [model_inputs(alone, model_graphs) for model_graphs in graphs]
            for hbm_bytes in run.study.hbm_sizes_bytes:
                optimum_value = next((point.value for point in best if point.hbm_bytes == hbm_bytes), None)
                points.append(_reference_point(alone, chip, inputs, hbm_bytes, optimum_value))
            advance(1)
    return tuple(points)


def _reference_point(
    run: Run, chip: ReferenceChip, inputs: Sequence[ModelInputs], hbm_bytes: int, optimum_value: float | None
) -> ReferencePoint:
    groups = [point_group(run, item, hbm_bytes) for item in inputs]
    optimum = best_for_all_models(run.study, groups, hbm_bytes)
    plans: dict[str, ModelPlan] = {}
    if optimum:
        for model, choice in optimum.choices.items():
            item = _inputs_of(inputs, model, choice.group.key.micro_batch_size)
            plans[model] = model_plan(run, choice, item, schedule_layers(run, choice, item))
    optimal = optimum is not None and not optimum.lost and all(item.proven for item in inputs)
    best_status = Status.OPTIMAL if optimal else Status.FEASIBLE
    return ReferencePoint(
        name=chip.name,
        source=chip.source,
        status=best_status if optimum else Status.INFEASIBLE,
        accelerator=chip.accelerator,
        hbm_bytes=hbm_bytes,
        value=optimum.value if optimum else 0.0,
        best_over_reference=optimum_value / optimum.value if optimum and optimum_value is not None else None,
        models=plans,
    )


def _expert(run: Run, item: ModelInputs, row: int, hbm_bytes: int) -> ExpertReport | None:
    """The published plan of the model on accelerator ``row``; a width that is not searched is estimated for that chip alone."""
    expert = expert_plans().plans.get(item.model)
    if expert is None:
        return None
    if expert.tp in run.study.tp_widths:
        return expert_report(run, expert, item, row, hbm_bytes)
    alone = run.on(AcceleratorSet.of([run.hardware.accelerators.accelerator(row)])).with_widths(expert.tp)
    with run.progress.phase(f"expert plan of {item.model}", 1) as advance:
        graphs = extract_graphs(alone, item.model, item.micro_batch_size, advance)
    return expert_report(alone, expert, model_inputs(alone, graphs), 0, hbm_bytes)


def _inputs_of(inputs: Sequence[ModelInputs], model: str, micro_batch_size: int) -> ModelInputs:
    return next(item for item in inputs if (item.model, item.micro_batch_size) == (model, micro_batch_size))
