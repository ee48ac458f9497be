"""The arguments of ``pretrain_gpt.py`` that mean a launch, each with the reason for it.

Names and meanings are those of Megatron-LM core_v0.16.1 (megatron/training/arguments.py,
megatron/core/transformer/ transformer_config.py); what the plan leaves at Megatron's default is not
said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from GraphExtractor.graph import Attention, Recompute
from GraphExtractor.models.registry import find_model
from phaze.exports.launch import Launch
from phaze.exports.megatron_lm.formats import narrow_state
from phaze.exports.megatron_lm.layout import is_even, layout_string
from phaze.exports.megatron_lm.limits import pipeline_inner
from phaze.exports.shape import DecoderShape, Positions
from phaze_common.choices import KeyExchange, Precision, StateDtype

# of Transformer Engine; Megatron's help calls the first allgather, which Transformer Engine does
# not know
CONTEXT_EXCHANGES = {
    KeyExchange.GATHER: "all_gather",
    KeyExchange.RING: "p2p",
    KeyExchange.ULYSSES: "a2a",
}
BACKENDS = {Attention.FLASH: "flash", Attention.EAGER: "unfused"}
SHARDING = {
    2: "optim_grads",
    3: "optim_grads_params",
}  # --data-parallel-sharding-strategy by stage of ZeRO


@dataclass(frozen=True)
class Argument:
    """One argument, its value (None: it is a switch) and why it is there."""

    flag: str
    value: object | None
    why: str


@dataclass(frozen=True)
class Group:
    """Arguments that belong together, under a variable of the script."""

    variable: str
    title: str
    arguments: tuple[Argument, ...]


def switch(flag: str, why: str) -> Argument:
    """An argument without a value."""
    return Argument(flag, None, why)


def groups(launch: Launch) -> tuple[Group, ...]:
    """All arguments of a launch that Megatron can be told, but those of data, tokenizer and
    learning rate."""
    made = (
        ("MODEL", "The model, from its published configuration", _model),
        ("PARALLEL", "How it is divided over devices", _parallel),
        ("BATCH", "Batches", _batch),
        ("MEMORY", "What is kept, made again or divided", _memory),
        ("OVERLAP", "What runs beside computation", _overlap),
        ("NUMBERS", "Number formats and kernels", _numbers),
    )
    return tuple(Group(name, title, tuple(arguments(launch))) for name, title, arguments in made)


def shape_of(launch: Launch) -> DecoderShape:
    """The model's shape, of a launch whose model has one."""
    assert launch.shape is not None
    return launch.shape


def positions(launch: Launch) -> int:
    """Tokens that its positions are made for: the model's own, or more where the plan's sequences
    are longer."""
    return max(find_model(launch.plan.model).sequence_length, launch.plan.sequence_length)


def vocabulary_multiple(launch: Launch) -> int:
    """What the vocabulary is padded to, per tensor-parallel device."""
    return find_model(launch.plan.model).vocabulary_multiple


def _model(launch: Launch) -> Iterator[Argument]:
    shape = shape_of(launch)
    yield Argument("--num-layers", shape.layers, "blocks, embedding and head not counted")
    yield Argument("--hidden-size", shape.hidden, "width of the residual stream")
    yield Argument(
        "--ffn-hidden-size",
        shape.ffn,
        "of one of gate and up projection" if shape.gated else "inner width of the MLP",
    )
    yield Argument("--num-attention-heads", shape.heads, "of queries")
    yield Argument(
        "--kv-channels",
        shape.head_width,
        "width of a head, said because it need not be hidden / heads",
    )
    if shape.kv_heads != shape.heads:
        yield switch("--group-query-attention", "several heads of queries share keys and values")
        yield Argument("--num-query-groups", shape.kv_heads, "heads of keys and values")
    yield Argument(
        "--max-position-embeddings",
        positions(launch),
        "positions of the model, and at least those of a sequence",
    )
    if shape.positions is Positions.ROTARY:
        yield Argument("--position-embedding-type", "rope", "rotary positions")
    else:
        yield Argument(
            "--position-embedding-type", "learned_absolute", "a learned table of positions"
        )
    if shape.gated:
        yield switch("--swiglu", "gated MLP with SiLU")
        yield Argument("--normalization", "RMSNorm", "as the model has it")
    else:
        yield Argument("--normalization", "LayerNorm", "as the model has it")
    if shape.query_norm:
        yield switch("--qk-layernorm", "queries and keys are normalised")
    if not shape.biases:
        yield switch("--disable-bias-linear", "its linear layers have no biases")
    if not shape.tied:
        yield switch("--untie-embeddings-and-output-weights", "the head has weights of its own")
    dropout = 0.1 if shape.dropout else 0.0
    yield Argument(
        "--hidden-dropout", dropout, "Megatron's default is 0.1, which costs time and memory"
    )
    yield Argument("--attention-dropout", dropout, "as of hidden")
    yield Argument(
        "--make-vocab-size-divisible-by",
        vocabulary_multiple(launch),
        f"pads {shape.vocabulary} tokens as the plan was priced",
    )
    if shape.experts is not None:
        yield from _experts(launch)


def _experts(launch: Launch) -> Iterator[Argument]:
    experts = shape_of(launch).experts
    assert experts is not None
    yield Argument("--num-experts", experts.count, "experts of a block")
    yield Argument("--moe-router-topk", experts.chosen, "that a token meets")
    yield Argument("--moe-ffn-hidden-size", experts.ffn, "inner width of one expert")
    if experts.shared_width:
        yield Argument(
            "--moe-shared-expert-intermediate-size",
            experts.shared_width,
            "of the experts that all tokens meet",
        )
    if experts.chosen == 1:
        yield switch("--moe-router-pre-softmax", "a softmax over one chosen expert has no gradient")
    yield Argument(
        "--moe-token-dispatcher-type",
        "alltoall",
        "priced so: tokens go to their experts' devices and back",
    )
    if launch.plan.precision in (Precision.BF16, Precision.FP8):
        yield switch("--moe-grouped-gemm", "priced so: one product for all experts of a device")


def _parallel(launch: Launch) -> Iterator[Argument]:
    degrees, shape = launch.degrees, shape_of(launch)
    yield Argument("--tensor-model-parallel-size", degrees.tp, "the plan's tp")
    yield Argument("--pipeline-model-parallel-size", degrees.pp, "the plan's pp")
    yield Argument(
        "--context-parallel-size",
        degrees.cp,
        f"the plan's cp; dp {degrees.dp} is what of the devices is left",
    )
    if degrees.cp > 1:
        exchange = CONTEXT_EXCHANGES[degrees.exchange]
        yield Argument(
            "--cp-comm-type",
            exchange,
            f"the plan's exchange {degrees.exchange.value} of keys and values",
        )
    if shape.experts is not None or degrees.ep > 1:
        yield Argument(
            "--expert-model-parallel-size", degrees.ep, "the plan's ep, of its dp x cp devices"
        )
        yield Argument(
            "--expert-tensor-parallel-size", degrees.tp, "experts are divided by tp as the rest is"
        )
    if not is_even(launch):
        why = (
            "the plan's stages"
            if degrees.interleave == 1
            else "the plan's chunks, which stages take in turn"
        )
        yield Argument(
            "--pipeline-model-parallel-layout",
            layout_string(launch),
            f"{why}: E embedding, t block, L head",
        )
    elif degrees.interleave > 1:
        blocks = launch.blocks_of_chunks[0]
        yield Argument(
            "--num-layers-per-virtual-pipeline-stage",
            blocks,
            f"{degrees.interleave} chunks a stage, all alike",
        )
    if degrees.sequence_parallel and degrees.tp > 1:
        yield switch("--sequence-parallel", "norms and dropout work on a part of the tokens")
    if pipeline_inner(launch):
        yield switch(
            "--use-tp-pp-dp-mapping",
            "the plan's group order: stages nearer to each other than replicas",
        )


def _batch(launch: Launch) -> Iterator[Argument]:
    degrees = launch.degrees
    yield Argument("--seq-length", launch.plan.sequence_length, "tokens of a sample")
    yield Argument("--micro-batch-size", degrees.micro_batch_size, "samples of a pass")
    yield Argument(
        "--global-batch-size",
        degrees.global_batch_size,
        f"{degrees.micro_batches} micro-batches a replica",
    )


def _memory(launch: Launch) -> Iterator[Argument]:
    degrees = launch.degrees
    if degrees.recompute is Recompute.FULL:
        yield Argument("--recompute-granularity", "full", "the plan recomputes whole blocks")
        yield Argument("--recompute-method", "uniform", "all blocks, of every stage")
        yield Argument(
            "--recompute-num-layers", 1, "block by block: the least memory while recomputing"
        )
    elif degrees.recompute is Recompute.SELECTIVE:
        yield Argument(
            "--recompute-granularity", "selective", "the plan recomputes core attention alone"
        )
    if degrees.zero_stage > 0:
        yield switch(
            "--use-distributed-optimizer",
            f"ZeRO {degrees.zero_stage}: replicas divide the optimizer state",
        )
    if degrees.zero_stage > 1:
        divided = "gradients" if degrees.zero_stage == 2 else "gradients and weights"
        yield switch(
            "--use-megatron-fsdp", f"ZeRO {degrees.zero_stage}: replicas divide {divided} too"
        )
        yield Argument(
            "--data-parallel-sharding-strategy",
            SHARDING[degrees.zero_stage],
            "what that stage divides",
        )
        yield Argument("--ckpt-format", "fsdp_dtensor", "the only one that Megatron-FSDP writes")
        yield switch("--no-gradient-accumulation-fusion", "Megatron-FSDP adds up gradients itself")


def _overlap(launch: Launch) -> Iterator[Argument]:
    degrees = launch.degrees
    if launch.overlap_gradients:
        yield switch(
            "--overlap-grad-reduce", "priced so: gradients are reduced behind the backward pass"
        )
        if degrees.zero_stage > 0:
            yield switch(
                "--overlap-param-gather", "priced so: weights are gathered behind the forward pass"
            )
    if launch.overlap_tensor and degrees.sequence_parallel and degrees.tp > 1:
        yield switch(
            "--tp-comm-overlap",
            "priced so: gathers and scatters run piece by piece beside products",
        )


def _numbers(launch: Launch) -> Iterator[Argument]:
    precision, optimizer = launch.plan.precision, launch.plan.optimizer
    if precision is Precision.FP16:
        yield switch("--fp16", "weights and activations; the loss is scaled")
    elif precision in (Precision.BF16, Precision.FP8):
        yield switch("--bf16", "weights and activations")
    if precision is Precision.FP8:
        yield Argument(
            "--fp8-format", "hybrid", "products with weights in fp8: e4m3 forward, e5m2 backward"
        )
    yield from _state(launch)
    yield Argument(
        "--attention-backend",
        BACKENDS[launch.plan.attention],
        f"the plan's attention {launch.plan.attention.value}",
    )
    if optimizer == "adam":
        yield Argument("--optimizer", "adam", "the plan's optimizer")
    else:
        yield Argument("--optimizer", "sgd", "the plan's optimizer")
        yield Argument(
            "--sgd-momentum",
            0.9 if optimizer == "sgd_momentum" else 0.0,
            "with momentum, or with none to keep",
        )


def _state(launch: Launch) -> Iterator[Argument]:
    """Formats of gradients and optimizer state that are not its own; gradients are its own where
    nobody says."""
    formats, precision = launch.degrees.state_formats, launch.plan.precision
    if formats.gradient_dtype is StateDtype.BF16:
        yield switch(
            "--grad-reduce-in-bf16",
            "the plan adds up and reduces gradients in bf16; else it does in fp32",
        )
    elif formats.gradient_dtype is StateDtype.FP32 and precision is Precision.FP16:
        yield switch(
            "--accumulate-allreduce-grads-in-fp32", "the plan adds up and reduces gradients in fp32"
        )
    if formats.fp8_weights:
        yield switch("--fp8-param-gather", "the plan holds and gathers weights in fp8")
    if narrow_state(launch):
        moment = "fp32" if formats.moment_dtype is None else formats.moment_dtype.value
        yield switch(
            "--use-precision-aware-optimizer",
            "the plan's optimizer keeps state in fewer bits than fp32",
        )
        gradient = "bf16" if formats.gradient_dtype is StateDtype.BF16 else "fp32"
        yield Argument(
            "--main-grads-dtype", gradient, "that the optimizer reads, as they are added up"
        )
        main = "fp32" if formats.main_weight_dtype is None else formats.main_weight_dtype.value
        yield Argument("--main-params-dtype", main, "of its own copy of the weights")
        yield Argument("--exp-avg-dtype", moment, "the plan's moment_dtype")
        yield Argument("--exp-avg-sq-dtype", moment, "likewise")
