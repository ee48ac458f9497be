"""Graphs of a device that shares its sequences with others: against graphs traced on shorter ones, and conserving all work."""

import math
from dataclasses import replace

import pytest
from sampled_models import SMALL, SMALL_LENGTH

from Common.errors import InputError
from GraphExtractor import (
    GraphKey,
    canonical_name,
    check_invariants,
    check_structure,
    extract_graph,
    load_or_extract,
    shard_context,
)
from GraphExtractor.graph import (
    Attention,
    CollectiveGroup,
    CollectiveKind,
    LayerTensor,
    OperandRole,
    OperatorKind,
    Yields,
)

CP = 2
DENSE = {"tp": 1, "micro_batch_size": 1, "attention": Attention.FLASH}
PARALLEL = {"tp": 2, "micro_batch_size": 3, "attention": Attention.FLASH, "sequence_parallel": True}
EAGER = {"tp": 1, "micro_batch_size": 1, "attention": Attention.EAGER}
CASES = [
    *((family, DENSE) for family in SMALL),
    *((family, PARALLEL) for family in ("gpt", "llama", "bert")),
    *((family, EAGER) for family in ("gpt", "llama")),
]


def name(family):
    return canonical_name(SMALL[family].format(2))


def passes(layer):
    return layer.forward, layer.backward, layer.backward_selective


def exchanges(operators):
    return [o for o in operators.operators if o.collective and o.collective.group is CollectiveGroup.CONTEXT]


def own(operators):
    found = exchanges(operators)
    return [operator for operator in operators.operators if operator not in found]


def core_ids(layer):
    return {operator.id for operator in layer.forward.operators if operator.core_attention}


@pytest.mark.parametrize(("family", "settings"), CASES)
def test_outside_attention_a_part_is_what_a_shorter_sequence_traces_to(family, settings, extracted):
    part = shard_context(extracted(name(family), sequence_length=SMALL_LENGTH, **settings), CP)
    shorter = extracted(name(family), sequence_length=SMALL_LENGTH // CP, **settings)
    assert check_structure(part) == []
    assert "bert" in family or check_invariants(part) == []  # the pooler of so small a BERT is not negligible
    assert part.tensors == shorter.tensors
    for found, expected in zip(part.layers, shorter.layers, strict=True):
        core = core_ids(found)
        for found_pass, expected_pass in zip(passes(found), passes(expected), strict=True):
            for one, other in zip(own(found_pass), expected_pass.operators, strict=True):
                if not one.gemms or not {one.id, one.forward_id} & core:
                    if settings is EAGER and {one.id, one.forward_id} & core:  # meets twice the keys
                        assert [work.elements for work in one.vector] == [CP * work.elements for work in other.vector]
                    else:
                        assert one == other
        assert found.parameter_count == expected.parameter_count
        if found.name == "block" and settings is not EAGER:
            assert found.saved == expected.saved
        if found.name != "block":
            assert found.saved.none == pytest.approx(expected.saved.none, rel=0.01)
            assert 0.99 * expected.workspace_bytes <= found.workspace_bytes <= 1.1 * expected.workspace_bytes


@pytest.mark.parametrize(("family", "settings"), CASES)
def test_all_parts_together_do_the_work_of_the_whole(family, settings, extracted):
    whole = extracted(name(family), sequence_length=SMALL_LENGTH, **settings)
    for cp in (2, 4):
        for layer, part in zip(whole.layers, shard_context(whole, cp).layers, strict=True):
            for before, after in zip(passes(layer), passes(part), strict=True):
                pooled = sum(o.flops for o in before.operators if "pooler" in o.name or "relationship" in o.name)
                assert cp * (after.flops - pooled) == before.flops - pooled
                for one, other in zip(before.operators, own(after), strict=True):
                    assert (one.id, one.name, one.kind, one.forward_id) == (other.id, other.name, other.kind, other.forward_id)
                    if {one.id, one.forward_id} & core_ids(layer):
                        assert cp * other.flops == one.flops
                        assert [cp * work.elements for work in other.vector] == [work.elements for work in one.vector]
            assert layer.saved.none <= cp * part.saved.none < layer.saved.none + cp
            assert layer.saved.selective <= cp * part.saved.selective < layer.saved.selective + cp
            assert layer.saved.full <= cp * part.saved.full < layer.saved.full + cp


@pytest.mark.parametrize(("family", "kv_heads"), [("gpt", 4), ("llama", 2), ("mpt", 4)])
def test_keys_and_values_are_gathered_before_attention_and_their_gradients_scattered_behind(family, kv_heads, extracted):
    whole = extracted(name(family), sequence_length=SMALL_LENGTH)
    layer, part = whole.layers[1], shard_context(whole, 4).layers[1]
    payload = 2 * kv_heads * SMALL_LENGTH * 40 * 2  # keys and values of all devices in bfloat16
    (attention,) = [operator for operator in part.forward.operators if operator.kind is OperatorKind.ATTENTION]
    (gradient,) = [operator for operator in part.backward.operators if operator.kind is OperatorKind.ATTENTION]
    (gather,) = exchanges(part.forward)
    again, scatter = exchanges(part.backward)
    for exchange, kind in (
        (gather, CollectiveKind.ALL_GATHER),
        (again, CollectiveKind.ALL_GATHER),
        (scatter, CollectiveKind.REDUCE_SCATTER),
    ):
        collective = exchange.collective
        assert (collective.kind, collective.payload_bytes, collective.group_size) == (kind, payload, 4)
        small, large = sorted((exchange.bytes_read, exchange.bytes_written))
        assert (small, large) == (payload // 4, payload)
    assert gather.bytes_read < gather.bytes_written and scatter.bytes_written < scatter.bytes_read
    assert (again.yields, again.forward_id) == (Yields.OUTPUT, gather.id)
    assert (scatter.yields, scatter.forward_id) == (Yields.INPUT_GRADIENT, gather.id)
    before = {a for a, b in layer.forward.edges if b == attention.id}
    assert {a for a, b in part.forward.edges if b == attention.id} == {*before, gather.id}
    assert {a for a, b in part.forward.edges if b == gather.id} == before
    assert {b for a, b in part.backward.edges if a == again.id} == {gradient.id}
    assert {a for a, b in part.backward.edges if b == scatter.id} == {gradient.id}
    behind = {b for a, b in layer.backward.edges if a == gradient.id}
    assert {b for a, b in part.backward.edges if a == scatter.id} == behind
    assert {b for a, b in part.backward_selective.edges if a == again.id} == {attention.id, gradient.id}
    # own queries, everyone's keys and values
    queries = payload // 2 * 4 // kv_heads // 4
    biases = sum(operand.bytes for operand in attention.reads if operand.role is OperandRole.CONSTANT)
    assert attention.bytes_read == queries + payload + biases
    assert {gemm.m for gemm in attention.gemms} == {SMALL_LENGTH // 4} and attention.causal
    rows, columns = SMALL_LENGTH // 4, SMALL_LENGTH
    assert [(gemm.m, gemm.k, gemm.n) for gemm in gradient.gemms] == [
        (rows, 40, columns),
        (columns, rows, 40),
        (rows, 40, columns),
        (rows, columns, 40),
        (columns, rows, 40),
    ]
    others = payload * 3 // 4
    assert part.workspace_bytes == -(-layer.workspace_bytes // 4) + 2 * others


def test_eager_attention_exchanges_keys_and_values_where_each_is_used(extracted):
    whole = extracted(name("gpt"), sequence_length=SMALL_LENGTH, attention=Attention.EAGER)
    part = shard_context(whole, 4).layers[1]
    tensor = 4 * SMALL_LENGTH * 40 * 2
    assert [each.collective.payload_bytes for each in exchanges(part.forward)] == [tensor] * 2
    kinds = [each.collective.kind for each in exchanges(part.backward)]
    assert sorted(kinds) == [CollectiveKind.ALL_GATHER] * 2 + [CollectiveKind.REDUCE_SCATTER] * 2
    assert len(exchanges(part.backward_selective)) == 4
    rows, columns = SMALL_LENGTH // 4, SMALL_LENGTH
    products = {
        (operator.gemms[0].m, operator.gemms[0].k, operator.gemms[0].n)
        for operator in part.backward.operators
        if operator.gemms and operator.forward_id in core_ids(part)
    }
    assert products == {(columns, rows, 40), (rows, 40, columns), (40, rows, columns), (rows, columns, 40)}
    scores = next(operator for operator in part.forward.operators if operator.core_attention).writes[0]
    assert math.prod(scores.shape) == 4 * rows * columns


def test_one_context_is_the_whole(extracted):
    graph = extracted(name("gpt"), sequence_length=SMALL_LENGTH)
    assert shard_context(graph, 1) is graph


def test_a_key_can_ask_for_a_part(tmp_path, extracted):
    key = GraphKey(name("gpt"), 1, SMALL_LENGTH, 1, cp=4)
    part = shard_context(extracted(name("gpt"), sequence_length=SMALL_LENGTH), 4)
    assert part.key == key
    assert load_or_extract(key, tmp_path) == load_or_extract(key, tmp_path) == extract_graph(key) == part


@pytest.mark.parametrize("cp", [0, 5])
def test_parts_that_are_not_equal_are_refused(cp, extracted):
    with pytest.raises(InputError, match=f"context parallel degree {cp} .*divisor of 192|context parallel degree 0"):
        shard_context(extracted(name("gpt"), sequence_length=SMALL_LENGTH), cp)


def test_what_cannot_be_cut_is_refused(extracted):
    graph = extracted(name("gpt"), sequence_length=SMALL_LENGTH)
    with pytest.raises(InputError, match="2 contexts already"):
        shard_context(shard_context(graph, 2), 2)
    with pytest.raises(InputError, match="degree 64 does not divide the 96 tokens of each of 2"):
        shard_context(extracted(name("gpt"), sequence_length=SMALL_LENGTH, **PARALLEL), 64)
    block = graph.layers[1]
    product = next(o for o in block.forward.operators if o.gemms and not o.core_attention)
    mixing = replace(product, gemms=(replace(product.gemms[0], batch=2),))
    operators = tuple(mixing if o is product else o for o in block.forward.operators)
    mixed = replace(
        graph, layers=(graph.layers[0], replace(block, forward=replace(block.forward, operators=operators)), graph.layers[2])
    )
    with pytest.raises(InputError, match=f"{product.name.split('+')[0]}.* mixes tokens outside attention"):
        shard_context(mixed, 2)


def test_tensors_between_layers_are_cut(extracted):
    part = shard_context(extracted("llama2"), 8)
    hidden, tables = 4096 * 4096 * 2 // 8, 2 * 4096 * 128 * 2 // 8
    assert part.cut_bytes(7) == (hidden + tables, hidden)
    assert LayerTensor(3, (4,), hidden, hidden) in part.tensors
