"""The degrees of a plan: how a stage is trained, what all stages share, and the plan whose stages
are alike, which a search varies.

Imports nothing heavy, since ``--help`` reads it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, TypeVar

from Estimator.plans.assignment import Assignment
from Estimator.plans.offload import NOTHING, Offload, OffloadShare
from Estimator.plans.state_formats import AS_USUAL, StateFormats
from GraphExtractor.graph_key import GraphKey
from phaze_common.choices import (
    Attention,
    CudaGraphs,
    Dispatcher,
    ExpertOverlap,
    ExpertWidth,
    GroupOrder,
    KeyExchange,
    LayoutName,
    MomentDtype,
    OffloadKind,
    Optimizer,
    PipelineSchedule,
    Precision,
    Recompute,
    StageCuts,
    TensorLayout,
)
from phaze_common.recompute_modules import RecomputedModules
from phaze_common.setting_fields import BOTH, EVALUATE, SEARCH, Axis, Decides, Hardware, Shorthand
from phaze_common.settings import Kind

if TYPE_CHECKING:
    from phaze_common.array_types import IntArray

Part = TypeVar("Part", bound="Layout | PlanHeader")
Count = TypeVar("Count", int, "IntArray")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a layer's tensors lie over a group of devices.

    Along one or two tensor axes (``layout``; tp and tp2, whose products run in ``panels``), with
    sequence parallelism or not, sequences cut over cp devices (and those of the second axis), whose
    keys and values meet by ``exchange``, experts over ep: those of the dp x cp devices with the
    same parameters that divide the experts among them. With an ``etp`` of 1 each expert is whole,
    and tensor-parallel devices are among those of ep (the parallel folding of Megatron-Core).
    """

    layout: Annotated[
        TensorLayout,
        Axis(
            "how tensors lie over devices: along one tensor axis, along two (SUMMA on tp x tp2 "
            "devices), or sequences cut over cp devices; 'auto' for all three",
            "1d",
            "1d; a cp above 1 cuts sequences",
            of_a_search=frozenset({LayoutName.AUTO.value}),
            title="layout",
            decides_first=Decides.GRAPH,
            compared=True,
            values=tuple[LayoutName, ...],
            usual=(LayoutName.ONE_D,),
            attribute="layout_name",
        ),
    ] = TensorLayout.ONE_D
    tp: Annotated[
        int,
        Axis(
            "tensor parallel width",
            "1; with a device all that divide the model and a node",
            "1",
            most=4096,
            takes_all=True,
            shorthand=Shorthand(
                "max_tp",
                Kind.INTEGER,
                "largest tensor parallel width N instead of --tp; searched are N and the powers "
                "of two that divide it",
                aliases=("phaze_max_tmp_width",),
                most=4096,
                modes=SEARCH,
            ),
            title="tensor parallel width",
            glossary="devices that share every layer",
            decides_first=Decides.GRAPH,
            compared=True,
        ),
    ] = 1
    tp2: Annotated[
        int,
        Axis(
            "width of the second tensor axis of a layout 2d",
            "1; of a layout 2d the powers of two",
            "1",
            most=4096,
            title="second tensor axis",
            glossary="whose devices share the tokens too",
            decides_first=Decides.GRAPH,
            compared=True,
            usual=(1,),
        ),
    ] = 1
    panels: Annotated[
        int,
        Axis(
            "panels in which each product of a layout 2d runs, beside which the next one is on "
            "its way",
            "1; of a layout 2d those of 1, 2, 4, 8, 16 and 32 that divide the model",
            "1; of a layout 2d 4",
            most=4096,
            title="panels of products",
            phrase="products in {} panels",
            decides_first=Decides.LAYER_COSTS,
            compared=True,
            usual=(1,),
        ),
    ] = 1
    cp: Annotated[
        int,
        Axis(
            "context parallel degree",
            "1; of a layout sequence the powers of two above 1",
            "1",
            most=4096,
            title="context parallel degree",
            glossary="devices that share the tokens of a sequence",
            decides_first=Decides.GRAPH,
            compared=True,
            usual=(1,),
        ),
    ] = 1
    exchange: Annotated[
        KeyExchange,
        Axis(
            "how queries meet keys and values of tokens on other devices",
            "gather; of layouts 2d, sequence and auto all that are possible",
            "gather",
            takes_all=True,
            title="exchange of keys and values",
            feature=True,
            of_degree="cp",
            decides_first=Decides.GRAPH,
            compared=True,
            usual=(KeyExchange.GATHER,),
        ),
    ] = KeyExchange.GATHER
    ep: Annotated[
        int,
        Axis(
            "expert parallel degree",
            "all that divide the model's experts and the devices",
            "1",
            most=4096,
            takes_all=True,
            title="expert parallel degree",
            glossary="devices that share the experts",
            decides_first=Decides.GRAPH,
            compared=True,
            usual=(1,),
        ),
    ] = 1
    etp: Annotated[
        ExpertWidth,
        Axis(
            "tensor parallel width of experts: the same as of all else, or 1 for whole experts, "
            "which tensor-parallel devices then share out too",
            "same",
            takes_all=True,
            title="tensor parallel width of experts",
            glossary="devices that divide each expert",
            of_degree="tp",
            phrase="whole experts (etp {})",
            decides_first=Decides.GRAPH,
            compared=True,
            usual=(ExpertWidth.SAME,),
        ),
    ] = ExpertWidth.SAME
    sequence_parallel: Annotated[
        bool,
        Axis(
            "split what tensor parallelism leaves whole along the sequence",
            "false; with a device both where the model can",
            "false",
            takes_all=True,
            title="sequence parallelism",
            feature=True,
            of_degree="tp",
            phrase="sequence parallelism",
            decides_first=Decides.GRAPH,
            compared=True,
            usual=(False,),
        ),
    ] = False

    @property
    def sequence_devices(self) -> int:
        """Devices that share the tokens of sequences."""
        return self.tp2 * self.cp

    @property
    def expert_tp(self) -> int:
        """Devices that divide each expert."""
        return self.etp.of(self.tp)

    def expert_devices(self, copies: Count) -> Count:
        """Devices that could divide the experts among them, where so many have the same other
        parameters."""
        return copies * self.tp // self.expert_tp

    @property
    def least_devices(self) -> int:
        """Devices of a stage that hold every parameter once at least."""
        shared = self.cp if self.tp2 > 1 else self.expert_devices(self.cp)
        return self.tp * self.sequence_devices * (self.ep // math.gcd(self.ep, shared))

    @property
    def layout_name(self) -> LayoutName:
        """What its layout is called."""
        if self.layout is TensorLayout.TWO_D:
            return LayoutName.TWO_D
        if self.cp > 1:
            return LayoutName.SEQUENCE
        return LayoutName.ONE_D

    @property
    def inner_devices(self) -> int:
        """Devices that work on the same micro-batch in a stage."""
        return self.tp * self.sequence_devices


@dataclass(frozen=True, kw_only=True)
class Degrees(Layout):
    """How one pipeline stage is trained: its layout on each of ``dp`` replicas, the rows of a
    micro-batch of each, what is recomputed, sharded (ZeRO) and kept in host memory."""

    micro_batch_size: Annotated[
        int,
        Axis(
            "samples per micro-batch",
            "1; with a device 1, 2, 4, 8 and 16 as far as they divide the global batch",
            "1",
            aliases=("phaze_micro_batch_size",),
            most=2**20,
            title="micro-batch size",
            decides_first=Decides.GRAPH,
            compared=True,
        ),
    ] = 1
    dp: Annotated[
        int,
        Axis(
            "data parallel degree",
            "all that are possible",
            "1, or what --devices leaves",
            most=2**20,
            takes_all=True,
            title="data parallel degree",
            glossary="replicas that share the samples",
            compared=True,
            usual=None,
        ),
    ] = 1
    recompute: Annotated[
        Recompute | RecomputedModules,
        Axis(
            "activation recomputation: of nothing, of core attention, of whole layers, or of "
            "modules by the names of Megatron-LM (core_attn, mla_up_proj, mlp, moe, moe_act, "
            "layernorm, shared_experts), as moe_act+layernorm; second_products (torchtitan's "
            "selective) runs all operators again but attention and every other matrix product, "
            "between_products all but products",
            "all",
            "none",
            takes_all=True,
            title="recomputation",
            feature=True,
            decides_first=Decides.LAYER_COSTS,
            compared=True,
            usual=tuple(Recompute),
        ),
    ] = Recompute.NONE
    zero_stage: Annotated[
        int,
        Axis(
            "ZeRO stage, 0 to 3: what is sharded over data parallel devices",
            "0; with a device all",
            "0",
            least=0,
            most=3,
            takes_all=True,
            shorthand=Shorthand(
                "fsdp", Kind.SWITCH, "fully sharded: the same as --zero-stage 3", modes=EVALUATE
            ),
            title="ZeRO stage",
            feature=True,
            phrase="ZeRO stage {}",
            compared=True,
            usual=(0,),
        ),
    ] = 0
    shard_groups: Annotated[
        int,
        Axis(
            "groups of replicas within each of which ZeRO divides what it shards (HSDP's "
            "dp_replicate, Megatron-LM's distributed-optimizer instances); gradients are summed "
            "over the groups besides",
            "1",
            most=2**20,
            title="groups of shards",
            phrase="ZeRO within each of {} groups",
            compared=True,
            # all plans of a design point have one value, though layers cost the same with any
            decides_first=Decides.LAYER_COSTS,
            usual=(1,),
        ),
    ] = 1
    sites: Annotated[
        int,
        Axis(
            "sites that each train by such a plan of their own and add up what they learned every "
            "outer_steps (DiLoCo): everything else here is of one of them",
            "1",
            most=4096,
            modes=EVALUATE,
            hardware=Hardware.DEVICES,
            title="sites",
            phrase="{} sites",
            values=int,
            usual=1,
        ),
    ] = 1
    outer_steps: Annotated[
        int,
        Axis(
            "iterations of each site from one exchange with the others to the next",
            "500",
            most=2**20,
            modes=EVALUATE,
            hardware=Hardware.DEVICES,
            title="iterations between exchanges of sites",
            of_degree="sites",
            values=int,
            usual=500,
        ),
    ] = 500
    site_gbit_per_s: Annotated[
        float,
        Axis(
            "what a site has of the network to the others, Gbit/s each way",
            "10",
            least=0.001,
            most=2**20,
            modes=EVALUATE,
            hardware=Hardware.DEVICES,
            title="Gbit/s between sites",
            of_degree="sites",
            values=float,
            usual=10.0,
        ),
    ] = 10.0
    outer_dtype: Annotated[
        MomentDtype,
        Axis(
            "number format of what sites exchange",
            "fp32",
            modes=EVALUATE,
            hardware=Hardware.DEVICES,
            title="format between sites",
            of_degree="sites",
            values=MomentDtype,
            usual=MomentDtype.FP32,
        ),
    ] = MomentDtype.FP32
    offload: Annotated[
        Offload,
        Axis(
            "what is kept in host memory, wholly or such a part of it as activations=0.5; a "
            "search tries none, half and all of each that is named (none and the part where one "
            "is given), or of all four with 'auto'",
            "nothing",
            lists=BOTH,
            hardware=Hardware.DEVICES,
            of_a_search=frozenset({OffloadKind.AUTO.value}),
            title="kept in host memory",
            phrase="{} in host memory",
            values=tuple[OffloadKind | OffloadShare, ...],
            usual=None,
        ),
    ] = NOTHING

    @property
    def rows(self) -> int:
        """Samples of a micro-batch on all replicas."""
        return self.micro_batch_size * self.dp

    @property
    def divides_more(self) -> bool:
        """Whether experts, or what 2D divides twice, have another number of copies than all
        else."""
        return self.tp2 * self.ep * self.expert_tp != self.tp

    def divided_copies(self, copies: Count) -> Count:
        """Devices with the same experts, or the same part of what 2D divides twice, where so many
        have the same other parameters."""
        return self.expert_devices(copies) // (self.tp2 * self.ep)

    @property
    def copies(self) -> int:
        """Devices with the same parameters."""
        return self.dp * self.sequence_devices

    @property
    def most_expert_load(self) -> float:
        """The load of a device that gets all tokens of those that share the experts."""
        return float(self.ep)

    @property
    def sharding(self) -> int:
        """The ZeRO stage that has an effect: 0 where one device has all copies of a group."""
        return self.zero_stage if self.copies > self.shard_groups else 0


@dataclass(frozen=True, kw_only=True)
class PlanHeader:
    """What all stages of a plan share.

    ``interleave`` is the number of model chunks per pipeline stage (virtual stages).
    ``group_order`` nests the groups over consecutive devices, or assigns so many devices of each
    axis to every tier of the network. ``overlap_gradients``, ``overlap_tensor``, ``dispatcher`` and
    ``overlap_experts`` None leave it to the framework. With ``stage_cuts`` inside layers the parts
    of layers are what stages hold and recompute as layers.
    """

    global_batch_size: Annotated[
        int,
        Axis(
            "samples per iteration, over all replicas",
            "4096",
            "one micro-batch per replica",
            most=2**24,
            title="global batch, samples",
            values=int,
            usual=4096,
        ),
    ] = 1
    precision: Annotated[
        Precision,
        Axis(
            "format of matrix products",
            "bf16; fp16 or fp32 on devices without it",
            title="precision",
            feature=True,
            rounds=True,
            decides_first=Decides.GRAPH,
            values=Precision,
            usual=Precision.BF16,
        ),
    ] = Precision.BF16
    attention: Annotated[
        Attention,
        Axis(
            "fused and tiled, or separate products with the scores in memory",
            "flash",
            title="attention",
            feature=True,
            decides_first=Decides.GRAPH,
            values=Attention,
            usual=Attention.FLASH,
        ),
    ] = Attention.FLASH
    optimizer: Annotated[
        str, Axis("optimizer", "adam", title="optimizer", values=Optimizer, usual=Optimizer.ADAM)
    ] = "adam"
    # whether all forward passes run before the first backward pass
    gpipe: Annotated[
        bool,
        Axis(
            "order of the passes",
            "1f1b, interleaved with several chunks per stage",
            key="schedule",
            modes=EVALUATE,
            title="schedule",
            values=PipelineSchedule,
            usual=PipelineSchedule.ONE_F_ONE_B,
            attribute="schedule",
        ),
    ] = False
    interleave: Annotated[
        int,
        Axis(
            "model chunks per pipeline stage",
            "1; with a device all that are possible",
            "1",
            most=1024,
            takes_all=True,
            title="chunks per stage",
            phrase="{} chunks per stage",
            compared=True,
            usual=None,
        ),
    ] = 1
    group_order: Annotated[
        GroupOrder | Assignment,
        Axis(
            "how the parallel groups nest over the devices, innermost first; 'tiers' for every "
            "way in which they share out the tiers of the network, or one of these ways, as "
            "tp4.dp2/dp8.pp4",
            "both orders where the network has several tiers; with a device 'tiers' too",
            GroupOrder.DATA_INNER.value,
            takes_all=True,
            of_a_search=frozenset({GroupOrder.TIERS.value}),
            title="order of the groups",
            phrase="{0.kind} {0}",
            compared=True,
            usual=(GroupOrder.DATA_INNER, GroupOrder.PIPELINE_INNER),
        ),
    ] = GroupOrder.DATA_INNER
    overlap_gradients: Annotated[
        bool | None,
        Axis(
            "whether gradient communication runs beside computation",
            "as the framework of the device does, else false",
            takes_all=True,
            title="overlap of gradients",
            feature=True,
            phrase="overlapped gradients",
            of_framework=True,
            compared=True,
            values=tuple[bool, ...],
            usual=(False,),
        ),
    ] = None
    overlap_tensor: Annotated[
        bool | None,
        Axis(
            "whether tensor-parallel communication runs beside computation",
            "as the framework of the device does, else false",
            takes_all=True,
            title="overlap of tensor parallelism",
            feature=True,
            of_degree="tp",
            phrase="overlapped tensor parallelism",
            of_framework=True,
            decides_first=Decides.LAYER_COSTS,
            values=tuple[bool, ...],
            usual=(False,),
        ),
    ] = None
    dispatcher: Annotated[
        Dispatcher | None,
        Axis(
            "how tokens get to the devices of their experts: a copy for each expert, all tokens to "
            "all devices, or one copy for each node that needs it (DeepEP, HybridEP)",
            "as the framework of the device does, else alltoall",
            takes_all=True,
            title="dispatcher of tokens",
            feature=True,
            of_degree="ep",
            phrase="dispatcher {}",
            of_framework=True,
            decides_first=Decides.LAYER_COSTS,
            values=tuple[Dispatcher, ...],
            usual=(Dispatcher.ALLTOALL,),
        ),
    ] = None
    dispatch_fp8: Annotated[
        bool,
        Axis(
            "send tokens to their experts, and gradients of what these give back, in fp8",
            "false",
            takes_all=True,
            title="dispatch in fp8",
            feature=True,
            rounds=True,
            of_degree="ep",
            phrase="dispatch in fp8",
            decides_first=Decides.LAYER_COSTS,
            usual=(False,),
        ),
    ] = False
    overlap_experts: Annotated[
        ExpertOverlap | None,
        Axis(
            "what runs beside the exchange of tokens with experts: nothing, the experts that all "
            "tokens meet, or another micro-batch, of which products of weight gradients may be "
            "delayed",
            "as the framework of the device does, else none",
            takes_all=True,
            title="overlap of experts' exchange",
            feature=True,
            of_degree="ep",
            phrase="experts' exchange hidden beside {0.beside}",
            of_framework=True,
            decides_first=Decides.LAYER_COSTS,
            values=tuple[ExpertOverlap, ...],
            usual=(ExpertOverlap.NONE,),
        ),
    ] = None
    expert_load: Annotated[
        float,
        Axis(
            "rows of tokens that the busiest device of an expert-parallel group gets, over their "
            "mean: 1 where routing is balanced, 1.5 of untrained routers; experts that are padded "
            "to a capacity get their capacity factor",
            "1",
            most=64,
            title="load of the busiest experts",
            of_degree="ep",
            phrase="the busiest experts get {} times the mean",
            decides_first=Decides.GRAPH,
            values=float,
            usual=1.0,
        ),
    ] = 1.0
    stage_cuts: Annotated[
        StageCuts,
        Axis(
            "where stages may begin and what is recomputed ends: between layers, or inside them "
            "too wherever a single tensor passes (between attention and feed-forward), so that "
            "parts of layers count as layers",
            "between",
            title="cuts into stages",
            decides_first=Decides.GRAPH,
            values=StageCuts,
            usual=StageCuts.BETWEEN,
        ),
    ] = StageCuts.BETWEEN
    cuda_graphs: Annotated[
        CudaGraphs,
        Axis(
            "kernels that are replayed as CUDA graphs, so that the host does not issue them one by "
            "one: of attention, of the router of experts, of both, of whole layers or of the "
            "iteration",
            "none",
            hardware=Hardware.DEVICES,
            title="CUDA graphs",
            feature=True,
            phrase="CUDA graphs ({})",
            decides_first=Decides.LAYER_COSTS,
            values=CudaGraphs,
            usual=CudaGraphs.NONE,
        ),
    ] = CudaGraphs.NONE
    state_formats: StateFormats = AS_USUAL  # number formats of gradients and optimizer state

    @property
    def schedule(self) -> PipelineSchedule:
        """Order of the passes."""
        if self.gpipe:
            return PipelineSchedule.GPIPE
        return PipelineSchedule.INTERLEAVED if self.interleave > 1 else PipelineSchedule.ONE_F_ONE_B


def divided_experts(
    widths: Collection[ExpertWidth], tp: int, sequence_parallel: Iterable[bool]
) -> Iterator[tuple[bool, ExpertWidth]]:
    """Sequence parallelism and ``etp`` that go together under ``tp``, of those that are asked for:
    whole experts need sequence parallelism, and one device has no others."""
    if tp == 1:
        yield False, ExpertWidth.SAME
        return
    for split in sequence_parallel:
        yield from ((split, width) for width in widths if split or width is ExpertWidth.SAME)


def part_of(kind: type[Part], whole: Part | UniformPlan) -> Part:
    """The fields of ``whole`` that a record of the ``kind`` has."""
    return kind(**{each.name: getattr(whole, each.name) for each in fields(kind)})


@dataclass(frozen=True, kw_only=True)
class UniformPlan(Degrees, PlanHeader):
    """A plan whose stages are trained alike: what a search varies, before cuts make it a ``Plan``.

    ``stage_layers`` are the numbers of layers of each chunk in model order, embedding and head
    counted; None balances the blocks as Megatron-LM does. ``layer_order`` are the layers, by place
    in execution order, as the chunks hold them one after another (None: in execution order, which
    only branching models need not keep).
    """

    pp: Annotated[
        int,
        Axis(
            "pipeline stages",
            "all that are possible",
            "1",
            most=2**16,
            takes_all=True,
            title="pipeline depth",
            glossary="which the layers are cut into",
            compared=True,
            usual=None,
        ),
    ] = 1
    stage_layers: Annotated[
        tuple[int, ...] | None,
        Axis(
            "layers of each stage, or of each chunk in model order, embedding and head counted",
            "balanced blocks",
            repeats=True,
            most=2**16,
            modes=EVALUATE,
            lists=EVALUATE,
            title="layers of the stages",
            values=tuple[int, ...],
            usual=None,
        ),
    ] = None
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
        """Micro-batches of the most loaded pipeline; the last one counts as a whole one."""
        return -(-self.global_batch_size // (self.micro_batch_size * self.dp))

    @property
    def device_runs(self) -> float:
        """Micro-batches that a stage's devices run in all; what fills up the last ones is left
        out."""
        return self.global_batch_size / self.micro_batch_size * self.inner_devices

    @property
    def passes(self) -> PipelineSchedule:
        """The schedule that orders its passes: a single stage runs one micro-batch at a time."""
        return self.schedule if self.pp > 1 else PipelineSchedule.ONE_F_ONE_B

    @property
    def stage_stride(self) -> int:
        """Devices from a device to its like in the next stage, by an order of groups."""
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
            self.etp if self.tp > 1 else ExpertWidth.SAME,
            self.layout,
            self.tp2,
            self.exchange if self.sequence_devices > 1 else KeyExchange.GATHER,
            self.stage_cuts,
            self.expert_load if self.ep > 1 else 1.0,
        )
