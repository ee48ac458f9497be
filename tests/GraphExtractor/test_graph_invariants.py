"""What must hold of the graph of every listed model."""

from dataclasses import replace

import pytest
from sampled_models import SAMPLED, SMALL_BLOOM, SMALL_MPT
from whole_traces import cut_bytes, kept_alone

from GraphExtractor.check import check_invariants, check_structure
from GraphExtractor.graph import (
    Attention,
    LayerTensor,
    OperandRole,
    OperatorKind,
    Recompute,
    Yields,
)
from GraphExtractor.models.registry import find_model

FAMILIES = (
    "bertbase",
    "megatronbert",
    "megatrongpt2-xl",
    "opt",
    "llama2",
    SMALL_BLOOM,
    SMALL_MPT,
)  # one model of every code path


@pytest.mark.some(4)
@pytest.mark.parametrize("model", SAMPLED)
def test_every_model_satisfies_the_invariants(model, extracted):
    graph = extracted(model)
    assert check_structure(graph) == []
    assert check_invariants(graph) == []


@pytest.mark.some(2)
@pytest.mark.parametrize("model", ["bertbase", "opt", "llama2", SMALL_BLOOM, SMALL_MPT])
def test_eager_graphs_satisfy_them_too(model, extracted):
    graph = extracted(model, attention=Attention.EAGER)
    assert check_structure(graph) == []
    assert check_invariants(graph) == []


@pytest.mark.some(3)
@pytest.mark.parametrize("model", SAMPLED)
def test_layers_are_embedding_blocks_and_head(model, extracted):
    graph = extracted(model)
    names = [graph.layers[index].name for index in graph.sequence]
    assert names == ["embedding", *["block"] * find_model(model).layers, "head"]
    assert len(graph.layers) == 3
    for layer in graph.layers:
        assert layer.forward.operators and layer.backward.operators
        assert layer.parameter_count > 0 and layer.saved.none > 0 and layer.workspace_bytes > 0


@pytest.mark.parametrize("model", SAMPLED)
def test_layers_hold_all_parameters_and_count_tied_ones_once(model, extracted):
    graph, family = extracted(model), find_model(model)
    layers = [graph.layers[index] for index in graph.sequence]
    held = sum(layer.parameter_count - layer.tied_count for layer in layers)
    padding = family.padded_vocabulary(1) - family.vocabulary
    assert (
        graph.total_parameter_count
        <= held
        <= graph.total_parameter_count + 2 * padding * (family.hidden + 1)
    )
    tied_head = not model.startswith("llama")
    assert (layers[-1].tied_count > 0) == tied_head and sum(
        layer.tied_count for layer in layers[:-1]
    ) == 0


@pytest.mark.parametrize("model", SAMPLED)
def test_hidden_state_flows_from_layer_to_layer(model, extracted):
    graph, family = extracted(model), find_model(model)
    size = 2 * graph.key.sequence_length * family.hidden
    chain = [tensor for tensor in graph.tensors if tensor.gradient_bytes]
    assert chain == [LayerTensor(i, (i + 1,), size, size) for i in range(len(graph.sequence) - 1)]


def test_rotary_tables_go_to_every_block_without_gradient(extracted):
    tables = [tensor for tensor in extracted("llama2").tensors if not tensor.gradient_bytes]
    assert tables == [LayerTensor(0, tuple(range(1, 33)), 4096 * 128 * 2, 0)] * 2


def test_every_tensor_between_layers_is_counted(extracted):
    graph = extracted("llama2")
    hidden, tables = 4096 * 4096 * 2, 2 * 4096 * 128 * 2
    assert cut_bytes(graph, 1) == cut_bytes(graph, 32) == (hidden + tables, hidden)
    assert cut_bytes(graph, 33) == (hidden, hidden)


@pytest.mark.some(2)
@pytest.mark.parametrize("model", FAMILIES)
def test_products_and_bytes_scale_with_the_micro_batch(model, extracted):
    graphs = extracted(model, 1), extracted(model, 3)
    for place, (one, three) in enumerate(zip(*(graph.layers for graph in graphs), strict=True)):
        assert three.forward.flops == 3 * one.forward.flops
        assert three.backward.flops == 3 * one.backward.flops
        if (
            one.name != "embedding"
        ):  # position ids have no batch dimension, nor have rotary tables, which blocks share
            at = [graph.sequence.index(place) for graph in graphs]
            for mode in (Recompute.NONE, Recompute.FULL):
                alone = [
                    kept_alone(graph, layer, mode) for graph, layer in zip(graphs, at, strict=True)
                ]
                assert alone[1] == pytest.approx(3 * alone[0], rel=1e-3)


def test_fused_attention_reads_queries_keys_and_values_however_they_are_packed(extracted):
    for model, hidden, length in (("gpt2", 1600, 1024), ("llama2", 4096, 4096)):
        (attention,) = [
            o
            for o in extracted(model).layers[1].forward.operators
            if o.kind is OperatorKind.ATTENTION
        ]
        assert attention.bytes_read == 3 * length * hidden * 2


def test_linear_layers_keep_batch_and_rows(extracted):
    block = extracted("bertlarge", 3).layers[1]
    shapes = {
        operator.gemms for operator in block.forward.operators if operator.kind is OperatorKind.GEMM
    }
    assert {(gemm.batch, gemm.m, gemm.k, gemm.n) for (gemm,) in shapes} == {
        (1, 3 * 512, 1024, 1024),
        (1, 3 * 512, 1024, 4096),
        (1, 3 * 512, 4096, 1024),
    }
    (attention,) = [
        operator for operator in block.forward.operators if operator.kind is OperatorKind.ATTENTION
    ]
    assert {(gemm.batch, gemm.m, gemm.k, gemm.n) for gemm in attention.gemms} == {
        (48, 512, 64, 512),
        (48, 512, 512, 64),
    }


@pytest.mark.parametrize("model", FAMILIES)
def test_every_product_has_an_input_and_a_weight_gradient(model, extracted):
    for layer in extracted(model).layers:
        gradients = [
            (o.forward_id, o.yields)
            for o in layer.backward.operators
            if o.kind is OperatorKind.GEMM
        ]
        for operator in layer.forward.operators:
            if operator.kind is OperatorKind.GEMM:
                assert gradients.count((operator.id, Yields.INPUT_GRADIENT)) == 1
                assert gradients.count((operator.id, Yields.WEIGHT_GRADIENT)) == 1


def test_bias_gradients_are_sums_over_rows(extracted):
    block = extracted("bertlarge").layers[1]
    sums = [
        operator
        for operator in block.backward.operators
        if [work.function for work in operator.vector] == ["sum"]
    ]
    assert len(sums) == 6
    for operator in sums:  # each is part of its weight gradient's product and written beside it
        assert operator.kind is OperatorKind.GEMM and operator.yields is Yields.WEIGHT_GRADIENT
        assert operator.vector[0].elements in (512 * 1024, 512 * 4096)
        assert len(operator.writes) == 2


def test_embedding_lookup_and_its_gradient_are_operators(extracted):
    embedding = extracted("gpt2").layers[0]
    lookup = next(operator for operator in embedding.forward.operators if "wte" in operator.name)
    assert (
        lookup.kind is OperatorKind.GATHER and lookup.parameter_bytes == 1024 * 1600 * 2
    )  # rows read, not the table
    gradient = next(operator for operator in embedding.backward.operators if "wte" in operator.name)
    assert gradient.yields is Yields.WEIGHT_GRADIENT and gradient.bytes_written == 50304 * 1600 * 2
    assert all(operand.role is OperandRole.GRADIENT for operand in gradient.writes)


def test_a_block_is_small_enough_for_an_exact_schedule(extracted):
    block = extracted("bertlarge").layers[1]
    assert len(block.forward.operators) in range(8, 11)
    assert len(block.backward.operators) in range(15, 20)


def test_other_sequence_lengths_work_and_enlarge_the_position_table(extracted):
    short, default, long = (
        extracted("bertbase", sequence_length=length) for length in (64, 512, 1024)
    )
    assert (
        short.layers[1].forward.flops
        < default.layers[1].forward.flops
        < long.layers[1].forward.flops
    )
    assert short.total_parameter_count == default.total_parameter_count
    assert long.total_parameter_count == default.total_parameter_count + 512 * 768


def test_violations_are_named(extracted):
    graph = extracted("bertbase")
    block = graph.layers[1]
    unlinked = replace(block.backward.operators[0], forward_id=None)
    broken = replace(
        block, backward=replace(block.backward, operators=(unlinked, *block.backward.operators[1:]))
    )
    violations = check_structure(replace(graph, layers=(graph.layers[0], broken, graph.layers[2])))
    assert len(violations) == 1 and unlinked.name in violations[0]
    cyclic = replace(
        block, forward=replace(block.forward, edges=(*block.forward.edges, (8, 0), (0, 8)))
    )
    assert (
        "acyclic"
        in check_structure(replace(graph, layers=(graph.layers[0], cyclic, graph.layers[2])))[0]
    )
    assert (
        "2·N·tokens"
        in check_invariants(replace(graph, key=replace(graph.key, micro_batch_size=2)))[0]
    )
