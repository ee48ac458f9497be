"""T5: two stacks, cross-attention, biases on distances that attention hands gradients back to."""

from collections import Counter
from dataclasses import replace

import pytest

from GraphExtractor.check import check_invariants, check_structure
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import (
    Attention,
    CollectiveGroup,
    CollectiveKind,
    GraphKey,
    LayerTensor,
    OperatorKind,
    SharedTensor,
    Yields,
)
from GraphExtractor.models.registry import find_model
from GraphExtractor.models.t5 import T5
from GraphExtractor.sources.config_values import ConfigValues, InexpressibleError
from GraphExtractor.widths import allowed_widths
from phaze_common.errors import InputError

LENGTH = 512
FAMILY = replace(find_model("t5-large"), layers=6)
BLOCKS = FAMILY.layers // 2
ENCODER, DECODER = 2, 7  # a block in the middle of each stack
EMBEDDING, DECODER_EMBEDDING, LAST_NORM = 0, BLOCKS + 1, BLOCKS + 2
HIDDEN = 2 * LENGTH * FAMILY.hidden  # bytes of a hidden state


@pytest.fixture(scope="module")
def t5(traces):
    """``t5(micro_batch_size=1, **fields of the key)``: a graph of ``FAMILY``, traced once."""
    graphs = {}

    def extract(micro_batch_size=1, tp=1, **settings):
        key = GraphKey("short", micro_batch_size, LENGTH, tp, **settings)
        if key not in graphs:
            graphs[key] = traces.graph(key, FAMILY)
        return graphs[key]

    return extract


def layers(graph):
    return [graph.layers[index] for index in graph.sequence]


def collectives(operators, group=CollectiveGroup.TENSOR):
    return [
        operator.collective
        for operator in operators.operators
        if operator.collective and operator.collective.group is group
    ]


def attentions(operators):
    return [operator for operator in operators.operators if operator.kind is OperatorKind.ATTENTION]


def test_two_stacks_share_one_table_with_the_head(extracted):
    graph, family = extracted("t5-large"), find_model("t5-large")
    assert check_structure(graph) == check_invariants(graph) == []
    names = [layer.name for layer in layers(graph)]
    assert names == [
        "embedding",
        *["encoder"] * 24,
        "decoder.embedding",
        "encoder.norm",
        *["decoder"] * 24,
        "head",
    ]
    assert len(graph.layers) == 4 + 3 + 3  # first, last and all other blocks of a stack
    table = family.vocabulary * family.hidden
    tied = {
        position: layer.tied_count
        for position, layer in enumerate(layers(graph))
        if layer.tied_count
    }
    assert tied == {25: table, 51: table}
    assert (
        sum(layer.parameter_count for layer in layers(graph)) - 2 * table
        == graph.total_parameter_count
    )


def test_a_forward_pass_takes_what_its_sizes_say(t5):
    """Two operations per parameter and token, head included, and 4·s²·width of each head for each
    attention."""
    graph = t5(3)
    inner = FAMILY.heads * FAMILY.head_width
    encoder = 4 * FAMILY.hidden * inner + 2 * FAMILY.hidden * FAMILY.ffn
    decoder = encoder + 4 * FAMILY.hidden * inner
    products = BLOCKS * (encoder + decoder) + FAMILY.hidden * FAMILY.vocabulary
    scores = 3 * BLOCKS * 4 * LENGTH**2 * inner
    padded = FAMILY.padded_vocabulary(1)
    assert padded == FAMILY.vocabulary
    assert sum(layer.forward.flops for layer in layers(graph)) == 3 * (
        2 * products * LENGTH + scores
    )


def test_the_decoder_embedding_waits_for_nothing_and_the_memory_goes_to_every_decoder_block(t5):
    graph = t5()
    blocks = tuple(range(LAST_NORM + 1, LAST_NORM + 1 + BLOCKS))
    bias = 2 * FAMILY.heads * LENGTH**2
    shared = [
        LayerTensor(1, tuple(range(2, 1 + BLOCKS)), bias, bias),
        LayerTensor(LAST_NORM, blocks, HIDDEN, HIDDEN),
        LayerTensor(blocks[0], blocks[1:], bias, bias),
    ]
    assert [tensor for tensor in graph.tensors if len(tensor.destinations) > 1] == shared
    chain = [
        (0, 1),
        *((block, block + 1) for block in range(1, BLOCKS)),
        (BLOCKS, LAST_NORM),
        (DECODER_EMBEDDING, blocks[0]),
    ]
    chain += [(block, block + 1) for block in blocks]
    assert [
        (t.source, t.destinations[0]) for t in graph.tensors if len(t.destinations) == 1
    ] == sorted(chain)
    assert {t.bytes for t in graph.tensors if len(t.destinations) == 1} == {HIDDEN}


def test_biases_are_made_once_and_take_their_gradients_from_every_block(t5):
    graph = t5(2)
    pairs = FAMILY.heads * LENGTH**2
    encoder = layers(graph)[1], layers(graph)[ENCODER], pairs
    decoder = (
        layers(graph)[LAST_NORM + 1],
        layers(graph)[DECODER],
        FAMILY.heads * LENGTH * (LENGTH + 1) // 2,
    )
    for first, other, scores in (encoder, decoder):
        made = [o for o in first.forward.operators if "table" in o.name]
        assert [(o.kind, o.writes[0].shape) for o in made] == [
            (OperatorKind.GATHER, (LENGTH, LENGTH, FAMILY.heads))
        ]
        assert first.parameter_count - other.parameter_count == 32 * FAMILY.heads
        (gathered,) = [o for o in first.backward.operators if "table" in o.name]
        assert gathered.yields is Yields.WEIGHT_GRADIENT and gathered.writes[0].shape == (
            32,
            FAMILY.heads,
        )
        biased = attentions(other.backward)[-1]  # of the block itself, behind cross-attention's
        assert (1, FAMILY.heads, LENGTH, LENGTH) in [operand.shape for operand in biased.writes]
        sums = [work.elements for work in biased.vector if work.function == "sum"]
        assert sums[-1] == 2 * scores  # over the samples
        added = [work.elements for work in biased.vector if work.function == "add"]
        assert pairs in added  # to what later blocks gave


def test_cross_attention_meets_the_encoder_without_biases_or_mask(t5):
    block = layers(t5())[DECODER]
    own, cross = attentions(block.forward)
    assert own.causal and not cross.causal
    assert [work.function for work in own.vector] == ["add", "softmax", "dropout"]
    assert [work.function for work in cross.vector] == ["softmax", "dropout"]
    assert own.bytes_read - cross.bytes_read == 2 * FAMILY.heads * LENGTH**2


def test_selective_recomputation_keeps_biases_once(t5):
    eager = t5(attention=Attention.EAGER)
    pairs = FAMILY.heads * LENGTH**2
    blocks = layers(eager)
    assert (
        blocks[1].saved.selective - blocks[ENCODER].saved.selective == 8 * LENGTH**2
    )  # the buckets
    encoder = tuple(range(1, 1 + BLOCKS))
    assert SharedTensor(1, 2 * pairs, (), encoder, encoder[1:]) in eager.shared
    for position, attentions_of in ((ENCODER, 1), (DECODER, 2)):
        saved = blocks[position].saved
        assert saved.restored_selective == attentions_of * 5 * pairs
        assert (
            saved.none - saved.selective == saved.restored_selective - 2 * pairs
        )  # the bias, which its addition does not keep


@pytest.mark.some(1)
@pytest.mark.parametrize("tp", [2, 4, 8])
def test_each_block_reduces_as_megatron_does(tp, t5):
    """Self-attention and MLP as ever; cross-attention enters with the decoder's state and with the
    encoder's, leaves once."""
    graph = t5(tp=tp)
    assert check_structure(graph) == check_invariants(graph) == []
    assert graph.total_parameter_count == t5().total_parameter_count
    expected = {
        ENCODER: (2, 2),
        DECODER: (3, 4),
        1: (2, 2),
        LAST_NORM + 1: (3, 4),
        LAST_NORM: (0, 0),
    }
    expected |= {EMBEDDING: (1, 0), DECODER_EMBEDDING: (1, 0)}
    for position, counts in expected.items():
        layer = layers(graph)[position]
        for block_pass, count in zip((layer.forward, layer.backward), counts, strict=True):
            reduced = [
                (each.kind, each.payload_bytes, each.group_size) for each in collectives(block_pass)
            ]
            assert reduced == [(CollectiveKind.ALL_REDUCE, HIDDEN, tp)] * count
    head = layers(graph)[-1]
    assert [each.payload_bytes for each in collectives(head.forward)] == [4 * LENGTH] * 3
    assert [each.payload_bytes for each in collectives(head.backward)] == [HIDDEN]
    for position in (1, ENCODER, DECODER):
        part, whole = layers(graph)[position], layers(t5())[position]
        assert tp * part.forward.flops == whole.forward.flops
        assert tp * part.matmul_parameter_count == whole.matmul_parameter_count
    biases = layers(graph)[1].parameter_count - layers(graph)[ENCODER].parameter_count
    assert biases == 32 * FAMILY.heads // tp


@pytest.mark.thorough
@pytest.mark.parametrize("tp", [2, 8])
def test_sequence_parallelism_cuts_both_sequences(tp, t5):
    graph, dense = t5(tp=tp, sequence_parallel=True), t5(tp=tp)
    assert check_structure(graph) == check_invariants(graph) == []
    gather, scatter = CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER
    for position, forward, backward in ((ENCODER, (2, 2), (4, 2)), (DECODER, (4, 3), (7, 4))):
        layer = layers(graph)[position]
        for block_pass, (gathers, scatters) in (
            (layer.forward, forward),
            (layer.backward, backward),
        ):
            assert Counter(each.kind for each in collectives(block_pass)) == {
                gather: gathers,
                scatter: scatters,
            }
            assert {each.payload_bytes for each in collectives(block_pass)} == {HIDDEN}
        assert layer.forward.flops == layers(dense)[position].forward.flops
        bias = 2 * FAMILY.heads * LENGTH**2 // tp  # cut by heads either way
        assert tp * (layer.saved.full - bias) == layers(dense)[position].saved.full - bias
    for position in (EMBEDDING, DECODER_EMBEDDING):  # looked up whole, then cut
        layer = layers(graph)[position]
        assert [each.kind for each in collectives(layer.forward)] == [CollectiveKind.ALL_REDUCE]
        assert [each.kind for each in collectives(layer.backward)] == [gather]
    memory = [tensor for tensor in graph.tensors if tensor.source == LAST_NORM]
    assert [(tensor.bytes, tensor.gradient_bytes) for tensor in memory] == [
        (HIDDEN // tp, HIDDEN // tp)
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("attention", Attention)
def test_context_parallelism_cuts_both_sequences(attention, t5):
    cp = 4
    graph, whole = t5(attention=attention, cp=cp), t5(attention=attention)
    assert check_structure(graph) == check_invariants(graph) == []
    payload = 2 * 2 * LENGTH * FAMILY.heads * FAMILY.head_width  # keys and values
    gather, scatter = CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER
    for position, attending in ((ENCODER, 1), (DECODER, 2)):
        part, layer = layers(graph)[position], layers(whole)[position]
        assert (
            cp * part.forward.flops == layer.forward.flops
            and cp * part.backward.flops == layer.backward.flops
        )
        exchanged = [
            collectives(block_pass, CollectiveGroup.CONTEXT)
            for block_pass in (part.forward, part.backward)
        ]
        assert [Counter(each.kind for each in found) for found in exchanged] == [
            {gather: attending},
            {gather: attending, scatter: attending},
        ]
        assert {(each.payload_bytes, each.group_size) for found in exchanged for each in found} == {
            (payload, cp)
        }
        assert cp * part.saved.none == layer.saved.none
    bias = [
        tensor for tensor in graph.tensors if tensor.source == 1 and len(tensor.destinations) > 1
    ]
    assert [tensor.bytes for tensor in bias] == [
        2 * FAMILY.heads * LENGTH**2 // cp
    ]  # own queries, all keys


def test_blocks_come_in_pairs():
    with pytest.raises(InputError, match="47 blocks; give an even number"):
        extract_graph(GraphKey("odd", 1, 64, 1), replace(FAMILY, layers=47))
    assert allowed_widths(FAMILY) == (1, 2, 4, 8, 16)


def test_a_configuration_is_read():
    large = find_model("t5-large")
    values = {
        "architectures": ["T5ForConditionalGeneration"],
        "d_model": 1024,
        "d_ff": 4096,
        "num_layers": 24,
        "num_heads": 16,
    }
    assert T5.from_config(ConfigValues("config.json", values)) == replace(
        large, published_parameter_count=0
    )
    with pytest.raises(InexpressibleError, match="feed_forward_proj 'gated-gelu'"):
        T5.from_config(ConfigValues("config.json", {**values, "feed_forward_proj": "gated-gelu"}))
    with pytest.raises(InexpressibleError, match="num_decoder_layers 6"):
        T5.from_config(ConfigValues("config.json", {**values, "num_decoder_layers": 6}))
