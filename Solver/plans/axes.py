"""The axes along which plans are chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from Estimator.network.cluster import Cluster
from Estimator.plans.axes import COMPARED, PlanAxis
from Estimator.plans.uniform_plans import ORDERS, UniformPlans
from phaze_common.array_types import BoolArray, IntArray
from phaze_common.choices import GroupOrder

Value = int | str | bool


@dataclass(frozen=True)
class ChosenAxis:
    """An axis of which searches tell the best plan of every value.

    Of plans ``alike`` any value says the same, so that they have all of them."""

    axis: PlanAxis
    alike: Callable[[UniformPlans, Cluster], BoolArray] | None = None

    @property
    def name(self) -> str:
        """Its key."""
        return self.axis.key

    @property
    def of_shapes(self) -> bool:
        """Whether all plans of a shape have one value of it."""
        return self.axis.decides_layer_costs

    @property
    def every_plan(self) -> bool:
        """Whether plans count too that a search leaves out because others are no slower."""
        return self.name == "dp"

    def of_plans(self, plans: UniformPlans) -> IntArray | BoolArray:
        """The value of each plan, shape (N,); of an axis that is not ``of_shapes``."""
        ordered = self.name == "group_order"
        values: IntArray = plans.order_numbers if ordered else getattr(plans, self.name)
        return values


def _one_copy(plans: UniformPlans, _: Cluster) -> BoolArray:
    one: BoolArray = plans.dp * plans.shape.sequence_devices == 1
    return one


def _one_order(plans: UniformPlans, cluster: Cluster) -> BoolArray:
    """No two groups to nest, or a flat network: such plans are listed once."""
    movable = len(cluster.tiers) > 1 or plans.shape.sequence_devices > 1
    one: BoolArray = (plans.dp == 1) | (plans.pp == 1) | (not movable)
    return one & (plans.order_numbers < ORDERS.index(GroupOrder.TIERS))


_ALIKE = {"zero_stage": _one_copy, "overlap_gradients": _one_copy, "group_order": _one_order}
AXES = tuple(ChosenAxis(each, _ALIKE.get(each.key)) for each in COMPARED)
