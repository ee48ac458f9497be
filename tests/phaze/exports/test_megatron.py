"""Launch scripts for Megatron-LM, recipes for Megatron Bridge: what they say, what is refused, what
Megatron-Core says."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import subprocess
import sys
import types
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from launches import launch_of, random_launch, settings_of

from Estimator.plans.assignment import Assignment
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.offload import Offload
from GraphExtractor.graph import Attention, Recompute
from phaze.exports.launch import Launch
from phaze.exports.megatron_lm.exporter import EXPORTER as LM
from phaze.exports.megatron_lm.exporter import script
from phaze.exports.megatron_lm.pipeline import layout_chunks
from phaze.exports.megatron_lm.reader import read
from phaze.exports.nemo.exporter import EXPORTER as BRIDGE
from phaze.exports.shape import decoder_shape
from phaze_common.choices import CudaGraphs, GroupOrder, KeyExchange, Precision, TensorLayout
from phaze_common.errors import InputError

PLANS = 1000
LLAMA = "llama:layers=24,hidden=2048,heads=16,kv_heads=8"
GPT = "gpt:layers=24,hidden=1024,heads=16"
PLAIN = UniformPlan(micro_batch_size=1, global_batch_size=64, tp=2, pp=2, dp=2, zero_stage=1)


def random_launches(count: int = PLANS, seed: int = 1) -> list[Launch]:
    rng = Random(seed)
    return [random_launch(rng) for _ in range(count)]


def text_of(launch: Launch) -> str:
    (file,) = LM.files(launch)
    assert (file.path, file.executable) == ("launch.sh", True)
    assert isinstance(file.content, str)
    return file.content


def started(
    text: str, folder: Path, **environment: str
) -> tuple[dict[str, str | None], dict[str, str | None], dict[str, str]]:
    """Arguments of torchrun, arguments of Megatron-LM and connections, as bash gives them to a
    torchrun that only tells.

    No argument is given twice.
    """
    told = folder / "torchrun"
    if not told.exists():
        told.write_text(
            '#!/usr/bin/env bash\nprintf "%s\\0" "${CUDA_DEVICE_MAX_CONNECTIONS-unset}" "$@"\n'
        )
        told.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.run(
        ["bash"],
        input=text,
        capture_output=True,
        text=True,
        env={"PATH": path, "CUDA_DEVICE_MAX_CONNECTIONS": "32", **environment},
    )
    assert run.returncode == 0, run.stderr
    connections, *words = run.stdout.split("\0")[:-1]
    program = next(place for place, word in enumerate(words) if word.endswith("pretrain_gpt.py"))
    return (
        _arguments(words[:program]),
        _arguments(words[program + 1 :]),
        {"connections": connections},
    )


def _arguments(words: list[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for word in words:
        if word.startswith("--"):
            assert word[2:] not in found, f"{word} is given twice"
            found[word[2:]] = None
        else:
            last = next(reversed(found))
            assert found[last] is None, f"{word} has nothing before it"
            found[last] = word
    return found


def accepted() -> list[Launch]:
    return [launch for launch in random_launches() if LM.unsupported(launch) is None]


def test_scripts_say_the_plan_once_and_start(tmp_path: Path) -> None:
    launches = accepted()
    assert len(launches) > PLANS / 4
    for launch in launches[:60]:
        degrees = launch.degrees
        torchrun, megatron, environment = started(text_of(launch), tmp_path)
        assert (
            int(torchrun["nnodes"] or 0) * int(torchrun["nproc-per-node"] or 0) == degrees.devices
        )
        said = {
            "tensor-model-parallel-size": degrees.tp,
            "pipeline-model-parallel-size": degrees.pp,
            "context-parallel-size": degrees.cp,
            "micro-batch-size": degrees.micro_batch_size,
            "global-batch-size": degrees.global_batch_size,
            "seq-length": launch.plan.sequence_length,
        }
        assert {flag: int(megatron[flag] or 0) for flag in said} == said
        assert ("mock-data" in megatron, "data-path" in megatron) == (True, False)
        ordered = (degrees.tp > 1 or degrees.cp > 1) and degrees.zero_stage < 2
        assert environment["connections"] == (
            "1" if ordered else "unset" if degrees.zero_stage > 1 else "32"
        )


def test_scripts_are_bash_with_a_reason_for_every_argument() -> None:
    for launch in accepted()[:100]:
        text = text_of(launch)
        checked = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr
        lines = [line for line in text.splitlines() if line.lstrip().startswith("--")]
        assert lines
        assert all(re.search(r"\s# \S", line) for line in lines)


def test_a_script_takes_data_nodes_and_more_arguments_from_outside(tmp_path: Path) -> None:
    text = text_of(launch_of(PLAIN))
    torchrun, megatron, _ = started(
        text,
        tmp_path,
        DATA_PATH="/my data/a",
        TOKENIZER_MODEL="m",
        NODE_RANK="3",
        MASTER_ADDR="first",
        NNODES="4",
        GPUS_PER_NODE="2",
    )
    assert (torchrun["nnodes"], torchrun["node-rank"], torchrun["master-addr"]) == (
        "4",
        "3",
        "first",
    )
    assert (megatron["data-path"], megatron["tokenizer-model"], "mock-data" in megatron) == (
        "/my data/a",
        "m",
        False,
    )
    wrong = subprocess.run(
        ["bash"],
        input=text,
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "NNODES": "3"},
    )
    assert wrong.returncode == 2
    assert "8 devices" in wrong.stderr


def test_what_others_call_a_device_stays_in_its_comment() -> None:
    launch = replace(launch_of(PLAIN), device="evil\n$(touch x)\r`id`", cluster='a """ b\\')
    for exporter in (LM, BRIDGE):
        (file,) = exporter.files(launch)
        assert isinstance(file.content, str)
        line = next(line for line in file.content.splitlines() if "evil" in line)
        assert "`id`" in line
        assert "touch" in line
    ast.parse(str(BRIDGE.files(launch)[0].content))


def test_unequal_stages_are_a_layout_by_hand() -> None:
    cut = replace(PLAIN, pp=4, stage_layers=(1, 9, 15, 1))
    _, arguments = _flags(text_of(launch_of(cut)))
    assert arguments["pipeline-model-parallel-layout"] == "E|t*9|t*15|L"
    turns = replace(PLAIN, interleave=2, stage_layers=(2, 8, 9, 7))
    _, arguments = _flags(text_of(launch_of(turns)))
    assert arguments["pipeline-model-parallel-layout"] == "Et|t*8|t*9|t*6L"
    assert "num-layers-per-virtual-pipeline-stage" not in arguments
    _, arguments = _flags(
        text_of(launch_of(replace(PLAIN, pp=5)))
    )  # 24 blocks over 5 stages, the earlier ones take one more
    assert arguments["pipeline-model-parallel-layout"] == "Et*5|t*5|t*5|t*5|t*4L"


def test_equal_stages_need_no_layout() -> None:
    _, arguments = _flags(text_of(launch_of(replace(PLAIN, interleave=3))))
    assert arguments["num-layers-per-virtual-pipeline-stage"] == "4"
    assert "pipeline-model-parallel-layout" not in arguments


def _flags(text: str) -> tuple[str, dict[str, str]]:
    """Flags of a script, by a reading of its own: a line each."""
    found = re.findall(r"^    --([a-z0-9-]+)(?: +([^#\s]+))? *#", text, re.MULTILINE)
    return text, {flag: value.strip("'\"") for flag, value in found}


FLAGS = {
    "flash": (
        PLAIN,
        LLAMA,
        {"attention-backend": "flash", "bf16": "", "swiglu": "", "normalization": "RMSNorm"},
        {"fp16"},
    ),
    "gpt": (
        PLAIN,
        GPT,
        {"position-embedding-type": "learned_absolute", "hidden-dropout": "0.1"},
        {"swiglu", "disable-bias-linear"},
    ),
    "eager": (
        replace(PLAIN, attention=Attention.EAGER),
        GPT,
        {"attention-backend": "unfused"},
        set(),
    ),
    "fp8": (
        replace(PLAIN, precision=Precision.FP8),
        GPT,
        {"fp8-format": "hybrid", "bf16": ""},
        {"fp16"},
    ),
    "fp8_current": (
        replace(PLAIN, precision=Precision.FP8_CURRENT),
        GPT,
        {"fp8-format": "hybrid", "fp8-recipe": "tensorwise", "bf16": ""},
        {"fp4-format"},
    ),
    "mxfp8": (
        replace(PLAIN, precision=Precision.MXFP8),
        GPT,
        {"fp8-format": "e4m3", "fp8-recipe": "mxfp8", "bf16": ""},
        {"fp4-format"},
    ),
    "nvfp4": (
        replace(PLAIN, precision=Precision.NVFP4),
        GPT,
        {"fp4-format": "e2m1", "fp4-recipe": "nvfp4", "bf16": ""},
        {"fp8-format", "fp8-recipe"},
    ),
    "fp16": (replace(PLAIN, precision=Precision.FP16), GPT, {"fp16": ""}, {"bf16", "fp8-format"}),
    "fp32": (
        replace(PLAIN, precision=Precision.FP32, attention=Attention.EAGER),
        GPT,
        {},
        {"bf16", "fp16", "fp8-format"},
    ),
    "full": (
        replace(PLAIN, recompute=Recompute.FULL),
        GPT,
        {
            "recompute-granularity": "full",
            "recompute-method": "uniform",
            "recompute-num-layers": "1",
        },
        set(),
    ),
    "selective": (
        replace(PLAIN, recompute=Recompute.SELECTIVE),
        GPT,
        {"recompute-granularity": "selective"},
        {"recompute-method"},
    ),
    "gather": (
        replace(PLAIN, cp=2),
        GPT,
        {"cp-comm-type": "all_gather", "context-parallel-size": "2"},
        set(),
    ),
    "ring": (replace(PLAIN, cp=2, exchange=KeyExchange.RING), GPT, {"cp-comm-type": "p2p"}, set()),
    "ulysses": (
        replace(PLAIN, cp=2, exchange=KeyExchange.ULYSSES),
        GPT,
        {"cp-comm-type": "a2a"},
        set(),
    ),
    "zero 0": (
        replace(PLAIN, zero_stage=0),
        GPT,
        {"overlap-grad-reduce": ""},
        {"use-distributed-optimizer", "overlap-param-gather"},
    ),
    "zero 1": (
        PLAIN,
        GPT,
        {"use-distributed-optimizer": "", "overlap-param-gather": ""},
        {"use-megatron-fsdp"},
    ),
    "zero 2": (
        replace(PLAIN, pp=1, zero_stage=2),
        GPT,
        {"data-parallel-sharding-strategy": "optim_grads"},
        set(),
    ),
    "zero 3": (
        replace(PLAIN, pp=1, zero_stage=3),
        GPT,
        {
            "data-parallel-sharding-strategy": "optim_grads_params",
            "use-megatron-fsdp": "",
            "ckpt-format": "fsdp_dtensor",
        },
        set(),
    ),
    "sequence": (
        replace(PLAIN, sequence_parallel=True),
        GPT,
        {"sequence-parallel": "", "tp-comm-overlap": ""},
        set(),
    ),
    "no sequence": (PLAIN, GPT, {}, {"sequence-parallel", "tp-comm-overlap"}),
    "pipeline inner": (
        replace(PLAIN, group_order=GroupOrder.PIPELINE_INNER),
        GPT,
        {"use-tp-pp-dp-mapping": ""},
        set(),
    ),
    "order of one": (
        replace(PLAIN, pp=1, group_order=GroupOrder.PIPELINE_INNER),
        GPT,
        {},
        {"use-tp-pp-dp-mapping"},
    ),
    "experts": (
        replace(PLAIN, ep=2, sequence_parallel=True),
        "mixtral-8x7b",
        {
            "num-experts": "8",
            "moe-router-topk": "2",
            "expert-model-parallel-size": "2",
            "moe-ffn-hidden-size": "14336",
        },
        {"qk-layernorm"},
    ),
    "qwen": (
        PLAIN,
        "qwen3-0.6b",
        {"kv-channels": "128", "qk-layernorm": ""},
        {"untie-embeddings-and-output-weights"},
    ),
    "sgd": (
        replace(PLAIN, zero_stage=0, optimizer="sgd"),
        GPT,
        {"optimizer": "sgd", "sgd-momentum": "0.0"},
        set(),
    ),
}


@pytest.mark.parametrize("name", FLAGS)
def test_flags(name: str) -> None:
    plan, model, there, absent = FLAGS[name]
    launch = launch_of(plan, model)
    assert LM.unsupported(launch) is None
    _, flags = _flags(text_of(launch))
    assert {flag: flags.get(flag) for flag in there} == there
    assert not absent & flags.keys()


def test_a_vocabulary_is_padded_as_priced() -> None:
    _, flags = _flags(text_of(launch_of(PLAIN, GPT)))
    assert (
        flags["vocab-size"],
        flags["tokenizer-type"],
        flags["make-vocab-size-divisible-by"],
    ) == (
        "50256",
        "NullTokenizer",
        "128",
    )
    _, flags = _flags(text_of(launch_of(PLAIN, GPT, sequence_length=4096)))
    assert (flags["seq-length"], flags["max-position-embeddings"]) == ("4096", "4096")


MIXTURE = "mixtral-8x7b"
REFUSED: dict[str, tuple[Launch, str, dict[str, object] | None]] = {
    "2d": (
        launch_of(replace(PLAIN, layout=TensorLayout.TWO_D, tp2=2)),
        "one axis",
        {"layout": "1d", "tp": 4, "tp2": 1, "panels": 1},
    ),
    "gpipe": (launch_of(replace(PLAIN, gpipe=True)), "not GPipe", {"schedule": "1f1b"}),
    "tiers": (
        launch_of(replace(PLAIN, group_order=Assignment.parsed("tp2/dp2.pp2"))),
        "assignment to tiers",
        {"group_order": "tensor-data-pipeline"},
    ),
    "offload": (
        launch_of(replace(PLAIN, offload=Offload(optimizer=0.5))),
        "host memory",
        {"offload": "optimizer=0"},
    ),
    "alibi": (launch_of(PLAIN, "bloom:layers=24,hidden=1024,heads=16"), "not ALiBi", None),
    "no decoder": (
        launch_of(PLAIN, "bert:layers=12,hidden=768,heads=12"),
        "no decoder of blocks alike",
        None,
    ),
    "order": (launch_of(PLAIN), "execution order", {"stage_layers": [13, 13]}),
    "heads": (
        launch_of(replace(PLAIN, tp=3)),
        "does not divide 16 attention heads",
        {"tp": 1, "dp": 6},
    ),
    "key heads": (
        launch_of(replace(PLAIN, tp=16)),
        "does not divide 8 key/value heads",
        {"tp": 8, "dp": 4},
    ),
    "context": (
        launch_of(replace(PLAIN, cp=4), sequence_length=1028),
        "2 x cp 4 parts",
        {"cp": 2, "dp": 4},
    ),
    "eager context": (
        launch_of(replace(PLAIN, cp=2, attention=Attention.EAGER)),
        "unfused attention",
        {"attention": "flash"},
    ),
    "ulysses": (
        launch_of(replace(PLAIN, tp=4, cp=4, exchange=KeyExchange.ULYSSES)),
        "Ulysses",
        {"exchange": "ring"},
    ),
    "sequence": (
        launch_of(replace(PLAIN, tp=4, sequence_parallel=True), sequence_length=1030),
        "sequence parallelism needs",
        {"sequence_parallel": False},
    ),
    "no experts": (launch_of(replace(PLAIN, ep=2)), "no experts", {"ep": 1}),
    "experts": (
        launch_of(replace(PLAIN, dp=16, ep=16, sequence_parallel=True), MIXTURE),
        "has to divide 8 experts",
        {"ep": 8},
    ),
    "experts alone": (
        launch_of(replace(PLAIN, ep=2), MIXTURE),
        "only with sequence parallelism",
        {"sequence_parallel": True},
    ),
    "fp16 experts": (
        launch_of(replace(PLAIN, ep=2, sequence_parallel=True, precision=Precision.FP16), MIXTURE),
        "no expert parallelism in fp16",
        {"precision": "bf16"},
    ),
    "fp32": (
        launch_of(replace(PLAIN, precision=Precision.FP32)),
        "no fp32",
        {"attention": "eager"},
    ),
    "fp8": (
        launch_of(replace(PLAIN, precision=Precision.FP8), "gpt:layers=4,hidden=1000,heads=10"),
        "columns in multiples of 16",
        {"precision": "bf16"},
    ),
    "sgd": (launch_of(replace(PLAIN, optimizer="sgd")), "is Adam, not sgd", {"zero_stage": 0}),
    "zero 3": (
        launch_of(replace(PLAIN, zero_stage=3)),
        "for one pipeline stage",
        {"zero_stage": 1},
    ),
    "rank order": (
        launch_of(replace(PLAIN, cp=2, group_order=GroupOrder.PIPELINE_INNER)),
        "ep 1 to equal cp 2",
        {"group_order": "tensor-data-pipeline"},
    ),
    "batch": (
        launch_of(replace(PLAIN, global_batch_size=63)),
        "do not come out whole",
        {"global_batch_size": 64},
    ),
    "turns": (
        launch_of(replace(PLAIN, interleave=2, global_batch_size=62)),
        "pp 2 interleaved stages",
        {"global_batch_size": 64},
    ),
    "graphs of experts": (
        launch_of(replace(PLAIN, tp=1, cuda_graphs=CudaGraphs.LAYER), MIXTURE),
        "as many tokens for each",
        {"cuda_graphs": "attn_router"},
    ),
    "graphs of no router": (
        launch_of(replace(PLAIN, cuda_graphs=CudaGraphs.ATTENTION_ROUTER)),
        "no router of experts",
        {"cuda_graphs": "attn"},
    ),
    "graphs of what is run again": (
        launch_of(
            replace(PLAIN, cuda_graphs=CudaGraphs.LAYER, recompute=Recompute.FULL),
        ),
        "run again as a whole",
        {"cuda_graphs": "none"},
    ),
    "nodes": (
        launch_of(replace(PLAIN, dp=5, global_batch_size=60)),
        "do not fill nodes of 8",
        {"dp": 4},
    ),
}
REFUSED["order"] = (
    replace(
        REFUSED["order"][0],
        plan=replace(REFUSED["order"][0].plan, stages=REFUSED["order"][0].plan.stages[::-1]),
    ),
    *REFUSED["order"][1:],
)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_told_is_refused_in_a_sentence(name: str) -> None:
    launch, words, nearest = REFUSED[name]
    for exporter in (LM, BRIDGE):
        refused = exporter.unsupported(launch)
        assert refused is not None
        assert words in refused.what
        assert not refused.what.endswith(".")
        assert dict(refused.nearest) == (nearest or {})


def test_bridge_has_no_rank_order_of_contexts() -> None:
    plan = replace(PLAIN, cp=2, ep=2, sequence_parallel=True, group_order=GroupOrder.PIPELINE_INNER)
    launch = launch_of(plan, MIXTURE)
    assert LM.unsupported(launch) is None
    refused = BRIDGE.unsupported(launch)
    assert refused is not None
    assert dict(refused.nearest) == {"group_order": "tensor-data-pipeline"}


# Reading back.


def expected_settings(launch: Launch) -> dict[str, object]:
    """Settings of a launch as it is run: what has no effect is at its default."""
    degrees, plan = launch.degrees, launch.plan
    split = degrees.sequence_parallel and degrees.tp > 1
    inner = plan.group_order is GroupOrder.PIPELINE_INNER and degrees.pp > 1 and degrees.dp > 1
    counts = [len(stage.layers) for stage in plan.stages]
    even = [count - (place == 0) - (place == len(counts) - 1) for place, count in enumerate(counts)]
    ends = counts[0] > 0 and counts[-1] > 0 and len({*even}) == 1
    found: dict[str, object] = {
        **{
            name: getattr(degrees, name)
            for name in ("tp", "pp", "cp", "ep", "dp", "micro_batch_size", "global_batch_size")
        },
        "interleave": degrees.interleave,
        "sequence_length": plan.sequence_length,
        "recompute": degrees.recompute.value,
        "zero_stage": degrees.zero_stage,
        "precision": plan.precision.value,
        "attention": plan.attention.value,
        "optimizer": plan.optimizer,
        "sequence_parallel": split,
        "overlap_gradients": launch.overlap_gradients,
    }
    found |= {"overlap_tensor": launch.overlap_tensor and split} if degrees.tp > 1 else {}
    if degrees.ep > 1:
        found |= {
            "dispatcher": launch.dispatcher.value,
            "overlap_experts": launch.overlap_experts.value,
        }
    found |= {"exchange": degrees.exchange.value} if degrees.cp > 1 else {}
    found |= {"group_order": GroupOrder.PIPELINE_INNER.value} if inner else {}
    return found if ends else {**found, "stage_layers": counts}


@pytest.mark.parametrize("graphs", CudaGraphs)
def test_graphs_are_read_back(graphs: CudaGraphs) -> None:
    whole = graphs in (CudaGraphs.LAYER, CudaGraphs.ITERATION)
    model = GPT if whole else MIXTURE
    launch = launch_of(replace(PLAIN, tp=1, cuda_graphs=graphs), model)
    assert LM.unsupported(launch) is None
    assert settings_of(text_of(launch)).get("cuda_graphs", "none") == graphs.value


def test_scripts_are_read_back() -> None:
    launches = accepted()
    for launch in launches:
        read = settings_of(text_of(launch))
        model = read.pop("model")
        assert read == expected_settings(launch)
        assert decoder_shape(str(model)) == launch.shape
    assert Counter(
        launch.shape.family for launch in launches if launch.shape is not None
    ).keys() >= {"gpt", "llama", "qwen3"}


COMMAND = """
#!/bin/bash
# GPT-3 345M
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NUM_NODES=${NUM_NODES:-2}
TP=${TP:-4}
DISTRIBUTED_ARGS="--nproc_per_node $GPUS_PER_NODE --nnodes ${NUM_NODES} --master_addr localhost"
GPT_ARGS="
    --num-layers 24 \\
    --hidden-size 1024 --num-attention-heads=16 \\
    --seq-length 1024 \\
    --max-position-embeddings=1024 --micro-batch-size 4
    --global-batch-size 64 --fp16
"
torchrun $DISTRIBUTED_ARGS pretrain_gpt.py $GPT_ARGS \\
    --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size 2 --recompute-activations  # half of them
"""


def test_commands_of_others_are_read() -> None:
    assert settings_of(COMMAND) == {
        **{
            "model": "gpt-layers24-hidden1024-heads16",
            "tp": 4,
            "pp": 2,
            "cp": 1,
            "ep": 1,
            "dp": 2,
            "interleave": 1,
        },
        **{
            "micro_batch_size": 4,
            "global_batch_size": 64,
            "sequence_length": 1024,
            "recompute": "selective",
        },
        **{
            "sequence_parallel": False,
            "zero_stage": 0,
            "precision": "fp16",
            "attention": "flash",
            "overlap_gradients": False,
        },
        **{"optimizer": "adam", "overlap_tensor": False},
    }


BASE = (
    "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 "
    "--max-position-embeddings 1024 --micro-batch-size 1 --global-batch-size 8 "
)
READ = {
    "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 3 "
    "--decoder-last-pipeline-num-layers 5": {"stage_layers": [4, 8, 8, 6]},
    "--pipeline-model-parallel-size 2 --account-for-embedding-in-pipeline-split "
    "--account-for-loss-in-pipeline-split": {"interleave": 1},
    "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 3": {"interleave": 4},
    "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2": {"interleave": 2},
    "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Ett|(ttt|)*6,ttttL'": {
        "interleave": 4,
        "stage_layers": [3, 3, 3, 3, 3, 3, 3, 5],
    },
    "--context-parallel-size 2 --cp-comm-type allgather": {"exchange": "gather", "cp": 2},
    "--use-torch-fsdp2": {"zero_stage": 3},
    "--use-megatron-fsdp --data-parallel-sharding-strategy optim": {"zero_stage": 1},
    "--bf16 --fp8-format e4m3": {"precision": "fp8"},
    "--bf16 --fp8-format e4m3 --fp8-recipe mxfp8": {"precision": "mxfp8"},
    "--bf16 --fp8-format hybrid --fp8-recipe tensorwise": {"precision": "fp8_current"},
    "--bf16 --fp8-format e4m3 --fp8-recipe blockwise": {"precision": "fp8_block"},
    "--bf16 --fp4-format e2m1 --fp4-recipe nvfp4": {"precision": "nvfp4"},
    "--attention-backend local": {"attention": "eager"},
    "--cuda-graph-impl transformer_engine --cuda-graph-scope attn": {"cuda_graphs": "attn"},
    "--cuda-graph-impl local --cuda-graph-modules moe_router moe_preprocess": {
        "cuda_graphs": "router"
    },
    "--cuda-graph-impl local --cuda-graph-modules attn mlp moe_router": {
        "cuda_graphs": "attn_router"
    },
    "--cuda-graph-impl local --cuda-graph-scope full_iteration": {"cuda_graphs": "iteration"},
    "--cuda-graph-impl full_iteration": {"cuda_graphs": "iteration"},
    "--external-cuda-graph": {"cuda_graphs": "layer"},
    "--enable-cuda-graph --cuda-graph-scope full": {"cuda_graphs": "layer"},
    "--cuda-graph-scope attn": {"cuda_graphs": None},
    "--moe-expert-capacity-factor 1.5 --moe-pad-expert-input-to-capacity": {"expert_load": 1.5},
    "--moe-expert-capacity-factor 1.5": {"expert_load": None},
    "--bf16 --optimizer sgd --sgd-momentum 0.0": {"optimizer": "sgd", "precision": "bf16"},
    "--optimizer muon": {"optimizer": "muon", "zero_stage": 0},
    "--optimizer muon --use-distributed-optimizer": {"optimizer": "muon", "zero_stage": 1},
    "--optimizer dist_muon --muon-num-ns-steps 5": {"optimizer": "muon", "zero_stage": 1},
}


@pytest.mark.parametrize(("ep", "said"), [(1, True), (2, False)])
def test_padding_of_experts_on_a_device_that_has_all_is_said(ep: int, said: bool) -> None:
    words = "--moe-expert-capacity-factor 1.5 --moe-pad-expert-input-to-capacity"
    found = read(f"{BASE}{words} --expert-model-parallel-size {ep}", {})
    reasons = [each.reason for each in found.of_kind("priced as usual")]
    assert any("rows that pad experts" in each for each in reasons) is said


@pytest.mark.parametrize("given", READ)
def test_flags_of_others_are_read(given: str) -> None:
    found = settings_of(BASE + given)
    assert {key: found.get(key) for key in READ[given]} == READ[given]
    assert ("stage_layers" in found) == ("stage_layers" in READ[given])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("--num-layers many", "--num-layers of the Megatron-LM command is 'many'"),
        ("--micro-batch-size $1", "whole number of at least 1"),
        ("--moe-expert-capacity-factor most", "a factor above 0, or give --expert-load"),
        ("--tensor-model-parallel-size", "has no value"),
        ("--pipeline-model-parallel-layout 'Et*23|tX'", "none of E, t, m, L"),
        ("--pipeline-model-parallel-layout 'Et*22|tL'", "23 blocks"),
        ("--pipeline-model-parallel-layout 'Et*24|mL'", "its layers m predict further tokens"),
        (
            "--pipeline-model-parallel-layout 'Et*24L|m'",
            "nothing but layers that predict further tokens",
        ),
        ("--pipeline-model-parallel-layout 'E(t*99999)*99999L'", "more than 100,000 layers"),
        ("--pipeline-model-parallel-size 5", "do not come out even"),
        ("--pipeline-model-parallel-size 999999999999", "more stages than"),
        (
            "--recompute-granularity full --recompute-method block --recompute-num-layers 2",
            "only 2 blocks of each stage",
        ),
        ("--nproc-per-node 3 --tensor-model-parallel-size 2", "no multiple"),
        ("--optimizer lion", "whose memory is not known"),
        ("--multi-latent-attention", "latent attention"),
        ("--num-experts 3", "none that are not gated"),
        ("--context-parallel-size 2 --cp-comm-type a2a+p2p", "--cp-comm-type"),
    ],
)
def test_commands_that_are_no_plan_are_refused(given: str, words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        settings_of(BASE + given)


def test_a_command_without_its_batch_is_refused() -> None:
    with pytest.raises(InputError, match="no --micro-batch-size; add it"):
        settings_of(
            "--num-layers 2 --hidden-size 64 --num-attention-heads 1 --max-position-embeddings 8"
        )


def test_layouts_are_written_out() -> None:
    assert layout_chunks("Ettt|(tt|)*3,t|L") == ("Ettt", "tt", "tt", "tt", "t", "L")
    assert layout_chunks("(E|)*1t*3|L") == ("E", "ttt", "L")


# Recipes of Megatron Bridge, run with records that only keep what they are told.


class Kept(types.SimpleNamespace):
    """Any record of Megatron Bridge."""

    def __init__(self, *positional: Any, **told: Any) -> None:
        super().__init__(**told)
        self._positional = positional


def recipe_of(launch: Launch, monkeypatch: pytest.MonkeyPatch, ours: str = "") -> Kept:
    """What the function of a recipe returns; only modules whose names begin with ``ours`` are made
    up."""
    (file,) = BRIDGE.files(launch)
    tree = ast.parse(str(file.content))
    if not ours:
        monkeypatch.setitem(sys.modules, "torch", Named("torch"))
    for node in (node for node in tree.body if isinstance(node, ast.ImportFrom)):
        module = str(node.module)
        if not module.startswith(ours):
            continue
        for name in itertools.accumulate(module.split("."), lambda left, right: f"{left}.{right}"):
            if name.startswith(ours):
                monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        for alias in node.names:
            setattr(
                sys.modules[module],
                alias.name,
                Named(alias.name) if alias.name == "AttnBackend" else Kept,
            )
    space: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(tree, file.path, "exec"), space)
    found: Kept = space["phaze_plan"]()
    return found


class Named:
    """Any module or enumeration: its parts are their names."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, part: str) -> Named:
        if part.startswith("__"):
            raise AttributeError(part)
        return Named(f"{self.name}.{part}")


def test_recipes_say_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    for launch in [each for each in accepted() if BRIDGE.unsupported(each) is None][:60]:
        degrees, made = launch.degrees, recipe_of(launch, monkeypatch)
        model = made.model
        assert (model.tensor_model_parallel_size, model.pipeline_model_parallel_size) == (
            degrees.tp,
            degrees.pp,
        )
        assert (model.context_parallel_size, getattr(model, "expert_model_parallel_size", 1)) == (
            degrees.cp,
            degrees.ep,
        )
        assert getattr(model, "virtual_pipeline_model_parallel_size", 1) == degrees.interleave
        assert (made.train.micro_batch_size, made.train.global_batch_size) == (
            degrees.micro_batch_size,
            degrees.global_batch_size,
        )
        assert model.seq_length == made.dataset.seq_length == launch.plan.sequence_length
        assert (
            made.ddp.use_distributed_optimizer
            == made.optimizer.use_distributed_optimizer
            == (degrees.zero_stage > 0)
        )
        assert (
            made.ddp.overlap_grad_reduce
            == made.comm_overlap.overlap_grad_reduce
            == launch.overlap_gradients
        )
        _, flags = _flags(text_of(launch))
        assert getattr(model, "pipeline_model_parallel_layout", None) == flags.get(
            "pipeline-model-parallel-layout"
        )
        assert model.sequence_parallel == ("sequence-parallel" in flags)
        assert getattr(model, "recompute_granularity", None) == flags.get("recompute-granularity")
        assert made.dist.use_tp_pp_dp_mapping == ("use-tp-pp-dp-mapping" in flags)
        assert (made.mixed_precision is None) == (launch.plan.precision is Precision.FP32)


def test_recipes_have_a_reason_for_every_setting() -> None:
    for launch in accepted()[:60]:
        lines = str(BRIDGE.files(launch)[0].content).splitlines()
        told = [
            line
            for line in lines
            if re.match(r" +[a-z_0-9]+=[^=(]+,( |$)", line) and "mixed_precision" not in line
        ]
        assert [
            line for line in told if not re.search(r"# \S", line) and line.strip() != "model=model,"
        ] == []


# Megatron-Core itself, where it is installed.


@pytest.fixture
def target() -> Any:
    reason = "megatron-core is not installed: pip install megatron-core==0.16.1 torch"
    pytest.importorskip("megatron.core", reason=reason)
    with warnings.catch_warnings():  # of what it would rather have: Apex, Transformer Engine
        warnings.simplefilter("ignore")
        import megatron_target

    return megatron_target


NO_COUNTERPART = (  # a script says nothing of these, so that Megatron has nothing to refuse
    *(
        "no decoder",
        "between layers",
        "one axis",
        "not GPipe",
        "assignment to tiers",
        "in host memory",
        "execution order",
        "ALiBi",
    ),
    "do not fill nodes",
)
# what its records let pass, and where it then fails; limits.py has the same list
STRICTER_THAN_RECORDS = {
    "key/value heads": "repeats them over more devices",
    "to divide": "first collective, or no kernel",
    "2 x cp": "parser of Megatron-LM",
    "only with sequence parallelism": "first forward pass",
    "no fp32": "no kernel",
    "unfused attention": "no kernel",
    "fp8 products": "first product",
    "is Adam": "as the optimizer is made",
    "is Megatron-FSDP's": "not for pipelines",
    "has to divide": "as layers are built",
    "in fp16": "parser of Megatron-LM",
    "ffn columns": "as layers are built",
    "interleaved stages": "first iteration",
}


def test_megatron_core_accepts_what_is_written(target: Any, tmp_path: Path) -> None:
    told = Counter[str]()
    surprising = list[str]()
    for launch in random_launches():
        refused = LM.unsupported(launch)
        if refused is not None and any(words in refused.what for words in NO_COUNTERPART):
            told["no counterpart"] += 1
            continue
        alone = replace(launch, devices_per_node=1)  # what does not fill nodes fills these
        _, arguments, _ = started(script(alone), tmp_path)
        said = target.refusal(arguments, launch.degrees.devices)
        if refused is None and said is not None:
            surprising.append(f"{said} of {json.dumps(arguments)}")
        elif refused is None:
            told["accepted by both"] += 1
        elif said is not None:
            told["refused by both"] += 1
        else:
            reason = next((words for words in STRICTER_THAN_RECORDS if words in refused.what), "")
            told[f"stricter: {reason}"] += 1
            if not reason:
                surprising.append(f"only refused here: {refused.what}")
    print(json.dumps(dict(sorted(told.items())), indent=1))
    assert surprising == []
    assert told["accepted by both"] > PLANS / 4


def test_megatron_core_lays_groups_as_the_plan_does(target: Any, tmp_path: Path) -> None:
    small = [launch for launch in accepted() if launch.degrees.devices <= 32]
    assert len(small) >= 40
    for launch in small[:40]:
        degrees = launch.degrees
        _, arguments, _ = started(text_of(launch), tmp_path)
        groups = target.groups_of_first_rank(arguments, degrees.devices)
        assert groups["tp"] == list(range(degrees.tp))
        assert groups["cp"] == [degrees.tp * place for place in range(degrees.cp)]
        assert groups["dp"] == [degrees.replica_stride * place for place in range(degrees.dp)]
        assert groups["pp"] == [degrees.stage_stride * place for place in range(degrees.pp)]
        assert len(groups["ep"]) == degrees.ep


def test_megatron_core_cuts_the_pipeline_as_the_plan_does(target: Any, tmp_path: Path) -> None:
    launches = [launch for launch in accepted() if launch.degrees.pp > 1]
    for launch in launches[:100]:
        _, arguments, _ = started(text_of(launch), tmp_path)
        config = target.config_of(arguments)
        layout = config.pipeline_model_parallel_layout
        degrees = launch.degrees
        assert (config.virtual_pipeline_model_parallel_size or 1) == degrees.interleave
        if layout is None:
            assert len({*launch.blocks_of_chunks}) == 1
            continue
        built = [
            layout.layout[chunk % degrees.pp][chunk // degrees.pp].count(target.LayerType.decoder)
            for chunk in range(degrees.chunks)
        ]
        assert tuple(built) == launch.blocks_of_chunks


def test_megatron_core_accepts_the_models_of_recipes(
    target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches = [each for each in accepted() if BRIDGE.unsupported(each) is None]
    for launch in launches:
        made = recipe_of(launch, monkeypatch, "megatron.bridge")
        config = target.config_of_record(
            {key: value for key, value in vars(made.model).items() if key[0] != "_"}
        )
        assert config.tensor_model_parallel_size == launch.degrees.tp
        _, arguments, _ = started(text_of(launch), tmp_path)
        told = target.config_of(arguments)
        for name in (
            "num_layers",
            "ffn_hidden_size",
            "num_query_groups",
            "kv_channels",
            "recompute_granularity",
            "sequence_parallel",
        ):
            assert getattr(config, name) == getattr(told, name)
        cut = [
            each.pipeline_model_parallel_layout and each.pipeline_model_parallel_layout.layout
            for each in (config, told)
        ]
        assert cut[0] == cut[1]


@pytest.mark.filterwarnings("ignore")
def test_megatron_core_builds_what_is_written(
    target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(
        torch.cuda, "current_device", lambda: "meta"
    )  # where there is no GPU, weights without memory stand in
    monkeypatch.setattr(torch.cuda, "Stream", lambda *_, **__: None)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor, *_, **__: tensor)
    small = [
        each for each in accepted() if each.degrees.cp == 1 and each.degrees.devices <= 32
    ]  # plain attention has no contexts
    for launch in small[:25]:
        for name in (
            "NVTE_FLASH_ATTN",
            "NVTE_FUSED_ATTN",
            "NVTE_UNFUSED_ATTN",
        ):  # Megatron-Core sets them
            monkeypatch.delenv(name, raising=False)
        degrees = launch.degrees
        _, arguments, _ = started(text_of(launch), tmp_path)
        for stage in {0, degrees.pp - 1}:
            built = target.blocks_built(arguments, degrees.devices, stage * degrees.stage_stride)
            assert tuple(built) == launch.blocks_of_chunks[stage :: degrees.pp]
