"""Rings of keys and values, and heads exchanged for tokens: what devices send, keep and
multiply."""

import pytest
from sampled_models import SMALL, SMALL_LENGTH

from GraphExtractor.check import check_invariants, check_structure
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import (
    Attention,
    Collective,
    CollectiveGroup,
    CollectiveKind,
    GraphKey,
    KeyExchange,
    OperatorKind,
    Recompute,
)
from GraphExtractor.models.registry import canonical_name
from GraphExtractor.storage import load_or_extract
from phaze_common.errors import InputError

HEAD = 40  # width of a head of the small models
CONTEXT = CollectiveGroup.CONTEXT
RING, ULYSSES = {"exchange": KeyExchange.RING}, {"exchange": KeyExchange.ULYSSES}


def name(family):
    return canonical_name(SMALL[family].format(2))


def part(extracted, family, cp, **settings):
    graph = extracted(name(family), sequence_length=SMALL_LENGTH, cp=cp, **settings)
    assert check_structure(graph) == check_invariants(graph) == []
    return graph


def attention_of(operators):
    (found,) = [
        operator for operator in operators.operators if operator.kind is OperatorKind.ATTENTION
    ]
    return found


def exchanges(operators):
    return [
        each.collective
        for each in operators.operators
        if each.collective and each.collective.group is CONTEXT
    ]


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("family", "kv_heads", "tp"), [("gpt", 4, 1), ("llama", 2, 1), ("llama", 2, 2), ("mpt", 4, 2)]
)
def test_keys_and_values_pass_around_a_ring_beside_attention(family, kv_heads, tp, extracted):
    ring = part(extracted, family, 4, tp=tp, **RING).layers[1]
    gather = part(extracted, family, 4, tp=tp).layers[1]
    payload = 2 * kv_heads // tp * SMALL_LENGTH * HEAD * 2  # of all devices, in bfloat16
    passed = Collective(CollectiveKind.PASS, payload, 4, CONTEXT)
    forward, backward = attention_of(ring.forward), attention_of(ring.backward)
    assert forward.streamed == (passed,)
    assert backward.streamed == (passed, passed)  # with their gradients
    again = [
        each for each in ring.backward_selective.operators if each.kind is OperatorKind.ATTENTION
    ]
    assert again == [forward, backward]
    assert not exchanges(ring.forward) and not exchanges(ring.backward)
    # the work, and what is read to do it, are those of attention to gathered keys and values
    for one, other in ((ring.forward, gather.forward), (ring.backward, gather.backward)):
        assert (attention_of(one).gemms, attention_of(one).causal) == (
            attention_of(other).gemms,
            attention_of(other).causal,
        )
        assert one.flops == other.flops
    assert forward.bytes_read == attention_of(gather.forward).bytes_read
    assert ring.saved == gather.saved


def test_a_ring_holds_two_parts_where_a_gather_holds_all(extracted):
    ring, gather = (part(extracted, "gpt", 4, **settings) for settings in (RING, {}))
    payload = 2 * 4 * SMALL_LENGTH * HEAD * 2
    assert attention_of(ring.layers[1].forward).buffer_bytes(1) == 2 * payload // 4
    assert (
        ring.layers[1].buffer_bytes(panels=1)
        == ring.layers[1].buffer_bytes(panels=8)
        == 2 * 2 * payload // 4
    )
    assert gather.layers[1].buffer_bytes(8) == 0
    assert ring.layers[1].workspace_bytes <= gather.layers[1].workspace_bytes


def test_nothing_is_fused_into_gradients_that_are_still_on_their_way(extracted):
    ring, alone = (
        part(extracted, "llama", cp, **RING).layers[1] for cp in (2, 1)
    )  # rotary positions are behind attention
    functions = [
        [work.function for work in attention_of(each.backward).vector] for each in (ring, alone)
    ]
    assert "neg" not in functions[0] and "neg" in functions[1]


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("family", "kv_heads", "tp", "cp"),
    [("gpt", 4, 1, 4), ("gpt", 4, 2, 2), ("llama", 2, 1, 2), ("mpt", 4, 1, 2)],
)
def test_heads_are_exchanged_for_tokens_and_back(family, kv_heads, tp, cp, extracted):
    graph = part(extracted, family, cp, tp=tp, **ULYSSES)
    block, tokens = graph.layers[1], SMALL_LENGTH // cp
    queries, keys = (heads // tp * tokens * HEAD * 2 for heads in (4, kv_heads))
    sent = [
        Collective(CollectiveKind.ALL_TO_ALL, size, cp, CONTEXT)
        for size in (queries + 2 * keys, queries)
    ]
    assert exchanges(block.forward) == sent and exchanges(block.backward) == sent[::-1]
    forward = attention_of(block.forward)
    assert (forward.gemms[0].batch, forward.gemms[0].m, forward.gemms[0].n) == (
        4 // tp // cp,
        SMALL_LENGTH,
        SMALL_LENGTH,
    )
    assert not forward.streamed
    gather = part(extracted, family, cp, tp=tp).layers[1]
    assert (
        block.forward.flops == gather.forward.flops
        and block.backward.flops == gather.backward.flops
    )
    # the output is kept as attention made it and, exchanged, as the product behind it reads it
    assert block.saved.none == gather.saved.none + queries
    assert block.saved.under(Recompute.FULL) == gather.saved.under(Recompute.FULL)


def test_grouped_keys_are_repeated_where_there_are_too_few(extracted):
    block = part(extracted, "llama", 4, **ULYSSES).layers[1]
    queries = 4 * SMALL_LENGTH // 4 * HEAD * 2
    assert exchanges(block.forward)[0].payload_bytes == 3 * queries  # two heads of keys become four
    assert [operand.shape for operand in attention_of(block.forward).reads] == [
        (1, 1, SMALL_LENGTH, HEAD)
    ] * 3


def test_eager_attention_exchanges_heads_too(extracted):
    block = part(extracted, "gpt", 2, attention=Attention.EAGER, **ULYSSES).layers[1]
    gather = part(extracted, "gpt", 2, attention=Attention.EAGER).layers[1]
    assert block.forward.flops == gather.forward.flops
    assert len(exchanges(block.forward)) == len(exchanges(block.backward)) == 2


@pytest.mark.some(1)
@pytest.mark.parametrize("settings", [RING, ULYSSES])
def test_models_beside_each_other_in_memory_and_on_disk(settings, tmp_path, extracted):
    key = GraphKey(name("gpt"), 1, SMALL_LENGTH, 1, cp=2, **settings)
    graph = extracted(name("gpt"), sequence_length=SMALL_LENGTH, cp=2, **settings)
    assert load_or_extract(key, tmp_path) == load_or_extract(key, tmp_path) == graph
    assert graph.key == key


@pytest.mark.parametrize("exchange", KeyExchange)
def test_nothing_is_exchanged_on_one_device(exchange, extracted):
    alone = extracted(name("gpt"), sequence_length=SMALL_LENGTH, exchange=exchange)
    assert alone.layers == extracted(name("gpt"), sequence_length=SMALL_LENGTH).layers


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (
            GraphKey(name("gpt"), 1, 192, 1, Attention.EAGER, cp=2, **RING),
            "attention of .* is eager; use attention flash, or exchange",
        ),
        (
            GraphKey(name("gpt"), 1, 192, 2, cp=4, **ULYSSES),
            "the 2 attention heads that .* width 2 leaves .* among 4 .*one of 1, 2",
        ),
        (
            GraphKey("t5-small", 1, 512, 1, cp=2, **ULYSSES),
            "learns a bias for every pair of tokens.*use exchange gather or ring",
        ),
    ],
)
def test_ways_that_do_not_fit_are_refused(key, message):
    with pytest.raises(InputError, match=message):
        extract_graph(key)


@pytest.mark.thorough
def test_biases_of_an_encoder_and_decoder_meet_keys_of_a_ring(extracted):
    whole, ring = (extracted("t5-small", sequence_length=512, cp=cp, **RING) for cp in (1, 2))
    assert check_structure(ring) == []
    for layer, same in zip(whole.layers, ring.layers, strict=True):
        assert 2 * same.forward.flops == layer.forward.flops
