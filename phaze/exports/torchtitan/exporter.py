"""Plans as configurations of torchtitan 0.3.0: a Python module with a function that returns
``Trainer.Config``, and ``run.sh``.

torchtitan looks at much of a configuration only when the job runs. What it refuses then is refused
here at once: global batches that are no whole number of micro-batches (``Trainer``), a world size
other than the product of the degrees (``ParallelDims``), names of schedules, stages that are no
multiple of the pipeline's ranks, 1F1B with fewer micro-batches than stages
(``torch.distributed.pipelining``), heads that tensor parallelism does not divide, sequences that
sequence and context parallelism do not divide, tied weights in a pipeline, stages without a block
under context parallelism.

Refused here although torchtitan runs it, because what runs would not be the plan:

- sharding without a pipeline reduces and scatters gradients after every micro-batch, which is ZeRO
  2 or 3, never 1;
- in a pipeline torch keeps weights and gradients whole between micro-batches
  (``backward_maybe_with_nosync``): ZeRO 1 or 0;
- context parallelism always shards over its devices (FSDP's mesh folds cp), so that there is no
  ZeRO 0 with it;
- experts borrow devices of tensor parallelism (a plan's etp 1);
- its selective recomputation keeps and recomputes single operators, every second product among
  them.

Of torchtitan's three ways to annotate tensors the configuration names ``partial_dtensor``: with
torch 2.13.0 the default, ``spmd_types``, fails in ``fully_shard`` ("all parameters must be
DTensors"), and ``full_dtensor`` fails with expert parallelism.

Sources: torchtitan 0.3.0 (``config/configs.py``, ``trainer.py``, ``distributed/``), torch 2.13
(``distributed/pipelining``).
"""

from __future__ import annotations

from functools import partial

from Estimator.plans.offload import NOTHING
from Estimator.plans.pipeline.schedule import PipelineSchedule
from phaze.exports import refusals
from phaze.exports.launch import ExportedFile, Exporter, Launch, unsupported
from phaze.exports.refusals import NO_OFFLOAD, ON_HOST, Refusals
from phaze.exports.start_scripts import RUN
from phaze.exports.torchtitan.files import BACKENDS, CONVERTERS, launcher, module
from phaze_common.choices import Attention, ExpertWidth, KeyExchange, Precision
from phaze_common.recompute_modules import BY_OPERATOR, of_parts

FAMILIES = ("llama", "qwen3", "qwen3_moe", "mixtral")  # whose blocks torchtitan has
# tokens of a block of FlexAttention's mask, which context parallelism does not cut
FLEX_BLOCK = 128


def _model(launch: Launch) -> Refusals:
    shape, tp = launch.shape, launch.degrees.tp
    if shape is None or shape.family not in FAMILIES or len(launch.layers) != shape.layers + 2:
        yield unsupported(
            f"it has no blocks of {launch.plan.model}; it has those of {', '.join(FAMILIES)}"
        )
        return
    if shape.tied and launch.degrees.pp > 1:
        yield unsupported("it does not tie the head to the embedding in a pipeline")
    if shape.vocabulary % tp:
        yield unsupported(f"tp {tp} does not divide the vocabulary of {shape.vocabulary}")
    if shape.ffn % tp:
        yield unsupported(f"tp {tp} does not divide the feed-forward width {shape.ffn}")


def _training(launch: Launch) -> Refusals:
    degrees = launch.degrees
    if degrees.precision is Precision.FP16:
        what = "it trains in bfloat16 or float32, not in float16"
        yield unsupported(what, precision="bf16")
    if degrees.precision.is_reduced and degrees.precision not in CONVERTERS:
        what = f"it has fp8 with a scale for each tensor and mxfp8, no {degrees.precision}"
        # what every chip with these products has besides
        near = Precision.MXFP8 if degrees.precision is Precision.NVFP4 else Precision.FP8
        yield unsupported(what, precision=near.value)
    if degrees.optimizer != "adam":
        yield unsupported(f"it has Adam, not {degrees.optimizer}", optimizer="adam")
    if degrees.attention is not Attention.FLASH:
        yield unsupported("its attention is fused (FlexAttention)", attention="flash")
    if of_parts(degrees.recompute) and degrees.recompute != BY_OPERATOR:
        what = "its selective recomputation repeats single operators and every second product"
        yield unsupported(f"{what}, not modules", recompute=BY_OPERATOR.value)


def _sequences(launch: Launch) -> Refusals:
    degrees, length = launch.degrees, launch.plan.sequence_length
    if degrees.cp > 1 and degrees.exchange is not KeyExchange.GATHER:
        yield unsupported("it gathers keys and values before attention", exchange="gather")
    # Trainer asks for 2 cp (head and tail blocks) times tp where tokens are cut over it, torch for
    # whole blocks of the mask
    cut = degrees.tp if degrees.sequence_parallel else 1
    divisors = (cut * 2 * degrees.cp, FLEX_BLOCK * degrees.cp) if degrees.cp > 1 else (cut,)
    for divisor in divisors:
        if length % divisor:
            near = {"sequence_length": -(-length // divisor) * divisor} if divisor <= length else {}
            what = f"sequences of {length} tokens are no multiple of {divisor}"
            yield unsupported(f"{what}, the parts they are cut into", **near)


def _sharding(launch: Launch) -> Refusals:
    degrees, stage, pipelined = launch.degrees, launch.degrees.zero_stage, launch.degrees.pp > 1
    near = 1 if pipelined else 2
    if degrees.dp * degrees.cp == 1:
        return
    if degrees.cp > 1 and stage == 0:
        what = "with context parallelism it always shards parameters over the devices of a sequence"
        yield unsupported(what, zero_stage=near)
    if pipelined and stage > 1:
        what = "in a pipeline it keeps weights and gradients whole between micro-batches"
        yield unsupported(f"{what}, which is ZeRO 1", zero_stage=near)
    if not pipelined and stage == 1:
        what = "it shards gradients wherever it shards the optimizer"
        yield unsupported(f"{what}, which without a pipeline is ZeRO 2", zero_stage=near)


def _experts(launch: Launch) -> Refusals:
    degrees, shape = launch.degrees, launch.shape
    if degrees.ep == 1:
        if degrees.expert_tp < degrees.tp:
            what = "it divides experts by tensor parallelism where nothing else does (etp 1)"
            yield unsupported(what, etp=ExpertWidth.SAME.value)
        return
    if shape is None or shape.experts is None:
        yield unsupported(f"{launch.plan.model} has no experts to divide (ep {degrees.ep})", ep=1)
        return
    if degrees.expert_tp > 1:
        what = "it divides experts over the devices of tensor parallelism too"
        yield unsupported(
            f"{what}, where the plan divides each expert over them", etp=ExpertWidth.ONE.value
        )
    if degrees.zero_stage == 0:
        what = "it divides experts only over devices that shard parameters"
        yield unsupported(what, zero_stage=1 + (degrees.pp == 1))
    if shape.experts.count % degrees.ep:
        what = f"ep {degrees.ep} does not divide {shape.experts.count} experts"
        yield unsupported(what, ep=1)


def _pipeline(launch: Launch) -> Refusals:
    degrees = launch.degrees
    if degrees.cp > 1 and 0 in launch.blocks_of_chunks:
        blocks, chunks = len(launch.layers) - 2, degrees.chunks
        even = [blocks // chunks + (index < blocks % chunks) for index in range(chunks)]
        even[0], even[-1] = even[0] + 1, even[-1] + 1
        near = {"stage_layers": tuple(even)} if blocks >= chunks else {}
        yield unsupported("with context parallelism each of its stages has an attention", **near)
    serial = degrees.pp > 1 and degrees.schedule is PipelineSchedule.ONE_F_ONE_B
    if serial and degrees.micro_batches < degrees.pp:
        what = f"its 1F1B needs a micro-batch for each of {degrees.pp} stages"
        batch = degrees.pp * degrees.micro_batch_size * degrees.dp
        yield unsupported(f"{what}, given {degrees.micro_batches}", global_batch_size=batch)


def _offload(launch: Launch) -> Refusals:
    offload, pipelined = launch.degrees.offload, launch.degrees.pp > 1
    if offload == NOTHING or (offload == ON_HOST and not pipelined):
        return
    what = refusals.ALL_OR_NONE
    if pipelined:
        yield unsupported(what + ", and gradients not in a pipeline", offload=NO_OFFLOAD)
    held = offload.optimizer + offload.gradients + offload.weights > 0
    yield unsupported(what, offload=ON_HOST.terms if held else NO_OFFLOAD)


def files(launch: Launch) -> tuple[ExportedFile, ...]:
    """``phaze_plan.py`` with the function ``plan``, and ``run.sh`` that launches it with
    torchrun."""
    return (ExportedFile("phaze_plan.py", module(launch)), launcher(launch))


REFUSALS = (
    refusals.two_axes,
    refusals.cut_layers,
    partial(refusals.cuda_graphs, program="it"),
    refusals.unwritten_model,
    _model,
    _training,
    partial(refusals.formats_but, program="it", own=refusals.IN_FP32),
    refusals.divided_heads,
    _sequences,
    _experts,
    _sharding,
    _offload,
    partial(refusals.other_exchanges, dispatchers=BACKENDS),
    refusals.part_batches,
    _pipeline,
    refusals.other_order,
    refusals.part_nodes,
    refusals.serial_gradients,
)
EXPORTER = Exporter("torchtitan", "torchtitan", REFUSALS, files, node_script=RUN)
