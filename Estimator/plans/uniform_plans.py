"""Plans of one shape as arrays: what a search compares, and what is priced many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from Estimator.network.cluster import Cluster
from Estimator.network.crossings import parts_of
from Estimator.network.links import (
    PipelineLayouts,
    TierArray,
    boundary_tiers,
    carried_tiers,
    end_tiers,
    outermost_routes,
)
from Estimator.plans.assignment import Assignment
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.groups import LayerGroups, layer_groups
from Estimator.plans.plan import check_cluster, check_plan
from phaze_common.choices import GroupOrder
from phaze_common.errors import InputError

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

MOST_CODES = 2**62  # that one integer can tell apart
MANY = 2**31  # devices, which no block holds
ZERO_STAGES = 4  # 0 to 3
ORDERS = GroupOrder.DATA_INNER, GroupOrder.PIPELINE_INNER, GroupOrder.TIERS


def numbered(columns: Sequence[IntArray]) -> IntArray:
    """A number from 0 for every distinct row of ``columns`` (N,) of naturals, shape (N,)."""
    code, codes = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        values = int(column.max(initial=0)) + 1
        if codes * values > MOST_CODES:
            code = np.unique(code, return_inverse=True)[1]
            codes = int(code.max(initial=0)) + 1
        code, codes = code * values + column, codes * values
    number: IntArray = np.unique(code, return_inverse=True)[1]
    return number


def have_like_groups(shape: UniformPlan, cluster: Cluster) -> bool:
    """Whether the groups that communicate within a layer lie alike under all plans of ``shape``."""
    if isinstance(shape.group_order, Assignment):
        return True
    sizes = np.array([shape.tp, shape.sequence_devices, shape.tp2])
    strides = np.array([1, shape.tp, shape.tp])
    evenly = parts_of(sizes, strides, np.full(3, MANY), cluster.block_sizes).all()
    # of one tier, links of all devices are alike
    return bool(evenly) and (shape.ep == 1 or cluster.rings == (False,))


def working_column(sharding: IntArray, copies: IntArray, *, divides_more: bool) -> IntArray:
    """Columns of ``whole_bytes`` by ZeRO stage, then of experts with one copy each; ``copies`` are
    those of experts."""
    alone: IntArray = sharding + ZERO_STAGES * (divides_more & (copies == 1))
    return alone


@dataclass(frozen=True, eq=False)
class UniformPlans:
    """N plans that differ from ``shape`` in arrays of shape (N,), whatever their cuts into stages.

    ``pipeline_inner`` says whether stages lie nearer than replicas (``GroupOrder.PIPELINE_INNER``).
    Where the shape's groups are assigned to tiers, ``assigned`` (N, 2, tiers) are the replicas and
    the stages in each block of every tier, and the shape's ``group_order`` has the parts of the
    other axes; else it has shape (N, 2, 0).
    """

    shape: UniformPlan
    pp: IntArray
    dp: IntArray
    zero_stage: IntArray
    interleave: IntArray
    global_batch_size: IntArray
    pipeline_inner: BoolArray
    overlap_gradients: BoolArray
    assigned: IntArray = field(default_factory=lambda: np.empty((0, 2, 0), np.int64))

    def __post_init__(self) -> None:
        if not self.assigned.size:
            order = self.shape.group_order
            tiers = len(order.tp) if isinstance(order, Assignment) else 0
            object.__setattr__(self, "assigned", np.empty((len(self), 2, tiers), np.int64))

    @staticmethod
    def of(plan: UniformPlan, overlap_gradients: bool) -> UniformPlans:
        """One plan, whose gradients are reduced beside computation or not."""
        order, assigned = plan.group_order, np.empty((0, 2, 0), np.int64)
        if isinstance(order, Assignment):
            assigned = np.array([[order.dp, order.pp]])
        return UniformPlans(
            plan,
            np.array([plan.pp]),
            np.array([plan.dp]),
            np.array([plan.zero_stage]),
            np.array([plan.interleave]),
            np.array([plan.global_batch_size]),
            np.array([order is GroupOrder.PIPELINE_INNER]),
            np.array([overlap_gradients]),
            assigned,
        )

    def __len__(self) -> int:
        return len(self.pp)

    @property
    def devices(self) -> IntArray:
        """Devices that each plan occupies, shape (N,)."""
        return self.shape.inner_devices * self.pp * self.dp

    @cached_property
    def micro_batches(self) -> IntArray:
        """Micro-batches per pipeline, shape (N,)."""
        count: IntArray = -(-self.global_batch_size // (self.shape.micro_batch_size * self.dp))
        return count

    @cached_property
    def copies(self) -> IntArray:
        """Devices with the same parameters, and with the same divided ones, shape (N, 2)."""
        together = self.dp * self.shape.sequence_devices
        return np.stack([together, self.shape.divided_copies(together)], axis=1)

    @property
    def sharers(self) -> IntArray:
        """Those of them that divide what ZeRO shards, shape (N, 2)."""
        divided: IntArray = np.maximum(self.copies // self.shape.shard_groups, 1)
        return divided

    @cached_property
    def sharding(self) -> IntArray:
        """The ZeRO stages that have an effect (``UniformPlan.sharding``), shape (N,)."""
        effective: IntArray = np.where(self.sharers[:, 0] > 1, self.zero_stage, 0)
        return effective

    @cached_property
    def working(self) -> IntArray:
        """Which column of ``StageSizes.workspace_bytes`` is theirs, shape (N,)."""
        divides_more = self.shape.divides_more
        return working_column(self.sharding, self.sharers[:, 1], divides_more=divides_more)

    def plan(self, index: int) -> UniformPlan:
        """One of them as a record."""
        return replace(
            self.shape,
            pp=int(self.pp[index]),
            dp=int(self.dp[index]),
            zero_stage=int(self.zero_stage[index]),
            interleave=int(self.interleave[index]),
            global_batch_size=int(self.global_batch_size[index]),
            group_order=self._order(index),
            overlap_gradients=bool(self.overlap_gradients[index]),
        )

    @property
    def order_numbers(self) -> IntArray:
        """Which of ``ORDERS`` the groups have, shape (N,)."""
        if isinstance(self.shape.group_order, Assignment):
            return np.full(len(self), ORDERS.index(GroupOrder.TIERS))
        return self.pipeline_inner.astype(np.int64)

    @property
    def order_names(self) -> list[str]:
        """The order of groups of every plan, or what it assigns to each tier."""
        _, first, place = np.unique(self.places, return_index=True, return_inverse=True)
        names = [str(self._order(index)) for index in first.tolist()]
        return [names[at] for at in place.reshape(-1).tolist()]

    def _order(self, index: int) -> GroupOrder | Assignment:
        inner = self.shape.group_order
        if isinstance(inner, Assignment):
            dp, pp = (tuple(parts) for parts in self.assigned[index].tolist())
            return replace(inner, dp=dp, pp=pp)
        return GroupOrder.PIPELINE_INNER if self.pipeline_inner[index] else GroupOrder.DATA_INNER

    @property
    def layouts(self) -> PipelineLayouts:
        """Where their pipelines lie by an order of groups."""
        inner = self.shape.inner_devices
        return PipelineLayouts(
            np.full(len(self), inner),
            np.where(self.pipeline_inner, inner, inner * self.dp),
            np.where(self.pipeline_inner, inner * self.pp, inner),
            self.pp,
            self.dp,
        )

    def by_groups(self, cluster: Cluster) -> dict[LayerGroups, IntArray]:
        """Places of the plans whose groups that communicate within a layer cost the same."""
        if not len(self):
            return {}
        if have_like_groups(self.shape, cluster):
            return {layer_groups(self.plan(0), cluster): np.arange(len(self))}
        found: dict[LayerGroups, list[int]] = {}
        _, first = np.unique(self.places, return_index=True)
        for number, index in enumerate(first.tolist()):
            found.setdefault(layer_groups(self.plan(index), cluster), []).append(number)
        return {
            groups: np.flatnonzero(np.isin(self.places, numbers))
            for groups, numbers in found.items()
        }

    def boundary_tiers(self, cluster: Cluster) -> TierArray:
        """``links.boundary_tiers`` of their pipelines, shape (N, largest pp - 1)."""
        if isinstance(self.shape.group_order, Assignment):
            return carried_tiers(self.assigned[:, 1].T, cluster)
        return boundary_tiers(self.layouts, cluster)

    def end_tiers(self, cluster: Cluster) -> TierArray:
        """``links.end_tiers`` of their pipelines, shape (N,)."""
        if isinstance(self.shape.group_order, Assignment):
            return outermost_routes(self.assigned[:, 1].T, cluster)
        return end_tiers(self.layouts, cluster)

    def nearest_tiers(self, cluster: Cluster) -> TierArray:
        """The innermost tier that a message between stages can take, shape (N,)."""
        if isinstance(self.shape.group_order, Assignment):
            several = self.assigned[:, 1] > 1
            return np.where(several.any(axis=1), several.argmax(axis=1), 0).astype(np.int8)
        sizes = np.array([tier.group_size for tier in cluster.tiers])
        nearest = np.minimum(
            np.searchsorted(sizes, self.layouts.stage_strides, side="right"), len(sizes) - 1
        )
        return nearest.astype(np.int8)

    @cached_property
    def places(self) -> IntArray:
        """A number for each way in which stages and replicas lie, shape (N,)."""
        inner = self.pipeline_inner.astype(np.int64)
        return numbered([self.pp, self.dp, inner, *self.assigned.reshape(len(self), -1).T])

    @cached_property
    def replica_places(self) -> IntArray:
        """As ``places``, of replicas alone: stages may change nothing of theirs, shape (N,)."""
        if not isinstance(self.shape.group_order, Assignment):
            return self.places
        return numbered(list(self.assigned[:, 0].T))

    def some(self, rows: IntArray) -> UniformPlans:
        """Those of ``rows``."""
        arrays = (getattr(self, each.name)[rows] for each in fields(self)[1:])
        return UniformPlans(self.shape, *arrays)

    def check(self, layers: int, cluster: Cluster, numbers: IntArray | None = None) -> None:
        """Refuse plans that no model of ``layers`` layers can be trained with on ``cluster``.

        ``numbers`` are what the plans are called, shape (N,); None: 0, 1, ...

        Raises:
            InputError: the first of them in a sentence.
        """
        shape, blocks = self.shape, layers - 2
        if shape.gpipe or shape.stage_layers is not None or shape.layer_order is not None:
            raise InputError(
                "many plans at once are 1F1B or interleaved plans of balanced blocks; price "
                "others one by one"
            )
        number = np.arange(len(self)) if numbers is None else numbers
        columns = (self.pp, self.dp, self.zero_stage + 1, self.interleave, self.global_batch_size)
        wrong = np.any([column < 1 for column in columns], axis=0) | (self.zero_stage > 3)
        wrong |= shape.expert_devices(self.dp * shape.cp) % shape.ep != 0
        wrong |= shape.micro_batch_size * self.dp > self.global_batch_size
        wrong |= self.devices > cluster.num_devices
        if isinstance(shape.group_order, Assignment):
            wrong |= self._misplaced(shape.group_order, cluster)
        for index in np.flatnonzero(wrong)[:1].tolist():
            plan = self.plan(index)
            try:
                check_plan(plan)
                check_cluster(plan, cluster)
            except InputError as error:
                raise InputError(f"plan {number[index]}: {error}") from error
        chunks, several = self.pp * self.interleave, self.interleave > 1
        too_deep = (self.pp * self.interleave > 1) & (chunks > blocks)
        uneven = several & ((self.pp == 1) | (self.micro_batches % np.maximum(self.pp, 1) != 0))
        for index in np.flatnonzero(too_deep)[:1].tolist():
            raise InputError(
                f"plan {number[index]} has {chunks[index]} stages or chunks for {blocks} blocks; "
                f"give at most {blocks}"
            )
        for index in np.flatnonzero(uneven)[:1].tolist():
            given = (
                f"pp {self.pp[index]} and {self.micro_batches[index]} micro-batches per pipeline"
            )
            raise InputError(
                f"plan {number[index]} is interleaved, which needs micro-batches in multiples of "
                f"a pp of at least 2, not {given}"
            )

    def _misplaced(self, inner: Assignment, cluster: Cluster) -> BoolArray:
        """Whether tiers do not multiply to the degrees or are overfilled, shape (N,)."""
        within_layers = np.array(inner.tp) * np.array(inner.sequence)
        occupied = within_layers * self.assigned.prod(axis=1)
        blocks = np.array(cluster.block_sizes)
        wrong = (self.assigned.prod(axis=2) != np.column_stack([self.dp, self.pp])).any(axis=1)
        wrong |= ((occupied - 1) @ blocks) >= cluster.num_devices
        full: BoolArray = wrong | (occupied[:, :-1] > blocks[1:] // blocks[:-1]).any(axis=1)
        return full
