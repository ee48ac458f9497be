"""The price of a plan whose stages differ: each by the formulas of a plan of one stage, then one
pipeline of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from Estimator.plans.cuts import crossing
from Estimator.plans.heterogeneous.messages import message_s, tied_s, whole_rows_bytes
from Estimator.plans.heterogeneous.mixed_layers import RecomputableLayers
from Estimator.plans.heterogeneous.placed_stage import PlacedStage, check_stages
from Estimator.plans.iteration import StageWork, as_laid_out
from Estimator.plans.layer_costs import LayerSizes
from Estimator.plans.pipeline.schedule import PipelineCosts, PipelineSchedule
from Estimator.plans.pipeline.simulation import held_bytes, simulate
from Estimator.plans.pricing import parts_of_chunks
from Estimator.plans.rates import Machine, plan_rates, whole_bytes
from Estimator.plans.stage_price import STAGE_ROWS, PlanRates, price_chunks
from Estimator.plans.stage_totals import StageSizes, StageTimes, stage_sizes, times_of
from phaze_common.errors import InputError

FloatArray = NDArray[np.float64]
Members = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PricedStage:
    """``placed`` on ``machine``; ``layers`` are those of its graph. ``alone`` says whether it is
    the whole pipeline.

    ``devices`` are those of all stages, which wait for the slowest of them.
    """

    placed: PlacedStage
    layers: RecomputableLayers
    machine: Machine
    alone: bool
    devices: int

    @cached_property
    def recomputed(self) -> Members:
        """Which of the model's layers it recomputes, shape (layers,)."""
        return self.layers.first_of(self.placed.layers, self.placed.recomputed)

    @cached_property
    def members(self) -> Members:
        """Which of the model's layers it has, shape (1, layers)."""
        members = np.zeros((1, self.layers.layers), np.bool_)
        members[0, list(self.placed.layers)] = True
        return members

    @cached_property
    def layer_sizes(self) -> LayerSizes:
        """Sizes of the model's layers as this stage trains them."""
        return self.layers.sizes(self.recomputed)

    @cached_property
    def rates(self) -> PlanRates:
        """What its degrees make parameters cost."""
        first, every = self.placed.first_device, self.devices
        return plan_rates(
            self.placed.degrees, self.machine, first, in_pipeline=not self.alone, devices=every
        )

    @cached_property
    def times(self) -> StageTimes:
        """Summed seconds, arrays of shape (1,)."""
        return times_of(
            self.layers.columns(self.recomputed)[list(self.placed.layers)].sum(
                axis=0, keepdims=True
            )
        )

    @cached_property
    def sizes(self) -> StageSizes:
        """Its sizes, arrays of shape (1,), with what the allocator holds beyond them."""
        return self._sizes(self.layer_sizes)

    @cached_property
    def allocated_sizes(self) -> StageSizes:
        """The same without."""
        return self._sizes(self.layer_sizes.allocated)

    def _sizes(self, sizes: LayerSizes) -> StageSizes:
        degrees = self.placed.degrees
        whole = stage_sizes(sizes, self.members, whole_bytes(degrees, self.machine))
        return whole.offloading(degrees.offload.activations)

    @property
    def shared(self) -> float:
        """Parameters that count twice among its layers."""
        return self.layer_sizes.all_tied if self.alone else 0.0

    @cached_property
    def _priced(self) -> tuple[FloatArray, FloatArray]:
        return self._prices(self.sizes)

    def _prices(self, sizes: StageSizes) -> tuple[FloatArray, FloatArray]:
        passes_s, once = np.empty((2, 1)), np.empty((STAGE_ROWS, 1))
        price_chunks(self.rates, self.times, sizes, 1, self.shared, passes_s, once)
        return passes_s, once

    @property
    def forward_s(self) -> float:
        """Seconds of a micro-batch's forward pass."""
        return float(self._priced[0][0, 0])

    @property
    def backward_s(self) -> float:
        """Seconds of its backward pass, with what is recomputed."""
        return float(self._priced[0][1, 0])

    @property
    def after_s(self) -> float:
        """Exposed seconds of synchronisation after the last backward pass, tied parameters
        apart."""
        return float(self._priced[1][0, 0])

    @property
    def step_s(self) -> float:
        """Seconds of the optimizer's update."""
        return float(self._priced[1][1, 0])

    @property
    def fixed_bytes(self) -> FloatArray:
        """Bytes of parameters' state, workspace with what the allocator holds beyond it, and of the
        framework, shape (3,)."""
        fixed: FloatArray = self._priced[1][2:5, 0]
        return fixed

    @property
    def allocated_workspace_bytes(self) -> float:
        """The workspace alone."""
        return float(self._prices(self.allocated_sizes)[1][3, 0])

    @property
    def step_waiting_s(self) -> float:
        """What of ``step_s`` is waiting for the host."""
        return float(self._priced[1][5, 0])

    @property
    def kept_bytes(self) -> float:
        """Bytes of parameters' state in host memory."""
        return float(self._priced[1][6, 0])

    @property
    def parameters(self) -> float:
        """Parameters on one of its devices."""
        return float(self.sizes.parameters[0]) - self.shared

    def work(self, once_s: float) -> StageWork:
        """What it does per micro-batch, by cause."""
        parts = parts_of_chunks(
            self.rates, self.times, self.sizes, np.zeros(1, np.int64), self.shared
        )
        accumulated_s = float(self.times.accumulation_s[0]) * self.rates.accumulated
        passes = self.layers.parts(self.placed.layers, self.recomputed, self.rates.slower)
        forward, again, backward = (as_laid_out(each, self.placed.degrees) for each in passes)
        return StageWork(forward, again, backward, accumulated_s, parts, once_s)

    def crossing_bytes(self, behind: Members) -> FloatArray:
        """Bytes on one device of what the layers ``behind`` (layers,) need of others, and of its
        gradients; shape (2,)."""
        crosses = crossing(self.layers.kept.graph.tensors, behind[None, :])
        return np.concatenate([crosses.activation_bytes, crosses.gradient_bytes])


class PricedStages:
    """A plan of ``placed`` stages on ``machine``; ``layers`` are those of each stage's graph, in
    order.

    Raises: InputError: the stages contradict themselves, the cluster, or the order in which layers
        need each other.
    """

    def __init__(
        self, placed: Sequence[PlacedStage], layers: Sequence[RecomputableLayers], machine: Machine
    ) -> None:
        check_stages(placed, machine.cluster)
        self.placed, self.machine = tuple(placed), machine
        alone, devices = len(placed) == 1, placed[-1].end_device
        self.stages = tuple(
            PricedStage(one, its, machine, alone, devices)
            for one, its in zip(placed, layers, strict=True)
        )
        home = {layer: number for number, stage in enumerate(placed) for layer in stage.layers}
        for tensor in layers[0].kept.graph.tensors:
            for end in tensor.destinations:
                if home[end] < home[tensor.source]:
                    raise InputError(
                        f"stage {home[end] + 1} holds a layer that needs what stage "
                        f"{home[tensor.source] + 1} makes; give the "
                        "layers in an order in which each uses only what is made before it"
                    )

    @property
    def micro_batches(self) -> int:
        """Micro-batches of the pipeline."""
        return self.placed[0].degrees.micro_batches

    @property
    def passes(self) -> PipelineSchedule:
        """The schedule that orders its passes (``UniformPlan.passes``)."""
        return (
            self.placed[0].degrees.schedule
            if len(self.placed) > 1
            else PipelineSchedule.ONE_F_ONE_B
        )

    @cached_property
    def transfers_s(self) -> FloatArray:
        """Seconds of activations forward and gradients back over every boundary, shape (2, stages -
        1)."""
        found, behind = (
            np.zeros((2, len(self.stages) - 1)),
            np.zeros(self.stages[0].layers.layers, np.bool_),
        )
        for boundary in reversed(range(len(self.stages) - 1)):
            source, target = self.stages[boundary], self.stages[boundary + 1]
            behind = behind | target.members[0]
            for row, (sender, receiver) in enumerate(((source, target), (target, source))):
                rows_bytes = whole_rows_bytes(
                    sender.placed.degrees, float(sender.crossing_bytes(behind)[row])
                )
                found[row, boundary] = message_s(
                    sender.placed, receiver.placed, rows_bytes, self.machine.cluster
                )
        return found

    @cached_property
    def after_s(self) -> FloatArray:
        """Exposed synchronisation of each stage after its last backward pass, shape (stages,)."""
        after_s = np.array([stage.after_s for stage in self.stages])
        ends = self.stages[0], self.stages[-1]
        payload_bytes = max(
            stage.layer_sizes.all_tied * stage.rates.gradient_bytes for stage in ends
        )
        after_s[[0, -1]] += (
            tied_s(self.placed, payload_bytes, self.machine.cluster)
            if len(self.stages) > 1
            else 0.0
        )
        return after_s

    @property
    def step_s(self) -> float:
        """The update of the stage where it takes longest: all wait for the norm of the gradients
        before."""
        return max(stage.step_s for stage in self.stages)

    @property
    def step_waiting_s(self) -> float:
        """What of ``step_s`` is waiting for the host."""
        return max(self.stages, key=lambda stage: stage.step_s).step_waiting_s

    @cached_property
    def host_bytes(self) -> FloatArray:
        """Bytes in host memory of each of a stage's devices, shape (stages,)."""
        moved = np.array([float(stage.sizes.offloaded_bytes[0]) for stage in self.stages])
        held = held_bytes(moved, len(self.stages), self.passes, self.micro_batches)
        kept: FloatArray = np.array([stage.kept_bytes for stage in self.stages]) + held
        return kept

    @cached_property
    def memory_bytes(self) -> FloatArray:
        """Bytes of every stage's parameters' state, activations, workspace and what is reserved
        beyond these; (4, stages)."""
        state, workspace, context = np.stack([stage.fixed_bytes for stage in self.stages], axis=1)
        saved = self._held([stage.allocated_sizes for stage in self.stages])
        own = np.array([stage.allocated_workspace_bytes for stage in self.stages])
        beyond = (self._held([stage.sizes for stage in self.stages]) - saved) + (workspace - own)
        return np.stack([state, saved, own, context + beyond])

    def _held(self, sizes: Sequence[StageSizes]) -> FloatArray:
        """What each stage holds of the activations of its ``sizes``, shape (stages,)."""
        saved = np.array([float(each.saved_bytes[0]) for each in sizes])
        return held_bytes(saved, len(self.stages), self.passes, self.micro_batches)

    def pipeline_costs(self, *, free_transfers: bool = False) -> PipelineCosts:
        """What the pipeline's passes and messages take."""
        transfers_s = np.zeros_like(self.transfers_s) if free_transfers else self.transfers_s
        forward_s, backward_s = (
            np.array([getattr(stage, name) for stage in self.stages])
            for name in ("forward_s", "backward_s")
        )
        return PipelineCosts(
            len(self.stages),
            forward_s,
            backward_s,
            transfers_s[0],
            transfers_s[1],
            overlap_transfers=False,
        )

    def finished_s(self, *, free_transfers: bool = False) -> FloatArray:
        """When each stage has its gradients complete and synchronised, from the start of the first
        micro-batch; (stages,)."""
        ends_s = simulate(
            self.pipeline_costs(free_transfers=free_transfers), self.passes, self.micro_batches
        )
        finished: FloatArray = ends_s + self.after_s
        return finished

    @cached_property
    def iteration_s(self) -> float:
        """Seconds of an iteration."""
        return float(self.finished_s().max()) + self.step_s
