"""What several programs cannot be told: each function looks at one thing, and says it in a sentence
with the nearest settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import gcd

from Estimator.plans.assignment import AXES, Assignment
from Estimator.plans.offload import Offload
from Estimator.plans.state_formats import StateFormats
from phaze.exports.launch import Inexpressible, Launch
from phaze_common.choices import GroupOrder, MomentDtype, StageCuts, StateDtype, TensorLayout

Refusal = Callable[[Launch], Inexpressible | None]
Settings = tuple[tuple[str, object], ...]

ON_HOST = Offload(
    optimizer=1.0, gradients=1.0, weights=1.0
)  # what FSDP2 and ZeRO-Infinity move to the host together
IN_FP32 = StateFormats(
    StateDtype.FP32, MomentDtype.FP32, StateDtype.FP32
)  # gradients, moments and main weights
NO_OFFLOAD = ("optimizer=0.0",)  # nothing in host memory; a setting with no terms is none


def first_of(refusals: Iterable[Refusal], launch: Launch) -> Inexpressible | None:
    """The first refusal of ``launch``; None where there is none."""
    return next((found for refusal in refusals if (found := refusal(launch)) is not None), None)


def more_replicas(launch: Launch, times: int) -> Settings:
    """``times`` as many replicas, where the global batch has a micro-batch for each; else as many
    as before, on fewer devices."""
    degrees = launch.degrees
    most = degrees.global_batch_size // (degrees.micro_batch_size * degrees.dp)
    return (("dp", degrees.dp * times),) if times <= most else ()


def two_axes(launch: Launch) -> Inexpressible | None:
    """A layout with two tensor axes."""
    degrees = launch.degrees
    if degrees.layout is TensorLayout.ONE_D:
        return None
    layout = "sequence" if degrees.cp > 1 else "1d"
    near: Settings = (
        ("layout", layout),
        ("tp", degrees.tp * degrees.tp2),
        ("tp2", 1),
        ("panels", 1),
    )
    near += (("exchange", "gather"),) if degrees.cp == 1 else ()
    return Inexpressible(
        f"it has no layout with two tensor axes (tp {degrees.tp} x tp2 {degrees.tp2})", near
    )


def cut_layers(launch: Launch) -> Inexpressible | None:
    """Stages that begin inside layers, or hold them in another order than the model runs them."""
    if launch.degrees.stage_cuts is not StageCuts.BETWEEN:
        return Inexpressible(
            "its stages begin between layers, not inside them",
            (("stage_cuts", StageCuts.BETWEEN.value),),
        )
    if launch.plan.stages_differ:
        return Inexpressible("its stages are all trained alike")
    held = tuple(layer for stage in launch.plan.stages for layer in stage.layers)
    if held != launch.layers:
        return Inexpressible("its stages hold the layers in the order in which the model runs them")
    return None


def part_batches(launch: Launch) -> Inexpressible | None:
    """A global batch that is no whole number of micro-batches of every replica."""
    degrees = launch.degrees
    of_all = degrees.micro_batch_size * degrees.dp
    if degrees.global_batch_size % of_all == 0:
        return None
    whole = degrees.micro_batches * of_all
    return Inexpressible(
        f"a global batch of {degrees.global_batch_size} is no multiple of {of_all}, one "
        "micro-batch of each replica",
        (("global_batch_size", whole),),
    )


def part_nodes(launch: Launch) -> Inexpressible | None:
    """Devices that fill no whole number of nodes, so that nodes would run different numbers of
    processes."""
    devices, node = launch.degrees.devices, launch.devices_per_node
    if devices <= node or devices % node == 0:
        return None
    return Inexpressible(
        f"{devices} devices do not fill {launch.nodes} nodes of {node}, and each node starts as "
        "many processes"
    )


def other_order(launch: Launch) -> Inexpressible | None:
    """Groups that do not nest as tensor, context, data, pipeline from the inside out."""
    degrees = launch.degrees
    order = degrees.group_order
    alike = order is GroupOrder.PIPELINE_INNER and 1 in (degrees.pp, degrees.dp)
    if order is GroupOrder.DATA_INNER or alike or (isinstance(order, Assignment) and _nests(order)):
        return None
    return Inexpressible(
        f"its groups nest as {GroupOrder.DATA_INNER.value} over consecutive devices, not as "
        f"{order}",
        (("group_order", GroupOrder.DATA_INNER.value),),
    )


def _nests(order: Assignment) -> bool:
    """Whether the devices of each axis lie inside those of the next, over all tiers; in a tier axes
    may lie in any order."""
    axes = [getattr(order, axis) for axis in AXES]
    met = [
        place for tier in range(len(order.tp)) for place, axis in enumerate(axes) if axis[tier] > 1
    ]
    return met == sorted(met)


def serial_gradients(launch: Launch) -> Inexpressible | None:
    """Gradients that are to be reduced only behind the backward pass."""
    shared = launch.degrees.dp * launch.degrees.cp > 1
    if launch.plan.overlap_gradients is False and shared:
        return Inexpressible(
            "it always reduces gradients while the backward pass runs",
            (("overlap_gradients", True),),
        )
    return None


def divided_heads(launch: Launch) -> Inexpressible | None:
    """Heads of keys and values that the tensor-parallel devices cannot share out."""
    shape, degrees = launch.shape, launch.degrees
    if shape is None or shape.kv_heads % degrees.tp == shape.heads % degrees.tp == 0:
        return None
    tp = gcd(degrees.tp, shape.kv_heads, shape.heads)
    near: Settings = (("tp", tp), *more_replicas(launch, degrees.tp // tp))
    return Inexpressible(
        f"tp {degrees.tp} does not divide {shape.heads} heads and {shape.kv_heads} of keys and "
        "values",
        near,
    )


def pipeline(program: str) -> Refusal:
    """A refusal of pipelines by ``program``; near is one stage with its weights sharded over as
    many more replicas."""

    def refusal(launch: Launch) -> Inexpressible | None:
        pp = launch.degrees.pp
        if pp == 1:
            return None
        near: Settings = (
            ("pp", 1),
            ("interleave", 1),
            *more_replicas(launch, pp),
            ("zero_stage", 3),
        )
        return Inexpressible(f"{program} has no pipeline (pp {pp})", near)

    return refusal


def experts(program: str) -> Refusal:
    """A refusal of expert parallelism by ``program``."""

    def refusal(launch: Launch) -> Inexpressible | None:
        ep = launch.degrees.ep
        return (
            Inexpressible(f"{program} has no expert parallelism (ep {ep})", (("ep", 1),))
            if ep > 1
            else None
        )

    return refusal


def sequence_parallel(program: str) -> Refusal:
    """A refusal of Megatron's sequence parallelism by ``program``."""

    def refusal(launch: Launch) -> Inexpressible | None:
        if launch.degrees.sequence_parallel and launch.degrees.tp > 1:
            return Inexpressible(
                f"{program} has no sequence parallelism beside tensor parallelism",
                (("sequence_parallel", False),),
            )
        return None

    return refusal


def formats_but(what: str, own: StateFormats) -> Refusal:
    """A refusal of number formats of training state other than a program's ``own``, where it has
    one."""

    def stated_formats(launch: Launch) -> Inexpressible | None:
        its = own.settings()
        for key, value in launch.degrees.state_formats.settings().items():
            if value != its.get(key):
                words = StateFormats(**{key: getattr(launch.degrees.state_formats, key)})
                return Inexpressible(f"{what} has no {words}", ((key, its.get(key, False)),))
        return None

    return stated_formats
