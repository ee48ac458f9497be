"""Models named by their dimensions, and graphs of one depth made from those of another."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampled_models import SMALL, SMALL_LENGTH

from GraphExtractor.graph import Attention, GraphKey, LayerTensor, SharedTensor
from GraphExtractor.models.dimensions import parse_dimensions
from GraphExtractor.models.registry import canonical_name, find_model
from GraphExtractor.replication import with_layers
from GraphExtractor.storage import graph_path, load_or_extract
from phaze_common.errors import InputError


def test_dimensions_are_those_given_or_the_familys():
    family = find_model(
        "gpt:layers=24,hidden=2304,heads=24,ffn=9216,vocabulary=51200,sequence_length=2048"
    )
    assert family == replace(find_model("megatron-1.7b"), published_parameter_count=0)
    assert replace(
        find_model("llama:layers=32,hidden=4096,heads=32"), published_parameter_count=6_738_415_616
    ) == find_model("llama2")
    grouped = find_model("llama:layers=80,hidden=8192,heads=64,kv_heads=8,ffn=28672")
    assert replace(grouped, published_parameter_count=68_976_648_192) == find_model("llama2-70b")
    for name, sizes in (
        ("qwen3-4b", "qwen3:layers=36,hidden=2560,heads=32,kv_heads=8,ffn=9728,tied=1"),
        ("mixtral-8x7b", "mixtral:layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336"),
        ("qwen3-30b-a3b", "qwen3moe:layers=48,hidden=2048,heads=32,kv_heads=4,ffn=768"),
    ):
        listed = find_model(name)
        counts = {
            key: getattr(listed, key)
            for key in ("published_parameter_count", "published_active_count")
        }
        assert replace(find_model(sizes), **counts) == listed
    for family, published in (
        ("bert", "bertlarge"),
        ("megatronbert", "megatronbert"),
        ("opt", "opt-1.3b"),
        ("mpt", "mpt-1b"),
    ):
        listed = find_model(published)
        named = find_model(
            f"{family}:layers={listed.layers},hidden={listed.hidden},heads={listed.heads}"
        )
        assert replace(named, published_parameter_count=listed.published_parameter_count) == listed


def test_equal_models_have_equal_names():
    name = "gpt-layers24-hidden2304-heads24-vocabulary51200-sequence_length2048"
    for spelled in (
        "gpt:layers=24,hidden=2304,heads=24,ffn=9216,vocabulary=51200,sequence_length=2048",
        "gpt:sequence_length=2048, heads=24, vocabulary=51200, layers=24, hidden=2304, kv_heads=24",
        name,
    ):
        assert canonical_name(spelled) == name
    assert canonical_name("gpt:layers=24,hidden=2304,heads=24") == "gpt-layers24-hidden2304-heads24"


@given(
    family=st.sampled_from(sorted(SMALL)),
    layers=st.integers(1, 200),
    heads=st.integers(1, 64),
    width=st.integers(1, 32),
    more=st.dictionaries(
        st.sampled_from(["ffn", "vocabulary", "sequence_length"]), st.integers(1, 10**6)
    ),
    order=st.randoms(),
)
def test_names_are_safe_in_files_and_stable(family, layers, heads, width, more, order):
    pairs = [*{"layers": layers, "heads": heads, "hidden": 2 * heads * width, **more}.items()]
    order.shuffle(pairs)
    name = canonical_name(f"{family}:" + ",".join(f"{key}={value}" for key, value in pairs))
    assert re.fullmatch(r"[a-z][a-z0-9_-]*", name)
    assert canonical_name(name) == name
    found = find_model(name)
    assert (found.layers, found.heads, found.hidden) == (layers, heads, 2 * heads * width)
    assert all(getattr(found, key) == value for key, value in more.items())
    assert parse_dimensions(name).name == name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpt:layers=24,hidden=2304", "lacks heads; give layers, hidden, heads"),
        (
            "gpt:layers=24,hidden=2304,heads=24,depth=3",
            "'depth=3'.*layers, hidden, heads.*ffn, kv_heads, vocabulary",
        ),
        ("gpt:layers=0,hidden=2304,heads=24", "'layers=0'.*positive whole number"),
        ("gpt:layers=2.5,hidden=2304,heads=24", "'layers=2.5'.*positive whole number"),
        ("gpt:layers=24,hidden=2304,heads=24,layers=3", "gives layers twice"),
        ("gpt:", "is no dimension"),
        ("gpt:layers=2147483648,hidden=64,heads=2", "'layers=2147483648'.*at most 10,000"),
        ("gpt:layers=2,hidden=999999999998,heads=2", "'hidden=999999999998'.*at most 16,777,216"),
        (
            "gptt:layers=24,hidden=2304,heads=24",
            "'gptt' is no family.*gpt, llama, opt, bloom, mpt, bert, megatronbert",
        ),
        ("gpt:layers=24,hidden=2304,heads=25", "heads 25 do not divide hidden 2304"),
        ("llama:layers=2,hidden=256,heads=8,kv_heads=3", "kv_heads 3 do not divide heads 8"),
        ("opt:layers=2,hidden=256,heads=8,kv_heads=4", "leave kv_heads out"),
        ("llama:layers=2,hidden=24,heads=8", "even width"),
        ("gpt:layers=2,hidden=256,heads=8,tied=1", "give tied=1 to a llama"),
        ("llama:layers=2,hidden=256,heads=8,tied=2", "give tied=1 to a llama"),
        (
            "gpt:layers=2,hidden=256,heads=8,experts=4",
            "gpt models have no experts; .* experts to a gptmoe or a mixtral or a qwen3moe",
        ),
        ("mixtral:layers=2,hidden=256,heads=8,experts=4,chosen=5", "meets 5 of 4 experts"),
        ("llama:layers=2,hidden=256,heads=8,head_width=33", "even width"),
        ("gpt-layers24-hidden2304", "lacks heads"),
        ("gpt-layers", "unknown model 'gpt-layers'.*gpt:layers=24,hidden=2304,heads=24"),
    ],
)
def test_impossible_dimensions_are_refused(name, message):
    with pytest.raises(InputError, match=message):
        canonical_name(name)


@pytest.mark.some(2)
@pytest.mark.parametrize("layers", [1, 2, 7])
@pytest.mark.parametrize("family", SMALL)
def test_a_stretched_graph_is_the_traced_one(family, layers, extracted):
    made, traced = (
        extracted(canonical_name(SMALL[family].format(depth)), sequence_length=SMALL_LENGTH)
        for depth in (4, layers)
    )
    assert replace(with_layers(made, layers), key=traced.key) == traced
    if layers > 1:
        assert with_layers(with_layers(made, layers), 4) == made


def test_a_tied_head_has_no_weights_of_its_own(extracted):
    name = canonical_name(SMALL["llama"].format(2))
    tied = canonical_name(f"{name}-tied1")
    assert parse_dimensions(tied).model().tied
    graphs = [extracted(each, sequence_length=SMALL_LENGTH) for each in (name, tied)]
    model = parse_dimensions(name)
    assert (
        graphs[0].total_parameter_count - graphs[1].total_parameter_count
        == model.vocabulary * model.hidden
    )


def test_heads_and_experts_have_the_sizes_that_are_given(extracted):
    """Parameters of one more block, by hand."""
    attention, norms = 2 * 160 * 64 * (4 + 2), 2 * 160
    for family, mlp in (
        ("llama", 3 * 160 * 512),
        ("qwen3", 3 * 160 * 512 + 2 * 64),
        ("mixtral", 4 * 3 * 160 * 320 + 4 * 160),
        ("qwen3moe", 8 * 3 * 160 * 96 + 8 * 160 + 2 * 64),
    ):
        name = SMALL[family] if "head_width" in SMALL[family] else f"{SMALL[family]},head_width=64"
        graph = extracted(canonical_name(name.format(2)), sequence_length=SMALL_LENGTH)
        assert graph.block_parameter_count == attention + norms + mlp


@pytest.mark.parametrize("family", ["gpt", "llama"])
def test_a_stretched_parallel_graph_is_the_traced_one(family, extracted):
    settings = (1, SMALL_LENGTH, 2, Attention.EAGER, True)
    made, traced = (
        extracted(canonical_name(SMALL[family].format(depth)), *settings) for depth in (2, 3)
    )
    assert replace(with_layers(made, 3), key=traced.key) == traced


def test_published_models_are_stretched_too(extracted):
    """Llama-2 13B has the depth of 40 and its own widths; here a 40-layer Llama-2 7B, against the
    formula."""
    graph = with_layers(extracted("llama2"), 40)
    assert graph.sequence == (0, *[1] * 40, 2)
    block = 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096
    assert graph.total_parameter_count == 6_738_415_616 + 8 * block
    assert graph.block_parameter_count == block


def test_a_depth_that_cannot_be_made_is_refused(extracted):
    graph = extracted("llama2")
    with pytest.raises(InputError, match="positive whole number"):
        with_layers(graph, 0)
    skip = replace(graph, tensors=(*graph.tensors, LayerTensor(0, (1, 33), 2, 2)))
    with pytest.raises(InputError, match="from layer 0 to layers 1, 33"):
        with_layers(skip, 40)
    uneven = replace(graph, tensors=(*graph.tensors, LayerTensor(7, (8,), 2, 2)))
    with pytest.raises(InputError, match="send different tensors"):
        with_layers(uneven, 40)
    blocks = tuple(range(1, 33))
    kept = replace(graph, shared=(*graph.shared, SharedTensor(None, 2, (1, 4), blocks[:2], ())))
    with pytest.raises(InputError, match="its layers 1, 2, 4 keep a tensor together"):
        with_layers(kept, 40)
    kept = replace(graph, shared=(*graph.shared, SharedTensor(7, 2, (7, 8), (7, 8), (8,))))
    with pytest.raises(InputError, match="keep different tensors"):
        with_layers(kept, 40)
    alternating = replace(graph, sequence=(0, *[1, 2] * 16, 2))
    with pytest.raises(InputError, match="not one chain of a single block"):
        with_layers(alternating, 40)


def test_models_that_differ_in_depth_share_one_stored_trace(tmp_path, monkeypatch, extracted):
    import GraphExtractor.extract

    traced = []
    extract_graph = GraphExtractor.extract.extract_graph
    monkeypatch.setattr(
        "GraphExtractor.extract.extract_graph",
        lambda key: traced.append(key.model) or extract_graph(key),
    )
    for layers in (6, 1, 9, 4):
        key = GraphKey(SMALL["gpt"].format(layers), 1, SMALL_LENGTH, 1)
        graph = load_or_extract(key, tmp_path)
        assert graph.key.model == canonical_name(key.model) and len(graph.sequence) == layers + 2
    shared, single = (canonical_name(SMALL["gpt"].format(layers)) for layers in (4, 1))
    assert traced == [shared, single]
    assert {path.name for path in tmp_path.rglob("*.gz")} == {
        graph_path(GraphKey(name, 1, SMALL_LENGTH, 1), Path(), find_model(name)).name
        for name in (shared, single)
    }
