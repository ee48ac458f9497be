"""A model of one's own: a family in one file, and what happens when it cannot be traced."""

import logging
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn
from torch.nn import functional
from whole_traces import cut_bytes, traced_step

from Estimator.coverage import check_functions
from Estimator.devices.functions import TENSORS_MOVED
from GraphExtractor.check import check_invariants
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import Attention, GraphKey, OperatorKind
from GraphExtractor.models.base import TransformerFamily, token_ids
from GraphExtractor.models.gpt import Gpt
from GraphExtractor.models.registry import find_model
from GraphExtractor.widths import allowed_widths
from phaze_common.errors import InputError, PhazeError

KEY = GraphKey("nano", 2, 32, 1)


class NanoBlock(nn.Module):
    def __init__(self, hidden, heads, position):
        super().__init__()
        self.heads, self.layer_idx = heads, position
        self.norm = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x):
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=True)
        return x + functional.dropout(self.out(mixed.transpose(1, 2).flatten(2)), 0.1)


class NanoModel(nn.Module):
    def __init__(self, vocabulary, hidden, heads, layers, block):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.blocks = nn.ModuleList(block(hidden, heads, position) for position in range(layers))
        self.head = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@dataclass(frozen=True, kw_only=True)
class Nano(TransformerFamily):
    folder = "Nano"
    blocks = ("blocks",)
    block: type[nn.Module] = NanoBlock

    def build(self, key, vocabulary, attention):
        return NanoModel(vocabulary, self.hidden, self.heads, self.layers, self.block)

    def inputs(self, key):
        return {"ids": token_ids(key), "labels": token_ids(key)}

    def loss(self, model, inputs, cross_entropy):
        return cross_entropy(model(inputs["ids"]), inputs["labels"])


def nano(block=NanoBlock, layers=6):
    return Nano(
        layers=layers,
        hidden=64,
        heads=4,
        ffn=64,
        vocabulary=256,
        sequence_length=32,
        published_parameter_count=0,
        block=block,
    )


@pytest.mark.parametrize("attention", Attention)
def test_a_family_is_one_class(attention):
    graph = extract_graph(GraphKey("nano", 2, 32, 1, attention), nano())
    assert check_invariants(graph) == []
    assert graph.sequence == (0, 1, 1, 1, 1, 1, 1, 2)
    assert graph.total_parameter_count == 2 * 256 * 64 + 6 * (4 * 64 * 64 + 4 * 64 + 2 * 64)
    core = [operator for operator in graph.layers[1].forward.operators if operator.core_attention]
    assert [operator.kind for operator in core] == (
        [OperatorKind.ATTENTION]
        if attention is Attention.FLASH
        else [OperatorKind.GEMM, OperatorKind.REDUCTION, OperatorKind.GEMM]
    )


def test_layers_that_differ_stay_apart():
    class Alternating(NanoBlock):
        def forward(self, x):
            x = super().forward(x)
            return functional.gelu(x) if self.layer_idx % 2 else x

    graph = extract_graph(KEY, nano(Alternating))
    assert graph.sequence == (0, 1, 2, 1, 2, 1, 2, 3)
    assert len({*graph.layers}) == 4


def test_representatives_equal_the_layers_of_the_whole_model():
    from GraphExtractor.layers import layers_of

    family = Gpt(layers=7, hidden=64, heads=4, ffn=256, vocabulary=512, sequence_length=64)
    key = GraphKey("tiny", 1, 64, 2)
    whole = layers_of(traced_step(key, family))
    assert len(whole.layers) == 9
    assert len({*whole.layers[1:-1]}) == 1
    graph = extract_graph(key, family)
    assert tuple(graph.layers[index] for index in graph.sequence) == whole.layers
    assert graph.tensors == whole.tensors


@pytest.mark.some(2)
@pytest.mark.parametrize("attention", Attention)
@pytest.mark.parametrize("tp", [1, 2])
def test_grouped_query_attention(attention, tp):
    family = replace(find_model("llama2"), layers=5, heads=8, kv_heads=2, hidden=256, ffn=512)
    assert allowed_widths(family) == (1, 2)
    graph = extract_graph(GraphKey("grouped", 2, 128, tp, attention), family)
    assert check_invariants(graph) == []
    block = graph.layers[1]
    assert block.matmul_parameter_count == (2 * 256 * 256 + 2 * 256 * 64 + 3 * 256 * 512) // tp
    scores = sum(operator.flops for operator in block.forward.operators if operator.core_attention)
    assert scores == 2 * 2 * (2 * 8 // tp) * 128 * 128 * 32


def test_skip_connections_between_blocks_are_followed():
    class Skipping(NanoModel):
        def forward(self, ids):
            first = x = self.embedding(ids)
            for block in self.blocks:
                x = block(x)
            return self.head(x + first)

    @dataclass(frozen=True, kw_only=True)
    class SkippingFamily(Nano):
        def build(self, key, vocabulary, attention):
            return Skipping(vocabulary, self.hidden, self.heads, self.layers, self.block)

    family = SkippingFamily(
        layers=6,
        hidden=64,
        heads=4,
        ffn=64,
        vocabulary=256,
        sequence_length=32,
        published_parameter_count=0,
    )
    graph = extract_graph(KEY, family)
    assert [
        (t.source, t.destinations)
        for t in graph.tensors
        if len(t.destinations) > 1 or t.destinations[0] != t.source + 1
    ] == [(0, (1, 7))]
    assert cut_bytes(graph, 4) == (2 * graph.tensors[0].bytes, 2 * graph.tensors[0].gradient_bytes)


def test_unknown_operators_are_priced_and_named(caplog):
    class Odd(NanoBlock):
        def forward(self, x):
            return super().forward(torch.atan(x))

    graph = extract_graph(KEY, nano(Odd))
    with caplog.at_level(logging.WARNING):
        check_functions([graph], TENSORS_MOVED, strict=False)
    assert (
        "nano have no cost and are priced by bytes alone: aten.atan (6 times, in block)"
        in caplog.text
    )
    with pytest.raises(
        InputError, match=r"nano have no cost: aten.atan \(6 times, in block\); leave out --strict"
    ):
        check_functions([graph], TENSORS_MOVED, strict=True)
    assert any(
        work.function == "atan"
        for operator in graph.layers[1].forward.operators
        for work in operator.vector
    )


def test_parameters_without_gradient_are_refused():
    class Unused(NanoBlock):
        def __init__(self, *settings):
            super().__init__(*settings)
            self.idle = nn.Linear(64, 64)

    with pytest.raises(PhazeError, match=r"no gradient reaches .*blocks\.0\.idle\.weight"):
        extract_graph(KEY, nano(Unused))


def test_code_that_looks_at_values_is_refused_with_its_line():
    class Curious(NanoBlock):
        def forward(self, x):
            return super().forward(x) if x.sum() > 0 else x

    with pytest.raises(InputError, match=r"value of a tensor at .*test_custom_family\.py:\d+"):
        extract_graph(KEY, nano(Curious))


def test_without_a_plan_only_width_one_is_allowed():
    assert allowed_widths(nano()) == (1,)
    with pytest.raises(InputError, match="no tensor-parallel plan"):
        extract_graph(GraphKey("nano", 1, 32, 2), nano())


def test_convolutions_are_products():
    class Convolving(NanoBlock):
        def __init__(self, *settings):
            super().__init__(*settings)
            self.conv = nn.Conv1d(64, 64, 3, padding=1)

        def forward(self, x):
            return super().forward(x + self.conv(x.transpose(1, 2)).transpose(1, 2))

    block = extract_graph(KEY, nano(Convolving)).layers[1]
    forward, backward = (
        [operator for operator in graph.operators if operator.kind is OperatorKind.CONV]
        for graph in (block.forward, block.backward)
    )
    assert [operator.flops for operator in forward] == [2 * 2 * 32 * 64 * 64 * 3]
    assert sum(operator.flops for operator in backward) == 2 * forward[0].flops
