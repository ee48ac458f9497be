"""The result of a point of a sweep, as its row of the table needs it: nothing in it depends on how often it was interrupted."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from Solver.plan_search.results import FoundPlan, PlanAnswer

from Estimator.chips.accelerator import Accelerator
from Plans.results import Status
from Solver.results import DesignPoint, ModelPlan, SearchResult


@dataclass(frozen=True)
class PlanRow:
    """The best plan of one model. ``breakdown_s`` says where the seconds of an iteration go, by the names of the run's records.

    None stands where a kind of search does not tell. ``memory_bytes`` is that of the fullest device.
    """

    model: str
    throughput_samples_per_s: float
    time_per_batch_s: float
    time_per_batch_bound_s: float | None
    micro_batch_size: int
    recompute: str
    tp: int
    pp: int
    dp: int
    ep: int | None
    interleave: int | None
    sequence_parallel: bool | None
    zero_stage: int | None
    group_order: str | None
    micro_batches_per_pipeline: int
    devices_used: int
    memory_bytes: float
    model_flops_utilization: float
    energy_per_sample_j: float | None
    speedup_over_expert: float | None
    breakdown_s: dict[str, float]


@dataclass(frozen=True)
class PointResult:
    """The result of one point. ``value`` is that of the objective and ``bound`` what nothing searched can exceed, where known.

    ``over_references`` is by how much the optimum beats each known chip; ``design_points`` the size of the space.
    """

    status: Status
    optimal: bool
    objective: str
    value: float | None
    bound: float | None
    reason: str
    accelerator: Accelerator | None
    hbm_bytes: int | None
    plans: tuple[PlanRow, ...]
    over_references: dict[str, float]
    design_points: int


def of_search(result: SearchResult) -> PointResult:
    """The result of a search over accelerators."""
    best = result.best
    objective = best.objective.value if best else ""
    if best is None:
        return PointResult(result.status, False, objective, None, None, result.reason, None, None, (), {}, result.counts.space)
    over = {
        chip.name: chip.best_over_reference
        for chip in result.references
        if chip.hbm_bytes == best.hbm_bytes and chip.best_over_reference is not None
    }
    return PointResult(
        status=best.status,
        optimal=best.optimal,
        objective=objective,
        value=best.value,
        bound=_bound(best),
        reason="; ".join(sorted({plan.plans_lost for plan in best.models.values() if plan.plans_lost})),
        accelerator=best.accelerator,
        hbm_bytes=best.hbm_bytes,
        plans=tuple(_plan_row(model, plan) for model, plan in best.models.items()),
        over_references=over,
        design_points=result.counts.space,
    )


def of_plan_search(answer: PlanAnswer) -> PointResult:
    """The result of a search on devices that exist."""
    plans = tuple(_plan_row(model, plan) for model, plan in answer.models.items())
    return PointResult(
        status=answer.status,
        optimal=answer.optimal,
        objective=answer.objective,
        value=answer.value,
        bound=_throughput_bound(answer),
        reason=answer.reason,
        accelerator=None,
        hbm_bytes=None,
        plans=plans,
        over_references={},
        design_points=answer.counts.space,
    )


def _bound(best: DesignPoint) -> float | None:
    """What the certificate of an optimum that is not proven says tells of the points a run left open, unless plans were lost."""
    if best.optimal:
        return best.value
    dropped = any(plan.plans_lost for plan in best.models.values())
    return best.certificate.best_open_bound if dropped and best.certificate else None


def _throughput_bound(answer: PlanAnswer) -> float | None:
    bounds = [
        plan.global_batch_size / plan.time_per_batch_bound_s for plan in answer.models.values() if plan.time_per_batch_bound_s
    ]
    return max(bounds, default=None)


def _plan_row(model: str, plan: ModelPlan | FoundPlan) -> PlanRow:
    alike: dict[str, Any] = {field.name: getattr(plan, field.name, None) for field in fields(PlanRow)}
    memory_bytes = max(stage.memory_bytes for stage in plan.stages)
    return PlanRow(**(alike | {"model": model, "memory_bytes": memory_bytes, "breakdown_s": dict(vars(plan.breakdown_s))}))
