"""Tensor and sequence parallel graphs of all families."""

from collections import Counter

import networkx as nx
import pytest
from sampled_models import SMALL_BLOOM, SMALL_MPT, SMALL_OPT
from whole_traces import kept_alone

from GraphExtractor.check import check_invariants, check_structure
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import Attention, CollectiveKind, GraphKey, Recompute, Yields
from GraphExtractor.models.registry import find_model, listed_models
from GraphExtractor.widths import allowed_widths
from phaze_common.errors import InputError

FAMILIES = (
    "bertbase",
    "megatronbert",
    "megatrongpt2-xl",
    "opt",
    "llama2",
    SMALL_OPT,
    SMALL_BLOOM,
    SMALL_MPT,
)


def collectives(graph):
    return [operator.collective for operator in graph.operators if operator.collective]


@pytest.mark.some(2)
@pytest.mark.parametrize("model", FAMILIES)
def test_width_two_halves_the_products_of_a_block(model, extracted):
    whole, half = extracted(model).layers[1], extracted(model, tp=2).layers[1]
    assert 2 * half.forward.flops == whole.forward.flops
    assert 2 * half.backward.flops == whole.backward.flops
    assert half.matmul_parameter_count * 2 == whole.matmul_parameter_count
    assert half.saved.none < whole.saved.none


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("model", "tp"),
    [
        ("megatrongpt3", 4),
        ("megatrongpt3", 8),
        ("llama2", 8),
        ("opt", 4),
        ("bertlarge", 4),
        ("megatronbert", 8),
    ],
)
def test_graphs_of_all_widths_satisfy_the_invariants(model, tp, extracted):
    graph = extracted(model, tp=tp)
    assert check_structure(graph) == check_invariants(graph) == []
    assert graph.total_parameter_count == extracted(model).total_parameter_count


@pytest.mark.parametrize("model", FAMILIES)
def test_a_block_all_reduces_twice_forward_and_twice_backward(model, extracted):
    graph = extracted(model, tp=2)
    payload = 2 * graph.key.sequence_length * find_model(model).hidden
    for block_pass in (graph.layers[1].forward, graph.layers[1].backward):
        assert [(c.kind, c.payload_bytes, c.group_size) for c in collectives(block_pass)] == [
            (CollectiveKind.ALL_REDUCE, payload, 2)
        ] * 2


@pytest.mark.parametrize("model", FAMILIES)
def test_embedding_and_loss_are_vocabulary_parallel(model, extracted):
    graph, family = extracted(model, tp=2), find_model(model)
    tokens, width = graph.key.sequence_length, getattr(family, "word_embedding", 0) or family.hidden
    embedding, head = graph.layers[0], graph.layers[-1]
    assert [c.payload_bytes for c in collectives(embedding.forward)] == [2 * tokens * width]
    assert collectives(embedding.backward) == []
    assert [c.payload_bytes for c in collectives(head.forward)] == [
        4 * tokens
    ] * 3  # maximum, sum, target: one fp32 each
    assert [c.payload_bytes for c in collectives(head.backward)] == [2 * tokens * width]
    logits = {gemm.n for operator in head.forward.operators for gemm in operator.gemms}
    assert family.padded_vocabulary(2) // 2 in logits
    functions = Counter(
        work.function for operator in head.forward.operators for work in operator.vector
    )
    assert functions["cross_entropy"] == 1


@pytest.mark.some(2)
@pytest.mark.parametrize("model", FAMILIES)
def test_sequence_parallelism_gathers_and_scatters_instead(model, extracted):
    graph = extracted(model, tp=2, sequence_parallel=True)
    assert check_structure(graph) == check_invariants(graph) == []
    whole = extracted(model, tp=2)
    block, dense = graph.layers[1], whole.layers[1]
    for block_pass, gathers in (
        (block.forward, 2),
        (block.backward, 4),
    ):  # in backward also the inputs, for weight gradients
        scatters = {CollectiveKind.ALL_GATHER: gathers, CollectiveKind.REDUCE_SCATTER: 2}
        assert Counter(c.kind for c in collectives(block_pass)) == scatters
        assert {c.payload_bytes for c in collectives(block_pass)} == {
            c.payload_bytes for c in collectives(dense.forward)
        }
    assert 2 * kept_alone(graph, 1, Recompute.FULL) == kept_alone(
        whole, 1, Recompute.FULL
    )  # all need the whole rotary tables
    assert block.forward.flops == dense.forward.flops

    def norm_elements(layer):
        return sum(
            w.elements
            for o in layer.forward.operators
            for w in o.vector
            if w.function in {"layer_norm", "rms_norm"}
        )

    assert 2 * norm_elements(block) == norm_elements(dense)
    assert {t.bytes for t in graph.tensors if t.gradient_bytes} == {
        graph.key.sequence_length * find_model(model).hidden
    }


@pytest.mark.some(1)
@pytest.mark.parametrize("model", FAMILIES)
def test_inputs_are_gathered_again_beside_the_input_gradients(model, extracted):
    graph = extracted(model, tp=2, sequence_parallel=True)
    for layer in graph.layers[1:]:
        dag, operators = (
            layer.backward.dag,
            {operator.id: operator for operator in layer.backward.operators},
        )
        again = [
            operator
            for operator in layer.backward.operators
            if operator.collective and operator.yields is Yields.OUTPUT
        ]
        assert len(again) == (2 if layer.name == "block" else 1)
        for gather in again:
            assert gather.collective.kind is CollectiveKind.ALL_GATHER and not list(
                dag.predecessors(gather.id)
            )
            first = next(
                operator for operator in layer.forward.operators if operator.id == gather.forward_id
            )
            assert (gather.reads, gather.writes, gather.collective) == (
                first.reads,
                first.writes,
                first.collective,
            )
            products = {b for a, b in layer.forward.edges if a == first.id}
            assert {
                (operators[id].forward_id, operators[id].yields) for id in dag.successors(gather.id)
            } == {(product, Yields.WEIGHT_GRADIENT) for product in products}
            assert {operators[id].yields for id in nx.descendants(dag, gather.id)} == {
                Yields.WEIGHT_GRADIENT
            }


def test_eager_attention_can_be_split(extracted):
    whole, part = (
        extracted("bertlarge", tp=tp, attention=Attention.EAGER).layers[1] for tp in (1, 4)
    )
    assert 4 * part.forward.flops == whole.forward.flops


@pytest.mark.parametrize(
    ("model", "widths"),
    [("gpt2", (1, 5, 25)), ("bertlarge", (1, 2, 4, 8, 16)), ("bertbase", (1, 2, 3, 4, 6, 12))],
)
def test_allowed_widths_divide_heads_and_ffn(model, widths):
    assert allowed_widths(find_model(model)) == widths


def test_refused_width_names_those_that_divide():
    with pytest.raises(InputError, match=r"25 attention heads.*use one of 1, 5, 25"):
        extract_graph(GraphKey("gpt2", 1, 1024, 2))


def test_unusual_width_works(extracted):
    assert (
        5 * extracted("gpt2", tp=5).layers[1].forward.flops
        == extracted("gpt2").layers[1].forward.flops
    )


@pytest.mark.parametrize("model", listed_models())
@pytest.mark.parametrize("tp", [1, 2, 8])
def test_vocabulary_is_padded_to_a_multiple_of_128_tp(model, tp):
    family = find_model(model)
    padded = family.padded_vocabulary(tp)
    assert padded % (128 * tp) == 0 and 0 <= padded - family.vocabulary < 128 * tp


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (GraphKey("bertbase", 0, 512, 1), "micro-batch size 0"),
        (GraphKey("bertbase", 1, -5, 1), "sequence length -5"),
        (GraphKey("bertbase", 1, 512, 0), "tensor parallel width 0"),
        (
            GraphKey("bertbase", 1, 511, 2, sequence_parallel=True),
            "does not divide sequence length 511",
        ),
        (GraphKey("bertbase", 1, 512, 1, dtype="int8"), "use bfloat16"),
    ],
)
def test_impossible_sizes_are_refused(key, message):
    with pytest.raises(InputError, match=message):
        extract_graph(key)
