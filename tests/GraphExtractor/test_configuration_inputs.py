"""What models given by configuration read: text, images, sound and labels of the sizes that the
configuration says."""

import json

import pytest

from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import CollectiveKind, GraphKey, OperatorKind
from GraphExtractor.models.registry import find_model
from GraphExtractor.sources.hf_files import architecture_name, default_values, forward_parameters
from phaze_common.errors import InputError

SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 512,
    "max_position_embeddings": 64,
}


def written(folder, model_type, **values):
    path = folder / f"{model_type}.json"
    path.write_text(json.dumps({"model_type": model_type, **values}))
    return str(path)


@pytest.mark.parametrize(
    ("model_type", "values", "length"),
    [
        ("whisper", {}, 448),
        ("whisper", {"max_target_positions": 32}, 32),
        ("clip", {}, 77),
        ("clip", {"text_config": {"max_position_embeddings": 24}}, 24),
        ("qwen2_vl", {"text_config": {"max_position_embeddings": 64}}, 64),
        ("roberta", {"max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ("electra", {}, 512),
        ("wav2vec2", {}, 250_000),
        ("dinov2", {}, 1),
        ("segformer", {}, 1),
        ("audio-spectrogram-transformer", {}, 1),
        ("beit", {}, 1),
    ],
)
def test_the_default_length_is_that_of_what_the_model_reads(tmp_path, model_type, values, length):
    assert find_model(written(tmp_path, model_type, **values)).sequence_length == length


def test_a_model_of_images_alone_has_no_sequence_length(tmp_path):
    path = written(tmp_path, "dinov2")
    with pytest.raises(
        InputError, match=r"reads inputs of one size.*given sequence length 8192; leave it out"
    ):
        extract_graph(GraphKey(path, 1, 8192, 1))


def test_the_files_of_transformers_say_what_they_say_when_imported():
    import transformers

    for model_type in ("bert", "clip", "whisper", "detr", "llava", "mamba"):
        config = transformers.CONFIG_MAPPING[model_type]()
        for name, value in default_values(model_type).items():
            if isinstance(value, int) and name in vars(config):
                assert getattr(config, name) == value, (model_type, name)
        architecture = architecture_name(
            model_type, bool(getattr(config, "is_encoder_decoder", False))
        )
        forward = getattr(transformers, architecture).forward
        while hasattr(forward, "__wrapped__"):
            forward = forward.__wrapped__
        code = forward.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        assert forward_parameters(model_type, architecture) == frozenset(names)


def test_numbers_that_json_does_not_have_are_read_as_transformers_writes_them(tmp_path):
    limits = [0.0, {"__float__": "Infinity"}]
    path = written(tmp_path, "mamba2", time_step_limit=limits, hidden_size=64, num_hidden_layers=1)
    assert (
        find_model(path).sequence_length == 8192
    )  # and it is no refusal; that it is priced the gauntlet says


def test_the_vocabulary_of_a_configuration_is_padded_only_where_it_is_split(tmp_path):
    path = written(tmp_path, "llama", **(SMALL | {"vocab_size": 999}))
    family = find_model(path)
    assert (family.padded_vocabulary(1), family.padded_vocabulary(4)) == (999, 1000)


def test_experts_of_a_grouped_product_share_all_rows_and_are_split_by_their_inner_width(tmp_path):
    path = written(tmp_path, "olmoe", **(SMALL | {"num_experts": 6, "num_experts_per_tok": 4}))
    whole, part = (extract_graph(GraphKey(path, 1, 64, tp)).layers[1] for tp in (1, 2))
    products = [operator for operator in whole.forward.operators if "_grouped_mm" in operator.name]
    rows = 64 * 4  # over six experts: four of them with one row more
    assert [operator.kind for operator in products] == [OperatorKind.GEMM] * 2
    assert [[(gemm.batch, gemm.m) for gemm in each.gemms] for each in products] == [
        [(4, rows // 6 + 1), (2, rows // 6)]
    ] * 2
    assert sum(each.flops for each in products) == 2 * rows * 3 * 64 * 32
    assert whole.expert_parameter_count == 6 * 3 * 64 * 32 == 2 * part.expert_parameter_count
    backward = [operator for operator in whole.backward.operators if "_grouped_mm" in operator.name]
    assert sum(each.flops for each in backward) == 2 * sum(each.flops for each in products)
    reduced = [each.collective.kind for each in part.forward.operators if each.collective]
    assert reduced == [
        CollectiveKind.ALL_REDUCE
    ]  # of the experts: norms over all queries keep the attention whole


def test_a_parameter_of_one_element_belongs_to_the_layer_that_reads_it(tmp_path):
    values = {name: value for name, value in SMALL.items() if name != "num_key_value_heads"}
    path = written(
        tmp_path, "electra", architectures=["ElectraForPreTraining"], embedding_size=32, **values
    )
    graph = extract_graph(GraphKey(path, 1, 32, 1))
    counted = sum(
        graph.layers[index].parameter_count - graph.layers[index].tied_count
        for index in graph.sequence
    )
    assert counted == graph.total_parameter_count


def test_an_image_of_more_tokens_than_the_text_has_is_refused(tmp_path):
    vision = {
        "model_type": "clip_vision_model",
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
    }
    path = written(
        tmp_path,
        "llava",
        image_token_index=5,
        text_config={"model_type": "llama", **SMALL},
        vision_config=vision | {"intermediate_size": 64, "image_size": 64, "patch_size": 4},
    )
    with pytest.raises(
        InputError,
        match=r"an image is 256 tokens of the text .* more than sequence length 64; ask for a "
        r"longer one",
    ):
        extract_graph(GraphKey(path, 1, 64, 1))
