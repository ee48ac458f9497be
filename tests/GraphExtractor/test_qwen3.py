"""Qwen3: grouped queries, heads of one width, norms of every head."""

from collections import Counter
from dataclasses import replace

import pytest

from GraphExtractor.check import check_invariants, check_structure
from GraphExtractor.graph import CollectiveKind, OperatorKind
from GraphExtractor.models.qwen3 import Qwen3
from GraphExtractor.models.registry import find_model
from GraphExtractor.sources.config_values import ConfigValues, InexpressibleError
from GraphExtractor.widths import allowed_widths

LENGTH = 512


def collectives(operators):
    return [operator.collective for operator in operators.operators if operator.collective]


def norms(layer):
    return Counter(
        w.elements for o in layer.forward.operators for w in o.vector if w.function == "rms_norm"
    )


@pytest.mark.parametrize("model", ["qwen3-0.6b", "qwen3-8b"])
def test_heads_are_128_wide_and_their_queries_and_keys_normalised(model, extracted):
    family, block = find_model(model), extracted(model, sequence_length=LENGTH).layers[1]
    (attention,) = [
        operator for operator in block.forward.operators if operator.kind is OperatorKind.ATTENTION
    ]
    assert [(gemm.batch, gemm.m, gemm.k, gemm.n) for gemm in attention.gemms] == [
        (family.heads, LENGTH, 128, LENGTH),
        (family.heads, LENGTH, LENGTH, 128),
    ]
    expected = Counter({LENGTH * family.hidden: 2})
    expected.update([LENGTH * 128 * family.heads, LENGTH * 128 * family.kv_heads])
    assert norms(block) == expected
    projections = (
        family.hidden * 128 * (2 * family.heads + 2 * family.kv_heads)
        + 3 * family.hidden * family.ffn
    )
    assert block.matmul_parameter_count == projections
    assert block.parameter_count == projections + 2 * family.hidden + 2 * 128


@pytest.mark.parametrize(("model", "tied"), [("qwen3-0.6b", True), ("qwen3-8b", False)])
def test_small_models_tie_their_head(model, tied, extracted):
    assert (extracted(model, sequence_length=LENGTH).layers[-1].tied_count > 0) == tied


@pytest.mark.some(1)
@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_a_block_reduces_as_megatron_does(tp, extracted):
    graph = extracted("qwen3-8b", sequence_length=LENGTH, tp=tp)
    block, whole = graph.layers[1], extracted("qwen3-8b", sequence_length=LENGTH).layers[1]
    assert check_structure(graph) == check_invariants(graph) == []
    assert tp * block.matmul_parameter_count == whole.matmul_parameter_count
    assert (
        block.parameter_count - block.matmul_parameter_count
        == whole.parameter_count - whole.matmul_parameter_count
    )
    payload = 2 * LENGTH * 4096
    for block_pass in (block.forward, block.backward):
        reduced = [
            (each.kind, each.payload_bytes, each.group_size) for each in collectives(block_pass)
        ]
        assert reduced == ([(CollectiveKind.ALL_REDUCE, payload, tp)] * 2 if tp > 1 else [])
    assert norms(block) == Counter(
        [LENGTH * 4096] * 2 + [LENGTH * 128 * heads // tp for heads in (32, 8)]
    )


@pytest.mark.parametrize("tp", [2, 8])
def test_sequence_parallelism_gathers_and_scatters_instead(tp, extracted):
    graph = extracted("qwen3-8b", sequence_length=LENGTH, tp=tp, sequence_parallel=True)
    assert check_structure(graph) == check_invariants(graph) == []
    for block_pass, gathers in ((graph.layers[1].forward, 2), (graph.layers[1].backward, 4)):
        kinds = Counter(each.kind for each in collectives(block_pass))
        assert kinds == {CollectiveKind.ALL_GATHER: gathers, CollectiveKind.REDUCE_SCATTER: 2}
        assert {each.payload_bytes for each in collectives(block_pass)} == {2 * LENGTH * 4096}


def test_widths_divide_the_key_and_value_heads():
    assert allowed_widths(find_model("qwen3-32b")) == (1, 2, 4, 8)


def test_a_configuration_is_read():
    values = {
        "architectures": ["Qwen3ForCausalLM"],
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_attention_heads": 16,
        "num_hidden_layers": 28,
        "num_key_value_heads": 8,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
    }
    small = replace(find_model("qwen3-0.6b"), published_parameter_count=0)
    assert Qwen3.from_config(ConfigValues("config.json", values)) == small
    assert Qwen3.from_config(ConfigValues("config.json", {**values, "head_dim": 64})) == replace(
        small, head_width=64
    )
    with pytest.raises(InexpressibleError, match="use_sliding_window True"):
        Qwen3.from_config(ConfigValues("config.json", {**values, "use_sliding_window": True}))
