"""Layers cut inside: the same work in more pieces, and never where more than one tensor would
pass."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from GraphExtractor import extract
from GraphExtractor.extract import extract_graph
from GraphExtractor.forward_trace import input_shapes, real_model, trace_forward
from GraphExtractor.graph import (
    Attention,
    GraphKey,
    LayerGraph,
    ModelGraph,
    StageCuts,
    TensorLayout,
)
from GraphExtractor.models.registry import canonical_name, find_model

GPT = "gpt:layers=6,hidden=64,heads=4,vocabulary=512"
T5 = {
    **{
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "feed_forward_proj": "relu",
        "vocab_size": 256,
    },
    **{
        "num_layers": 6,
        "num_decoder_layers": 6,
        "d_model": 64,
        "num_heads": 4,
        "d_kv": 16,
        "d_ff": 128,
        "n_positions": 64,
    },
}
LLAMA = {
    **{
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 6,
        "hidden_size": 64,
    },
    **{
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 256,
    },
}
BERT = {
    **{
        "model_type": "bert",
        "architectures": ["BertForMaskedLM"],
        "num_hidden_layers": 6,
        "hidden_size": 64,
    },
    **{
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 256,
        "max_position_embeddings": 64,
    },
}
CONFIGURATIONS = {"t5": T5, "llama": LLAMA, "bert": BERT}


@pytest.fixture(scope="module")
def key_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., GraphKey]:
    folder = tmp_path_factory.mktemp("configurations")
    for name, configuration in CONFIGURATIONS.items():
        (folder / f"{name}.json").write_text(json.dumps(configuration))

    def key(model: str, **values: Any) -> GraphKey:
        path: Path = folder / f"{model}.json"
        return GraphKey(
            canonical_name(str(path) if path.exists() else model), 2, 32, **{"tp": 1, **values}
        )

    return key


def both(key: GraphKey) -> tuple[ModelGraph, ModelGraph]:
    return extract.extract_graph(key), extract.extract_graph(replace(key, cuts=StageCuts.INSIDE))


def everywhere(graph: ModelGraph, of: Callable[[LayerGraph], Any]) -> list[Any]:
    return [of(graph.layers[index]) for index in graph.sequence]


CASES = [
    ("t5", {}),
    ("llama", {"tp": 2, "sequence_parallel": True}),
    ("llama", {"cp": 2}),
    ("bert", {"attention": Attention.EAGER}),
    (GPT, {"tp": 2, "tp2": 2, "layout": TensorLayout.TWO_D}),
]


@pytest.mark.some(2)
@pytest.mark.parametrize(("model", "values"), CASES)
def test_parts_do_the_work_of_their_layers(
    model: str, values: dict[str, Any], key_of: Callable[..., GraphKey]
) -> None:
    whole, cut = both(key_of(model, **values))
    assert len(cut.sequence) > 1.8 * (len(whole.sequence) - 2)
    assert cut.total_parameter_count == whole.total_parameter_count
    for of in (
        lambda layer: layer.parameter_count - layer.tied_count,
        lambda layer: layer.matmul_parameter_count,
        lambda layer: sum(gemm.macs for each in layer.forward.operators for gemm in each.gemms),
        lambda layer: sum(
            gemm.batch * gemm.m * gemm.k * gemm.n
            for each in layer.backward_selective.operators
            for gemm in each.gemms
        ),
        lambda layer: sum(
            each.collective is not None
            for each in (*layer.forward.operators, *layer.backward.operators)
        ),
    ):
        assert sum(everywhere(cut, of)) == sum(everywhere(whole, of))
    kept = [
        sum(everywhere(graph, lambda layer: layer.saved.none))
        - sum(each.bytes * (len(each.none) - 1) for each in graph.shared if each.none)
        for graph in (whole, cut)
    ]
    assert kept[0] == kept[1]


@pytest.mark.parametrize("model", ["t5", "llama", GPT])
def test_representatives_stand_for_the_parts_of_all_blocks(
    model: str, key_of: Callable[..., GraphKey], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = replace(key_of(model), cuts=StageCuts.INSIDE)
    short = extract_graph(key)
    monkeypatch.setattr(extract, "_blocks_are_alike", lambda *_: False)  # all are built
    monkeypatch.setattr(extract.BuiltModel, "representatives", lambda built, ahead: {})
    assert extract_graph(key) == short


@pytest.mark.some(2)
@pytest.mark.parametrize("model", ["llama", "bert", GPT])
def test_one_tensor_passes_where_a_layer_is_cut(
    model: str, key_of: Callable[..., GraphKey]
) -> None:
    _, cut = both(key_of(model))
    names = [cut.layers[index].name for index in cut.sequence]
    first, second = dict.fromkeys(names[1:-1])
    assert names[1:-1] == [first, second] * 6
    for position in range(1, len(names) - 1):
        (trained,) = [
            tensor for tensor in cut.tensors if tensor.gradient_bytes and tensor.source == position
        ]
        assert trained.destinations == (position + 1,)
        assert trained.bytes == 2 * 32 * 64 * 2


def test_branches_beside_each_other_are_not_cut() -> None:
    whole, cut = both(GraphKey("resnet-50", 1, find_model("resnet-50").sequence_length, 1))
    assert replace(cut, key=whole.key) == whole


def test_the_trace_that_is_trained_has_the_same_layers(key_of: Callable[..., GraphKey]) -> None:
    key = replace(key_of("t5"), cuts=StageCuts.INSIDE, dtype="float32")
    family, graph = find_model(key.model), extract.extract_graph(key)
    trace = trace_forward(real_model(family, key), family, key)
    assert input_shapes(family, key)
    assert [name.rstrip("0123456789").rstrip(".") for name in trace.layers] == everywhere(
        graph, lambda layer: layer.name
    )
