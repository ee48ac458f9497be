"""Tensor parallelism derived from a traced step: what is found, what it costs, what is refused."""

import logging
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
import torch
from derived_sharding_cases import (
    HEADS,
    LENGTH,
    WIDTH,
    Block,
    FusedAttention,
    GatedMlp,
    GroupedAttention,
    InterleavedAttention,
    Mlp,
    StackedAttention,
    decoder,
    ids,
    square_loss,
    traced,
)
from torch import nn
from torch.nn import functional
from whole_traces import traced_step

from GraphExtractor.check import check_structure
from GraphExtractor.derived_sharding import _widths, shard_traced
from GraphExtractor.derived_sharding.facts import StepFacts
from GraphExtractor.derived_sharding.pairs import find_pairs
from GraphExtractor.graph import Attention, CollectiveKind, GraphKey, ModelGraph
from GraphExtractor.layers import layers_of
from GraphExtractor.models.registry import canonical_name, find_model
from phaze_common.errors import InputError

TOKENS = {"x": torch.empty(2, LENGTH, WIDTH, dtype=torch.float64)}


def provable_widths(step):
    """Tensor-parallel widths that divide all pairs of linear layers found in a step traced at width
    1."""
    return _widths(find_pairs(StepFacts(step)))


def all_reduces(step, layer=None, backward=None):
    return [
        node
        for node in step.graph.nodes
        if node.target is torch.ops.phaze.all_reduce.default
        and layer in (None, step.origins[node].layer)
        and backward in (None, step.origins[node].backward)
    ]


def costs(graph):
    gemms = Counter(gemm for each in graph.operators for gemm in each.gemms)
    return gemms, Counter(each.collective for each in graph.operators if each.collective)


def between(function, inner=32, undescribed=False):
    """Two linear layers with ``function`` between them."""

    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(WIDTH, inner), nn.Linear(inner, WIDTH)

        def forward(self, x):
            return self.down(function(self.up(x)))

    return traced(Pair, TOKENS, square_loss, undescribed=undescribed)


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("name", "attention"),
    [
        ("gpt2", Attention.EAGER),
        ("llama2", Attention.FLASH),
        ("llama2", Attention.EAGER),
        ("bertbase", Attention.FLASH),
        ("opt", Attention.FLASH),
        ("bloom-560m", Attention.FLASH),
        ("mpt-1b", Attention.EAGER),
    ],
)
def test_blocks_equal_those_split_by_their_plan(name, attention):
    small = {
        "layers": 1,
        "hidden": 64,
        "heads": 4,
        "ffn": 192,
        "vocabulary": 512,
        "sequence_length": 32,
    }
    family = replace(
        find_model(canonical_name(name)), **small, kv_heads=2 if name == "llama2" else 4
    )
    key = GraphKey("small", 3, 32, 2, attention)
    derived = layers_of(shard_traced(traced_step(replace(key, tp=1), family), 2))
    planned = layers_of(traced_step(key, family))
    (position,) = (
        position for position, place in enumerate(planned.places) if place.name == "block"
    )
    one, other = derived.layers[position], planned.layers[position]
    for found, expected in ((one.forward, other.forward), (one.backward, other.backward)):
        assert costs(found) == costs(expected)
        assert sum(costs(found)[1].values()) == 2
    assert one.saved == other.saved
    assert (one.parameter_count, one.matmul_parameter_count) == (
        other.parameter_count,
        other.matmul_parameter_count,
    )
    assert [each for each in derived.tensors if each.source >= 1] == [
        each for each in planned.tensors if each.source >= 1
    ]


@pytest.mark.parametrize("attention", Attention)
def test_a_derived_step_is_a_sound_graph(attention):
    step = shard_traced(traced(decoder, ids(), attention=attention, dtype=torch.bfloat16), 4)
    layers = layers_of(step)
    key = GraphKey("own", 2, LENGTH, 4, attention)
    assert check_structure(ModelGraph(key, layers.layers, tuple(range(4)), layers.tensors, 0)) == []
    block = layers.layers[1]
    assert block.matmul_parameter_count * 4 == 4 * WIDTH * WIDTH + 2 * 24 * WIDTH
    for graph in (block.forward, block.backward):
        collectives = [each.collective for each in graph.operators if each.collective]
        assert [(each.kind, each.payload_bytes, each.group_size) for each in collectives] == [
            (CollectiveKind.ALL_REDUCE, 2 * 2 * LENGTH * WIDTH, 4)
        ] * 2


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("attention", "mlp", "order", "expected"),
    [
        (FusedAttention, Mlp, "pre", (2, 2)),
        (FusedAttention, partial(GatedMlp, fused=True), "post", (2, 2)),
        (StackedAttention, GatedMlp, "pre", (2, 2)),
        (
            InterleavedAttention,
            GatedMlp,
            "parallel",
            (1, 2),
        ),  # both sums are one; each part has a norm of its own
        (
            GroupedAttention,
            GatedMlp,
            "pre",
            (2, 4),
        ),  # and the gradients of two scales that all heads share
        (
            partial(GroupedAttention, kv_heads=1),
            Mlp,
            "pre",
            (2, 5),
        ),  # keys and values that all heads share, and a scale
    ],
)
def test_sums_are_taken_once(attention, mlp, order, expected):
    step = shard_traced(traced(partial(decoder, attention, mlp, order), ids()), 2)
    for layer in (1, 2):
        assert (
            len(all_reduces(step, layer, False)),
            len(all_reduces(step, layer, True)),
        ) == expected
    assert len(all_reduces(step)) == 2 * sum(expected)


def test_collectives_stand_with_the_products_they_complete():
    step = shard_traced(traced(decoder, ids()), 2)
    modules = [step.origins[node].module.split(".", 2)[-1] for node in all_reduces(step, 1)]
    assert modules == ["attn.c_proj", "mlp.down", "mlp.up", "attn.c_attn"]
    assert all(step.origins[node].forward in step.origins for node in all_reduces(step, 1, True))
    assert not any(step.origins[node].forward for node in all_reduces(step, 1, False))


def test_gradients_have_the_shapes_of_their_parameters():
    step = shard_traced(traced(partial(decoder, GroupedAttention), ids()), 2)
    split = {name: node.meta["val"].shape for node, name in step.parameters.items()}
    assert {name: node.meta["val"].shape for name, node in step.gradients.items()} == split
    assert split["blocks.1.attn.k.weight"] == (WIDTH // 4, WIDTH) and split[
        "blocks.1.attn.o.weight"
    ] == (WIDTH, WIDTH // 2)
    assert split["blocks.0.mlp.up.bias"] == (12,) and split["blocks.0.mlp.down.bias"] == (WIDTH,)
    assert split["wte.weight"] == (40, WIDTH)


def test_transformer_encoder_layers():
    def build():
        return nn.Sequential(
            *(nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True) for _ in range(2))
        )

    step = traced(build, TOKENS, square_loss, Attention.FLASH)
    assert provable_widths(step) == (1, 2, 4)
    derived = shard_traced(step, 4)
    assert [
        node.args[0].meta["val"].shape[1]
        for node in derived.graph.nodes
        if "attention.default" in str(node.target)
    ] == [
        1,
        1,
    ]
    assert [
        (len(all_reduces(derived, layer, False)), len(all_reduces(derived, layer, True)))
        for layer in (0, 1)
    ] == [
        (2, 1),  # the input of the model needs no gradient
        (2, 2),
    ]


def test_cross_attention_of_torch_is_split():
    decoder_layer = partial(nn.TransformerDecoderLayer, WIDTH, HEADS, 32, 0.0, batch_first=True)

    class Crossing(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.memory = (
                nn.ModuleList(decoder_layer() for _ in range(2)),
                nn.LayerNorm(WIDTH),
            )

        def forward(self, x):
            memory = self.memory(x)
            for layer in self.layers:
                x = layer(x, memory)
            return x

    step = traced(Crossing, TOKENS, square_loss)
    derived = shard_traced(step, 2)
    shapes = {name: tuple(node.meta["val"].shape) for node, name in derived.parameters.items()}
    assert shapes["layers.0.multihead_attn.in_proj_weight"] == (3 * WIDTH // 2, WIDTH)
    # no sum is left to another layer: each one sums the gradient it sends back to the memory
    assert (
        len(all_reduces(derived, 2, True))
        == len({node.args[0] for node in all_reduces(derived, 2, True)})
        == 4
    )


def test_widths_divide_heads_and_columns():
    assert provable_widths(
        traced(partial(decoder, FusedAttention, partial(Mlp, inner=24)), ids())
    ) == (1, 2, 4)
    assert provable_widths(traced(partial(decoder, GroupedAttention), ids())) == (1, 2)
    assert provable_widths(traced(partial(decoder, mlp=partial(Mlp, inner=6)), ids())) == (1, 2)
    assert provable_widths(between(functional.relu, 192)) == (
        1,
        2,
        3,
        4,
        6,
        8,
        12,
        16,
        24,
        32,
        48,
        64,
    )


def test_a_width_that_does_not_divide_is_refused_with_those_that_do():
    step = traced(decoder, ids())
    with pytest.raises(
        InputError, match=r"width 3 .*blocks\.0\.attn\.c_attn \(4\); use one of 1, 2, 4$"
    ):
        shard_traced(step, 3)
    assert shard_traced(step, 1) is step


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (
            lambda h: functional.layer_norm(h, h.shape[-1:]),
            "native_layer_norm normalises the split dimension",
        ),
        (lambda h: h.cumsum(-1), "cumsum works along the split dimension"),
        (lambda h: h.softmax(-1), "_softmax works along the split dimension"),
        (lambda h: torch.fft.fft(h, dim=-1).real, "_fft_r2c has no rule"),
        (lambda h: h.roll(1, -1), "roll moves positions of the split dimension"),
        (lambda h: h / h.pow(2).mean(-1, keepdim=True), "mean reduces the split dimension"),
        (
            lambda h: h @ h.transpose(-1, -2) @ h,
            "bmm multiplies two activations over the split dimension",
        ),
        (
            lambda h: h[..., ::2].repeat(1, 1, 2),
            "slice steps over positions of the split dimension",
        ),
        (lambda h: h[..., :1] * h, "slice cuts the split dimension at 0, 1"),
        (lambda h: h.tril(), "tril masks positions of the split dimension"),
        (lambda h: functional.pad(h[..., 2:], (1, 1)), "constant_pad_nd pads the split dimension"),
    ],
)
def test_what_cannot_be_proven_is_refused_with_the_operator(function, reason):
    step = between(function)
    assert provable_widths(step) == (1,)
    with pytest.raises(
        InputError, match=rf"up\.weight split by columns, .*{reason}.*tensor_parallel = .*width 1"
    ) as refusal:
        shard_traced(step, 2)
    assert "\n" not in str(refusal.value)


def test_the_refusal_names_the_line_that_forbids_the_split():
    step = between(lambda h: h.cumsum(-1), undescribed=True)
    with pytest.raises(
        InputError,
        match=r"cumsum at .*test_derived_sharding\.py:\d+ works along the split dimension",
    ):
        shard_traced(step, 2)


@pytest.mark.parametrize(
    ("function", "widest"),
    [
        (lambda h: h.cumsum(1), 32),
        (lambda h: h.softmax(1), 32),
        (lambda h: torch.cat(h.chunk(2, -1)[::-1], -1), 16),
        (lambda h: torch.cat([h[..., :8] * 2, h[..., 8:]], -1), 8),
        (lambda h: h.relu_(), 32),
        (lambda h: h.view(*h.shape[:2], 4, 8).softmax(-1).flatten(2), 4),
        (lambda h: h.unflatten(-1, (2, 16)).sum(2).repeat(1, 1, 2), 1),
        (
            lambda h: (
                h.unflatten(-1, (2, 16)).select(2, 1).unsqueeze(2).expand(-1, -1, 2, -1).flatten(2)
            ),
            16,
        ),
    ],
)
def test_how_finely_a_value_can_be_split(function, widest):
    assert provable_widths(between(function))[-1] == widest


def test_convolutions_stay_whole():
    class Convolving(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = (nn.Conv1d(LENGTH, LENGTH, 3, padding=1) for _ in range(2))
            self.head = nn.Linear(WIDTH * LENGTH, 10)

        def forward(self, x):
            return self.head(
                functional.relu(self.two(functional.relu(self.one(x)))).flatten(1)
            ).log_softmax(-1)

    with pytest.raises(
        InputError,
        match=r"head\.weight split by columns, _log_softmax works along the split dimension",
    ):
        shard_traced(traced(Convolving, TOKENS, square_loss), 2)


def test_a_model_without_linear_layers_is_refused():
    with pytest.raises(InputError, match="no linear layers"):
        shard_traced(traced(lambda: nn.Conv1d(LENGTH, LENGTH, 3), TOKENS, square_loss), 2)


def test_what_stays_whole_is_said(caplog):
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.block, self.odd = Block(FusedAttention, Mlp), nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            return self.odd(self.block(x)).softmax(-1)

    with caplog.at_level(logging.INFO, logger="GraphExtractor"):
        shard_traced(traced(Mixed, TOKENS, square_loss), 2)
    assert "leaves whole: odd.weight (_softmax works along the split dimension)" in caplog.text


def test_of_several_pairs_the_one_that_sums_least_is_taken():
    class Adapted(nn.Module):
        """A low-rank adapter beside the first layer, and a stream without norms that could be split
        as well."""

        def __init__(self):
            super().__init__()
            self.enter, self.up, self.down = (
                nn.Linear(WIDTH, WIDTH),
                nn.Linear(WIDTH, 64),
                nn.Linear(64, WIDTH),
            )
            self.a, self.b = nn.Linear(WIDTH, 4, bias=False), nn.Linear(4, 64, bias=False)

        def forward(self, x):
            x = self.enter(x)
            return x + self.down(functional.gelu(self.up(x) + self.b(self.a(x))))

    step = traced(Adapted, TOKENS, square_loss)
    assert provable_widths(step)[-1] == 64
    shapes = {
        name: tuple(node.meta["val"].shape)
        for node, name in shard_traced(step, 2).parameters.items()
    }
    assert {name for name, shape in shapes.items() if 32 in shape} == {
        "up.weight",
        "up.bias",
        "b.weight",
        "down.weight",
    }
    assert shapes["a.weight"] == (4, WIDTH) and shapes["enter.weight"] == (WIDTH, WIDTH)


def test_a_block_called_twice_is_split_once():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Block(FusedAttention, Mlp)

        def forward(self, x):
            return self.block(self.block(x))

    step = shard_traced(traced(Shared, TOKENS, square_loss), 2)
    assert [len(all_reduces(step, layer, False)) for layer in (0, 1)] == [2, 2]


def test_changes_in_place_of_a_part_cut_out_are_refused():
    def noted(h):
        buffer = torch.zeros(h.shape, dtype=h.dtype)
        buffer[0].add_(h[0].detach())
        return h * buffer

    with pytest.raises(InputError, match="add changes a value in place that is read again"):
        shard_traced(between(noted), 2)
