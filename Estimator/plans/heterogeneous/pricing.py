"""The price of a plan whose stages differ: each by the formulas of a plan of one stage, then one
pipeline of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from Estimator.pass_parts import PassParts
from Estimator.plans.cuts import check_order, crossing
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.flops import TrainedFlops, trained_flops
from Estimator.plans.heterogeneous.messages import message_s, tied_s, whole_rows_bytes
from Estimator.plans.heterogeneous.mixed_layers import RecomputableLayers
from Estimator.plans.heterogeneous.placed_stage import PlacedStage, check_stages
from Estimator.plans.layer_costs import LayerSizes, as_laid_out
from Estimator.plans.many_rates import plan_rates
from Estimator.plans.pricing import PricedPipeline, StagesAlike
from Estimator.plans.rates import Machine, whole_bytes
from Estimator.plans.stage_totals import stage_sizes, times_of

FloatArray = NDArray[np.float64]
Members = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PricedStage:
    """``placed`` on ``machine``; ``layers`` are those of its graph. It is one of so many
    ``stages`` of a pipeline.

    ``devices`` are those of all of them, which wait for the slowest of them.
    """

    placed: PlacedStage
    layers: RecomputableLayers
    machine: Machine
    stages: int
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
    def alike(self) -> StagesAlike:
        """It alone, with its price."""
        degrees, machine = self.placed.degrees, self.machine
        columns = self.layers.columns(self.recomputed)[list(self.placed.layers)]
        whole = whole_bytes(degrees, machine)
        sizes, allocated_sizes = (
            stage_sizes(each, self.members, whole).offloading(degrees.offload.activations)
            for each in (self.layer_sizes, self.layer_sizes.allocated)
        )
        return StagesAlike(
            rates=plan_rates(
                degrees,
                machine,
                self.placed.first_device,
                pipeline=self.stages,
                devices=self.devices,
            ),
            times=times_of(columns.sum(axis=0, keepdims=True)),
            sizes=sizes,
            allocated_sizes=allocated_sizes,
            pp=1,
            tied_parameters=self.layer_sizes.all_tied if self.stages == 1 else 0.0,
        )

    @property
    def passes(self) -> tuple[PassParts, PassParts, PassParts]:
        """Forward, what is recomputed, and backward, of a micro-batch, by cause."""
        layout, excess = self.placed.degrees.layout, self.alike.rates.straggler_excess
        forward, recompute, backward = (
            as_laid_out(each, layout)
            for each in self.layers.parts(self.placed.layers, self.recomputed, excess)
        )
        return forward, recompute, backward

    @property
    def flops(self) -> TrainedFlops:
        """FLOPs of all samples of a batch."""
        distinct = self.layer_sizes.distinct[list(self.placed.layers)]
        return trained_flops(self.layer_sizes, distinct, self.placed.degrees.device_runs)

    def crossing_bytes(self, downstream: Members) -> FloatArray:
        """Bytes on a device that ``downstream`` (layers,) need, and gradients; shape (2,)."""
        crosses = crossing(self.layers.stored.graph.tensors, downstream[None, :])
        return np.concatenate([crosses.activation_bytes, crosses.gradient_bytes])


class PricedStages(PricedPipeline):
    """A plan of ``placed`` stages on ``machine``; ``layers`` are those of each stage's graph, in
    order.

    Raises: InputError: the stages contradict themselves, the cluster, or the order in which layers
        need each other.
    """

    def __init__(
        self, placed: Sequence[PlacedStage], layers: Sequence[RecomputableLayers], machine: Machine
    ) -> None:
        check_stages(placed, machine.cluster)
        self.placed, self.machine, self.costs = tuple(placed), machine, layers[0].stored
        check_order([stage.layers for stage in placed], self.costs.graph.tensors, "stage")
        devices = placed[-1].end_device
        self.stages = tuple(
            PricedStage(one, its, machine, len(placed), devices)
            for one, its in zip(placed, layers, strict=True)
        )

    @property
    def first_stage(self) -> UniformPlan:
        """How the first stage is trained."""
        return self.placed[0].degrees

    @property
    def devices(self) -> tuple[int, ...]:
        """Devices of each stage."""
        return tuple(stage.devices for stage in self.placed)

    @cached_property
    def alike(self) -> tuple[StagesAlike, ...]:
        """Each stage by itself."""
        return tuple(stage.alike for stage in self.stages)

    def layers_of(self, stage: int) -> list[int]:
        """Layers of ``stage``, by place in execution order."""
        return list(self.placed[stage].layers)

    def passes_of(self, stage: int) -> tuple[PassParts, PassParts, PassParts]:
        """Forward, what is recomputed, and backward, of a micro-batch on ``stage``, by cause."""
        return self.stages[stage].passes

    @cached_property
    def transfers_s(self) -> FloatArray:
        """Seconds over every boundary of chunks, forward and back, shape (2, chunks - 1)."""
        found = np.zeros((2, len(self.stages) - 1))
        downstream = np.zeros(self.stages[0].layers.layers, np.bool_)
        for boundary in reversed(range(len(self.stages) - 1)):
            source, target = self.stages[boundary], self.stages[boundary + 1]
            downstream = downstream | target.members[0]
            for row, (sender, receiver) in enumerate(((source, target), (target, source))):
                crossing_bytes = float(sender.crossing_bytes(downstream)[row])
                rows_bytes = whole_rows_bytes(sender.placed.degrees, crossing_bytes)
                found[row, boundary] = message_s(
                    sender.placed, receiver.placed, rows_bytes, self.machine.cluster
                )
        return found

    @property
    def tied_s(self) -> float:
        """All-reduce of the gradients of parameters that the ends of the pipeline share."""
        ends = self.stages[0], self.stages[-1]
        payload_bytes = max(
            stage.layer_sizes.all_tied * stage.alike.rates.gradient_bytes for stage in ends
        )
        return tied_s(self.placed, payload_bytes, self.machine.cluster)

    @property
    def flops(self) -> TrainedFlops:
        """FLOPs of an iteration on all devices."""
        return sum((stage.flops for stage in self.stages), TrainedFlops())

    @property
    def sample_joules(self) -> None:
        """Not known: stages that differ are priced on devices without energy alone."""
        return None
