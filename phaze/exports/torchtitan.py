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
- experts borrow devices of tensor parallelism, where a plan divides them over other devices;
- its selective recomputation keeps and recomputes single operators, every second product among
  them.

Of torchtitan's three ways to annotate tensors the configuration names ``partial_dtensor``: with
torch 2.13.0 the default, ``spmd_types``, fails in ``fully_shard`` ("all parameters must be
DTensors"), and ``full_dtensor`` fails with expert parallelism.

Sources: torchtitan 0.3.0 (``config/configs.py``, ``trainer.py``, ``distributed/``), torch 2.13
(``distributed/pipelining``).
"""

from __future__ import annotations

from dataclasses import dataclass

from Estimator.plans.offload import NOTHING
from Estimator.plans.pipeline.schedule import PipelineSchedule
from phaze.exports.launch import ExportedFile, Inexpressible, Launch
from phaze.exports.refusals import (
    IN_FP32,
    NO_OFFLOAD,
    ON_HOST,
    Settings,
    cut_layers,
    divided_heads,
    first_of,
    formats_but,
    other_order,
    part_batches,
    part_nodes,
    serial_gradients,
    two_axes,
)
from phaze.exports.torchtitan_files import launcher, module
from phaze_common.choices import Attention, KeyExchange, Precision, Recompute

FAMILIES = ("llama", "qwen3", "qwen3_moe", "mixtral")  # whose blocks torchtitan has
FLEX_BLOCK = (
    128  # tokens of a block of FlexAttention's mask, which context parallelism does not cut
)


def _model(launch: Launch) -> Inexpressible | None:
    shape, degrees = launch.shape, launch.degrees
    if shape is None or shape.family not in FAMILIES or len(launch.layers) != shape.layers + 2:
        return Inexpressible(
            f"it has no blocks of {launch.plan.model}; it has those of {', '.join(FAMILIES)}"
        )
    if shape.tied and degrees.pp > 1:
        return Inexpressible("it does not tie the head to the embedding in a pipeline")
    if shape.vocabulary % degrees.tp:
        return Inexpressible(
            f"tp {degrees.tp} does not divide the vocabulary of {shape.vocabulary}"
        )
    if shape.ffn % degrees.tp:
        return Inexpressible(f"tp {degrees.tp} does not divide the feed-forward width {shape.ffn}")
    return None


def _training(launch: Launch) -> Inexpressible | None:
    degrees = launch.degrees
    if degrees.precision is Precision.FP16:
        return Inexpressible(
            "it trains in bfloat16 or float32, not in float16", (("precision", "bf16"),)
        )
    if degrees.optimizer != "adam":
        return Inexpressible(f"it has Adam, not {degrees.optimizer}", (("optimizer", "adam"),))
    if degrees.attention is not Attention.FLASH:
        return Inexpressible("its attention is fused (FlexAttention)", (("attention", "flash"),))
    if degrees.recompute is Recompute.SELECTIVE:
        return Inexpressible(
            "its selective recomputation repeats single operators and every second product, not "
            "core attention alone",
            (("recompute", "full"),),
        )
    return None


def _sequences(launch: Launch) -> Inexpressible | None:
    degrees, length = launch.degrees, launch.plan.sequence_length
    if degrees.cp > 1 and degrees.exchange is not KeyExchange.GATHER:
        return Inexpressible(
            "it gathers keys and values before attention", (("exchange", "gather"),)
        )
    # Trainer asks for 2 cp (head and tail blocks) times tp where tokens are cut over it, torch for
    # whole blocks of the mask
    cut = degrees.tp if degrees.sequence_parallel else 1
    parts = cut * (2 * degrees.cp if degrees.cp > 1 else 1)
    blocks = FLEX_BLOCK * degrees.cp if degrees.cp > 1 else 1
    for divisor in (parts, blocks):
        if length % divisor:
            longer = -(-length // divisor) * divisor
            near = () if divisor > length else (("sequence_length", longer),)
            return Inexpressible(
                f"sequences of {length} tokens are no multiple of {divisor}, the parts they are "
                "cut into",
                near,
            )
    return None


def _sharding(launch: Launch) -> Inexpressible | None:
    degrees = launch.degrees
    stage, pipelined = degrees.zero_stage, degrees.pp > 1
    near = (("zero_stage", 1 if pipelined else 2),)
    if degrees.dp * degrees.cp == 1:
        return None
    if degrees.cp > 1 and stage == 0:
        return Inexpressible(
            "with context parallelism it always shards parameters over the devices of a sequence",
            near,
        )
    if pipelined and stage > 1:
        return Inexpressible(
            "in a pipeline it keeps weights and gradients whole between micro-batches, which is "
            "ZeRO 1",
            near,
        )
    if not pipelined and stage == 1:
        return Inexpressible(
            "it shards gradients wherever it shards the optimizer, which without a pipeline is "
            "ZeRO 2",
            near,
        )
    return None


def _experts(launch: Launch) -> Inexpressible | None:
    degrees, shape = launch.degrees, launch.shape
    if degrees.ep == 1:
        return None
    if shape is None or shape.experts is None:
        return Inexpressible(
            f"{launch.plan.model} has no experts to divide (ep {degrees.ep})", (("ep", 1),)
        )
    if degrees.tp > 1:
        what = (
            "it divides experts over the devices of tensor parallelism too, where the plan "
            "divides each expert over them"
        )
        return Inexpressible(what, (("ep", 1),))
    if degrees.zero_stage == 0:
        return Inexpressible(
            "it divides experts only over devices that shard parameters",
            (("zero_stage", 1 + (degrees.pp == 1)),),
        )
    if shape.experts.count % degrees.ep:
        return Inexpressible(
            f"ep {degrees.ep} does not divide {shape.experts.count} experts", (("ep", 1),)
        )
    return None


def _pipeline(launch: Launch) -> Inexpressible | None:
    degrees = launch.degrees
    if degrees.cp > 1 and 0 in launch.blocks_of_chunks:
        blocks, chunks = len(launch.layers) - 2, degrees.chunks
        even = [blocks // chunks + (index < blocks % chunks) for index in range(chunks)]
        even[0], even[-1] = even[0] + 1, even[-1] + 1
        near: Settings = (("stage_layers", tuple(even)),) if blocks >= chunks else ()
        return Inexpressible("with context parallelism each of its stages has an attention", near)
    if (
        degrees.pp == 1
        or degrees.schedule is not PipelineSchedule.ONE_F_ONE_B
        or degrees.micro_batches >= degrees.pp
    ):
        return None
    near = (("global_batch_size", degrees.pp * degrees.micro_batch_size * degrees.dp),)
    return Inexpressible(
        f"its 1F1B needs a micro-batch for each of {degrees.pp} stages, given "
        f"{degrees.micro_batches}",
        near,
    )


def _offload(launch: Launch) -> Inexpressible | None:
    offload = launch.degrees.offload
    if offload == NOTHING or (offload == ON_HOST and launch.degrees.pp == 1):
        return None
    what = (
        "it keeps weights, gradients and optimizer state in host memory all together or not at all"
    )
    if launch.degrees.pp > 1:
        return Inexpressible(what + ", and gradients not in a pipeline", (("offload", NO_OFFLOAD),))
    held = offload.optimizer + offload.gradients + offload.weights > 0
    return Inexpressible(what, (("offload", ON_HOST.terms if held else NO_OFFLOAD),))


REFUSALS = (
    *(
        two_axes,
        cut_layers,
        _model,
        _training,
        formats_but("it", IN_FP32),
        divided_heads,
        _sequences,
        _experts,
    ),
    *(_sharding, _offload, part_batches, _pipeline, other_order, part_nodes, serial_gradients),
)


@dataclass(frozen=True)
class Torchtitan:
    """torchtitan 0.3.0: ``phaze_plan.py`` with the function ``plan``, and ``run.sh`` that launches
    it with torchrun."""

    name: str = "torchtitan"
    title: str = "torchtitan"

    def inexpressible(self, launch: Launch) -> Inexpressible | None:
        """See ``Exporter``; the docstring of this module lists where it asks for more than
        torchtitan does."""
        return first_of(REFUSALS, launch)

    def files(self, launch: Launch) -> tuple[ExportedFile, ...]:
        """See ``Exporter``."""
        return (
            ExportedFile("phaze_plan.py", module(launch)),
            ExportedFile("run.sh", launcher(launch), executable=True),
        )


EXPORTER = Torchtitan()
