"""Curves of transformer-perf-estimates: cases of lists, their best, and the file that a sweep's
page draws beside its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformer_cases import CASE, SYSTEM

import third_party.transformer_perf_estimates as package
from phaze.studies.sweep.other_answers import read_other_answers
from third_party.transformer_perf_estimates.answers import searched
from third_party.transformer_perf_estimates.command_line import main
from third_party.transformer_perf_estimates.curves import MOST_CASES, cases_of, curve_points

REPOSITORY = Path(__file__).resolve().parents[2]
QUESTION = {key: CASE[key] for key in ("model_name", "nvlink_size", "global_batch_size")}
LISTS = QUESTION | {"strategy": ["1d", "2d"], "system_name": ["A100", "B200"], "n_gpus": [256, 512]}


def ask(tmp_path: Path, case: Mapping[str, Any], *words: str) -> int:
    path = tmp_path / "cases.json"
    path.write_text(json.dumps({"cases": [case]}))
    return main(["curves", str(path), *words])


def test_every_combination_is_the_best_of_its_search_under_both_formulas(
    tmp_path: Path, capsys: Any
) -> None:
    table = tmp_path / "curves.csv"
    assert ask(tmp_path, LISTS, "--output", str(table)) == 0
    lines = capsys.readouterr().out.splitlines()
    answers = read_other_answers(table)
    found = {(each.source, each.settings["device"], each.devices): each.seconds for each in answers}
    expected, unfit = {}, 0
    for strategy in LISTS["strategy"]:
        for system, device in (("A100", "a100_80gb"), ("B200", "b200")):
            for gpus in LISTS["n_gpus"]:
                case = QUESTION | {"strategy": strategy, "system_name": system, "n_gpus": gpus}
                name = f"transformer-perf-estimates {strategy}"
                for source, as_published in ((name, False), (f"{name}, as published", True)):
                    seconds = searched(case, tmp_path, as_published, 1)["t"]
                    unfit += seconds is None
                    expected |= {} if seconds is None else {(source, device, gpus): seconds}
    assert found == expected and unfit == 2  # one axis on 256 A100
    assert found["transformer-perf-estimates 1d, as published", "a100_80gb", 512] == pytest.approx(
        614.2018866732147, rel=1e-12
    )
    assert all(
        (each.settings["model"], each.settings["fast_domain"], each.settings["global_batch_size"])
        == ("megatron-1t", "4", "4096")
        for each in answers
    )
    assert len(lines) == 1 + 8 and sum("nothing fits" in line for line in lines) == 1
    assert any(
        line.split()[:3] == ["1d", "megatron-1t", "A100"] and line.split()[-1] == "614.2"
        for line in lines
    )


def test_what_nothing_of_ours_stands_for_keeps_its_name(tmp_path: Path) -> None:
    own = {
        "model": {"l": 512, "e": 512, "h": 4, "depth": 4},
        "system": SYSTEM | {"matrix_flops_fp16": 313},
        "system_name": "mine",
    }
    (point,) = curve_points(LISTS | own | {"strategy": "1d", "n_gpus": 8}, tmp_path)
    assert (point.model, point.device) == (
        "gpt:layers=4,hidden=512,heads=4,ffn=2048,sequence_length=512",
        "mine",
    )


@pytest.mark.parametrize("name", ["gpt3_1t_scaling", "vit_scaling"])
def test_examples_ask_what_the_study_of_the_same_name_asks(name: str) -> None:
    example = json.loads((Path(package.__file__).parent / "examples" / f"{name}.json").read_text())
    study = yaml.safe_load((REPOSITORY / "scripts" / "studies" / f"{name}.yaml").read_text())
    (small,) = curve_points(
        {
            **example,
            "strategy": example["strategy"][:1],
            "system_name": "B200",
            "n_gpus": 256,
            "nvlink_size": 8,
        },
        Path(),
    )
    assert (small.model, small.training.global_batch) == (
        study["model"],
        study["global_batch_size"],
    )
    assert example["nvlink_size"] == study["fast_domain"] and set(study["devices"]) <= set(
        example["n_gpus"]
    )
    assert len(example["system_name"]) == len(study["device"]) == 3
    assert len(list(cases_of(example))) == 2 * 3 * 3 * 7


REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "an empty list": ({"n_gpus": []}, (), "n_gpus is an empty list; give a value, or several"),
    "too many combinations": (
        {"n_gpus": [8] * (MOST_CASES // 4 + 1)},
        (),
        "the lists have 1,004 combinations, at most 1,000",
    ),
    "a list with a wrong value": (
        {"n_gpus": [256, 0]},
        (),
        "case 1: n_gpus is 0; it must be a whole number from 1",
    ),
    "a list in a list": ({"n_gpus": [[256]]}, (), "n_gpus is [256]; it must be a whole number"),
    "a folder to write": ({}, ("--output", "."), "is a folder"),
}


@pytest.mark.parametrize(("changes", "words", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_in_a_sentence(
    changes: dict[str, Any],
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ask(tmp_path, LISTS | changes, *words) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err and len(err.splitlines()) == 1
