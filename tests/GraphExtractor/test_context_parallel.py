"""Graphs of a device that shares its sequences with others: against graphs of shorter ones, and
conserving all work."""

import math
from collections import Counter
from dataclasses import dataclass, replace

import pytest
from sampled_models import SMALL, SMALL_LENGTH
from torch import nn
from torch.nn import functional
from whole_traces import cut_bytes, kept_alone

from GraphExtractor.check import check_invariants, check_structure
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import (
    Attention,
    CollectiveGroup,
    CollectiveKind,
    GraphKey,
    LayerTensor,
    OperandRole,
    OperatorKind,
    Recompute,
    Yields,
)
from GraphExtractor.models.base import TransformerFamily, token_ids
from GraphExtractor.models.registry import canonical_name, find_model
from GraphExtractor.storage import graph_path, load_or_extract
from phaze_common.errors import InputError

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
    return [
        o
        for o in operators.operators
        if o.collective and o.collective.group is CollectiveGroup.CONTEXT
    ]


def core_ids(layer):
    return {operator.id for operator in layer.forward.operators if operator.core_attention}


def outside_core(layer, operators):
    """Products and collectives beside attention's, as they are priced."""
    core = core_ids(layer)
    return Counter(
        (o.gemms, o.vector, o.collective, o.reads, o.writes, o.yields)
        for o in operators.operators
        if (o.gemms or o.collective)
        and not {o.id, o.forward_id} & core
        and o not in exchanges(operators)
    )


def vector_work(operators, replaced=None):
    """Vector work of a pass, with the numbers of attention's scores ``replaced``."""
    return Counter(
        (work.function, (replaced or {}).get(work.elements, work.elements))
        for o in operators.operators
        for work in o.vector
    )


@pytest.mark.some(2)
@pytest.mark.parametrize(("family", "settings"), CASES)
def test_outside_attention_a_part_is_what_a_shorter_sequence_traces_to(family, settings, extracted):
    part = extracted(name(family), sequence_length=SMALL_LENGTH, cp=CP, **settings)
    shorter = extracted(name(family), sequence_length=SMALL_LENGTH // CP, **settings)
    assert check_structure(part) == []
    assert (
        "bert" in family or check_invariants(part) == []
    )  # the pooler of so small a BERT is not negligible
    assert part.tensors == shorter.tensors
    maps, short = settings["micro_batch_size"] * 4 // settings["tp"], SMALL_LENGTH // CP
    replaced = {
        maps * short * SMALL_LENGTH: maps * short**2,
        maps * SMALL_LENGTH * (SMALL_LENGTH + 1) // 2 // CP: maps
        * short
        * (short + 1)
        // 2,  # causal: an equal share of the half
    }
    for found, expected in zip(part.layers, shorter.layers, strict=True):
        for found_pass, expected_pass in zip(passes(found), passes(expected), strict=True):
            assert outside_core(found, found_pass) == outside_core(expected, expected_pass)
            assert vector_work(found_pass, replaced) == vector_work(expected_pass)
        assert found.parameter_count == expected.parameter_count
        if settings is not EAGER:
            assert found.saved == expected.saved
        if found.name != "block":
            assert found.workspace_bytes == expected.workspace_bytes


@pytest.mark.some(2)
@pytest.mark.parametrize(("family", "settings"), CASES)
def test_all_parts_together_do_the_work_of_the_whole(family, settings, extracted):
    whole = extracted(name(family), sequence_length=SMALL_LENGTH, **settings)
    for cp in (2, 4) if settings is DENSE else (2,):
        parts = extracted(name(family), sequence_length=SMALL_LENGTH, cp=cp, **settings)
        for layer, part in zip(whole.layers, parts.layers, strict=True):
            for before, after in zip(passes(layer), passes(part), strict=True):
                pooled = sum(
                    o.flops
                    for o in before.operators
                    if "pooler" in o.name or "relationship" in o.name
                )
                assert cp * (after.flops - pooled) == before.flops - pooled
            if layer.name == "block":
                for one, other in zip(
                    (o for o in layer.forward.operators if o.core_attention),
                    (o for o in part.forward.operators if o.core_attention),
                    strict=True,
                ):
                    assert cp * other.flops == one.flops
                    assert [cp * work.elements for work in other.vector] == [
                        work.elements for work in one.vector
                    ]
                for (
                    mode
                ) in Recompute:  # without masks, which blocks share: they have two axes of tokens
                    assert cp * kept_alone(parts, 1, mode) == kept_alone(whole, 1, mode)


@pytest.mark.parametrize(("family", "kv_heads"), [("gpt", 4), ("llama", 2), ("mpt", 4)])
def test_keys_and_values_are_gathered_before_attention_and_their_gradients_scattered_behind(
    family, kv_heads, extracted
):
    part = extracted(name(family), sequence_length=SMALL_LENGTH, cp=4).layers[1]
    payload = 2 * kv_heads * SMALL_LENGTH * 40 * 2  # keys and values of all devices in bfloat16
    (attention,) = [
        operator for operator in part.forward.operators if operator.kind is OperatorKind.ATTENTION
    ]
    (gradient,) = [
        operator for operator in part.backward.operators if operator.kind is OperatorKind.ATTENTION
    ]
    (gather,) = exchanges(part.forward)
    again, scatter = sorted(exchanges(part.backward), key=lambda o: o.collective.kind)
    for exchange, kind in (
        (gather, CollectiveKind.ALL_GATHER),
        (again, CollectiveKind.ALL_GATHER),
        (scatter, CollectiveKind.REDUCE_SCATTER),
    ):
        collective = exchange.collective
        assert (collective.kind, collective.payload_bytes, collective.group_size) == (
            kind,
            payload,
            4,
        )
        small, large = sorted((exchange.bytes_read, exchange.bytes_written))
        assert (small, large) == (payload // 4, payload)
    assert gather.bytes_read < gather.bytes_written and scatter.bytes_written < scatter.bytes_read
    assert (again.yields, again.forward_id) == (Yields.OUTPUT, gather.id)
    assert (scatter.yields, scatter.forward_id) == (Yields.INPUT_GRADIENT, gather.id)
    makers_of_keys = {a for a, b in part.forward.edges if b == gather.id}
    makers = {a for a, b in part.forward.edges if b == attention.id}
    assert (
        makers_of_keys and gather.id in makers and len(makers) == 2
    )  # queries are not waited for by the gather
    assert not [a for a, b in part.backward.edges if b == again.id]
    assert {b for a, b in part.backward.edges if a == again.id} == {gradient.id}
    assert {a for a, b in part.backward.edges if b == scatter.id} == {gradient.id}
    assert {b for a, b in part.backward.edges if a == scatter.id}
    assert {b for a, b in part.backward_selective.edges if a == again.id} == {
        attention.id,
        gradient.id,
    }
    # own queries, everyone's keys and values
    queries = payload // 2 * 4 // kv_heads // 4
    biases = sum(
        operand.bytes for operand in attention.reads if operand.role is OperandRole.CONSTANT
    )
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
    assert part.workspace_bytes >= 2 * payload  # gathered keys and values, and their gradients


@pytest.mark.parametrize("family", ["gpt", "llama"])
def test_eager_attention_exchanges_keys_and_values_as_it_reads_them(family, extracted):
    part = extracted(
        name(family), sequence_length=SMALL_LENGTH, attention=Attention.EAGER, cp=4
    ).layers[1]
    payload = 2 * 4 * SMALL_LENGTH * 40 * 2  # grouped keys and values are repeated for every head
    assert [each.collective.payload_bytes for each in exchanges(part.forward)] == [payload]
    kinds = [each.collective.kind for each in exchanges(part.backward)]
    assert sorted(kinds) == [CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER]
    assert len(exchanges(part.backward_selective)) == 2
    rows, columns = SMALL_LENGTH // 4, SMALL_LENGTH
    products = {
        (operator.gemms[0].m, operator.gemms[0].k, operator.gemms[0].n)
        for operator in part.backward.operators
        if operator.gemms and operator.forward_id in core_ids(part)
    }
    assert products == {
        (columns, rows, 40),
        (rows, 40, columns),
        (40, rows, columns),
        (rows, columns, 40),
    }
    scores = next(
        operator for operator in part.forward.operators if operator.core_attention
    ).writes[0]
    assert math.prod(scores.shape) == 4 * rows * columns


def test_a_key_can_ask_for_a_part(tmp_path, extracted):
    key = GraphKey(name("gpt"), 1, SMALL_LENGTH, 1, cp=4)
    part = extracted(name("gpt"), sequence_length=SMALL_LENGTH, cp=4)
    assert part.key == key
    assert load_or_extract(key, tmp_path) == load_or_extract(key, tmp_path) == part
    family = find_model(key.model)
    assert graph_path(key, tmp_path, family) != graph_path(replace(key, cp=1), tmp_path, family)


@pytest.mark.parametrize("cp", [0, 5])
def test_parts_that_are_not_equal_are_refused(cp):
    with pytest.raises(
        InputError, match=f"context parallel degree {cp} .*divisor of 192|context parallel degree 0"
    ):
        extract_graph(GraphKey(name("gpt"), 1, SMALL_LENGTH, 1, cp=cp))


def test_parts_of_a_sequence_parallel_device_are_not_cut_unequally():
    with pytest.raises(InputError, match="degree 64 does not divide the 96 tokens of each of 2"):
        extract_graph(GraphKey(name("gpt"), 1, SMALL_LENGTH, 2, sequence_parallel=True, cp=64))


class Mixer(nn.Module):
    """Tokens meet in attention as torch has it, in one of its own, or in a convolution over
    them."""

    def __init__(self, hidden, way):
        super().__init__()
        self.qkv, self.way = nn.Linear(hidden, 3 * hidden), way
        self.convolution = nn.Conv1d(hidden, hidden, 3, padding=1) if way == "convolution" else None

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if self.way == "own":
            mixed = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        else:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + mixed.transpose(1, 2).flatten(2)
        return (
            x if self.convolution is None else self.convolution(x.transpose(1, 2)).transpose(1, 2)
        )


class MixerModel(nn.Module):
    def __init__(self, hidden, vocabulary, layers, way):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.blocks = nn.ModuleList(Mixer(hidden, way) for _ in range(layers))
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@dataclass(frozen=True, kw_only=True)
class MixerFamily(TransformerFamily):
    folder = "Mixer"
    blocks = ("blocks",)
    way: str

    def build(self, key, vocabulary, attention):
        return MixerModel(self.hidden, vocabulary, self.layers, self.way)

    def inputs(self, key):
        return {"ids": token_ids(key), "labels": token_ids(key)}

    def loss(self, model, inputs, cross_entropy):
        return cross_entropy(model(inputs["ids"]), inputs["labels"])


def mixer(way):
    return MixerFamily(
        layers=2, hidden=32, heads=4, ffn=32, vocabulary=256, sequence_length=64, way=way
    )


@pytest.mark.parametrize(("way", "operator"), [("own", "bmm"), ("convolution", "convolution")])
def test_models_whose_tokens_meet_outside_attention_are_refused(way, operator):
    key = GraphKey("mixer", 2, 64, 1, cp=2)
    assert extract_graph(GraphKey("mixer", 2, 64, 1), mixer(way)).layers
    with pytest.raises(
        InputError,
        match=f"{operator} in layer block of mixer mixes tokens outside attention.*degree 1",
    ):
        extract_graph(key, mixer(way))


def test_any_model_whose_tokens_meet_in_attention_can_be_cut():
    graph = extract_graph(GraphKey("mixer", 2, 64, 1, cp=2), mixer("torch"))
    assert check_structure(graph) == check_invariants(graph) == []
    assert [each.collective.payload_bytes for each in exchanges(graph.layers[1].forward)] == [
        2 * 2 * 64 * 32 * 2
    ]


def test_tensors_between_layers_are_cut(extracted):
    part = extracted("llama2", cp=8)
    hidden, tables = 4096 * 4096 * 2 // 8, 2 * 4096 * 128 * 2 // 8
    assert cut_bytes(part, 7) == (hidden + tables, hidden)
    assert LayerTensor(3, (4,), hidden, hidden) in part.tensors
