"""Sweep files: which points they stand for."""

from itertools import product
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from sweep_cases import SMALL, write

from phaze.studies.sweep.axes import read_sweep
from phaze.studies.sweep.run import resolved_points
from phaze_common.errors import InputError


def points(
    folder: Path, asked: dict[str, object], given: dict[str, object] | None = None
) -> list[dict[str, object]]:
    return [
        dict(each.settings) for each in read_sweep(write(folder, asked), given or {}).combinations()
    ]


def test_every_value_of_a_list_is_a_point_and_the_last_setting_changes_fastest(tmp_path):
    found = points(
        tmp_path, {"model": ["bertlarge", "gpt2"], "hbm_size": 32, "micro_batch_size": [1, 2, 4]}
    )
    pairs = [(each["model"], each["micro_batch_size"]) for each in found]
    assert pairs == list(product(["bertlarge", "gpt2"], [1, 2, 4]))
    assert all(each["hbm_size"] == 32 for each in found)


def test_a_list_in_a_list_and_a_mapping_are_one_value(tmp_path):
    found = points(
        tmp_path,
        {"model": [{"bertlarge": 1, "gpt2": 2}, "opt"], "micro_batch_size": [[1, 2, 4], 8]},
    )
    assert [each["micro_batch_size"] for each in found] == [[1, 2, 4], 8, [1, 2, 4], 8]
    assert found[0]["model"] == {"bertlarge": 1, "gpt2": 2}
    assert points(tmp_path, {"model": {"bertlarge": 1, "gpt2": 2}}) == [
        {"model": {"bertlarge": 1, "gpt2": 2}}
    ]


def test_a_value_that_is_listed_again_is_no_other_point(tmp_path):
    found = points(tmp_path, {"model": ["opt", "opt"], "micro_batch_size": [1, 2, 1, True]})
    assert [each["micro_batch_size"] for each in found] == [
        1,
        2,
        True,
    ]  # which is no number, as its point says


def test_the_command_line_replaces_values_in_their_place_and_rivals(tmp_path):
    asked = {"model": "gpt2", "max_tp": 4, "hbm_size": [32, 64], "phaze_micro_batch_size": 1}
    found = points(tmp_path, asked, {"hbm_size": [80], "tp": [1, 2]})
    assert found == [
        {"model": "gpt2", "hbm_size": 80, "micro_batch_size": 1, "tp": width} for width in (1, 2)
    ]


def test_a_value_may_have_a_unit(tmp_path):
    asked = {"model": "bertbase", "hbm_size": ["64 GiB", "80 GB", 32], "micro_batch_size": 1}
    found = resolved_points(read_sweep(write(tmp_path, asked), {}))
    assert [each.point.request.hardware.hbm_size for each in found if each.point] == [
        (64.0,),
        (80e9 / 2**30,),
        (32.0,),
    ]
    assert [each.combination.settings["hbm_size"] for each in found] == [64, 80e9 / 2**30, 32]


def test_relative_paths_are_those_from_the_file(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    asked = {
        "model": ["./mine.py", "gpt2"],
        "cluster": ["cluster.yaml", "dgx_a100"],
        "device": ["./own.yaml", "a100_80gb"],
    }
    axes = {
        axis.key: axis.values
        for axis in read_sweep(write(tmp_path, asked), {"software": ["./s.yaml"]}).axes
    }
    assert axes["model"] == (str(tmp_path / "mine.py"), "gpt2")
    assert axes["cluster"] == (str(tmp_path / "cluster.yaml"), "dgx_a100")
    assert axes["device"] == (str(tmp_path / "own.yaml"), "a100_80gb")
    assert axes["software"] == (str(tmp_path / "elsewhere" / "s.yaml"),)


def test_the_resolved_sweep_asks_the_same(tmp_path):
    asked = SMALL | {"micro_batch_size": [[1, 2], 4], "tp": [[1, 2]], "sequence_length": [None, 64]}
    sweep = read_sweep(write(tmp_path, asked), {})
    again = tmp_path / "elsewhere" / "sweep.yaml"
    again.parent.mkdir()
    again.write_text(sweep.to_yaml())
    assert read_sweep(again, {}) == sweep


@given(
    st.dictionaries(
        st.sampled_from(["micro_batch_size", "hbm_size", "tp", "zero_stage", "recompute"]),
        st.one_of(
            st.integers(0, 9),
            st.lists(
                st.one_of(st.integers(0, 9), st.lists(st.integers(0, 9), min_size=1)), min_size=1
            ),
        ),
        max_size=4,
    )
)
def test_a_sweep_has_the_product_of_its_lists_and_reads_back(tmp_path_factory, lists):
    folder = tmp_path_factory.mktemp("product")
    sweep = read_sweep(write(folder, {"model": "gpt2", **lists}), {})
    sizes = [
        len({str(each) for each in value}) for value in lists.values() if isinstance(value, list)
    ]
    expected = 1
    for size in sizes:
        expected *= size
    assert len(list(sweep.combinations())) == sweep.count == expected
    again = folder / "again.yaml"
    again.write_text(sweep.to_yaml())
    assert read_sweep(again, {}).axes == sweep.axes


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"modle": "gpt2"}, "unknown key 'modle'; did you mean 'model'"),
        ({"model": "gpt2", "name": ["a", "b"]}, "name is one for the whole sweep"),
        ({"model": "gpt2", "output": ["a", "b"]}, "output is one for the whole sweep"),
        ({"model": "gpt2", "hbm_size": []}, "hbm_size lists no value"),
        ({"hbm_size": [1, 2]}, "names no model"),
        ({"model": "gpt2", "name": "../up"}, "cannot name a folder"),
        (
            {"model": "gpt2", "force_reextract_model": True},
            "force_reextract_model cannot be asked of a sweep",
        ),
        (
            {
                "model": "gpt2",
                "hbm_size": list(range(1, 400)),
                "global_batch_size": list(range(1, 400)),
            },
            "159,201 points",
        ),
        ({"model": "gpt2", "csv": "perhaps"}, "csv is 'perhaps'"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused_at_once(tmp_path, asked, said):
    with pytest.raises(InputError, match=said):
        read_sweep(write(tmp_path, asked), {})


def test_a_value_that_no_point_can_have_is_refused_one_that_some_cannot_have_is_not(tmp_path):
    with pytest.raises(
        InputError, match=r"no point of the sweep is possible; the first: .*nowhere.yaml"
    ):
        resolved_points(
            read_sweep(write(tmp_path, SMALL | {"cluster": "nowhere.yaml", "hbm_size": [1, 2]}), {})
        )
    asked = resolved_points(
        read_sweep(write(tmp_path, SMALL | {"hbm_size": [1, 2], "tp": [1, 5]}), {})
    )
    assert [point.point is None for point in asked] == [False, True, False, True]
    assert "tensor parallel width 5 does not divide bertbase" in asked[1].problem


def test_what_the_command_line_put_in_place_is_not_blamed_on_the_file_alone(tmp_path):
    path = write(tmp_path, SMALL | {"hbm_size": [1, 2]})
    with pytest.raises(InputError) as refused:
        resolved_points(read_sweep(path, {"tp": [5, 7]}))
    assert str(refused.value).startswith(
        f"{path} with --set tp: no point of the sweep is possible; the first: "
    )
    with pytest.raises(InputError, match=f"^{path}: no point"):
        resolved_points(read_sweep(write(tmp_path, SMALL | {"tp": [5, 7]}), {}))


def test_a_sweep_may_mix_chips_to_design_with_devices_that_exist(tmp_path):
    asked = {"model": "bertlarge", "device": [None, "a100_80gb"], "global_batch_size": 64}
    assert [point.problem for point in resolved_points(read_sweep(write(tmp_path, asked), {}))] == [
        "",
        "",
    ]


def test_the_default_name_is_that_of_the_file_and_its_points(tmp_path):
    first = read_sweep(write(tmp_path, SMALL), {})
    assert first.name.startswith("study-")
    assert first.name == read_sweep(write(tmp_path, SMALL), {}).name
    assert first.name != read_sweep(write(tmp_path, SMALL | {"hbm_size": [1]}), {}).name
    assert yaml.safe_load(first.to_yaml())["name"] == first.name
