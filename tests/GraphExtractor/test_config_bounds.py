"""Sizes in Hugging Face configurations: those that models have are accepted, those that none has
are refused at once."""

import json
import logging

import pytest

from GraphExtractor.models.registry import find_model
from GraphExtractor.sources.config_values import check_sizes
from phaze_common.errors import InputError


@pytest.mark.thorough
def test_the_usual_sizes_of_every_architecture_are_accepted():
    from huggingface_hub.errors import StrictDataclassError
    from transformers import CONFIG_MAPPING

    logging.getLogger("transformers").setLevel(logging.CRITICAL)
    checked = 0
    for name, config in CONFIG_MAPPING.items():
        try:
            values = config().to_dict()
        except (
            StrictDataclassError,
            ValueError,
            TypeError,
            AttributeError,
            KeyError,
            ImportError,
        ):  # one without usual sizes
            continue
        check_sizes({key: value for key, value in values.items() if isinstance(key, str)}, name)
        checked += 1
    assert checked > 100


@pytest.mark.parametrize(
    "model_type", ["bert", "mpnet"]
)  # a family of ours, and a model of transformers
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("vocab_size", 10**40),
        ("vocab_size", 10**39),
        ("num_hidden_layers", 10**9),
        ("hidden_size", 2**31),
        ("num_labels", 10**9),
    ],
)
def test_a_size_that_no_model_has_is_one_sentence(tmp_path, model_type, key, value):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": model_type, key: value}))
    with pytest.raises(InputError, match=rf"{path}.*at most .* (is|are) possible; correct it"):
        find_model(str(path))


def test_sizes_of_parts_count_too(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "clip", "vision_config": {"depths": [2, 10**9]}}))
    with pytest.raises(InputError, match=r"vision_config\.depths is 1000000000"):
        find_model(str(path))
