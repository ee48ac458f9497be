"""A training plan: everything a framework must be told to train a model on a cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from Estimator.network.cluster import Cluster
from Estimator.plans.assignment import EXAMPLE, Assignment, check_assignment
from Estimator.plans.offload import NOTHING, Offload
from Estimator.plans.pipeline.schedule import PipelineSchedule
from Estimator.plans.pipeline.schedule import check as check_schedule
from Estimator.plans.state_bytes import AS_USUAL, StateFormats
from GraphExtractor.graph import Attention, GraphKey, Recompute
from phaze_common.choices import GroupOrder as GroupOrder
from phaze_common.choices import KeyExchange, LayoutName, StageCuts, TensorLayout
from phaze_common.choices import Precision as Precision
from phaze_common.errors import InputError


@dataclass(frozen=True)
class UniformPlan:
    """A plan whose stages all have the same degrees: what a search varies, before it is written out
    as a ``Plan``.

    Degrees, batch, and what is recomputed, sharded and overlapped.

    ``interleave`` is the number of model chunks per pipeline stage (virtual stages).
    ``stage_layers`` are the numbers of layers of each chunk in model order, embedding and head
    counted; None balances the blocks as Megatron-LM does. ``layer_order`` are the layers, by place
    in execution order, as the chunks hold them one after another (None: in execution order, which
    only branching models need not keep). ``overlap_gradients`` and ``overlap_tensor`` None leave it
    to the framework. ``ep`` of the dp · cp devices that hold the same parameters divide the experts
    among them. ``group_order`` nests the groups over consecutive devices, or assigns so many
    devices of each axis to every tier of the network. In a 2D ``layout`` weights are divided over
    tp · tp2 devices and tokens over tp2 · cp of them, all products with weights run in as many
    ``panels``, and keys and values meet by ``exchange``. What ``offload`` says is kept in host
    memory; ``state_formats`` are the number formats of gradients and optimizer state. With
    ``stage_cuts`` inside layers the parts of layers are what it counts and recomputes as layers.
    """

    micro_batch_size: int = 1
    global_batch_size: int = 1
    tp: int = 1
    pp: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    interleave: int = 1
    gpipe: bool = False
    recompute: Recompute = Recompute.NONE
    sequence_parallel: bool = False
    zero_stage: int = 0
    optimizer: str = "adam"
    precision: Precision = Precision.BF16
    attention: Attention = Attention.FLASH
    group_order: GroupOrder | Assignment = GroupOrder.DATA_INNER
    layout: TensorLayout = TensorLayout.ONE_D
    tp2: int = 1
    panels: int = 1
    exchange: KeyExchange = KeyExchange.GATHER
    stage_layers: tuple[int, ...] | None = None
    layer_order: tuple[int, ...] | None = None
    overlap_gradients: bool | None = None
    overlap_tensor: bool | None = None
    stage_cuts: StageCuts = StageCuts.BETWEEN
    offload: Offload = NOTHING
    state_formats: StateFormats = AS_USUAL

    @property
    def devices(self) -> int:
        """Devices the plan occupies."""
        return self.inner_devices * self.pp * self.dp

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
    def schedule(self) -> PipelineSchedule:
        """Order of the passes."""
        if self.gpipe:
            return PipelineSchedule.GPIPE
        return PipelineSchedule.INTERLEAVED if self.interleave > 1 else PipelineSchedule.ONE_F_ONE_B

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

    @property
    def layers_layout(self) -> Layout:
        """How the tensors of its layers lie."""
        return Layout(
            self.tp,
            self.cp,
            self.ep,
            self.sequence_parallel,
            self.layout,
            self.tp2,
            self.exchange,
            self.panels,
        )

    def with_layout(self, layout: Layout) -> UniformPlan:
        """The same plan with tensors of its layers laid out so."""
        return replace(
            self,
            tp=layout.tp,
            cp=layout.cp,
            ep=layout.ep,
            sequence_parallel=layout.sequence_parallel,
            layout=layout.kind,
            tp2=layout.tp2,
            exchange=layout.exchange,
            panels=layout.panels,
        )

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


@dataclass(frozen=True)
class Layout:
    """How a layer's tensors lie over a group of devices.

    Along one or two tensor axes (``kind``; tp and tp2, whose products run in ``panels``), with
    sequence parallelism or not, sequences cut over cp devices (and those of the second axis), whose
    keys and values meet by ``exchange``, experts over ep.
    """

    tp: int = 1
    cp: int = 1
    ep: int = 1
    sequence_parallel: bool = False
    kind: TensorLayout = TensorLayout.ONE_D
    tp2: int = 1
    exchange: KeyExchange = KeyExchange.GATHER
    panels: int = 1


@dataclass(frozen=True)
class StagePlan:
    """A chunk of the model: names of its layers in the order in which it holds them, and how it is
    trained.

    Of its layers the first ``recomputed_layers`` are recomputed (None: all).
    """

    layers: tuple[str, ...]
    layout: Layout
    dp: int
    micro_batch_size: int
    recompute: Recompute
    zero_stage: int
    recomputed_layers: int | None = None
    offload: Offload = NOTHING


_ALIKE = (  # of all stages of a uniform plan
    *(
        "layout",
        "dp",
        "micro_batch_size",
        "recompute",
        "zero_stage",
        "recomputed_layers",
        "offload",
    ),
)


@dataclass(frozen=True)
class Plan:
    """Everything a framework must be told to train a model; ``stages`` are its chunks in model
    order.

    Chunk c runs on pipeline stage c % pp, of which each has ``interleave`` chunks.
    """

    model: str
    sequence_length: int
    precision: Precision
    attention: Attention
    optimizer: str
    global_batch_size: int
    schedule: PipelineSchedule
    interleave: int
    group_order: GroupOrder | Assignment
    overlap_gradients: bool | None
    overlap_tensor: bool | None
    stages: tuple[StagePlan, ...]
    stage_cuts: StageCuts = StageCuts.BETWEEN
    state_formats: StateFormats = AS_USUAL  # number formats of gradients and optimizer state

    @staticmethod
    def uniform(
        plan: UniformPlan, model: str, sequence_length: int, chunks: tuple[tuple[str, ...], ...]
    ) -> Plan:
        """A plan whose ``chunks``, names of layers, are all trained alike."""
        return Plan(
            model=model,
            sequence_length=sequence_length,
            precision=plan.precision,
            attention=plan.attention,
            optimizer=plan.optimizer,
            global_batch_size=plan.global_batch_size,
            schedule=plan.schedule,
            interleave=plan.interleave,
            group_order=plan.group_order,
            overlap_gradients=plan.overlap_gradients,
            overlap_tensor=plan.overlap_tensor,
            stages=tuple(
                StagePlan(
                    *(
                        chunk,
                        plan.layers_layout,
                        plan.dp,
                        plan.micro_batch_size,
                        plan.recompute,
                        plan.zero_stage,
                    ),
                    offload=plan.offload,
                )
                for chunk in chunks
            ),
            stage_cuts=plan.stage_cuts,
            state_formats=plan.state_formats,
        )

    @property
    def stages_differ(self) -> bool:
        """Whether its chunks are trained differently, so that it is no ``UniformPlan``."""
        first = self.stages[0]
        alike = all(
            getattr(stage, name) == getattr(first, name) for stage in self.stages for name in _ALIKE
        )
        return not alike or first.recomputed_layers is not None

    def as_uniform(self, names: tuple[str, ...]) -> UniformPlan:
        """The plan by its degrees, where all chunks are trained alike; ``names`` are the model's
        layers in execution order.

        Raises: InputError: chunks differ in more than their layers, or do not hold each layer of
            the model once.
        """
        first = self.stages[0]
        for position, stage in enumerate(self.stages):
            differing = next(
                (name for name in _ALIKE if getattr(stage, name) != getattr(first, name)), None
            )
            if differing is not None:
                raise InputError(
                    f"the stages of the plan differ: stages.{position}.{differing} is "
                    f"{getattr(stage, differing)}, "
                    f"stages.0.{differing} is {getattr(first, differing)}; give all of them the "
                    "same"
                )
        held = [layer for stage in self.stages for layer in stage.layers]
        if sorted(held) != sorted(names):
            twice = (layer for place, layer in enumerate(held) if layer in held[:place])
            odd = next(iter(sorted({*held} ^ {*names})), None) or next(twice)
            how = (
                "is in none"
                if odd not in held
                else "is in several"
                if odd in names
                else "is no layer of it"
            )
            raise InputError(
                f"stages.*.layers of the plan must hold each of {self.model}'s {len(names)} "
                "layers once, "
                f"but {odd!r} {how}; correct it"
            )
        place = {name: index for index, name in enumerate(names)}
        order = tuple(place[layer] for layer in held)
        if len(self.stages) % self.interleave:
            raise InputError(
                f"interleave of the plan is {self.interleave}, which does not divide the "
                f"{len(self.stages)} of its stages"
            )
        plan = UniformPlan(
            micro_batch_size=first.micro_batch_size,
            global_batch_size=self.global_batch_size,
            pp=len(self.stages) // self.interleave,
            dp=first.dp,
            interleave=self.interleave,
            gpipe=self.schedule is PipelineSchedule.GPIPE,
            recompute=first.recompute,
            zero_stage=first.zero_stage,
            optimizer=self.optimizer,
            precision=self.precision,
            attention=self.attention,
            group_order=self.group_order,
            stage_layers=tuple(len(stage.layers) for stage in self.stages),
            layer_order=None if order == tuple(range(len(order))) else order,
            overlap_gradients=self.overlap_gradients,
            overlap_tensor=self.overlap_tensor,
            stage_cuts=self.stage_cuts,
            offload=first.offload,
            state_formats=self.state_formats,
        )
        return plan.with_layout(first.layout)


MAPPED = (  # keys of a plan's settings that are its fields or properties too
    *(
        "tp",
        "pp",
        "dp",
        "cp",
        "ep",
        "layout",
        "tp2",
        "panels",
        "exchange",
        "micro_batch_size",
        "global_batch_size",
    ),
    "interleave",
    *(
        "schedule",
        "stage_layers",
        "recompute",
        "sequence_parallel",
        "zero_stage",
        "optimizer",
        "precision",
        "attention",
    ),
    "stage_cuts",
    *("group_order", "overlap_gradients", "overlap_tensor"),
)


def plan_mapping(plan: UniformPlan) -> dict[str, Any]:
    """The plan by the keys of its settings, as plain values; a file of it is the same plan.

    Of what is offloaded, and of number formats, only plans tell that say something of them.
    """

    def plain(value: Any) -> Any:
        if isinstance(value, Enum):
            return value.value
        return (
            list(value)
            if isinstance(value, tuple)
            else str(value)
            if isinstance(value, Assignment)
            else value
        )

    offload = {"offload": list(plan.offload.terms)} if plan.offload else {}
    return (
        {name: plain(getattr(plan, name)) for name in MAPPED}
        | offload
        | plan.state_formats.settings()
    )


def group_order_of(text: str) -> GroupOrder | Assignment:
    """The order of groups of that name, or the assignment to tiers that is written so.

    Raises:
        InputError: it is neither.
    """
    return (
        GroupOrder(text)
        if text in {order.value for order in GroupOrder}
        else Assignment.parsed(text)
    )


def check_cluster(plan: UniformPlan, cluster: Cluster) -> None:
    """Refuse plans that need more devices than there are, or more of a tier than it holds.

    Raises:
        InputError: says how many there are.
    """
    if plan.devices > cluster.num_devices:
        given = f"the plan needs {plan.devices} devices, {cluster.name} has {cluster.num_devices}"
        raise InputError(f"{given}; use smaller degrees or a larger cluster")
    if isinstance(plan.group_order, Assignment):
        degrees = {axis: getattr(plan, axis) for axis in ("tp", "tp2", "cp", "ep", "dp", "pp")}
        check_assignment(plan.group_order, degrees, cluster)


def check_plan(plan: UniformPlan) -> None:
    """Refuse plans that contradict themselves.

    Raises:
        InputError: says what was given and what is allowed.
    """
    for name in (
        "micro_batch_size",
        "global_batch_size",
        "tp",
        "pp",
        "dp",
        "cp",
        "ep",
        "tp2",
        "panels",
        "interleave",
    ):
        value = getattr(plan, name)
        if value < 1:
            raise InputError(f"{name} is {value}; it must be at least 1")
    if plan.tp2 > 1 and plan.layout is not TensorLayout.TWO_D:
        raise InputError(
            f"tp2 is {plan.tp2}, but a layout {plan.layout_name} has one tensor axis; use tp2 1, "
            "or layout 2d"
        )
    if plan.panels > 1 and (plan.layout is not TensorLayout.TWO_D or plan.tp * plan.tp2 == 1):
        raise InputError(
            f"panels is {plan.panels}, but only products of a 2d layout on several devices run in "
            "panels; leave panels out, or "
            "use layout 2d with a tp or tp2 above 1"
        )
    if plan.exchange is not KeyExchange.GATHER and plan.sequence_devices == 1:
        raise InputError(
            f"exchange is {plan.exchange}, but no devices share a sequence; give a cp above 1, or "
            "leave it out"
        )
    if plan.dp * plan.cp % plan.ep:
        raise InputError(
            f"ep is {plan.ep}, which does not divide the dp {plan.dp} x cp {plan.cp} = "
            f"{plan.dp * plan.cp} devices that could "
            f"divide the experts among them; give a divisor of {plan.dp * plan.cp}"
        )
    if plan.micro_batch_size * plan.dp > plan.global_batch_size:
        raise InputError(
            f"dp {plan.dp} replicas with micro-batches of {plan.micro_batch_size} need a global "
            "batch of at least "
            f"{plan.micro_batch_size * plan.dp}, given {plan.global_batch_size}; raise it or "
            "lower dp or the micro-batch size"
        )
    if plan.group_order is GroupOrder.TIERS:
        raise InputError(
            f"group_order tiers stands for many plans; give one of them, such as {EXAMPLE}"
        )
    check_schedule(plan.schedule, plan.pp, plan.interleave, plan.micro_batches)
    if not 0 <= plan.zero_stage <= 3:
        raise InputError(f"zero_stage is {plan.zero_stage}; it must be 0, 1, 2 or 3")
    if plan.stage_layers is not None and (
        len(plan.stage_layers) != plan.chunks or min(plan.stage_layers) < 1
    ):
        raise InputError(
            f"stage_layers has {len(plan.stage_layers)} entries {list(plan.stage_layers)}; give "
            f"{plan.chunks} positive numbers, "
            f"one per pipeline stage{' and chunk' if plan.interleave > 1 else ''}"
        )
