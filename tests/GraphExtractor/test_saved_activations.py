"""Saved activations against the published formulas and against what autograd itself keeps."""

from dataclasses import replace
from itertools import cycle, product

import numpy as np
import pytest
from sampled_models import SAMPLED
from whole_traces import kept_alone

from Estimator.plans.layer_costs import layer_sizes
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import Attention, GraphKey, Keeping, Recompute, SharedTensor
from GraphExtractor.models.registry import canonical_name, find_model
from tests.builders.samples import sampled

TWO_LAYERS_OF_22B = canonical_name(
    "gpt:layers=2,hidden=6144,heads=64,vocabulary=51200,sequence_length=2048"
)


def hidden_states(graph):
    """s·b·h of a graph: the unit of the formulas of Korthikanti et al. 2022."""
    return (
        graph.key.sequence_length * graph.key.micro_batch_size * find_model(graph.key.model).hidden
    )


@pytest.mark.parametrize(
    "model", ["megatrongpt3", "megatrongpt2-xl", "gpt2", "bertlarge", "megatronbert"]
)
def test_flash_layer_keeps_34_sbh(model, extracted):
    graph = extracted(model)
    assert kept_alone(graph, 1, Recompute.NONE) == pytest.approx(
        34 * hidden_states(graph), rel=0.01
    )  # masks besides


def test_eager_layer_keeps_34_plus_5_as_over_h(extracted):
    graph, family = extracted("bertlarge", attention=Attention.EAGER), find_model("bertlarge")
    scores = 5 * family.heads * graph.key.sequence_length / family.hidden
    saved = graph.layers[1].saved
    assert saved.none == pytest.approx((34 + scores) * hidden_states(graph), rel=0.01)
    assert saved.selective == pytest.approx(34 * hidden_states(graph), rel=0.01)


@pytest.mark.parametrize("attention", Attention)
def test_joined_operators_keep_what_was_drawn_at_random(attention, extracted):
    """Where softmax, mask and scale are one kernel its output, the dropout's mask and what it
    leaves stay: 2, 1 and 2 a·s."""
    graph, family = extracted("bertlarge", attention=attention), find_model("bertlarge")
    scores = (
        5 * family.heads * graph.key.sequence_length / family.hidden
        if attention is Attention.EAGER
        else 0
    )
    kept = graph.layers[1].saved.under(Recompute.NONE, Keeping(joined=True))
    assert kept == pytest.approx((34 + scores) * hidden_states(graph), rel=0.01)


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("tp", "sequence_parallel"),
    sampled(product([1, 2, 4, 8], [False, True]), [(1, False), (2, True), (8, False), (8, True)]),
)
def test_a_layer_keeps_what_korthikanti_et_al_2022_say(tp, sequence_parallel, extracted):
    """Their equations 1 (tp 1), 2 (tensor parallel), 4 (and sequence parallel) and 6 (and selective
    recomputation)."""
    graph = extracted(
        TWO_LAYERS_OF_22B,
        tp=tp,
        attention=Attention.EAGER,
        sequence_parallel=sequence_parallel and tp > 1,
    )
    family, saved = find_model(TWO_LAYERS_OF_22B), graph.layers[1].saved
    scores = 5 * family.heads * graph.key.sequence_length / family.hidden
    linear = 34 / tp if sequence_parallel else 10 + 24 / tp
    assert saved.none == pytest.approx((linear + scores / tp) * hidden_states(graph), rel=0.01)
    assert saved.selective == pytest.approx(linear * hidden_states(graph), rel=0.01)
    assert saved.full == 2 * hidden_states(graph) / (tp if sequence_parallel else 1)


@pytest.mark.parametrize("tp", [1, 4])
def test_embedding_and_head_keep_what_korthikanti_et_al_2022_say(tp, extracted):
    """Section 4.3: dropout mask behind the embedding; inputs of last norm and head, fp32 logits:
    all of them split."""
    graph = extracted(TWO_LAYERS_OF_22B, tp=tp, attention=Attention.EAGER, sequence_parallel=tp > 1)
    vocabulary, tokens = (
        find_model(TWO_LAYERS_OF_22B).padded_vocabulary(tp),
        graph.key.sequence_length,
    )
    embedding, head = graph.layers[0].saved, graph.layers[-1].saved
    ids = 2 * 8 * tokens  # of tokens and positions
    assert embedding.none == hidden_states(graph) / tp + ids
    assert head.none == pytest.approx(
        (4 * hidden_states(graph) + 4 * tokens * vocabulary) / tp, rel=0.01
    )


@pytest.mark.parametrize("model", SAMPLED)
def test_full_recomputation_keeps_what_enters_the_block(model, extracted):
    graph = extracted(model)
    saved = graph.layers[1].saved
    shared = sum(
        tensor.bytes for tensor in graph.shared
    )  # rotary tables and masks, which enter every block
    assert saved.full == saved.under(Recompute.FULL) == 2 * hidden_states(graph) + shared
    assert saved.full < saved.selective < saved.none


def test_selective_recomputation_of_flash_attention_drops_the_statistics_only(extracted):
    graph = extracted("bertlarge")
    block = graph.layers[1]
    assert block.saved.none - block.saved.selective == 16 * 512 * 4  # one fp32 per head and row
    again = block.backward_selective.operators[: -len(block.backward.operators)]
    assert [operator.core_attention for operator in again] == [True]
    attention = again[0]
    followers = [b for a, b in block.backward_selective.edges if a == attention.id]
    assert [o.forward_id for o in block.backward.operators if o.id in followers] == [attention.id]


def test_selective_recomputation_of_eager_attention_runs_both_products_and_softmax_again(extracted):
    block = extracted("bertlarge", attention=Attention.EAGER).layers[1]
    again = [
        operator
        for operator in block.backward_selective.operators
        if operator.phase.value == "forward"
    ]
    core = [operator for operator in block.forward.operators if operator.core_attention]
    assert again == core and len(core) == 3
    assert (
        block.backward_selective.flops - block.backward.flops == 2 * 2 * 16 * 512 * 512 * 64
    )  # 4·b·s²·h
    softmax = next(operator for operator in core if operator.vector[0].function == "softmax")
    reached = {b for a, b in block.backward_selective.edges if a == softmax.id}
    assert {o.forward_id for o in block.backward.operators if o.id in reached} <= {
        operator.id for operator in core
    }


@pytest.mark.parametrize("mode", Recompute)
def test_rotary_tables_are_kept_once_by_each_stage_with_blocks(mode, extracted):
    graph = extracted("llama2")
    ids, tables, blocks = 4096 * 8, 2 * 4096 * 128 * 2, tuple(range(1, 33))
    assert graph.layers[0].saved.none == ids
    assert graph.shared == (SharedTensor(0, tables, blocks, blocks, blocks),)
    cuts = np.array([[place // 17 == stage for place in range(34)] for stage in range(2)])
    block, head = graph.layers[1].saved.under(mode) - tables, graph.layers[2].saved.none
    assert layer_sizes(graph, mode).saved_by(cuts).tolist() == [
        ids + 16 * block + tables,
        16 * block + tables + head,
    ]


KEPT = [
    "bertbase",
    "megatronbert",
    "gpt2",
    "opt",
    "llama2",
    "bloom-560m",
    "qwen3-0.6b",
    "t5-large",
    "vit-b-16",
    "resnet-50",
]


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("model", "attention"),
    sampled(product(KEPT, Attention), list(zip(KEPT, cycle(Attention), strict=False))),
)
def test_layers_together_keep_what_autograd_keeps(model, attention):
    """Counted a second way: hooks on a fake forward pass, storages once, without parameters and
    buffers."""
    import torch

    from GraphExtractor.attention import whole_operators
    from GraphExtractor.custom_operators import cross_entropy
    from GraphExtractor.extract import build_model, default_dtype, extract_graph
    from GraphExtractor.torch_internals import FakeTensorMode

    family = replace(find_model(model), layers=4 if model == "t5-large" else 2)
    key = GraphKey(model, 2, min(family.sequence_length, 256), 1, attention)
    fake = FakeTensorMode()
    network = build_model(key, family, fake)
    owned = {
        tensor.untyped_storage()._cdata for tensor in (*network.parameters(), *network.buffers())
    }
    storages = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in owned and tensor.numel() > 1:
            storages[storage._cdata] = storage
        return tensor

    with default_dtype(key.dtype), fake, whole_operators(attention):
        inputs = family.inputs(key)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = family.loss(
                network, inputs, lambda logits, labels: cross_entropy(logits, labels, 1)
            )
        kept = sum(storage.nbytes() for storage in storages.values())
    graph = extract_graph(key, family)
    assert loss.numel() == 1
    assert layer_sizes(graph, Recompute.NONE).all_saved_bytes == pytest.approx(kept, rel=1e-3)


def test_temporaries_include_the_logits_in_both_precisions(extracted):
    graph = extracted("gpt2")
    logits = 1024 * 50304
    assert graph.layers[-1].workspace_bytes >= logits * (2 + 4)
    assert graph.layers[1].workspace_bytes < graph.layers[1].saved.none


def test_frameworks_keep_less_in_fp8_and_where_they_join_operators():
    """A SwiGLU block by hand, per token: h wide, f wide in the middle, all heads alike; norms write
    what products read."""
    tokens, hidden, middle = 64, 64, 96
    model = canonical_name(
        f"llama:layers=2,hidden={hidden},heads=4,kv_heads=4,ffn={middle},vocabulary=128"
    )
    graph = extract_graph(GraphKey(model, 1, tokens, 1))
    saved = next(layer.saved for layer in graph.layers if layer.name == "block")
    in_fp8, joined = Keeping(in_fp8=True), Keeping(joined=True)
    # inputs of q, k and v, of gate and up, and of down are products' alone; attention reads its own
    # output again
    only, besides = 2 * hidden + middle, hidden
    assert saved.under(Recompute.NONE) - saved.under(Recompute.NONE, in_fp8) == tokens * (
        only - besides
    )
    assert (
        saved.under(Recompute.NONE) - saved.under(Recompute.NONE, joined) == 2 * tokens * middle
    )  # silu of the gate
    both = Keeping(in_fp8=True, joined=True)
    assert (
        saved.under(Recompute.NONE, both)
        == sum(saved.under(Recompute.NONE, each) for each in (in_fp8, joined)) - saved.none
    )
    assert saved.under(Recompute.FULL, both) == saved.under(Recompute.FULL)
    assert saved.restored(Recompute.FULL, both) == saved.restored_full - saved.none + saved.under(
        Recompute.NONE, both
    )


def test_sequence_parallel_devices_keep_their_part_of_what_products_read_in_fp8():
    """What is gathered for a product before the pass and before its gradient is kept in one byte by
    the devices that hold it."""
    model = canonical_name("llama:layers=2,hidden=64,heads=4,kv_heads=4,ffn=96,vocabulary=128")
    keys = GraphKey(model, 1, 64, 1), GraphKey(model, 1, 64, 2, sequence_parallel=True)
    blocks = [
        next(layer.saved for layer in extract_graph(key).layers if layer.name == "block")
        for key in keys
    ]
    for mode in (Recompute.NONE, Recompute.SELECTIVE):
        less, of_two = (
            saved.under(mode) - saved.under(mode, Keeping(in_fp8=True)) for saved in blocks
        )
        assert less == 2 * of_two > 0


def test_operators_one_by_one_have_more_temporaries_and_allocators_take_more():
    graph = extract_graph(
        GraphKey(
            canonical_name("llama:layers=2,hidden=64,heads=4,kv_heads=4,ffn=96,vocabulary=4096"),
            1,
            64,
            1,
        )
    )
    head = next(layer for layer in graph.layers if layer.name == "head")
    logits = 64 * 4096
    assert (
        head.workspace_bytes == 6 * logits and head.single_workspace_bytes == 8 * logits
    )  # two fp32 gradients of the loss
    sizes, more = (
        layer_sizes(graph, Recompute.NONE),
        layer_sizes(graph, Recompute.NONE, keeping=Keeping(spare=0.5)),
    )
    assert more.all_saved_bytes == pytest.approx(1.5 * sizes.all_saved_bytes)
    assert more.workspace_bytes.tolist() == (1.5 * sizes.workspace_bytes).tolist()
    single = layer_sizes(graph, Recompute.NONE, keeping=Keeping(one_by_one=True))
    assert (
        single.workspace_bytes >= sizes.workspace_bytes
    ).all() and single.workspace_bytes.max() > sizes.workspace_bytes.max()
