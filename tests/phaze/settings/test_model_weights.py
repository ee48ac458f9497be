"""Weights of models in every form that a model can be named in."""

import json

import pytest

import phaze
from phaze_common.errors import InputError

GPT = "gpt:layers=4,hidden=192,heads=4"


@pytest.mark.parametrize(
    "given", [{GPT: 2, "bertbase": 1}, [f"{GPT}=2", "bertbase"], f"{GPT}=2 bertbase"]
)
def test_models_given_by_dimensions_have_weights(given):
    models = phaze.study(model=given).workload.models
    assert [(model.name, model.weight) for model in models] == [
        ("gpt-layers4-hidden192-heads4", 2.0),
        ("bertbase", 1.0),
    ]


@pytest.mark.parametrize("given", [f"{GPT}=x", f"{GPT}=0", "bertbase=", "bertbase==2"])
def test_what_is_no_weight_is_refused(given):
    with pytest.raises(InputError, match="must be a positive number, as in bertlarge=2"):
        phaze.study(model=[given, "bertlarge"])


def test_flops_in_json_are_not_rounded(tmp_path, capsys):
    words = [
        "extract_graph",
        "--model",
        "gpt:layers=1,hidden=64,heads=4,vocabulary=128",
        "--sequence-length",
        "8",
    ]
    assert phaze.main([*words, "--output", str(tmp_path), "--format", "json", "--quiet"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["forward_gflops"] == pytest.approx(
        (2 * 8 * (12 * 64**2 + 128 * 64) + 4 * 8 * 8 * 64) / 1e9, rel=1e-12
    )
