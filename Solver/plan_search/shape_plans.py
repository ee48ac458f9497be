"""The plans of one shape on one kind of machine: what they share whatever the chip, priced as far as a search asks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from Estimator.network.collectives import collective_lines, collective_s, transfer_s
from GraphExtractor.graph import CollectiveKind, ModelGraph
from Plans.layer_costs import LayerSizes
from Plans.plan import GroupOrder, TrainingPlan
from Plans.policy import training_policy
from Plans.rates import Machine, link_tiers, plan_rates, whole_bytes
from Plans.stage_price import PlanRates
from Plans.stage_totals import times_of
from Solver.cuts.kernels import Links, Priced, fill_prices, least_largest
from Solver.cuts.stage_graph import StageGraph, stage_graph
from Solver.plan_search.space import PlanArrays

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PricedDegrees:
    """A plan of the shape with what its degrees cost."""

    plan: TrainingPlan
    rates: PlanRates
    links: Links
    tied_s: float


@dataclass(frozen=True)
class DegreesKey:
    """What plans have in common whose stages cost the same: replicas, sharding, overlap, place of the replicas, one stage or more."""

    dp: int
    zero_stage: int
    overlap: int
    groups: int  # identity of their rates, which are kept
    single: bool


@dataclass(frozen=True, eq=False)
class SyncBounds:
    """Seconds of a stage's synchronisation are at least a sum of two collectives, each the least of its algorithms.

    ``fixed_s`` and ``per_parameter_s`` have shape (plans, 2, algorithms); unused algorithms are infinite, unused collectives 0.
    """

    fixed_s: FloatArray
    per_parameter_s: FloatArray


class ShapePlans:
    """Plans of one shape of ``graph``, run by machines alike but for their memory."""

    def __init__(self, graph: ModelGraph, sizes: LayerSizes, plans: PlanArrays, machine: Machine) -> None:
        self.graph, self.sizes, self.plans, self.machine = graph, sizes, plans, machine
        self.stages: StageGraph = stage_graph(graph, sizes, whole_bytes(plans.shape, machine))
        self._degrees: dict[int, PricedDegrees] = {}
        self._after: dict[DegreesKey, tuple[FloatArray, FloatArray, FloatArray]] = {}
        self._message_tables: dict[frozenset[int], tuple[FloatArray, FloatArray]] = {}

    def __len__(self) -> int:
        return len(self.plans)

    @property
    def interleaved(self) -> NDArray[np.bool_]:
        """Plans with several chunks per stage, shape (plans,)."""
        several: NDArray[np.bool_] = self.plans.interleave > 1
        return several

    @cached_property
    def most_stages(self) -> int:
        """Stages of the deepest plan without interleaving."""
        return int(self.plans.pp[self.plans.interleave == 1].max(initial=1))

    @cached_property
    def least_parameters(self) -> FloatArray:
        """Parameters that the largest of j + 1 stages has at least, shape (most stages, nodes)."""
        least = np.empty((self.most_stages, self.stages.nodes))
        least_largest(self.stages.stages, self.stages.sizes.parameters, 1, least)
        return least

    @cached_property
    def policy_columns(self) -> tuple[FloatArray, FloatArray]:
        """Bytes and step seconds per dense parameter of every plan, shapes (plans,)."""
        shape, software = self.plans.shape, self.machine.software
        copies = self.plans.dp * shape.cp
        resident, step = np.empty(len(self)), np.empty(len(self))
        for zero in np.unique(self.plans.zero_stage).tolist():
            policy = training_policy(shape.optimizer, zero).with_gradients_of(software.gradient_bytes.value)
            here = self.plans.zero_stage == zero
            resident[here] = policy.resident_bytes(copies[here])
            step[here] = policy.step_s(copies[here], self.machine.stream_bytes_per_s)
        return resident, step

    @cached_property
    def least_step_s(self) -> FloatArray:
        """Seconds of the optimizer's step at least, shape (plans,)."""
        everything = self.stages.nodes - 1
        shared = np.where(self.plans.pp == 1, self.stages.tied_parameters, 0.0)
        depth = np.minimum(self.plans.pp, self.most_stages)
        largest = self.least_parameters[depth - 1, everything]
        total = self.stages.sizes.parameters[self.stages.stages.to_end[everything]]
        largest = np.where(self.plans.interleave == 1, largest, total / self.plans.pp)
        step: FloatArray = self.policy_columns[1] * np.maximum(largest - shared, 0.0)
        return step

    @cached_property
    def least_bytes(self) -> FloatArray:
        """What the fullest stage holds at least, however the layers are cut: its part of the parameters; shape (plans,)."""
        everything = self.stages.stages.to_end[self.stages.nodes - 1]
        parameters = self.stages.sizes.parameters[everything] - self.stages.tied_parameters
        bytes_each = self.policy_columns[0]
        least: FloatArray = bytes_each * parameters / self.plans.pp + self.machine.software.reserved_memory.value
        return least

    @cached_property
    def sync_bounds(self) -> SyncBounds:
        """Bounds of the synchronisation of dense parameters after the last micro-batch; 0 where it may be hidden."""
        shape, cluster = self.plans.shape, self.machine.cluster
        per_parameter = self._gradient_bytes, training_policy(shape.optimizer, 0).weight_bytes
        found: dict[tuple[CollectiveKind, int, int], list[tuple[float, float]]] = {}
        rows: list[tuple[list[tuple[float, float]], list[tuple[float, float]]]] = []
        nothing = [(0.0, 0.0)]

        def collective(kind: CollectiveKind, size: int, stride: int, bytes_each: float) -> list[tuple[float, float]]:
            key = (kind, size, stride)
            if key not in found:
                found[key] = [(line.fixed_s, line.per_byte_s) for line in collective_lines(kind, size, stride, cluster)]
            return [(fixed, per_byte * bytes_each) for fixed, per_byte in found[key]]

        overlaps = [self._overlaps(value) for value in self.plans.space.overlap_gradients]
        for pp, dp, zero, order, overlap in zip(
            self.plans.pp.tolist(),
            self.plans.dp.tolist(),
            self.plans.zero_stage.tolist(),
            self.plans.order.tolist(),
            self.plans.overlap.tolist(),
            strict=True,
        ):
            if overlaps[overlap] or zero == 3 or dp == 1:
                rows.append((nothing, nothing))
                continue
            inner = shape.tp * shape.cp
            stride = inner if self.plans.space.group_orders[order] is GroupOrder.DATA_INNER else inner * pp
            joined = stride == inner
            size, first = (dp * shape.cp, shape.tp) if joined else (dp, stride)
            left = 1.0 if joined else 1.0 / shape.cp
            gradient, weight = (each * left for each in per_parameter)
            if zero == 0:
                rows.append((collective(CollectiveKind.ALL_REDUCE, size, first, gradient), nothing))
            elif zero == 1:
                scatter = collective(CollectiveKind.REDUCE_SCATTER, size, first, gradient)
                rows.append((scatter, collective(CollectiveKind.ALL_GATHER, size, first, weight)))
            else:
                rows.append((collective(CollectiveKind.ALL_GATHER, size, first, weight), nothing))
        most = max((len(lines) for row in rows for lines in row), default=1)
        fixed_s, per_parameter_s = np.full((len(rows), 2, most), np.inf), np.zeros((len(rows), 2, most))
        for index, row in enumerate(rows):
            for which, lines in enumerate(row):
                for place, (fixed, per_byte) in enumerate(lines):
                    fixed_s[index, which, place], per_parameter_s[index, which, place] = fixed, per_byte
        return SyncBounds(fixed_s, per_parameter_s)

    @cached_property
    def tied_s(self) -> FloatArray:
        """All-reduce of tied parameters' gradients between first and last stage, shape (plans,)."""
        payload = self.stages.tied_parameters * self._gradient_bytes
        strides = np.maximum((self.plans.pp - 1) * self._stage_strides, 1)
        distinct, like = np.unique(strides, return_inverse=True)
        seconds = [collective_s(CollectiveKind.ALL_REDUCE, payload, 2, int(each), self.machine.cluster) for each in distinct]
        return np.where(self.plans.pp > 1, np.array(seconds)[like.reshape(-1)], 0.0)

    @property
    def _stage_strides(self) -> IntArray:
        """Devices between a device and its like in the next stage, shape (plans,)."""
        inner = self.plans.shape.tp * self.plans.shape.cp
        data_inner = np.array([order is GroupOrder.DATA_INNER for order in self.plans.space.group_orders])[self.plans.order]
        strides: IntArray = np.where(data_inner, inner * self.plans.dp, inner)
        return strides

    @cached_property
    def least_messages_s(self) -> FloatArray:
        """Seconds of the messages over one boundary at least: both ways, and the shorter way; shape (2, plans)."""
        tiers = self.machine.cluster.tiers
        sizes = np.array([tier.group_size for tier in tiers])
        nearest = np.minimum(np.searchsorted(sizes, self._stage_strides, side="right"), len(tiers) - 1)
        by_tier = np.zeros((2, len(tiers)))
        for tier in range(len(tiers) if self.stages.nodes > 2 else 0):
            each = [self.message_tables(frozenset({outer})) for outer in range(tier, len(tiers))]
            by_tier[0, tier] = min(float((forward + backward)[1:-1].min()) for forward, backward in each)
            by_tier[1, tier] = min(float(np.minimum(forward, backward)[1:-1].min()) for forward, backward in each)
        seconds: FloatArray = by_tier[:, nearest]
        return seconds

    def message_tables(self, tiers: frozenset[int]) -> tuple[FloatArray, FloatArray]:
        """Seconds of messages into every node, forward and back, over the slowest of ``tiers``; shapes (nodes,)."""
        if tiers not in self._message_tables:
            crosses = self.stages.crossing
            forward, backward = (
                np.array([self._message_s(float(size), tiers) for size in sizes])
                for sizes in (crosses.activation_bytes, crosses.gradient_bytes)
            )
            self._message_tables[tiers] = forward, backward
        return self._message_tables[tiers]

    def degrees(self, index: int) -> PricedDegrees:
        """Plan ``index``, with what its degrees cost."""
        if index not in self._degrees:
            plan = self.plans.plan(index)
            rates = plan_rates(plan, self.machine)
            self._degrees[index] = PricedDegrees(plan, rates, self._links(plan), float(self.tied_s[index]))
        return self._degrees[index]

    def degrees_key(self, index: int) -> DegreesKey:
        """What decides the prices of stages under plan ``index``."""
        plans, groups = self.plans, id(self.degrees(index).rates.groups)
        single = bool(plans.pp[index] == 1)
        return DegreesKey(int(plans.dp[index]), int(plans.zero_stage[index]), int(plans.overlap[index]), groups, single)

    def after_passes(self, index: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Synchronisation, step and bytes (all but activations) of every stage under plan ``index``, shape (edges,) each.

        They do not depend on the hardware's speed where nothing overlaps with computation; stages of as many layers and
        parameters differ in their workspace alone.
        """
        key = self.degrees_key(index)
        if key not in self._after:
            graph, rates = self.stages, self.degrees(index).rates
            edges = len(graph.stages.whole)
            priced = Priced(*(np.empty(edges) for _ in range(5)))
            times = times_of(np.zeros((edges, 13)))
            fill_prices(rates, times, graph.sizes, graph.examples, graph.tied_parameters if key.single else 0.0, priced)
            workspace = graph.sizes.workspace_bytes[:, rates.zero_stage]
            state = (priced.fixed_bytes - workspace)[graph.examples]
            after, step = priced.after_s[graph.examples], priced.step_s[graph.examples]
            self._after[key] = after[graph.like], step[graph.like], state[graph.like] + workspace
        return self._after[key]

    @property
    def _gradient_bytes(self) -> float:
        return self.machine.software.gradient_bytes.value

    def _overlaps(self, value: bool | None) -> bool:
        return self.machine.software.overlap_gradients if value is None else value

    def _message_s(self, payload_bytes: float, tiers: frozenset[int]) -> float:
        shape, cluster = self.plans.shape, self.machine.cluster
        if not payload_bytes:
            return 0.0
        whole = max(transfer_s(payload_bytes, cluster.tiers[tier]) for tier in tiers)
        if shape.tp == 1 or shape.sequence_parallel:
            return whole
        part = max(transfer_s(payload_bytes / shape.tp, cluster.tiers[tier]) for tier in tiers)
        gather = min(line.seconds(payload_bytes) for line in collective_lines(CollectiveKind.ALL_GATHER, shape.tp, 1, cluster))
        return min(whole, part + gather)

    def _links(self, plan: TrainingPlan) -> Links:
        crossed = [link_tiers(plan, self.machine.cluster, stage, stage + 1) for stage in range(plan.pp - 1)]
        kinds = list(dict.fromkeys(crossed)) or [frozenset({0})]
        tables = np.array([self.message_tables(kind) for kind in kinds])
        kind_of = np.array([kinds.index(each) for each in reversed(crossed)] or [0], dtype=np.int64)
        inner = tables.sum(axis=1)[:, 1:-1]
        least = inner.min(axis=1) if inner.shape[1] else np.zeros(len(kinds))
        least_s = np.concatenate([[0.0], np.cumsum(least[kind_of[: plan.pp - 1]])]) if plan.pp > 1 else np.zeros(1)
        return Links(tables, kind_of, least_s)
