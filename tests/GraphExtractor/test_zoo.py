"""Listed models at widths that they allow up to 8: what holds of a training graph, and Megatron's
collectives.

A usual session takes one model of each way of building, a thorough one all.
"""

from dataclasses import fields

import pytest

from GraphExtractor.check import check_invariants, check_structure, product_flops
from GraphExtractor.graph import CollectiveKind, GraphKey
from GraphExtractor.models.base import ModelFamily
from GraphExtractor.models.registry import find_model, listed_models
from GraphExtractor.widths import allowed_widths
from tests.builders.samples import sampled

# All-reduces (forward, backward) of each kind of layer, where Megatron-LM has any.
USUAL = {"embedding": (1, 0), "block": (2, 2), "head": (3, 1)}
IMAGES = {"block": (2, 2)}  # patches and classes are too few to be split
# cross-attention adds a pair, and the gradient of the encoder's output, which each of its key/value
# projections enters with
T5 = {
    "embedding": (1, 0),
    "encoder": (2, 2),
    "decoder.embedding": (1, 0),
    "decoder": (3, 4),
    "head": (3, 1),
}
LATENT = {
    **USUAL,
    "block": (2, 4),
}  # queries, keys and values, and rotary keys come from latent vectors that are not split

MIXED = {**USUAL, "block": (1, 1)}  # a layer is a mixer, attention or experts
# two modules of attention and experts behind the head pass it once more
FURTHER = {**MIXED, "head": (3 + 2 * (2 + 3), 1 + 2 * (2 + 1))}


def expected(model):
    family = find_model(model)
    mixed = FURTHER if getattr(family, "further", 0) else MIXED
    kinds = {"T5": T5, "Vit": IMAGES, "DenseVit": IMAGES, "DeepseekV3": LATENT, "NemotronH": mixed}
    return kinds.get(type(family).__name__, USUAL)


def all_reduces(operators):
    wanted = [operator.collective for operator in operators.operators if operator.collective]
    assert all(each.kind is CollectiveKind.ALL_REDUCE for each in wanted)
    return len(wanted)


def all_widths(model):
    return tuple(tp for tp in (1, 2, 4, 8) if tp in allowed_widths(find_model(model)))


def way_of_building(family):
    """What tells models of one family apart but for how large they are: what they have, and whether
    heads share keys."""
    own = {each.name for each in fields(family)} - {each.name for each in fields(ModelFamily)}
    return (
        type(family).__name__,
        tuple(sorted((name, bool(getattr(family, name))) for name in own)),
        shares_keys(family),
    )


def shares_keys(family):
    return getattr(family, "kv_heads", 0) != getattr(family, "heads", 0)


def models_of_each_way():
    """Of all models that are built alike one, of those with the most widths the smallest."""
    chosen = {}
    for name, family in sorted(
        listed_models().items(), key=lambda entry: entry[1].published_parameter_count
    ):
        way = way_of_building(family)
        if way not in chosen or len(all_widths(chosen[way])) < len(all_widths(name)):
            chosen[way] = name
    return set(chosen.values())


def pairs(request_all):
    """Models and widths: all of them, or one model of each way of building, whole and in its
    thinnest part.

    That has every operator of the whole, and all collectives. The first of each kind of collectives
    has the widths between too. How many parameters every listed model has is asked of it in
    test_registry.py.
    """
    if request_all:
        return [(model, all_widths(model)) for model in listed_models()]
    chosen, met = [], []
    for model in [name for name in listed_models() if name in models_of_each_way()]:
        widths = all_widths(model)
        if expected(model) not in met:
            met.append(expected(model))
            chosen.append((model, widths))
        else:
            chosen.append((model, tuple(sorted({1, widths[-1]}))))
    return chosen


def pytest_generate_tests(metafunc):
    if "widths" in metafunc.fixturenames:
        chosen = pairs(metafunc.config.getoption("--thorough"))
        metafunc.parametrize(("model", "widths"), chosen, ids=[model for model, _ in chosen])


@pytest.mark.some(3)
def test_graphs_are_sound_and_communicate_as_megatron_does(model, widths, traces):
    family = find_model(model)
    parameters = set()
    for tp in sorted(widths):
        graph = traces.graph(GraphKey(model, 1, family.sequence_length, tp))
        assert check_structure(graph) == check_invariants(graph) == []
        for layer in graph.layers:
            counts = all_reduces(layer.forward), all_reduces(layer.backward)
            assert counts == (expected(model).get(layer.name, (0, 0)) if tp > 1 else (0, 0)), (
                tp,
                layer.name,
            )
            if layer.name not in (
                "embedding",
                "head",
            ):  # the ends keep little besides what enters them
                assert 0 < layer.saved.full <= layer.saved.selective <= layer.saved.none
        parameters.add(graph.total_parameter_count)
        assert (
            len(family.blocks) != 1 or len(graph.sequence) == family.layers + 2
        )  # what is refused before tracing rests on it
    assert len(parameters) == 1
    published = family.published_parameter_count
    if published % 10**6:
        assert parameters == {published}


def test_every_way_of_building_a_model_is_met_whole_and_in_the_thinnest_part():
    usual, every = dict(pairs(False)), dict(pairs(True))
    assert every.keys() == listed_models().keys()
    assert all(
        set(every[model]) == {tp for tp in (1, 2, 4, 8) if tp in allowed_widths(find_model(model))}
        for model in every
    )
    for family in listed_models().values():
        alike = [
            model
            for model in every
            if way_of_building(find_model(model)) == way_of_building(family)
        ]
        (met,) = [usual[model] for model in alike if model in usual]
        assert {1, max(tp for each in alike for tp in every[each])} <= set(met)
    for kind in (USUAL, IMAGES, T5, LATENT):
        assert any(expected(model) == kind and usual[model] == (1, 2, 4, 8) for model in usual)


EXPERTS = [name for name, family in listed_models().items() if family.experts]


@pytest.mark.parametrize("model", sampled(EXPERTS, sorted(models_of_each_way() & set(EXPERTS))))
def test_a_token_meets_the_published_part_of_the_experts(model, traces):
    family = find_model(model)
    graph = traces.graph(GraphKey(model, 1, family.sequence_length, 1))
    layers = [graph.layers[index] for index in graph.sequence]
    looked_up = family.vocabulary * family.hidden  # the embedding multiplies nothing
    products = sum(layer.forward.flops - product_flops(layer).score_forward for layer in layers)
    assert products == pytest.approx(
        2 * (family.published_active_count - looked_up) * family.sequence_length, rel=0.01
    )
