"""ResNet and Wide-ResNet: stages of convolutions."""

from collections import Counter

import numpy as np
import pytest

from Estimator.plans.layer_costs import layer_sizes
from GraphExtractor.check import check_invariants, check_structure
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import GraphKey, OperatorKind, Recompute, SharedTensor, Yields
from GraphExtractor.models.registry import find_model
from GraphExtractor.widths import allowed_widths
from phaze_common.errors import InputError

PUBLISHED_GMACS = {"resnet-50": 4.09, "resnet-152": 11.51}  # torchvision


def layers(graph):
    return [graph.layers[index] for index in graph.sequence]


@pytest.mark.parametrize("model", PUBLISHED_GMACS)
def test_a_forward_pass_takes_the_published_operations(model, extracted):
    graph = extracted(model)
    assert check_structure(graph) == check_invariants(graph) == []
    assert sum(layer.forward.flops for layer in layers(graph)) / 2e9 == pytest.approx(
        PUBLISHED_GMACS[model], abs=0.006
    )
    stem = graph.layers[0].forward.flops  # images need no gradient
    assert sum(layer.backward.flops for layer in layers(graph)) + stem == 2 * sum(
        layer.forward.flops for layer in layers(graph)
    )
    assert sum(layer.parameter_count for layer in layers(graph)) == graph.total_parameter_count


def test_layers_are_stem_bottlenecks_of_four_stages_and_head(extracted):
    graph = extracted("resnet-152")
    names = [layer.name for layer in layers(graph)]
    stages = [f"stages.{stage}" for stage, depth in enumerate((3, 8, 36, 3)) for _ in range(depth)]
    assert names == ["embedding", *stages, "head"]
    assert len(graph.layers) == 2 + 2 * 4  # the first block of a stage has a shortcut of its own
    assert [tensor.destinations for tensor in graph.tensors] == [
        (position,) for position in range(1, len(names))
    ]


@pytest.mark.some(1)
@pytest.mark.parametrize("model", ["resnet-50", "wide-resnet-500m"])
def test_a_bottleneck_is_three_convolutions_with_batch_norms(model, extracted):
    family, graph = find_model(model), extracted(model, 2)
    first, second = graph.layers[1], graph.layers[2]
    width, pixels = family.base, 2 * 56 * 56
    for block, shortcuts, channels in ((first, 1, width), (second, 0, 4 * width)):
        products = [
            operator.gemms[0]
            for operator in block.forward.operators
            if operator.kind is OperatorKind.CONV
        ]
        expected = [
            (pixels, channels, width),
            (pixels, 9 * width, family.widening * width),
            (pixels, family.widening * width, 4 * width),
            *[(pixels, channels, 4 * width)] * shortcuts,
        ]
        assert [(gemm.m, gemm.k, gemm.n) for gemm in products] == expected
        functions = Counter(
            work.function for operator in block.forward.operators for work in operator.vector
        )
        assert functions == {"layer_norm": 3 + shortcuts, "relu": 3, "add": 1}
        backward = [
            operator for operator in block.backward.operators if operator.kind is OperatorKind.CONV
        ]
        assert [len(operator.gemms) for operator in backward] == [2] * (3 + shortcuts)
        assert all(operator.yields is Yields.INPUT_GRADIENT for operator in backward)


@pytest.mark.thorough
def test_a_bottleneck_keeps_what_its_norms_and_activations_read(extracted):
    graph = extracted("resnet-50", 4)
    block, base = graph.layers[2], 2 * 4 * 56 * 56 * find_model("resnet-50").base
    maps = 1 + 1 + 1 + 1 + 4 + 4  # each convolution's result, and each ReLU's
    assert block.saved.none == pytest.approx(base * (4 + maps), rel=0.001)  # and the image it reads
    assert block.saved.full == base * 4
    assert (
        SharedTensor(2, base * 4, (2, 3), (2, 3), (3,)) in graph.shared
    )  # a ReLU's result, which the next block reads


@pytest.mark.parametrize("mode", [Recompute.NONE, Recompute.SELECTIVE])
def test_a_stage_of_bottlenecks_keeps_the_image_it_was_sent(mode, extracted):
    """Counted by hand: with the stem the first stage keeps one image less, as its own ReLU made
    what the second block reads."""
    graph = extracted("resnet-50", 4)
    base = 2 * 4 * 56 * 56 * find_model("resnet-50").base
    stem, first, second = (graph.layers[place].saved.under(mode) for place in range(3))
    cuts = np.array(
        [[place in stage for place in range(18)] for stage in [(0, 1), (2,), (3,), (2, 3), (1, 2)]]
    )
    both = 2 * second - base * 4
    assert layer_sizes(graph, mode).saved_by(cuts).tolist() == [
        stem + first,
        second,
        second,
        both,
        first + second - base * 4,
    ]
    assert both == pytest.approx(base * (4 + 2 * (1 + 1 + 1 + 1 + 4 + 4)), rel=0.001)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (
            GraphKey("resnet-50", 1, 197, 1),
            "one image of 224 x 224 per sample; use sequence length 1",
        ),
        (GraphKey("resnet-50", 1, 1, 2), "no tensor-parallel plan; use tensor parallel width 1"),
        (
            GraphKey("resnet-50", 1, 1, 1, cp=2),
            "context parallel degree 2 does not divide the 1 tokens",
        ),
    ],
)
def test_what_images_cannot_be_cut_into_is_refused(key, message):
    with pytest.raises(InputError, match=message):
        extract_graph(key)


def test_there_is_no_tensor_parallelism():
    assert allowed_widths(find_model("wide-resnet-2b")) == (1,)
