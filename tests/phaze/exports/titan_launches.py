"""Random launches for torchtitan, accelerate and DeepSpeed, and single ones by hand; no model is
traced."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

from Estimator.plans.assignment import Assignment
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.offload import NOTHING, Offload
from Estimator.plans.plan import Plan
from phaze.exports.launch import Launch
from phaze.exports.shape import decoder_shape
from phaze_common.choices import (
    Attention,
    GroupOrder,
    KeyExchange,
    Precision,
    Recompute,
    StageCuts,
    TensorLayout,
)

MODELS = (
    *(
        "llama:layers=8,hidden=512,heads=8,kv_heads=4",
        "llama:layers=6,hidden=768,heads=12,kv_heads=3",
    ),
    *(
        "llama:layers=16,hidden=1024,heads=16,kv_heads=8",
        "qwen3-0.6b",
        "mixtral-8x7b",
        "qwen3-30b-a3b",
    ),
)
OTHERS = ("gpt:layers=8,hidden=512,heads=8",)
SMALL = "llama:layers=8,hidden=512,heads=8,kv_heads=4"


def layers_of(model: str) -> tuple[str, ...]:
    """Names of the layers of a decoder, as phaze gives them."""
    shape = decoder_shape(model)
    assert shape is not None
    return ("embedding", *(f"block.{index}" for index in range(shape.layers)), "head")


def launch_of(
    degrees: UniformPlan,
    model: str = SMALL,
    sequence_length: int = 1024,
    node: int = 8,
    **given: object,
) -> Launch:
    """A launch of a plan by its degrees; stages as ``stage_layers``, or with layers as equal as can
    be."""
    layers = layers_of(model)
    counts = degrees.stage_layers or tuple(
        len(layers) // degrees.chunks + (index < len(layers) % degrees.chunks)
        for index in range(degrees.chunks)
    )
    ends = [sum(counts[:index]) for index in range(len(counts) + 1)]
    chunks = tuple(layers[start:end] for start, end in itertools.pairwise(ends))
    plan = Plan.uniform(degrees, model, sequence_length, chunks)
    values: dict[str, object] = {
        **{"device": "NVIDIA H100", "cluster": "by hand", "devices_per_node": node},
        **{
            "overlap_gradients": True,
            "overlap_tensor": False,
            "iteration_s": 1.0,
            "memory_bytes": 2.0**34,
        },
        **given,
    }
    return Launch(plan=plan, degrees=replace(degrees, stage_layers=counts), layers=layers, **values)  # type: ignore[arg-type]


def random_launch(rng: random.Random, strange: float = 0.15) -> Launch:
    """A launch that phaze could plan; a setting that few programs know is drawn with the chance
    ``strange`` each."""

    def odd() -> bool:
        return rng.random() < strange

    model = rng.choice(OTHERS) if rng.random() < strange / 3 else rng.choice(MODELS)
    shape = decoder_shape(model)
    assert shape is not None
    pp = rng.choice((1, 1, 1, 2, 2, 4, 3))
    interleave = (
        rng.choice((1, 2, 3)) if pp > 1 and shape.layers + 2 >= 3 * pp and rng.random() < 0.4 else 1
    )
    chunks = pp * interleave
    tp = rng.choice((1, 1, 2, 4, 8, 3)) if rng.random() < 0.6 else 1
    cp = rng.choice((2, 4)) if rng.random() < 0.25 else 1
    dp = rng.choice((1, 2, 4, 8, 3))
    ep = (
        rng.choice([each for each in (1, 2, 4, 8) if dp * cp % each == 0])
        if shape.experts and rng.random() < 0.7
        else 1
    )
    micro = rng.choice((1, 1, 2, 3))
    micro_batches = rng.choice((1, 2, 4, 6)) * (pp if interleave > 1 or rng.random() < 0.7 else 1)
    batch = micro * dp * micro_batches - (rng.randrange(micro * dp) if odd() else 0)
    cuts = (
        sorted(rng.sample(range(1, shape.layers + 2), chunks - 1)) if rng.random() < 0.5 else None
    )
    counts = (
        None
        if cuts is None
        else tuple(b - a for a, b in zip((0, *cuts), (*cuts, shape.layers + 2), strict=True))
    )
    on_host = rng.choice(
        (
            *(
                Offload(1.0, 1.0, 1.0),
                Offload(optimizer=1.0, gradients=1.0),
                Offload(optimizer=1.0),
                Offload(activations=1.0),
            ),
            *(Offload(optimizer=0.5), Offload(1.0, 1.0, 1.0, 1.0)),
        )
    )
    degrees = UniformPlan(
        micro_batch_size=micro,
        global_batch_size=max(batch, micro * dp),
        **{"tp": tp, "pp": pp, "dp": dp, "cp": cp, "ep": ep, "interleave": interleave},
        gpipe=interleave == 1 and pp > 1 and rng.random() < 0.2,
        recompute=Recompute.SELECTIVE if odd() else rng.choice((Recompute.NONE, Recompute.FULL)),
        sequence_parallel=rng.random() < 0.5,
        zero_stage=rng.choice((0, 1, 2, 3)),
        optimizer=rng.choice(("sgd", "sgd_momentum")) if odd() else "adam",
        precision=rng.choice(tuple(Precision)) if odd() else Precision.BF16,
        attention=Attention.EAGER if odd() else Attention.FLASH,
        group_order=rng.choice((GroupOrder.PIPELINE_INNER, _assignment(tp, cp, ep, dp, pp)))
        if odd()
        else GroupOrder.DATA_INNER,
        exchange=rng.choice(tuple(KeyExchange)) if cp > 1 and odd() else KeyExchange.GATHER,
        stage_layers=counts,
        overlap_gradients=rng.choice((True, False)) if odd() else None,
        overlap_tensor=rng.choice((True, False)) if odd() else None,
        stage_cuts=StageCuts.INSIDE if rng.random() < strange / 5 else StageCuts.BETWEEN,
        offload=on_host if odd() else NOTHING,
    )
    if rng.random() < strange / 5:
        degrees = replace(degrees, layout=TensorLayout.TWO_D, tp2=2, ep=1)
    length = rng.choice((1024, 2048, 4096, 1000)) if odd() else rng.choice((1024, 4096))
    overlaps = rng.random() < 0.5
    return launch_of(
        degrees,
        model,
        length,
        rng.choice((4, 8)),
        overlap_tensor=degrees.overlap_tensor or overlaps,
    )


def _assignment(tp: int, cp: int, ep: int, dp: int, pp: int) -> Assignment:
    return Assignment((tp, 1), (cp, 1), (ep, 1), (dp, 1), (1, pp), (1, 1))
