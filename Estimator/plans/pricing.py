"""The price of one plan on one configuration of hardware: its chunks, when its gradients are
complete, its memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from Estimator.plans.compiled import outer
from Estimator.plans.cuts import Crossing, boundary_crossing, chunk_layers
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.host_traffic import host_alone_s, host_exposed_s
from Estimator.plans.layer_costs import LayerCosts, LayerSizes
from Estimator.plans.pipeline.schedule import PipelineCosts
from Estimator.plans.pipeline.simulation import held_bytes, simulate
from Estimator.plans.plan import check_cluster, check_plan
from Estimator.plans.rates import Machine, Messages, plan_rates, whole_bytes
from Estimator.plans.stage_price import (
    STAGE_ROWS,
    PlanRates,
    SyncPrice,
    backward_traffic,
    forward_traffic,
    host_traffic,
    once_s,
    pass_price,
    price_chunks,
    sparse_rows,
    step_s,
    synchronisation,
)
from Estimator.plans.stage_totals import Order, StageSizes, StageTimes, chunk_sizes, chunk_times

# mypy: disable-error-code="untyped-decorator,no-any-return"

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PricedPlan:
    """``plan`` on configuration ``configuration`` of ``costs``, a graph made for it
    (``plan.graph_key``), run by ``machine``.

    Raises:
        InputError: the plan contradicts itself, the model or the cluster.
    """

    plan: UniformPlan
    costs: LayerCosts
    machine: Machine
    configuration: int = 0

    def __post_init__(self) -> None:
        check_plan(self.plan)
        check_cluster(self.plan, self.machine.cluster)

    @cached_property
    def chunks(self) -> tuple[tuple[int, ...], ...]:
        """Layers of every chunk, by place in execution order."""
        return chunk_layers(self.plan, self.costs.graph)

    @cached_property
    def firsts(self) -> IntArray:
        """Place of the first layer of every chunk in the order in which chunks hold them, shape
        (chunks,)."""
        return np.cumsum([0, *(len(chunk) for chunk in self.chunks[:-1])])

    @cached_property
    def _order(self) -> Order:
        return slice(None) if self.plan.layer_order is None else np.array(self.plan.layer_order)

    @cached_property
    def crossing(self) -> Crossing:
        """What crosses the boundary before every chunk; arrays of shape (chunks,)."""
        graph, order = self.costs.graph, self.plan.layer_order
        found = (
            self.costs.crossing
            if order is None
            else boundary_crossing(graph.tensors, len(graph.sequence), order)
        )
        return Crossing(found.activation_bytes[self.firsts], found.gradient_bytes[self.firsts])

    @cached_property
    def rates(self) -> PlanRates:
        """What the plan's degrees make parameters cost."""
        return plan_rates(self.plan, self.machine)

    @cached_property
    def times(self) -> StageTimes:
        """Summed seconds of every chunk."""
        return chunk_times(self.costs, self.configuration, self._order, self.firsts)

    @cached_property
    def sizes(self) -> StageSizes:
        """Sizes of every chunk, with what the allocator holds beyond them."""
        return self._sizes(self.costs.sizes)

    @cached_property
    def allocated_sizes(self) -> StageSizes:
        """The same without."""
        return self._sizes(self.costs.sizes.allocated)

    def _sizes(self, sizes: LayerSizes) -> StageSizes:
        whole = whole_bytes(self.plan, self.machine)
        return chunk_sizes(sizes, self._order, self.firsts, whole).offloading(
            self.plan.offload.activations
        )

    @property
    def tied_parameters(self) -> float:
        """Parameters that layers own together: each but the first has a copy of its own, unless all
        are on one stage."""
        return self.costs.sizes.all_tied

    @cached_property
    def transfers_s(self) -> FloatArray:
        """Seconds of activations forward and gradients back over every boundary between chunks,
        shape (2, chunks - 1)."""
        if self.plan.pp == 1:
            return np.zeros((2, self.plan.chunks - 1))
        messages = Messages(self.plan, self.machine.cluster)
        sent = np.stack([self.crossing.activation_bytes[1:], self.crossing.gradient_bytes[1:]])
        return messages.seconds(sent, messages.boundary_tiers())

    @cached_property
    def _priced(self) -> tuple[FloatArray, FloatArray]:
        return self._prices(self.sizes)

    def _prices(self, sizes: StageSizes) -> tuple[FloatArray, FloatArray]:
        chunks_s, stages = np.empty((2, self.plan.chunks)), np.empty((STAGE_ROWS, self.plan.pp))
        price_chunks(
            self.rates, self.times, sizes, self.plan.pp, self.tied_parameters, chunks_s, stages
        )
        return chunks_s, stages

    @property
    def chunks_s(self) -> FloatArray:
        """Seconds per micro-batch of every chunk's forward pass and whole backward pass, shape (2,
        chunks)."""
        return self._priced[0]

    @cached_property
    def after_s(self) -> FloatArray:
        """Exposed synchronisation of each stage after its last backward pass, shape (pp,).

        The ends of a pipeline that share tied parameters add up their gradients when both have
        synchronised theirs.
        """
        after_s = self._priced[1][0].copy()
        tied_s = Messages(self.plan, self.machine.cluster).tied_s(
            self.tied_parameters, self.rates.gradient_bytes
        )
        after_s[[0, -1]] += tied_s if self.plan.pp > 1 else 0.0
        return after_s

    @property
    def step_s(self) -> float:
        """The update of the largest stage: all wait for the norm of the gradients before, and for
        each other after."""
        return float(self._priced[1][1].max())

    @property
    def updates_s(self) -> FloatArray:
        """The update of each stage without waiting for the host, shape (pp,)."""
        updates_s: FloatArray = self._priced[1][1] - self._priced[1][5]
        return updates_s

    @property
    def step_waiting_s(self) -> float:
        """What of ``step_s`` is waiting for the host."""
        return float(self._priced[1][5, self._priced[1][1].argmax()])

    @cached_property
    def host_bytes(self) -> FloatArray:
        """Bytes in host memory of each of a stage's devices, shape (pp,)."""
        held = self._held(self.sizes.offloaded_bytes)
        kept: FloatArray = self._priced[1][6] + held
        return kept

    @cached_property
    def memory_bytes(self) -> FloatArray:
        """Bytes of every stage's parameters' state, activations, workspace and what is reserved
        beyond these; shape (4, pp).

        The first three are allocated; the framework and its allocator hold the last besides.
        """
        state, workspace, context = self._priced[1][2:5]
        saved, own = (
            self._held(self.allocated_sizes.saved_bytes),
            self._prices(self.allocated_sizes)[1][3],
        )
        beyond = (self._held(self.sizes.saved_bytes) - saved) + (workspace - own)
        return np.stack([state, saved, own, context + beyond])

    def _held(self, saved_bytes: FloatArray) -> FloatArray:
        """What each stage holds of activations that leave ``saved_bytes`` on a chunk, shape
        (pp,)."""
        plan, whole = self.plan, self.machine.software.whole_warm_up
        return held_bytes(
            saved_bytes, plan.pp, plan.passes, plan.micro_batches, whole_warm_up=whole
        )

    def pipeline_costs(self, *, free_transfers: bool = False) -> PipelineCosts:
        """What the pipeline's passes and messages take.

        1F1B and GPipe wait for their transfers; interleaved schedules do unless the framework
        overlaps them.
        """
        transfers_s = np.zeros_like(self.transfers_s) if free_transfers else self.transfers_s
        software, (forward_s, backward_s) = self.machine.software, self.chunks_s
        chunked = self.plan.interleave > 1
        seconds = forward_s, backward_s, transfers_s[0], transfers_s[1]
        return PipelineCosts(
            self.plan.pp,
            *seconds,
            software.overlap_pipeline and chunked,
            whole_warm_up=software.whole_warm_up and chunked,
        )

    def finished_s(self, *, free_transfers: bool = False) -> FloatArray:
        """When each stage has its gradients complete and synchronised, from the start of the first
        micro-batch; shape (pp,)."""
        costs = self.pipeline_costs(free_transfers=free_transfers)
        ends_s = simulate(costs, self.plan.passes, self.plan.micro_batches)
        finished: FloatArray = ends_s.reshape(-1, self.plan.pp).max(axis=0) + self.after_s
        return finished


class StageParts(NamedTuple):
    """Seconds of one micro-batch on the chunks of a stage beyond what their layers' costs say, and
    once per iteration."""

    launch_s: float
    hidden_tensor_s: float
    exposed_data_s: float
    hidden_data_s: float
    hidden_once_s: float  # of the communication after the last micro-batch
    forward_launch_s: float  # of ``launch_s``, the forward pass's
    forward_data_s: float  # of ``exposed_data_s``, the forward pass's
    exposed_host_s: float  # waiting for host memory
    hidden_host_s: float
    forward_host_s: float  # of ``exposed_host_s``, the forward pass's
    hidden_step_host_s: float  # of the host traffic of the step


def stage_parts(priced: PricedPlan, stage: int) -> StageParts:
    """The parts of ``stage``."""
    chunks = np.arange(stage, priced.plan.chunks, priced.plan.pp)
    tied = priced.tied_parameters if priced.plan.pp == 1 else 0.0
    return parts_of_chunks(priced.rates, priced.times, priced.sizes, chunks, tied)


def parts_of_chunks(
    rates: PlanRates, times: StageTimes, sizes: StageSizes, chunks: IntArray, shared: float
) -> StageParts:
    """The parts of a stage that holds ``chunks``, of whose parameters ``shared`` count twice among
    the layers."""
    return StageParts(*_stage_parts(rates, times, sizes, chunks, shared))


@outer
def _stage_parts(
    rates: PlanRates, times: StageTimes, sizes: StageSizes, chunks: IntArray, shared: float
) -> tuple[float, float, float, float, float, float, float, float, float, float, float]:
    """The fields of ``StageParts``."""
    launch_s, hidden_tensor_s, exposed_data_s, hidden_data_s = 0.0, 0.0, 0.0, 0.0
    layers, parameters, experts, wide = 0.0, -shared, 0.0, -shared
    for chunk in chunks:
        layers += sizes.layers[chunk]
        parameters += sizes.parameters[chunk]
        experts += sizes.expert_parameters[chunk] if rates.expert_split else 0.0
        wide += sizes.wide_parameters[chunk]
    experts -= shared if rates.tied_split else 0.0
    rows = sparse_rows(rates, sizes, chunks[0], len(sizes.layers) // len(chunks))
    sync: SyncPrice = synchronisation(rates, parameters - experts, experts, wide, rows, layers)
    forward_s, backward_s, forward_launch_s, forward_data_s = 0.0, 0.0, 0.0, 0.0
    shown_host_s, alone_host_s, forward_host_s, hidden_step_s = 0.0, 0.0, 0.0, 0.0
    traffic = host_traffic(
        rates,
        sizes,
        chunks[0],
        len(sizes.layers) // len(chunks),
        parameters - experts,
        experts,
        wide,
        rows,
    )
    for chunk in chunks:
        share = sizes.layers[chunk] / layers
        before_s = forward_s, backward_s
        for which in range(3):
            totals = (
                times.forward if which == 0 else times.recompute if which == 1 else times.backward
            )
            more_s = times.accumulation_s[chunk] * rates.accumulated if which == 2 else 0.0
            data_s = (sync.gather_s if which != 1 else 0.0) * share + (
                sync.reduce_s * share if which == 2 else 0.0
            )
            price = pass_price(
                rates,
                totals.device_s[chunk] + more_s,
                totals.host_s[chunk],
                totals.tensor_s[chunk],
                totals.products_s[chunk],
                totals.arithmetic_s[chunk],
                data_s,
                sizes.layers[chunk],
            )
            start_s = rates.start_s[0] if which == 0 else rates.start_s[1] if which == 2 else 0.0
            launch_s += price.launch_s + start_s
            hidden_tensor_s += price.hidden_tensor_s
            exposed_data_s += price.exposed_data_s
            hidden_data_s += data_s - price.exposed_data_s
            if which == 0:
                forward_s += price.total_s + start_s
                forward_launch_s += price.launch_s + start_s
                forward_data_s += price.exposed_data_s
            else:
                backward_s += price.total_s + start_s
        if rates.host.used:
            ahead, back = (
                forward_traffic(traffic, sizes, chunk, share),
                backward_traffic(rates, traffic, sizes, chunk, share),
            )
            ahead_s = host_exposed_s(
                rates.host, ahead, forward_s - before_s[0], sizes.layers[chunk]
            )
            back_s = host_exposed_s(rates.host, back, backward_s - before_s[1], sizes.layers[chunk])
            forward_host_s += ahead_s
            shown_host_s += ahead_s + back_s
            alone_host_s += host_alone_s(rates.host, ahead) + host_alone_s(rates.host, back)
    if rates.host.used:
        update_s = step_s(rates, parameters - experts, experts, wide, rows)
        alone_step_s = host_alone_s(rates.host, traffic.step)
        hidden_step_s = alone_step_s - host_exposed_s(rates.host, traffic.step, update_s, layers)
    hidden_once_s = (
        sync.last_reduce_s + sync.update_s - once_s(rates, sync, forward_s, backward_s, layers)
    )
    hidden_host_s = alone_host_s - shown_host_s
    return (
        launch_s,
        hidden_tensor_s,
        exposed_data_s,
        hidden_data_s,
        hidden_once_s,
        forward_launch_s,
        forward_data_s,
        shown_host_s,
        hidden_host_s,
        forward_host_s,
        hidden_step_s,
    )


def layers_of(priced: PricedPlan, stage: int) -> Sequence[int]:
    """Layers of all chunks of ``stage``, by place in execution order."""
    return [
        layer
        for chunk in range(stage, priced.plan.chunks, priced.plan.pp)
        for layer in priced.chunks[chunk]
    ]
