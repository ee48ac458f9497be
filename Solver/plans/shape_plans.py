"""The plans of one shape on one kind of machine: what they share whatever the chip, priced as far
as a search asks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from Estimator.network.links import TierArray, routes
from Estimator.plans.cuts import boundary_crossing
from Estimator.plans.layer_costs import LayerSizes
from Estimator.plans.many import PreparedPlans
from Estimator.plans.many_rates import (
    ManyRates,
    many_rates,
    rates_at,
)
from Estimator.plans.policy import policy_under
from Estimator.plans.rates import (
    Machine,
    Messages,
    between_s,
    many_tied_s,
    orthogonalised_part,
    paired_part,
    whole_bytes,
)
from Estimator.plans.stage_price import PlanRates
from Estimator.plans.stage_totals import TIME_COLUMNS, StageTimes, times_of
from Estimator.plans.uniform_plans import ZERO_STAGES, UniformPlans, numbered
from GraphExtractor.graph import ModelGraph
from phaze_common.array_types import BoolArray, FloatArray, IntArray
from Solver.paths.cut_bounds import ROUNDING
from Solver.paths.stage_graph import StageGraph, stage_graph
from Solver.paths.stage_tables import (
    Links,
    Priced,
    fill_least_messages,
    fill_passes,
    fill_prices,
    least_fullest_bytes,
    least_largest,
)
from Solver.plans.alike_plans import AlikePlans
from Solver.plans.bounds import PlanBounds, fill_sync
from Solver.plans.replica_collectives import ReplicaCollectives
from Solver.plans.sparse_tables import TablesOfStages

AT_ONCE = 1024  # plans whose rates are priced together
MOST_KEPT = 2048  # degrees whose prices of stages are kept


@dataclass(frozen=True)
class DegreesKey:
    """What plans have in common whose stages cost the same, but for passes that take longer the
    more devices wait for the slowest of them."""

    dp: int
    zero_stage: int
    overlap: bool
    groups: int  # a number for what collectives over replicas take
    single: bool
    # Micro-batches of which activations are in host memory, where that has an end; else 0
    in_flight: int
    paired: float  # part of the passes beside another micro-batch's


class CutTerms(NamedTuple):
    """What a plan has of ``Problem`` whatever the hardware."""

    links: Links
    most_one_way_s: float
    follows: bool
    pp: int
    micro_batches: int
    tied_s: float
    least_step_s: float


class ShapePlans:
    """Plans of one shape of ``graph``, run by machines alike but for their memory.

    ``stages`` are the ``stages_on_device`` of the same ``sizes`` and optimizer, where another shape
    has them. Where the memory of a host is known, every stage counts as many micro-batches'
    activations there as the first one, which has most in flight."""

    def __init__(
        self,
        graph: ModelGraph,
        sizes: LayerSizes,
        plans: UniformPlans,
        machine: Machine,
        stages: StageGraph | None = None,
    ) -> None:
        self.graph, self.sizes, self.plans, self.machine = graph, sizes, plans, machine
        self.stages_on_device = stages or stage_graph(
            graph, sizes, whole_bytes(plans.shape, machine)
        )
        self.stages = self.stages_on_device.offloading(plans.shape.offload.activations)
        self._tables = TablesOfStages(self.stages.sizes, plans)
        self._rates: dict[int, PlanRates] = {}
        self._parts: dict[int, ManyRates] = {}
        self._numbers: dict[int, list[int]] = {}
        self._groups: dict[bytes, int] = {}
        self._tiers: dict[int, TierArray] = {}
        self._links: dict[bytes, Links] = {}
        self._least: dict[bytes, FloatArray] = {}
        self._fit: dict[float, bool] = {}
        self._fullest: dict[tuple[int, int, int, int], float] = {}
        self._after: dict[DegreesKey, tuple[FloatArray, FloatArray, FloatArray]] = {}
        self._columns_after: dict[DegreesKey, FloatArray] = {}
        self._keys: dict[int, DegreesKey] = {}
        self._terms: dict[int, CutTerms] = {}

    def __len__(self) -> int:
        return len(self.plans)

    def forget(self) -> None:
        """Let go of what can be computed again: of thousands of shapes few are looked at twice."""
        for known in (
            self._rates,
            self._parts,
            self._after,
            self._columns_after,
            self._keys,
            self._terms,
            self._numbers,
            self._groups,
            self._tiers,
            self._links,
            self._least,
            self._fullest,
        ):
            known.clear()
        for name, value in vars(ShapePlans).items():
            if isinstance(value, cached_property):
                self.__dict__.pop(name, None)

    @cached_property
    def interleaved(self) -> BoolArray:
        """Plans with several chunks per stage, shape (plans,)."""
        several: BoolArray = self.plans.interleave > 1
        return several

    @cached_property
    def interleaved_rows(self) -> IntArray:
        """Places of the interleaved plans."""
        return np.flatnonzero(self.interleaved)

    @cached_property
    def interleaved_plans(self) -> PreparedPlans:
        """The interleaved plans, priced many at once."""
        crossing = boundary_crossing(self.graph.tensors, len(self.graph.sequence))
        return PreparedPlans(
            self.plans.some(self.interleaved_rows), self.sizes, crossing, self.machine
        )

    @cached_property
    def most_stages(self) -> int:
        """Stages of the deepest plan without interleaving."""
        return int(self.plans.pp[self.plans.interleave == 1].max(initial=1))

    @cached_property
    def least_parameters(self) -> FloatArray:
        """Parameters that the largest of j + 1 stages has at least, shape (most stages, nodes)."""
        return self._least_largest(self.stages.sizes.parameters)

    def _least_largest(self, values: FloatArray) -> FloatArray:
        least = np.empty((self.most_stages, self.stages.nodes))
        least_largest(self.stages.stages, values, least)
        return least

    @cached_property
    def bounds(self) -> PlanBounds:
        """What bounds of the plans need whatever the hardware's speed."""
        both_ways_s, least_s, most_s = self._boundary_s
        collectives = ReplicaCollectives(self.plans, self.machine)
        sync_fixed_s, sync_per_parameter_s = collectives.once_s
        dense = self._tables.dense_parameters
        all_dense = np.array_equal(dense, self.stages.sizes.parameters)
        plans, in_passes = self.plans, self.plans.shape.offload.in_passes
        bounds = PlanBounds(
            skip=self.interleaved,
            pp=plans.pp,
            micro_batches=plans.micro_batches,
            least_messages_s=both_ways_s,
            least_one_way_s=least_s,
            most_one_way_s=most_s,
            follows=~plans.overlap_gradients & (plans.zero_stage < 2) & (not in_passes),
            least_step_s=self.least_step_s,
            tied_s=self.tied_s,
            sync_fixed_s=sync_fixed_s,
            sync_per_parameter_s=sync_per_parameter_s,
            pass_parameter_s=collectives.pass_parameter_s,
            parameters=dense,
            least_parameters=self.least_parameters if all_dense else self._least_largest(dense),
            tied_parameters=self.stages.tied_parameters,
            first_sync_s=np.empty(len(self)),
            rest_sync_s=np.empty(len(self)),
        )
        fill_sync(bounds, self.stages.stages)
        return bounds

    @cached_property
    def policy_columns(self) -> tuple[FloatArray, FloatArray]:
        """Bytes and step seconds per dense parameter of every plan, shapes (plans,)."""
        shape, software = self.plans.shape, self.machine.software
        copies = self.plans.sharers[:, 0]
        resident, step = np.empty(len(self)), np.empty(len(self))
        for zero in np.unique(self.plans.sharding).tolist():
            policy = policy_under(software, shape, zero)
            here = self.plans.sharding == zero
            resident[here] = policy.resident_bytes(copies[here], shape.offload)
            step[here] = policy.step_s(
                copies[here], self.machine.stream_bytes_per_s, self.plans.devices[here]
            )
        return resident, step

    @property
    def _whole_kind(self) -> int:
        """The kind of the stage of all layers."""
        stages = self.stages.stages
        return int(stages.kind[stages.to_end[self.stages.nodes - 1]])

    @cached_property
    def least_step_s(self) -> FloatArray:
        """Seconds of the optimizer's step at least, shape (plans,)."""
        everything, kind = self.stages.nodes - 1, self._whole_kind
        shared = np.where(self.plans.pp == 1, self.stages.tied_parameters, 0.0)
        depth = np.minimum(self.plans.pp, self.most_stages)
        stepped = self._tables.stepped_parameters
        least = self._least_largest(stepped) if self._tables.used.any() else self.least_parameters
        largest = least[depth - 1, everything]
        total = stepped[kind]
        largest = np.where(self.plans.interleave == 1, largest, total / self.plans.pp)
        step: FloatArray = self.policy_columns[1] * np.maximum(largest - shared, 0.0)
        part = orthogonalised_part(
            self.plans.shape, self.plans.sharding[:, None], self.plans.sharers, self.machine
        )
        if part.any():  # some stage has no less than the mean of both
            mean = self.policy_columns[1] * np.maximum(total - shared, 0.0)
            mean += part @ self.stages.sizes.matrices_s[kind]
            step = np.maximum(step, mean / self.plans.pp)
        return step + between_s(self.machine.software)

    @cached_property
    def least_bytes(self) -> FloatArray:
        """What the fullest stage holds at least, of the best cut once ``fit`` has seen it."""
        return self.parameter_bytes.copy()

    @cached_property
    def parameter_bytes(self) -> FloatArray:
        """What the fullest stage holds at least before any activation, shape (plans,)."""
        everything = self._whole_kind
        parameters = self.stages.sizes.parameters[everything] - self.stages.tied_parameters
        on_device = self._gradient_bytes * (1.0 - self.plans.shape.offload.gradients)
        spared = on_device * self._tables.unread_parameters(everything)
        mean = (self.policy_columns[0] * parameters - spared) / self.plans.pp
        least: FloatArray = mean + self.machine.software.reserved_memory.value
        return least

    @cached_property
    def relaxed_bytes(self) -> FloatArray:
        """What the fullest stage holds at least were parameters and activations divisible at will,
        shape (plans,).

        The s-th stage from the end keeps k = min(s, micro-batches) of its activations a: no more
        than M - f of M bytes where its parameters take f. So all activations A are at most the sum
        of (M - f) / k, and the parameters, F in all, at best lie where k is largest: M >= (A + F /
        max k) / sum of 1 / k. Of interleaved plans nothing but the parameters is told."""
        reserved = self.machine.software.reserved_memory.value
        saved = self.stages.sizes.saved_bytes[self._whole_kind]
        pp = self.plans.pp
        held = np.minimum(self.plans.pp, self.plans.micro_batches).astype(np.float64)
        inverse = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1.0, pp.max(initial=1) + 1.0))])
        inverses = inverse[held.astype(np.int64)] + (pp - held) / held
        state = (self.parameter_bytes - reserved) * pp
        relaxed = (saved + state / held) / inverses + reserved
        return np.where(
            self.interleaved, self.parameter_bytes, np.maximum(self.parameter_bytes, relaxed)
        )

    def fit(self, memory_bytes: float) -> bool:
        """Whether some cut fits, exactly but for interleaved plans; it tightens ``least_bytes``."""
        if memory_bytes not in self._fit:
            self._fit[memory_bytes] = self._found_fit(memory_bytes * (1.0 + ROUNDING))
        return self._fit[memory_bytes]

    def leanest_bytes(self, below: float = np.inf) -> float:
        """What the fullest stage holds under the plan and cut where that is least; ``below`` or
        more where none needs less.

        Of interleaved plans, whose chunks no formula cuts, it does not tell."""
        least, plain = below, np.flatnonzero(~self.interleaved)
        for index in plain[np.argsort(self.parameter_bytes[plain], kind="stable")].tolist():
            if self.parameter_bytes[index] >= least:
                break
            least = min(least, self._least_fullest_bytes(index))
        return least

    def stages_fit(self, memory_bytes: float) -> BoolArray:
        """Stages that fit under some plan, whatever the others hold, shape (kinds,)."""
        fits: BoolArray = self._least_stage_bytes <= memory_bytes * (1.0 + ROUNDING)
        return fits

    @cached_property
    def _least_stage_bytes(self) -> FloatArray:
        """What every stage holds at least with one micro-batch, shape (kinds,)."""
        plans = self.plans
        kinds = (self._kept_in_flight * 2 * ZERO_STAGES + plans.working) * 2 + (plans.pp == 1)
        # Which hold less, but for rows that they read
        more = np.where(self._tables.used, -self._tables.lookups, plans.dp)
        # Replicas of each kind
        most = np.lexsort((more, kinds))[np.flatnonzero(np.diff(np.sort(kinds), append=-1))]
        fixed: FloatArray = np.min([self.after_passes(index)[2] for index in most.tolist()], axis=0)
        return fixed + self.stages.sizes.saved_bytes

    def may_fit(self, index: int, memory_bytes: float) -> bool:
        """Whether a cut of a plan fits, exactly; of interleaved plans by parameters alone."""
        if not self.interleaved[index]:
            self.least_bytes[index] = self._least_fullest_bytes(index)
        return bool(self.least_bytes[index] <= memory_bytes * (1.0 + ROUNDING))

    def _found_fit(self, memory_bytes: float) -> bool:
        for index in np.argsort(self.least_bytes, kind="stable"):
            if self.least_bytes[index] > memory_bytes:
                return False
            if self.interleaved[index]:
                return True
            self.least_bytes[index] = self._least_fullest_bytes(int(index))
            if self.least_bytes[index] <= memory_bytes:
                return True
        return False

    def _least_fullest_bytes(self, index: int) -> float:
        plans, graph = self.plans, self.stages
        pp, micro_batches = int(plans.pp[index]), int(plans.micro_batches[index])
        zero, replicas = int(plans.sharding[index]), int(plans.dp[index])
        lookups = int(self._tables.lookups[index]) if self._tables.used[index] else 0
        # Without ZeRO replicas hold the same
        key = (pp, min(pp, micro_batches), zero, replicas if zero else lookups)
        if key not in self._fullest:
            fixed_bytes, saved_bytes = self.after_passes(index)[2], graph.sizes.saved_bytes
            self._fullest[key] = least_fullest_bytes(
                graph.stages, fixed_bytes, saved_bytes, pp, micro_batches
            )
        return self._fullest[key]

    @cached_property
    def tied_s(self) -> FloatArray:
        """All-reduce of tied parameters' gradients between first and last stage, shape (plans,)."""
        return many_tied_s(
            self.plans, self.stages.tied_parameters, self._gradient_bytes, self.machine.cluster
        )

    @cached_property
    def paired(self) -> FloatArray:
        """Part of the passes beside which those of another micro-batch run, shape (plans,)."""
        return paired_part(self.plans, self.machine.software)

    @property
    def _boundary_s(self) -> FloatArray:
        """Seconds over a boundary: both ways and one way at least, one way at most; (3, plans)."""
        tiers = self.machine.cluster.tiers
        by_tier = np.zeros((3, len(tiers)))
        for tier in range(len(tiers) if self.stages.nodes > 2 else 0):
            inner = self.message_tables[tier:, :, 1:-1]
            by_tier[:, tier] = inner.sum(axis=1).min(), inner.min(), inner.max()
        seconds: FloatArray = by_tier[:, self.plans.nearest_tiers(self.machine.cluster)]
        return seconds

    @cached_property
    def message_tables(self) -> FloatArray:
        """Seconds of messages into every node by route, forward and back; (routes, 2, nodes)."""
        cluster, crosses = self.machine.cluster, self.stages.crossing
        messages = Messages(self.plans.plan(0) if len(self) else self.plans.shape, cluster)
        tiers = np.arange(routes(cluster), dtype=np.int8)[:, None]
        both = (crosses.activation_bytes, crosses.gradient_bytes)
        return np.stack([messages.seconds(each[None, :], tiers) for each in both], axis=1)

    def rates(self, index: int) -> PlanRates:
        """What the degrees of plan ``index`` cost; those of plans nearby are priced with it."""
        if index not in self._rates:
            self._rates[index] = rates_at(self._many_rates(index // AT_ONCE), index % AT_ONCE)
        return self._rates[index]

    def rates_in_parts(self) -> Iterator[tuple[IntArray, ManyRates]]:
        """Some plans after others, and what their degrees cost."""
        for first in range(0, len(self), AT_ONCE):
            rows = np.arange(first, min(first + AT_ONCE, len(self)))
            yield rows, self._many_rates(first // AT_ONCE)

    def _many_rates(self, part: int) -> ManyRates:
        if part not in self._parts:
            rows = np.arange(part * AT_ONCE, min(len(self), (part + 1) * AT_ONCE))
            self._parts[part] = many_rates(self.plans.some(rows), self.machine)
        return self._parts[part]

    def degrees_key(self, index: int) -> DegreesKey:
        """What decides the prices of stages under plan ``index``."""
        if index not in self._keys:
            plans = self.plans
            self._keys[index] = DegreesKey(
                dp=int(plans.dp[index]),
                zero_stage=int(plans.sharding[index]),
                overlap=bool(plans.overlap_gradients[index]),
                groups=self._groups_number(index),
                single=bool(plans.pp[index] == 1),
                in_flight=int(self._kept_in_flight[index]),
                paired=float(self.paired[index]),
            )
        return self._keys[index]

    def terms(self, index: int) -> CutTerms:
        """What plan ``index`` has of the problem of its cuts whatever the hardware."""
        if index not in self._terms:
            self._terms[index] = CutTerms(
                self.links(index),
                float(self.bounds.most_one_way_s[index]),
                bool(self.bounds.follows[index]),
                int(self.plans.pp[index]),
                int(self.plans.micro_batches[index]),
                float(self.tied_s[index]),
                float(self.least_step_s[index]),
            )
        return self._terms[index]

    def alike(self, rows: IntArray) -> AlikePlans:
        """Plans ``rows`` by what decides their pipelines: all but replicas, and how many devices
        wait for the slowest of them."""
        plans, links = self.plans.some(rows), np.empty(len(rows), np.int64)
        numbers: dict[bytes, int] = {}
        for first in range(0, len(rows), AT_ONCE):
            some = plans.some(np.arange(first, min(first + AT_ONCE, len(rows))))
            tiers = some.boundary_tiers(self.machine.cluster)
            for place, (crossed, stages) in enumerate(zip(tiers, some.pp.tolist(), strict=True)):
                crossing = crossed[: stages - 1].tobytes()
                links[first + place] = numbers.setdefault(crossing, len(numbers))
        follows = self.bounds.follows[rows].astype(np.int64)
        classes = numbered([plans.pp, plans.micro_batches, links, follows])
        return AlikePlans(rows, classes, numbered([plans.sharding, plans.dp]))

    def _groups_number(self, index: int) -> int:
        """The same of plans whose collectives over replicas cost the same."""
        part, known = index // AT_ONCE, self._groups
        rates = self._many_rates(part)
        if part not in self._numbers:
            every = zip(*rates.groups, strict=True)
            costs = (b"".join(each.tobytes() for each in group) for group in every)
            self._numbers[part] = [known.setdefault(each, len(known)) for each in costs]
        return self._numbers[part][int(rates.group[index % AT_ONCE])]

    @cached_property
    def _kept_in_flight(self) -> IntArray:
        """Micro-batches with activations in a host memory that has an end, else 0; (plans,)."""
        limited = self.plans.shape.offload.activations > 0.0 and np.isfinite(
            self.machine.host_bytes
        )
        return np.minimum(self.plans.pp, self.plans.micro_batches) * int(limited)

    def stage_prices(self, index: int, times: StageTimes, fits: BoolArray | None = None) -> Priced:
        """Stages with ``times`` in full under a plan; those that ``fits`` (kinds,) leaves out take
        more bytes than there are."""
        graph = self.stages
        shared = self.stages.tied_parameters if self.plans.pp[index] == 1 else 0.0
        priced = Priced(*np.empty((5, len(graph.examples))))
        wanted = np.ones(len(graph.examples), np.bool_) if fits is None else fits
        no_chunks = np.empty((2, 0))
        fill_prices(self.rates(index), times, graph.sizes, shared, wanted, no_chunks, priced)
        return priced

    def passes(self, index: int, times: StageTimes) -> tuple[FloatArray, FloatArray]:
        """Forward and backward passes of every stage with ``times`` under plan ``index``, without
        data-parallel communication, shape (kinds,) each."""
        forward_s, backward_s = np.empty((2, len(self.stages.examples)))
        fill_passes(self.rates(index), times, self.stages.sizes, forward_s, backward_s)
        return forward_s, backward_s

    def after_passes(self, index: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Synchronisation, step and bytes (all but activations) of every stage under plan
        ``index``, shape (kinds,) each.

        They do not depend on the hardware's speed where nothing overlaps with computation."""
        key = self.degrees_key(index)
        if key not in self._after:
            if len(self._after) == MOST_KEPT:
                self._after.clear()
            priced = self.stage_prices(
                index, times_of(np.zeros((len(self.stages.examples), TIME_COLUMNS)))
            )
            self._after[key] = priced.after_s, priced.step_s, priced.fixed_bytes
        return self._after[key]

    def columns_after(self, index: int) -> FloatArray:
        """The same as the last columns of ``Problem.kinds``, with the bytes of activations;
        (kinds, 4)."""
        key = self.degrees_key(index)
        if key not in self._columns_after:
            if len(self._columns_after) == MOST_KEPT:
                self._columns_after.clear()
            columns = *self.after_passes(index), self.stages.sizes.saved_bytes
            self._columns_after[key] = np.stack(columns, axis=1)
        return self._columns_after[key]

    @property
    def _gradient_bytes(self) -> float:
        return policy_under(self.machine.software, self.plans.shape, 0).state.gradient

    def _least_messages(self, kind_of: IntArray) -> FloatArray:
        key = kind_of.tobytes()
        if key not in self._least:
            least_s = np.empty((len(kind_of) + 1, self.stages.nodes))
            fill_least_messages(self.stages.stages, self.message_tables, kind_of, least_s)
            self._least[key] = least_s
        return self._least[key]

    def links(self, index: int) -> Links:
        """Messages of plan ``index``."""
        part, boundaries = index // AT_ONCE, int(self.plans.pp[index]) - 1
        if part not in self._tiers:
            rows = np.arange(part * AT_ONCE, min(len(self), (part + 1) * AT_ONCE))
            self._tiers[part] = self.plans.some(rows).boundary_tiers(self.machine.cluster)
        crossed = self._tiers[part][index % AT_ONCE, :boundaries]
        key = crossed.tobytes()
        if key not in self._links:
            self._links[key] = self._links_over(crossed.astype(np.int64)[::-1])
        return self._links[key]

    def _links_over(self, tiers: IntArray) -> Links:
        """Messages over boundaries of ``tiers``, the last stage's first."""
        kind_of = np.ascontiguousarray(tiers) if len(tiers) else np.zeros(1, np.int64)
        stages = len(tiers) + 1
        # As of the deepest plan, whose first rows are those of the others
        if len(tiers) and (tiers == tiers[0]).all():
            least_s = self._least_messages(np.full(self.most_stages, tiers[0]))[:stages]
        else:
            least_s = self._least_messages(kind_of)[:stages]
        return Links(self.message_tables, kind_of, least_s)
