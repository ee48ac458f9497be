"""Mixtures of experts: published counts, and what one device of every parallel group computes,
keeps and exchanges."""

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
import torch

from GraphExtractor import extract
from GraphExtractor.check import check_invariants, check_structure
from GraphExtractor.experts import tokens_by_expert
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import (
    Attention,
    CollectiveGroup,
    CollectiveKind,
    GraphKey,
    OperatorKind,
    Yields,
)
from GraphExtractor.models.registry import find_model
from GraphExtractor.widths import check_key
from phaze_common.choices import ExpertWidth
from phaze_common.errors import InputError
from tests.builders.samples import sampled

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
)
# billions of all parameters and of those a token meets, as their papers and model cards round them
PUBLISHED = {
    "mixtral-8x7b": (46.7, 12.9),
    "mixtral-8x22b": (141, 39),
    "qwen3-30b-a3b": (30.5, 3.3),
    "qwen3-235b-a22b": (235, 22),
    "deepseek-v3": (671, 37),
}
ONE_OF_EACH = ("mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3")
TOKENS, HIDDEN = 128, 96
DIVIDED = [(1, False, 4), (2, False, 2), (4, True, 2)]  # tp, sequence parallelism, ep
SMALL = {
    "mixtral": replace(
        find_model("mixtral-8x7b"),
        layers=2,
        hidden=HIDDEN,
        heads=8,
        kv_heads=8,
        ffn=64,
        vocabulary=512,
    ),
    "qwen3": replace(
        find_model("qwen3-30b-a3b"),
        layers=2,
        hidden=HIDDEN,
        heads=8,
        kv_heads=8,
        head_width=16,
        ffn=64,
        experts=16,
        chosen=4,
    ),
    "deepseek": replace(
        find_model("deepseek-v3"),
        layers=2,
        dense_layers=1,
        hidden=HIDDEN,
        heads=8,
        ffn=256,
        expert_ffn=64,
        experts=16,
        chosen=4,
        vocabulary=512,
        query_rank=40,
        key_rank=24,
        plain_width=16,
        rotary_width=8,
        value_width=12,
    ),
}


@cache
def small(
    name, tp=1, sequence_parallel=False, ep=1, attention=Attention.FLASH, etp=ExpertWidth.SAME
):
    key = GraphKey(name, 1, TOKENS, tp, attention, sequence_parallel, ep=ep, etp=etp)
    return extract.extract_graph(
        key, SMALL[name]
    )  # or what stands for it in this session: the shared graphs


def block_of(graph):
    """The last block: of DeepSeek, one with experts."""
    return graph.layers[graph.sequence[-2]]


def exchanges(graph, group):
    return [
        each.collective
        for each in graph.operators
        if each.collective and each.collective.group is group
    ]


def kinds(graph):
    return Counter(collective.kind for collective in exchanges(graph, CollectiveGroup.TENSOR))


@pytest.mark.some(1)
@pytest.mark.parametrize("model", sampled(PUBLISHED, ONE_OF_EACH))
def test_all_and_active_parameters_are_as_published(model, extracted):
    graph, family = extracted(model), find_model(model)
    total, active = PUBLISHED[model]
    assert graph.total_parameter_count == family.published_parameter_count
    assert family.published_parameter_count == pytest.approx(total * 1e9, rel=0.01)
    missed = sum(graph.layers[index].expert_parameter_count for index in graph.sequence) * (
        1 - family.chosen / family.experts
    )
    assert graph.total_parameter_count - missed == pytest.approx(
        family.published_active_count, rel=1e-9
    )
    assert family.published_active_count == pytest.approx(
        active * 1e9, rel=0.02
    )  # 37 stands for 37.55, 3.3 for 3.35


@pytest.mark.parametrize("model", sampled(PUBLISHED, ONE_OF_EACH))
def test_a_token_costs_two_flops_for_each_active_parameter(model, extracted):
    graph, family = extracted(model), find_model(model)
    assert check_structure(graph) == []
    layers = [graph.layers[index] for index in graph.sequence]
    attention = sum(
        each.flops for layer in layers for each in layer.forward.operators if each.core_attention
    )
    table = family.vocabulary * family.hidden  # looked up, not multiplied
    wanted = 2 * (family.published_active_count - table) * family.sequence_length
    assert sum(layer.forward.flops for layer in layers) - attention == pytest.approx(
        wanted, rel=0.01
    )


@pytest.mark.some(1)
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(("tp", "sequence_parallel", "ep"), [(1, False, 1), *DIVIDED])
def test_graphs_are_training_graphs(name, tp, sequence_parallel, ep):
    graph = small(name, tp, sequence_parallel, ep)
    assert check_structure(graph) == check_invariants(graph) == []
    assert graph.total_parameter_count == small(name).total_parameter_count
    for operator in block_of(graph).backward.operators:
        forward = {each.id: each for each in block_of(graph).forward.operators}[operator.forward_id]
        if (
            operator.kind is OperatorKind.GEMM
        ):  # each product's gradients differentiate a product as large
            assert forward.kind is OperatorKind.GEMM
            assert operator.gemms[0].macs == forward.gemms[0].macs


@pytest.mark.some(2)
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(("tp", "sequence_parallel", "ep"), DIVIDED)
def test_experts_and_their_rows_are_divided(name, tp, sequence_parallel, ep):
    family = SMALL[name]
    width = getattr(family, "expert_ffn", family.ffn)
    experts, rows = family.experts // ep, TOKENS * family.chosen * ep // family.experts
    layer = block_of(small(name, tp, sequence_parallel, ep))
    assert layer.expert_parameter_count == block_of(small(name)).expert_parameter_count // (tp * ep)
    batched = [
        each
        for each in (*layer.forward.operators, *layer.backward.operators)
        if each.gemms and "experts.bmm" in each.name
    ]
    assert [each.yields for each in batched].count(Yields.WEIGHT_GRADIENT) == 2 and len(
        batched
    ) == 6
    for operator in batched:
        (gemm,) = operator.gemms
        assert gemm.batch == experts
        assert sorted((gemm.m, gemm.k, gemm.n)) in (
            sorted((rows, HIDDEN, 2 * width // tp)),
            sorted((rows, HIDDEN, width // tp)),
        )
    assert layer.forward.flops * tp <= block_of(small(name)).forward.flops * (
        1.2 if name == "deepseek" else 1.05
    )


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(("tp", "sequence_parallel", "ep"), DIVIDED)
def test_rows_are_exchanged_twice_forward_and_twice_backward(name, tp, sequence_parallel, ep):
    layer = block_of(small(name, tp, sequence_parallel, ep))
    tokens = TOKENS // tp if sequence_parallel else TOKENS
    payload = 2 * tokens * SMALL[name].chosen * HIDDEN
    for block_pass in (layer.forward, layer.backward):
        assert [
            (each.kind, each.payload_bytes, each.group_size)
            for each in exchanges(block_pass, CollectiveGroup.EXPERT)
        ] == [(ALL_TO_ALL, payload, ep)] * 2
    assert exchanges(block_of(small(name)).forward, CollectiveGroup.EXPERT) == []


@pytest.mark.parametrize("name", SMALL)
def test_whole_experts_are_divided_over_tensor_parallel_devices_too(name):
    """Of tp 4 x ep 2 devices each holds as much of the experts with etp 1 and ep 8, and multiplies
    as much; it exchanges its own rows, and gathers none."""
    divided, whole = (
        small(name, tp=4, sequence_parallel=True, ep=ep, etp=etp)
        for ep, etp in ((2, ExpertWidth.SAME), (8, ExpertWidth.ONE))
    )
    assert check_structure(whole) == check_invariants(whole) == []
    one, other = block_of(divided), block_of(whole)
    assert one.expert_parameter_count == other.expert_parameter_count > 0
    assert whole.total_parameter_count == divided.total_parameter_count
    for one_pass, other_pass in ((one.forward, other.forward), (one.backward, other.backward)):
        products = [
            sum(gemm.macs for each in graph.operators for gemm in each.gemms)
            for graph in (one_pass, other_pass)
        ]
        assert products[0] == products[1]
        (sent, _), (also_sent, _) = (
            exchanges(graph, CollectiveGroup.EXPERT) for graph in (one_pass, other_pass)
        )
        assert sent.payload_bytes == also_sent.payload_bytes and also_sent.group_size == 8
        gathered, fewer = (
            exchanges(graph, CollectiveGroup.TENSOR) for graph in (one_pass, other_pass)
        )
        assert len(gathered) - len(fewer) == 2


def test_whole_experts_without_sequence_parallelism_are_refused():
    with pytest.raises(InputError, match="give sequence_parallel true"):
        check_key(GraphKey("mixtral", 1, TOKENS, 2, etp=ExpertWidth.ONE), SMALL["mixtral"])


@pytest.mark.parametrize("name", ["mixtral", "qwen3"])
def test_a_block_all_reduces_as_one_with_a_dense_mlp(name):
    layer = block_of(small(name, tp=2, ep=2))
    for block_pass in (layer.forward, layer.backward):
        assert [
            (each.kind, each.payload_bytes)
            for each in exchanges(block_pass, CollectiveGroup.TENSOR)
        ] == [(ALL_REDUCE, 2 * TOKENS * HIDDEN)] * 2


@pytest.mark.parametrize("name", ["mixtral", "qwen3"])
def test_sequence_parallel_experts_gather_the_routed_rows_and_keep_them(name):
    layer = block_of(small(name, tp=4, sequence_parallel=True, ep=2))
    routed = 2 * TOKENS * SMALL[name].chosen * HIDDEN
    dense = 2 * TOKENS * HIDDEN
    for block_pass, gathers in (
        (layer.forward, 1),
        (layer.backward, 2),
    ):  # attention's input is gathered again
        assert Counter(
            (each.kind, each.payload_bytes)
            for each in exchanges(block_pass, CollectiveGroup.TENSOR)
        ) == {
            (ALL_GATHER, routed): 1,
            (REDUCE_SCATTER, routed): 1,
            (ALL_GATHER, dense): gathers,
            (REDUCE_SCATTER, dense): 1,
        }
    router = next(each for each in layer.forward.operators if "router.mm" in each.name)
    assert router.gemms[0].m == TOKENS // 4


def test_latent_attention_reduces_the_gradients_of_what_all_heads_share():
    layer, family = block_of(small("deepseek", tp=2, ep=2)), SMALL["deepseek"]
    assert [each.payload_bytes for each in exchanges(layer.forward, CollectiveGroup.TENSOR)] == [
        2 * TOKENS * HIDDEN
    ] * 2
    widths = Counter(
        [HIDDEN, family.query_rank, family.key_rank, family.rotary_width]
    )  # of the experts' input; of the latents
    found = exchanges(layer.backward, CollectiveGroup.TENSOR)
    assert {each.kind for each in found} == {ALL_REDUCE}
    assert Counter(each.payload_bytes for each in found) == {
        2 * TOKENS * width: count for width, count in widths.items()
    }


def test_latent_attention_gathers_the_latents_of_a_part_of_the_sequence():
    layer, family = (
        block_of(small("deepseek", tp=4, sequence_parallel=True, ep=2)),
        SMALL["deepseek"],
    )
    latents = [
        2 * TOKENS * width for width in (family.query_rank, family.key_rank, family.rotary_width)
    ]
    routed, dense = 2 * TOKENS * family.chosen * HIDDEN, 2 * TOKENS * HIDDEN
    forward, backward = (
        exchanges(each, CollectiveGroup.TENSOR) for each in (layer.forward, layer.backward)
    )

    def payloads(found, kind):
        return sorted(each.payload_bytes for each in found if each.kind is kind)

    assert payloads(forward, ALL_GATHER) == sorted(
        [*latents, routed, dense]
    )  # dense: what the shared expert reads
    assert payloads(forward, REDUCE_SCATTER) == sorted(
        [dense, routed, dense]
    )  # behind attention, experts, shared expert
    assert payloads(backward, REDUCE_SCATTER) == payloads(forward, ALL_GATHER)
    again = [*latents[:2], dense]  # inputs of products with weights; the rotary keys are not
    assert payloads(backward, ALL_GATHER) == sorted([*payloads(forward, REDUCE_SCATTER), *again])
    assert kinds(layer.forward) + kinds(layer.backward) == {ALL_GATHER: 11, REDUCE_SCATTER: 8}


def test_the_first_blocks_of_deepseek_are_dense(extracted):
    graph = small("deepseek", tp=2, ep=2)
    dense = graph.layers[graph.sequence[1]]
    assert dense.expert_parameter_count == 0
    assert [each.payload_bytes for each in exchanges(dense.forward, CollectiveGroup.TENSOR)] == [
        2 * TOKENS * HIDDEN
    ] * 2
    assert len(exchanges(dense.backward, CollectiveGroup.TENSOR)) == 4
    listed = extracted("deepseek-v3")
    assert [
        bool(listed.layers[index].expert_parameter_count) for index in listed.sequence[1:-1]
    ] == [False] * 3 + [True] * 58


def test_eager_latent_attention_has_separate_products_of_both_widths():
    layer, family = block_of(small("deepseek", attention=Attention.EAGER)), SMALL["deepseek"]
    scores, out = (
        each.gemms[0] for each in layer.forward.operators if each.core_attention and each.gemms
    )
    assert (scores.k, out.n) == (family.plain_width + family.rotary_width, family.value_width)


def test_routed_rows_and_what_combining_them_needs_are_kept():
    """A row of a token's width for each choice, into the experts, and three of the inner width:
    weights multiply these, so that what comes out is not kept."""
    family, kept = SMALL["mixtral"], block_of(small("mixtral")).saved.none
    unrouted = block_of(small("mixtral")).saved.full
    choices = TOKENS * family.chosen
    assert kept > 2 * choices * (HIDDEN + 3 * family.ffn) + unrouted
    wide = replace(family, chosen=4)
    wider = extract_graph(GraphKey("mixtral", 1, TOKENS, 1), wide)
    added = block_of(wider).saved.none - kept
    per_choice = 2 * (HIDDEN + 3 * family.ffn)  # bf16
    indices_and_weights = 8 + 8 + 2  # of the row's token and of its expert
    assert 2 * TOKENS * per_choice <= added <= 2 * TOKENS * (per_choice + indices_and_weights)


def test_rows_go_to_their_experts():
    chosen = torch.tensor([[0, 1], [2, 3], [1, 0], [3, 2]])
    assert tokens_by_expert(chosen, 4).view(4, 2).sort(-1).values.tolist() == [
        [0, 2],
        [0, 2],
        [1, 3],
        [1, 3],
    ]
    assert (
        len(tokens_by_expert(chosen[:3], 4)) == 8
    )  # 6 choices are rounded up to 2 rows for each expert


@pytest.mark.parametrize(
    ("model", "tp", "ep", "message"),
    [
        ("mixtral-8x7b", 1, 3, "ep is 3, which does not divide the 8 experts"),
        ("qwen3-30b-a3b", 8, 1, "4 key/value heads"),
        ("bertbase", 1, 2, "bertbase has no experts"),
    ],
)
def test_degrees_that_do_not_divide_are_refused(model, tp, ep, message):
    with pytest.raises(InputError, match=message):
        extract_graph(GraphKey(model, 1, 512, tp, ep=ep))
