"""Layers inside the stages of hierarchical models: more cuts, and the same work, memory and
parameters in total."""

import json
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from GraphExtractor.check import check_structure
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import GraphKey, ModelGraph
from GraphExtractor.layer_modules import LayerModules
from GraphExtractor.models.registry import find_model
from GraphExtractor.sources.hf_config import HuggingFaceModule
from GraphExtractor.sources.user_module import UserModule

STAGED = Path(__file__).parent / "user_models" / "staged.py"
CONFIGURATIONS = {
    "swin": {
        "architectures": ["SwinForImageClassification"],
        "image_size": 64,
        "patch_size": 4,
        "embed_dim": 16,
        "depths": [2, 3],
        "num_heads": [2, 4],
        "window_size": 4,
    },
    "segformer": {
        "architectures": ["SegformerForImageClassification"],
        "num_encoder_blocks": 2,
        "depths": [2, 6],
        "sr_ratios": [2, 1],
        "hidden_sizes": [16, 32],
        "num_attention_heads": [1, 2],
        "patch_sizes": [7, 3],
        "strides": [4, 2],
        "mlp_ratios": [2, 2],
        "decoder_hidden_size": 16,
        "image_size": 32,
    },
}
NAMES = {
    "swin": [
        "swin.embeddings",
        *["layers.0"] * 2,
        "swin.encoder.layers.0.downsample",
        *["layers.1"] * 3,
        "head",
    ],
    "segformer": [
        "segformer.stages.0.patch_embeddings",
        *["stages.0"] * 2,
        "segformer.stages.0.layer_norm",
        "segformer.stages.1.patch_embeddings",
        *["stages.1"] * 6,
        "head",
    ],
    "staged": [
        "embedding",
        *["down.0"] * 2,
        "down.1.enter",
        *["down.1"] * 6,
        "up.0.enter",
        *["up.0"] * 6,
        "mix.0",
        *["up.1"] * 2,
        "head",
    ],
}


@dataclass(frozen=True, kw_only=True)
class WholeConfiguration(HuggingFaceModule):
    """Of which nothing is looked for inside."""

    def layer_modules(self, model):
        return LayerModules(())


@dataclass(frozen=True, kw_only=True)
class WholeModule(UserModule):
    """Of which nothing is looked for inside."""

    def layer_modules(self, model):
        return LayerModules(())


@pytest.fixture(scope="module", params=NAMES)
def both(request, tmp_path_factory) -> tuple[str, ModelGraph, ModelGraph]:
    """A model in layers, and as one."""
    path = STAGED
    if request.param != "staged":
        path = tmp_path_factory.mktemp(request.param) / "config.json"
        path.write_text(json.dumps({"model_type": request.param, **CONFIGURATIONS[request.param]}))
    family = find_model(str(path))
    key = GraphKey(str(path), 2, 1, 1)
    whole = WholeModule if isinstance(family, UserModule) else WholeConfiguration
    return (
        request.param,
        extract_graph(key, family),
        extract_graph(
            key, whole(**{each.name: getattr(family, each.name) for each in fields(family)})
        ),
    )


def layers(graph):
    return [graph.layers[index] for index in graph.sequence]


@pytest.mark.some(1)
def test_layers_are_those_inside_the_stages(both):
    name, graph, _ = both
    assert [layer.name for layer in layers(graph)] == NAMES[name]
    assert check_structure(graph) == []


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "amount",
    [
        lambda layer: layer.forward.flops,
        lambda layer: layer.backward.flops,
        lambda layer: layer.parameter_count,
        lambda layer: layer.saved.none,
        lambda layer: sum(
            work.elements for operator in layer.forward.operators for work in operator.vector
        ),
    ],
    ids=["forward FLOPs", "backward FLOPs", "parameters", "saved bytes", "element work"],
)
def test_finer_layers_add_up_to_the_whole(both, amount):
    _, fine, coarse = both
    assert len(coarse.sequence) == 1
    assert sum(map(amount, layers(fine))) == amount(layers(coarse)[0])


@pytest.mark.some(1)
def test_repeated_blocks_of_a_stage_are_one_layer(both):
    name, graph, _ = both
    places = [
        place
        for place, layer in enumerate(layers(graph))
        if layer.name == {"swin": "layers.1"}.get(name, "stages.1")
    ]
    if name == "staged":
        places = [place for place, layer in enumerate(layers(graph)) if layer.name == "down.1"][
            :-1
        ]  # the last meets the way up
    distinct = len({graph.sequence[place] for place in places})
    assert (
        distinct == {"swin": 2, "segformer": 1, "staged": 1}[name]
    )  # every second window of Swin is shifted


def test_what_crosses_a_cut_is_the_picture_between_blocks_and_the_skips_over_it():
    graph = extract_graph(GraphKey(str(STAGED), 2, 1, 1))
    crossing = {
        place: sum(
            tensor.bytes
            for tensor in graph.tensors
            if tensor.source < place <= max(tensor.destinations)
        )
        for place in range(1, len(graph.sequence))
    }
    picture = {
        width: 2 * 2 * width * (32 * 8 // width) ** 2 for width in (8, 16, 32)
    }  # bfloat16, two samples
    assert (
        crossing[2] == picture[8] + picture[16]
    )  # between blocks of the first stage: the stem's skip passes over
    assert crossing[5] == picture[8] + picture[16] + picture[32]
    up = NAMES["staged"].index("up.0")
    assert crossing[up + 1] == picture[8] + 2 * picture[16]
    assert crossing[len(crossing)] == 2 * picture[8]
    assert all(tensor.bytes == tensor.gradient_bytes for tensor in graph.tensors)
