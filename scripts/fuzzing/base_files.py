"""The files that the fuzzer starts from: one small, correct file of every format that a person may
write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

HARDWARE = Path(__file__).resolve().parents[2] / "Estimator" / "hardware"
AMPED = Path(__file__).resolve().parents[2] / "third_party" / "amped"
MODEL = "gpt:layers=2,hidden=64,heads=2"
SMALL: dict[str, Any] = {
    "model": MODEL,
    "sequence_length": 32,
    "global_batch_size": 8,
    "cluster": "cluster.yaml",
}
CHIP: dict[str, Any] = {
    "num_tc": 2,
    "num_vc": 2,
    "width": 32,
    "depth": 32,
    "width_vc": 32,
    "glb_mib": 4,
}

_YAML: dict[str, Any] = {
    "space.yaml": {
        "name": "tiny",
        "technology": "technology.yaml",
        "platform": "platform.yaml",
        "vector_functions": "functions.yaml",
        "axes": {
            "num_tc": [1, 4],
            "num_vc": [1, 4],
            "width": [32],
            "depth": [32],
            "width_vc": None,
            "glb_mib": [4],
        },
        "budget": {"area_mm2": 200.0},
        "keep": {"minimum_area_fraction": 0.0, "any_single_tc": True, "any_single_vc": True},
        "references": [{"name": "known", "source": "made up", "accelerator": CHIP}],
    },
    "chip.yaml": CHIP,
    "cluster.yaml": {
        "name": "eight",
        "num_devices": 8,
        "tiers": [
            {
                "name": "node",
                "group_size": 4,
                "bandwidth_bytes_per_s": 1e11,
                "latency_s": 1e-6,
                "efficiency": 0.8,
            },
            {
                **{
                    "name": "network",
                    "group_size": 8,
                    "bandwidth_bytes_per_s": 1e10,
                    "latency_s": 5e-6,
                    "inner_latency_s": 1e-6,
                },
                "short": {"start_s": 1e-5, "latency_s": 1e-6, "efficiency": 0.1},
            },
        ],
        "library": {"tree_efficiency": 0.8, "copy_share": 0.5},
    },
    "study.yaml": {
        **SMALL,
        **{
            "micro_batch_size": [1, 2],
            "tp": [1, 2],
            "hbm_size": [1, 2],
            "recompute": ["none", "full"],
            "output": "out",
        },
        **{
            "design_space": "space.yaml",
            "objective": "throughput",
            "optimizer": "adam",
            "precision": "bf16",
        },
    },
    "study_device.yaml": {
        **SMALL,
        "device": "device.yaml",
        "micro_batch_size": 1,
        "tp": 1,
        "zero_stage": [0, 1],
        "output": "out",
    },
    "plan.yaml": {
        **SMALL,
        "device": "device.yaml",
        "tp": 1,
        "pp": 2,
        "dp": 4,
        "micro_batch_size": 1,
        "output": "out",
    },
    "plan_chip.yaml": {
        **SMALL,
        **{
            "chip": "chip.yaml",
            "design_space": "space.yaml",
            "hbm_size": 2,
            "tp": 1,
            "pp": 2,
            "dp": 4,
            "output": "out",
        },
    },
    "sweep.yaml": {
        **SMALL,
        "design_space": "space.yaml",
        "micro_batch_size": [1, 2],
        "hbm_size": 2,
    },
}
_LLAMA: dict[str, Any] = {
    **{
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 128,
    },
    **{
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 512,
        "rms_norm_eps": 1e-6,
    },
    **{
        "max_position_embeddings": 64,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "rope_theta": 10000.0,
    },
}
_JSON: dict[str, Any] = {
    "llama.json": _LLAMA,
    "mixtral.json": {
        **_LLAMA,
        **{
            "model_type": "mixtral",
            "architectures": ["MixtralForCausalLM"],
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
        },
    },
    "neox.json": {
        **{
            "model_type": "gpt_neox",
            "architectures": ["GPTNeoXForCausalLM"],
            "hidden_size": 64,
            "intermediate_size": 128,
        },
        **{
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "vocab_size": 512,
            "max_position_embeddings": 64,
            "rotary_pct": 0.25,
        },
    },
    "vit.json": {
        **{
            "model_type": "vit",
            "architectures": ["ViTForImageClassification"],
            "hidden_size": 64,
            "intermediate_size": 128,
        },
        **{
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 32,
            "patch_size": 16,
            "num_channels": 3,
        },
    },
    "nest.json": {
        **{
            "total_devices": 8,
            "memory_limit_bytes": 1e9,
            "devices_per_level": [4, 2],
            "microbatches_per_batch": 16,
        },
        **{"bandwidth_per_level_bytes_s": [1e11, 1e10], "latency_per_level_s": [1e-6, 5e-6]},
        **{"activation_recomputation": True, "optimizer": "Adam"},
        "graphs": {
            "2": {
                **{
                    "devices_per_stage": 2,
                    "layer_ids": [0, 1, 2],
                    "parameter_bytes": [1e6, 2e6, 1e6],
                },
                **{
                    "activation_bytes": [1e5, 1e5, 1e5],
                    "fw_s": [1e-3, 2e-3, 1e-3],
                    "bw_s": [2e-3, 4e-3, 2e-3],
                },
                "edges": [[0, 1, 1e5], [1, 2, 1e5]],
            }
        },
    },
    "place.json": {
        **{"maxMemoryPerDevice": 1e9, "maxDevices": 8, "bandwidth": 1e10, "mbsInBatch": 16.0},
        **{"activationRecomputation": True, "optimizerAlgorithm": "Adam"},
        "nodes": {
            "2": [
                {
                    **{
                        "id": node,
                        "parameterSize": 1e6,
                        "activationSize": 1e5,
                        "optimalLatencyFw": 1e-3,
                    },
                    **{"optimalLatencyBw": 2e-3, "isTensorParallelized": True},
                }
                for node in range(3)
            ]
        },
        "edges": {
            "2": [
                {"sourceId": node, "destId": node + 1, "communicationCost": 1e5}
                for node in range(2)
            ]
        },
    },
    "schedule.json": {
        **{"num_tc": 2, "num_vc": 2},
        "graph": {
            "nodes": [
                {"id": node, "core_type": kind, "latency": 4.0, "intra_op_latency": 2.5}
                for node, kind in enumerate(("TC", "VC", "TCandVC", "Nop", "TC"))
            ],
            "edges": [[0, 1], [0, 2], [1, 3], [3, 4]],
        },
    },
    "layouts.json": {
        "cases": [
            {
                **{
                    "strategy": "2d",
                    "model": {"l": 512, "e": 1024, "h": 8, "depth": 4},
                    "system_name": "A100",
                    "nvlink_size": 4,
                },
                **{"n_gpus": 16, "global_batch_size": 32},
                "config": {"dp": 2, "tp": 4, "tp1": 2, "tp2": 2, "pp": 2, "mbs": 1, "nb": 2},
                "nv": {"nv_tp1": 2, "nv_tp2": 1, "nv_dp": 1, "nv_pp": 2},
            },
            {
                **{
                    "strategy": "1d",
                    "model_name": "gpt3",
                    "nvlink_size": 8,
                    "n_gpus": 64,
                    "global_batch_size": 64,
                },
                "system": {
                    **{
                        "matrix_flops_fp16": 312,
                        "vector_flops_fp16": 78,
                        "hbm_bandwidth": 1555,
                        "hbm_capacity": 80,
                    },
                    **{
                        "nvlink_bandwidth": 300,
                        "nvlink_eff": 0.7,
                        "nvlink_latency": 2.5e-6,
                        "nic_factor": 1,
                    },
                    **{"ib_bandwidth": 25, "ib_eff": 0.7, "ib_latency": 5e-6, "empirical": False},
                },
                "config": {"dp": 1, "tp": 8, "pp": 8, "mbs": 1},
                "nv": {"nv_tp": 8, "nv_dp": 1, "nv_pp": 1},
            },
        ]
    },
}
_RUNS = """\
model,params_B,layers,hidden,heads,ffn,seq,vocab,gpu,n_gpus,tp,pp,dp,interleave,micro_batch,global_batch,recompute,seq_parallel,\
measured_iter_time_s,achieved_tflops_per_gpu,mfu_pct,mem_GB_measured,cp,ep,zero,precision,framework,network,source,notes
small,,2,64,4,256,32,512,A100-80GB-SXM,8,2,2,2,,1,8,full,no,0.5,,,,,,0,fp16,Megatron-LM,"Selene: DGX A100",made up,"a, b"
other,,2,64,4,256,32,512,H100-80GB-SXM,8,1,1,8,,1,8,none,no,,,12,,,,1,bf16,Megatron-LM,DGX H100,made up,
"""
_SINGLE = """\
# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,tensor parallelism,data parallelism,\
pipeline parallelism,iteration time (ms)
8,8,1,64,4,2,32,2,2,2,12.5
4,8,1,64,4,2,32,1,2,2,20.5
"""
_GEMMS = "operator,batch,m,k,n,rows,row_length,dtype,seconds\n" + "".join(
    f"gemm,1,{size},1024,{size},,,float16,{2 * 1024 * size**2 / 2e14 + 3e-5:.9f}\n"
    for size in (512, 1024, 2048, 4096, 8192)
)
_NCCL = "op,size_bytes,num_nodes,gpus_per_node,seconds\n" + "".join(
    f"all_reduce,{2**power},{nodes},4,{2**power / 2e10 * nodes + 3e-5:.9f}\n"
    for nodes in (1, 2)
    for power in range(16, 28, 2)
)
_ACESO = """\
op_name,forward-compute,backward-compute,input_size,output_size,weights,activations,fwd_reserved,bwd_reserved
enc-1st-layernorm,118.089,332.757,20.000,40.000,0.000,20.016,0.000,160.000
enc-attention-qkv,419.9,832.9,20.000,60.000,6.000,80.000,0.000,60.000
enc-MLP-GEMM-1,519.9,1032.9,20.000,80.000,8.000,100.000,0.000,80.000
"""
_OTHERS = {
    "runs.csv": _RUNS,
    "single.csv": _SINGLE,
    "gemm.csv": _GEMMS,
    "softmax_A100.csv": "512,1024,40.0\n4096,1024,120.0\n8192,2048,140.0\n",
    "matmul_A100.csv": "1024, 1024, 1024, 0.0400ms, 53.0Tflops\n4096, 1024, 4096, 0.1800ms, "
    "190.0Tflops\n",
    "nccl.csv": _NCCL,
    "others.csv": "source,devices,seconds,hbm_size\none,8,0.5,2\none,16,0.25,2\ntwo,8,0.75,2\n",
    "aceso/gpt_350M_mbs1_tp1_algo0.csv": _ACESO,
    "mine.py": """\
import torch
from torch import nn

tensor_parallel = {"column": ["*.linear1"], "row": ["*.linear2"], "entrances": [], "sizes": {"ffn": 64}}


def build():
    block = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)
    return nn.Sequential(nn.Embedding(100, 32), nn.TransformerEncoder(block, 2), nn.Linear(32, 100))


def example_inputs(micro_batch_size, sequence_length=16):
    return torch.zeros(micro_batch_size, sequence_length, dtype=torch.long)


def loss(output):
    return nn.functional.cross_entropy(output.flatten(0, 1), torch.zeros(output.shape[:2].numel(), dtype=torch.long))
""",
    "empty.yaml": "",
    "binary.yaml": "\0\1\2",
}
_OURS = {  # files that ship, as a person's own
    "technology.yaml": "technologies/phaze_22nm.yaml",
    "platform.yaml": "platforms/phaze_hbm2.yaml",
    "functions.yaml": "vector_functions/phaze.yaml",
    "device.yaml": "devices/a100_80gb.yaml",
    "software.yaml": "software/megatron_core.yaml",
}


def write_base_files(folder: Path) -> None:
    """Write all of them into ``folder``; paths in them are relative to it."""
    texts = {name: yaml.safe_dump(content, sort_keys=False) for name, content in _YAML.items()}
    texts |= {name: json.dumps(content, indent=1) for name, content in _JSON.items()}
    for name, text in (texts | _OTHERS).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name, ours in _OURS.items():
        content = yaml.safe_load((HARDWARE / ours).read_text())
        if name == "device.yaml":
            content |= {"cluster": "cluster.yaml", "software": "software.yaml"}
        (folder / name).write_text(yaml.safe_dump(content, sort_keys=False))
    (folder / "amped.json").write_bytes(
        (AMPED / "examples" / "gpt3_175b_1024_a100.json").read_bytes()
    )
    (folder / "lookup_tables.json").write_text(
        json.dumps(yaml.safe_load((AMPED / "lookup_tables.yaml").read_text()), indent=1)
    )
    (folder / "folder.yaml").mkdir()
    (folder / "loop.yaml").symlink_to("loop.yaml")
