"""Tables of 2026: Megatron-LM's tests, mixtures by their dimensions, figures of memory, and what
recipes keep in fewer bits."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from complete_run import row_with
from unpriced import no_plan_of_ours

from GraphExtractor.models.dimensions import parse_dimensions
from phaze.validation.assumptions import Assumptions, Notes
from phaze.validation.intervals import family_of
from phaze.validation.megatron_tests import GPT_VOCABULARY, SOURCE
from phaze.validation.published_words import memory_in, recompute_in
from phaze.validation.records import ValidationReport
from phaze.validation.run import validate
from phaze.validation.run_model import matrices_of, model_of
from phaze.validation.run_plan import degrees_of, possible_plans
from phaze.validation.runs import columns_not_read, read_runs
from phaze.validation.translation import translated
from phaze.validation.typed_run import MemoryFigure, TypedRun
from phaze_common.choices import Attention, ExpertWidth, MomentDtype, Precision, Recompute
from phaze_common.errors import InputError
from phaze_common.progress import SilentProgress
from phaze_common.recompute_modules import recompute_of
from phaze_common.units import GIB
from scripts.run_errors import figures

TEST = {  # a test of Megatron-LM as its table has it
    "test": "gpt/gpt3_mcore_te_tp1_pp4_vp1_resume_torch_dist_dist_optimizer",
    "golden": "golden_values_dev_dgx_h100.json",
    "device": "h100",
    "nodes_gpus": "1x8",
    "layers": "12",
    "hidden": "512",
    "heads": "8",
    "ffn": "",
    "seq": "1024",
    "experts": "",
    "topk": "",
    "tp": "1",
    "pp": "4",
    "vpp_layers": "1",
    "ep": "",
    "mbs": "4",
    "gbs": "32",
    "recompute": "",
    "modules": "",
    "dist_opt": "True",
    "bf16": "True",
    "fp8": "",
    "iteration_s_median": "0.102",
    "mem_bytes_median": "552349184",
    "mem_max_bytes": "2433476608",
}


def table_of(path: Path, *changes: dict[str, str]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(TEST))
        writer.writeheader()
        writer.writerows([TEST | change for change in changes])
    return path


def priced(path: Path, graphs: Path) -> ValidationReport:
    return validate(path, None, None, None, graphs, SilentProgress(), no_plan_of_ours)


def read(rules: Assumptions, **changes: object) -> TypedRun:
    return translated(row_with(**({"parameters": None} | changes)), rules, Notes())


def test_a_test_of_megatron_is_a_run(tmp_path: Path, rules: Assumptions) -> None:
    local = {
        "test": "gpt/gpt3_mcore_tp1_pp2",
        "nodes_gpus": "2x4",
        "pp": "2",
        "vpp_layers": "",
        "recompute": "full",
        "dist_opt": "",
        "bf16": "",
    }
    path = table_of(tmp_path / "tests.csv", {}, local)
    first, second = (each.run for each in read_runs(path, rules))
    assert (first.source, first.device, first.devices, first.family) == (SOURCE, "h100", 8, "gpt")
    assert (first.interleave, first.zero_stage, first.vocabulary) == (3, 1, GPT_VOCABULARY)
    assert (first.precision, first.attention) == (Precision.BF16, Attention.FLASH)
    assert (first.iteration_s, first.memory_bytes) == (0.102, 2433476608)
    assert first.memory_kind is MemoryFigure.LAST_STAGE
    assert (second.interleave, second.zero_stage, second.recompute) == (1, 0, Recompute.FULL)
    assert (second.devices, second.precision) == (8, Precision.FP16)
    assert second.attention is Attention.EAGER
    assert columns_not_read(path) == ("mem_bytes_median",)
    assert first.fused_gradients is False


@pytest.mark.parametrize(
    ("test", "golden", "attention"),
    [
        ("gpt/gpt3_mcore_te_tp1_pp4_vp1", "golden_values_dev_dgx_h100.json", Attention.EAGER),
        ("gpt/gpt3_mcore_te_tp1_pp4_vp1_resume_torch_dist", "golden_lts.json", Attention.FLASH),
        ("gpt/gpt3_mcore_te_tp1_pp4_resume_torch", "dgxa100_dracooci.json", Attention.EAGER),
        ("gpt/gpt3_mcore_te_tp2_pp2_cp2", "golden_values_dev_dgx_h100.json", Attention.FLASH),
        ("gpt/gpt3_mcore_tp1_pp2_resume_torch", "golden_lts.json", Attention.EAGER),
        ("gpt/gpt3_7b_tp1_pp4_memory_speed", "golden_lts.json", Attention.FLASH),
        ("bert/bert_mcore_tp1_pp2", "golden_lts.json", Attention.EAGER),
    ],
)
def test_which_tests_of_megatron_have_unfused_attention(
    tmp_path: Path, rules: Assumptions, test: str, golden: str, attention: Attention
) -> None:
    path = table_of(tmp_path / "tests.csv", {"test": test, "golden": golden})
    assert read_runs(path, rules)[0].run.attention is attention


def test_where_its_recipe_is_gone_a_test_ran_on_one_server_before_attention_was_fused(
    tmp_path: Path, rules: Assumptions
) -> None:
    """Experts' tests are as those of dense models: resumed ones have fused attention by now."""
    gone = {"nodes_gpus": "", "golden": "golden_values_lts_dgx_a100.json", "device": "a100"}
    experts = {"test": TEST["test"].replace("gpt/", "moe/"), "experts": "8", "ep": "2"}
    table = table_of(tmp_path / "tests.csv", {}, gone, experts, experts | gone)
    runs = [each.run for each in read_runs(table, rules)]
    assert [each.devices for each in runs] == [8, 8, 8, 8]
    eager = [each.attention is Attention.EAGER for each in runs]
    assert eager == [False, True, False, True]
    grace = gone | {"device": "gb200"}  # of which some tests take half of a server
    assert read_runs(table_of(table, grace), rules)[0].run.devices is None


def test_a_test_without_machines_or_of_a_mixture_says_why_it_is_not_predicted(
    tmp_path: Path, graphs: Path
) -> None:
    mixture = {"test": "moe/gpt3_mcore_tp2_pp2_ep2_te", "experts": "4", "topk": "1", "ep": "2"}
    latent = mixture | {"ffn": "2048"}
    release = {"test": TEST["test"] + "_release_sm", "nodes_gpus": ""}
    path = table_of(tmp_path / "tests.csv", {}, release, mixture, latent)
    known, without, experts, gated = priced(path, graphs).runs
    assert not known.reason and known.predicted_memory_bytes is not None
    assert known.memory_error == pytest.approx(0.0, abs=0.1)
    assert "on how many devices" in without.reason
    assert not experts.reason and "experts=4,chosen=1" in experts.model
    assert "mixture of experts" in gated.reason


@pytest.mark.parametrize(
    ("words", "unit", "kind"),
    [
        ("memory in GiB allocated; 162.29 GiB reserved", GIB / 1e9, MemoryFigure.ALLOCATED),
        ("sampled at iteration 100; memory in GiB", GIB / 1e9, None),
        ("memory in GB reserved", 1.0, MemoryFigure.RESERVED),
        ("memory as allocated on the last stage", 1.0, MemoryFigure.LAST_STAGE),
        ("all lighter lists of modules run out of memory", 1.0, None),
        ("", 1.0, None),
    ],
)
def test_units_of_memory_and_what_a_figure_counts(
    words: str, unit: float, kind: MemoryFigure | None
) -> None:
    assert memory_in(words) == (unit, kind)


def test_memory_in_gibibytes_is_read_as_such(rules: Assumptions) -> None:
    run = read(rules, memory_bytes=80e9, notes="memory in GiB allocated")
    assert run.memory_bytes == pytest.approx(80 * GIB)
    assert run.memory_kind is MemoryFigure.ALLOCATED


BY_NAME: dict[str, object] = {
    **{"layers": None, "hidden": None, "heads": None, "ffn": None, "vocabulary": None},
    "gpu": "H100",
    "framework": "NeMo",
    "precision": "bf16",
}


@pytest.mark.parametrize(
    ("model", "billions", "active"),
    [("Grok 1 314b BF16", 314, 86)],
)
def test_mixtures_that_dimensions_spell_out(
    rules: Assumptions, model: str, billions: float, active: float
) -> None:
    """As many parameters as their makers say, in all and, but for the embedding, for a token."""
    run = read(rules, **BY_NAME, model=model)
    found, dimensions = model_of(run, 4096, rules, Notes()), parse_dimensions(run.model)
    assert dimensions is not None and found.experts and found.layers == dimensions.layers
    looked_up = dimensions.vocabulary * dimensions.hidden
    assert (found.active_parameters - looked_up) / 1e9 == pytest.approx(active, rel=0.03)
    matrices = matrices_of(dimensions)
    routed = matrices.routed(dimensions.experts, dimensions.ffn)
    every = matrices.total(dimensions.layers, dimensions.layers, routed)
    assert every / 1e9 == pytest.approx(billions, rel=0.01)


@pytest.mark.parametrize(
    ("words", "listed"),
    [
        ("GPT OSS 120B", "gpt-oss-120b"),
        ("gpt_oss_20b", "gpt-oss-20b"),
        ("Nemotron_3_Nano", "nemotron-3-nano-30b-a3b"),
        ("nemotron_3_super_120b_a12b", "nemotron-3-super-120b-a12b"),
        ("Nemotron V3 Super 120B (26.02)", "nemotron-3-super-120b-a12b"),
        ("nemotron_3_5_lightning", "nemotron-3.5-lightning-30b-a3b"),
        ("DeepSeek-V2 truncated to 4 layers", "deepseek-v2-4-layers"),
    ],
)
def test_mixtures_that_are_listed(rules: Assumptions, words: str, listed: str) -> None:
    run = read(rules, **BY_NAME, model=words)
    assert run.model == listed and model_of(run, 4096, rules, Notes()).experts


def test_a_mixture_of_another_depth_is_read_and_one_of_other_experts_refused(
    rules: Assumptions,
) -> None:
    deep = read(rules, **BY_NAME, model="Grok 1 314b")
    shallow = read(rules, **BY_NAME | {"layers": 4}, model="Grok 1 314b Dev FP8")
    found = [model_of(each, 4096, rules, Notes()) for each in (deep, shallow)]
    assert [each.layers for each in found] == [64, 4]
    per_layer = (found[0].active_parameters - found[1].active_parameters) / 60
    assert per_layer == pytest.approx(2 * 3 * 6144 * 32768 + 6144 * (6144 + 1024) * 2, rel=0.01)
    with pytest.raises(InputError, match=r"says 16 experts, but .* has 8"):
        read(rules, **BY_NAME, model="Grok 1", experts=16)
    with pytest.raises(InputError, match="experts that is not listed"):
        read(rules, **BY_NAME | {"hidden": 4096}, model="Grok 1")
    folded = replace(deep, degrees=replace(deep.degrees, tp=4, etp=2))
    with pytest.raises(InputError, match="divided over 2 devices where the rest is over tp 4"):
        model_of(folded, 4096, rules, Notes())


@pytest.mark.parametrize(
    ("said", "ep", "width"),
    [
        (None, 4, ExpertWidth.SAME),  # replicas suffice
        (None, 8, ExpertWidth.ONE),
        (2, 8, ExpertWidth.SAME),  # it says otherwise; the plan is refused
        (None, 16, ExpertWidth.SAME),  # nor would whole ones do
    ],
)
def test_experts_are_whole_where_more_devices_hold_them_than_there_are_replicas(
    said: int | None, ep: int, width: ExpertWidth, rules: Assumptions
) -> None:
    deep = read(rules, **BY_NAME, model="Grok 1 314b")
    degrees = replace(deep.degrees, tp=2, pp=1, dp=4, cp=1, ep=ep, etp=said)
    notes = Notes()
    found = degrees_of(replace(deep, devices=8, degrees=degrees), notes)
    assert (found.ep, found.etp) == (ep, width)
    assumed = "experts" in {each.rule for each in notes.made()}
    assert assumed == (width is ExpertWidth.ONE)


def test_recipes_keep_gradients_and_moments_in_fewer_bits(rules: Assumptions) -> None:
    bridge = {
        **BY_NAME,
        "framework": "NeMo 26.04 container / Megatron-Bridge v0.4.0",
        "source": "Megatron-Bridge 26.04 performance summary",
    }
    deepseek = read(rules, **bridge, model="DeepSeekV3")
    qwen = read(rules, **bridge, model="Qwen3_30B_a3B")
    assert (deepseek.gradient_bytes, deepseek.moment_dtype) == (2, MomentDtype.BF16)
    assert (qwen.gradient_bytes, qwen.moment_dtype) == (2, None)


def test_releases_of_a_table_are_one_family() -> None:
    same = "Megatron-Bridge performance summary"
    assert {
        family_of(f"Megatron-Bridge {each} performance summary") for each in ("26.04", "26.04.01")
    } == {same}
    assert family_of("dgxc-benchmarking v24.11.1") == "dgxc-benchmarking"
    assert family_of("MaxText configs README (v5p)") == "MaxText configs README (v5p)"


def test_figures_of_a_family() -> None:
    interval = {"nominal": 0.8, "low_s": 0.5, "high_s": 2.0}
    run = {
        "skipped": False,
        "error": 0.2,
        "measured_s": 1.0,
        "memory_error": None,
        "fits": True,
        "time_intervals": [interval],
    }
    other = run | {"error": -0.4, "measured_s": 3.0, "memory_error": 0.1, "fits": False}
    found = figures([run, other, {"skipped": True}])
    assert (found["runs"], found["priced"]) == ("3", "2")
    assert (found["error"], found["bias"], found["inside 80 %"]) == ("30.0%", "-10.0%", "50.0%")
    assert (found["width"], found["too large"]) == ("x4.0", "1 (50.0%)")
    assert (found["memory runs"], found["memory error"]) == ("1", "10.0%")


@pytest.mark.parametrize(
    ("words", "mode"),
    [
        ("selective: layernorm, moe", "moe+layernorm"),
        ("selective: ['moe_act', 'moe', 'core_attn']", "core_attn+moe"),
        ("moe+layernorm+core_attn", "core_attn+moe+layernorm"),
        ("selective: moe_act+layernorm", "moe_act+layernorm"),
        ("mla_up_proj, mlp", "mla_up_proj+mlp"),
        ("core_attn", Recompute.SELECTIVE),
        ("selective", Recompute.SELECTIVE),
        ("selective (op)", "second_products"),
        ("none (but for moe at times)", Recompute.NONE),
    ],
)
def test_modules_are_recomputed_by_name(words: str, mode: str) -> None:
    assert recompute_in(words) == recompute_of(mode)


def test_layers_whose_activations_are_offloaded_are_a_part_of_the_plan(
    rules: Assumptions,
) -> None:
    notes = Notes()
    words = {**BY_NAME, "model": "LLAMA3_70B", "overlap": "activation offload 20 layers"}
    run = translated(row_with(**words, parameters=None), rules, notes)
    assert run.offloaded_activations == 0.25
    said = {each.rule: each.value for each in notes.made()}
    assert "not_priced" not in said and "25% of the layers" in said["words"]
    plans = possible_plans(run, degrees_of(run, Notes()), 80, (Recompute.NONE,), rules, Notes())
    assert {each.plan.offload.activations for each in plans} == {0.25}
    assert read(rules, **BY_NAME, model="LLAMA3_70B").offloaded_activations is None


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({"source": "Megatron-Bridge model verification card"}, None),
        (
            {
                "source": "Megatron-Bridge model verification card",
                "notes": "pretrain_performance; mean of last 10 steps",
            },
            2,
        ),
        ({"source": "NVIDIA dgxc-benchmarking v25.02", "precision": "fp8"}, 2),
        ({"source": "NVIDIA dgxc-benchmarking v25.02", "precision": "bf16"}, 2),
        ({"source": "NVIDIA dgxc-benchmarking v24.11.1", "precision": "fp8"}, 2),
        ({"source": "NeMo Automodel performance summary"}, 2),
        ({"source": "a page", "framework": "NeMo 25.02"}, None),
    ],
)
def test_which_recipes_reduce_gradients_in_two_bytes(
    rules: Assumptions, changes: dict[str, str], kept: int | None
) -> None:
    run = read(rules, **{**BY_NAME, "model": "LLAMA3_8B"} | changes)
    assert run.gradient_bytes == kept


def test_a_model_that_is_no_plain_language_model_says_so(rules: Assumptions) -> None:
    with pytest.raises(InputError, match="no language model of a family here"):
        read(rules, model="mimo/mimo_vlm_pretrain_convergence_tp1_pp1")


@pytest.mark.parametrize(
    ("changes", "held"),
    [
        ({"gpu": "DGX-GB200", "precision": "fp8-cs"}, True),
        ({"gpu": "DGX-B300", "precision": "fp8"}, True),
        ({"gpu": "DGX-GB200", "precision": "mxfp8"}, False),  # two copies, with scales of their own
        ({"gpu": "DGX-H100", "precision": "fp8"}, None),
        ({"gpu": "DGX-GB200", "precision": "bf16"}, None),
        ({"gpu": "DGX-GB200", "precision": "fp8", "source": "a table of 2026"}, None),
    ],
)
def test_weights_are_held_in_fp8_where_recipes_gather_them_so(
    rules: Assumptions, changes: dict[str, str], held: bool | None
) -> None:
    bridge = {"source": "Megatron-Bridge 26.04 performance summary", "model": "LLAMA3_70B"}
    run = read(rules, **{**BY_NAME, **bridge} | changes)
    assert run.fp8_weights is held
    plans = possible_plans(run, degrees_of(run, Notes()), 80, (Recompute.NONE,), rules, Notes())
    assert {each.plan.state_formats.fp8_weights for each in plans} == {bool(held)}


@pytest.mark.parametrize(
    ("policy", "mode", "part"),
    [
        ("remat_policy=custom; decoder_layer_input=offload", Recompute.FULL, 1.0),
        (
            "remat_policy=custom; decoder_layer_input=offload; query_proj=offload",
            Recompute.FULL,
            1.0,
        ),
        ("remat_policy=custom; decoder_layer_input=device", Recompute.FULL, None),
        ("remat_policy=custom; decoder_layer_input=offload; query_proj=device", None, None),
        ("remat_policy=full", Recompute.FULL, None),
    ],
)
def test_what_a_policy_of_maxtext_keeps_in_host_memory(
    rules: Assumptions, policy: str, mode: Recompute | None, part: float | None
) -> None:
    words = {**BY_NAME, "model": "LLAMA3_70B", "recompute": policy}
    run = read(rules, **words | {"gpu": "TPU v6e", "framework": "MaxText"})
    assert (run.recompute, run.offloaded_activations) == (mode, part)
    unknown_link = read(rules, **words | {"gpu": "TPU v4", "framework": "MaxText"})
    assert unknown_link.offloaded_activations is None


def test_virtual_stages_of_which_embedding_and_loss_are_two(
    tmp_path: Path, rules: Assumptions
) -> None:
    name = "gpt/gpt3_mcore_te_tp1_pp4_vp2_account_for_embedding_loss_in_pipeline_split"
    path = table_of(tmp_path / "tests.csv", {"test": name, "layers": "6", "vpp_layers": ""})
    run = read_runs(path, rules)[0].run
    assert run.interleave == 2
    (candidate,) = possible_plans(
        run, degrees_of(run, Notes()), 6, (Recompute.NONE,), rules, Notes()
    )
    assert candidate.plan.stage_layers == (1,) * 8
