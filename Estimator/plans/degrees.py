"""The degrees of a plan: how a stage is trained, what all stages share, and the plan whose stages
are alike, which a search varies.

Imports nothing heavy, since ``--help`` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TypeVar

from Estimator.plans.assignment import Assignment
from Estimator.plans.offload import NOTHING, Offload
from Estimator.plans.state_formats import AS_USUAL, StateFormats
from GraphExtractor.graph_key import GraphKey
from phaze_common.choices import (
    Attention,
    GroupOrder,
    KeyExchange,
    LayoutName,
    PipelineSchedule,
    Precision,
    Recompute,
    StageCuts,
    TensorLayout,
)

Part = TypeVar("Part", bound="Layout | PlanHeader")


@dataclass(frozen=True)
class Layout:
    """How a layer's tensors lie over a group of devices.

    Along one or two tensor axes (``layout``; tp and tp2, whose products run in ``panels``), with
    sequence parallelism or not, sequences cut over cp devices (and those of the second axis), whose
    keys and values meet by ``exchange``, experts over ep: those of the dp x cp devices with the
    same parameters that divide the experts among them.
    """

    tp: int = 1
    cp: int = 1
    ep: int = 1
    sequence_parallel: bool = False
    layout: TensorLayout = TensorLayout.ONE_D
    tp2: int = 1
    exchange: KeyExchange = KeyExchange.GATHER
    panels: int = 1

    @property
    def sequence_devices(self) -> int:
        """Devices that share the tokens of sequences."""
        return self.tp2 * self.cp

    @property
    def layout_name(self) -> LayoutName:
        """What its layout is called."""
        if self.layout is TensorLayout.TWO_D:
            return LayoutName.TWO_D
        return LayoutName.SEQUENCE if self.cp > 1 else LayoutName.ONE_D

    @property
    def inner_devices(self) -> int:
        """Devices that work on the same micro-batch in a stage."""
        return self.tp * self.sequence_devices


@dataclass(frozen=True)
class Degrees(Layout):
    """How one pipeline stage is trained: its layout on each of ``dp`` replicas, the rows of a
    micro-batch of each, what is recomputed, sharded (ZeRO) and kept in host memory."""

    dp: int = 1
    micro_batch_size: int = 1
    recompute: Recompute = Recompute.NONE
    zero_stage: int = 0
    offload: Offload = NOTHING

    @property
    def rows(self) -> int:
        """Samples of a micro-batch on all replicas."""
        return self.micro_batch_size * self.dp

    @property
    def divided_by(self) -> int:
        """Of the devices with the same parameters those that divide some: experts, or what a 2D
        layout divides twice."""
        return self.ep * self.tp2

    @property
    def copies(self) -> int:
        """Devices with the same parameters."""
        return self.dp * self.sequence_devices

    @property
    def sharding(self) -> int:
        """The ZeRO stage that has an effect: 0 where one device has all copies, as nothing is
        divided by one."""
        return self.zero_stage if self.copies > 1 else 0


@dataclass(frozen=True)
class PlanHeader:
    """What all stages of a plan share.

    ``interleave`` is the number of model chunks per pipeline stage (virtual stages).
    ``group_order`` nests the groups over consecutive devices, or assigns so many devices of each
    axis to every tier of the network. ``overlap_gradients`` and ``overlap_tensor`` None leave it to
    the framework. ``state_formats`` are the number formats of gradients and optimizer state. With
    ``stage_cuts`` inside layers the parts of layers are what stages hold and recompute as layers.
    """

    global_batch_size: int = 1
    precision: Precision = Precision.BF16
    attention: Attention = Attention.FLASH
    optimizer: str = "adam"
    gpipe: bool = False
    interleave: int = 1
    group_order: GroupOrder | Assignment = GroupOrder.DATA_INNER
    overlap_gradients: bool | None = None
    overlap_tensor: bool | None = None
    stage_cuts: StageCuts = StageCuts.BETWEEN
    state_formats: StateFormats = AS_USUAL

    @property
    def schedule(self) -> PipelineSchedule:
        """Order of the passes."""
        if self.gpipe:
            return PipelineSchedule.GPIPE
        return PipelineSchedule.INTERLEAVED if self.interleave > 1 else PipelineSchedule.ONE_F_ONE_B


def part_of(kind: type[Part], whole: Part | UniformPlan) -> Part:
    """The fields of ``whole`` that a record of the ``kind`` has."""
    return kind(**{each.name: getattr(whole, each.name) for each in fields(kind)})


@dataclass(frozen=True)
class UniformPlan(Degrees, PlanHeader):
    """A plan whose stages are trained alike: what a search varies, before cuts make it a ``Plan``.

    ``stage_layers`` are the numbers of layers of each chunk in model order, embedding and head
    counted; None balances the blocks as Megatron-LM does. ``layer_order`` are the layers, by place
    in execution order, as the chunks hold them one after another (None: in execution order, which
    only branching models need not keep).
    """

    pp: int = 1
    stage_layers: tuple[int, ...] | None = None
    layer_order: tuple[int, ...] | None = None

    @property
    def devices(self) -> int:
        """Devices of the plan."""
        return self.inner_devices * self.pp * self.dp

    @property
    def chunks(self) -> int:
        """Model chunks of a pipeline."""
        return self.pp * self.interleave

    @property
    def micro_batches(self) -> int:
        """Micro-batches per pipeline; the last one of the most loaded pipeline counts as a whole
        one."""
        return -(-self.global_batch_size // (self.micro_batch_size * self.dp))

    @property
    def passes(self) -> PipelineSchedule:
        """The schedule that orders its passes: one stage runs each micro-batch forward and
        backward, whatever is asked."""
        return self.schedule if self.pp > 1 else PipelineSchedule.ONE_F_ONE_B

    @property
    def stage_stride(self) -> int:
        """Devices between a device and its like in the next pipeline stage, by an order of
        groups."""
        inner = self.inner_devices
        return inner * self.dp if self.group_order is GroupOrder.DATA_INNER else inner

    @property
    def replica_stride(self) -> int:
        """Devices between a device and its like in the next replica, by an order of groups."""
        inner = self.inner_devices
        return inner if self.group_order is GroupOrder.DATA_INNER else inner * self.pp

    def with_layout(self, layout: Layout) -> UniformPlan:
        """The same plan with tensors of its layers laid out so."""
        return replace(self, **vars(part_of(Layout, layout)))

    def graph_key(self, model: str, sequence_length: int) -> GraphKey:
        """The graph of one device of the plan's groups."""
        return GraphKey(
            model,
            self.micro_batch_size,
            sequence_length,
            self.tp,
            self.attention,
            self.sequence_parallel and self.tp > 1,
            self.precision.graph_dtype,
            self.cp,
            self.ep,
            self.layout,
            self.tp2,
            self.exchange if self.sequence_devices > 1 else KeyExchange.GATHER,
            self.stage_cuts,
        )
