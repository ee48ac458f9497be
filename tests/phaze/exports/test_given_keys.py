"""Every key that a program has is sorted, none of its defaults is a refusal, and what is said to be
read is read."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phaze.exports import given_keys
from phaze.exports.given_keys import flattened, known_keys
from phaze.exports.launchers import Content, reading_of
from phaze.settings.launched import KeyKind, LaunchReading
from phaze_common.errors import InputError
from phaze_common.yaml_files import read_yaml
from tests.phaze.exports.launch_samples import (
    ACCELERATE,
    BRIDGE,
    DEEPSPEED,
    NEMO,
    TITAN,
    TRAINER,
    toml,
)

LISTS = ("deepspeed", "torchtitan", "accelerate", "nemo")
HOME = Path(__file__).parent / "key_lists"


def listed(name: str) -> Iterator[tuple[str, object, bool]]:
    """Keys of a program with their defaults; whether a default is known."""
    for line in (HOME / f"{name}.txt").read_text().splitlines():
        if not line.startswith("#"):
            key, _, default = line.partition(" = ")
            yield key, None if default == "?" else json.loads(default), default != "?"


@pytest.mark.parametrize("name", LISTS)
def test_every_key_of_a_program_is_sorted(name: str) -> None:
    known = known_keys(name)
    keys = list(listed(name))
    assert len(keys) > 100
    assert [
        key for key, default, _ in keys if known.kind_of(key, default)[0] is KeyKind.UNKNOWN
    ] == []


@pytest.mark.parametrize("name", LISTS)
def test_no_default_is_a_refusal(name: str) -> None:
    known = known_keys(name)
    refused = [
        key
        for key, value, sure in listed(name)
        if sure and known.kind_of(key, value)[0] is KeyKind.NOT_EXPRESSIBLE
    ]
    assert refused == []


@pytest.mark.parametrize("name", [*LISTS, "hf_trainer"])
def test_a_key_stands_in_one_list_and_reasons_are_words(name: str) -> None:
    content = read_yaml(given_keys.HOME / f"{name}.yaml")
    lists = [[*content.get(kind, ())] for kind in ("read", "no_effect", "not_expressible")]
    paths = [path for listed in lists for path in listed]
    assert len(paths) == len({*paths})
    reasons = [
        each.reason
        for each in known_keys(name).meanings.values()
        if each.kind is KeyKind.NOT_EXPRESSIBLE
    ]
    assert len(reasons) == len(content["not_expressible"])
    assert all(len(reason) > 10 and not reason.endswith(".") for reason in reasons)


def test_unknown_keys_are_told_and_off_values_are_no_refusal() -> None:
    found = read(
        {
            **DEEPSPEED,
            "hello": 1,
            "zero_optimization": {
                "stage": 2,
                "zero_quantized_weights": True,
                "offload_param": None,
            },
        }
    )
    kinds = {key.name: key.kind for key in found.keys}
    assert kinds["hello"] is KeyKind.UNKNOWN
    assert kinds["zero_optimization.zero_quantized_weights"] is KeyKind.NOT_EXPRESSIBLE
    assert kinds["zero_optimization.offload_param"] is KeyKind.READ
    assert kinds["fp16.loss_scale"] is KeyKind.NO_EFFECT
    with pytest.raises(
        InputError,
        match=r"weights travel in 8 bits.*--ignore zero_optimization.zero_quantized_weights",
    ):
        found.check_expressible(())
    found.check_expressible(["zero_optimization.zero_quantized_weights"])


def read(content: dict[str, Any]) -> LaunchReading:
    return reading_of(Content(json.dumps(content)))


def changed(sample: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    made = copy.deepcopy(sample)
    place = made
    *homes, last = path.split(".")
    for home in homes:
        place = place.setdefault(home, {})
    place[last] = value
    return made


ZERO2 = changed(DEEPSPEED, "zero_optimization.stage", 2)
NO_OWN = {key: value for key, value in DEEPSPEED.items() if key != "phaze"}
WITH_DEEPSPEED = {**ACCELERATE, "distributed_type": "DEEPSPEED"}
WITH_MEGATRON = {**ACCELERATE, "distributed_type": "MEGATRON_LM", "parallelism_config": {}}
FSDP2 = changed(ACCELERATE, "fsdp_config", {"fsdp_version": 2})
PLAIN = {key: value for key, value in ACCELERATE.items() if key != "parallelism_config"}
LIKE_LLAMA = copy.deepcopy(NEMO)
LIKE_LLAMA["model"] |= {
    **{
        "normalization": "rmsnorm",
        "activation": "swiglu",
        "bias": False,
        "position_embedding_type": "rope",
    },
    "share_embeddings_and_output_weights": False,
}
NOT_LIKE_LLAMA: dict[
    str, object
] = {  # a dense decoder of Llama's form with one of these is another model, or none that is known
    **{"activation": "gelu", "bias": True, "position_embedding_type": "learned_absolute"},
    **{
        "share_embeddings_and_output_weights": True,
        "kv_channels": 128,
        "qk_layernorm": True,
        "num_moe_experts": 8,
    },
}
FLEXIBLE = changed(BRIDGE, "model.moe_token_dispatcher_type", "flex")
CAPPED = changed(BRIDGE, "model.moe_expert_capacity_factor", 1.5)
PADDED = changed(CAPPED, "model.moe_pad_expert_input_to_capacity", True)
BESIDE_BATCHES = changed(BRIDGE, "model.overlap_moe_expert_parallel_comm", True)
AWARE = changed(BRIDGE, "optimizer.use_precision_aware_optimizer", True)
NARROW = changed(BRIDGE, "optimizer.exp_avg_dtype", "torch.bfloat16")
TITAN_EXPERTS = changed(TITAN, "parallelism.expert_parallel_degree", 2)
OTHER_VALUES: dict[
    str, list[tuple[dict[str, Any], str, object]]
] = {  # a file, and another value of a key that must change its plan
    "deepspeed": [
        (NO_OWN, "train_batch_size", 128),
        (NO_OWN, "train_micro_batch_size_per_gpu", 4),
        (NO_OWN, "gradient_accumulation_steps", 8),
        (DEEPSPEED, "sequence_parallel_size", 2),
        (DEEPSPEED, "bf16.enabled", False),
        ({**NO_OWN, "bf16": {}}, "bfloat16.enabled", True),
        ({**NO_OWN, "bf16": {}}, "fp16.enabled", True),
        (DEEPSPEED, "zero_optimization.stage", 1),
        (DEEPSPEED, "zero_optimization.overlap_comm", False),
        (DEEPSPEED, "zero_optimization.offload_optimizer.device", "none"),
        (DEEPSPEED, "zero_optimization.offload_optimizer.ratio", 1.0),
        (DEEPSPEED, "zero_optimization.offload_optimizer", None),
        (DEEPSPEED, "zero_optimization.offload_param.device", "cpu"),
        (DEEPSPEED, "zero_optimization.offload_param", {"device": "cpu"}),
        ({**NO_OWN, "zero_optimization": {"stage": 2}}, "zero_optimization.cpu_offload", True),
        (
            {**NO_OWN, "zero_optimization": {"stage": 3}},
            "zero_optimization.cpu_offload_param",
            True,
        ),
        (DEEPSPEED, "tensor_parallel.autotp_size", 2),
        (DEEPSPEED, "tensor_parallel", {"tp": {"tp_size": 2}}),
        (DEEPSPEED, "tensor_parallel.tp_overlap_comm", True),
        (DEEPSPEED, "activation_checkpointing.cpu_checkpointing", False),
        (
            {**NO_OWN, "activation_checkpointing": {}},
            "activation_checkpointing.partition_activations",
            True,
        ),
        (
            {**NO_OWN, "activation_checkpointing": {}},
            "activation_checkpointing.contiguous_memory_optimization",
            True,
        ),
        (
            {**NO_OWN, "activation_checkpointing": {}},
            "activation_checkpointing.number_checkpoints",
            4,
        ),
        (DEEPSPEED, "optimizer.type", "SGD"),
        (
            {**DEEPSPEED, "optimizer": {"type": "SGD", "params": {}}},
            "optimizer.params.momentum",
            0.9,
        ),
        (DEEPSPEED, "pipeline.stages", 2),
        ({**DEEPSPEED, "expert_parallel": {"autoep_size": 4}}, "expert_parallel.enabled", True),
        ({**DEEPSPEED, "expert_parallel": {"enabled": True}}, "expert_parallel.autoep_size", 4),
    ],
    "torchtitan": [
        (TITAN, "model.name", "qwen3"),
        (TITAN, "model.flavor", "70B"),
        (TITAN, "model.converters", ["float8"]),
        (TITAN, "training.seq_len", 4096),
        (TITAN, "training.local_batch_size", 1),
        (changed(TITAN, "training", {"seq_len": 8192}), "training.batch_size", 1),
        (TITAN, "training.global_batch_size", 64),
        (changed(TITAN, "training", {}), "training.max_context_length", 4096),
        (changed(TITAN, "training", {}), "training.num_tokens_per_microbatch_per_dp_rank", 4096),
        (changed(TITAN, "training", {}), "training.num_tokens_per_train_step", 2048 * 128),
        (TITAN, "training.mixed_precision_param", "float32"),
        (TITAN, "training.enable_cpu_offload", True),
        (TITAN, "parallelism.data_parallel_replicate_degree", 2),
        (TITAN, "parallelism.data_parallel_shard_degree", 4),
        (TITAN, "parallelism.fsdp_reshard_after_forward", "never"),
        (TITAN, "parallelism.tensor_parallel_degree", 4),
        (TITAN, "parallelism.enable_sequence_parallel", False),
        (TITAN, "parallelism.enable_async_tensor_parallel", True),
        (TITAN, "compile.enable_async_tensor_parallel", True),
        (TITAN, "parallelism.context_parallel_degree", 2),
        (
            changed(TITAN, "parallelism.context_parallel_degree", 2),
            "parallelism.context_parallel_rotate_method",
            "alltoall",
        ),
        (TITAN, "parallelism.expert_parallel_degree", 2),
        (TITAN_EXPERTS, "parallelism.expert_parallel_comm_backend", "deepep"),
        (TITAN_EXPERTS, "debug.moe_force_load_balance", True),
        (TITAN_EXPERTS, "training.debug_moe_force_load_balance", True),
        (TITAN, "parallelism.pipeline_parallel_degree", 2),
        (
            changed(TITAN, "parallelism.pipeline_parallel_degree", 2),
            "parallelism.pipeline_parallel_schedule",
            "GPipe",
        ),
        (
            changed(TITAN, "parallelism.pipeline_parallel_degree", 2),
            "parallelism.pipeline_parallel_microbatch_size",
            2,
        ),
        (
            changed(changed(TITAN, "training", {}), "parallelism.pipeline_parallel_degree", 2),
            *("parallelism.num_pp_microbatches", 4),
        ),
        (
            changed(TITAN, "parallelism.pipeline_parallel_degree", 2),
            *(
                "parallelism.module_fqns_per_model_part",
                [["tok_embeddings", "layers.0"], ["layers.1", "norm", "output"]],
            ),
        ),
        (TITAN, "activation_checkpoint.mode", "none"),
    ],
    "accelerate": [
        (ACCELERATE, "distributed_type", "MULTI_GPU"),
        (ACCELERATE, "mixed_precision", "fp16"),
        ({key: value for key, value in PLAIN.items() if key != "mixed_precision"}, "fp16", True),
        (PLAIN, "num_processes", 16),
        (
            changed(PLAIN, "fsdp_config", {"fsdp_reshard_after_forward": False}),
            "fsdp_config.fsdp_version",
            2,
        ),
        (ACCELERATE, "fsdp_config.fsdp_sharding_strategy", "FULL_SHARD"),
        (FSDP2, "fsdp_config.fsdp_reshard_after_forward", False),
        (ACCELERATE, "fsdp_config.fsdp_offload_params", True),
        (ACCELERATE, "fsdp_config.fsdp_activation_checkpointing", False),
        (ACCELERATE, "fsdp_config.fsdp_activation_checkpointing_offload", True),
        (WITH_DEEPSPEED, "deepspeed_config.zero_stage", 3),
        (WITH_DEEPSPEED, "deepspeed_config.offload_optimizer_device", "cpu"),
        (
            changed(WITH_DEEPSPEED, "deepspeed_config.zero_stage", 3),
            "deepspeed_config.offload_param_device",
            "cpu",
        ),
        (WITH_MEGATRON, "megatron_lm_config.megatron_lm_tp_degree", 4),
        (WITH_MEGATRON, "megatron_lm_config.megatron_lm_pp_degree", 2),
        (WITH_MEGATRON, "megatron_lm_config.megatron_lm_sequence_parallelism", True),
        (WITH_MEGATRON, "megatron_lm_config.megatron_lm_recompute_activations", True),
        (WITH_MEGATRON, "megatron_lm_config.megatron_lm_recompute_granularity", "full"),
        (WITH_MEGATRON, "megatron_lm_config.megatron_lm_use_distributed_optimizer", True),
        (WITH_MEGATRON, "megatron_lm_config.megatron_lm_context_parallel_size", 2),
        (WITH_MEGATRON, "megatron_lm_config.megatron_lm_expert_model_parallel_size", 2),
        (WITH_MEGATRON, "megatron_lm_config.megatron_lm_attention_backend", "unfused"),
        (
            PLAIN,
            "parallelism_config",
            {"parallelism_config_tp_size": 2, "parallelism_config_dp_shard_size": 4},
        ),
        (
            PLAIN,
            "parallelism_config",
            {"parallelism_config_cp_size": 2, "parallelism_config_dp_shard_size": 4},
        ),
        (
            PLAIN,
            "parallelism_config",
            {"parallelism_config_sp_size": 2, "parallelism_config_dp_shard_size": 4},
        ),
        (PLAIN, "parallelism_config", {"parallelism_config_dp_replicate_size": 8}),
        (
            changed(PLAIN, "parallelism_config", {"parallelism_config_cp_size": 8}),
            *("parallelism_config.parallelism_config_cp_comm_strategy", "alltoall"),
        ),
        (PLAIN, "tp_config.tp_size", 2),
    ],
    "nemo": [
        (NEMO, "trainer.devices", 4),
        (NEMO, "trainer.num_nodes", 1),
        (NEMO, "trainer.precision", 16),
        (NEMO, "model.micro_batch_size", 1),
        (NEMO, "model.global_batch_size", 128),
        (NEMO, "model.encoder_seq_length", 256),
        (NEMO, "model.max_position_embeddings", 1024),
        (NEMO, "model.tensor_model_parallel_size", 4),
        (NEMO, "model.pipeline_model_parallel_size", 4),
        (NEMO, "model.virtual_pipeline_model_parallel_size", 3),
        (NEMO, "model.pipeline_model_parallel_layout", "Et*5|t*7L"),
        (NEMO, "model.context_parallel_size", 2),
        (BRIDGE, "model.cp_comm_type", "p2p"),
        *((BRIDGE, f"model.{name}_cuda_graph", True) for name in ("enable", "external")),
        (BRIDGE, "model.cuda_graph_impl", "full_iteration"),
        *(
            (
                changed(BRIDGE, "model.cuda_graph_impl", "local"),
                f"model.cuda_graph_{name}",
                ["attn"],
            )
            for name in ("scope", "modules")
        ),
        (NEMO, "model.expert_model_parallel_size", 2),
        (NEMO, "model.sequence_parallel", False),
        (NEMO, "model.activations_checkpoint_granularity", "full"),
        (BRIDGE, "model.recompute_granularity", "full"),
        (BRIDGE, "model.attention_backend", "unfused"),
        (BRIDGE, "model.tp_comm_overlap", True),
        (NEMO, "model.ub_tp_comm_overlap", True),
        (NEMO, "model.fp8", True),
        ({**NEMO, "trainer": {}}, "model.bf16", True),
        ({**NEMO, "trainer": {}}, "model.fp16", True),
        (
            {**NEMO, "trainer": {"plugins": {"precision": "bf16-mixed"}}},
            "trainer.plugins.precision",
            "16-mixed",
        ),
        (NEMO, "model.fsdp", True),
        (changed(NEMO, "model.fsdp", True), "model.fsdp_sharding_strategy", "grad"),
        (NEMO, "model.num_layers", 24),
        (NEMO, "model.hidden_size", 1536),
        (NEMO, "model.ffn_hidden_size", 2048),
        (NEMO, "model.num_attention_heads", 16),
        (NEMO, "model.vocab_size", 32000),
        (NEMO, "tokenizer.vocab_size", 32000),
        (LIKE_LLAMA, "model.num_query_groups", 4),
        *((LIKE_LLAMA, f"model.{name}", value) for name, value in NOT_LIKE_LLAMA.items()),
        (changed(LIKE_LLAMA, "model.activation", None), "model.gated_linear_unit", True),
        (changed(LIKE_LLAMA, "model.bias", None), "model.add_bias_linear", False),
        *(
            ({**BRIDGE, "mixed_precision": {}}, f"mixed_precision.{name}", True)
            for name in ("bf16", "fp16", "fp32", "fp8", "fp4")
        ),
        *(
            (changed(base, f"{part}.fp8", "hybrid"), f"{part}.fp8_recipe", "mxfp8")
            for base, part in (
                (NEMO, "model"),
                ({**BRIDGE, "mixed_precision": {}}, "mixed_precision"),
            )
        ),
        (NEMO, "model.fp4", "e2m1"),
        ({**BRIDGE, "mixed_precision": None}, "precision", "16-mixed"),
        (changed(NEMO, "model.encoder_seq_length", None), "model.data.seq_length", 256),
        (NEMO, "model.optim.overlap_grad_sync", False),
        (NEMO, "model.optim.name", "sgd"),
        (BRIDGE, "mixed_precision", "fp16_mixed"),
        (BRIDGE, "train.micro_batch_size", 2),
        (BRIDGE, "train.global_batch_size", 16),
        (BRIDGE, "model.seq_length", 8192),
        (BRIDGE, "optimizer.optimizer", "sgd"),
        ({**BRIDGE, "ddp": {}}, "optimizer.use_distributed_optimizer", True),
        ({**BRIDGE, "ddp": {}}, "optimizer.use_layer_wise_distributed_optimizer", True),
        (changed(BRIDGE, "optimizer.optimizer", "sgd"), "optimizer.sgd_momentum", 0.0),
        (BRIDGE, "ddp.use_distributed_optimizer", False),
        (BRIDGE, "ddp.num_distributed_optimizer_instances", 2),
        (BRIDGE, "model.expert_tensor_parallel_size", 1),
        (NARROW, "optimizer.use_precision_aware_optimizer", True),
        (AWARE, "optimizer.main_grads_dtype", "torch.bfloat16"),
        (AWARE, "optimizer.main_params_dtype", "torch.float16"),
        (AWARE, "optimizer.exp_avg_dtype", "torch.uint8"),
        (BRIDGE, "ddp.overlap_grad_reduce", False),
        (BRIDGE, "comm_overlap.overlap_grad_reduce", False),
        (BRIDGE, "comm_overlap.tp_comm_overlap", True),
        (BRIDGE, "model.moe_token_dispatcher_type", "flex"),
        (FLEXIBLE, "model.moe_flex_dispatcher_backend", "hybridep"),
        (BRIDGE, "model.moe_shared_expert_overlap", True),
        (CAPPED, "model.moe_pad_expert_input_to_capacity", True),
        (PADDED, "model.moe_expert_capacity_factor", 2.0),
        (BRIDGE, "comm_overlap.overlap_moe_expert_parallel_comm", True),
        (BRIDGE, "model.overlap_moe_expert_parallel_comm", True),
        (BESIDE_BATCHES, "comm_overlap.delay_wgrad_compute", True),
        (BESIDE_BATCHES, "model.delay_wgrad_compute", True),
        (BRIDGE, "dist.use_tp_pp_dp_mapping", True),
        (BRIDGE, "ddp.use_megatron_fsdp", True),
        (
            changed(BRIDGE, "ddp.use_megatron_fsdp", True),
            "ddp.data_parallel_sharding_strategy",
            "optim_grads_params",
        ),
        ({**BRIDGE, "model": {"tensor_model_parallel_size": 1}}, "dataset.seq_length", 512),
        ({**BRIDGE, "model": {"tensor_model_parallel_size": 1}}, "dataset.sequence_length", 512),
        ({**BRIDGE, "model": {"tensor_model_parallel_size": 1}}, "data.seq_length", 512),
        ({**BRIDGE, "train": {}}, "data.micro_batch_size", 2),
        ({**BRIDGE, "train": {}}, "data.global_batch_size", 2),
        ({**BRIDGE, "train": {}}, "dataset.micro_batch_size", 2),
        ({**BRIDGE, "train": {}}, "dataset.global_batch_size", 2),
    ],
    "hf_trainer": [
        (TRAINER, "per_device_train_batch_size", 8),
        (TRAINER, "bf16", False),
        ({**TRAINER, "bf16": False}, "fp16", True),
        ({**TRAINER, "fsdp": ""}, "gradient_checkpointing", False),
        ({**TRAINER, "gradient_checkpointing": False}, "activation_checkpointing", True),
        (TRAINER, "optim", "sgd"),
        (TRAINER, "fsdp", "shard_grad_op"),
        (
            {**TRAINER, "gradient_checkpointing": False},
            "fsdp_config",
            {"activation_checkpointing": True},
        ),
        (TRAINER, "max_length", 512),
        (TRAINER, "max_seq_length", 512),
        (TRAINER, "cutoff_len", 512),
    ],
}
BY_OTHERS = {  # keys that are read in another way than by a change of one value of these files
    "deepspeed": {"phaze.*", "tensor_parallel.tp.tp_size"},
    "torchtitan": {
        *(
            "model_spec",
            "model_converters",
            "model_converters.converters",
            "optimizer",
            "optimizer.name",
            "training.dtype",
        ),
        *(
            "activation_checkpoint",
            "activation_checkpoint.selective_ac_option",
            "parallelism.expert_tensor_parallel_degree",
        ),
    },
    "accelerate": {
        *(
            "use_cpu",
            "deepspeed_config.gradient_accumulation_steps",
            "deepspeed_config.deepspeed_config_file",
        ),
        *(
            "megatron_lm_config.megatron_lm_num_micro_batches",
            "parallelism_config.parallelism_config_tp_size",
        ),
        *(
            "parallelism_config.parallelism_config_dp_replicate_size",
            "parallelism_config.parallelism_config_dp_shard_size",
        ),
        *(
            "parallelism_config.parallelism_config_cp_size",
            "parallelism_config.parallelism_config_sp_size",
        ),
    },
    "nemo": {
        *(
            "mixed_precision.fp8_param_gather",
            "mixed_precision.grad_reduce_in_fp32",
            "ddp.grad_reduce_in_fp32",
        ),
        "optimizer.exp_avg_sq_dtype",  # with that of the first moment, or told
        *("model.recompute_modules", "model.moe_router_topk", "model.moe_ffn_hidden_size"),
        # with the last two of mixtures, which exports of listed ones say
        "model.moe_shared_expert_intermediate_size",
    },
    "hf_trainer": {"gradient_accumulation_steps", "fsdp_config.*", "deepspeed", "deepspeed.*"},
}


def test_a_normalization_that_is_priced_as_another_is_told() -> None:
    """Of NeMo as of Megatron-LM, and once."""
    for content in (
        json.dumps(changed(LIKE_LLAMA, "model.normalization", "layernorm")),
        "python pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 2 "
        "--seq-length 8 --micro-batch-size 1 --normalization RMSNorm",
    ):
        found = [
            key for key in reading_of(Content(content)).keys if key.name.endswith("normalization")
        ]
        assert [key.kind for key in found] == [KeyKind.USUAL]
        assert "is priced as" in found[0].reason


@pytest.mark.parametrize("name", OTHER_VALUES)
def test_what_is_said_to_be_read_changes_the_plan(name: str) -> None:
    met = set[str]()
    for sample, path, value in OTHER_VALUES[name]:
        other = changed(sample, path, value)
        texts = [
            toml(each) if name == "torchtitan" else json.dumps(each) for each in (sample, other)
        ]
        before, after = (reading_of(Content(text)) for text in texts)
        assert dict(before.settings) != dict(after.settings), path
        kinds = {key.name: key.kind for key in after.keys}
        met |= {path, *flattened(other).keys()} if isinstance(value, dict) else {path}
        if not isinstance(value, dict):
            assert kinds[path] in (KeyKind.READ, KeyKind.NOT_EXPRESSIBLE), path
    spelled = {
        "model.optim.name": "optimizer.name",
        "model.optim.overlap_grad_sync": "optimizer.overlap_grad_sync",
        "trainer.plugins.precision": "mixed_precision.precision",
    }
    met = {spelled.get(path, path) for path in met}
    assert known_keys(name).read - met <= BY_OTHERS[name]


@pytest.mark.parametrize("name", [*LISTS, "hf_trainer"])
def test_a_key_of_which_a_letter_lacks_is_refused_by_the_name_that_is_meant(name: str) -> None:
    known = known_keys(name)
    for path in sorted(known.read):
        home, dot, last = path.rpartition(".")
        if len(last) < 10 or "*" in home:
            continue
        misspelt = f"{home}{dot}{last[: len(last) // 2]}{last[len(last) // 2 + 1 :]}"
        with pytest.raises(InputError, match=rf"{misspelt} is no key of .* did you mean "):
            known.check_spelling({misspelt: "x"})


@pytest.mark.parametrize(
    ("content", "meant"),
    [
        ({"train_micro_batch_per_gpu": 4}, "train_micro_batch_size_per_gpu"),
        ({"zero_optimisation": {"stage": 3}}, "zero_optimization.stage"),
        (
            {"zero_optimization": {"offload_optimiser": {"device": "cpu"}}},
            "zero_optimization.offload_optimizer.device",
        ),
    ],
)
def test_a_near_miss_is_refused(content: dict[str, Any], meant: str) -> None:
    whole = {"train_batch_size": 8, "bf16": {"enabled": True}} | content
    with pytest.raises(
        InputError, match=rf"is no key of DeepSpeed that is read; did you mean {meant}\?"
    ):
        reading_of(Content(json.dumps(whole)))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (
            json.dumps(ACCELERATE | {"fsdp_config": {"fsdp_sharding_stategy": "NO_SHARD"}}),
            "fsdp_config.fsdp_sharding_strategy",
        ),
        (
            json.dumps({"per_device_train_batch_size": 4, "gradient_checkpoint": True}),
            "gradient_checkpointing",
        ),
        (
            toml(TITAN).replace("tensor_parallel_degree", "tensor_paralel_degree"),
            "parallelism.tensor_parallel_degree",
        ),
        (
            json.dumps(NEMO).replace("pipeline_model_parallel_size", "pipeline_model_paralel_size"),
            "model.pipeline_model_parallel_size",
        ),
    ],
)
def test_a_near_miss_of_other_programs_is_refused(text: str, meant: str) -> None:
    with pytest.raises(InputError, match=rf"that is read; did you mean {meant}\?"):
        reading_of(Content(text))


def test_a_misspelt_key_beside_the_right_one_is_refused() -> None:
    text = toml(TITAN).replace(
        "tensor_parallel_degree", "tensor_paralel_degree = 4\ntensor_parallel_degree"
    )
    with pytest.raises(InputError, match=r"did you mean parallelism.tensor_parallel_degree\?"):
        reading_of(Content(text))
