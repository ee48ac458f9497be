"""The price of one plan on one configuration of hardware: its stages, when their gradients are
complete, their memory.

Stages that are trained alike are priced together, so a plan whose stages are all alike is one call
of compiled code; a plan whose stages differ has a set of one for each of them
(``Estimator.plans.heterogeneous``). The pipeline of all of them is the same code for both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from Estimator.pass_parts import PassParts
from Estimator.plans.cuts import Crossing, boundary_crossing, chunk_layers
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.flops import TrainedFlops, trained_flops
from Estimator.plans.layer_costs import LayerCosts, LayerSizes, PassCosts, as_laid_out, summed_parts
from Estimator.plans.many_rates import plan_rates
from Estimator.plans.pipeline.schedule import PipelineCosts, PipelineSchedule
from Estimator.plans.pipeline.simulation import held_bytes, simulate
from Estimator.plans.plan import check_cluster, check_plan
from Estimator.plans.policy import policy_under
from Estimator.plans.rates import Machine, Messages, whole_bytes
from Estimator.plans.stage_price import (
    PRICE_FIELDS,
    PlanRates,
    StageParameters,
    StagePrice,
    parameters_of,
    price_stages,
)
from Estimator.plans.stage_totals import Order, StageSizes, StageTimes, chunk_sizes, chunk_times
from Estimator.plans.uniform_plans import UniformPlans

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
STAGE_STEPS = 100  # of pricing one, as ``Compiled.of_steps`` counts them


@dataclass(frozen=True, eq=False)
class StagesAlike:
    """Stages that are trained alike: of their chunks c is on stage c % ``pp``.

    ``allocated_sizes`` are ``sizes`` without what the allocator holds beyond them;
    ``tied_parameters`` count once if a single stage has all layers.
    """

    rates: PlanRates
    times: StageTimes
    sizes: StageSizes
    allocated_sizes: StageSizes
    pp: int
    tied_parameters: float

    @cached_property
    def _priced(self) -> tuple[FloatArray, StagePrice[FloatArray]]:
        return self._prices(self.sizes)

    def _prices(self, sizes: StageSizes) -> tuple[FloatArray, StagePrice[FloatArray]]:
        tied = self.tied_parameters
        chunks_s = np.empty((2, len(sizes.layers)))
        prices = np.empty((PRICE_FIELDS, self.pp))
        price = price_stages.of_steps(STAGE_STEPS * self.pp)
        price(self.rates, self.times, sizes, self.pp, tied, chunks_s, prices)
        return chunks_s, StagePrice(*prices)

    @property
    def chunks_s(self) -> FloatArray:
        """Seconds per micro-batch of each chunk's forward and whole backward pass, (2, chunks)."""
        return self._priced[0]

    @property
    def prices(self) -> StagePrice[FloatArray]:
        """What each stage takes, arrays of shape (pp,)."""
        return self._priced[1]

    @property
    def allocated_workspace_bytes(self) -> FloatArray:
        """The workspace without what the allocator holds beyond it, shape (pp,)."""
        return self._prices(self.allocated_sizes)[1].workspace_bytes

    @property
    def parameters(self) -> FloatArray:
        """Parameters on a device of each stage, shape (pp,)."""
        parameters: FloatArray = self.sizes.parameters.reshape(-1, self.pp).sum(axis=0)
        return parameters - (self.tied_parameters if self.pp == 1 else 0.0)

    @property
    def accumulated_s(self) -> FloatArray:
        """Seconds of a micro-batch that add gradients to those of earlier ones, shape (pp,)."""
        seconds: FloatArray = self.times.accumulation_s.reshape(-1, self.pp).sum(axis=0)
        return seconds * self.rates.accumulated


class PricedPipeline(ABC):
    """A plan on ``machine``, priced; ``costs`` are those of the layers on its first stage."""

    machine: Machine
    costs: LayerCosts

    @property
    @abstractmethod
    def first_stage(self) -> UniformPlan:
        """The plan whose stages are all trained as the first one is."""

    @property
    @abstractmethod
    def devices(self) -> tuple[int, ...]:
        """Devices of each stage."""

    @property
    @abstractmethod
    def alike(self) -> tuple[StagesAlike, ...]:
        """The stages in model order, those together that are trained alike."""

    @abstractmethod
    def layers_of(self, stage: int) -> list[int]:
        """Layers of all chunks of ``stage``, by place in execution order."""

    @abstractmethod
    def passes_of(self, stage: int) -> tuple[PassParts, PassParts, PassParts]:
        """Forward, what is recomputed, and backward, of a micro-batch on ``stage``, by cause."""

    @property
    @abstractmethod
    def transfers_s(self) -> FloatArray:
        """Seconds over every boundary of chunks, forward and back, shape (2, chunks - 1)."""

    @property
    @abstractmethod
    def tied_s(self) -> float:
        """Seconds to add up gradients of parameters that both ends share; 0 on one stage."""

    @property
    @abstractmethod
    def flops(self) -> TrainedFlops:
        """FLOPs of an iteration on all devices; fill of last micro-batches does not count."""

    @property
    @abstractmethod
    def sample_joules(self) -> float | None:
        """Joules per sample of all devices; None where they are not known."""

    @cached_property
    def pp(self) -> int:
        """Pipeline stages."""
        return sum(stages.pp for stages in self.alike)

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a pipeline."""
        return self.first_stage.micro_batches

    @property
    def passes(self) -> PipelineSchedule:
        """The schedule that orders its passes (``UniformPlan.passes``)."""
        return self.first_stage.schedule if self.pp > 1 else PipelineSchedule.ONE_F_ONE_B

    @property
    def between_s(self) -> float:
        """What the host does once per iteration, while its devices wait."""
        return self.alike[0].rates.between_s

    @cached_property
    def chunks_s(self) -> FloatArray:
        """Seconds per micro-batch of each chunk's forward and whole backward pass, (2, chunks)."""
        return np.concatenate([stages.chunks_s for stages in self.alike], axis=1)

    @cached_property
    def prices(self) -> StagePrice[FloatArray]:
        """What each stage takes, arrays of shape (pp,)."""
        if len(self.alike) == 1:
            return self.alike[0].prices
        return StagePrice(*np.concatenate([stages.prices for stages in self.alike], axis=1))

    def stage_price(self, stage: int) -> StagePrice[float]:
        """What one stage takes."""
        return StagePrice(*(float(column[stage]) for column in self.prices))

    @cached_property
    def after_s(self) -> FloatArray:
        """Exposed synchronisation of each stage after its last backward pass, shape (pp,).

        The ends of a pipeline that share tied parameters add up their gradients when both have
        synchronised theirs.
        """
        after_s = self.prices.after_s.copy()
        after_s[[0, -1]] += self.tied_s
        return after_s

    @property
    def step_s(self) -> float:
        """The update of the stage where it takes longest: all wait for the norm of the gradients
        before, and for each other after."""
        return float(self.prices.step_s.max())

    @property
    def step_waiting_s(self) -> float:
        """What of ``step_s`` is waiting for the host."""
        return float(self.prices.step_waiting_s[self.slowest_step])

    @property
    def slowest_step(self) -> int:
        """The stage whose step takes longest."""
        return int(self.prices.step_s.argmax())

    @property
    def outer_s(self) -> float:
        """What of ``step_s`` is an iteration's part of an outer step of several sites."""
        return 0.0

    @cached_property
    def host_bytes(self) -> FloatArray:
        """Bytes in host memory of each of a stage's devices, shape (pp,)."""
        held = self._held(stages.sizes.offloaded_bytes for stages in self.alike)
        return self.prices.host_state_bytes + held

    @cached_property
    def memory_bytes(self) -> FloatArray:
        """Bytes of every stage's parameters' state, activations, workspace, what is reserved beyond
        these, and what of it the allocator holds; shape (5, pp).

        The first three are allocated; the framework and its allocator hold the fourth besides.
        """
        saved = self._held(stages.allocated_sizes.saved_bytes for stages in self.alike)
        own = np.concatenate([stages.allocated_workspace_bytes for stages in self.alike])
        held = self._held(stages.sizes.saved_bytes for stages in self.alike)
        beyond = held - saved + (self.prices.workspace_bytes - own)
        software = self.machine.software
        library = 0.0 if software.library_memory is None else software.library_memory.value
        reserved = software.reserved_memory.value - library + beyond
        return np.stack([self.prices.state_bytes, saved, own + library, reserved, beyond])

    def _held(self, saved_bytes: Iterable[FloatArray]) -> FloatArray:
        """What each stage holds of activations that leave ``saved_bytes`` on its chunks, (pp,)."""
        every, whole = np.concatenate(list(saved_bytes)), self.machine.software.whole_warm_up
        return held_bytes(every, self.pp, self.passes, self.micro_batches, whole_warm_up=whole)

    def pipeline_costs(self, *, free_transfers: bool = False) -> PipelineCosts:
        """What the pipeline's passes and messages take.

        1F1B and GPipe wait for their transfers; interleaved schedules do unless the framework
        overlaps them.
        """
        transfers_s = np.zeros_like(self.transfers_s) if free_transfers else self.transfers_s
        software, chunked = self.machine.software, self.first_stage.interleave > 1
        return PipelineCosts(
            self.pp,
            self.chunks_s[0],
            self.chunks_s[1],
            transfers_s[0],
            transfers_s[1],
            software.overlap_pipeline and chunked,
            whole_warm_up=software.whole_warm_up and chunked,
        )

    def finished_s(self, *, free_transfers: bool = False) -> FloatArray:
        """When each stage's gradients are synchronised, from the first pass on, shape (pp,)."""
        costs = self.pipeline_costs(free_transfers=free_transfers)
        ends_s = simulate(costs, self.passes, self.micro_batches)
        finished: FloatArray = ends_s.reshape(-1, self.pp).max(axis=0) + self.after_s
        return finished

    @cached_property
    def iteration_s(self) -> float:
        """Seconds of an iteration."""
        return float(self.finished_s().max()) + self.step_s

    @property
    def busiest_stage(self) -> int:
        """The stage whose passes and synchronisation take longest."""
        loads_s = self.prices.forward_s + self.prices.backward_s
        return int((self.micro_batches * loads_s + self.after_s).argmax())


@dataclass(frozen=True, eq=False)
class PricedPlan(PricedPipeline):
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
        """Place of every chunk's first layer in the order of the chunks, shape (chunks,)."""
        return np.cumsum([0, *(len(chunk) for chunk in self.chunks[:-1])])

    @cached_property
    def _order(self) -> Order:
        return slice(None) if self.plan.layer_order is None else np.array(self.plan.layer_order)

    @cached_property
    def crossing(self) -> Crossing:
        """What crosses the boundary before every chunk; arrays of shape (chunks,)."""
        graph, order = self.costs.graph, self.plan.layer_order
        found = self.costs.crossing
        if order is not None:
            found = boundary_crossing(graph.tensors, len(graph.sequence), order)
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

    @property
    def first_stage(self) -> UniformPlan:
        """The plan itself."""
        return self.plan

    @property
    def devices(self) -> tuple[int, ...]:
        """Devices of each stage."""
        return (self.plan.inner_devices * self.plan.dp,) * self.plan.pp

    @cached_property
    def alike(self) -> tuple[StagesAlike, ...]:
        """All stages."""
        sizes, tied = (self.sizes, self.allocated_sizes), self.tied_parameters
        return (StagesAlike(self.rates, self.times, *sizes, self.plan.pp, tied),)

    def layers_of(self, stage: int) -> list[int]:
        """Layers of all chunks of ``stage``, by place in execution order."""
        return [layer for chunk in self.chunks[stage :: self.plan.pp] for layer in chunk]

    def passes_of(self, stage: int) -> tuple[PassParts, PassParts, PassParts]:
        """Forward, what is recomputed, and backward, of a micro-batch on ``stage``, by cause."""
        costs, layers = self.costs, self.costs.sizes.distinct[self.layers_of(stage)]

        def parts(passes: PassCosts) -> PassParts:
            excess = self.rates.straggler_excess
            return as_laid_out(
                summed_parts(passes, self.configuration, layers, excess), self.plan.layout
            )

        return parts(costs.forward), parts(costs.recompute), parts(costs.backward)

    @property
    def outer_s(self) -> float:
        """What of ``step_s`` is an iteration's part of an outer step of several sites."""
        if self.plan.sites == 1:
            return 0.0
        plans, held = UniformPlans.of(self.plan, False), self.parameters_of(self.slowest_step)
        policy = policy_under(self.machine.software, self.plan)
        each_s = policy.outer_s(
            plans.sharers[0], self.machine.stream_bytes_per_s, plans.devices[:1]
        )
        return float(each_s @ np.array([held.dense, held.experts]))

    def parameters_of(self, stage: int) -> StageParameters:
        """Parameters on a device of ``stage``, by how many devices hold the same."""
        pp, tied = self.plan.pp, self.tied_parameters
        of_stage = parameters_of.of_steps(STAGE_STEPS)
        held: StageParameters = of_stage(self.rates, self.sizes, stage, pp, tied)
        return held

    @property
    def tied_s(self) -> float:
        """All-reduce of the gradients of parameters that the ends of the pipeline share."""
        messages = Messages(self.plan, self.machine.cluster)
        return messages.tied_s(self.tied_parameters, self.rates.gradient_bytes)

    @property
    def flops(self) -> TrainedFlops:
        """FLOPs of an iteration on all devices."""
        return trained_flops(self.costs.sizes, self.costs.sizes.distinct, self.plan.device_runs)

    @property
    def sample_joules(self) -> float | None:
        """Joules per sample of all devices; None where they are not known."""
        if self.costs.joules is None:
            return None
        return float(sample_joules(self.costs, self.configuration))

    @cached_property
    def transfers_s(self) -> FloatArray:
        """Seconds over every boundary of chunks, forward and back, shape (2, chunks - 1)."""
        if self.plan.pp == 1:
            return np.zeros((2, self.plan.chunks - 1))
        messages = Messages(self.plan, self.machine.cluster)
        sent = np.stack([self.crossing.activation_bytes[1:], self.crossing.gradient_bytes[1:]])
        return messages.seconds(sent, messages.boundary_tiers())


def sample_joules(costs: LayerCosts, configuration: int | slice = slice(None)) -> FloatArray:
    """Joules per training sample of all devices that work on it together, of each configuration.

    Raises:
        ValueError: the energy of the hardware is not known.
    """
    if costs.joules is None:
        raise ValueError("the energy of this hardware is not known")
    key = costs.graph.key
    layers_j = costs.joules[configuration][..., costs.sizes.distinct]
    joules: FloatArray = (
        layers_j.sum(axis=-1) * key.tp * key.sequence_devices / key.micro_batch_size
    )
    return joules
