"""A launch file of every kind that is read, as people write them, without what only its program
knows."""

from __future__ import annotations

import json

DEEPSPEED = {
    "train_batch_size": 64,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "bf16": {"enabled": True},
    "fp16": {"enabled": False, "loss_scale": 0},
    "zero_optimization": {
        "stage": 3,
        "overlap_comm": True,
        "offload_optimizer": {"device": "cpu", "pin_memory": True, "ratio": 0.5},
        "offload_param": {"device": "none"},
        "reduce_bucket_size": 5e8,
    },
    "activation_checkpointing": {
        "partition_activations": False,
        "cpu_checkpointing": True,
        "number_checkpoints": None,
    },
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    "tensor_parallel": {"autotp_size": 1},
    "sequence_parallel_size": 1,
    "pipeline": {"stages": "auto"},
    "expert_parallel": {"enabled": False, "autoep_size": 1},
    "communication_data_type": "bf16",
    "data_types": {"grad_accum_dtype": None},
    "phaze": {
        "model": "gpt2",
        "sequence_length": 128,
        "dp": 8,
        "global_batch_size": 64,
        "recompute": "full",
    },
}
ACCELERATE = {
    "compute_environment": "LOCAL_MACHINE",
    "distributed_type": "FSDP",
    "mixed_precision": "bf16",
    "num_machines": 1,
    "num_processes": 8,
    "use_cpu": False,
    "fsdp_config": {
        "fsdp_version": 1,
        "fsdp_sharding_strategy": "SHARD_GRAD_OP",
        "fsdp_reshard_after_forward": None,
        "fsdp_offload_params": False,
        "fsdp_activation_checkpointing": True,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    },
    "deepspeed_config": {
        "zero_stage": 2,
        "gradient_accumulation_steps": 4,
        "offload_optimizer_device": "none",
    },
    "megatron_lm_config": {
        "megatron_lm_tp_degree": 2,
        "megatron_lm_pp_degree": 1,
        "megatron_lm_num_micro_batches": 4,
    },
    "parallelism_config": {
        "parallelism_config_tp_size": 1,
        "parallelism_config_dp_shard_size": 8,
        "parallelism_config_cp_size": 1,
    },
}
NEMO = {
    "name": "megatron_gpt",
    "trainer": {"devices": 8, "num_nodes": 2, "precision": "bf16"},
    "model": {
        "micro_batch_size": 2,
        "global_batch_size": 64,
        "tensor_model_parallel_size": 2,
        "pipeline_model_parallel_size": 2,
        "virtual_pipeline_model_parallel_size": None,
        "sequence_parallel": True,
        "encoder_seq_length": 512,
        "max_position_embeddings": 512,
        "num_layers": 12,
        "hidden_size": 768,
        "num_attention_heads": 12,
        "activations_checkpoint_granularity": "selective",
        "optim": {"name": "distributed_fused_adam", "overlap_grad_sync": True},
    },
}
BRIDGE = {
    "model": {
        "seq_length": 4096,
        "tensor_model_parallel_size": 4,
        "context_parallel_size": 2,
        "cp_comm_type": "a2a",
    },
    "train": {"micro_batch_size": 1, "global_batch_size": 8, "train_iters": 10},
    "ddp": {
        "use_distributed_optimizer": True,
        "overlap_grad_reduce": True,
        "grad_reduce_in_fp32": True,
    },
    "mixed_precision": "bf16_mixed",
    "rng": {"seed": 1},
}
TRAINER = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "bf16": True,
    "gradient_checkpointing": True,
    "optim": "adamw_torch",
    "fsdp": "full_shard auto_wrap",
    "learning_rate": 1e-4,
    "logging_steps": 10,
}
TITAN = {
    "model": {"name": "llama3", "flavor": "8B", "converters": []},
    "training": {"local_batch_size": 2, "seq_len": 8192, "steps": 10},
    "parallelism": {
        "tensor_parallel_degree": 2,
        "data_parallel_shard_degree": 8,
        "pipeline_parallel_schedule": "1F1B",
    },
    "activation_checkpoint": {"mode": "full"},
    "compile": {"enable": False},
}
TITAN_PYTHON = """
from torchtitan.models.llama3 import model_registry

def base():
    return Trainer.Config(
        model_spec=model_registry("8B"),
        training=TrainingConfig(local_batch_size=1 * 2, seq_len=2 * 4096),
        parallelism=ParallelismConfig(**{"tensor_parallel_degree": 2, "data_parallel_shard_degree": 4}),
        activation_checkpoint=FullAC.Config(),
    )
"""


def toml(content: dict[str, dict[str, object]]) -> str:
    """Tables of plain values as TOML."""
    lines = list[str]()
    for name, table in content.items():
        lines.append(f"[{name}]")
        lines += [
            f"{key} = {json.dumps(value)}" for key, value in table.items() if value is not None
        ]
    return "\n".join(lines) + "\n"


FILES = {  # names say nothing, which is a part of the tests
    "DeepSpeed": json.dumps(DEEPSPEED),
    "accelerate": json.dumps(ACCELERATE),
    "NeMo 1": json.dumps(NEMO),
    "Megatron Bridge": json.dumps(BRIDGE),
    "Hugging Face Trainer": json.dumps(TRAINER),
    "torchtitan in TOML": toml(TITAN),  # type: ignore[arg-type]
    "torchtitan in Python": TITAN_PYTHON,
}
