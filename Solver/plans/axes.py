"""The axes along which plans are chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from Estimator.network.cluster import Cluster
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.uniform_plans import ORDERS, UniformPlans
from phaze_common.choices import GroupOrder

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
Value = int | str | bool


@dataclass(frozen=True)
class PlanAxis:
    """Something that plans choose: ``of_shape`` is its value in all plans of a shape, where that
    differs ``of_plans`` of each.

    Of plans ``alike`` any value says the same, so that they have all of them.
    """

    name: str
    of_shape: Callable[[UniformPlan], Value] | None = None
    of_plans: Callable[[UniformPlans], IntArray | BoolArray] | None = None
    alike: Callable[[UniformPlans, Cluster], BoolArray] | None = None
    # those too that a search need not list, because others with another value are no slower
    every_plan: bool = False


def _one_copy(plans: UniformPlans, _: Cluster) -> BoolArray:
    one: BoolArray = plans.dp * plans.shape.sequence_devices == 1
    return one


def _one_order(plans: UniformPlans, cluster: Cluster) -> BoolArray:
    """Where there are no two groups to nest, or the network is flat (``PlanSpace.every_plan`` lists
    such plans once)."""
    movable = len(cluster.tiers) > 1 or plans.shape.sequence_devices > 1
    one: BoolArray = (plans.dp == 1) | (plans.pp == 1) | (not movable)
    return one & (plans.order_numbers < ORDERS.index(GroupOrder.TIERS))


AXES = (
    PlanAxis("tp", of_shape=lambda shape: shape.tp),
    PlanAxis("pp", of_plans=lambda plans: plans.pp),
    PlanAxis("dp", of_plans=lambda plans: plans.dp, every_plan=True),
    PlanAxis("cp", of_shape=lambda shape: shape.cp),
    PlanAxis("layout", of_shape=lambda shape: shape.layout_name.value),
    PlanAxis("tp2", of_shape=lambda shape: shape.tp2),
    PlanAxis("panels", of_shape=lambda shape: shape.panels),
    PlanAxis("exchange", of_shape=lambda shape: shape.exchange.value),
    PlanAxis("ep", of_shape=lambda shape: shape.ep),
    PlanAxis("micro_batch_size", of_shape=lambda shape: shape.micro_batch_size),
    PlanAxis("recompute", of_shape=lambda shape: shape.recompute.value),
    PlanAxis("sequence_parallel", of_shape=lambda shape: shape.sequence_parallel),
    PlanAxis("interleave", of_plans=lambda plans: plans.interleave),
    PlanAxis("zero_stage", of_plans=lambda plans: plans.zero_stage, alike=_one_copy),
    PlanAxis("group_order", of_plans=lambda plans: plans.order_numbers, alike=_one_order),
    PlanAxis("overlap_gradients", of_plans=lambda plans: plans.overlap_gradients, alike=_one_copy),
)
