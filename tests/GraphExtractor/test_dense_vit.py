"""The vision transformer of arXiv 2410.00273, which predicts fields from fields."""

import pytest
from whole_traces import shared_by

from GraphExtractor.check import check_invariants, check_structure
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import Attention, CollectiveKind, GraphKey, KeyExchange, TensorLayout
from GraphExtractor.models.dense_vit import DenseVit
from GraphExtractor.models.registry import find_model
from phaze_common.errors import InputError

MODEL, TOKENS, HIDDEN = "vit-era5", 64_800, 12_288
SMALL = DenseVit(layers=3, hidden=64, heads=4, ffn=256, pixels=48, sequence_length=96)


def small(tp=1, **settings):
    graph = extract_graph(GraphKey("small", 2, 96, tp, **settings), SMALL)
    assert check_structure(graph) == check_invariants(graph) == []
    return graph


def test_it_has_the_sizes_of_the_paper(extracted):
    graph, family = extracted(MODEL), find_model(MODEL)
    assert (family.sequence_length, family.hidden, family.heads, family.layers, family.ffn) == (
        TOKENS,
        HIDDEN,
        64,
        48,
        4 * HIDDEN,
    )
    block = graph.layers[1]
    # four products of a token with 12·hidden² weights, and scores of all tokens with each other
    assert block.forward.flops == 2 * TOKENS * 12 * HIDDEN**2 + 4 * TOKENS**2 * HIDDEN
    assert block.parameter_count == 12 * HIDDEN**2 + 13 * HIDDEN
    assert [layer.name for layer in graph.layers] == ["embedding", "block", "head"]
    assert not any(operator.causal for operator in block.forward.operators)
    pixels = 20 * 16
    assert graph.layers[-1].matmul_parameter_count == pixels * HIDDEN
    assert (
        graph.total_parameter_count
        == 48 * block.parameter_count + 2 * pixels * HIDDEN + pixels + 3 * HIDDEN + TOKENS * HIDDEN
    )


@pytest.mark.thorough
def test_long_sequences_are_cut_in_every_way(extracted):
    whole = extracted(MODEL).layers[1]
    for layout in (
        {"tp": 16, "tp2": 16, "layout": TensorLayout.TWO_D},
        {"tp": 4, "cp": 60, "exchange": KeyExchange.RING},
        {"tp": 8, "cp": 8, "exchange": KeyExchange.ULYSSES},
        {"tp": 32, "cp": 8},
    ):
        part = extracted(MODEL, **layout).layers[1]
        devices = layout["tp"] * layout.get("tp2", 1) * layout.get("cp", 1)
        assert devices * part.forward.flops == whole.forward.flops


def test_pixels_are_divided_over_the_columns_of_a_grid():
    graph, whole = small(4, tp2=2, layout=TensorLayout.TWO_D), small()
    for layer, same in zip(whole.layers, graph.layers, strict=True):
        assert 8 * same.forward.flops == layer.forward.flops
    head = next(each for each in graph.layers[-1].forward.operators if each.gemms)
    assert (head.gemms[0].m, head.gemms[0].k, head.gemms[0].n) == (2 * 96 // 2, 64, 48 // 4)


def test_embedding_and_head_are_whole_on_devices_of_one_axis():
    graph, whole = small(2), small()
    assert graph.layers[0] == shared_by(whole.layers[0], 2) and graph.layers[-1] == shared_by(
        whole.layers[-1], 2
    )
    split = small(2, sequence_parallel=True)
    assert (
        2 * split.layers[-1].forward.flops == whole.layers[-1].forward.flops
    )  # each predicts its own patches
    assert not [each for each in split.layers[-1].forward.operators if each.collective]
    kinds = {each.collective.kind for each in split.layers[1].forward.operators if each.collective}
    assert kinds == {CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER}


def test_eager_attention_keeps_all_scores():
    assert small(attention=Attention.EAGER).layers[1].saved.restored_selective == 2 * (
        2 * 4 * 96**2
    )  # in bfloat16


def test_heads_bound_the_columns():
    with pytest.raises(
        InputError,
        match="tensor parallel width 8 does not divide small, which has 4 attention heads",
    ):
        small(8)
    with pytest.raises(InputError, match="4 x 32 devices does not divide the 64 hidden columns"):
        small(4, tp2=32, layout=TensorLayout.TWO_D)
