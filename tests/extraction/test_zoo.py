"""Every listed model at every width up to 8 that it allows: what holds of a training graph, and Megatron's collectives."""

import pytest

from GraphExtractor import GraphKey, allowed_widths, check_invariants, check_structure, extract_graph, find_model
from GraphExtractor.check import product_flops
from GraphExtractor.graph import CollectiveKind
from GraphExtractor.models.registry import listed_models

# All-reduces (forward, backward) of each kind of layer, where Megatron-LM has any.
USUAL = {"embedding": (1, 0), "block": (2, 2), "head": (3, 1)}
IMAGES = {"block": (2, 2)}  # patches and classes are too few to be split
# cross-attention adds a pair, and the gradient of the encoder's output, which each of its key/value projections enters with
T5 = {"embedding": (1, 0), "encoder": (2, 2), "decoder.embedding": (1, 0), "decoder": (3, 4), "head": (3, 1)}
LATENT = {**USUAL, "block": (2, 4)}  # queries, keys and values, and rotary keys come from latent vectors that are not split


def expected(model):
    kinds = {"T5": T5, "Vit": IMAGES, "DeepseekV3": LATENT}
    return kinds.get(type(find_model(model)).__name__, USUAL)


def all_reduces(operators):
    wanted = [operator.collective for operator in operators if operator.collective]
    assert all(each.kind is CollectiveKind.ALL_REDUCE for each in wanted)
    return len(wanted)


@pytest.mark.parametrize("model", listed_models())
def test_graphs_of_all_widths_are_sound_and_communicate_as_megatron_does(model):
    family = find_model(model)
    parameters = set()
    for tp in (1, 2, 4, 8):
        if tp not in allowed_widths(family):
            continue
        graph = extract_graph(GraphKey(model, 1, family.sequence_length, tp))
        assert check_structure(graph) == check_invariants(graph) == []
        for layer in graph.layers:
            counts = all_reduces(layer.forward.operators), all_reduces(layer.backward.operators)
            assert counts == (expected(model).get(layer.name, (0, 0)) if tp > 1 else (0, 0)), (tp, layer.name)
            if layer.name not in ("embedding", "head"):  # the ends keep little besides what enters them
                assert 0 < layer.saved.full <= layer.saved.selective <= layer.saved.none
        parameters.add(graph.total_parameter_count)
    assert len(parameters) == 1
    published = family.published_parameter_count
    if published % 10**6:
        assert parameters == {published}


@pytest.mark.parametrize("model", [name for name, family in listed_models().items() if family.experts])
def test_a_token_meets_the_published_part_of_the_experts(model):
    family = find_model(model)
    graph = extract_graph(GraphKey(model, 1, family.sequence_length, 1))
    layers = [graph.layers[index] for index in graph.sequence]
    looked_up = family.vocabulary * family.hidden  # the embedding multiplies nothing
    products = sum(layer.forward.flops - product_flops(layer).score_forward for layer in layers)
    assert products == pytest.approx(2 * (family.published_active_count - looked_up) * family.sequence_length, rel=0.01)
