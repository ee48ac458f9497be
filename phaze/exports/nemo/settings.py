"""Keywords of the records of a ``ConfigContainer``, each with the reason for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from GraphExtractor.graph import Recompute
from phaze.exports.launch import Launch
from phaze.exports.megatron_lm.arguments import (
    CONTEXT_EXCHANGES,
    SHARDING,
    attention_backend,
    attention_reason,
    shape_of,
    vocabulary_multiple,
)
from phaze.exports.megatron_lm.cuda_graphs import SCOPES, implementation
from phaze.exports.megatron_lm.dispatch import SHARED, dispatch_options, overlap_switches
from phaze.exports.megatron_lm.formats import state_options
from phaze.exports.megatron_lm.layout import is_even, layout_string
from phaze.exports.megatron_lm.limits import pipeline_inner
from phaze.exports.options import Option, options
from phaze.exports.shape import Positions
from phaze_common.choices import CudaGraphs, Precision
from phaze_common.recompute_modules import RecomputedModules

FORMATS = {
    Precision.BF16: "bfloat16",
    Precision.FP16: "float16",
    Precision.FP8: "bfloat16",
    Precision.FP32: "float32",
}
TORCH_DTYPES = {
    "fp32": "torch.float32",
    "bf16": "torch.bfloat16",
    "fp16": "torch.float16",
    "fp8": "torch.uint8",
}


@dataclass(frozen=True)
class Record:
    """A field of the container, the class of what it holds, and its keywords."""

    field: str
    kind: str
    settings: tuple[Option, ...]


def model_settings(launch: Launch) -> Iterator[Option]:
    """Keywords of the model's provider."""
    shape, degrees, plan = shape_of(launch), launch.degrees, launch.plan
    rotary = shape.positions is Positions.ROTARY
    yield from options(f"""
        num_layers {shape.layers} # blocks, embedding and head not counted
        hidden_size {shape.hidden} # width of the residual stream
        ffn_hidden_size {shape.ffn} # inner width of the MLP
        num_attention_heads {shape.heads} # of queries
        num_query_groups {shape.kv_heads} # heads of keys and values
        kv_channels {shape.head_width} # width of a head, which need not be hidden / heads
        seq_length {plan.sequence_length} # tokens of a sample
        position_embedding_type {"rope" if rotary else "learned_absolute"!r} # how positions are known
    """)
    if rotary:
        yield Option("apply_rope_fusion", "True", "rotations are one kernel")
    dropout = 0.1 if shape.dropout else 0.0
    multiple = vocabulary_multiple(launch)
    yield from options(f"""
        normalization {"RMSNorm" if shape.gated else "LayerNorm"!r} # as the model has it
        gated_linear_unit {shape.gated} # SwiGLU, or an MLP without a gate
        activation_func torch.nn.functional.{shape.activation} # as the model has it
        bias_activation_fusion True # activation is one kernel with gate or bias
        bias_dropout_fusion True # and so are dropout and residual
        add_bias_linear {shape.biases} # biases of its linear layers
        qk_layernorm {shape.query_norm} # whether queries and keys are normalised
        share_embeddings_and_output_weights {shape.tied} # whether the head has the embedding's weights
        hidden_dropout {dropout} # Megatron's default is 0.1, which costs time and memory
        attention_dropout {dropout} # as of hidden
        make_vocab_size_divisible_by {multiple} # pads {shape.vocabulary} tokens as the plan was priced
    """)
    yield from _experts(launch)
    yield from options(f"""
        tensor_model_parallel_size {degrees.tp} # the plan's tp
        pipeline_model_parallel_size {degrees.pp} # the plan's pp
        pipeline_dtype torch.{FORMATS[plan.precision.kind]} # what stages send
        context_parallel_size {degrees.cp} # the plan's cp; dp {degrees.dp} is what of the devices is left
    """)
    if degrees.cp > 1:
        exchange = repr(CONTEXT_EXCHANGES[degrees.exchange])
        yield Option("cp_comm_type", exchange, f"exchange {degrees.exchange.value}")
    if degrees.interleave > 1:
        name = "virtual_pipeline_model_parallel_size"
        yield Option(name, degrees.interleave, "chunks of a stage")
    if not is_even(launch):
        layout, why = repr(layout_string(launch)), "its stages: E embedding, t block, L head"
        yield Option("pipeline_model_parallel_layout", layout, why)
    split = degrees.sequence_parallel and degrees.tp > 1
    why = "whether norms and dropout work on a part of the tokens"
    yield Option("sequence_parallel", split, why)
    if degrees.recompute is Recompute.FULL:
        yield from options("""
            recompute_granularity 'full' # the plan recomputes whole blocks
            recompute_method 'uniform' # all blocks, of every stage
            recompute_num_layers 1 # block by block: the least memory while recomputing
        """)
    elif degrees.recompute is Recompute.SELECTIVE:
        yield Option("recompute_granularity", "'selective'", "the plan recomputes")
        yield Option("recompute_modules", "['core_attn']", "core attention alone")
    elif isinstance(degrees.recompute, RecomputedModules):
        yield Option("recompute_granularity", "'selective'", "the plan recomputes")
        names = [each.value for each in degrees.recompute.names]
        yield Option("recompute_modules", repr(names), "modules of layers")
    backend = f"AttnBackend.{attention_backend(launch)}"
    yield Option("attention_backend", backend, attention_reason(launch))
    graphs = degrees.cuda_graphs
    if graphs is not CudaGraphs.NONE:
        yield from options(f"""
            cuda_graph_impl {implementation(graphs)!r} # the host does not issue what graphs replay
            cuda_graph_scope {list(SCOPES[graphs])} # the plan's CUDA graphs: {graphs.value}
            use_te_rng_tracker True # graphs need random numbers that they can replay
        """)
    if degrees.zero_stage > 1:
        why = "Megatron-FSDP adds up gradients itself"
        yield Option("gradient_accumulation_fusion", "False", why)


def _experts(launch: Launch) -> Iterator[Option]:
    experts, degrees = shape_of(launch).experts, launch.degrees
    if experts is None:
        return
    yield from options(f"""
        num_moe_experts {experts.count} # experts of a block
        moe_router_topk {experts.chosen} # that a token meets
        moe_ffn_hidden_size {experts.ffn} # inner width of one expert
    """)
    if experts.shared_width:
        name = "moe_shared_expert_intermediate_size"
        yield Option(name, experts.shared_width, "of shared experts")
    if experts.chosen == 1:
        why = "a softmax over one chosen expert has no gradient"
        yield Option("moe_router_pre_softmax", "True", why)
    grouped = launch.plan.precision.kind in (Precision.BF16, Precision.FP8)
    one = "one product for all experts of a device, where there is one"
    for each in dispatch_options(launch, quote="'"):
        yield replace(each, path=each.path.replace("-", "_"))
    if SHARED in overlap_switches(launch):
        why = "priced so: beside the exchange of tokens"
        yield Option("moe_shared_expert_overlap", "True", why)
    yield from options(f"""
        moe_grouped_gemm {grouped} # priced so: {one}
        expert_model_parallel_size {degrees.ep} # the plan's ep, of the devices that could share its experts
        expert_tensor_parallel_size {degrees.expert_tp} # the plan's etp: devices that divide each expert
    """)


def records(launch: Launch) -> Iterator[Record]:
    """The other records of the container."""
    degrees, stage = launch.degrees, launch.degrees.zero_stage
    tensor = launch.overlap_tensor and degrees.sequence_parallel and degrees.tp > 1
    gathered = launch.overlap_gradients and stage > 0
    vocabulary = shape_of(launch).vocabulary

    def record(field: str, kind: str, text: str, *others: Option) -> Record:
        return Record(field, kind, (*options(text), *others))

    yield record("train", "TrainingConfig", f"""
        micro_batch_size {degrees.micro_batch_size} # samples of a pass
        global_batch_size {degrees.global_batch_size} # {degrees.micro_batches} micro-batches a replica
        train_iters 50 # enough to see the time of an iteration
        eval_iters 0 # iterations alone are timed
    """)  # fmt: skip
    yield Record("optimizer", "OptimizerConfig", tuple(_optimizer(launch)))
    yield record("scheduler", "SchedulerConfig", "lr_decay_style 'constant' # no recommendation")
    sharded: tuple[Option, ...] = ()
    if stage > 1:
        sharded = tuple(options(f"""
            use_megatron_fsdp True # ZeRO {stage}: replicas divide more than the optimizer state
            data_parallel_sharding_strategy {SHARDING[stage]!r} # what that stage divides
        """))  # fmt: skip
    if degrees.shard_groups > 1:
        name, groups = "num_distributed_optimizer_instances", degrees.shard_groups
        sharded += (Option(name, groups, "groups of replicas that each hold all shards"),)
    yield record("ddp", "DistributedDataParallelConfig", f"""
        use_distributed_optimizer {stage > 0} # ZeRO {stage}: whether replicas divide the optimizer state
        overlap_grad_reduce {launch.overlap_gradients} # priced so: gradients reduced behind the backward pass
        overlap_param_gather {gathered} # priced so: weights gathered behind the forward pass
    """, *sharded)  # fmt: skip
    fsdp = (Option("use_megatron_fsdp", "True", "as of replicas"),) if stage > 1 else ()
    why = "priced so: beside the exchange of tokens with experts"
    exchange = tuple(
        Option(name.replace("-", "_"), "True", why)
        for name in overlap_switches(launch)
        if name != SHARED
    )
    yield record("dist", "DistributedInitConfig", f"""
        use_tp_pp_dp_mapping {pipeline_inner(launch)} # whether stages are nearer to each other than replicas
    """, *fsdp)  # fmt: skip
    yield record("comm_overlap", "CommOverlapConfig", f"""
        tp_comm_overlap {tensor} # priced so: whether collectives run piece by piece beside products
        overlap_grad_reduce {launch.overlap_gradients} # said again, or its own default would win
        overlap_param_gather {gathered} # likewise
    """, *exchange)  # fmt: skip
    yield record("dataset", "GPTDatasetConfig", f"""
        seq_length {launch.plan.sequence_length} # as of the model
        random_seed 1234 # any
        blend None # made-up tokens; else (['path'], None)
        split '9999,8,2' # all but all to train on
        reset_position_ids False # documents are not told apart
        reset_attention_mask False # likewise
        eod_mask_loss False # likewise
        dataloader_type 'single' # one pass in order
    """)  # fmt: skip
    yield record("tokenizer", "TokenizerConfig", f"""
        tokenizer_type 'NullTokenizer' # no files needed
        vocab_size {vocabulary - 1} # and the end of a document: {vocabulary} tokens before padding
    """)  # fmt: skip
    written = "fsdp_dtensor" if stage > 1 else "torch_dist"
    yield record(
        "checkpoint",
        "CheckpointConfig",
        f"ckpt_format {written!r} # nothing is written until save is set",
    )
    yield record("logger", "LoggerConfig", "log_interval 1 # every iteration, with its time")
    replayed = launch.degrees.cuda_graphs is not CudaGraphs.NONE
    tracker = (Option("te_rng_tracker", "True", "as of the model"),) if replayed else ()
    yield record("rng", "RNGConfig", "seed 1234 # any", *tracker)


def _optimizer(launch: Launch) -> Iterator[Option]:
    name = launch.plan.optimizer
    kind = "sgd" if name.startswith("sgd") else name
    yield Option("optimizer", repr(kind), "the plan's optimizer")
    if kind == "sgd":
        momentum = 0.9 if name == "sgd_momentum" else 0.0
        yield Option("sgd_momentum", momentum, "with momentum, or with none to keep")
    yield Option("lr", "1e-4", "no recommendation")
    usual = "use_distributed_optimizer"
    divided = "use_layer_wise_distributed_optimizer" if name == "muon" else usual
    yield Option(divided, launch.degrees.zero_stage > 0, "as of replicas")
    yield from state_options(launch, on="True", dtypes=TORCH_DTYPES)
