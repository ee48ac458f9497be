"""A training plan: everything a framework must be told to train a model on a cluster."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from Estimator.network.cluster import Cluster
from Estimator.plans.assignment import EXAMPLE, Assignment, check_assignment
from Estimator.plans.axes import BY_ITSELF, PLAN_AXES
from Estimator.plans.degrees import Degrees, PlanHeader, UniformPlan, part_of
from Estimator.plans.pipeline.schedule import check as check_schedule
from Estimator.plans.results import StageReport
from Estimator.plans.state_formats import FORMAT_KEYS
from phaze_common.choices import GroupOrder, KeyExchange, TensorLayout
from phaze_common.errors import InputError
from phaze_common.records import to_record

# what the first versions of files of plans did not state
LATER = frozenset(
    {
        *("stage_cuts", "state_formats", "etp"),
        *("cuda_graphs", "dispatcher", "dispatch_fp8", "overlap_experts", "expert_load"),
    }
)
PARALLEL = ("tp", "tp2", "cp", "ep", "dp", "pp")
# fields of a plan that are at least 1
COUNTS = (
    "micro_batch_size",
    "global_batch_size",
    *PARALLEL,
    "panels",
    "interleave",
    "shard_groups",
    "sites",
    "outer_steps",
)
OF_SITES = ("sites", "outer_steps", "site_gbit_per_s", "outer_dtype")
WHERE_STATED = frozenset({"offload", "cuda_graphs", *OF_SITES, *FORMAT_KEYS})


@dataclass(frozen=True)
class Stage:
    """A chunk of the model: names of its layers in the order in which it holds them, and how it is
    trained.

    Of its layers the first ``recomputed_layers`` are recomputed (None: all).
    """

    layers: tuple[str, ...]  # by name, in order
    degrees: Degrees  # how it is trained
    recomputed_layers: int | None = None


@dataclass(frozen=True, kw_only=True)
class Plan(PlanHeader):
    """Everything a framework must be told to train a model; ``stages`` are its chunks in model
    order.

    Chunk c runs on pipeline stage c % pp, of which each has ``interleave`` chunks.
    """

    model: str  # as it was named
    sequence_length: int  # tokens of a sample
    stages: tuple[Stage, ...]

    @staticmethod
    def uniform(
        plan: UniformPlan, model: str, sequence_length: int, chunks: tuple[tuple[str, ...], ...]
    ) -> Plan:
        """A plan whose ``chunks``, names of layers, are all trained alike."""
        degrees = part_of(Degrees, plan)
        stages = tuple(Stage(chunk, degrees) for chunk in chunks)
        header = vars(part_of(PlanHeader, plan))
        return Plan(model=model, sequence_length=sequence_length, stages=stages, **header)

    @property
    def stages_differ(self) -> bool:
        """Whether its chunks are trained differently, so that it is no ``UniformPlan``."""
        first = self.stages[0]
        alike = all(stage.degrees == first.degrees for stage in self.stages)
        return not alike or any(stage.recomputed_layers is not None for stage in self.stages)

    @property
    def pp(self) -> int:
        """Pipeline stages."""
        return len(self.stages) // self.interleave

    @property
    def of_first_stage(self) -> UniformPlan:
        """The plan whose stages are all trained as the first one."""
        shared = vars(part_of(PlanHeader, self))
        layers = tuple(len(stage.layers) for stage in self.stages)
        return UniformPlan(
            **vars(self.stages[0].degrees), **shared, pp=self.pp, stage_layers=layers
        )

    def layer_places(self, names: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """Layers of every stage by place among ``names``, the model's in execution order.

        Raises:
            InputError: the stages do not hold each of them once.
        """
        held = Counter(layer for stage in self.stages for layer in stage.layers)
        odd = next((layer for layer in (*held, *names) if held[layer] != 1), None)
        odd = next((layer for layer in held if layer not in names), odd)
        if odd is not None:
            how = "is no layer of it" if odd not in names else "is in several"
            raise InputError(
                f"stages.*.layers of the plan must hold each of {self.model}'s {len(names)} layers "
                f"once, but {odd!r} {how if odd in held else 'is in none'}; correct it"
            )
        place = {name: index for index, name in enumerate(names)}
        return tuple(tuple(place[layer] for layer in stage.layers) for stage in self.stages)

    def as_uniform(self, names: tuple[str, ...]) -> UniformPlan:
        """The plan by its degrees, where all chunks are trained alike; ``names`` are the model's
        layers in execution order.

        Raises: InputError: chunks differ in more than their layers, or do not hold each layer of
            the model once.
        """
        first = self.stages[0].degrees
        for position, stage in enumerate(self.stages):
            given = vars(stage.degrees)
            for name, value in vars(first).items():
                if given[name] != value:
                    raise InputError(
                        f"the stages of the plan differ: stages.{position}.{name} is "
                        f"{given[name]}, stages.0.{name} is {value}; give all of them the same"
                    )
        order = tuple(itertools.chain.from_iterable(self.layer_places(names)))
        if len(self.stages) % self.interleave:
            raise InputError(
                f"interleave of the plan is {self.interleave}, which does not divide the "
                f"{len(self.stages)} of its stages"
            )
        in_order = order == tuple(range(len(order)))
        return replace(self.of_first_stage, layer_order=None if in_order else order)


def with_own_degrees(plan: Plan, reports: tuple[StageReport, ...]) -> tuple[StageReport, ...]:
    """``reports`` of the stages of ``plan``, with the degrees of those that differ from the
    first."""
    if not plan.stages_differ:
        return reports
    first = plan.stages[0].degrees
    return tuple(
        replace(
            report,
            degrees=None if stage.degrees == first else stage.degrees,
            recomputed_layers=stage.recomputed_layers,
        )
        for report, stage in zip(reports, plan.stages, strict=True)
    )


def plan_by_value(document: object, source: str) -> Plan:
    """The plan that a file states with its stages, and with all that these share.

    Raises:
        InputError: names ``source`` and all that is wrong.
    """
    check_header(document, source)
    return to_record(Plan, document, source)


def check_header(document: object, source: str) -> None:
    """Refuse a plan in a file that leaves out what its stages share.

    Raises:
        InputError: names ``source`` and the key.
    """
    if isinstance(document, Mapping):
        for each in fields(PlanHeader):
            if each.name not in document and each.name not in LATER:
                raise InputError(f"{source}: {each.name} is missing; add it")


def plan_mapping(plan: UniformPlan) -> dict[str, Any]:
    """The plan by the keys of its settings, as plain values; a file of it is the same plan.

    Of what is offloaded, CUDA graphs, sites and number formats only plans tell that say something
    of them.
    """
    found = {each.key: each.of(plan) for each in PLAN_AXES}
    found |= {"layout": plan.layout.value, "offload": list(plan.offload.terms)}
    usual = {each.key: each.of(BY_ITSELF) for each in PLAN_AXES} | {"offload": []}
    return {
        key: value for key, value in found.items() if key not in WHERE_STATED or value != usual[key]
    }


def group_order_of(text: str) -> GroupOrder | Assignment:
    """The order of groups of that name, or the assignment to tiers that is written so.

    Raises:
        InputError: it is neither.
    """
    names = {order.value for order in GroupOrder}
    return GroupOrder(text) if text in names else Assignment.parsed(text)


def check_cluster(plan: UniformPlan, cluster: Cluster) -> None:
    """Refuse plans that need more devices than there are, or more of a tier than it holds.

    Raises:
        InputError: says how many there are.
    """
    if plan.devices > cluster.num_devices:
        given = f"the plan needs {plan.devices} devices, {cluster.name} has {cluster.num_devices}"
        raise InputError(f"{given}; use smaller degrees or a larger cluster")
    if isinstance(plan.group_order, Assignment):
        degrees = {axis: getattr(plan, axis) for axis in PARALLEL}
        check_assignment(plan.group_order, degrees, cluster)


def check_plan(plan: UniformPlan) -> None:
    """Refuse plans that contradict themselves.

    Raises:
        InputError: says what was given and what is allowed.
    """
    for name in COUNTS:
        value = getattr(plan, name)
        if value < 1:
            raise InputError(f"{name} is {value}; it must be at least 1")
    if plan.tp2 > 1 and plan.layout is not TensorLayout.TWO_D:
        raise InputError(
            f"tp2 is {plan.tp2}, but a layout {plan.layout_name} has one tensor axis; use tp2 1, "
            "or layout 2d"
        )
    if plan.panels > 1 and (plan.layout is not TensorLayout.TWO_D or plan.tp * plan.tp2 == 1):
        raise InputError(
            f"panels is {plan.panels}, but only products of a 2d layout on several devices run in "
            "panels; leave panels out, or use layout 2d with a tp or tp2 above 1"
        )
    if plan.exchange is not KeyExchange.GATHER and plan.sequence_devices == 1:
        raise InputError(
            f"exchange is {plan.exchange}, but no devices share a sequence; give a cp above 1, or "
            "leave it out"
        )
    sharing = plan.expert_devices(plan.dp * plan.cp)
    if sharing % plan.ep:
        folded = f"tp {plan.tp} x " if plan.expert_tp < plan.tp else ""
        raise InputError(
            f"ep is {plan.ep}, which does not divide the {folded}dp {plan.dp} x cp {plan.cp} = "
            f"{sharing} devices that could divide the experts among them; give a divisor of "
            f"{sharing}"
        )
    if plan.micro_batch_size * plan.dp > plan.global_batch_size:
        raise InputError(
            f"dp {plan.dp} replicas with micro-batches of {plan.micro_batch_size} need a global "
            f"batch of at least {plan.micro_batch_size * plan.dp}, given {plan.global_batch_size}; "
            "raise it or lower dp or the micro-batch size"
        )
    if plan.expert_tp < plan.tp and isinstance(plan.group_order, Assignment):
        raise InputError(
            f"group_order is {plan.group_order}, which does not say where whole experts lie (etp "
            f"{plan.etp} of tp {plan.tp}); give {GroupOrder.DATA_INNER} or "
            f"{GroupOrder.PIPELINE_INNER}"
        )
    _check_shares(plan)
    if plan.group_order is GroupOrder.TIERS:
        raise InputError(
            f"group_order tiers stands for many plans; give one of them, such as {EXAMPLE}"
        )
    check_schedule(plan.schedule, plan.pp, plan.interleave, plan.micro_batches)
    if not 0 <= plan.zero_stage <= 3:
        raise InputError(f"zero_stage is {plan.zero_stage}; it must be 0, 1, 2 or 3")
    if plan.stage_layers is not None and (
        len(plan.stage_layers) != plan.chunks or min(plan.stage_layers) < 1
    ):
        raise InputError(
            f"stage_layers has {len(plan.stage_layers)} entries {list(plan.stage_layers)}; give "
            f"{plan.chunks} positive numbers, "
            f"one per pipeline stage{' and chunk' if plan.interleave > 1 else ''}"
        )


def _check_shares(plan: UniformPlan) -> None:
    """Refuse groups of shards that its replicas do not make, and sites without a network."""
    if not plan.site_gbit_per_s > 0.0:
        raise InputError(
            f"site_gbit_per_s is {plan.site_gbit_per_s}; give a bandwidth above 0, in Gbit/s"
        )
    if plan.dp % plan.shard_groups:
        raise InputError(
            f"shard_groups is {plan.shard_groups}, which does not divide dp {plan.dp}; give a "
            "divisor of it, or more replicas with --devices or --dp"
        )
    if plan.shard_groups > 1 and not plan.zero_stage:
        raise InputError(
            f"shard_groups is {plan.shard_groups}, but nothing is sharded; give a zero_stage of 1 "
            "to 3, or leave shard_groups out"
        )
    if 1 < plan.copies == plan.shard_groups:
        raise InputError(
            f"shard_groups is {plan.shard_groups}, so that each of the {plan.copies} replicas has "
            "all that ZeRO divides; give fewer groups, or a zero_stage of 0 and no shard_groups"
        )
    if plan.shard_groups > 1 and isinstance(plan.group_order, Assignment):
        raise InputError(
            f"group_order is {plan.group_order}, which does not say where groups of shards lie; "
            f"give {GroupOrder.DATA_INNER} or {GroupOrder.PIPELINE_INNER}"
        )
    if plan.divided_copies(plan.copies) % plan.shard_groups:
        raise InputError(
            f"shard_groups is {plan.shard_groups}, which does not divide the "
            f"{plan.divided_copies(plan.copies)} devices with the same experts; lower it or ep"
        )
