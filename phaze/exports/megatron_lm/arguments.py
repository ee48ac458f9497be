"""The arguments of ``pretrain_gpt.py`` that mean a launch, each with the reason for it.

Names and meanings are those of Megatron-LM core_v0.16.1 (megatron/training/arguments.py,
megatron/core/transformer/transformer_config.py); what the plan leaves at Megatron's default is not
said.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from GraphExtractor.graph import Attention, Recompute
from GraphExtractor.models.registry import find_model
from phaze.exports.launch import Launch
from phaze.exports.megatron_lm.cuda_graphs import SCOPES, implementation
from phaze.exports.megatron_lm.dispatch import dispatch_options, overlap_switches
from phaze.exports.megatron_lm.formats import BARE, RECIPES, state_options
from phaze.exports.megatron_lm.layout import is_even, layout_string
from phaze.exports.megatron_lm.limits import pipeline_inner
from phaze.exports.options import Option, options
from phaze.exports.shape import DecoderShape, Positions
from phaze_common.choices import CudaGraphs, KeyExchange, Precision, StateDtype
from phaze_common.recompute_modules import RecomputedModules

# of Transformer Engine; Megatron's help calls the first allgather, which Transformer Engine does
# not know
CONTEXT_EXCHANGES = {
    KeyExchange.GATHER: "all_gather",
    KeyExchange.RING: "p2p",
    KeyExchange.ULYSSES: "a2a",
}
FUSED = {"cudnn": "fused"}  # --attention-backend by the kernel that was priced; else flash
# --data-parallel-sharding-strategy by stage of ZeRO
SHARDING = {2: "optim_grads", 3: "optim_grads_params"}


CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"


@dataclass(frozen=True)
class Group:
    """Arguments that belong together, under a variable of the script."""

    variable: str
    title: str
    arguments: tuple[Option, ...]


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


def device_connections(launch: Launch) -> tuple[str, str]:
    """The value that ``CONNECTIONS`` has to have, and why; an empty one where it must not be set,
    and no reason where it may be as it is."""
    if launch.degrees.zero_stage > 1:
        return "", "Megatron-FSDP refuses 1: its gathers run beside computation"
    if launch.degrees.tp > 1 or launch.degrees.cp > 1:
        return "1", "tp and cp need it before Blackwell: kernels keep their order"
    return "", ""


def attention_backend(launch: Launch) -> str:
    """Whose kernel of attention runs."""
    if launch.plan.attention is Attention.EAGER:
        return "unfused"
    return FUSED.get(launch.attention_kernel, "flash")


def attention_reason(launch: Launch) -> str:
    """Why it is that one."""
    kernel, eager = launch.attention_kernel, launch.plan.attention is Attention.EAGER
    priced = f", priced with the kernel {kernel}" if kernel and not eager else ""
    return f"the plan's attention {launch.plan.attention.value}{priced}"


def shape_of(launch: Launch) -> DecoderShape:
    """The model's shape, of a launch whose model has one."""
    assert launch.shape is not None
    return launch.shape


def vocabulary_multiple(launch: Launch) -> int:
    """What the vocabulary is padded to, per tensor-parallel device."""
    return find_model(launch.plan.model).vocabulary_multiple


def _model(launch: Launch) -> Iterator[Option]:
    shape, multiple = shape_of(launch), vocabulary_multiple(launch)
    # the model's own positions, or more where the plan's sequences are longer
    positions = max(find_model(launch.plan.model).sequence_length, launch.plan.sequence_length)
    ffn = "of one of gate and up projection" if shape.gated else "inner width of the MLP"
    yield from options(f"""
        num-layers {shape.layers} # blocks, embedding and head not counted
        hidden-size {shape.hidden} # width of the residual stream
        ffn-hidden-size {shape.ffn} # {ffn}
        num-attention-heads {shape.heads} # of queries
        kv-channels {shape.head_width} # width of a head, said because it need not be hidden / heads
    """)
    if shape.kv_heads != shape.heads:
        yield Option("group-query-attention", "", "several heads of queries share keys and values")
        yield Option("num-query-groups", shape.kv_heads, "heads of keys and values")
    why = "positions of the model, and at least those of a sequence"
    yield Option("max-position-embeddings", positions, why)
    if shape.positions is Positions.ROTARY:
        yield Option("position-embedding-type", "rope", "rotary positions")
    else:
        yield Option("position-embedding-type", "learned_absolute", "a learned table of positions")
    if shape.gated:
        yield Option("swiglu", "", "gated MLP with SiLU")
    norm = "RMSNorm" if shape.gated else "LayerNorm"
    yield Option("normalization", norm, "as the model has it")
    if shape.query_norm:
        yield Option("qk-layernorm", "", "queries and keys are normalised")
    if not shape.biases:
        yield Option("disable-bias-linear", "", "its linear layers have no biases")
    if not shape.tied:
        yield Option("untie-embeddings-and-output-weights", "", "the head has weights of its own")
    dropout = 0.1 if shape.dropout else 0.0
    yield from options(f"""
        hidden-dropout {dropout} # Megatron's default is 0.1, which costs time and memory
        attention-dropout {dropout} # as of hidden
        make-vocab-size-divisible-by {multiple} # pads {shape.vocabulary} tokens as the plan was priced
    """)
    if (experts := shape.experts) is None:
        return
    yield Option("num-experts", experts.count, "experts of a block")
    yield Option("moe-router-topk", experts.chosen, "that a token meets")
    yield Option("moe-ffn-hidden-size", experts.ffn, "inner width of one expert")
    if experts.shared_width:
        name, why = "moe-shared-expert-intermediate-size", "of the experts that all tokens meet"
        yield Option(name, experts.shared_width, why)
    if experts.chosen == 1:
        yield Option(
            "moe-router-pre-softmax", "", "a softmax over one chosen expert has no gradient"
        )
    yield from dispatch_options(launch)
    if launch.plan.precision.kind in (Precision.BF16, Precision.FP8):
        yield Option("moe-grouped-gemm", "", "priced so: one product for all experts of a device")


def _parallel(launch: Launch) -> Iterator[Option]:
    degrees = launch.degrees
    yield from options(f"""
        tensor-model-parallel-size {degrees.tp} # the plan's tp
        pipeline-model-parallel-size {degrees.pp} # the plan's pp
        context-parallel-size {degrees.cp} # the plan's cp; dp {degrees.dp} is what of the devices is left
    """)
    if degrees.cp > 1:
        why = f"the plan's exchange {degrees.exchange.value} of keys and values"
        yield Option("cp-comm-type", CONTEXT_EXCHANGES[degrees.exchange], why)
    if shape_of(launch).experts is not None or degrees.ep > 1:
        yield from options(f"""
            expert-model-parallel-size {degrees.ep} # the plan's ep, of the devices that could share its experts
            expert-tensor-parallel-size {degrees.expert_tp} # the plan's etp: devices that divide each expert
        """)
    if not is_even(launch):
        chunks = "the plan's chunks, which stages take in turn"
        why = "the plan's stages" if degrees.interleave == 1 else chunks
        layout = shlex.quote(layout_string(launch))
        why = f"{why}: E embedding, t block, L head"
        yield Option("pipeline-model-parallel-layout", layout, why)
    elif degrees.interleave > 1:
        name = "num-layers-per-virtual-pipeline-stage"
        why = f"{degrees.interleave} chunks a stage, all alike"
        yield Option(name, launch.blocks_of_chunks[0], why)
    if degrees.sequence_parallel and degrees.tp > 1:
        yield Option("sequence-parallel", "", "norms and dropout work on a part of the tokens")
    if pipeline_inner(launch):
        why = "the plan's group order: stages nearer to each other than replicas"
        yield Option("use-tp-pp-dp-mapping", "", why)


def _batch(launch: Launch) -> Iterator[Option]:
    degrees = launch.degrees
    return options(f"""
        seq-length {launch.plan.sequence_length} # tokens of a sample
        micro-batch-size {degrees.micro_batch_size} # samples of a pass
        global-batch-size {degrees.global_batch_size} # {degrees.micro_batches} micro-batches a replica
    """)


def _memory(launch: Launch) -> Iterator[Option]:
    degrees, stage = launch.degrees, launch.degrees.zero_stage
    if degrees.recompute is Recompute.FULL:
        yield from options("""
            recompute-granularity full # the plan recomputes whole blocks
            recompute-method uniform # all blocks, of every stage
            recompute-num-layers 1 # block by block: the least memory while recomputing
        """)
    elif degrees.recompute is Recompute.SELECTIVE:
        why = "the plan recomputes core attention alone"
        yield Option("recompute-granularity", "selective", why)
    elif isinstance(degrees.recompute, RecomputedModules):
        yield Option("recompute-granularity", "selective", "the plan recomputes modules of layers")
        names = " ".join(degrees.recompute.names)
        yield Option("recompute-modules", names, "which ones")
    if stage > 0:
        why = f"ZeRO {stage}: replicas divide the optimizer state"
        yield Option("use-distributed-optimizer", "", why)
    if launch.degrees.shard_groups > 1:
        groups, why = launch.degrees.shard_groups, "groups of replicas that each hold all shards"
        yield Option("num-distributed-optimizer-instances", groups, why)
    if stage > 1:
        divided = "gradients" if stage == 2 else "gradients and weights"
        yield from options(f"""
            use-megatron-fsdp # ZeRO {stage}: replicas divide {divided} too
            data-parallel-sharding-strategy {SHARDING[stage]} # what that stage divides
            ckpt-format fsdp_dtensor # the only one that Megatron-FSDP writes
            no-gradient-accumulation-fusion # Megatron-FSDP adds up gradients itself
        """)


def _overlap(launch: Launch) -> Iterator[Option]:
    degrees = launch.degrees
    if launch.overlap_gradients:
        why = "priced so: gradients are reduced behind the backward pass"
        yield Option("overlap-grad-reduce", "", why)
    if launch.overlap_gradients and degrees.zero_stage > 0:
        why = "priced so: weights are gathered behind the forward pass"
        yield Option("overlap-param-gather", "", why)
    if launch.overlap_tensor and degrees.sequence_parallel and degrees.tp > 1:
        why = "priced so: gathers and scatters run piece by piece beside products"
        yield Option("tp-comm-overlap", "", why)
    graphs = degrees.cuda_graphs
    if graphs is not CudaGraphs.NONE:
        why = f"the plan's CUDA graphs ({graphs.value}): the host does not issue these kernels"
        yield Option("cuda-graph-impl", implementation(graphs), why)
        yield Option("te-rng-tracker", "", "graphs need random numbers that they can replay")
    if SCOPES.get(graphs):
        why = "what they replay"
        yield Option("cuda-graph-scope", " ".join(SCOPES[graphs]), why)
    why = "priced so: beside the exchange of tokens with experts"
    yield from (Option(name, "", why) for name in overlap_switches(launch))


def _numbers(launch: Launch) -> Iterator[Option]:
    precision, optimizer = launch.plan.precision, launch.plan.optimizer
    if precision is Precision.FP16:
        yield Option("fp16", "", "weights and activations; the loss is scaled")
    elif precision.kind in (Precision.BF16, Precision.FP8):
        yield Option("bf16", "", "weights and activations")
    if precision in RECIPES:
        blocks = precision in (Precision.FP8_BLOCK, Precision.MXFP8)
        kinds = "e4m3" if blocks else "e4m3 forward, e5m2 backward"
        why = f"products with weights in fp8: {kinds}"
        yield Option("fp8-format", "e4m3" if blocks else "hybrid", why)
        if precision is not Precision.FP8:
            yield Option("fp8-recipe", RECIPES[precision], f"the plan's precision {precision}")
    if precision is Precision.NVFP4:
        yield Option("fp4-format", "e2m1", "products with weights in 4 bits")
        yield Option("fp4-recipe", "nvfp4", "the plan's precision nvfp4")
    yield from _state(launch)
    yield Option("attention-backend", attention_backend(launch), attention_reason(launch))
    kind = "sgd" if optimizer.startswith("sgd") else optimizer
    yield Option("optimizer", kind, "the plan's optimizer")
    if kind == "sgd":
        momentum = 0.9 if optimizer == "sgd_momentum" else 0.0
        yield Option("sgd-momentum", momentum, "with momentum, or with none to keep")


def _state(launch: Launch) -> Iterator[Option]:
    """Formats of gradients and optimizer state that are not its own; gradients are its own where
    nobody says."""
    formats, precision = launch.degrees.state_formats, launch.plan.precision
    if formats.gradient_dtype is StateDtype.BF16:
        why = "the plan adds up and reduces gradients in bf16; else it does in fp32"
        yield Option("grad-reduce-in-bf16", "", why)
    elif formats.gradient_dtype is StateDtype.FP32 and precision is Precision.FP16:
        why = "the plan adds up and reduces gradients in fp32"
        yield Option("accumulate-allreduce-grads-in-fp32", "", why)
    if formats.fp8_weights:
        yield Option("fp8-param-gather", "", "the plan holds and gathers weights in fp8")
    yield from state_options(launch, on="", dtypes=BARE)
