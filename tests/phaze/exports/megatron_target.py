"""Megatron-Core itself as the judge of launch scripts: imported only where it is installed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.num_microbatches_calculator import ConstantNumMicroBatchesCalculator
from megatron.core.optimizer import OptimizerConfig
from megatron.core.transformer import transformer_config
from megatron.core.transformer.enums import AttnBackend, LayerType
from torch.testing._internal.distributed.fake_pg import FakeStore

__all__ = [
    "LayerType",
    "blocks_built",
    "config_of",
    "config_of_record",
    "groups_of_first_rank",
    "refusal",
]

Arguments = dict[str, str | None]

# Transformer Engine is no more here than GPUs are; what asks for its version is told that it is new
# enough.
transformer_config.is_te_min_version = lambda *_: True

# As megatron/training/arguments.py, core_transformer_config_from_args, has them: names of the
# parser by those of the record.
RENAMED = {"num-experts": "num_moe_experts", "fp8-format": "fp8"}
SWITCHED_OFF = {
    "disable-bias-linear": "add_bias_linear",
    "no-gradient-accumulation-fusion": "gradient_accumulation_fusion",
}
OF_TRAINING = {  # what the parser keeps and its records do not have
    *(
        "max-position-embeddings",
        "position-embedding-type",
        "untie-embeddings-and-output-weights",
        "make-vocab-size-divisible-by",
    ),
    *(
        "group-query-attention",
        "swiglu",
        "num-layers-per-virtual-pipeline-stage",
        "use-tp-pp-dp-mapping",
        "seq-length",
    ),
    *(
        "micro-batch-size",
        "global-batch-size",
        "use-megatron-fsdp",
        "ckpt-format",
        "mock-data",
        "tokenizer-type",
        "vocab-size",
    ),
    *(
        "train-iters",
        "lr-decay-style",
        "eval-iters",
        "log-interval",
        "log-throughput",
        "data-parallel-sharding-strategy",
    ),
    *(
        "grad-reduce-in-bf16",
        "accumulate-allreduce-grads-in-fp32",
        "fp8-param-gather",
        "use-precision-aware-optimizer",
    ),
    *("main-grads-dtype", "main-params-dtype", "exp-avg-dtype", "exp-avg-sq-dtype"),
    *(
        "use-distributed-optimizer",
        "overlap-grad-reduce",
        "overlap-param-gather",
        "optimizer",
        "lr",
        "sgd-momentum",
    ),
}


def config_of(arguments: Arguments) -> Any:
    """The ``TransformerConfig`` that Megatron-LM makes of the arguments; raises where it refuses
    them."""
    known = {field.name for field in fields(transformer_config.TransformerConfig)}
    made: dict[str, Any] = {}
    for flag, value in arguments.items():
        if flag in OF_TRAINING:
            continue
        if flag in SWITCHED_OFF:
            made[SWITCHED_OFF[flag]] = False
            continue
        name = RENAMED.get(flag, flag.replace("-", "_"))
        if name not in known:
            raise LookupError(f"--{flag} is no argument of Megatron-LM that this test knows")
        made[name] = True if value is None else _parsed(value)
    if "swiglu" in arguments:
        made |= {"activation_func": torch.nn.functional.silu, "gated_linear_unit": True}
    made["bias_activation_fusion"] = "swiglu" in arguments or "disable-bias-linear" not in arguments
    made["attention_backend"] = AttnBackend[made["attention_backend"]]
    made["pipeline_dtype"] = (
        torch.bfloat16
        if "bf16" in arguments
        else torch.float16
        if "fp16" in arguments
        else torch.float32
    )
    made["params_dtype"] = made["pipeline_dtype"]
    if "num-layers-per-virtual-pipeline-stage" in arguments:
        stage = int(_text(arguments, "num-layers")) // int(
            _text(arguments, "pipeline-model-parallel-size")
        )
        made["virtual_pipeline_model_parallel_size"] = stage // int(
            _text(arguments, "num-layers-per-virtual-pipeline-stage")
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformer_config.TransformerConfig(**made)


def config_of_record(told: dict[str, Any]) -> Any:
    """The ``TransformerConfig`` under a model of Megatron Bridge; raises where it refuses what it
    is told."""
    known = {field.name for field in fields(transformer_config.TransformerConfig)}
    of_bridge = {
        "position_embedding_type",
        "share_embeddings_and_output_weights",
        "make_vocab_size_divisible_by",
        "seq_length",
    }
    assert told.keys() <= known | of_bridge
    made = {
        name: value for name, value in told.items() if name in known and name != "apply_rope_fusion"
    }  # of Transformer Engine
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformer_config.TransformerConfig(**made)


def refusal(arguments: Arguments, devices: int) -> str | None:
    """What Megatron-Core says against the arguments on so many devices; None where it says nothing.

    Its record of the model with the pipeline's layout, its split without one, its records of
    replicas and optimizer, its count of micro-batches, and its order of ranks.
    """
    steps: tuple[Callable[[], Any], ...] = (
        lambda: config_of(arguments),
        lambda: _even_split(arguments),
        lambda: _replicas(arguments),
        lambda: _micro_batches(arguments, devices),
        lambda: _ranks(arguments, devices),
    )
    for step in steps:
        try:
            step()
        except (AssertionError, ValueError, RuntimeError, NotImplementedError) as refused:
            return f"{type(refused).__name__}: {refused}"
    return None


def groups_of_first_rank(arguments: Arguments, devices: int) -> dict[str, list[int]]:
    """Ranks in groups with rank 0, as Megatron-Core makes its groups."""
    with _groups(arguments, devices, 0):
        ranks = torch.distributed.get_process_group_ranks
        return {
            "tp": ranks(parallel_state.get_tensor_model_parallel_group()),
            "cp": ranks(parallel_state.get_context_parallel_group()),
            "dp": ranks(parallel_state.get_data_parallel_group()),
            "pp": ranks(parallel_state.get_pipeline_model_parallel_group()),
            "ep": ranks(parallel_state.get_expert_model_parallel_group()),
        }


OF_GPUS = (
    "moe-grouped-gemm",
    "fp8-format",
    "tp-comm-overlap",
    "sequence-parallel",
    "attention-backend",
)  # kernels not here


def blocks_built(arguments: Arguments, devices: int, rank: int) -> list[int]:
    """Blocks in every chunk of the model that Megatron-Core builds on a rank, of weights that take
    no memory.

    What needs GPUs or Transformer Engine is left out: kernels, and sequence parallelism, which its
    plain norms do not have.
    """
    config = config_of(
        {flag: value for flag, value in arguments.items() if flag not in OF_GPUS}
        | {"attention-backend": "auto"}
    )
    config.use_cpu_initialization, config.perform_initialization = True, False
    config.gradient_accumulation_fusion = config.persist_layer_norm = config.bias_dropout_fusion = (
        False
    )
    layers = get_gpt_layer_local_spec(
        num_experts=config.num_moe_experts,
        qk_layernorm=config.qk_layernorm,
        normalization=config.normalization,
    )
    multiple = (
        int(_text(arguments, "make-vocab-size-divisible-by")) * config.tensor_model_parallel_size
    )
    vocabulary = -(-(int(_text(arguments, "vocab-size")) + 1) // multiple) * multiple
    virtual = config.virtual_pipeline_model_parallel_size
    built = []
    with _groups(arguments, devices, rank, virtual), torch.device("meta"):
        for chunk in range(virtual or 1):
            turn = chunk if virtual else None
            model = GPTModel(
                config,
                layers,
                vocabulary,
                int(_text(arguments, "max-position-embeddings")),
                pre_process=parallel_state.is_pipeline_first_stage(
                    ignore_virtual=False, vp_stage=turn
                ),
                post_process=parallel_state.is_pipeline_last_stage(
                    ignore_virtual=False, vp_stage=turn
                ),
                position_embedding_type=arguments["position-embedding-type"],
                share_embeddings_and_output_weights="untie-embeddings-and-output-weights"
                not in arguments,
                vp_stage=turn,
            )
            built.append(len(model.decoder.layers))
    return built


@contextmanager
def _groups(
    arguments: Arguments, devices: int, rank: int, virtual: int | None = None
) -> Iterator[None]:
    """Megatron-Core's groups as one rank sees them, on a backend without wires."""
    torch.distributed.init_process_group("fake", rank=rank, world_size=devices, store=FakeStore())
    try:
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=int(_text(arguments, "tensor-model-parallel-size")),
            pipeline_model_parallel_size=int(_text(arguments, "pipeline-model-parallel-size")),
            virtual_pipeline_model_parallel_size=virtual,
            context_parallel_size=int(_text(arguments, "context-parallel-size")),
            expert_model_parallel_size=int(arguments.get("expert-model-parallel-size") or 1),
            order="tp-cp-ep-pp-dp" if "use-tp-pp-dp-mapping" in arguments else "tp-cp-ep-dp-pp",
            create_gloo_process_groups=False,
        )
        yield
    finally:
        parallel_state.destroy_model_parallel()
        torch.distributed.destroy_process_group()


def _parsed(value: str) -> Any:
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _text(arguments: Arguments, flag: str) -> str:
    found = arguments[flag]
    assert found is not None
    return found


def _even_split(arguments: Arguments) -> None:
    """As arguments.py has it where no layout is given."""
    layers, pp = (
        int(_text(arguments, flag)) for flag in ("num-layers", "pipeline-model-parallel-size")
    )
    if "pipeline-model-parallel-layout" not in arguments:
        assert layers % pp == 0, (
            "Number of layers should be divisible by the pipeline-model-parallel size"
        )
        chunk = arguments.get("num-layers-per-virtual-pipeline-stage")
        assert chunk is None or layers // pp % int(chunk) == 0, (
            "layers per stage must be divisible by those of virtual stages"
        )


def _replicas(arguments: Arguments) -> None:
    sharded = "use-distributed-optimizer" in arguments
    reduced, gathered = "overlap-grad-reduce" in arguments, "overlap-param-gather" in arguments
    assert not gathered or (sharded and reduced), (
        "Must use --overlap-param-gather with --overlap-grad-reduce"
    )
    DistributedDataParallelConfig(
        use_distributed_optimizer=sharded,
        overlap_grad_reduce=reduced,
        overlap_param_gather=gathered,
        data_parallel_sharding_strategy=arguments.get("data-parallel-sharding-strategy")
        or "no_shard",
    )
    OptimizerConfig(
        optimizer=_text(arguments, "optimizer"),
        lr=float(_text(arguments, "lr")),
        bf16="bf16" in arguments,
        fp16="fp16" in arguments,
        use_distributed_optimizer=sharded,
        overlap_param_gather=gathered,
    )


def _micro_batches(arguments: Arguments, devices: int) -> int:
    model = 1
    for flag in (
        "tensor-model-parallel-size",
        "pipeline-model-parallel-size",
        "context-parallel-size",
    ):
        model *= int(_text(arguments, flag))
    assert devices % model == 0, (
        f"world size ({devices}) is not divisible by total_model_size ({model})"
    )
    found = ConstantNumMicroBatchesCalculator(
        int(_text(arguments, "global-batch-size")),
        int(_text(arguments, "micro-batch-size")),
        devices // model,
        False,
        1,
    )
    return int(found.get())


def _ranks(arguments: Arguments, devices: int) -> None:
    """What ``initialize_model_parallel`` asserts of orders, without making groups of thousands of
    ranks."""
    tp, pp, cp = (
        int(_text(arguments, flag))
        for flag in (
            "tensor-model-parallel-size",
            "pipeline-model-parallel-size",
            "context-parallel-size",
        )
    )
    ep, etp = (
        int(arguments.get("expert-model-parallel-size") or 1),
        int(arguments.get("expert-tensor-parallel-size") or tp),
    )
    if devices % (etp * ep * pp):
        raise RuntimeError(
            f"world_size ({devices}) is not divisible by expert_tensor_model_pipeline_parallel size"
        )
    inner = "use-tp-pp-dp-mapping" in arguments
    order = "tp-cp-ep-pp-dp" if inner else "tp-cp-ep-dp-pp"
    dp, expert_dp = devices // (tp * pp * cp), devices // (etp * ep * pp)
    assert not inner or pp == 1 or expert_dp == dp, (
        "When not using pp-last rank ordering, the data parallel sizes must be the same"
    )
    dense = parallel_state.RankGenerator(tp=tp, ep=1, dp=dp, pp=pp, cp=cp, order=order)
    sparse = parallel_state.RankGenerator(tp=etp, ep=ep, dp=expert_dp, pp=pp, cp=1, order=order)
    assert dense.get_ranks("pp") == sparse.get_ranks("pp"), (
        "Pipeline parallel groups are expected to be the same"
    )
