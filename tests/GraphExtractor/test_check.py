"""What the check of invariants leaves out, and what it still finds."""

from dataclasses import replace
from pathlib import Path

import pytest

from GraphExtractor.check import check_invariants
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import GraphKey, OperatorGraph, OperatorKind
from GraphExtractor.storage import load_or_extract

GALLERY = Path(__file__).parent / "user_models"


@pytest.fixture(scope="module")
def convolutions():
    """Convolutions of an image, whose first has no input gradient, and a linear head that sees one
    token."""
    return extract_graph(GraphKey(str(GALLERY / "residual.py"), 2, 1, 1))


def changed(graph, layer, change):
    """``graph`` with the backward products of one layer changed."""
    operators = tuple(change(operator) for operator in graph.layers[layer].backward.operators)
    backward = OperatorGraph(operators, graph.layers[layer].backward.edges)
    layers = list(graph.layers)
    layers[layer] = replace(layers[layer], backward=backward)
    return replace(graph, layers=tuple(layers))


def one_gradient(operator):
    return (
        replace(operator, gemms=operator.gemms[:1])
        if operator.kind is OperatorKind.CONV
        else operator
    )


def test_convolutions_meet_no_tokens_and_the_first_needs_no_input_gradient(convolutions):
    assert check_invariants(convolutions) == []
    assert sum(layer.matmul_parameter_count for layer in convolutions.layers) > 10 * 10 * 64


def test_a_missing_gradient_behind_the_first_layer_is_found(convolutions):
    (violation,) = check_invariants(changed(convolutions, 3, one_gradient))
    assert "times the forward ones instead of 2" in violation


def test_a_product_that_is_missing_is_found(convolutions):
    head = convolutions.layers[-1]
    forward = tuple(
        operator for operator in head.forward.operators if operator.kind is not OperatorKind.GEMM
    )
    layers = (*convolutions.layers[:-1], replace(head, forward=OperatorGraph(forward, ())))
    violations = check_invariants(replace(convolutions, layers=layers))
    assert "forward matrix products take 0 FLOPs instead of 2·N·tokens" in violations[0]


def test_what_is_said_of_a_model_is_of_the_one_asked_for_and_a_pooler_breaks_nothing(
    tmp_path, caplog, monkeypatch
):
    """Models of equal blocks share the trace of a few of them, where a pooler, which sees one
    token, weighs more."""
    graph = load_or_extract(
        GraphKey("bert:layers=12,hidden=64,heads=4,vocabulary=128", 1, 64, 1), tmp_path
    )
    assert caplog.messages == [] == check_invariants(graph)
    shallow = load_or_extract(
        GraphKey("bert:layers=4,hidden=64,heads=4,vocabulary=128", 1, 64, 1), tmp_path
    )
    assert check_invariants(shallow) == []
    monkeypatch.setattr(
        "GraphExtractor.check.check_invariants", lambda graph: [f"{len(graph.sequence)} layers"]
    )
    load_or_extract(GraphKey("bert:layers=6,hidden=64,heads=4,vocabulary=128", 1, 64, 1), tmp_path)
    (said,) = caplog.messages
    assert "layers6" in said and said.endswith(": 8 layers")
