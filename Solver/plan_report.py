"""Records of a plan with what an iteration of it costs: all that search, files and reports say of
one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from Estimator.coverage import PricedByBytes
from Estimator.plans.degrees import Degrees, PlanHeader, UniformPlan, part_of
from Estimator.plans.placement import Placement
from Estimator.plans.plan import Plan, Stage
from Estimator.plans.results import (
    Breakdown,
    Iteration,
    PipelineReport,
    StageReport,
    Status,
    TimeInterval,
)
from Estimator.profiled.sources import SourceCounts


@dataclass(frozen=True, kw_only=True)
class PlanSummary(UniformPlan):
    """A plan, and how fast it is."""

    throughput_samples_per_s: float

    @staticmethod
    def of(plan: UniformPlan, samples_per_s: float) -> PlanSummary:
        """``plan``, which is that fast."""
        return PlanSummary(
            **vars(part_of(UniformPlan, plan)), throughput_samples_per_s=samples_per_s
        )


@dataclass(frozen=True, kw_only=True)
class ExpertReport(PlanSummary):
    """The plan a published expert would use, priced by the same model on the same hardware, blocks
    balanced over its stages.

    ``breakdown_s`` is None where the plan does not apply to the model.
    """

    status: Status  # how the search of it ended
    source: str
    time_per_batch_s: float
    reason: str  # why there is none, or empty
    breakdown_s: Breakdown | None = None


@dataclass(frozen=True, kw_only=True)
class PlanReport(PlanSummary):
    """The best plan of one model on one configuration of hardware, and what an iteration of it
    costs.

    Where ``stages`` state degrees of their own, its degrees are those of the first. No plan takes
    less than ``time_per_batch_bound_s``. ``energy_per_sample_j`` is that of operators, which
    objectives and fronts compare, ``beside_operators_j`` of the optimizer's step, gradients over
    replicas and messages between stages. They and the busy fractions of the cores are None where
    they are not known.
    """

    model: str  # as it was named
    sequence_length: int  # tokens of a sample
    tokens_per_s: float  # of the whole cluster
    time_per_batch_s: float
    time_per_batch_bound_s: float
    hbm_bytes: int
    micro_batches_per_pipeline: int  # micro-batches of a replica in an iteration
    devices_used: int  # by the plan
    stages: tuple[StageReport, ...]
    pipeline: PipelineReport  # what each chunk takes
    breakdown_s: Breakdown  # where the seconds of an iteration go
    # MFU: model FLOPs, without scores that a causal mask leaves out, over the peak of the devices
    model_flops_utilization: float
    # FLOPs that are computed, also again, over the peak of the devices in use
    hardware_flops_utilization: float
    energy_per_sample_j: float | None = None
    tc_utilization: float | None = None  # share of time in which tensor cores are busy
    vc_utilization: float | None = None  # share of time in which vector cores are busy
    expert: ExpertReport | None = None  # the published expert's plan on the same hardware
    speedup_over_expert: float | None = None  # over the published expert's plan
    all_scores_flops_utilization: float | None = None  # as in ``Estimator.plans.results.Iteration``
    price_sources: SourceCounts | None = None  # of hardware that was profiled
    share_of_own_best: float | None = (
        None  # of several models: the objective over the best that this one reaches alone
    )
    time_intervals: tuple[TimeInterval, ...] = ()  # of an iteration, as far as published runs tell
    beside_operators_j: float | None = None
    placement: Placement | None = None  # None in files of earlier versions
    priced_by_bytes: tuple[PricedByBytes, ...] = ()  # operators that no formula describes
    # which plans were not considered, because the layers branch too much; the bound counts them too
    plans_omitted: str = ""

    @staticmethod
    def priced(
        plan: UniformPlan,
        model: str,
        sequence_length: int,
        iteration: Iteration,
        memory_bytes: int,
        bound_s: float,
        **more: Any,
    ) -> PlanReport:
        """``plan`` of a model and its ``iteration`` on devices with so much memory; no plan takes
        less than ``bound_s``. The stages name their layers, whatever their order."""
        return PlanReport(
            **vars(replace(plan, layer_order=None)),
            model=model,
            sequence_length=sequence_length,
            throughput_samples_per_s=iteration.samples_per_s,
            tokens_per_s=iteration.tokens_per_s,
            time_per_batch_s=iteration.iteration_s,
            time_per_batch_bound_s=bound_s,
            hbm_bytes=memory_bytes,
            micro_batches_per_pipeline=iteration.micro_batches_per_pipeline,
            devices_used=iteration.devices,
            stages=iteration.stages,
            pipeline=iteration.pipeline,
            breakdown_s=iteration.breakdown,
            model_flops_utilization=iteration.model_flops_utilization,
            hardware_flops_utilization=iteration.hardware_flops_utilization,
            all_scores_flops_utilization=iteration.all_scores_flops_utilization,
            energy_per_sample_j=iteration.energy_per_sample_j,
            **more,
        )

    @property
    def memory_bytes(self) -> float:
        """Of a device of the fullest stage."""
        return max(stage.memory_bytes for stage in self.stages)

    @property
    def plan(self) -> Plan:
        """The plan by value, with the layers of its chunks."""
        degrees, layers = part_of(Degrees, self), [list(each.layers) for each in self.stages]
        chunks = []
        for number, count in enumerate(self.stage_layers or ()):
            stage, left = self.stages[number % self.pp], layers[number % self.pp]
            chunks.append(
                Stage(tuple(left[:count]), stage.degrees or degrees, stage.recomputed_layers)
            )
            del left[:count]
        return Plan(
            **vars(part_of(PlanHeader, self)),
            model=self.model,
            sequence_length=self.sequence_length,
            stages=tuple(chunks),
        )
