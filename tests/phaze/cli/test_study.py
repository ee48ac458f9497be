"""What a study may ask for: values, names of settings, precedence, and what is refused."""

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from GraphExtractor.graph import Recompute
from phaze.settings.config_files import read_config
from phaze.settings.request import WeightedModel, settings_for
from phaze.settings.resolve import resolve
from phaze_common.errors import InputError
from phaze_common.setting_fields import Mode

BERT = {"model": "bertlarge"}


def test_the_original_example() -> None:
    study = resolve(
        {},
        {
            "phaze_model": ["bertlarge"],
            "phaze_micro_batch_size": ["1", "2", "4"],
            "phaze_max_tmp_width": "4",
            "phaze_sequence_length": "512",
            "phaze_hbm_size": ["32", "64", "80"],
        },
    )
    assert study.workload.models == (WeightedModel("bertlarge", 1.0),)
    assert study.plan.micro_batch_size == (1, 2, 4)
    assert study.plan.tp == (1, 2, 4)
    assert study.workload.sequence_length == (512,)
    assert study.hardware.hbm_sizes_bytes == (32 * 2**30, 64 * 2**30, 80 * 2**30)
    assert study.plan.recompute == (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)


def test_defaults_are_lists_where_the_original_had_bare_numbers() -> None:
    study = resolve({}, BERT)
    assert (study.plan.micro_batch_size, study.plan.tp, study.hardware.hbm_size) == (
        (1,),
        (1,),
        (32.0,),
    )


def test_precedence_command_line_over_config_over_defaults() -> None:
    config = {"model": "gpt2", "hbm_size": [64], "micro_batch_size": 2}
    study = resolve(config, {"hbm_size": 80})
    assert (
        study.hardware.hbm_size,
        study.plan.micro_batch_size,
        study.workload.models[0].name,
    ) == ((80.0,), (2,), "gpt2")
    assert study.plan.global_batch_size == 4096


def test_explicit_widths_and_largest_width_replace_each_other_between_layers_but_contradict_within_one() -> (
    None
):
    assert resolve(BERT | {"tp": [2, 8]}, {"max_tp": "4"}).plan.tp == (1, 2, 4)
    assert resolve(BERT | {"max_tp": 8}, {"tp": ["4"]}).plan.tp == (4,)
    with pytest.raises(InputError, match="max_tp and tp exclude each other"):
        resolve(BERT | {"max_tp": 8, "tp": [4]}, {})


@pytest.mark.parametrize(
    ("largest", "widths"), [(1, (1,)), (2, (1, 2)), (4, (1, 2, 4)), (8, (1, 2, 4, 8))]
)
def test_largest_width_means_all_powers_of_two_up_to_it(
    largest: int, widths: tuple[int, ...]
) -> None:
    assert resolve(BERT, {"max_tp": largest}).plan.tp == widths


def test_null_in_a_file_means_the_default_and_on_top_of_a_value_resets_it() -> None:
    assert resolve(BERT | {"sequence_length": None}, {}).workload.sequence_length == (512,)
    assert resolve(
        BERT | {"sequence_length": 128}, {"sequence_length": None}
    ).workload.sequence_length == (512,)


def test_the_resolved_study_reads_back_as_itself() -> None:
    study = resolve(
        {},
        {
            "model": ["bertlarge=2", "bertbase"],
            "tp": ["2", "4"],
            "hbm_size": ["40.5", "80"],
            "recompute": "full",
            "attention": "eager",
            "sequence_parallel": "true",
            "objective": "throughput_per_joule",
            "optimizer": "sgd",
            "solver": "highs",
            "zero_stage": 2,
            "csv": True,
            "output": "somewhere",
        },
    )
    assert resolve(yaml.safe_load(study.to_yaml()), {}) == study


def test_an_earlier_study_with_another_input_is_another_study() -> None:
    earlier = resolve({}, BERT)
    config = yaml.safe_load(earlier.to_yaml())
    assert resolve(config, {}) == earlier
    assert resolve(config, {"hbm_size": 80}).output.name not in {earlier.output.name, ""}
    named = resolve({}, BERT | {"name": "mine"})
    assert resolve(yaml.safe_load(named.to_yaml()), {"hbm_size": 80}).output.name == "mine"


def test_names_differ_when_anything_that_matters_differs_and_only_then() -> None:
    study = resolve({}, BERT)
    assert study.output.name.startswith("bertlarge-")
    assert resolve({}, BERT | {"zero_stage": 1}).output.name != study.output.name
    assert (
        resolve({}, BERT | {"csv": True, "force_reextract_model": True, "output": "x"}).output.name
        == study.output.name
    )


def test_artefacts_go_where_the_original_puts_them_or_below_output(tmp_path: Path) -> None:
    study = resolve({}, BERT | {"name": "mine"})
    repository = Path(__file__).resolve().parents[3]
    assert study.folders.run == repository / "Solver" / "output" / "mine"
    assert study.folders.graphs == repository / "GraphExtractor" / "out"
    moved = study.with_settings(output=tmp_path).folders
    assert moved.run == tmp_path
    assert all(
        folder.is_relative_to(tmp_path)
        for folder in (moved.graphs, moved.estimates, moved.arch_configs)
    )


def test_a_global_batch_that_does_not_divide_is_noted() -> None:
    assert resolve({}, BERT | {"micro_batch_size": "1 3"}).notes == (
        "global batch size 4,096 is not a multiple of micro-batch size 3: the last micro-batch is "
        "counted as a whole one",
    )


def test_aliases_of_a_model_are_one_model() -> None:
    assert resolve({}, {"model": "gpt2-xl"}).workload.models == (WeightedModel("gpt2"),)
    with pytest.raises(InputError, match="given twice"):
        resolve({}, {"model": ["gpt2", "gpt2-xl"]})


BAD = {
    "no model": ({}, "no model was given"),
    "unknown model": ({"model": "bertlagre"}, "bertlarge"),
    "width that does not divide": (BERT | {"max_tp": 3}, "1, 2, 4, 8"),
    "zero": (BERT | {"micro_batch_size": 0}, "whole number from 1"),
    "negative": (BERT | {"hbm_size": "-32"}, "number from"),
    "negative sequence": (BERT | {"sequence_length": -1}, "whole number from 1"),
    "fraction": (BERT | {"micro_batch_size": [1.5]}, "whole number"),
    "text": (BERT | {"hbm_size": "big"}, "'big'"),
    "boolean": (BERT | {"micro_batch_size": True}, "whole number"),
    "infinite": (BERT | {"hbm_size": "inf"}, "number from"),
    "not a number": (BERT | {"hbm_size": "nan"}, "number from"),
    "huge": (BERT | {"micro_batch_size": "9" * 5000}, "whole number"),
    "empty list": (BERT | {"hbm_size": []}, "at least one"),
    "twice": (BERT | {"hbm_size": [32, 32.0]}, "twice"),
    "same model twice": ({"model": "bertlarge bertlarge=2"}, "given twice"),
    "weight": ({"model": "bertlarge=heavy"}, "positive number"),
    "negative weight": ({"model": {"bertlarge": -1}}, "positive number"),
    "unknown key": (BERT | {"hbm_sise": 32}, "did you mean 'hbm_size'"),
    "two names of one setting": (BERT | {"phaze_model": "gpt2"}, "same setting"),
    "unknown choice": (BERT | {"optimizer": "adamw"}, "adam, sgd, sgd_momentum"),
    "unknown recomputation": (BERT | {"recompute": ["none", "some"]}, "none, selective, full"),
    "switch": (BERT | {"csv": "perhaps"}, "true or false"),
    "ZeRO stage": (BERT | {"zero_stage": 4}, "from 0 to 3"),
    "micro-batch above global batch": (
        BERT | {"micro_batch_size": 8, "global_batch_size": 4},
        "exceeds the global batch size 4",
    ),
    "missing hardware file": (BERT | {"cluster": "nowhere/cluster.yaml"}, "not a file"),
    "name that is a path": (BERT | {"name": "../x"}, "cannot name a folder"),
    "name of a file too long": (BERT | {"output": "/" + "a" * 300}, "cannot name a folder"),
    "name of a file that is no text": (BERT | {"output": "/\udcff"}, "cannot name a folder"),
    "nobody's home": (
        BERT | {"output": "~nobody-of-this-name/x"},
        "home folder that does not exist",
    ),
    "digits of another script": (BERT | {"micro_batch_size": "\u0663"}, "whole number"),
    "mapping for a number": (BERT | {"sequence_length": {"a": 1}}, "whole number"),
}


@pytest.mark.parametrize(("asked", "said"), BAD.values(), ids=BAD)
def test_bad_input_is_refused_with_a_sentence(asked: dict[str, object], said: str) -> None:
    for config, command_line in ((asked, {}), ({}, asked)):
        with pytest.raises(InputError, match=re.escape(said)):
            resolve(config, command_line)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)


@given(
    st.dictionaries(st.sampled_from(settings_for(Mode.SEARCH).keys) | st.text(), values, max_size=4)
)
def test_any_mapping_gives_a_study_or_an_input_error(asked: dict[str, object]) -> None:
    try:
        study = resolve(BERT | asked, {})
    except InputError as error:
        assert str(error)
    else:
        assert resolve(yaml.safe_load(study.to_yaml()), {}) == study


def test_config_files_are_read_and_their_paths_are_relative_to_them(tmp_path: Path) -> None:
    tier = "{name: flat, group_size: 4, bandwidth_bytes_per_s: 1.0e+9, latency_s: 0.0}"
    (tmp_path / "mine.yaml").write_text(f"name: mine\nnum_devices: 4\ntiers:\n  - {tier}\n")
    config = tmp_path / "study.yaml"
    config.write_text("model: bertlarge\nhbm-size: [32]\ncluster: mine.yaml\n")
    assert resolve(read_config(config), {}).hardware.cluster == str(tmp_path / "mine.yaml")
    with pytest.raises(InputError, match="width 8 exceeds the 4 devices of cluster mine"):
        resolve(read_config(config), {"tp": 8})


@pytest.mark.parametrize(
    "text",
    [
        "- a\n- b\n",
        "just words",
        "model: [bertlarge",
        "\tmodel: x",
        "model: \x00",
        "csv: true\ncsv: false",
    ],
)
def test_config_files_that_are_no_proper_mapping_are_refused(tmp_path: Path, text: str) -> None:
    config = tmp_path / "study.yaml"
    config.write_text(text)
    with pytest.raises(InputError, match=r"study\.yaml"):
        read_config(config)


def test_an_empty_config_file_sets_nothing(tmp_path: Path) -> None:
    config = tmp_path / "study.yaml"
    config.write_text("# nothing yet\n")
    assert read_config(config) == {}
