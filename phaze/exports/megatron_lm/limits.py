"""What Megatron cannot be told of a plan, and the nearest plan that it can.

Stricter than Megatron's own checks where it starts and fails later, or starts and trains something
else than the plan says:

* key/value heads that tp does not divide (Megatron repeats them), ffn columns that it does not
  (fails as layers are built);
* sequences that context and sequence parallelism do not divide (fails in the first collective);
* experts under tensor without sequence parallelism (fails in the first forward pass), or more
  chosen than there are;
* pipeline-inner rank order with a data-parallel size of experts unlike that of the rest (fails as
  groups are made);
* flash attention in fp32, unfused attention over context parallelism, Ulysses without a head for
  every device (Transformer Engine finds no kernel), fp8 sizes that its products do not take;
* ZeRO over an optimizer other than Adam (fails as it is made), ZeRO 2 and 3 over a pipeline
  (Megatron-FSDP is for one stage);
* micro-batches that pp does not divide under the interleaved schedule, nodes that are not full
  (ranks would lie elsewhere).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from Estimator.plans.assignment import Assignment
from Estimator.plans.pipeline.schedule import PipelineSchedule
from GraphExtractor.graph import Attention
from phaze.exports.launch import Inexpressible, Launch
from phaze.exports.megatron_lm.formats import format_limits
from phaze.exports.shape import DecoderShape, Positions
from phaze_common.choices import GroupOrder, KeyExchange, Precision, StageCuts, TensorLayout

# columns of products (Transformer Engine, assert_dim_for_fp8_exec); rows have to be a multiple of 8
FP8_MULTIPLE = 16
FP8_ROWS = 8


def first_limit(launch: Launch) -> Inexpressible | None:
    """The first thing about ``launch`` that Megatron cannot be told; None where there is none."""
    for check in CHECKS:
        found = next(check(launch), None)
        if found is not None:
            return found
    return None


def _kind(launch: Launch) -> Iterator[Inexpressible]:
    """What of a plan has no counterpart at all."""
    plan, degrees = launch.plan, launch.degrees
    if plan.stages_differ:
        yield Inexpressible(
            "the stages of the plan are trained differently, but Megatron's settings hold for all "
            "of them"
        )
    if plan.stage_cuts is StageCuts.INSIDE:
        yield Inexpressible(
            "it cuts a pipeline between layers, not inside them", (("stage_cuts", "between"),)
        )
    if degrees.layout is TensorLayout.TWO_D or degrees.tp2 > 1:
        nearest = (("layout", "1d"), ("tp", degrees.tp * degrees.tp2), ("tp2", 1), ("panels", 1))
        yield Inexpressible("its tensor parallelism has one axis, not two", nearest)
    if plan.schedule is PipelineSchedule.GPIPE:
        yield Inexpressible(
            "its schedules are 1F1B and interleaved 1F1B, not GPipe", (("schedule", "1f1b"),)
        )
    if isinstance(plan.group_order, Assignment):
        yield Inexpressible(
            "its ranks follow an order of the axes, not an assignment to tiers",
            (("group_order", GroupOrder.DATA_INNER.value),),
        )
    if degrees.offload:
        yield Inexpressible(
            f"the plan keeps {degrees.offload} in host memory and steps on the device, but its "
            "optimizer offload steps on "
            "the host and its activation offload takes whole layers of a model without pipeline",
            (("offload", "optimizer=0"),),
        )


def _of_model(launch: Launch) -> Iterator[Inexpressible]:
    shape = launch.shape
    if shape is None:
        yield Inexpressible(
            f"{launch.plan.model} is no decoder of blocks alike that its GPT model can be"
        )
        return
    if shape.positions is Positions.ALIBI:
        yield Inexpressible("its GPT model has learned and rotary positions, not ALiBi")
    if shape.activation != ("silu" if shape.gated else "gelu"):
        yield Inexpressible(f"its arguments know SwiGLU and GELU, not {shape.activation}")
    if len(launch.layers) != shape.layers + 2:
        yield Inexpressible(
            f"{launch.plan.model} has {len(launch.layers)} layers where embedding, {shape.layers} "
            "blocks and head are expected"
        )


def _stages(launch: Launch) -> Iterator[Inexpressible]:
    degrees, held = (
        launch.degrees,
        tuple(layer for stage in launch.plan.stages for layer in stage.layers),
    )
    counts = [len(stage.layers) for stage in launch.plan.stages]
    if held != launch.layers:
        yield Inexpressible(
            "its stages hold layers in execution order, not in another", (("stage_layers", counts),)
        )
    if len(counts) != degrees.chunks:
        yield Inexpressible(
            f"the plan has {len(counts)} chunks, which are not pp {degrees.pp} x interleave "
            f"{degrees.interleave}"
        )


def _widths(launch: Launch) -> Iterator[Inexpressible]:
    shape, degrees = _shape(launch), launch.degrees
    sizes = {
        "attention heads": shape.heads,
        "key/value heads": shape.kv_heads,
        "ffn columns": shape.ffn,
    }
    if shape.heads % shape.kv_heads:
        yield Inexpressible(
            f"{shape.kv_heads} key/value heads do not divide {shape.heads} attention heads"
        )
    for name, size in sizes.items():
        if size % degrees.tp:
            tp = gcd(degrees.tp, *sizes.values())
            nearest = (("tp", tp), ("dp", degrees.dp * degrees.tp // tp))
            yield Inexpressible(f"tp {degrees.tp} does not divide {size} {name}", nearest)


def _sequences(launch: Launch) -> Iterator[Inexpressible]:
    shape, degrees, length = _shape(launch), launch.degrees, launch.plan.sequence_length
    if degrees.cp > 1:
        if length % (2 * degrees.cp):
            cp = next(
                cp
                for cp in range(degrees.cp - 1, 0, -1)
                if cp == 1 or not (degrees.cp % cp or length % (2 * cp))
            )
            yield Inexpressible(
                f"context parallelism cuts sequences into 2 x cp {degrees.cp} parts, which do not "
                f"divide {length} tokens",
                (("cp", cp), ("dp", degrees.dp * degrees.cp // cp)),
            )
        if launch.plan.attention is Attention.EAGER:
            yield Inexpressible(
                "unfused attention does not run over context parallelism", (("attention", "flash"),)
            )
        ulysses = degrees.exchange is KeyExchange.ULYSSES
        if ulysses and (
            shape.kv_heads % (degrees.tp * degrees.cp) or shape.heads % (degrees.tp * degrees.cp)
        ):
            yield Inexpressible(
                f"Ulysses needs tp x cp {degrees.tp * degrees.cp} to divide {shape.kv_heads} "
                "key/value heads",
                (("exchange", "ring"),),
            )
    if degrees.tp > 1 and degrees.sequence_parallel and length % (degrees.tp * degrees.cp):
        yield Inexpressible(
            f"sequence parallelism needs tp x cp {degrees.tp * degrees.cp} to divide {length} "
            "tokens",
            (("sequence_parallel", False),),
        )


def _experts(launch: Launch) -> Iterator[Inexpressible]:
    experts, degrees = _shape(launch).experts, launch.degrees
    if experts is None:
        if degrees.ep > 1:
            yield Inexpressible(
                f"the model has no experts that ep {degrees.ep} could divide", (("ep", 1),)
            )
        return
    if experts.count % degrees.ep or (degrees.dp * degrees.cp) % degrees.ep:
        yield Inexpressible(
            f"ep {degrees.ep} has to divide {experts.count} experts and dp x cp "
            f"{degrees.dp * degrees.cp}",
            (("ep", gcd(degrees.ep, experts.count, degrees.dp * degrees.cp)),),
        )
    if experts.chosen > experts.count:
        yield Inexpressible(f"a token cannot meet {experts.chosen} of {experts.count} experts")
    if degrees.tp > 1 and not degrees.sequence_parallel:
        yield Inexpressible(
            "it trains experts under tensor parallelism only with sequence parallelism",
            (("sequence_parallel", True),),
        )
    if degrees.ep > 1 and launch.plan.precision is Precision.FP16:
        yield Inexpressible("it has no expert parallelism in fp16", (("precision", "bf16"),))


def _arithmetic(launch: Launch) -> Iterator[Inexpressible]:
    shape, degrees, precision = _shape(launch), launch.degrees, launch.plan.precision
    if precision is Precision.FP32 and launch.plan.attention is Attention.FLASH:
        yield Inexpressible("flash attention has no fp32", (("attention", "eager"),))
    if precision is Precision.FP8:
        heads = (shape.heads + 2 * shape.kv_heads) * shape.head_width
        widths = (
            shape.hidden,
            shape.heads * shape.head_width // degrees.tp,
            heads // degrees.tp,
            shape.ffn // degrees.tp,
        )
        rows = degrees.micro_batch_size * launch.plan.sequence_length // degrees.cp
        rows //= degrees.tp if degrees.sequence_parallel else 1
        if any(width % FP8_MULTIPLE for width in widths) or rows % FP8_ROWS:
            yield Inexpressible(
                f"fp8 products need columns in multiples of {FP8_MULTIPLE} and rows of {FP8_ROWS} "
                "on every device",
                (("precision", "bf16"),),
            )


def _sharding(launch: Launch) -> Iterator[Inexpressible]:
    degrees, plan = launch.degrees, launch.plan
    if degrees.zero_stage > 0 and plan.optimizer != "adam":
        yield Inexpressible(
            f"its distributed optimizer is Adam, not {plan.optimizer}", (("zero_stage", 0),)
        )
    if degrees.zero_stage > 1 and degrees.pp > 1:
        yield Inexpressible(
            f"ZeRO {degrees.zero_stage} is Megatron-FSDP's, which is for one pipeline stage; over "
            f"{degrees.pp} its distributed "
            "optimizer is ZeRO 1",
            (("zero_stage", 1),),
        )


def _order(launch: Launch) -> Iterator[Inexpressible]:
    degrees = launch.degrees
    if pipeline_inner(launch) and degrees.cp != degrees.ep:
        yield Inexpressible(
            f"with the pipeline inside the replicas it needs ep {degrees.ep} to equal cp "
            f"{degrees.cp}",
            (("group_order", GroupOrder.DATA_INNER.value),),
        )


def _batch(launch: Launch) -> Iterator[Inexpressible]:
    degrees = launch.degrees
    step = degrees.micro_batch_size * degrees.dp
    whole = step * (degrees.pp if degrees.interleave > 1 else 1)
    if degrees.interleave > 1 and degrees.pp < 2:
        yield Inexpressible("it interleaves chunks only of a pipeline", (("interleave", 1),))
    if degrees.global_batch_size % whole:
        nearest = (
            ("global_batch_size", max(whole, round(degrees.global_batch_size / whole) * whole)),
        )
        needs = (
            f"micro_batch_size x dp {step}"
            if degrees.global_batch_size % step
            else f"pp {degrees.pp} interleaved stages"
        )
        yield Inexpressible(
            f"micro-batches of a global batch of {degrees.global_batch_size} do not come out "
            f"whole for {needs}",
            nearest,
        )


def _nodes(launch: Launch) -> Iterator[Inexpressible]:
    degrees, node = launch.degrees, launch.devices_per_node
    if launch.nodes * launch.processes_per_node == degrees.devices:
        return
    fewer = (
        dp for dp in range(degrees.dp - 1, 0, -1) if not degrees.devices // degrees.dp * dp % node
    )
    whole = next(fewer, None)
    yield Inexpressible(
        f"torchrun starts as many processes on every node, but {degrees.devices} devices do not "
        f"fill nodes of {node}",
        () if whole is None else (("dp", whole),),
    )


def pipeline_inner(launch: Launch) -> bool:
    """Whether pipeline stages lie inside the replicas, where that is another order than the
    default."""
    degrees = launch.degrees
    return (
        launch.plan.group_order is GroupOrder.PIPELINE_INNER and degrees.pp > 1 and degrees.dp > 1
    )


def _shape(launch: Launch) -> DecoderShape:
    assert launch.shape is not None  # _of_model has looked
    return launch.shape


CHECKS = (
    *(
        _kind,
        _of_model,
        _stages,
        _widths,
        _sequences,
        _experts,
        _arithmetic,
        format_limits,
        _sharding,
        _order,
        _batch,
        _nodes,
    ),
)
