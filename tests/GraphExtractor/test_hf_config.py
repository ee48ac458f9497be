"""Hugging Face configurations: families of ours where they can express them, transformers' own
modules where not."""

import json
import logging
import re
from dataclasses import replace

import pytest

import phaze
from GraphExtractor.check import check_invariants, check_structure
from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import Attention, CollectiveKind, GraphKey, OperatorKind
from GraphExtractor.models.registry import families_by_model_type, find_model, listed_models
from GraphExtractor.sources.hf_config import HuggingFaceModule
from GraphExtractor.widths import allowed_widths
from phaze_common.errors import InputError
from phaze_common.files import read_json

SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 512,
    "max_position_embeddings": 128,
}


def config(folder, model_type, **values):
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": model_type, **values}))
    return str(path)


def key(path, tp=1):
    return GraphKey(path, 2, find_model(path).sequence_length, tp)


def test_a_configuration_is_read_once_until_it_changes(tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(
        "GraphExtractor.sources.hf_config.read_json",
        lambda path, what: read.append(path) or read_json(path, what),
    )
    path = config(tmp_path, "deberta-v2", **SMALL)
    for _ in range(3):
        family = find_model(path)
        family.check(key(path))
    extract_graph(key(path))
    assert len(read) == 1
    config(tmp_path, "deberta-v2", **SMALL | {"num_hidden_layers": 12})
    assert find_model(path) != family and len(read) == 2


# what the released configurations of listed models state
RELEASED = {
    "llama3-8b": {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "max_position_embeddings": 8192,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "pretraining_tp": 1,
        "rope_scaling": None,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
        "vocab_size": 128256,
    },
    "bertlarge": {
        "architectures": ["BertForMaskedLM"],
        "attention_probs_dropout_prob": 0.1,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "max_position_embeddings": 512,
        "model_type": "bert",
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
        "position_embedding_type": "absolute",
        "type_vocab_size": 2,
        "vocab_size": 30522,
    },
    "gpt2": {
        "activation_function": "gelu_new",
        "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.1,
        "model_type": "gpt2",
        "n_ctx": 1024,
        "n_embd": 1600,
        "n_head": 25,
        "n_layer": 48,
        "n_positions": 1024,
        "vocab_size": 50257,
    },
    "opt": {
        "activation_function": "relu",
        "architectures": ["OPTForCausalLM"],
        "do_layer_norm_before": False,
        "ffn_dim": 4096,
        "hidden_size": 1024,
        "max_position_embeddings": 2048,
        "model_type": "opt",
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
        "vocab_size": 50272,
        "word_embed_proj_dim": 512,
    },
    "bloom-560m": {
        "architectures": ["BloomForCausalLM"],
        "model_type": "bloom",
        "n_embed": 1024,
        "n_layer": 24,
        "num_attention_heads": 16,
        "vocab_size": 250880,
    },
    "mpt-7b": {
        "architectures": ["MPTForCausalLM"],
        "attn_config": {"alibi": True, "attn_impl": "torch", "clip_qkv": None, "qk_ln": False},
        "d_model": 4096,
        "expansion_ratio": 4,
        "max_seq_len": 2048,
        "model_type": "mpt",
        "n_heads": 32,
        "n_layers": 32,
        "no_bias": True,
        "vocab_size": 50432,
    },
    "qwen3-30b-a3b": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "decoder_sparse_step": 1,
        "head_dim": 128,
        "hidden_size": 2048,
        "max_position_embeddings": 4096,
        "mlp_only_layers": [],
        "model_type": "qwen3_moe",
        "moe_intermediate_size": 768,
        "num_attention_heads": 32,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 48,
        "num_key_value_heads": 4,
        "vocab_size": 151936,
    },
    "mixtral-8x7b": {
        "architectures": ["MixtralForCausalLM"],
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "max_position_embeddings": 4096,
        "model_type": "mixtral",
        "num_attention_heads": 32,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "num_local_experts": 8,
        "sliding_window": None,
        "vocab_size": 32000,
    },
}
SIZES = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocabulary", "sequence_length", "experts")


@pytest.mark.parametrize("name", RELEASED)
def test_a_released_configuration_is_the_listed_model(tmp_path, name):
    read, listed = find_model(config(tmp_path, **RELEASED[name])), find_model(name)
    assert type(read) is type(listed)
    assert {size: getattr(read, size) for size in SIZES} == {
        size: getattr(listed, size) for size in SIZES
    }
    assert allowed_widths(read) == allowed_widths(listed)
    assert not read.published_parameter_count


def test_every_transformer_family_reads_configurations():
    assert {
        "bert",
        "megatron-bert",
        "gpt2",
        "opt",
        "llama",
        "bloom",
        "mpt",
    } <= families_by_model_type().keys()
    for family in families_by_model_type().values():
        assert family.keys, family
    assert all(
        family.model_type in ("", *families_by_model_type()) for family in listed_models().values()
    )


def test_the_sizes_of_the_configuration_are_those_of_the_graph(tmp_path):
    path = config(tmp_path, "llama", **SMALL)
    graph = extract_graph(key(path, 2))
    assert check_structure(graph) == check_invariants(graph) == []
    assert graph.sequence == (0, *[1] * 6, 2)
    assert (
        graph.total_parameter_count
        == 2 * 512 * 64 + 6 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128 + 2 * 64) + 64
    )


@pytest.mark.parametrize("model_type", ["llama", "mixtral"])
def test_heads_may_be_wider_than_their_part_of_hidden(tmp_path, model_type):
    wider = find_model(config(tmp_path, model_type, **(SMALL | {"head_dim": 32})))
    assert type(wider).__name__.lower() == model_type and wider.head_width == 32
    usual = find_model(config(tmp_path, model_type, **SMALL))
    assert usual.width_of_heads == usual.hidden // usual.heads


@pytest.mark.parametrize(
    ("model_type", "values", "named"),
    [
        ("llama", {"attention_bias": True}, "attention_bias True"),
        ("llama", {"tie_word_embeddings": True}, "tie_word_embeddings True"),
        ("llama", {"hidden_act": "relu"}, "hidden_act 'relu'"),
        ("llama", {"architectures": ["LlamaForSequenceClassification"]}, "architectures"),
        ("bert", {"hidden_act": "relu"}, "hidden_act 'relu'"),
        ("mixtral", {"sliding_window": 64}, "sliding_window 64"),
        ("mpt", {"d_model": 64, "n_heads": 4, "attn_config": {"qk_ln": True}}, "qk_ln True"),
    ],
)
def test_what_a_family_does_not_have_is_left_to_transformers_and_named(
    tmp_path, caplog, model_type, values, named
):
    with caplog.at_level(logging.INFO, logger="GraphExtractor"):
        family = find_model(config(tmp_path, model_type, **(SMALL | values)))
    assert isinstance(family, HuggingFaceModule)
    assert f"does not have {named}" in caplog.text


@pytest.mark.thorough
def test_biases_that_a_family_does_not_have_are_in_the_graph_of_transformers(tmp_path):
    whole = extract_graph(key(config(tmp_path, "llama", **SMALL)))
    biased = extract_graph(key(config(tmp_path, "llama", **SMALL, attention_bias=True)))
    assert biased.total_parameter_count - whole.total_parameter_count == 6 * (2 * 64 + 2 * 32)
    assert [biased.layers[index].name for index in biased.sequence] == [
        "embedding",
        *["block"] * 6,
        "head",
    ]


OTHERS = {
    "mistral": (SMALL, ["embedding", *["block"] * 6, "head"]),
    "roberta": (SMALL, ["roberta.embeddings", *["roberta.encoder.layer"] * 6, "lm_head"]),
    "albert": (
        SMALL | {"embedding_size": 32},
        [
            "albert.embeddings",
            "albert.encoder.embedding_hidden_mapping_in",
            *["albert.encoder.albert_layer_groups"] * 6,
            "predictions",
        ],
    ),
    "dinov2": (
        SMALL
        | {"image_size": 56, "patch_size": 14, "architectures": ["Dinov2ForImageClassification"]},
        ["embedding", *["block"] * 6, "head"],
    ),
    "bart": (
        {
            "d_model": 64,
            "encoder_layers": 5,
            "decoder_layers": 6,
            "encoder_ffn_dim": 128,
            "decoder_ffn_dim": 128,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "vocab_size": 512,
            "max_position_embeddings": 64,
        },
        ["embedding", *["encoder"] * 5, "model.decoder.embed_tokens", *["decoder"] * 6, "head"],
    ),
}


@pytest.mark.some(1)
@pytest.mark.parametrize("model_type", OTHERS)
def test_other_models_are_those_of_transformers(tmp_path, model_type):
    values, names = OTHERS[model_type]
    graph = extract_graph(key(config(tmp_path, model_type, **values)))
    assert [graph.layers[index].name for index in graph.sequence] == names
    assert check_structure(graph) == []


def test_tensor_parallelism_of_other_models_is_derived(tmp_path):
    block = extract_graph(key(config(tmp_path, "mistral", **SMALL), 2)).layers[1]
    assert block.matmul_parameter_count == (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128) // 2
    for graph in (block.forward, block.backward):
        collectives = [operator.collective for operator in graph.operators if operator.collective]
        assert [each.kind for each in collectives] == [CollectiveKind.ALL_REDUCE] * 2


def test_a_long_position_table_is_no_default_length(tmp_path):
    path = config(tmp_path, "llama", **(SMALL | {"max_position_embeddings": 131072}))
    assert find_model(path).sequence_length == 8192
    assert (
        find_model(
            config(tmp_path, "mistral", **(SMALL | {"max_position_embeddings": 131072}))
        ).sequence_length
        == 8192
    )


def attention_of(graph):
    return [
        each
        for layer in graph.layers
        for each in layer.forward.operators
        if each.kind is OperatorKind.ATTENTION
    ]


@pytest.mark.thorough
def test_a_window_that_attention_is_told_of_is_priced(tmp_path):
    path = config(tmp_path, "mistral", **SMALL, sliding_window=32)
    graph = extract_graph(key(path))
    assert {(each.causal, each.window) for each in attention_of(graph)} == {(True, 31)}
    assert find_model(path).left_out(graph) == ()


def test_a_window_that_saves_nothing_is_said(tmp_path):
    path = config(tmp_path, "mistral", **SMALL, sliding_window=32)
    graph = extract_graph(replace(key(path), attention=Attention.EAGER))
    (said,) = find_model(path).left_out(graph)
    assert (
        "sliding_window 32 is not priced: scores of every token with its own and all earlier "
        "tokens are" in said
    )


BROKEN = {
    "no JSON": ("{", "is not valid JSON"),
    "a list": ("[]", "holds a list"),
    "no model type": ("{}", "has no model_type"),
    "unknown model type": (
        '{"model_type": "lama"}',
        "transformers knows no model_type 'lama'; did you mean 'llama'?",
    ),
    "text for a size": (
        '{"model_type": "llama", "hidden_size": "wide"}',
        "hidden_size is 'wide', but must be a positive",
    ),
    "heads that do not divide": (
        '{"model_type": "llama", "hidden_size": 100, "num_attention_heads": 3}',
        "3 attention heads do not",
    ),
    "unknown architecture": (
        '{"model_type": "mistral", "architectures": ["Mistral"]}',
        "no architecture 'Mistral'; correct",
    ),
    "no kind of value that its class takes": (
        '{"model_type": "olmo2", "num_key_value_heads": false}',
        "num_key_value_heads is false, but must be int or null; change the configuration",
    ),
    "sizes that contradict": (
        '{"model_type": "roberta", "hidden_size": 100, "num_attention_heads": 3}',
        "building the model fails",
    ),
}


def test_a_nested_architecture_is_shown_short(tmp_path, capsys):
    path = config(tmp_path, "vit", architectures=[[{"x": list(range(200))} for _ in range(20)]])
    assert phaze.main(["extract_graph", "--model", path]) == 2
    said = capsys.readouterr().err
    assert "transformers has no architecture [{'x': [0, 1, 2" in said
    assert len(said) < 1000


@pytest.mark.parametrize(("text", "said"), BROKEN.values(), ids=BROKEN)
def test_broken_configurations_are_refused_with_one_sentence(tmp_path, capsys, text, said):
    path = tmp_path / "config.json"
    path.write_text(text)
    words = [
        "extract_graph",
        "--model",
        str(path),
        "--sequence-length",
        "16",
        "--output",
        str(tmp_path),
        "--quiet",
    ]
    assert phaze.main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1, captured.err
    assert re.search(said, captured.err), captured.err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("meta-llama/Llama-2-7b-hf", "is no file; nothing is fetched from the Hugging Face hub"),
        ("./nowhere/config.json", "is no file"),
        (".", "unknown model"),
        ("/", "is a folder"),
        ("./README.md", "ends in neither .py nor .json"),
    ],
)
def test_paths_that_are_no_models_are_refused(name, said):
    with pytest.raises(InputError, match=said):
        find_model(name)


def test_a_folder_with_a_configuration_is_named(tmp_path):
    path = config(tmp_path, "llama", **SMALL)
    with pytest.raises(InputError, match=f"is a folder; did you mean {path}"):
        find_model(str(tmp_path))
