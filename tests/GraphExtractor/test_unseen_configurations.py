"""Configurations of transformers that were refused once, against what torch counts of them, and the
kinds behind them."""

import json
import re
from dataclasses import replace

import pytest
import torch

from GraphExtractor import delta_rule
from GraphExtractor.attention import register_attention
from GraphExtractor.check import check_invariants, product_flops
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import Attention, CollectiveGroup, GraphKey, TensorLayout
from GraphExtractor.known_values import KnownValues
from GraphExtractor.models.registry import find_model
from GraphExtractor.sources.hf_inputs import Reader
from GraphExtractor.torch_internals import FakeTensorMode

CASES = ("hf_deepseek_v32", "hf_jetmoe", "hf_llama4_multimodal", "hf_qwen3next")
MIXTURES = {
    "gpt_oss": {
        "architectures": ["GptOssForCausalLM"],
        "num_local_experts": 4,
        "head_dim": 32,
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 16,
    },
    "deepseek_v2": {
        "architectures": ["DeepseekV2ForCausalLM"],
        "n_routed_experts": 4,
        "moe_intermediate_size": 48,
        "num_key_value_heads": 4,
        "q_lora_rank": None,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 16,
        "v_head_dim": 16,
        "first_k_dense_replace": 1,
    },
}
SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 256,
    "max_position_embeddings": 64,
    "num_experts_per_tok": 2,
}
GROUPED = "gpt:layers=2,hidden=64,heads=8,kv_heads=2,vocabulary=256,sequence_length=32"


def forward_flops(graph):
    found = [product_flops(graph.layers[index]) for index in graph.sequence]
    return sum(each.forward + each.score_forward for each in found)


@pytest.mark.some(2)
@pytest.mark.parametrize("case", CASES)
def test_forward_products_are_those_that_torch_counts(shared_data, case):
    folder = shared_data / "cases_2026" / case
    if not folder.is_dir():
        pytest.skip(f"cases_2026/{case} is not among the shared data")
    counted = re.search(r"(\d+\.\d+) GFLOP", (folder / "NOTE.md").read_text(encoding="utf-8"))
    graph = extract_graph(GraphKey(str(folder / "config.json"), 1, 128, 1))
    assert round(forward_flops(graph) / 1e9, 5) == float(counted[1])


@pytest.mark.parametrize("model_type", MIXTURES)
def test_experts_of_a_configuration_are_divided(tmp_path, model_type):
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({"model_type": model_type, **SIZES, **MIXTURES[model_type]}), encoding="utf-8"
    )
    key = GraphKey(str(path), 2, 32, 1)
    whole, shared = extract_graph(key), extract_graph(replace(key, ep=2))
    assert forward_flops(shared) == forward_flops(whole)
    assert shared.total_parameter_count == whole.total_parameter_count
    experts = [
        sum(each.layers[index].expert_parameter_count for index in each.sequence)
        for each in (whole, shared)
    ]
    assert experts[0] == 2 * experts[1] > 0
    exchanges = [
        each.collective
        for index in shared.sequence
        for each in shared.layers[index].forward.operators
        if each.collective is not None
    ]
    assert {each.group for each in exchanges} == {CollectiveGroup.EXPERT}
    assert {each.payload_bytes for each in exchanges} == {
        2 * 32 * 2 * 64 * 2
    }  # tokens, choices, width, bf16


@pytest.mark.parametrize(
    ("model_type", "more", "divisible", "mixture"),
    [
        ("jetmoe", {"num_local_experts": 4}, 0, True),  # whose code holds each expert by itself
        ("llama4", {}, 0, True),
        ("gpt_oss", {"num_local_experts": 4}, 4, True),
        ("olmo2", {}, 0, False),
        ("doge", {}, 0, False),
        ("doge", {"is_moe": True}, 0, True),
    ],
)
def test_what_has_experts_is_a_mixture_whether_they_can_be_divided_or_not(
    tmp_path, model_type, more, divisible, mixture
):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": model_type, **SIZES, **more}), encoding="utf-8")
    family = find_model(str(path))
    assert (family.experts, family.is_mixture) == (divisible, mixture)


@pytest.mark.parametrize(
    "degrees", [{}, {"tp": 2}, {"tp": 2, "sequence_parallel": True}, {"cp": 2}, {"tp2": 2}], ids=str
)
def test_heads_of_gpt_share_keys_and_values(degrees):
    key = replace(GraphKey(GROUPED, 2, 32, 1), **degrees)
    key = replace(key, layout=TensorLayout.TWO_D) if key.tp2 > 1 else key
    graph = extract_graph(key)
    plain = extract_graph(GraphKey(GROUPED.replace("kv_heads=2,", ""), 2, 32, 1))
    assert check_invariants(graph) == []
    assert plain.total_parameter_count - graph.total_parameter_count == 2 * (64 + 1) * 2 * (64 - 16)


def with_sections(**rotation):
    text = {name: value for name, value in SIZES.items() if name != "num_experts_per_tok"}
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e6, **rotation}
    vision = {
        "depth": 1,
        "embed_dim": 64,
        "hidden_size": 64,
        "num_heads": 4,
        "mlp_ratio": 2,
        "patch_size": 14,
    }
    special = {
        "image_token_id": 5,
        "video_token_id": 6,
        "vision_start_token_id": 3,
        "vision_end_token_id": 4,
    }
    return {"model_type": "qwen2_vl", "text_config": text, "vision_config": vision, **special}


def test_sections_of_heads_fit_heads_that_are_smaller_than_released_ones(tmp_path, caplog):
    graphs = []
    for place, rotation in enumerate(
        ({}, {"mrope_section": [4, 6, 6]}, {"mrope_section": [2, 3, 3]})
    ):
        path = tmp_path / f"{place}.json"
        path.write_text(json.dumps(with_sections(**rotation)), encoding="utf-8")
        graphs.append(extract_graph(GraphKey(str(path), 1, 32, 1)))
        assert ("[2, 3, 3] is priced" in caplog.text) == (place < 2)
        caplog.clear()
    assert len({forward_flops(graph) for graph in graphs}) == 1
    assert len({graph.total_parameter_count for graph in graphs}) == 1


@pytest.mark.parametrize("attention", Attention)
def test_a_mask_given_by_its_name_is_one_given_in_its_place(attention):
    from transformers import AttentionInterface

    attend = AttentionInterface()[register_attention(attention)]
    with FakeTensorMode():
        q, k, v = torch.empty(3, 2, 4, 8, 16, requires_grad=True).unbind()
        for mask in (torch.empty(2, 4, 8, 8, requires_grad=True), torch.empty(2, 1, 8, 8)):
            results = [
                attend(torch.nn.Module(), q, k, v, mask, scaling=1.0),
                attend(torch.nn.Module(), q, k, v, attention_mask=mask, scaling=1.0),
            ]
            shapes = []
            for out, _ in results:
                reached = [each for each in (q, k, v, mask) if each.requires_grad]
                shapes.append([each.shape for each in torch.autograd.grad(out.sum(), reached)])
            assert shapes[0] == shapes[1] == [each.shape for each in reached]


def test_a_loss_of_other_targets_is_left_out(tmp_path, caplog):
    path = tmp_path / "config.json"
    sizes = {**SIZES, "max_position_embeddings": 40, "image_size": 32, "patch_size": 16}
    path.write_text(
        json.dumps({"model_type": "vilt", "architectures": ["ViltForQuestionAnswering"], **sizes}),
        encoding="utf-8",
    )
    graph = extract_graph(GraphKey(str(path), 2, 32, 1))
    assert (
        "the mean of its output stands for it" in caplog.text
        and "without images" not in caplog.text
    )
    assert forward_flops(graph) > 0


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("RTDetr", (640, 640)),
        ("RTDetrV2", (640, 640)),
        ("DFine", (640, 640)),
        ("Detr", (800, 1333)),
    ],
)
def test_detectors_read_images_as_large_as_they_scale_them_to(name, size):
    transformers = pytest.importorskip("transformers")
    architecture = getattr(transformers, f"{name}ForObjectDetection")
    images = dict(Reader(architecture, architecture.config_class(), "config.json").images(2, 1))
    assert images["pixel_values"].shape == (2, 3, *size)


@pytest.mark.parametrize(("rows", "options", "chosen"), [(8, 4, 1), (8, 4, 2), (6, 5, 3)])
def test_choices_among_computed_numbers_are_balanced(rows, options, chosen):
    with FakeTensorMode(), KnownValues():
        scores = torch.empty(rows, options).sigmoid()
        of_each = (
            torch.zeros(rows, options)
            .scatter(1, scores.topk(chosen, 1).indices, 1)
            .long()
            .sum(0)
            .tolist()
        )
        best = torch.nn.functional.one_hot(scores.argmax(-1), options).sum(0).tolist()
    assert sum(of_each) == rows * chosen and max(of_each) - min(of_each) <= 1
    assert sum(best) == rows and max(best) - min(best) <= 1


@pytest.mark.parametrize(("tokens", "heads"), [(64, 3), (100, 6)])
def test_delta_rules_are_those_of_transformers(monkeypatch, tokens, heads):
    kimi = pytest.importorskip("transformers.models.kimi_linear.modeling_kimi_linear")
    qwen = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    # the operator itself is a shape
    monkeypatch.setattr(delta_rule, "inverse", torch.linalg.inv)
    torch.manual_seed(0)
    query, key = torch.randn(2, 2, tokens, 3, 8).unbind()
    value, beta = torch.randn(2, tokens, heads, 8), torch.rand(2, tokens, heads)
    settings = {"beta": beta, "use_qk_l2norm_in_kernel": True, "output_final_state": True}
    pairs = [
        (
            qwen.torch_chunk_gated_delta_rule,
            delta_rule.gated_delta_rule,
            -torch.rand(2, tokens, heads),
        )
    ]
    if heads == 3:
        pairs.append(
            (
                kimi.chunk_kimi_delta_attention,
                delta_rule.channel_delta_rule,
                -torch.rand(2, tokens, heads, 8),
            )
        )
    for theirs, ours, decay in pairs:
        given, found = (rule(query, key, value, g=decay, **settings) for rule in (theirs, ours))
        for one, other in zip(given, found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
