"""Whole plans, as a search writes them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from Estimator.plans.plan import Plan, Stage, with_own_degrees
from Estimator.plans.results import Breakdown, PipelineReport, StageReport
from Solver.plan_report import PlanReport


def whole_plan(*stages: Stage, **changes: Any) -> Plan:
    """A plan of BERT-large of these stages, with ``changes``."""
    plan = Plan(
        model="bertlarge",
        sequence_length=512,
        global_batch_size=4096,
        overlap_gradients=False,
        overlap_tensor=False,
        stages=stages,
    )
    return replace(plan, **changes)


def report_of(
    plan: Plan,
    stages: Sequence[StageReport] = (),
    pipeline: PipelineReport | None = None,
    **changes: Any,
) -> PlanReport:
    """``plan`` as the file of a search states it, with numbers that mean nothing."""
    held = [
        tuple(layer for chunk in plan.stages[place :: plan.pp] for layer in chunk.layers)
        for place in range(plan.pp)
    ]
    stages = stages or [StageReport(layers, 1, *[1.0] * 4, 1, *[1.0] * 5) for layers in held]
    report = PlanReport(
        **vars(plan.of_first_stage),
        model=plan.model,
        sequence_length=plan.sequence_length,
        throughput_samples_per_s=1.0,
        tokens_per_s=1.0,
        time_per_batch_s=5.0,
        time_per_batch_bound_s=5.0,
        hbm_bytes=2**30,
        micro_batches_per_pipeline=4,
        devices_used=2,
        stages=tuple(stages),
        pipeline=pipeline
        or PipelineReport("1f1b", 1, 1, (1.0,), (1.0,), (), (), True, (0.0,), 0.0),
        breakdown_s=Breakdown(*[0.0] * 14),
        model_flops_utilization=0.1,
        hardware_flops_utilization=0.1,
    )
    if plan.stages_differ and plan.interleave == 1:
        report = replace(report, stages=with_own_degrees(plan, report.stages))
    return replace(report, **changes)
