"""A stage of a pipeline whose stages differ: its layers, how it trains them, and on which
devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from Estimator.network.cluster import Cluster
from Estimator.plans.assignment import Assignment
from Estimator.plans.degrees import Degrees, PlanHeader, UniformPlan, part_of
from Estimator.plans.plan import Plan, Stage, check_cluster, check_plan
from GraphExtractor.graph import Recompute
from phaze_common.errors import InputError


@dataclass(frozen=True)
class PlacedStage:
    """``degrees`` say how its ``layers`` (by place in execution order) are trained: a plan of one
    stage.

    It has the devices from ``first_device`` on, tensor-parallel groups innermost, replicas
    outermost. Of its layers the first ``recomputed`` are run again as ``degrees.recompute`` has it
    (None: all).
    """

    degrees: UniformPlan
    first_device: int
    layers: tuple[int, ...]
    recomputed: int | None = None

    @property
    def devices(self) -> int:
        """How many it has."""
        return self.degrees.devices

    @property
    def end_device(self) -> int:
        """The first device behind it."""
        return self.first_device + self.devices

    @property
    def rows(self) -> int:
        """Samples of a micro-batch on all of its replicas, the same for every stage."""
        return self.degrees.rows


def placed_stages(plan: Plan, names: Sequence[str]) -> tuple[PlacedStage, ...]:
    """The stages of ``plan`` on consecutive devices; ``names`` are the model's layers in execution
    order.

    Raises: InputError: a stage has no layers, or layers are in none or in several; stages work on
        different numbers of rows; the
            schedule is interleaved, or groups are assigned to tiers, which plans with such stages
            cannot be.
    """
    if plan.interleave > 1 or isinstance(plan.group_order, Assignment):
        given = f"group_order {plan.group_order}"
        if plan.interleave > 1:
            given = f"interleave {plan.interleave}"
        raise InputError(
            f"the stages of the plan differ, and it has {given}; give interleave 1 and "
            "group_order data_inner"
        )
    if any(stage.degrees.sites > 1 for stage in plan.stages):
        raise InputError("the stages of the plan differ, and it is of several sites; give sites 1")
    places = plan.layer_places(names)
    stages: list[PlacedStage] = []
    for number, stage in enumerate(plan.stages):
        degrees = stage_degrees(plan, stage)
        if not stage.layers:
            raise InputError(
                f"stages.{number} of the plan has no layers; give each stage one, or leave the "
                "stage out"
            )
        first = stages[-1].end_device if stages else 0
        stages.append(PlacedStage(degrees, first, places[number], stage.recomputed_layers))
        rows = stages[0].rows
        if stages[-1].rows != rows:
            raise InputError(
                f"stages.{number} of the plan works on {degrees.micro_batch_size} rows on each of "
                f"{degrees.dp} replicas, {stages[-1].rows} in all, but stages.0 on {rows}; give "
                "every stage the same number of rows"
            )
    return tuple(stages)


def stage_degrees(plan: Plan, stage: Stage) -> UniformPlan:
    """The plan of one stage that trains as ``stage`` of ``plan`` does."""
    return UniformPlan(**vars(stage.degrees), **vars(part_of(PlanHeader, plan)))


def check_stages(stages: Sequence[PlacedStage], cluster: Cluster) -> None:
    """Refuse stages that contradict themselves, or need more devices than there are.

    Raises:
        InputError: says which, and what is allowed.
    """
    for stage in stages:
        check_plan(stage.degrees)
        check_cluster(stage.degrees, cluster)
        if stage.recomputed is not None and not 0 <= stage.recomputed <= len(stage.layers):
            raise InputError(
                f"recomputed_layers is {stage.recomputed}; give 0 to {len(stage.layers)}, the "
                "layers of the stage"
            )
    devices = stages[-1].end_device
    if devices > cluster.num_devices:
        raise InputError(
            f"the stages of the plan need {devices} devices in all, {cluster.name} has "
            f"{cluster.num_devices}; use smaller degrees or a larger cluster"
        )


def plan_of(
    stages: Sequence[PlacedStage], model: str, sequence_length: int, names: Sequence[str]
) -> Plan:
    """The plan with ``stages``, which agree in all but their own degrees."""
    return Plan(
        model=model,
        sequence_length=sequence_length,
        stages=tuple(
            Stage(
                layers=tuple(names[layer] for layer in stage.layers),
                degrees=part_of(Degrees, stage.degrees),
                recomputed_layers=stage.recomputed
                if stage.degrees.recompute is not Recompute.NONE
                else None,
            )
            for stage in stages
        ),
        **vars(part_of(PlanHeader, stages[0].degrees)),
    )
