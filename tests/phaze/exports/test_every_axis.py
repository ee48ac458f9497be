"""Each program is told every axis of a plan, or refuses it: an axis that is added is never left out
in silence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from Estimator.plans.assignment import Assignment
from Estimator.plans.axes import PLAN_AXES
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.offload import Offload
from Estimator.plans.state_formats import StateFormats
from GraphExtractor.models.base import LanguageModelFamily
from GraphExtractor.models.opt import Opt
from GraphExtractor.models.registry import listed_models
from phaze.exports.registry import HOMES, exporter
from phaze.exports.shape import decoder_shape, unwritten_parts
from phaze_common.choices import (
    Attention,
    CudaGraphs,
    Dispatcher,
    ExpertOverlap,
    ExpertWidth,
    KeyExchange,
    MomentDtype,
    Precision,
    Recompute,
    StageCuts,
    StateDtype,
    TensorLayout,
)
from tests.phaze.exports.launches import launch_of

MODEL = "qwen3-30b-a3b"
ONE = UniformPlan(dp=8, micro_batch_size=2, global_batch_size=64, zero_stage=1)
BASES = (
    ONE,
    replace(ONE, zero_stage=3, overlap_gradients=True),
    replace(ONE, tp=2, cp=2, pp=2, dp=2, zero_stage=0),
    replace(ONE, tp=2, cp=2, pp=2, dp=2, interleave=2, sequence_parallel=True),
)
TWO_D = {"layout": TensorLayout.TWO_D, "tp": 2, "tp2": 2}
# What a plan has beside an axis that would do nothing otherwise.
BESIDE: Mapping[str, Mapping[str, Any]] = {
    "tp2": TWO_D,
    "panels": TWO_D,
    "exchange": {"cp": 2},
    "etp": {"tp": 2, "sequence_parallel": True},
    "sequence_parallel": {"tp": 2},
    "stage_layers": {"pp": 2},
    "schedule": {"pp": 2},
    "interleave": {"pp": 2},
    "overlap_tensor": {"tp": 2, "sequence_parallel": True},
    "fp8_weights": {"precision": Precision.FP8},
    "dispatcher": {"ep": 2},
    "dispatch_fp8": {"ep": 2},
    "overlap_experts": {"ep": 2},
    "expert_load": {"ep": 2},
}
# Another value of each axis.
ANOTHER: Mapping[str, Mapping[str, Any]] = {
    "layout": TWO_D,
    "tp": {"tp": 4},
    "tp2": {"tp2": 4},
    "panels": {"panels": 4},
    "cp": {"cp": 4},
    "exchange": {"exchange": KeyExchange.RING},
    "ep": {"ep": 2},
    "etp": {"etp": ExpertWidth.ONE},
    "sequence_parallel": {"sequence_parallel": True},
    "pp": {"pp": 4},
    "stage_layers": {"interleave": 1, "stage_layers": (10, 40)},
    "micro_batch_size": {"micro_batch_size": 4},
    "dp": {"dp": 4},
    "recompute": {"recompute": Recompute.FULL},
    "zero_stage": {"zero_stage": 2},
    "shard_groups": {"shard_groups": 2},
    "sites": {"sites": 2},
    "outer_steps": {"sites": 2, "outer_steps": 100},
    "site_gbit_per_s": {"sites": 2, "site_gbit_per_s": 100.0},
    "outer_dtype": {"sites": 2, "outer_dtype": MomentDtype.FP8},
    "offload": {"offload": Offload(optimizer=1.0)},
    "global_batch_size": {"global_batch_size": 128},
    "precision": {"precision": Precision.FP16},
    "attention": {"attention": Attention.EAGER},
    "optimizer": {"optimizer": "sgd"},
    "schedule": {"gpipe": True},
    "interleave": {"interleave": 4},
    "group_order": {"group_order": Assignment.parsed("dp2.pp2/tp2.cp2")},
    "overlap_gradients": {"overlap_gradients": False},
    "overlap_tensor": {"overlap_tensor": False},
    "stage_cuts": {"stage_cuts": StageCuts.INSIDE},
    "cuda_graphs": {"cuda_graphs": CudaGraphs.ATTENTION},
    "dispatcher": {"dispatcher": Dispatcher.DEEPEP},
    "dispatch_fp8": {"dispatch_fp8": True},
    "overlap_experts": {"overlap_experts": ExpertOverlap.BATCHES},
    "expert_load": {"expert_load": 1.5},
    "gradient_dtype": {"state_formats": StateFormats(gradient_dtype=StateDtype.BF16)},
    "moment_dtype": {"state_formats": StateFormats(moment_dtype=MomentDtype.BF16)},
    "main_weight_dtype": {"state_formats": StateFormats(main_weight_dtype=StateDtype.BF16)},
    "fp8_weights": {"state_formats": StateFormats(fp8_weights=True)},
}
PROGRAMS = tuple(name for name in HOMES if name != "chakra")  # whose files are what was priced


def test_every_axis_has_another_value_here() -> None:
    assert {*ANOTHER} == {each.key for each in PLAN_AXES}, (
        "say another value of the axis in ANOTHER"
    )


@pytest.mark.parametrize("key", [each.key for each in PLAN_AXES])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_told_an_axis_or_refuses_it(name: str, key: str) -> None:
    program = exporter(name)
    told = [base for base in BASES if program.unsupported(launch_of(base, MODEL)) is None]
    assert told, f"add a plan to BASES that {name} can be told"
    for base in told:
        plan = replace(base, **BESIDE.get(key, {}))
        before, after = launch_of(plan, MODEL), launch_of(replace(plan, **ANOTHER[key]), MODEL)
        refused = program.unsupported(after) is not None
        if refused or program.files(after) != program.files(before):
            return
    pytest.fail(f"{name} neither refuses {key} nor says it in its files")


@pytest.mark.parametrize("program", ["megatron_lm", "megatron_bridge", "torchtitan"])
@pytest.mark.parametrize(
    ("model", "part"),
    [
        ("deepseek-v3-mtp", "latent attention and layers that predict further tokens"),
        ("moonlight-16b-a3b", "latent attention"),
        ("gpt-oss-120b", "biases of experts"),
        ("nemotron-3-nano-30b-a3b", "Mamba mixers"),
        ("glm-4.5-air", "dense blocks among those of experts"),
        ("llama-4-scout", "no experts that all tokens meet"),
    ],
)
def test_a_part_of_a_decoder_that_is_not_written_yet_is_named(
    program: str, model: str, part: str
) -> None:
    refused = exporter(program).unsupported(launch_of(UniformPlan(global_batch_size=1), model))
    assert refused is not None and part in refused.what and "yet" in refused.what


def test_every_listed_decoder_of_text_is_written_or_says_what_is_not() -> None:
    for name, family in listed_models().items():
        decodes = isinstance(family, LanguageModelFamily | Opt)
        assert decodes == (decoder_shape(name) is not None or unwritten_parts(name) != ""), name
