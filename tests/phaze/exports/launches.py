"""Random launches, made without tracing: what exporters are told, some of it what no program can be
told."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from Estimator.plans.assignment import Assignment
from Estimator.plans.cuts import balanced_cuts
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.offload import Offload
from Estimator.plans.plan import Plan
from GraphExtractor.graph import Attention, Recompute
from phaze.exports.launch import Launch
from phaze.exports.megatron_lm.reader import read
from phaze.exports.shape import decoder_shape
from phaze_common.choices import (
    Dispatcher,
    ExpertOverlap,
    GroupOrder,
    KeyExchange,
    Precision,
    StageCuts,
    TensorLayout,
)

MIXTURES = ("mixtral-8x7b", "qwen3-30b-a3b")
LISTED = ("qwen3-0.6b", "qwen3-8b", *MIXTURES)
NO_DECODERS = (
    "bert:layers=12,hidden=768,heads=12",
    "vit-l-16",
    "bloom:layers=24,hidden=1024,heads=16",
    "deepseek-v3",
)


@dataclass(frozen=True)
class Chances:
    """How often a launch has what is rare: what hardly any program can be told, and sizes that do
    not divide."""

    rare: float = 0.02
    odd: float = 0.06


def layers_of(blocks: int) -> tuple[str, ...]:
    """Names of the layers of a decoder, in execution order."""
    return ("embedding", *(f"block.{block}" for block in range(blocks)), "head")


def launch_of(
    degrees: UniformPlan,
    model: str = "llama:layers=24,hidden=2048,heads=16,kv_heads=8",
    sequence_length: int = 2048,
    devices_per_node: int = 8,
    overlap_gradients: bool = True,
    overlap_tensor: bool = True,
) -> Launch:
    """The launch of a plan by its degrees; its chunks are those of ``stage_layers``, or
    balanced."""
    shape = decoder_shape(model)
    layers = layers_of(12 if shape is None else shape.layers)
    counts = degrees.stage_layers
    cuts = (
        balanced_cuts(len(layers), degrees.chunks)
        if counts is None
        else tuple(itertools.accumulate(counts))[:-1]
    )
    chunks = tuple(
        layers[first:stop] for first, stop in itertools.pairwise((0, *cuts, len(layers)))
    )
    return Launch(
        plan=Plan.uniform(degrees, model, sequence_length, chunks),
        degrees=degrees,
        layers=layers,
        device="NVIDIA H100 SXM 80 GB",
        cluster="dgx_h100",
        devices_per_node=devices_per_node,
        overlap_gradients=overlap_gradients
        if degrees.overlap_gradients is None
        else degrees.overlap_gradients,
        overlap_tensor=overlap_tensor if degrees.overlap_tensor is None else degrees.overlap_tensor,
        dispatcher=degrees.dispatcher or Dispatcher.ALLTOALL,
        overlap_experts=degrees.overlap_experts or ExpertOverlap.NONE,
        iteration_s=1.25,
        memory_bytes=40e9,
    )


def random_launch(rng: Random, chances: Chances = Chances()) -> Launch:
    """One launch: most could be started somewhere, some by nobody."""
    model = random_model(rng, chances)
    shape = decoder_shape(model)
    blocks = 12 if shape is None else shape.layers
    pp = rng.choice([pp for pp in (1, 1, 2, 3, 4, 8) if pp <= blocks])
    interleave = rng.choice([1, 1, *(v for v in (2, 3) if pp > 1 and pp * v <= blocks)])
    cp = rng.choice([1, 1, 1, 2, 4])
    dp = rng.choice([1, 2, 4, 8, *([3] if rng.random() < chances.odd else [])])
    ep = (
        rng.choice([1, 2, 4, 8])
        if (shape is not None and shape.experts) or rng.random() < chances.rare
        else 1
    )
    micro_batch = rng.choice([1, 1, 2, 4])
    batches = pp * rng.randint(1, 4) if interleave > 1 else rng.randint(1, 12)
    whole = (
        [Precision.FP32] if cp == 1 or rng.random() < chances.odd else []
    )  # fp32 has no kernel of attention over contexts
    precision = rng.choice([Precision.BF16, Precision.BF16, Precision.FP8, Precision.FP16, *whole])
    flash = precision is not Precision.FP32 and (cp > 1 or rng.random() < 0.7)
    kv_heads = 8 if shape is None else shape.kv_heads
    widths = [tp for tp in (1, 2, 4, 8) if rng.random() < chances.odd or kv_heads % tp == 0]
    zero_stage = rng.choice([0, 1, 1, *((2, 3) if pp == 1 or rng.random() < chances.odd else ())])
    plan = UniformPlan(
        micro_batch_size=micro_batch,
        global_batch_size=micro_batch * dp * batches + (rng.random() < chances.odd),
        tp=rng.choice([*widths, *([3, 16] if rng.random() < chances.odd else [])]),
        pp=pp,
        dp=dp,
        cp=cp,
        ep=ep,
        interleave=interleave,
        recompute=rng.choice(list(Recompute)),
        sequence_parallel=rng.random() < 0.6,
        zero_stage=zero_stage,
        optimizer=rng.choice(["adam", "sgd", "sgd_momentum"])
        if zero_stage == 0 or rng.random() < chances.odd
        else "adam",
        precision=precision,
        attention=Attention.FLASH if flash != (rng.random() < chances.odd) else Attention.EAGER,
        group_order=rng.choice(
            [GroupOrder.DATA_INNER, GroupOrder.DATA_INNER, GroupOrder.PIPELINE_INNER]
        ),
        exchange=rng.choice(list(KeyExchange)) if cp > 1 else KeyExchange.GATHER,
        stage_layers=_random_cuts(rng, blocks + 2, pp * interleave) if rng.random() < 0.4 else None,
        overlap_gradients=rng.choice([None, True, False]),
        overlap_tensor=rng.choice([None, True, False]),
        # of ep 8 others than all-to-all, with something beside them or not, as other degrees fall
        dispatcher=tuple(Dispatcher)[(dp + cp) % 4] if ep == 8 else None,
        overlap_experts=tuple(ExpertOverlap)[(pp + batches) % 4] if ep == 8 else None,
    )
    sequence_length = rng.choice([1024, 2048, 4096]) + (2 if rng.random() < chances.odd else 0)
    launch = launch_of(
        plan,
        model,
        sequence_length,
        overlap_gradients=rng.random() < 0.8,
        overlap_tensor=rng.random() < 0.8,
    )
    return _with_rarities(rng, chances, launch)


def random_model(rng: Random, chances: Chances = Chances()) -> str:
    """A model by its dimensions, a listed one, or one that is no decoder."""
    if rng.random() < chances.rare:
        return rng.choice(NO_DECODERS)
    if rng.random() < 0.3:
        return rng.choice(LISTED)
    heads, width = rng.choice([8, 12, 16, 32]), rng.choice([64, 128])
    layers, hidden = rng.choice([4, 7, 12, 24, 30]), heads * width
    if rng.random() < 0.5:
        return f"gpt:layers={layers},hidden={hidden},heads={heads}"
    kv_heads = rng.choice([kv for kv in (1, 2, 4, 8, heads) if heads % kv == 0])
    return f"llama:layers={layers},hidden={hidden},heads={heads},kv_heads={kv_heads}"


def _random_cuts(rng: Random, layers: int, chunks: int) -> tuple[int, ...]:
    """Layers of every chunk, at least one each, embedding and head counted."""
    cuts = sorted(rng.sample(range(1, layers), chunks - 1))
    return tuple(stop - first for first, stop in itertools.pairwise((0, *cuts, layers)))


def _with_rarities(rng: Random, chances: Chances, launch: Launch) -> Launch:
    plan, degrees = launch.plan, launch.degrees
    changes: list[Launch] = [
        replace(launch, plan=replace(plan, gpipe=True)),
        replace(launch, plan=replace(plan, stage_cuts=StageCuts.INSIDE)),
        replace(launch, degrees=replace(degrees, layout=TensorLayout.TWO_D, tp2=2)),
        replace(launch, degrees=replace(degrees, offload=Offload(activations=0.5))),
        replace(launch, plan=replace(plan, group_order=Assignment.parsed("tp2.dp2/pp2"))),
        replace(launch, devices_per_node=6),
        replace(launch, plan=replace(plan, stages=plan.stages[::-1])),
    ]
    return rng.choice(changes) if rng.random() < 3 * chances.rare else launch


def settings_of(text: str, given: Mapping[str, str] | None = None) -> dict[str, object]:
    """The settings of a Megatron-LM command that ``read`` finds, by their keys.

    Raises:
        InputError: as ``read``, or the command gives what no plan says.
    """
    found = read(text, given or {})
    found.check_expressible(())
    return dict(found.settings)
