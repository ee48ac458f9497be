"""Vision Transformer: patches, a class token, a classifier that is not divided."""

from dataclasses import replace

import pytest
from whole_traces import shared_by

from GraphExtractor.check import check_invariants, check_structure
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import Attention, CollectiveKind, GraphKey, LayerTensor, OperatorKind
from GraphExtractor.models.registry import canonical_name, find_model
from GraphExtractor.models.vit import Vit
from GraphExtractor.sources.config_values import ConfigValues, InexpressibleError
from GraphExtractor.widths import allowed_widths
from phaze_common.errors import InputError

GMACS = {
    "vit-b-16": 17.56,
    "vit-l-16": 61.55,
    "vit-h-14": 167.3,
}  # torchvision's ViTs count 17.56 and 61.55 at 224 pixels


def layers(graph):
    return [graph.layers[index] for index in graph.sequence]


def collectives(operators):
    return [operator.collective for operator in operators.operators if operator.collective]


@pytest.mark.some(1)
@pytest.mark.parametrize("model", GMACS)
def test_a_forward_pass_takes_the_published_operations(model, extracted):
    graph, family = extracted(model), find_model(model)
    assert check_structure(graph) == check_invariants(graph) == []
    assert sum(layer.forward.flops for layer in layers(graph)) / 2e9 == pytest.approx(
        GMACS[model], rel=0.002
    )
    assert [layer.name for layer in layers(graph)] == [
        "embedding",
        *["block"] * family.layers,
        "head",
    ]
    assert sum(layer.parameter_count for layer in layers(graph)) == graph.total_parameter_count


def test_patches_come_from_one_convolution(extracted):
    (patches,) = extracted("vit-l-16", 3).layers[0].forward.operators
    assert patches.kind is OperatorKind.CONV
    (gemm,) = patches.gemms
    assert (gemm.batch, gemm.m, gemm.k, gemm.n) == (1, 3 * 196, 3 * 16 * 16, 1024)
    (head,) = [
        o
        for o in extracted("vit-l-16", 3).layers[-1].forward.operators
        if o.kind is OperatorKind.GEMM
    ]
    assert (head.gemms[0].m, head.gemms[0].k, head.gemms[0].n) == (
        3,
        1024,
        1000,
    )  # class tokens alone


@pytest.mark.parametrize("attention", Attention)
def test_a_block_keeps_what_a_transformer_without_dropout_does(attention, extracted):
    """34·s·b·h of Korthikanti et al. 2022 without its two masks; eager attention without dropout
    keeps 2·a·s²·b more."""
    graph = extracted("vit-l-16", attention=attention)
    block, family, length = graph.layers[1], find_model("vit-l-16"), 197
    scores = 2 * family.heads * length**2 if attention is Attention.EAGER else 0
    assert block.saved.none == pytest.approx(32 * length * family.hidden + scores, rel=0.01)
    assert block.saved.selective == pytest.approx(32 * length * family.hidden, rel=0.01)
    assert block.saved.full == 2 * length * family.hidden


@pytest.mark.some(1)
@pytest.mark.parametrize("tp", [2, 4, 8])
def test_blocks_are_divided_patches_and_classifier_are_not(tp, extracted):
    whole, graph = extracted("vit-h-14"), extracted("vit-h-14", tp=tp)
    assert check_structure(graph) == []
    block, payload = graph.layers[1], 2 * 257 * 1280
    assert tp * block.forward.flops == whole.layers[1].forward.flops
    for block_pass in (block.forward, block.backward):
        reduced = [
            (each.kind, each.payload_bytes, each.group_size) for each in collectives(block_pass)
        ]
        assert reduced == [(CollectiveKind.ALL_REDUCE, payload, tp)] * 2
    for part, same in zip(
        (graph.layers[0], graph.layers[-1]), (whole.layers[0], whole.layers[-1]), strict=True
    ):
        assert shared_by(same, tp) == part


def test_sequence_parallelism_needs_patches_and_a_token_that_divide(extracted):
    with pytest.raises(InputError, match="does not divide sequence length 197"):
        extract_graph(GraphKey("vit-b-16", 1, 197, 2, sequence_parallel=True))
    length = 17**2 + 1  # 272 pixels
    graph = extracted("vit-b-16", sequence_length=length, tp=2, sequence_parallel=True)
    assert check_structure(graph) == []
    kinds = [
        sorted(each.kind for each in collectives(block_pass))
        for block_pass in (graph.layers[1].forward, graph.layers[1].backward)
    ]
    gather, scatter = CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER
    assert kinds == [[gather] * 2 + [scatter] * 2, [gather] * 4 + [scatter] * 2]
    assert (
        LayerTensor(1, (2,), length * 768, length * 768) in graph.tensors
    )  # half of the tokens in two bytes each
    (gathered,) = collectives(graph.layers[-1].forward)  # the class token is on one device
    assert gathered.kind is CollectiveKind.ALL_GATHER


def test_widths_divide_the_heads():
    assert allowed_widths(find_model("vit-b-16")) == (1, 2, 3, 4, 6, 12)
    assert canonical_name("vit-h/14") == "vit-h-14"


@pytest.mark.parametrize(
    ("length", "nearest"), [(196, "170 or 197"), (1, "2"), (3, "2 or 5"), (250, "226 or 257")]
)
def test_lengths_that_no_square_image_has_are_refused(length, nearest):
    with pytest.raises(InputError, match=rf"sequence length {length} of vit-b-16 .*use {nearest}$"):
        extract_graph(GraphKey("vit-b-16", 1, length, 1))


def test_patches_are_not_cut_between_devices():
    with pytest.raises(InputError, match="a sequence cannot be cut; use context parallel degree 1"):
        extract_graph(GraphKey("vit-b-16", 1, 17**2 + 1, 1, cp=2))


def test_a_configuration_is_read():
    base = replace(find_model("vit-b-16"), published_parameter_count=0)
    values = {
        "architectures": ["ViTForImageClassification"],
        "image_size": 384,
        "id2label": {"0": "cat", "1": "dog", "2": "cow"},
    }
    assert Vit.from_config(ConfigValues("config.json", values)) == replace(
        base, classes=3, sequence_length=24**2 + 1
    )
    with pytest.raises(InexpressibleError, match=r"hidden_dropout_prob 0\.1"):
        Vit.from_config(ConfigValues("config.json", {**values, "hidden_dropout_prob": 0.1}))
