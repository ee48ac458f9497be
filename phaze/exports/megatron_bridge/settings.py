"""Keywords of the records of a ``ConfigContainer``, each with the reason for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from GraphExtractor.graph import Recompute
from phaze.exports.launch import Launch
from phaze.exports.megatron_lm.arguments import (
    BACKENDS,
    CONTEXT_EXCHANGES,
    SHARDING,
    shape_of,
    vocabulary_multiple,
)
from phaze.exports.megatron_lm.formats import narrow_state
from phaze.exports.megatron_lm.layout import is_even, layout_string
from phaze.exports.megatron_lm.limits import pipeline_inner
from phaze.exports.shape import Positions
from phaze_common.choices import Precision, StateDtype

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
class Setting:
    """A keyword of a record, its value as Python, and why."""

    key: str
    value: str
    why: str


@dataclass(frozen=True)
class Record:
    """A field of the container, the class of what it holds, and its keywords."""

    field: str
    kind: str
    settings: tuple[Setting, ...]


def model_settings(launch: Launch) -> Iterator[Setting]:
    """Keywords of the model's provider."""
    shape, degrees = shape_of(launch), launch.degrees
    yield Setting("num_layers", repr(shape.layers), "blocks, embedding and head not counted")
    yield Setting("hidden_size", repr(shape.hidden), "width of the residual stream")
    yield Setting("ffn_hidden_size", repr(shape.ffn), "inner width of the MLP")
    yield Setting("num_attention_heads", repr(shape.heads), "of queries")
    yield Setting("num_query_groups", repr(shape.kv_heads), "heads of keys and values")
    yield Setting(
        "kv_channels", repr(shape.head_width), "width of a head, which need not be hidden / heads"
    )
    yield Setting("seq_length", repr(launch.plan.sequence_length), "tokens of a sample")
    rotary = shape.positions is Positions.ROTARY
    yield Setting(
        "position_embedding_type",
        repr("rope" if rotary else "learned_absolute"),
        "how positions are known",
    )
    if rotary:
        yield Setting("apply_rope_fusion", "True", "rotations are one kernel")
    yield Setting(
        "normalization", repr("RMSNorm" if shape.gated else "LayerNorm"), "as the model has it"
    )
    yield Setting("gated_linear_unit", repr(shape.gated), "SwiGLU, or an MLP without a gate")
    yield Setting(
        "activation_func", f"torch.nn.functional.{shape.activation}", "as the model has it"
    )
    yield Setting("bias_activation_fusion", "True", "activation is one kernel with gate or bias")
    yield Setting("bias_dropout_fusion", "True", "and so are dropout and residual")
    yield Setting("add_bias_linear", repr(shape.biases), "biases of its linear layers")
    yield Setting("qk_layernorm", repr(shape.query_norm), "whether queries and keys are normalised")
    yield Setting(
        "share_embeddings_and_output_weights",
        repr(shape.tied),
        "whether the head has the embedding's weights",
    )
    dropout = repr(0.1 if shape.dropout else 0.0)
    yield Setting(
        "hidden_dropout", dropout, "Megatron's default is 0.1, which costs time and memory"
    )
    yield Setting("attention_dropout", dropout, "as of hidden")
    multiple = vocabulary_multiple(launch)
    yield Setting(
        "make_vocab_size_divisible_by",
        repr(multiple),
        f"pads {shape.vocabulary} tokens as the plan was priced",
    )
    yield from _experts(launch)
    yield Setting("tensor_model_parallel_size", repr(degrees.tp), "the plan's tp")
    yield Setting("pipeline_model_parallel_size", repr(degrees.pp), "the plan's pp")
    yield Setting("pipeline_dtype", f"torch.{FORMATS[launch.plan.precision]}", "what stages send")
    yield Setting(
        "context_parallel_size",
        repr(degrees.cp),
        f"the plan's cp; dp {degrees.dp} is what of the devices is left",
    )
    if degrees.cp > 1:
        yield Setting(
            "cp_comm_type",
            repr(CONTEXT_EXCHANGES[degrees.exchange]),
            f"exchange {degrees.exchange.value}",
        )
    if degrees.interleave > 1:
        yield Setting(
            "virtual_pipeline_model_parallel_size", repr(degrees.interleave), "chunks of a stage"
        )
    if not is_even(launch):
        yield Setting(
            "pipeline_model_parallel_layout",
            repr(layout_string(launch)),
            "its stages: E embedding, t block, L head",
        )
    split = degrees.sequence_parallel and degrees.tp > 1
    yield Setting(
        "sequence_parallel", repr(split), "whether norms and dropout work on a part of the tokens"
    )
    if degrees.recompute is Recompute.FULL:
        yield Setting("recompute_granularity", repr("full"), "the plan recomputes whole blocks")
        yield Setting("recompute_method", repr("uniform"), "all blocks, of every stage")
        yield Setting(
            "recompute_num_layers", "1", "block by block: the least memory while recomputing"
        )
    elif degrees.recompute is Recompute.SELECTIVE:
        yield Setting("recompute_granularity", repr("selective"), "the plan recomputes")
        yield Setting("recompute_modules", repr(["core_attn"]), "core attention alone")
    backend = BACKENDS[launch.plan.attention]
    yield Setting(
        "attention_backend",
        f"AttnBackend.{backend}",
        f"the plan's attention {launch.plan.attention.value}",
    )
    if degrees.zero_stage > 1:
        yield Setting(
            "gradient_accumulation_fusion", "False", "Megatron-FSDP adds up gradients itself"
        )


def _experts(launch: Launch) -> Iterator[Setting]:
    experts, degrees = shape_of(launch).experts, launch.degrees
    if experts is None:
        return
    yield Setting("num_moe_experts", repr(experts.count), "experts of a block")
    yield Setting("moe_router_topk", repr(experts.chosen), "that a token meets")
    yield Setting("moe_ffn_hidden_size", repr(experts.ffn), "inner width of one expert")
    if experts.shared_width:
        yield Setting(
            "moe_shared_expert_intermediate_size", repr(experts.shared_width), "of shared experts"
        )
    if experts.chosen == 1:
        yield Setting(
            "moe_router_pre_softmax", "True", "a softmax over one chosen expert has no gradient"
        )
    yield Setting(
        "moe_token_dispatcher_type",
        repr("alltoall"),
        "priced so: tokens go to their experts' devices and back",
    )
    grouped = launch.plan.precision in (Precision.BF16, Precision.FP8)
    yield Setting(
        "moe_grouped_gemm",
        repr(grouped),
        "priced so: one product for all experts of a device, where there is one",
    )
    yield Setting(
        "expert_model_parallel_size", repr(degrees.ep), "the plan's ep, of its dp x cp devices"
    )
    yield Setting(
        "expert_tensor_parallel_size", repr(degrees.tp), "experts are divided by tp as the rest is"
    )


def records(launch: Launch) -> Iterator[Record]:
    """The other records of the container."""
    yield Record("train", "TrainingConfig", tuple(_training(launch)))
    yield Record("optimizer", "OptimizerConfig", tuple(_optimizer(launch)))
    yield Record(
        "scheduler",
        "SchedulerConfig",
        (Setting("lr_decay_style", repr("constant"), "no recommendation"),),
    )
    yield Record("ddp", "DistributedDataParallelConfig", tuple(_replicas(launch)))
    yield Record("dist", "DistributedInitConfig", tuple(_ranks(launch)))
    yield Record("comm_overlap", "CommOverlapConfig", tuple(_overlap(launch)))
    yield Record("dataset", "GPTDatasetConfig", tuple(_data(launch)))
    vocabulary = shape_of(launch).vocabulary
    words = Setting(
        "vocab_size",
        repr(vocabulary - 1),
        f"and the end of a document: {vocabulary} tokens before padding",
    )
    yield Record(
        "tokenizer",
        "TokenizerConfig",
        (Setting("tokenizer_type", repr("NullTokenizer"), "no files needed"), words),
    )
    sharded = launch.degrees.zero_stage > 1
    written = Setting(
        "ckpt_format",
        repr("fsdp_dtensor" if sharded else "torch_dist"),
        "nothing is written until save is set",
    )
    yield Record("checkpoint", "CheckpointConfig", (written,))
    yield Record(
        "logger", "LoggerConfig", (Setting("log_interval", "1", "every iteration, with its time"),)
    )
    yield Record("rng", "RNGConfig", (Setting("seed", "1234", "any"),))


def _training(launch: Launch) -> Iterator[Setting]:
    degrees = launch.degrees
    yield Setting("micro_batch_size", repr(degrees.micro_batch_size), "samples of a pass")
    yield Setting(
        "global_batch_size",
        repr(degrees.global_batch_size),
        f"{degrees.micro_batches} micro-batches a replica",
    )
    yield Setting("train_iters", "50", "enough to see the time of an iteration")
    yield Setting("eval_iters", "0", "iterations alone are timed")


def _optimizer(launch: Launch) -> Iterator[Setting]:
    name = launch.plan.optimizer
    yield Setting("optimizer", repr("adam" if name == "adam" else "sgd"), "the plan's optimizer")
    if name != "adam":
        yield Setting(
            "sgd_momentum",
            repr(0.9 if name == "sgd_momentum" else 0.0),
            "with momentum, or with none to keep",
        )
    yield Setting("lr", "1e-4", "no recommendation")
    yield Setting(
        "use_distributed_optimizer", repr(launch.degrees.zero_stage > 0), "as of replicas"
    )
    if narrow_state(launch):
        formats = launch.degrees.state_formats
        yield Setting(
            "use_precision_aware_optimizer",
            "True",
            "the plan's optimizer keeps state in fewer bits than fp32",
        )
        gradient = "bf16" if formats.gradient_dtype is StateDtype.BF16 else "fp32"
        yield Setting(
            "main_grads_dtype",
            TORCH_DTYPES[gradient],
            "that the optimizer reads, as they are added up",
        )
        main = "fp32" if formats.main_weight_dtype is None else formats.main_weight_dtype.value
        yield Setting("main_params_dtype", TORCH_DTYPES[main], "of its own copy of the weights")
        moment = TORCH_DTYPES[
            "fp32" if formats.moment_dtype is None else formats.moment_dtype.value
        ]
        yield Setting("exp_avg_dtype", moment, "the plan's moment_dtype")
        yield Setting("exp_avg_sq_dtype", moment, "likewise")


def _replicas(launch: Launch) -> Iterator[Setting]:
    stage = launch.degrees.zero_stage
    yield Setting(
        "use_distributed_optimizer",
        repr(stage > 0),
        f"ZeRO {stage}: whether replicas divide the optimizer state",
    )
    yield Setting(
        "overlap_grad_reduce",
        repr(launch.overlap_gradients),
        "priced so: gradients reduced behind the backward pass",
    )
    gathered = launch.overlap_gradients and stage > 0
    yield Setting(
        "overlap_param_gather",
        repr(gathered),
        "priced so: weights gathered behind the forward pass",
    )
    if stage > 1:
        yield Setting(
            "use_megatron_fsdp",
            "True",
            f"ZeRO {stage}: replicas divide more than the optimizer state",
        )
        yield Setting(
            "data_parallel_sharding_strategy", repr(SHARDING[stage]), "what that stage divides"
        )


def _ranks(launch: Launch) -> Iterator[Setting]:
    yield Setting(
        "use_tp_pp_dp_mapping",
        repr(pipeline_inner(launch)),
        "whether stages are nearer to each other than replicas",
    )
    if launch.degrees.zero_stage > 1:
        yield Setting("use_megatron_fsdp", "True", "as of replicas")


def _overlap(launch: Launch) -> Iterator[Setting]:
    degrees = launch.degrees
    tensor = launch.overlap_tensor and degrees.sequence_parallel and degrees.tp > 1
    yield Setting(
        "tp_comm_overlap",
        repr(tensor),
        "priced so: whether collectives run piece by piece beside products",
    )
    yield Setting(
        "overlap_grad_reduce",
        repr(launch.overlap_gradients),
        "said again, or its own default would win",
    )
    yield Setting(
        "overlap_param_gather",
        repr(launch.overlap_gradients and degrees.zero_stage > 0),
        "likewise",
    )


def _data(launch: Launch) -> Iterator[Setting]:
    yield Setting("seq_length", repr(launch.plan.sequence_length), "as of the model")
    yield Setting("random_seed", "1234", "any")
    yield Setting("blend", "None", "made-up tokens; else (['path'], None)")
    yield Setting("split", repr("9999,8,2"), "all but all to train on")
    yield Setting("reset_position_ids", "False", "documents are not told apart")
    yield Setting("reset_attention_mask", "False", "likewise")
    yield Setting("eod_mask_loss", "False", "likewise")
    yield Setting("dataloader_type", repr("single"), "one pass in order")
