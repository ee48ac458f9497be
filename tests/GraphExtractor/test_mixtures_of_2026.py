"""Mixtures of 2025 and 2026: GPT-OSS, Nemotron 3, GPT's blocks with experts; loads of experts and
further tokens."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest

from Estimator.devices.files import load_device, load_software
from Estimator.devices.operator_cost import DeviceModel
from Estimator.plans.host_parts import HostPart, host_parts
from GraphExtractor.extract import BuiltModel, extract_graph
from GraphExtractor.graph import LayerGraph, ModelGraph
from GraphExtractor.graph_key import GraphKey
from GraphExtractor.models.dimensions import parse_dimensions
from GraphExtractor.models.registry import find_model
from phaze.exports.shape import decoder_shape
from phaze_common.errors import InputError
from phaze_common.recompute_modules import recompute_of

TOKENS = 512


@lru_cache
def graph_of(model: str, **given: Any) -> ModelGraph:
    return extract_graph(GraphKey(model, 1, TOKENS, **{"tp": 1, **given}), small(model))


@lru_cache
def small(model: str) -> Any:
    family: Any = find_model(model)
    if model.startswith("nemotron"):
        return replace(family, pattern="MEM*E", layers=5)
    return replace(family, layers=4)


def products(layer: LayerGraph) -> list[Any]:
    return [
        gemm
        for each in layer.forward.operators
        for gemm in each.gemms
        if "experts.bmm" in each.name
    ]


def exchanged(layer: LayerGraph) -> float:
    return sum(
        each.bytes_written for each in layer.forward.operators if each.name.endswith("all_to_all")
    )


@pytest.mark.parametrize(
    ("model", "off"),
    [
        ("gpt-oss-20b", 0.0),
        ("gpt-oss-120b", 0.0),
        ("nemotron-3-nano-30b-a3b", 1e-3),
        ("nemotron-3-super-120b-a12b", 1e-3),
    ],
)
def test_parameters_are_those_of_checkpoints(model: str, off: float) -> None:
    family = find_model(model)
    found = BuiltModel.of(GraphKey(model, 1, TOKENS, 1), family).published_size()
    assert found == pytest.approx(family.published_parameter_count, rel=off)


def test_every_second_block_of_gpt_oss_attends_within_a_window() -> None:
    windows = [
        each.window
        for layer in graph_of("gpt-oss-20b").layers
        for each in layer.forward.operators
        if each.name.endswith("attention")
    ]
    assert sorted({each or 0 for each in windows}) == [0, 127]


def test_biases_and_clamps_are_kernels_of_their_own_in_megatron_core() -> None:
    block = graph_of("gpt-oss-20b").layers[1]
    named = {each.name.rpartition(".")[2].split("+")[0]: each for each in block.forward.operators}
    assert {"expert_bias", "clamped_halves"} <= named.keys()
    software = load_software("megatron_core")
    device = load_device("b200")
    fused, composed = (
        DeviceModel(device, each, "bfloat16").operator_time(named["expert_bias"]).device_s
        for each in (replace(software, composed={}), software)
    )
    assert composed > 5 * fused


def test_layers_of_nemotron_are_mixers_attention_and_experts() -> None:
    kinds = [
        next(
            kind
            for kind, name in (("M", "chunk_scan"), ("*", "attention"), ("E", "route"))
            if any(name in each.name for each in layer.forward.operators)
        )
        for layer in graph_of("nemotron-3-nano-30b-a3b").layers[1:-1]
    ]
    assert sorted(set(kinds)) == ["*", "E", "M"]


def test_experts_of_hybrids_are_recomputed_and_scans_replayed_as_attention() -> None:
    """Megatron-LM's ``moe`` is a layer of experts wherever it stands, and its graphs of ``mamba``
    are of mixers up to their last product."""
    graph = graph_of("nemotron-3-nano-30b-a3b")
    mixer, experts = (
        next(each for each in graph.layers if any(word in op.name for op in each.forward.operators))
        for word in ("chunk_scan", "experts.bmm")
    )
    again = experts.again(recompute_of("moe"))
    assert sum(each.flops for part in again for each in part.operators) == sum(
        each.flops for each in experts.forward.operators if each.name.startswith("mixer.")
    )
    parts = host_parts(mixer)
    assert {parts[each.id] for each in mixer.forward.operators} == {HostPart.ATTENTION}


def test_experts_on_a_latent_exchange_as_much_less() -> None:
    wide, narrow = (
        max(map(exchanged, graph_of(model, ep=8).layers[1:-1]))
        for model in ("nemotron-3-nano-30b-a3b", "nemotron-3-super-120b-a12b")
    )
    rows = 22 / 6  # experts of a token
    assert narrow / wide == pytest.approx(rows * 1024 / 2688, rel=0.02)


def test_modules_of_further_tokens_pass_the_head_again() -> None:
    def heads(model: str) -> int:
        last = graph_of(model).layers[-1]
        return sum("lm_head" in each.name for each in last.forward.operators)

    assert heads("nemotron-3-nano-30b-a3b") == 1
    assert heads("nemotron-3.5-lightning-30b-a3b") == 3


def test_tensor_parallel_devices_have_parts_of_mixers() -> None:
    for model in ("nemotron-3-super-120b-a12b", "gpt-oss-20b"):
        whole, part = graph_of(model), graph_of(model, tp=2, sequence_parallel=True, ep=2)
        for one, other in zip(whole.layers[1:-1], part.layers[1:-1], strict=True):
            assert one.parameter_count > 1.6 * other.parameter_count


def test_contexts_of_mamba_layers_are_not_divided() -> None:
    with pytest.raises(InputError, match="context parallelism of Mamba layers"):
        graph_of("nemotron-3-nano-30b-a3b", cp=2)


@pytest.mark.parametrize("model", ["gpt-oss-20b", "nemotron-3-nano-30b-a3b"])
def test_the_busiest_experts_get_a_multiple_of_rows(model: str) -> None:
    even, busy = graph_of(model, ep=4), graph_of(model, ep=4, expert_load=1.5)
    mixtures = [pair for pair in zip(even.layers, busy.layers, strict=True) if products(pair[0])]
    assert mixtures
    for one, other in mixtures:
        for gemm, more in zip(products(one), products(other), strict=True):
            assert more.m == pytest.approx(1.5 * gemm.m, rel=0.02)
        assert exchanged(other) == pytest.approx(1.5 * exchanged(one), rel=0.02)
        assert other.saved.none > one.saved.none


def test_gpt_with_experts_is_named_by_its_sizes() -> None:
    name = "gptmoe:layers=12,hidden=512,heads=8,ffn=2048,experts=8,chosen=2"
    found = parse_dimensions(name)
    assert found is not None and (found.experts, found.chosen) == (8, 2)
    assert parse_dimensions(found.name) == found
    family = found.model()
    plain = parse_dimensions("gpt:layers=12,hidden=512,heads=8")
    assert plain is not None
    more, less = (
        BuiltModel.of(GraphKey(each.name, 1, TOKENS, 1), each.model()).published_size()
        for each in (found, plain)
    )
    assert decoder_shape(found.name) is None  # launches of dense GPT are not its
    assert family.is_mixture and more - less == pytest.approx(12 * 7 * 2 * 512 * 2048, rel=0.01)


@pytest.mark.parametrize(
    ("model", "experts"),
    [("glm-4.5-air", (False, True, True, True)), ("llama-4-maverick", (False, True) * 2)],
)
def test_experts_stand_behind_or_between_dense_blocks(
    model: str, experts: tuple[bool, ...]
) -> None:
    graph = graph_of(model)
    blocks = [graph.layers[index] for index in graph.sequence[1:-1]]
    assert tuple(bool(products(each)) for each in blocks) == experts
    shared = [op.name for op in blocks[1].forward.operators if "shared_expert" in op.name]
    assert len(shared) == 2


def test_attention_within_chunks_is_not_taken_for_attention_to_all() -> None:
    with pytest.raises(InputError, match=r"chunks of 8192 .* at most 8192"):
        extract_graph(GraphKey("llama-4-scout", 1, 16384, 1))


def test_deepseek_predicts_a_second_token_if_asked_to() -> None:
    """A block with experts, a product that joins both inputs, and the head once more."""
    plain, further = (graph_of(f"deepseek-v3{each}") for each in ("", "-mtp"))
    block = plain.layers[plain.sequence[-2]]
    head, longer = (each.layers[each.sequence[-1]] for each in (plain, further))
    hidden = 7168
    assert longer.parameter_count == head.parameter_count + block.parameter_count + (
        2 * hidden * hidden + 3 * hidden
    )

    def forward(layer: LayerGraph) -> int:
        return sum(each.flops for each in layer.forward.operators)

    join = 2 * TOKENS * 2 * hidden * hidden
    assert forward(longer) == 2 * forward(head) + forward(block) + join
