"""The text of a plan for torchtitan 0.3.0: the Python module that is its configuration, and the
script that starts it.

Sizes of the model are constants at the top of the module, so that ``torchtitan.reader`` finds them
again.
"""

from __future__ import annotations

from phaze.exports.launch import ExportedFile, Launch
from phaze.exports.shape import DecoderShape
from phaze.exports.start_scripts import on_each_node, run_script, torchrun
from phaze.exports.words import commented
from phaze_common.choices import Dispatcher, PipelineSchedule, Precision, Recompute
from phaze_common.recompute_modules import BY_OPERATOR

SCHEDULES = {  # names of torch.distributed.pipelining.schedules.get_schedule_class
    PipelineSchedule.GPIPE: "GPipe",
    PipelineSchedule.ONE_F_ONE_B: "1F1B",
    PipelineSchedule.INTERLEAVED: "Interleaved1F1B",
}
# torchtitan.components.quantization, by what its converters are called
CONVERTERS = {Precision.FP8: "Float8", Precision.MXFP8: "MXFP8"}
BACKENDS = {  # expert_parallel_comm_backend
    Dispatcher.ALLTOALL: "standard",
    Dispatcher.DEEPEP: "deepep",
    Dispatcher.HYBRIDEP: "hybridep",
}
EXPERT_BACKEND = "EXPERT_BACKEND"  # the constant of a file that names one
# of published models
THETA = {"llama": 500_000.0, "qwen3": 1e6, "qwen3_moe": 1e6, "mixtral": 1e6}
EPSILON = {"llama": 1e-5, "qwen3": 1e-6, "qwen3_moe": 1e-6, "mixtral": 1e-5}


def parts_of(launch: Launch) -> tuple[tuple[str, ...], ...]:
    """Names of the modules of every chunk, as torchtitan's decoders call them."""
    names = {launch.layers[0]: ("tok_embeddings",), launch.layers[-1]: ("norm", "lm_head")}
    names |= {layer: (f"layers.{index}",) for index, layer in enumerate(launch.layers[1:-1])}
    return tuple(
        tuple(name for layer in chunk.layers for name in names[layer])
        for chunk in launch.plan.stages
    )


def launcher(launch: Launch) -> ExportedFile:
    """``run.sh``: torchrun of ``torchtitan.train``."""
    devices = f"{launch.degrees.devices} x"
    plan = commented(f"{launch.plan.model} on {devices} {launch.device} ({launch.cluster})")
    return run_script(
        "# torchtitan imports the configuration as a module of this folder",
        'export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"',
        *on_each_node(launch),
        f"exec {torchrun(launch)} \\",
        '    -m torchtitan.train --module phaze_plan --config plan "$@"',
        comments=(f"# Trains {plan}.", "# For torchtitan 0.3.0."),
    )


def module(launch: Launch) -> str:
    """``phaze_plan.py``: the model of the plan's sizes, and ``plan()``, which returns
    ``Trainer.Config``."""
    shape = launch.shape
    assert shape is not None  # refused else
    parts = (_head(launch, shape), _norm_and_blocks(shape), _specification(launch, shape))
    return "\n\n\n".join((*parts, _plan(launch))) + "\n"


def _head(launch: Launch, shape: DecoderShape) -> str:
    degrees, experts = launch.degrees, shape.experts
    seconds = launch.iteration_s
    predicted = "" if seconds is None else f" Predicted: {seconds:.4g} s per iteration."
    predicted += f" {launch.routed}" if launch.routed else ""
    folder, model, rope, suffix = "qwen3", "Qwen3", "CosSinRoPE", "qwen3"
    if shape.family == "llama":
        folder, model, rope, suffix = "llama3", "Llama3", "ComplexRoPE", "llama"
    blocks, hook = "make_ffn_config, make_gqa_config", ""
    if experts:
        blocks = "make_gqa_config, make_moe_config, make_routed_experts_config, make_router_config"
        hook = ", register_moe_load_balancing_hook"
    imports = [
        "from functools import partial",
        "",
        "import torch.nn as nn",
        "from torchtitan.components.loss import CrossEntropyLoss",
        f"from torchtitan.components.optimizer import default_adamw{hook}",
        "from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig",
        "from torchtitan.distributed.pipeline_parallel import pipeline_llm",
        "from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader",
        f"from torchtitan.models.common import {rope}, Embedding, Linear, RMSNorm",
        f"from torchtitan.models.common.config_utils import get_attention_config, {blocks}",
        f"from torchtitan.models.{folder}.model import {model}Model, {model}TransformerBlock",
        f"from torchtitan.models.{folder}.parallelize import parallelize_{suffix}",
        "from torchtitan.protocols.model_spec import ModelSpec",
        "from torchtitan.trainer import Trainer",
    ]
    if shape.tied:
        imports.insert(10, "from torchtitan.models.common.param_init import skip_param_init")
    if degrees.recompute is not Recompute.NONE:
        policy = "FullAC" if degrees.recompute is Recompute.FULL else "SelectiveAC"
        imports.insert(6, f"from torchtitan.distributed.activation_checkpoint import {policy}")
    if degrees.precision in CONVERTERS:
        home, kind = "torchtitan.components.quantization", CONVERTERS[degrees.precision]
        grouped = f", {kind}GroupedExpertsConverter" if experts else ""
        imports.insert(5, f"from {home} import {kind}LinearConverter{grouped}")
    sizes = {
        "MODEL": repr(launch.plan.model),
        "LAYERS": shape.layers,
        "HIDDEN": shape.hidden,
        "HEADS": shape.heads,
        "KV_HEADS": shape.kv_heads,
        "HEAD_WIDTH": shape.head_width,
        "FFN": experts.ffn if experts else shape.ffn,
        "VOCABULARY": shape.vocabulary,
        "SEQUENCE": launch.plan.sequence_length,
    }
    if experts:
        backend = repr(BACKENDS.get(launch.dispatcher, "standard"))
        sizes |= {"EXPERTS": experts.count, "CHOSEN": experts.chosen, EXPERT_BACKEND: backend}
    how = "loaded with --module phaze_plan --config plan."
    lines = [
        f'"""A plan by phaze for torchtitan 0.3.0, {how}{predicted}"""',
        "",
        *imports,
        "",
        "# sizes of the model, as phaze knows it",
        *(f"{name} = {value}" for name, value in sizes.items()),
    ]
    return "\n".join(lines)


def _norm_and_blocks(shape: DecoderShape) -> str:
    like_llama, experts = shape.family == "llama", shape.experts
    block = "Llama3TransformerBlock" if like_llama else "Qwen3TransformerBlock"
    feed_forward = """\
        feed_forward=make_ffn_config(dim=HIDDEN, hidden_dim=FFN, w1_param_init=LINEAR, w2w3_param_init=OUTPUT),"""
    if experts:
        feed_forward = """\
        moe=make_moe_config(
            num_experts=EXPERTS,
            router=make_router_config(
                dim=HIDDEN, num_experts=EXPERTS, gate_param_init=LINEAR, top_k=CHOSEN, score_func="softmax", route_norm=True
            ),
            routed_experts=make_routed_experts_config(
                dim=HIDDEN,
                hidden_dim=FFN,
                num_experts=EXPERTS,
                top_k=CHOSEN,
                param_init={"w1_EFD": LINEAR["weight"], "w2_EDF": OUTPUT["weight"], "w3_EFD": LINEAR["weight"]},
                comm_backend=EXPERT_BACKEND,  # priced so: how tokens get to their experts
            ),
        ),"""
    return f"""\
LINEAR = {{"weight": partial(nn.init.trunc_normal_, std=0.02), "bias": nn.init.zeros_}}
OUTPUT = {{"weight": partial(nn.init.trunc_normal_, std=0.02 / (2 * LAYERS) ** 0.5), "bias": nn.init.zeros_}}  # onto the residual


def _norm(width: int) -> RMSNorm.Config:
    return RMSNorm.Config(normalized_shape=width, eps={EPSILON[shape.family]!r}, param_init={{"weight": nn.init.ones_}})


def _block() -> {block}.Config:
    return {block}.Config(
        attention_norm=_norm(HIDDEN),
        ffn_norm=_norm(HIDDEN),
        attention=make_gqa_config(
            dim=HIDDEN,
            n_heads=HEADS,
            n_kv_heads=KV_HEADS,
            head_dim=HEAD_WIDTH,
            wqkv_param_init=LINEAR,
            wo_param_init=OUTPUT,
            inner_attention=get_attention_config("flex"),  # fused, as predicted; the only one with context parallelism
            fuse_qkv=True,
            rope={"ComplexRoPE" if like_llama else "CosSinRoPE"}.Config(\
dim=HEAD_WIDTH, max_seq_len=SEQUENCE, theta={THETA[shape.family]!r}),
            qk_norm={"_norm(HEAD_WIDTH)" if shape.query_norm else "None"},
        ),
{feed_forward}
    )"""


def _specification(launch: Launch, shape: DecoderShape) -> str:
    like_llama, experts = shape.family == "llama", shape.experts
    model = "Llama3Model" if like_llama else "Qwen3Model"
    weight = "skip_param_init" if shape.tied else "partial(nn.init.normal_, std=0.02)"
    float8 = ""
    if launch.degrees.precision in CONVERTERS:
        kind = CONVERTERS[launch.degrees.precision]
        # the head and the router stay in bf16, as predicted
        chosen = 'filter_fqns=["lm_head", "router.gate"]'
        if launch.degrees.precision is Precision.MXFP8:
            chosen = 'fqns=["attention", "feed_forward", "shared_experts"]'
        float8 = f"""\
    # products of blocks in {kind.lower()}; the head and routers stay in bfloat16, as predicted
    linear = {kind}LinearConverter.Config({chosen}, model_compile_enabled=True)
    model = linear.build().convert(model)
"""
        if experts:
            float8 += f"""\
    model = {kind}GroupedExpertsConverter.Config(model_compile_enabled=True).build().convert(model)
"""
    hook = "register_moe_load_balancing_hook" if experts else "None"
    return f"""\
def _model() -> ModelSpec:
    model = {model}.Config(
        dim=HIDDEN,
        vocab_size=VOCABULARY,
        enable_weight_tying={shape.tied},
        tok_embeddings=Embedding.Config(
            num_embeddings=VOCABULARY, embedding_dim=HIDDEN, param_init={{"weight": {weight}}}
        ),
        norm=_norm(HIDDEN),
        lm_head=Linear.Config(in_features=HIDDEN, out_features=VOCABULARY, param_init=LINEAR),
        layers=[_block() for _ in range(LAYERS)],
    )
{float8}\
    return ModelSpec(
        name="{"llama3" if like_llama else "qwen3"}",
        flavor=MODEL,
        model=model,
        parallelize_fn=parallelize_{"llama" if like_llama else "qwen3"},
        pipelining_fn=pipeline_llm,
        post_optimizer_build_fn={hook},
        state_dict_adapter=None,  # trained from the start; give one to load weights of Hugging Face
    )"""


def _plan(launch: Launch) -> str:
    degrees = launch.degrees
    fp8 = degrees.precision.is_reduced
    # without sequence parallelism there are only all-reduces, which neither async TP nor phaze's
    # prediction overlaps
    overlapped = launch.overlap_tensor and degrees.tp > 1 and degrees.sequence_parallel
    why = "compiled for async TP" if overlapped else "blocks stay as they are written"
    why = "float8's casts are fused only when compiled" if fp8 else why
    checkpoint = "FullAC.Config(),  # each block is computed again in the backward pass"
    if degrees.recompute == BY_OPERATOR:
        checkpoint = "SelectiveAC.Config(),  # all but attention and every second product, again"
    if degrees.recompute is Recompute.NONE:
        checkpoint = "None,  # nothing is computed twice"
    return f'''\
def plan() -> Trainer.Config:
    """The plan of {degrees.devices} devices."""
    return Trainer.Config(
        model_spec=_model(),
        hf_assets_path="./assets",  # folder of a tokenizer: yours to give
        loss=CrossEntropyLoss.Config(global_vocab_size=VOCABULARY),
        optimizer=default_adamw(lr=3e-4),  # Adam's two moments, as predicted; the rate is yours to give
        dataloader=HuggingFaceTextDataLoader.Config(dataset="c4"),  # yours to give
        activation_checkpoint={checkpoint}
        # {why}; async TP overlaps collectives with products where the plan does
        compile=CompileConfig(enable={fp8 or overlapped}, enable_async_tensor_parallel={overlapped}),
{_training(launch)}
{_parallelism(launch)}
    )'''


def _training(launch: Launch) -> str:
    degrees = launch.degrees
    batches, local = degrees.micro_batches, degrees.micro_batch_size
    how = f"a micro-batch; gradients of {batches} are accumulated"
    if degrees.pp > 1:
        local = degrees.global_batch_size // degrees.dp
        how = f"all {batches} micro-batches of a replica go through the pipeline in one step"
    width = "float32" if degrees.precision is Precision.FP32 else "bfloat16"
    host = "weights, gradients and optimizer state stay on devices"
    host = "the step then runs on the host" if degrees.offload else host
    return f"""\
        training=TrainingConfig(
            seq_len=SEQUENCE,
            local_batch_size={local},  # {how}
            global_batch_size={degrees.global_batch_size},
            dtype="float32",  # master weights, moments and sharded parameters
            mixed_precision_param="{width}",  # what is gathered and multiplied
            mixed_precision_reduce="float32",  # the only format of reductions that it has
            enable_cpu_offload={bool(degrees.offload)},  # {host}
            disable_cuda_graphs=True,  # they exist neither with pipelines nor with all-to-all of experts, and were not predicted
        ),"""


def _parallelism(launch: Launch) -> str:
    degrees = launch.degrees
    shards, groups = degrees.sharding > 0, degrees.shard_groups if degrees.sharding else degrees.dp
    always = degrees.zero_stage == 3 and degrees.pp == 1
    if degrees.dp * degrees.cp == 1:
        reshard = "nothing is sharded"
    elif not shards:
        reshard = "ZeRO 0: replicas hold everything and sum gradients after each backward pass"
    elif degrees.pp > 1:
        whole = "weights and gradients stay whole until the last micro-batch"
        reshard = f"ZeRO 1: in a pipeline {whole}"
    elif always:
        reshard = "ZeRO 3: weights are gathered for each forward and each backward pass"
    else:
        whole = "from a forward to its backward pass, once per micro-batch"
        reshard = f"ZeRO 2: weights stay gathered {whole}"
    stages = ""
    if degrees.pp > 1:
        parts = ["[" + ", ".join(f'"{name}"' for name in part) + "]," for part in parts_of(launch)]
        chunks = f"{degrees.interleave} chunk{'s'[: degrees.interleave > 1]} per stage"
        listed = "\n".join(f"                {part}" for part in parts)
        stages = f"""\
            pipeline_parallel_schedule="{SCHEDULES[degrees.schedule]}",  # {chunks}
            pipeline_parallel_microbatch_size={degrees.micro_batch_size},
            # the plan's stages as they are; the command line cannot give this list
            module_fqns_per_model_part=[
{listed}
            ],
"""
    return f"""\
        parallelism=ParallelismConfig(
            data_parallel_replicate_degree={groups},
            data_parallel_shard_degree={degrees.dp // groups},
            # {reshard}
            fsdp_reshard_after_forward="{"always" if always else "never"}",
            tensor_parallel_degree={degrees.tp},
            # the only backend that torch 2.13 runs with all of these; the default, spmd_types, needs a later torch
            spmd_backend="partial_dtensor",
            enable_sequence_parallel={degrees.sequence_parallel},  # tokens around norms are cut over the tensor-parallel devices
            context_parallel_degree={degrees.cp},
            context_parallel_load_balancer="headtail",  # each device has an early and a late part of the causal mask
            expert_parallel_degree={degrees.ep},
            pipeline_parallel_degree={degrees.pp},
{stages}        ),"""
