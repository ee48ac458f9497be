"""The plans a search compares: the axes, the shapes that decide what layers cost, and the plans of
a shape."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, product
from typing import Any

import numpy as np

from Estimator.network.cluster import Cluster
from Estimator.plans.assignment import Assignment
from Estimator.plans.degrees import Layout, UniformPlan, divided_experts
from Estimator.plans.offload import NOTHING
from Estimator.plans.uniform_plans import UniformPlans
from GraphExtractor.graph import Recompute
from phaze_common.array_types import BoolArray, IntArray
from phaze_common.choices import ExpertWidth, GroupOrder
from Solver.plans.assignments import of_groups, ordered, placed_beside
from Solver.plans.replicas import undominated

# axes whose values a ``PlanSpace`` combines by rules
COMBINED = frozenset(
    {
        *("layout", "tp", "tp2", "panels", "cp", "exchange", "ep", "etp"),
        "sequence_parallel",
        *("micro_batch_size", "recompute", "overlap_tensor"),
    }
)


@dataclass(frozen=True)
class PlanSpace:
    """What is searched; ``base`` holds everything that is not (global batch, precision, optimizer,
    attention, sequence length).

    tp · cp · pp · dp is the number of ``devices``, or at most that unless ``use_all_devices``; ep
    divides dp · cp, and dp · cp · tp where each expert is whole (``expert_widths``). With
    ``whole_micro_batches`` the global batch is a whole number of micro-batches for every replica.
    Interleaved plans have equal chunks, as Megatron-LM requires; the stages of the others may
    differ. None stands for every value there is. Where ``GroupOrder.TIERS`` is among the
    ``group_orders``, the axes share out the tiers of the network, whose blocks hold ``capacities``,
    in every other way too. ``layouts`` are further ones besides tp with and without sequence
    parallelism, and cp. ``further`` are values of other axes that decide what layers cost, what is
    kept in host memory, or within which replicas state is divided: each goes with all others."""

    devices: int
    use_all_devices: bool
    base: UniformPlan
    sequence_length: int
    tp_widths: tuple[int, ...]
    micro_batch_sizes: tuple[int, ...]
    recompute: tuple[Recompute, ...]
    sequence_parallel: tuple[bool, ...] = (False,)
    cp_degrees: tuple[int, ...] = (1,)
    ep_degrees: tuple[int, ...] = (1,)
    expert_widths: tuple[ExpertWidth, ...] = (ExpertWidth.SAME,)
    pp_degrees: tuple[int, ...] | None = None
    dp_degrees: tuple[int, ...] | None = None
    interleave: tuple[int, ...] | None = (1,)
    zero_stages: tuple[int, ...] = (0,)
    group_orders: tuple[GroupOrder | Assignment, ...] = (
        GroupOrder.DATA_INNER,
        GroupOrder.PIPELINE_INNER,
    )
    capacities: tuple[int, ...] = ()
    layouts: tuple[Layout, ...] = ()
    overlap_gradients: tuple[bool, ...] = (False,)
    overlap_tensor: tuple[bool | None, ...] = (None,)
    further: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    whole_micro_batches: bool = False

    def within(self, devices: int | None) -> PlanSpace:
        """The plans that need at most so many ``devices`` (None: any), if some may be left idle."""
        fewer = devices is not None and devices < self.devices and not self.use_all_devices
        return replace(self, devices=devices) if fewer and devices is not None else self

    def shapes(self) -> Iterator[UniformPlan]:
        """Plans that differ in what decides layer seconds, or in what is kept in host memory."""
        axes = [axis for axis, _ in self.further]
        for shape in self._shapes():  # shapes with the same plans follow one another
            for chosen in product(*(values for _, values in self.further)):
                yield replace(shape, **dict(zip(axes, chosen, strict=True)))

    def _shapes(self) -> Iterator[UniformPlan]:
        axes = product(
            self.tp_widths, self.cp_degrees, self.ep_degrees, self.micro_batch_sizes, self.recompute
        )
        for tp, cp, ep, size, recompute in axes:
            shape = replace(
                self.base, tp=tp, cp=cp, ep=ep, micro_batch_size=size, recompute=recompute
            )
            of_experts = divided_experts(self.expert_widths, tp, self.sequence_parallel)
            for sequence, etp in of_experts:
                if sequence and self.sequence_length % tp:
                    continue
                divided = replace(shape, sequence_parallel=sequence, etp=etp)
                if not self._has_room(divided):
                    continue
                for overlap in self.overlap_tensor if sequence else (None,):
                    of_layers = replace(divided, overlap_tensor=overlap)
                    for order in self._orders_of(of_layers):
                        yield replace(of_layers, group_order=order)
        of_panels = groupby(self.layouts, lambda layout: replace(layout, panels=1))
        alike = [(layout, [each.panels for each in same]) for layout, same in of_panels]
        for (layout, panels), size, recompute in product(
            alike, self.micro_batch_sizes, self.recompute
        ):
            of_layout = replace(self.base, micro_batch_size=size, recompute=recompute).with_layout(
                replace(layout, panels=1)
            )
            if not self._has_room(of_layout):
                continue
            for overlap in self.overlap_tensor if layout.sequence_parallel else (None,):
                of_layers = replace(of_layout, overlap_tensor=overlap)
                # Shapes with the same plans follow one another.
                for order, count in product(list(self._orders_of(of_layers)), panels):
                    yield replace(of_layers, group_order=order, panels=count)

    def _has_room(self, shape: UniformPlan) -> bool:
        group = shape.least_devices
        return group <= self.devices and not (self.use_all_devices and self.devices % group)

    @property
    def nested(self) -> tuple[GroupOrder, ...]:
        """Orders of groups over consecutive devices."""
        named = (order for order in self.group_orders if isinstance(order, GroupOrder))
        return tuple(order for order in named if order is not GroupOrder.TIERS)

    def has_plans(self, layers: int, cluster: Cluster) -> bool:
        """Whether there is any plan for a model of ``layers`` layers."""
        return any(len(self.plans(shape, layers, cluster)) for shape in self.shapes())

    def _orders_of(self, shape: UniformPlan) -> Iterator[GroupOrder | Assignment]:
        """Where groups within a layer may lie; any order of groups stands for all of them."""
        yield from self.nested[:1]
        if shape.expert_tp < shape.tp:  # no way says where whole experts lie
            return
        for order in self.group_orders:
            if order is GroupOrder.TIERS and len(self.capacities) > 1:
                yield from of_groups(shape, self.capacities)
            elif isinstance(order, Assignment) and order.has(
                tp=shape.tp, tp2=shape.tp2, cp=shape.cp, ep=shape.ep
            ):
                yield order.groups

    def plans(
        self, shape: UniformPlan, layers: int, cluster: Cluster, *others: Cluster
    ) -> UniformPlans:
        """Plans of one shape for ``layers`` layers, embedding and head among them: the
        ``undominated`` ones.

        They are those of ``cluster`` or one of ``others``, in which nothing but the bandwidth of
        links is different."""
        # Which degrees there are, and which of them others dominate, is the same for all of these.
        same = replace(
            shape,
            recompute=Recompute.NONE,
            sequence_parallel=False,
            overlap_tensor=None,
            exchange=self.base.exchange,
            panels=1,
            offload=NOTHING,
        )
        return replace(_listed(self, same, layers, (cluster, *others)), shape=shape)

    @property
    def thinned(self) -> bool:
        """Whether ``plans`` may be fewer than ``every_plan``."""
        return self.dp_degrees is None and not self.use_all_devices

    def every_plan(self, shape: UniformPlan, layers: int, cluster: Cluster) -> UniformPlans:
        """The same with those that others dominate."""
        groups = self.devices // shape.inner_devices
        most_replicas = min(groups, shape.global_batch_size // shape.micro_batch_size)
        # Else replicas and context-parallel groups may part
        movable = len(cluster.tiers) > 1 or shape.sequence_devices > 1
        kinds: list[tuple[int, int, bool, int, bool]] = []
        replicas: list[IntArray] = [np.empty(0, np.int64)]
        placed: list[IntArray] = []
        for pp in self.pp_degrees or range(1, min(groups, layers) + 1):
            if pp > min(groups, layers) or (
                self.use_all_devices and self.devices % (shape.inner_devices * pp)
            ):
                continue
            every = self._replicas(groups // pp, most_replicas)
            every = every[shape.expert_devices(every * shape.cp) % shape.ep == 0]
            if self.whole_micro_batches:
                every = every[shape.global_batch_size % (shape.micro_batch_size * every) == 0]
            nested = (
                self.nested if isinstance(shape.group_order, GroupOrder) else (GroupOrder.TIERS,)
            )
            every, placements = self._placements(shape, pp, every)
            orders = list(product(enumerate(self.overlap_gradients), enumerate(nested)))
            axes = self.zero_stages, orders, self._chunks(pp, layers)
            for zero, ((another_overlap, overlap), (another_order, order)), chunks in product(
                *axes
            ):
                allowed = np.ones(len(every), np.bool_)
                if zero > min(self.zero_stages) or another_overlap:
                    allowed &= every * shape.sequence_devices > 1
                if another_order:
                    allowed &= (every > 1) & (pp > 1 and movable)
                if chunks > 1:
                    micro_batches = -(-shape.global_batch_size // (shape.micro_batch_size * every))
                    allowed &= micro_batches % pp == 0
                allowed &= in_groups(shape, every, zero)
                kinds.append((pp, zero, order is GroupOrder.PIPELINE_INNER, chunks, overlap))
                replicas.append(every[allowed])
                placed.append(placements[allowed])
        table = np.repeat(
            np.array(kinds, np.int64).reshape(-1, 5), [len(each) for each in replicas[1:]], axis=0
        )
        pp_column, zero_column, inner, chunk_column, overlaps = (
            np.ascontiguousarray(column) for column in table.T
        )
        plans = UniformPlans(
            shape=shape,
            pp=pp_column,
            dp=np.concatenate(replicas),
            zero_stage=zero_column,
            interleave=chunk_column,
            global_batch_size=np.full(len(table), shape.global_batch_size),
            pipeline_inner=inner > 0,
            overlap_gradients=overlaps > 0,
            assigned=np.concatenate(placed) if placed else np.empty((0, 2, 0), np.int64),
        )
        return plans.some(np.flatnonzero(~ordered(plans, self.nested, cluster)))

    def _placements(
        self, shape: UniformPlan, pp: int, degrees: IntArray
    ) -> tuple[IntArray, IntArray]:
        """Data parallel degrees, once for each placement of stages, and these (N, 2, tiers)."""
        groups = shape.group_order
        if not isinstance(groups, Assignment):
            return degrees, np.empty((len(degrees), 2, 0), np.int64)
        if GroupOrder.TIERS in self.group_orders:
            return placed_beside(groups, self.capacities, pp, degrees)
        assigned = (each for each in self.group_orders if isinstance(each, Assignment))
        given = [each for each in assigned if each.groups == groups]
        placements = [(math.prod(each.dp), (each.dp, each.pp)) for each in given if each.has(pp=pp)]
        allowed = [(dp, parts) for dp, parts in placements if dp in degrees]
        return np.array([dp for dp, _ in allowed], np.int64), np.array(
            [parts for _, parts in allowed], np.int64
        ).reshape(len(allowed), 2, len(groups.tp))

    def _replicas(self, room: int, most: int) -> IntArray:
        if self.dp_degrees is not None:
            allowed = np.array(self.dp_degrees, dtype=np.int64)
            allowed = allowed[allowed <= min(room, most)]
            return allowed[allowed == room] if self.use_all_devices else allowed
        if self.use_all_devices:
            return np.array([room] if room <= most else [], dtype=np.int64)
        return np.arange(1, min(room, most) + 1)

    def _chunks(self, pp: int, layers: int) -> tuple[int, ...]:
        """Chunks per stage for which the blocks between embedding and head divide evenly."""
        blocks = layers - 2
        wanted = self.interleave or range(1, max(blocks // pp, 1) + 1)
        several = pp > 1 and blocks > 0
        return tuple(
            chunks for chunks in wanted if chunks == 1 or (several and blocks % (pp * chunks) == 0)
        )


def in_groups(shape: UniformPlan, dp: IntArray, zero_stage: int) -> BoolArray:
    """Whether such replicas make the ``shard_groups`` of a shape, of dense parameters and of
    experts, and divide anything within them; as ``dp``."""
    groups = shape.shard_groups
    if groups == 1:
        return np.ones(len(dp), np.bool_)
    if not zero_stage or isinstance(shape.group_order, Assignment):
        return np.zeros(len(dp), np.bool_)
    copies = np.asarray(dp * shape.sequence_devices)
    whole = (dp % groups == 0) & (shape.divided_copies(copies) % groups == 0)
    return np.asarray(whole & (copies > groups))


@lru_cache(maxsize=512)  # a search, its reference chips and its limits list the same plans
def _listed(
    space: PlanSpace, shape: UniformPlan, layers: int, clusters: tuple[Cluster, ...]
) -> UniformPlans:
    plans = space.every_plan(shape, layers, clusters[0])
    if not space.thinned:
        return plans
    return plans.some(
        np.unique(np.concatenate([undominated(plans, cluster) for cluster in clusters]))
    )
