"""What several programs cannot be told: each function looks at one thing, and says it in a sentence
with the nearest settings."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import gcd

from Estimator.plans.assignment import AXES, Assignment
from Estimator.plans.offload import Offload
from Estimator.plans.state_formats import StateFormats
from phaze.exports.launch import Launch, UnsupportedPlan, unsupported
from phaze.exports.shape import unwritten_parts
from phaze_common.choices import (
    CudaGraphs,
    Dispatcher,
    ExpertOverlap,
    ExpertWidth,
    GroupOrder,
    MomentDtype,
    StageCuts,
    StateDtype,
    TensorLayout,
)

# what FSDP2 and ZeRO-Infinity move to the host together
ON_HOST = Offload(optimizer=1.0, gradients=1.0, weights=1.0)
# gradients, moments and main weights
IN_FP32 = StateFormats(StateDtype.FP32, MomentDtype.FP32, StateDtype.FP32)
NO_OFFLOAD = ("optimizer=0.0",)  # nothing in host memory; a setting with no terms is none
ALL_OR_NONE = (
    "it keeps weights, gradients and optimizer state in host memory all together or not at all"
)
Refusals = Iterator[UnsupportedPlan]


def more_replicas(launch: Launch, times: int) -> dict[str, object]:
    """``times`` as many replicas, where the global batch has a micro-batch for each; else as many
    as before, on fewer devices."""
    degrees = launch.degrees
    most = degrees.global_batch_size // (degrees.micro_batch_size * degrees.dp)
    return {"dp": degrees.dp * times} if times <= most else {}


def two_axes(launch: Launch) -> Refusals:
    """A layout with two tensor axes."""
    degrees = launch.degrees
    if degrees.layout is not TensorLayout.ONE_D:
        layout = "sequence" if degrees.cp > 1 else "1d"
        exchange = {"exchange": "gather"} if degrees.cp == 1 else {}
        yield unsupported(
            f"it has no layout with two tensor axes (tp {degrees.tp} x tp2 {degrees.tp2})",
            **{"layout": layout, "tp": degrees.tp * degrees.tp2, "tp2": 1, "panels": 1, **exchange},
        )


def unwritten_model(launch: Launch) -> Refusals:
    """A decoder of text of which phaze cannot write a part."""
    if parts := unwritten_parts(launch.plan.model):
        yield unsupported(f"phaze writes no {parts} for it yet, which {launch.plan.model} has")


def shard_groups(launch: Launch) -> Refusals:
    """Shards that are divided within groups of replicas."""
    if launch.degrees.shard_groups > 1:
        yield unsupported("it is told of one group of replicas that share shards", shard_groups=1)


def no_muon(launch: Launch) -> Refusals:
    """Matrices that are orthogonalised in the step."""
    if launch.degrees.optimizer == "muon":
        yield unsupported("its files begin no Muon, only Adam and SGD", optimizer="adam")


def cut_layers(launch: Launch) -> Refusals:
    """Stages that begin inside layers, or hold them in another order than the model runs them."""
    if launch.degrees.stage_cuts is not StageCuts.BETWEEN:
        what = "its stages begin between layers, not inside them"
        yield unsupported(what, stage_cuts=StageCuts.BETWEEN.value)
    if launch.plan.stages_differ:
        yield unsupported("its stages are all trained alike")
    if tuple(layer for stage in launch.plan.stages for layer in stage.layers) != launch.layers:
        yield unsupported("its stages hold the layers in the order in which the model runs them")


def other_exchanges(
    launch: Launch, dispatchers: Collection[Dispatcher] = (Dispatcher.ALLTOALL,)
) -> Refusals:
    """Experts whose tokens do not get to them by one of ``dispatchers`` with nothing beside it."""
    if launch.degrees.ep == 1:
        return
    if launch.dispatcher not in dispatchers:
        what = f"its files say no dispatcher {launch.dispatcher} of tokens"
        yield unsupported(what, dispatcher=Dispatcher.ALLTOALL.value)
    if launch.overlap_experts is not ExpertOverlap.NONE:
        what = "its files let nothing run beside the exchange of tokens with experts"
        yield unsupported(what, overlap_experts=ExpertOverlap.NONE.value)
    if launch.degrees.dispatch_fp8:
        yield unsupported("it sends tokens to experts as they are, not in fp8", dispatch_fp8=False)


def part_batches(launch: Launch) -> Refusals:
    """A global batch that is no whole number of micro-batches of every replica."""
    degrees = launch.degrees
    of_all = degrees.micro_batch_size * degrees.dp
    if degrees.global_batch_size % of_all:
        what = f"a global batch of {degrees.global_batch_size} is no multiple of {of_all}"
        whole = degrees.micro_batches * of_all
        yield unsupported(f"{what}, one micro-batch of each replica", global_batch_size=whole)


def part_nodes(launch: Launch) -> Refusals:
    """Devices that fill no whole number of nodes, so that nodes would run different numbers of
    processes."""
    devices, node = launch.degrees.devices, launch.devices_per_node
    if devices > node and devices % node:
        what = f"{devices} devices do not fill {launch.nodes} nodes of {node}"
        yield unsupported(f"{what}, and each node starts as many processes")


def other_order(launch: Launch) -> Refusals:
    """Groups that do not nest as tensor, context, data, pipeline from the inside out."""
    degrees, order = launch.degrees, launch.degrees.group_order
    alike = order is GroupOrder.PIPELINE_INNER and 1 in (degrees.pp, degrees.dp)
    nests = isinstance(order, Assignment) and _nests(order)
    if order is not GroupOrder.DATA_INNER and not alike and not nests:
        own = GroupOrder.DATA_INNER.value
        what = f"its groups nest as {own} over consecutive devices, not as {order}"
        yield unsupported(what, group_order=own)


def _nests(order: Assignment) -> bool:
    """Whether the devices of each axis lie inside those of the next, over all tiers; in a tier axes
    may lie in any order."""
    axes = [getattr(order, axis) for axis in AXES]
    tiers = range(len(order.tp))
    met = [place for tier in tiers for place, axis in enumerate(axes) if axis[tier] > 1]
    return met == sorted(met)


def serial_gradients(launch: Launch) -> Refusals:
    """Gradients that are to be reduced only behind the backward pass."""
    if launch.plan.overlap_gradients is False and launch.degrees.dp * launch.degrees.cp > 1:
        what = "it always reduces gradients while the backward pass runs"
        yield unsupported(what, overlap_gradients=True)


def divided_heads(launch: Launch) -> Refusals:
    """Heads of keys and values that the tensor-parallel devices cannot share out."""
    shape, degrees = launch.shape, launch.degrees
    if shape is not None and (shape.kv_heads % degrees.tp or shape.heads % degrees.tp):
        tp = gcd(degrees.tp, shape.kv_heads, shape.heads)
        heads = f"{shape.heads} heads and {shape.kv_heads} of keys and values"
        near = more_replicas(launch, degrees.tp // tp)
        yield unsupported(f"tp {degrees.tp} does not divide {heads}", tp=tp, **near)


def pipeline(launch: Launch, program: str) -> Refusals:
    """Pipelines; near is one stage with its weights sharded over as many more replicas."""
    if (pp := launch.degrees.pp) > 1:
        near = {"pp": 1, "interleave": 1, **more_replicas(launch, pp), "zero_stage": 3}
        yield unsupported(f"{program} has no pipeline (pp {pp})", **near)


def experts(launch: Launch, program: str) -> Refusals:
    """Expert parallelism."""
    if (ep := launch.degrees.ep) > 1:
        yield unsupported(f"{program} has no expert parallelism (ep {ep})", ep=1)
    if launch.degrees.expert_tp < launch.degrees.tp:
        what = f"{program} divides experts by tensor parallelism as all else (etp 1)"
        yield unsupported(what, etp=ExpertWidth.SAME.value)


def sequence_parallel(launch: Launch, program: str) -> Refusals:
    """Megatron's sequence parallelism."""
    if launch.degrees.sequence_parallel and launch.degrees.tp > 1:
        what = f"{program} has no sequence parallelism beside tensor parallelism"
        yield unsupported(what, sequence_parallel=False)


def cuda_graphs(launch: Launch, program: str) -> Refusals:
    """Kernels that are replayed as CUDA graphs."""
    if (graphs := launch.degrees.cuda_graphs) is not CudaGraphs.NONE:
        what = f"{program} has no CUDA graphs of layers ({graphs.value})"
        yield unsupported(what, cuda_graphs=CudaGraphs.NONE.value)


def formats_but(launch: Launch, program: str, own: StateFormats) -> Refusals:
    """Number formats of training state other than a program's ``own``, where it has one."""
    formats, its = launch.degrees.state_formats, own.settings()
    for key, value in formats.settings().items():
        if value != its.get(key):
            words = StateFormats(**{key: getattr(formats, key)})
            yield unsupported(f"{program} has no {words}", **{key: its.get(key, False)})
