"""The result of a point of a sweep; nothing in it depends on how often it was interrupted."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from Estimator.chips.accelerator import Accelerator
from Estimator.plans.results import Breakdown, Status
from phaze.report.sentences.designs import unit_text
from phaze_common.choices import Combine, Objective
from Solver.plan_report import PlanReport, PlanSummary
from Solver.results import DesignPoint, SearchResult


@dataclass(frozen=True, kw_only=True)
class PlanRow(PlanSummary):
    """The best plan of one model, memory of its fullest device, and what bought its devices."""

    model: str  # as it was named
    time_per_batch_s: float
    time_per_batch_bound_s: float
    micro_batches_per_pipeline: int  # micro-batches of a replica in an iteration
    devices_used: int  # by the plan
    memory_bytes: float
    # MFU: model FLOPs, without scores that a causal mask leaves out, over the peak of the devices
    model_flops_utilization: float
    energy_per_sample_j: float | None
    speedup_over_expert: float | None  # over the published expert's plan
    breakdown_s: Breakdown  # where the seconds of an iteration go
    cluster_usd: float | None = None  # of the devices and their network
    # the same as model_flops_utilization, also counting scores that a causal mask leaves out
    all_scores_flops_utilization: float | None = None


@dataclass(frozen=True)
class PointResult:
    """The result of one point: the objective, and the bound that nothing searched can exceed.

    ``over_references`` is by how much the optimum beats each known chip; ``design_points`` the size
    of the space. The optimum fills ``memory_share`` of a device; where that leaves little room, the
    best that fills at most ``most_share`` reaches ``value_with_room`` (None: nothing fits in it).
    """

    status: Status  # how the search of it ended
    optimal: bool  # whether nothing in the space is better, proven
    objective: str  # what was maximised
    value: float | None  # of the objective
    bound: float | None  # what nothing searched can exceed
    reason: str  # why there is none, or empty
    accelerator: Accelerator | None  # the chip
    hbm_bytes: int | None
    plans: tuple[PlanRow, ...]  # of each model
    over_references: dict[str, float]
    design_points: int
    memory_share: float | None = None
    most_share: float | None = None
    value_with_room: float | None = None
    combine: str = ""  # of several models: what ``value`` is

    @property
    def unit(self) -> str:
        """The unit of its value."""
        return unit_text(Objective(self.objective), Combine(self.combine) if self.combine else None)


def point_result(result: SearchResult) -> PointResult:
    """The result of a search."""
    best = result.best
    if best is None:
        reason, space = result.reason, result.counts.space
        return PointResult(result.status, False, "", None, None, reason, None, None, (), {}, space)
    over = {
        chip.name: chip.best_over_reference
        for chip in result.references
        if chip.hbm_bytes == best.hbm_bytes and chip.best_over_reference is not None
    }
    tight = result.tight_memory
    omitted = sorted({plan.plans_omitted for plan in best.models.values() if plan.plans_omitted})
    return PointResult(
        status=best.status,
        optimal=best.optimal,
        objective=best.objective.value,
        value=best.value,
        bound=best.value if best.optimal else max(map(_bound, result.per_hbm)),
        reason="; ".join(omitted),
        accelerator=best.accelerator,
        hbm_bytes=best.hbm_bytes,
        plans=tuple(_plan_row(model, plan, best) for model, plan in best.models.items()),
        over_references=over,
        design_points=result.counts.space,
        memory_share=max(plan.memory_bytes for plan in best.models.values()) / best.hbm_bytes,
        most_share=None if tight is None else tight.most_share,
        value_with_room=None if tight is None or tight.runner_up is None else tight.runner_up.value,
        combine=best.combine or "",
    )


def _bound(point: DesignPoint) -> float:
    """What no design of the point's memory exceeds: its value with models as fast as their bounds.

    The point has the largest bound of its size, and a weighted mean grows no more than its fastest
    growing term.
    """
    return point.value * max(
        plan.time_per_batch_s / plan.time_per_batch_bound_s for plan in point.models.values()
    )


def _plan_row(model: str, plan: PlanReport, best: DesignPoint) -> PlanRow:
    bought = None if best.chip is None else best.chip.uses[model].bought
    usd = None if bought is None else bought.cluster_usd
    values: dict[str, Any] = {"model": model, "cluster_usd": usd}
    for name in (field.name for field in fields(PlanRow) if field.name not in values):
        values[name] = getattr(plan, name)
    return PlanRow(**values)
