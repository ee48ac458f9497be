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

from math import gcd

from Estimator.plans.assignment import Assignment
from Estimator.plans.pipeline.schedule import PipelineSchedule
from GraphExtractor.graph import Attention, Recompute
from phaze.exports.launch import Launch, unsupported
from phaze.exports.megatron_lm.cuda_graphs import graph_limits
from phaze.exports.megatron_lm.formats import format_limits
from phaze.exports.refusals import Refusals, unwritten_model
from phaze.exports.shape import DecoderShape, Positions
from phaze_common.choices import (
    Dispatcher,
    ExpertOverlap,
    GroupOrder,
    KeyExchange,
    Precision,
    StageCuts,
    TensorLayout,
)
from phaze_common.recompute_modules import (
    BETWEEN_PRODUCTS,
    BY_OPERATOR,
    RecomputedModules,
    RecomputeModule,
)

# columns of products (Transformer Engine, assert_dim_for_fp8_exec); rows have to be a multiple of 8
FP8_MULTIPLE = 16
FP8_ROWS = 8


def _kind(launch: Launch) -> Refusals:
    plan, degrees = launch.plan, launch.degrees
    if plan.stages_differ:
        what = "the stages of the plan are trained differently"
        yield unsupported(f"{what}, but Megatron's settings hold for all of them")
    if plan.stage_cuts is StageCuts.INSIDE:
        what = "it cuts a pipeline between layers, not inside them"
        yield unsupported(what, stage_cuts="between")
    if degrees.layout is TensorLayout.TWO_D or degrees.tp2 > 1:
        what = "its tensor parallelism has one axis, not two"
        yield unsupported(what, layout="1d", tp=degrees.tp * degrees.tp2, tp2=1, panels=1)
    if plan.schedule is PipelineSchedule.GPIPE:
        what = "its schedules are 1F1B and interleaved 1F1B, not GPipe"
        yield unsupported(what, schedule="1f1b")
    if isinstance(plan.group_order, Assignment):
        what = "its ranks follow an order of the axes, not an assignment to tiers"
        yield unsupported(what, group_order=GroupOrder.DATA_INNER.value)
    if degrees.offload:
        yield unsupported(
            f"the plan keeps {degrees.offload} in host memory and steps on the device, but its "
            "optimizer offload steps on the host and its activation offload takes whole layers of "
            "a model without pipeline",
            offload="optimizer=0",
        )


def _of_model(launch: Launch) -> Refusals:
    model, shape = launch.plan.model, launch.shape
    if shape is None:
        yield unsupported(f"{model} is no decoder of blocks alike that its GPT model can be")
        return
    if shape.positions is Positions.ALIBI:
        yield unsupported("its GPT model has learned and rotary positions, not ALiBi")
    if shape.activation != ("silu" if shape.gated else "gelu"):
        yield unsupported(f"its arguments know SwiGLU and GELU, not {shape.activation}")
    if len(launch.layers) != shape.layers + 2:
        expected = f"embedding, {shape.layers} blocks and head are expected"
        yield unsupported(f"{model} has {len(launch.layers)} layers where {expected}")


def _stages(launch: Launch) -> Refusals:
    degrees, stages = launch.degrees, launch.plan.stages
    counts = [len(stage.layers) for stage in stages]
    if tuple(layer for stage in stages for layer in stage.layers) != launch.layers:
        what = "its stages hold layers in execution order, not in another"
        yield unsupported(what, stage_layers=counts)
    if len(counts) != degrees.chunks:
        chunks = f"pp {degrees.pp} x interleave {degrees.interleave}"
        yield unsupported(f"the plan has {len(counts)} chunks, which are not {chunks}")


def _widths(launch: Launch) -> Refusals:
    shape, tp = _shape(launch), launch.degrees.tp
    heads, kv_heads = shape.heads, shape.kv_heads
    sizes = {"attention heads": heads, "key/value heads": kv_heads, "ffn columns": shape.ffn}
    if heads % kv_heads:
        yield unsupported(f"{kv_heads} key/value heads do not divide {heads} attention heads")
    for name, size in sizes.items():
        if size % tp:
            common = gcd(tp, *sizes.values())
            near = {"tp": common, "dp": launch.degrees.dp * tp // common}
            yield unsupported(f"tp {tp} does not divide {size} {name}", **near)


def _sequences(launch: Launch) -> Refusals:
    shape, degrees, length = _shape(launch), launch.degrees, launch.plan.sequence_length
    cp, both = degrees.cp, degrees.tp * degrees.cp
    if cp > 1 and length % (2 * cp):
        fewer = range(cp - 1, 1, -1)
        near = next((each for each in fewer if not (cp % each or length % (2 * each))), 1)
        what = f"context parallelism cuts sequences into 2 x cp {cp} parts"
        dp = degrees.dp * cp // near
        yield unsupported(f"{what}, which do not divide {length} tokens", cp=near, dp=dp)
    if cp > 1 and launch.plan.attention is Attention.EAGER:
        what = "unfused attention does not run over context parallelism"
        yield unsupported(what, attention="flash")
    ulysses = cp > 1 and degrees.exchange is KeyExchange.ULYSSES
    if ulysses and (shape.kv_heads % both or shape.heads % both):
        what = f"Ulysses needs tp x cp {both} to divide {shape.kv_heads} key/value heads"
        yield unsupported(what, exchange="ring")
    if degrees.tp > 1 and degrees.sequence_parallel and length % both:
        what = f"sequence parallelism needs tp x cp {both} to divide {length} tokens"
        yield unsupported(what, sequence_parallel=False)


def _experts(launch: Launch) -> Refusals:
    experts, degrees = _shape(launch).experts, launch.degrees
    ep, devices = degrees.ep, degrees.expert_devices(degrees.dp * degrees.cp)
    if experts is None:
        if ep > 1:
            yield unsupported(f"the model has no experts that ep {ep} could divide", ep=1)
        return
    if experts.count % ep or devices % ep:
        what = f"ep {ep} has to divide {experts.count} experts, and {devices} devices"
        yield unsupported(what, ep=gcd(ep, experts.count, devices))
    if experts.chosen > experts.count:
        yield unsupported(f"a token cannot meet {experts.chosen} of {experts.count} experts")
    if degrees.tp > 1 and not degrees.sequence_parallel:
        what = "it trains experts under tensor parallelism only with sequence parallelism"
        yield unsupported(what, sequence_parallel=True)
    if ep > 1 and degrees.dispatch_fp8:
        yield unsupported("it sends tokens to experts as they are, not in fp8", dispatch_fp8=False)
    if ep > 1 and launch.overlap_experts.of_batches:
        beside = "it runs exchanges of experts beside another micro-batch only"
        none = {"overlap_experts": ExpertOverlap.NONE.value}
        if degrees.pp > 1 and degrees.interleave == 1:
            yield unsupported(f"{beside} with several chunks per stage", **none)
        if degrees.recompute is Recompute.FULL:
            yield unsupported(f"{beside} where no whole blocks are recomputed", **none)
        modules = degrees.recompute
        if isinstance(modules, RecomputedModules) and RecomputeModule.EXPERTS in modules.names:
            yield unsupported(f"{beside} where no experts are recomputed", **none)
        if launch.dispatcher is Dispatcher.ALLGATHER:
            what = f"{beside} with the dispatcher alltoall, deepep or hybridep"
            yield unsupported(what, dispatcher=Dispatcher.ALLTOALL.value)
    if ep > 1 and launch.overlap_experts is ExpertOverlap.SHARED and not experts.shared_width:
        what = "there are no shared experts to run beside exchanges"
        yield unsupported(what, overlap_experts=ExpertOverlap.NONE.value)
    if ep > 1 and launch.plan.precision is Precision.FP16:
        yield unsupported("it has no expert parallelism in fp16", precision="bf16")


def _recomputed(launch: Launch) -> Refusals:
    if launch.degrees.recompute in (BY_OPERATOR, BETWEEN_PRODUCTS):
        what = "it recomputes modules, not operator by operator"
        yield unsupported(what, recompute=Recompute.SELECTIVE.value)


def _arithmetic(launch: Launch) -> Refusals:
    shape, degrees, precision = _shape(launch), launch.degrees, launch.plan.precision
    if precision is Precision.FP32 and launch.plan.attention is Attention.FLASH:
        yield unsupported("flash attention has no fp32", attention="eager")
    if precision.is_reduced:
        heads = shape.heads + 2 * shape.kv_heads
        divided = (shape.heads * shape.head_width, heads * shape.head_width, shape.ffn)
        widths = (shape.hidden, *(width // degrees.tp for width in divided))
        rows = degrees.micro_batch_size * launch.plan.sequence_length // degrees.cp
        rows //= degrees.tp if degrees.sequence_parallel else 1
        if any(width % FP8_MULTIPLE for width in widths) or rows % FP8_ROWS:
            sizes = f"columns in multiples of {FP8_MULTIPLE} and rows of {FP8_ROWS}"
            yield unsupported(
                f"{precision} products need {sizes} on every device", precision="bf16"
            )


def _sharding(launch: Launch) -> Refusals:
    stage, pp, optimizer = launch.degrees.zero_stage, launch.degrees.pp, launch.plan.optimizer
    if stage > 0 and optimizer not in ("adam", "muon"):
        yield unsupported(f"its distributed optimizer is Adam, not {optimizer}", zero_stage=0)
    if optimizer == "muon" and stage > 1:
        yield unsupported("its Muon divides whole matrices, ZeRO 1, or nothing", zero_stage=1)
    if optimizer == "muon" and launch.plan.precision is Precision.FP16:
        yield unsupported("it has no Muon in fp16", precision="bf16")
    if stage > 1 and pp > 1:
        yield unsupported(
            f"ZeRO {stage} is Megatron-FSDP's, which is for one pipeline stage; over {pp} its "
            "distributed optimizer is ZeRO 1",
            zero_stage=1,
        )


def _order(launch: Launch) -> Refusals:
    cp, ep = launch.degrees.cp, launch.degrees.ep
    if pipeline_inner(launch) and cp != ep:
        what = f"with the pipeline inside the replicas it needs ep {ep} to equal cp {cp}"
        yield unsupported(what, group_order=GroupOrder.DATA_INNER.value)


def _batch(launch: Launch) -> Refusals:
    degrees, batch = launch.degrees, launch.degrees.global_batch_size
    step = degrees.micro_batch_size * degrees.dp
    whole = step * (degrees.pp if degrees.interleave > 1 else 1)
    if degrees.interleave > 1 and degrees.pp < 2:
        yield unsupported("it interleaves chunks only of a pipeline", interleave=1)
    if batch % whole:
        stages = f"pp {degrees.pp} interleaved stages"
        needs = f"micro_batch_size x dp {step}" if batch % step else stages
        what = f"micro-batches of a global batch of {batch} do not come out whole for {needs}"
        yield unsupported(what, global_batch_size=max(whole, round(batch / whole) * whole))


def _nodes(launch: Launch) -> Refusals:
    devices, dp, node = launch.degrees.devices, launch.degrees.dp, launch.devices_per_node
    if launch.nodes * launch.processes_per_node != devices:
        fewer = (each for each in range(dp - 1, 0, -1) if not devices // dp * each % node)
        whole = next(fewer, None)
        what = f"{devices} devices do not fill nodes of {node}"
        near = {} if whole is None else {"dp": whole}
        yield unsupported(f"torchrun starts as many processes on every node, but {what}", **near)


def pipeline_inner(launch: Launch) -> bool:
    """Whether pipeline stages lie inside the replicas, where that is another order than the
    default."""
    inner = launch.plan.group_order is GroupOrder.PIPELINE_INNER
    return inner and launch.degrees.pp > 1 and launch.degrees.dp > 1


def _shape(launch: Launch) -> DecoderShape:
    assert launch.shape is not None  # _of_model has looked
    return launch.shape


CHECKS = (
    *(_kind, unwritten_model, _of_model, _stages, _widths, _sequences, _experts),
    *(
        _recomputed,
        _arithmetic,
        format_limits,
        graph_limits,
        _sharding,
        _order,
        _batch,
        _nodes,
    ),
)
