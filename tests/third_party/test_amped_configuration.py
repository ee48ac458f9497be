"""AMPeD's configuration file: what it may say, what is refused in which words, and that a summary
reads back."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from phaze_common.errors import InputError
from tests.third_party.amped_cases import (
    CATEGORIES,
    LEFT_OUT,
    SMALL,
    answer,
    configuration,
    document,
)
from third_party.amped import (
    configuration_of,
    estimate,
    read_configuration,
    shipped_tables,
    with_tables_of,
)
from third_party.amped.calculated import calculated_parameters
from third_party.amped.catalogue import Category, calculable, parameters
from third_party.amped.configuration import Rows
from third_party.amped.corrections import CORRECTIONS, NAMES
from third_party.amped.estimate import EXAMPLE
from third_party.amped.times import TimeQuantities


def seconds(content: Any) -> float:
    return estimate(configuration_of(content, shipped_tables(), "case.json")).seconds


def refusal(content: Any) -> str:
    with pytest.raises(InputError) as refused:
        seconds(content)
    sentence = str(refused.value)
    assert "\n" not in sentence and len(sentence) < 1500
    return sentence


def test_short_forms_say_the_same() -> None:
    expected = answer().seconds
    assert seconds(SMALL) == expected  # short categories, parameters directly in them, bare values
    assert (
        seconds({CATEGORIES[name]: {"parameters": part} for name, part in SMALL.items()})
        == expected
    )


def test_a_unit_may_stand_beside_its_number() -> None:
    assert configuration(memory={"value": 8, "unit": "GB"}).values("memory") == (8e9,)


def test_what_is_left_out_is_calculated() -> None:
    names = (
        "key_query_value_length",
        "hidden_layer_dimension_MLP_1",
        "hidden_layer_dimension_MLP_2",
    )
    head = "hidden_layer_dimension_for_attention_sublayers"
    expected = answer().seconds
    assert answer(**dict.fromkeys((*names, head), LEFT_OUT)).seconds == expected
    assert answer(**{name: {"calculated": True} for name in (*names, head)}).seconds == expected
    assert answer(tokens_to_train=LEFT_OUT, samples=800).seconds == expected
    assert answer(batch_size=LEFT_OUT, minibatch_size=4).seconds == expected
    assert answer(dimensionality=LEFT_OUT).seconds == expected
    assert (
        answer(inter_node_bandwidth="100 kb/s", bandwidth_per_network_card=LEFT_OUT).seconds
        == expected
    )


def test_parameters_are_looked_up() -> None:
    content = document()
    training = content[CATEGORIES["training"]]
    for name in ("layers", "dimensionality", "context"):
        training["parameters"][name] = {"from_lookup_table": True}
    training["parameters"]["attention_heads"] = {"from_lookup_table": True, "lookup_name": "layers"}
    training["lookup_config"] = {
        "lookup_table_name": "transformer_network_parameters",
        "lookup_table_row": "GPT-2 small",
    }
    read = configuration_of(content, shipped_tables(), "case.json")
    assert [
        read.values(name) for name in ("layers", "dimensionality", "context", "attention_heads")
    ] == [
        (12,),
        (768,),
        (1024,),
        (12,),
    ]
    assert read.transformer == "GPT-2 small"
    other = configuration_of(
        content, shipped_tables(), "case.json", Rows(transformer="GPT-2 medium")
    )
    assert other.values("layers") == (24,)


def test_a_row_may_be_named_by_the_parameter() -> None:
    read = configuration(frequency={"from_lookup_table": True, "lookup_name": "A100"})
    assert read.values("frequency") == (1.41e9,)


def test_a_file_of_the_users_adds_and_replaces_rows(tmp_path: Path) -> None:
    path = tmp_path / "lookup_tables.json"
    path.write_text(
        json.dumps(
            {
                "accelerator_specifications": {
                    "A100": {"frequency": "2 GHz"},
                    "mine": {"frequency": "3 GHz"},
                }
            }
        )
    )
    tables = with_tables_of(path)
    for row, frequency in (("A100", 2e9), ("mine", 3e9), ("V100", 1.53e9)):
        content = document(frequency={"from_lookup_table": True, "lookup_name": row})
        assert configuration_of(content, tables, "case.json").values("frequency") == (frequency,)
    assert shipped_tables().has_row("accelerator_specifications", "A100")
    assert not shipped_tables().has_row("accelerator_specifications", "mine")
    missing = document(number_of_cores={"from_lookup_table": True, "lookup_name": "A100"})
    with pytest.raises(
        InputError,
        match="unknown property of row 'A100' of lookup table 'accelerator_specifications'",
    ):
        configuration_of(missing, tables, "case.json")


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '{"t": 3}',
        '{"t": {"row": 3}}',
        '{"t": {"row": {"a": 1e300}}}',
        "{",
        '{"t": [{"row": {}}]}',
    ],
)
def test_damaged_tables_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tables.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"tables\.json"):
        with_tables_of(path)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a cycle": (
        {"batch_size": {"calculated": True}},
        "parameters are calculated from each other: batch_size -> minibatch_size -> batch_size; "
        "give one of them a value",
    ),
    "a longer cycle": (
        {"tokens_to_train": {"calculated": True}, "samples": {"calculated": True}},
        "samples -> tokens_to_train -> samples",
    ),
    "a cycle of widths": (
        {
            "attention_heads": {"calculated": True},
            "hidden_layer_dimension_for_attention_sublayers": {"calculated": True},
        },
        "attention_heads -> hidden_layer_dimension_for_attention_sublayers -> attention_heads",
    ),
    "an unknown parameter": ({"layer": 4}, "unknown parameter 'layer'; did you mean 'layers'?"),
    "no value": ({"layers": {"description": "many"}}, "layers has no value; give one"),
    "a missing value": ({"layers": LEFT_OUT}, "parameter 'layers', which"),
    "nothing to calculate by": (
        {"layers": {"calculated": True}},
        "layers is marked calculated, but there is no formula for it",
    ),
    "a formula as text": (
        {"batch_size": {"calculated": "2 * layers"}},
        "calculated '2 * layers'; it must be true or false",
    ),
    "another field": ({"layers": {"valu": 3}}, "layers has 'valu'; it may have value"),
    "a wrong unit": (
        {"inter_node_latency": "5 GB"},
        "inter_node_latency is '5 GB', which is a number of bits; give a time",
    ),
    "an unknown unit": ({"memory": "5 GiBi"}, "memory is '5 GiBi', whose unit 'GiBi' is not known"),
    "zero": ({"layers": 0}, "layers is 0; it must be a whole number from 1 to"),
    "a negative number": ({"batch_size": -8}, "batch_size is -8; it must be"),
    "a half": ({"attention_heads": 1.5}, "attention_heads is 1.5; it must be a whole number"),
    "an endless number": (
        {"tokens_to_train": float("inf")},
        "tokens_to_train is inf; it must be a finite number",
    ),
    "an absurd number": (
        {"tokens_to_train": 1e300},
        "tokens_to_train.value is 1e+300, but must be at most 1e+18",
    ),
    "an absurd text": (
        {"tokens_to_train": "1e300"},
        "tokens_to_train is '1e300'; it must be a finite number",
    ),
    "a zero bandwidth": (
        {"inter_accelerator_bandwidth": 0},
        "inter_accelerator_bandwidth is 0 bit/s; it must be a number from 1",
    ),
    "an efficiency above one": ({"efficiency": 1.5}, "efficiency is 1.5; it must be"),
    "a unit beside a text": (
        {"memory": {"value": "8 GB", "unit": "GB"}},
        "memory has the unit 'GB' beside '8 GB'; give a number",
    ),
    "a wrong unit beside": (
        {"memory": {"value": 8, "unit": "s"}},
        "memory is '8 s', which is a time",
    ),
    "a list": ({"layers": [4, 8]}, "layers is [4, 8]; give a number"),
    "several batch sizes": (
        {"batch_size": [8, 16]},
        "batch_size lists 2 values; give one, or ask for optimize",
    ),
    "no batch sizes": ({"batch_size": []}, "batch_size lists 0 values"),
    "an unknown row": (
        {"memory": {"from_lookup_table": True, "lookup_name": "B100"}},
        "its category names no row; add lookup_config",
    ),
    "a lookup that is no text": (
        {"memory": {"from_lookup_table": True, "lookup_name": 3}},
        "lookup_name 3",
    ),
    "a curve without coefficients": ({"efficiency": {"calculated": True}}, "'efficiency_curve_"),
    "a product of degrees": (
        {"tensor_parallel_degree": 4},
        "tensor_parallel_degree is always calculated from the degrees",
    ),
    "degrees that do not fill a node": (
        {"intra_node_tensor_parallel_degree": 1},
        "the degrees inside a node (intra_node_data_parallel_degree 1, "
        "intra_node_tensor_parallel_degree 1, intra_node_pipeline_parallel_degree 1) multiply to "
        "1, but number_of_accelerators_per_node is 2; make them equal",
    ),
    "degrees for other nodes": (
        {"number_of_nodes": 8},
        "the degrees make for a number_of_nodes of 4, but it is given as 8",
    ),
    "degrees for other accelerators": (
        {"total_number_of_accelerators": 4},
        "total_number_of_accelerators of 8, but it is given as 4",
    ),
    "a batch that cannot be divided": (
        {"batch_size": 9},
        "the data parallel degree 2 does not divide the batch_size 9",
    ),
    "heads that cannot be divided": (
        {"attention_heads": 3, "hidden_layer_dimension_for_attention_sublayers": 2},
        "the tensor parallel degree 2 does not divide the 3 attention_heads",
    ),
    "layers that cannot be divided": (
        {"layers": 5},
        "the pipeline parallel degree 2 does not divide the 5 layers",
    ),
    "micro-batches that do not divide": (
        {"number_of_microbatches_per_minibatch": 3},
        "number_of_microbatches_per_minibatch 3 does not divide the minibatch of 4 sequences",
    ),
}


@pytest.mark.parametrize(("changes", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_by_name(changes: dict[str, Any], words: str) -> None:
    sentence = refusal(document(**changes))
    assert sentence.startswith("case.json") and words in sentence


def _with(path: str, value: Any) -> dict[str, Any]:
    content = copy.deepcopy(document())
    *places, last = path.split("/")
    inner: Any = content
    for place in places:
        inner = inner[CATEGORIES.get(place, place)]
    inner[CATEGORIES.get(last, last)] = value
    return content


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([], "is []; give an object with the categories"),
        (3, "is 3; give an object"),
        ({}, "has no neural_network_training_parameters and no mapping_parameters"),
        (
            {key: value for key, value in document().items() if key != CATEGORIES["system"]},
            "has no system_architecture_parameters",
        ),
        (_with("network", {}), "unknown category 'network'"),
        ({**document(), "training": {}}, "a second time the category 'training'"),
        (_with("training", 3), "is 3; give an object of parameters"),
        (_with("training/parameters", 3), "is 3; give an object of parameters"),
        (_with("training/layers", 3), "has 'layers' beside its parameters"),
        (
            _with("training/lookup_config", 3),
            "lookup_config of neural_network_training_parameters is 3",
        ),
        (
            _with("training/lookup_config", {"lookup_table_row": 3}),
            "give lookup_table_name and lookup_table_row",
        ),
        (_with("training/lookup_config", {"row": "A100"}), "has 'row'; give lookup_table_name"),
        (_with("mapping/parameters/layers", 3), "layers is given in two categories"),
        (
            _with("training/parameters/layers", {"value": 4, "description": 3}),
            "has the description 3; give a text",
        ),
        (_with("training/parameters/" + "x" * 3000, 3), "unknown parameter"),
        (_with("training/parameters/layers", "\x1b[31m"), "holds control characters"),
    ],
)
def test_a_file_of_another_form_is_refused(content: Any, words: str) -> None:
    assert words in refusal(content)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            {"lookup_table_row": "A1000"},
            "unknown row of lookup table 'accelerator_specifications': 'A1000'; did you mean "
            "'A100'?",
        ),
        ({"lookup_table_row": "TPU"}, "there are V100, A100, H100 PCIe, H100 SXM"),
        (
            {"lookup_table_name": "accelerators", "lookup_table_row": "A100"},
            "unknown lookup table 'accelerators'",
        ),
    ],
)
def test_an_unknown_lookup_is_refused_by_name(config: dict[str, str], words: str) -> None:
    content = document(memory={"from_lookup_table": True})
    content[CATEGORIES["accelerator"]]["lookup_config"] = config
    assert words in refusal(content)
    content = document(memory={"from_lookup_table": True, "lookup_name": "memmory"})
    content[CATEGORIES["accelerator"]]["lookup_config"] = {"lookup_table_row": "A100"}
    assert (
        "unknown property of row 'A100' of lookup table 'accelerator_specifications': 'memmory'; "
        "did you mean 'memory'?" in refusal(content)
    )


def test_every_parameter_has_a_category_and_every_default_is_in_range() -> None:
    for parameter in parameters().values():
        assert parameter.category in Category
        if parameter.default is not None:
            assert parameter.parse(parameter.default, "default") == parameter.default


def test_every_given_parameter_is_declared_and_every_calculable_one_calculated() -> None:
    declared = {
        name for owner in TimeQuantities.__mro__ for name in vars(owner).get("__annotations__", {})
    }
    calculated = set(calculated_parameters(TimeQuantities))
    assert calculable() <= calculated
    assert parameters().keys() <= declared | calculated
    assert len(set(NAMES)) == len(CORRECTIONS)


@pytest.mark.parametrize("row", ["V100", "A100", "H100 PCIe", "H100 SXM"])
def test_shipped_rows_say_where_they_are_from(row: str) -> None:
    assert len(shipped_tables().tables["accelerator_specifications"][row]["source"]) > 20


@pytest.mark.parametrize(
    ("row", "parameters_in_billions"),
    [
        ("GPT-2 small", 0.124),
        ("GPT-2 XL", 1.558),
        ("GPT-3 XL", 1.3),
        ("GPT-3 6.7B", 6.7),
        ("GPT-3 13B", 12.85),
        ("GPT-3 175B", 174.6),
    ],
)
def test_shipped_transformers_have_their_published_parameters(
    row: str, parameters_in_billions: float
) -> None:
    read = read_configuration(EXAMPLE, shipped_tables(), Rows(transformer=row))
    names = ("intra_node_tensor_parallel_degree", "inter_node_pipeline_parallel_degree")
    content = json.loads(EXAMPLE.read_text())
    content[CATEGORIES["mapping"]]["parameters"] |= {
        names[0]: 1,
        names[1]: 1,
        "inter_node_data_parallel_degree": 128,
    }
    content[CATEGORIES["mapping"]]["parameters"]["intra_node_data_parallel_degree"] = 8
    content[CATEGORIES["training"]]["parameters"]["batch_size"] = 1024
    read = configuration_of(content, shipped_tables(), "case.json", Rows(transformer=row))
    total = estimate(read).table.number("total_number_of_parameters_without_embedding")
    assert total == pytest.approx(parameters_in_billions * 1e9, rel=0.02)
