"""ResNet and Wide-ResNet: stages of convolutions."""

from collections import Counter

import pytest

from Common.errors import InputError
from GraphExtractor.check import check_invariants, check_structure
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import GraphKey, OperatorKind, Yields
from GraphExtractor.models.registry import find_model
from GraphExtractor.widths import allowed_widths

PUBLISHED_GMACS = {"resnet-50": 4.09, "resnet-152": 11.51}  # torchvision


def layers(graph):
    return [graph.layers[index] for index in graph.sequence]


@pytest.mark.parametrize("model", PUBLISHED_GMACS)
def test_a_forward_pass_takes_the_published_operations(model, extracted):
    graph = extracted(model)
    assert check_structure(graph) == check_invariants(graph) == []
    assert sum(layer.forward.flops for layer in layers(graph)) / 2e9 == pytest.approx(PUBLISHED_GMACS[model], abs=0.006)
    stem = graph.layers[0].forward.flops  # images need no gradient
    assert sum(layer.backward.flops for layer in layers(graph)) + stem == 2 * sum(layer.forward.flops for layer in layers(graph))
    assert sum(layer.parameter_count for layer in layers(graph)) == graph.total_parameter_count


def test_layers_are_stem_bottlenecks_of_four_stages_and_head(extracted):
    graph = extracted("resnet-152")
    names = [layer.name for layer in layers(graph)]
    stages = [f"stages.{stage}" for stage, depth in enumerate((3, 8, 36, 3)) for _ in range(depth)]
    assert names == ["embedding", *stages, "head"]
    assert len(graph.layers) == 2 + 2 * 4  # the first block of a stage has a shortcut of its own
    assert [tensor.destinations for tensor in graph.tensors] == [(position,) for position in range(1, len(names))]


@pytest.mark.parametrize("model", ["resnet-50", "wide-resnet-500m"])
def test_a_bottleneck_is_three_convolutions_with_batch_norms(model, extracted):
    family, graph = find_model(model), extracted(model, 2)
    first, second = graph.layers[1], graph.layers[2]
    width, pixels = family.base, 2 * 56 * 56
    for block, shortcuts, channels in ((first, 1, width), (second, 0, 4 * width)):
        products = [operator.gemms[0] for operator in block.forward.operators if operator.kind is OperatorKind.CONV]
        expected = [
            (pixels, channels, width),
            (pixels, 9 * width, family.widening * width),
            (pixels, family.widening * width, 4 * width),
            *[(pixels, channels, 4 * width)] * shortcuts,
        ]
        assert [(gemm.m, gemm.k, gemm.n) for gemm in products] == expected
        functions = Counter(work.function for operator in block.forward.operators for work in operator.vector)
        assert functions == {"layer_norm": 3 + shortcuts, "relu": 3, "add": 1}
        backward = [operator for operator in block.backward.operators if operator.kind is OperatorKind.CONV]
        assert [len(operator.gemms) for operator in backward] == [2] * (3 + shortcuts)
        assert all(operator.yields is Yields.INPUT_GRADIENT for operator in backward)


def test_a_bottleneck_keeps_what_its_norms_and_activations_read(extracted):
    block, family = extracted("resnet-50", 4).layers[2], find_model("resnet-50")
    maps = 1 + 1 + 1 + 1 + 4 + 4  # in units of the base: each convolution's result, and each ReLU's
    assert block.saved.none == pytest.approx(2 * 4 * 56 * 56 * family.base * maps, rel=0.001)
    assert block.saved.full == 2 * 4 * 56 * 56 * family.base * 4


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (GraphKey("resnet-50", 1, 197, 1), "one image of 224 x 224 per sample; use sequence length 1"),
        (GraphKey("resnet-50", 1, 1, 2), "no tensor-parallel plan; use tensor parallel width 1"),
        (GraphKey("resnet-50", 1, 1, 1, cp=2), "context parallel degree 2 does not divide the 1 tokens"),
    ],
)
def test_what_images_cannot_be_cut_into_is_refused(key, message):
    with pytest.raises(InputError, match=message):
        extract_graph(key)


def test_there_is_no_tensor_parallelism():
    assert allowed_widths(find_model("wide-resnet-2b")) == (1,)
