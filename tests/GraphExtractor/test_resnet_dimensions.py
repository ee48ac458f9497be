"""ResNets named by their dimensions, and those of Hugging Face's configurations."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from GraphExtractor.extract import extract_graph
from GraphExtractor.graph import GraphKey
from GraphExtractor.models.registry import canonical_name, find_model
from GraphExtractor.models.resnet_dimensions import parse_resnet
from phaze_common.errors import InputError

SIZES = {"base": 64, "widening": 1, "classes": 1000, "image_side": 224}
FIFTY = {
    "model_type": "resnet",
    "architectures": ["ResNetForImageClassification"],
    "num_labels": 1000,
}
TINY = {
    **{**FIFTY, "depths": [1, 2, 1, 1], "embedding_size": 4, "hidden_sizes": [16, 32, 64, 128]},
    **{"num_labels": 7, "image_size": 64},
}


def written(config: dict[str, object], folder: Path) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return str(path)


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("resnet:depths=3x4x6x3,base=64", "resnet-50"),
        ("resnet:base=64, depths=3x8x36x3, classes=1000", "resnet-152"),
        ("resnet:depths=3x4x23x3,base=320,widening=16", "wide-resnet-13b"),
    ],
)
def test_dimensions_are_those_given_or_the_familys(name, published):
    listed = find_model(published)
    assert (
        replace(find_model(name), published_parameter_count=listed.published_parameter_count)
        == listed
    )


@given(
    depths=st.lists(st.integers(1, 50), min_size=4, max_size=4),
    base=st.integers(1, 1000),
    more=st.dictionaries(
        st.sampled_from(["widening", "classes", "image_side"]), st.integers(1, 1000)
    ),
    order=st.randoms(),
)
def test_names_are_safe_in_files_and_stable(depths, base, more, order):
    pairs = [
        f"depths={'x'.join(map(str, depths))}",
        f"base={base}",
        *(f"{key}={value}" for key, value in more.items()),
    ]
    order.shuffle(pairs)
    name = canonical_name("resnet:" + ",".join(pairs))
    assert re.fullmatch(r"[a-z][a-z0-9_-]*", name)
    assert canonical_name(name) == name == parse_resnet(name).name
    found = find_model(name)
    assert (found.depths, found.base, found.layers) == (tuple(depths), base, sum(depths))
    assert all(
        getattr(found, key) == value for key, value in {**SIZES, "base": base, **more}.items()
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "resnet:base=64",
            "lacks depths; give depths and base, as in resnet:depths=3x4x6x3,base=64",
        ),
        ("resnet-depths1x1x1x1", "lacks base"),
        ("resnet:depths=3x4x6,base=64", r"'depths=3x4x6'.*blocks of its four stages"),
        ("resnet:depths=3x0x6x3,base=64", "'depths=3x0x6x3'.*positive whole number"),
        ("resnet:depths=3x4x6x3,base=0", "'base=0'.*positive whole number"),
        ("resnet:depths=3x4x6x3,base=64,layers=4", "'layers=4'.*widening, classes, image_side"),
        ("resnet:depths=3x4x6x3,base=64,base=32", "gives base twice"),
        ("resnet:depths=3x4x6x3,depths=3x4x6x3,base=64", "gives depths twice"),
        ("resnet:depths=3x4x99999x3,base=64", "'depths=3x4x99999x3'.*at most 10,000 blocks"),
        ("resnet:depths=3x4x6x3,base=99999999", "'base=99999999'.*at most 1,048,576"),
        ("resnett:depths=3x4x6x3,base=64", "'resnett' is no family.*gpt, .*resnet"),
        ("resnet-51", "did you mean resnet-50"),
    ],
)
def test_impossible_dimensions_are_refused(name, message):
    with pytest.raises(InputError, match=message):
        canonical_name(name)


def test_one_pixel_of_one_image_cannot_be_normalised():
    name = "resnet:depths=1x1x1x1,base=4,image_side={}"
    with pytest.raises(
        InputError, match=r"of 32 x 32.*micro-batches of 2 rows or more.*image_side above 32"
    ):
        extract_graph(GraphKey(name.format(32), 1, 1, 1))
    for side, rows in ((33, 1), (32, 2)):  # which torch can normalise
        key = GraphKey(canonical_name(name.format(side)), rows, 1, 1)
        assert len(extract_graph(key).sequence) == 6


def test_a_configuration_is_read_as_a_model_of_these_dimensions(tmp_path):
    fifty = find_model(written(FIFTY, tmp_path))
    listed = find_model("resnet-50")
    assert fifty == replace(
        listed, published_parameter_count=0, vocabulary_multiple=fifty.vocabulary_multiple
    )
    tiny = find_model(written(TINY, tmp_path))
    assert (tiny.depths, tiny.base, tiny.classes, tiny.image_side) == ((1, 2, 1, 1), 4, 7, 64)


@pytest.mark.parametrize(
    "other",
    [
        {"hidden_sizes": [16, 32, 48, 128]},
        {"layer_type": "basic"},
        {"depths": [1, 2, 1]},
        {"hidden_act": "gelu"},
        {"downsample_in_bottleneck": True},
        {"downsample_in_first_stage": True},
        {"architectures": ["ResNetModel"]},
    ],
)
def test_other_configurations_are_those_of_transformers_own_module(other, tmp_path):
    assert not find_model(written({**TINY, **other}, tmp_path)).described


def test_the_model_of_a_configuration_computes_what_transformers_own_does(tmp_path):
    transformers = pytest.importorskip("transformers")
    family = find_model(written(TINY, tmp_path))
    ours = family.build(GraphKey("tiny", 3, 1, 1), 0, "sdpa").train()
    theirs = transformers.ResNetForImageClassification(transformers.ResNetConfig(**TINY)).train()
    weights = {_our_name(name): value for name, value in theirs.named_parameters()}
    ours.load_state_dict(weights)
    images = torch.randn(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours(images), theirs(pixel_values=images).logits)


def _our_name(name: str) -> str:
    """Of a parameter of transformers' module."""
    for pattern, ours in (
        (r"resnet\.embedder\.embedder", "stem"),
        (r"resnet\.encoder\.stages\.(\d+)\.layers\.(\d+)", r"stages.\1.\2"),
        (r"layer\.0", "reduce"),
        (r"layer\.1", "spatial"),
        (r"layer\.2", "expand"),
        (r"classifier\.1", "classifier"),
        (r"\.convolution\.", ".0."),
        (r"\.normalization\.", ".1."),
    ):
        name = re.sub(pattern, ours, name)
    return name
