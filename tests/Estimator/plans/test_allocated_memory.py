"""What tensors hold against what PyTorch's allocator counted: the functional tests of Megatron-LM
log it by the plan."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from Estimator.devices.files import load_device, load_software
from Estimator.devices.operator_cost import DeviceModel
from Estimator.hardware_files import load_cluster
from Estimator.plans.degrees import UniformPlan
from Estimator.plans.layer_costs import workspace_bytes
from GraphExtractor import extract
from GraphExtractor.graph import Keeping
from GraphExtractor.models.registry import canonical_name
from phaze_common.choices import Precision, Recompute
from phaze_common.recompute_modules import BY_OPERATOR
from phaze_common.units import GIB
from tests.builders.training_cases import graph_for, iteration_of, plan_of

MODEL = canonical_name("gpt:layers=12,hidden=512,heads=8,vocabulary=50257,sequence_length=1024")
# bytes of workspaces that libraries allocate beside the model's tensors, at most; and of what an
# iteration leaves, tokens among them
KERNELS, LEFT = 130e6, 50e6
# tests that go on from a checkpoint, on 8 devices, by what follows the name of the model
RESUMED = {
    "te_tp1_pp4_resume_torch_dist_disable_bias_linear": {"pp": 4, "dp": 2},
    "te_tp1_pp4_vp1_resume_torch_dist": {"pp": 4, "dp": 2, "interleave": 3},
    "te_tp1_pp4_vp1_resume_torch_dist_dist_optimizer_overlap_grad_reduce_untied": {
        **{"pp": 4, "dp": 2, "interleave": 3, "zero_stage": 1}
    },
    "te_tp2_pp1_resume_torch_dist_cp2_nondeterministic": {"tp": 2, "cp": 2, "dp": 2},
    "te_tp2_pp2_resume_torch_dist_no_create_attention_mask_in_dataloader": {
        "tp": 2,
        "pp": 2,
        "dp": 2,
    },
    "te_tp4_pp1_resume_torch_dist_dist_optimizer_overlap_grad_reduce_param_gather": {
        "tp": 4,
        "dp": 2,
        "zero_stage": 1,
    },
}


@pytest.mark.parametrize("name", RESUMED)
def test_peaks_are_those_that_the_allocator_counted(name: str, shared_data: Path) -> None:
    """State at the end of an iteration and the peak, but for the workspaces of kernels; the last
    stage writes the log."""
    table = shared_data / "runs_2026" / "megatron_ci_runs.csv"
    if not table.is_file():
        pytest.skip("the table of Megatron-LM's tests is not there")
    with table.open() as lines:
        runs = [
            row
            for row in csv.DictReader(lines)
            if row["test"] == f"gpt/gpt3_mcore_{name}"
            and row["device"] == "h100"
            and row["mem_max_bytes"]
        ]
    assert runs
    plan = UniformPlan(
        **{"micro_batch_size": 4, "global_batch_size": 32, "precision": Precision.BF16}
        | RESUMED[name]
    )  # type: ignore[arg-type]
    # --no-gradient-accumulation-fusion
    software = load_software("megatron_core").with_gradients_apart
    model = DeviceModel(load_device("h100"), software, "bfloat16")
    graph = extract.extract_graph(plan.graph_key(MODEL, 1024))
    last = iteration_of(graph, plan, model, load_cluster("dgx_h100")).stages[-1]
    for row in runs:
        assert 0 <= float(row["mem_bytes_median"]) - last.parameter_state_bytes <= KERNELS
        assert last.allocated_bytes is not None
        assert float(row["mem_max_bytes"]) == pytest.approx(last.allocated_bytes, abs=LEFT)


@pytest.mark.parametrize(("tp", "bytes_per_logit"), [(1, 4), (2, 0)])
def test_a_loss_that_works_in_place_makes_no_gradient_in_fp32_besides(
    tp: int, bytes_per_logit: int
) -> None:
    """Of vocab-parallel losses the trace shows it; that of one device is traced as torch runs
    it."""
    graph = graph_for(plan_of(tp=tp, micro_batch_size=1))
    head = graph.layers[graph.sequence[-1]]
    as_torch, in_place = (
        workspace_bytes(head, Recompute.NONE, keeping=Keeping(loss_in_place=each))
        for each in (False, True)
    )
    logits = next(
        each.gemms[0].n * each.gemms[0].m for each in head.forward.operators if each.gemms
    )
    assert as_torch - in_place == bytes_per_logit * logits


# GiB allocated by Llama 3 405B of 4 layers on 8 B200 under Megatron-LM with the Transformer Engine
# 2.11 (SimuMax 4dcaae5, docs/b200/b200_release_v1.2_summary.md), by tp, cp and dp
SIMUMAX = {(2, 1, 4): 81.59, (4, 1, 2): 52.89, (8, 1, 1): 38.57, (1, 8, 1): 139.22}
LLAMA = "llama:layers=4,hidden=16384,heads=128,kv_heads=8,ffn=53248,vocabulary=128256"


@pytest.mark.parametrize(("degrees", "gib"), SIMUMAX.items())
def test_empty_gradients_stand_beside_those_that_products_add_up(
    degrees: tuple[int, int, int], gib: float
) -> None:
    """Without them it is 3 to 7 % less."""
    tp, cp, dp = degrees
    length = 4096 * cp
    plan = UniformPlan(
        tp=tp, cp=cp, dp=dp, global_batch_size=4 * dp, zero_stage=1, sequence_parallel=tp > 1
    )
    graph = extract.extract_graph(
        plan.graph_key(canonical_name(f"{LLAMA},sequence_length={length}"), length)
    )
    software = load_software("megatron_core")
    fused, apart = (
        iteration_of(
            graph,
            plan,
            DeviceModel(load_device("b200"), each, "bfloat16"),
            load_cluster("dgx_b200"),
        ).allocated_bytes
        for each in (software, software.with_gradients_apart)
    )
    assert fused == pytest.approx(gib * GIB, rel=0.01)
    assert apart < 0.98 * gib * GIB


# GiB held by PyTorch in Llama 3.1 8B (2 x 8,192 tokens a device) on 8 and 128 H100, and in 70B (tp 8,
# 16 x 8,192 tokens, all blocks recomputed) on 256 (torchtitan, benchmarks/llama3_h100_202412_torchtitan.md)
TORCHTITAN = {
    ("llama3-8b", 1, 8): (77.0, 76.8),
    ("llama3-8b", 1, 128): (62.0, 61.8),
    ("llama3-70b", 8, 32): (71.9, 67.6),
}


@pytest.mark.parametrize(("run", "gib"), TORCHTITAN.items())
def test_shards_and_losses_of_torchtitan_are_those_that_it_logged(
    run: tuple[str, int, int], gib: tuple[float, float]
) -> None:
    """Recomputed by operator, but for the largest, and with a loss whose operators are kernels."""
    name, tp, dp = run
    size = 16 if tp > 1 else 2
    plan = UniformPlan(
        tp=tp,
        dp=dp,
        sequence_parallel=tp > 1,
        micro_batch_size=size,
        global_batch_size=size * dp,
        zero_stage=3,
        precision=Precision.FP8,
        recompute=Recompute.FULL if tp > 1 else BY_OPERATOR,
    )
    model = DeviceModel(load_device("h100"), load_software("pytorch_fsdp_compiled_2024"), "float8")
    graph = extract.extract_graph(plan.graph_key(canonical_name(name), 8192))
    found = iteration_of(graph, plan, model, load_cluster("dgx_h100"))
    assert found.pooled_bytes == pytest.approx(sum(gib) / 2 * GIB, rel=0.04)
    assert found.allocated_bytes < found.pooled_bytes < found.memory_bytes
